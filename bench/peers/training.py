# SPDX-License-Identifier: MIT
"""./dev bench --peers --training: training steps of libffn, of oneDNN, and the bare sgemm calls that a step contains, one process per engine, in turn.

A step is a forward pass that leaves what the backward pass needs, and a backward pass that gives every gradient and d_x. Each round asks every worker in
turn for one step; no two run at once. Exit status: 1 if an output was wrong or a worker failed.
"""
import os
import re
import sys

import numpy as np

import report
from layers import Shape, activate, clear, relative_error, writer_of
from peers import chosen, numbers, parser_of, progress
from workers import Worker, WorkerFailure, start_workers

SHAPES = (Shape(768, 3072, "gelu"), Shape(1024, 2816, "silu", gated=True))
BARE = "sgemm"
OWN = ("libffn native", "libffn blas")
BEGIN, END = "<!-- training: begin (./dev bench --peers --training --docs writes what stands between) -->", "<!-- training: end -->"


class TrainingWorker(Worker):
    engines = {
        "libffn native": ("{bin}/train_ffn", "native"),
        "libffn blas": ("{bin}/train_ffn", "blas"),
        "oneDNN": ("{bin}/train_onednn", "-"),
        BARE: ("{bin}/train_openblas", "-"),
    }

    def deviation(self, tokens, right):
        """The worst of y, d_x and the gradients, each in terms of its largest number."""
        values, errors, begin = np.fromfile(self.y_file, dtype=np.float32), [], 0
        for exact in right(tokens):
            part = values[begin:begin + exact.size].reshape(exact.shape)
            errors.append(relative_error(part, exact))
            begin += exact.size
        return max(errors) if begin == values.size and not np.isnan(values).any() else float("nan")

    def choose(self, what):
        if not self.ask(f"choose {what}")[0]:
            raise WorkerFailure(f"{self.name} cannot train {what}")

    def step(self):
        """Seconds of a step and of its forward half."""
        can, times = self.ask("run 1")
        if not can:
            raise WorkerFailure(f"{self.name}: {times}")
        return tuple(float(time) for time in times.split("/"))


def make_data(shape, folder, most):
    """Writes the arrays of a step, and returns a function that gives a step's outputs in float64 for so many tokens."""
    uniform = writer_of(folder, shape.d_model)
    sizes = {"x": (most, shape.d_model, 1.7), "d_y": (most, shape.d_model, 1), "up": (shape.d_ff, shape.d_model, (3 / shape.d_model) ** 0.5),
             "gate": (shape.d_ff, shape.d_model, (3 / shape.d_model) ** 0.5), "down": (shape.d_model, shape.d_ff, (3 / shape.d_ff) ** 0.5)}
    arrays = {}
    for name, (rows, columns, scale) in sizes.items():
        if name == "gate" and not shape.gated:
            continue
        arrays[name] = uniform(name, (rows, columns), scale).astype(np.float64)
    known = {}

    def right(tokens):
        if tokens not in known:
            known[tokens] = step_in_float64(shape, tokens, **arrays)
        return known[tokens]

    return right


def slope(name, z):
    """The derivative of the activation."""
    if name == "silu":
        s = 1 / (1 + np.exp(-z))
        return s * (1 + z * (1 - s))
    with np.errstate(invalid="ignore"):
        cumulative = np.where(z == 0, 0.5, activate("gelu", z) / z)
    return cumulative + z * np.exp(-z * z / 2) / np.sqrt(2 * np.pi)


def step_in_float64(shape, tokens, x, d_y, up, down, gate=None):
    """y, d_x, d_up, d_gate (gated) and d_down."""
    x, d_y = x[:tokens], d_y[:tokens]
    hidden, d_act = x @ up.T, d_y @ down
    if not shape.gated:
        act, d_hidden = activate(shape.activation, hidden), d_act * slope(shape.activation, hidden)
        return act @ down.T, d_hidden @ up, d_hidden.T @ x, d_y.T @ act
    z = x @ gate.T
    activated = activate(shape.activation, z)
    act, d_hidden, d_gate = activated * hidden, d_act * activated, d_act * hidden * slope(shape.activation, z)
    return act @ down.T, d_hidden @ up + d_gate @ gate, d_hidden.T @ x, d_gate.T @ x, d_y.T @ act


def measure(workers, tokens, threads, right, rounds):
    """{(engine, way): [(step, forward) of each round]}"""
    times = {}
    for worker in workers:
        worker.prepare(tokens, threads, right)
    for turn in range(rounds):
        for worker in workers[turn % len(workers):] + workers[:turn % len(workers)]:  # what disturbs at even intervals meets each engine
            for way in ("keeping", "recomputing") if worker.name in OWN else ("keeping",):
                if worker.name in OWN:
                    worker.choose(way)
                times.setdefault((worker.name, way), []).append(worker.step())
    return times


def median_ratio(above, below):
    return float(np.median([a[0] / b[0] for a, b in zip(above, below)]))


def milliseconds(times):
    return f"{1e3 * np.median([step for step, _ in times]):.1f}"


def row(shape, tokens, threads, times, workers):
    """A line of the table, or of several: one for each engine."""
    forms, bare = {worker.name: worker.form for worker in workers}, times[BARE, "keeping"]
    errors = {worker.name: worker.error for worker in workers}
    for (name, way), steps in times.items():
        if way != "keeping":
            continue
        again, memory = times.get((name, "recomputing")), re.search(r"memory (\S+) (\S+)", forms[name])
        back = float(np.median([(step - forward) / forward for step, forward in steps]))
        cells = [shape.name, tokens, threads, name, milliseconds(steps), f"{median_ratio(steps, bare):.3f}", f"{back:.2f}",
                 f"{median_ratio(again, bare):.3f}" if again else "", *(memory.groups() if memory else ("", "")), f"{errors[name]:.0e}"]
        yield "| " + " | ".join(str(cell) for cell in cells) + " |"


HEAD = ["| layer | tokens | threads | engine | step, ms | to sgemm | backward to forward | recomputing, to sgemm | memory | recomputing | error |",
        "| --- | ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"]


def ahead(cells):
    """How many times as long as libffn's engines oneDNN takes, in words."""
    lines = []
    for name in OWN:
        ratios = [median_ratio(times["oneDNN", "keeping"], times[name, "keeping"]) for times in cells if ("oneDNN", "keeping") in times and (name, "keeping") in times]
        if ratios:
            lines.append(f"oneDNN's step takes {min(ratios):.2f} to {max(ratios):.2f} (median {np.median(ratios):.2f}) times as long as that of {name}.")
    return lines


def load():
    return ", ".join(f"{value:.1f}" for value in os.getloadavg())


def arguments():
    parser = parser_of("./dev bench --peers --training", "Measures training steps of libffn and of its peers.")
    parser.add_argument("--tokens", type=numbers, default=(512, 2048), help="default 512,2048")
    parser.add_argument("--rounds", type=int, default=11, help="of each cell; default 11")
    parser.add_argument("--shapes", help="only shapes whose name has this word, such as SwiGLU")
    parser.add_argument("--engines", help="only engines whose name has one of these words, such as native,oneDNN; sgemm is always measured")
    parser.add_argument("--docs", action="store_true", help="write the table into docs/training.md")
    return parser.parse_args()


def measure_shape(shape, settings, cells, lines):
    folder = settings.output / "data"
    names = chosen(TrainingWorker.engines, settings.engines, always=(BARE,))
    right = make_data(shape, folder, max(settings.tokens))
    workers, missing = start_workers(names, shape, folder, settings.bin, max(settings.tokens), "best", kind=TrainingWorker)
    for name, sentence in missing.items():
        progress(f"without {name}: {sentence}")
    try:
        for threads in settings.threads:
            for tokens in settings.tokens:
                before = load()
                times = measure(workers, tokens, threads, right, settings.rounds)
                cells.append(times)
                progress(f"{shape.name}, {tokens} tokens, {threads} threads; load before and after: {before}; {load()}")
                for line in row(shape, tokens, threads, times, workers):
                    lines.append(line)
                    print(line, flush=True)
    finally:
        for worker in workers:
            worker.stop()
        clear(folder)


def main():
    settings, cells, lines = arguments(), [], []
    print("\n".join(HEAD), flush=True)
    try:
        for shape in SHAPES:
            if not settings.shapes or settings.shapes.lower() in shape.name.lower():
                measure_shape(shape, settings, cells, lines)
    except WorkerFailure as failure:
        sys.exit(f"bench --peers --training: {failure}")
    notes = ahead(cells)
    print("\n".join(notes))
    if settings.docs:
        made = [f"{report.measured_on()} Rounds of a cell: {settings.rounds}. Load of the machine at the end: {load()}.", "", *HEAD, *lines, "", *notes]
        report.replace_between(report.DOCS / "training.md", made, BEGIN, END)


if __name__ == "__main__":
    main()
