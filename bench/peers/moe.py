# SPDX-License-Identifier: MIT
"""./dev bench --peers --moe: mixtures of experts of libffn against mixtures composed of dense layers, libffn's and oneDNN's: rows gathered for each
expert, its layer, and the results scattered. One process per engine, in turn, beside the machine's own limits.

The compositions are given the choices and their weights. libffn's mixture makes them itself; then it is timed again, given them too and not: what it
saves is the routing. Exit status: 1 if an output was wrong or a worker failed.
"""
import sys
from dataclasses import dataclass
from functools import partial

import numpy as np

import report
from cell import Cell
from layers import Shape, activate, clear, writer_of
from peers import chosen, measure_cell, numbers, parser_of, progress
from workers import ENGINES, LIMITS, Worker, WorkerFailure, start_workers

MIXTURE, GIVEN, AGAIN = "libffn mixture", "libffn mixture, given", "libffn mixture, again"
OWN_COMPOSED, PEER_COMPOSED = "libffn composed", "oneDNN composed"
TIMED = (MIXTURE, OWN_COMPOSED, PEER_COMPOSED)
AIMS = {1: 0.85, 16: 0.80, 128: 0.75, 512: 0.85}  # tokens: share of the limit with one thread
ROUTING_MOST = {512: 0.03}                        # tokens: share of the mixture's time
BEGIN, END = "<!-- moe: begin (./dev bench --peers --moe --docs writes what stands between) -->", "<!-- moe: end -->"


@dataclass(frozen=True)
class Mixture(Shape):
    experts: int = 0
    top_k: int = 0

    @property
    def name(self):
        return f"{self.experts} top {self.top_k} of {super().name}"

    def arguments(self, max_tokens):
        return super().arguments(max_tokens) + [self.experts, self.top_k]

    def flop(self, tokens):
        return super().flop(tokens * self.top_k)


MIXTURES = (Mixture(1024, 2816, "silu", gated=True, experts=8, top_k=2), Mixture(1024, 704, "silu", gated=True, experts=64, top_k=6))


class MixtureWorker(Worker):
    engines = {
        **{name: ENGINES[name] for name in LIMITS},
        MIXTURE: ("{bin}/moe_ffn", "mixture"),
        OWN_COMPOSED: ("{bin}/moe_ffn", "composed"),
        PEER_COMPOSED: ("{bin}/moe_onednn", "-"),
    }

    def turn(self, count):
        if self.name != MIXTURE:
            return super().turn(count)
        times = {}
        # The first pays for what ran before, as every engine does. The other two tell the routing.
        for what, way in ((MIXTURE, "routed"), (GIVEN, "given"), (AGAIN, "routed")):
            self.ask(f"choose {way}")
            times[what] = self.run(count)
        return times


@dataclass
class MixtureCell(Cell):
    touched: dict = None  # tokens -> experts that they chose

    def __post_init__(self):
        super().__post_init__()
        for name in (GIVEN, AGAIN):
            self.forms[name], self.errors[name] = self.forms[MIXTURE], self.errors[MIXTURE]

    @property
    def bytes(self):
        return self.shape.bytes * self.touched[self.tokens]

    def best_key(self, name):
        return *super().best_key(name), self.tokens if name == "read" else None

    @property
    def routing(self):
        return 1 - self.times_as_long(GIVEN, AGAIN)

    def short(self):
        words, share, most = [], self.share(MIXTURE), ROUTING_MOST.get(self.tokens)
        if self.threads == 1 and share < AIMS.get(self.tokens, 0):
            words.append(f"share {share:.2f}, to be {AIMS[self.tokens]:.2f}")
        words += [f"{name} takes {self.times_as_long(name, MIXTURE):.2f} of the time" for name in (OWN_COMPOSED, PEER_COMPOSED)
                  if name in self.times and self.times_as_long(name, MIXTURE) < 1]
        if most and self.routing > most:
            words.append(f"routing {self.routing:.3f}, to be {most:.2f}")
        return words


# ---------------------------------------------------------------- data and the right output

def make_data(mixture, folder, tokens):
    """Writes the mixture's arrays, rows of x and their choices. Returns the output in float64, and {tokens: experts that the first so many chose}."""
    uniform = writer_of(folder, mixture.experts)
    experts, d_model, d_ff = mixture.experts, mixture.d_model, mixture.d_ff
    x, router = uniform("x", (tokens, d_model), 1.7), uniform("router", (experts, d_model), 0.1)
    up, gate = (uniform(name, (experts, d_ff, d_model), (3 / d_model) ** 0.5) for name in ("up", "gate"))
    down = uniform("down", (experts, d_model, d_ff), (3 / d_ff) ** 0.5)
    ids, weights = choices(x.astype(np.float64) @ router.astype(np.float64).T, mixture.top_k)
    ids.astype(np.int32).tofile(folder / "ids")
    weights.astype(np.float32).tofile(folder / "weights")
    y = np.zeros((tokens, d_model))
    for expert in range(experts):
        rows, slots = np.nonzero(ids == expert)
        mine, (own_up, own_gate, own_down) = x[rows].astype(np.float64), (array[expert].astype(np.float64) for array in (up, gate, down))
        hidden = activate(mixture.activation, mine @ own_gate.T) * (mine @ own_up.T)
        y[rows] += weights[rows, slots, None] * (hidden @ own_down.T)
    return y, {count: len(np.unique(ids[:count])) for count in range(1, tokens + 1)}


def choices(logits, top_k):
    """The top k of each row, and their softmax."""
    ids = np.argsort(-logits, axis=1, kind="stable")[:, :top_k]
    logits = np.take_along_axis(logits, ids, axis=1)
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return ids, weights / weights.sum(axis=1, keepdims=True)


# ---------------------------------------------------------------- report

HEAD = ["| mixture | tokens | threads | limit us | of | " + " | ".join(f"{name} us" for name in TIMED) + " | share of the limit: "
        + " | ".join(TIMED) + f" | {OWN_COMPOSED} / mixture | {PEER_COMPOSED} / mixture | routing |", "| --- |" + " ---: |" * 3 + " --- |" + " ---: |" * 9]


def row(cell):
    shown = [name if name in cell.times else None for name in TIMED]
    times = [report.microseconds(cell.median(name)) if name else "" for name in shown]
    shares = [f"{cell.share(name):.2f}" if name else "" for name in shown]
    ratios = [f"{cell.times_as_long(name, MIXTURE):.2f}" if name else "" for name in shown[1:]]
    cells = [cell.shape.name, f"{cell.tokens}{'*' if cell.disturbed else ''}", cell.threads, report.microseconds(cell.limit), cell.bound, *times, *shares,
             *ratios, f"{100 * cell.routing:.1f} %"]
    return "| " + " | ".join(map(str, cells)) + " |"


def short_lines(cells):
    short = [cell for cell in cells if cell.short()]
    if not short:
        return [f"All {len(cells)} cells reach what is aimed at."]
    return [f"Short of what is aimed at: {len(short)} of {len(cells)} cells.", ""] + [
        f"- {cell.shape.name}, {cell.tokens} tokens, {cell.threads} thread{'s' if cell.threads > 1 else ''}: {'; '.join(cell.short())}" for cell in short]


def write(cells, settings):
    if not cells:
        return
    lines = [*HEAD, *map(row, cells), "", *report.disturbed_cells(cells), *short_lines(cells)]
    print("\n" + "\n".join(lines))
    tsv = settings.output / "moe.tsv"
    report.write_tsv(tsv, cells)
    print(f"\nEvery figure: {tsv}")
    if settings.docs:
        report.replace_between(report.DOCS / "moe.md", [f"{report.measured_on()} Rounds of a cell: up to {settings.rounds}.", ""] + lines, BEGIN, END)


# ---------------------------------------------------------------- measuring

def arguments():
    parser = parser_of("./dev bench --peers --moe", "Measures mixtures of experts against compositions of dense layers.")
    parser.add_argument("--tokens", type=numbers, default=tuple(AIMS), help="default 1,16,128,512")
    parser.add_argument("--rounds", type=int, default=15, help="of each cell, at most; default 15")
    parser.add_argument("--shapes", help="only mixtures whose name has this, such as \"64 top\"")
    parser.add_argument("--engines", help="only compositions whose name has one of these words, such as oneDNN; the limits and the mixture are always measured")
    parser.add_argument("--docs", action="store_true", help="write the table into docs/moe.md")
    return parser.parse_args()


def measure_mixture(mixture, settings, record, best):
    folder, most = settings.output / "data", max(settings.tokens)
    progress(f"{mixture.name}: making weights and the float64 output")
    right, touched = make_data(mixture, folder, most)
    names = chosen(MixtureWorker.engines, settings.engines, always=(*LIMITS, MIXTURE))
    workers, missing = start_workers(names, mixture, folder, settings.bin, most, "best", kind=MixtureWorker)
    for name, sentence in missing.items():
        progress(f"without {name}: {sentence}")
    kind = partial(MixtureCell, touched=touched)
    try:
        for threads in settings.threads:
            for tokens in settings.tokens:
                record.append(measure_cell(workers, mixture, "best", tokens, threads, settings, right, best, kind=kind))
                progress(row(record[-1]))
    finally:
        for worker in workers:
            worker.stop()
        clear(folder)


def main():
    settings, cells, best = arguments(), [], {}
    print("\n".join(HEAD), flush=True)
    try:
        for mixture in MIXTURES:
            if not settings.shapes or settings.shapes.lower() in mixture.name.lower():
                measure_mixture(mixture, settings, cells, best)
    except WorkerFailure as failure:
        sys.exit(f"bench --peers --moe: {failure}")
    finally:
        write(cells, settings)


if __name__ == "__main__":
    main()
