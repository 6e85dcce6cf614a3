# SPDX-License-Identifier: MIT
"""./dev bench --peers: whole layers of libffn and of its peers, one process per engine, in turn, beside the machine's own limits.

Each round asks every worker in turn for a few runs of the same cell (shape, tokens, threads); no two run at once. Exit status: 1 if an output was
wrong or a worker failed.
"""
import argparse
import sys
import time
from pathlib import Path

import extra
import report
from cell import Cell
from layers import QUICK_TOKENS, SHAPES, TOKENS, make_data
from workers import ENGINES, LIMITS, OWN, WorkerFailure, start_workers

SECONDS_PER_TURN = 0.012  # of an engine's runs in one round, or one run if that takes longer
SECONDS_PER_CELL = 9.0    # fewer rounds than asked for where all engines together would take longer
LEAST_ROUNDS = 5
TRIES = 2                 # of a cell that was disturbed
AVX2_ENGINES = LIMITS + OWN + ("OpenBLAS",)


def numbers(text):
    return tuple(int(word) for word in text.split(","))


def parser_of(command, description):
    """What the drivers of all benchmarks of peers take."""
    parser = argparse.ArgumentParser(prog=command, description=description)
    parser.add_argument("--bin", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--output", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--threads", type=numbers, default=(1, 2), help="default 1,2")
    return parser


def arguments():
    parser = parser_of("./dev bench --peers", "Measures libffn's layers against its peers' and the machine's limits.")
    parser.add_argument("--quick", action="store_true", help="few tokens and rounds: under 5 minutes (all: under 25)")
    parser.add_argument("--shapes", help="only shapes whose name has one of these words, such as 512,SwiGLU")
    parser.add_argument("--tokens", type=numbers, help="instead of the standard ones, such as 1,16")
    parser.add_argument("--engines", help="only engines whose name has one of these words, such as native,oneDNN; the limits are always measured")
    parser.add_argument("--rounds", type=int, help="at most, of a cell; default 15, with --quick 7")
    parser.add_argument("--level", choices=("best", "avx2", "both"), default="both", help="ISA level; default both")
    parser.add_argument("--no-extra", action="store_true", help="leave out host threads and ffn_layer_create")
    parser.add_argument("--docs", action="store_true", help="write the tables and plots into docs/, as the latest")
    settings = parser.parse_args()
    settings.rounds = settings.rounds or (7 if settings.quick else 15)
    settings.tokens = settings.tokens or (QUICK_TOKENS if settings.quick else TOKENS)
    return settings


def chosen(names, words, always=()):
    return [name for name in names if name in always or not words or any(word.lower() in name.lower() for word in words.split(","))]


def prepare_cell(workers, tokens, threads, right):
    """{worker: runs in a turn}, without those that cannot do this cell."""
    counts = {}
    for worker in workers:
        sentence = worker.prepare(tokens, threads, right)
        if sentence:
            progress(f"without {worker.name} at {tokens} tokens: {sentence}")
            continue
        once = worker.run(1)[0]
        if once < SECONDS_PER_TURN:
            once = sorted(worker.run(3))[1]
        counts[worker] = max(1, min(100, round(SECONDS_PER_TURN / once)))
    return counts


def time_cell(counts, rounds):
    """{engine, or what else a turn times: rounds of seconds of each run}. Fewer rounds than asked for where the cell would take long."""
    times, begin = {}, time.monotonic()
    for done in range(rounds):
        if done >= LEAST_ROUNDS and (time.monotonic() - begin) * (done + 1) / done > SECONDS_PER_CELL:
            break
        for worker, count in counts.items():
            for what, seconds in worker.turn(count).items():
                times.setdefault(what, []).append(seconds)
    return times


def measure_cell(workers, shape, level, tokens, threads, settings, right, best, kind=Cell):
    """The cell, timed again if something else ran meanwhile: of the tries the one that was disturbed least."""
    counts, tries = prepare_cell(workers, tokens, threads, right), []
    while not tries or tries[-1].disturbed and len(tries) < TRIES:
        times = time_cell(counts, settings.rounds)
        tries.append(kind(shape, level, tokens, threads, times, {w.name: w.form for w in workers}, {w.name: w.error for w in workers}, best))
    return min(tries, key=lambda cell: cell.disturbance)


def measure_shape(shape, level, settings, record, best):
    folder = settings.output / "data"
    folder.mkdir(parents=True, exist_ok=True)
    cells = shape.cells(settings.tokens, settings.threads)
    if not cells:
        return
    most = max(tokens for tokens, _ in cells)
    progress(f"{shape.name}, {level}: making weights and the float64 output")
    right = make_data(shape, folder, most)
    names = chosen(ENGINES if level == "best" else AVX2_ENGINES, settings.engines, always=LIMITS)
    workers, missing = start_workers(names, shape, folder, settings.bin, most, level)
    for name, sentence in missing.items():
        progress(f"without {name}: {sentence}")
    try:
        for tokens, threads in cells:
            cell = measure_cell(workers, shape, level, tokens, threads, settings, right, best)
            record.append(cell)
            progress(cell.line())
    finally:
        for worker in workers:
            worker.stop()
        for file in folder.iterdir():
            file.unlink()


def progress(text, start=time.monotonic()):
    print(f"{time.monotonic() - start:6.0f} s  {text}", flush=True)


def main():
    settings = arguments()
    names = chosen([shape.name for shape in SHAPES], settings.shapes)
    shapes = [shape for shape in SHAPES if shape.name in names]
    cells, lines, best = [], [], {}
    try:
        for shape in shapes:
            if settings.level in ("best", "both"):
                measure_shape(shape, "best", settings, cells, best)
        for shape in shapes:
            # From DRAM the level makes no difference; the smallest shape has its one cell above.
            if settings.level in ("avx2", "both") and shape.max_tokens > 128 and not shape.only:
                measure_shape(shape, "avx2", settings, cells, best)
        if not settings.no_extra:
            lines = extra.measure(settings.bin, settings.quick, progress)
    except WorkerFailure as failure:
        sys.exit(f"bench --peers: {failure}")
    finally:
        report.write(cells, lines, settings)


if __name__ == "__main__":
    main()
