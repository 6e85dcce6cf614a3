# SPDX-License-Identifier: MIT
"""The figures as tab-separated values, as Markdown and as plots."""
import datetime
import os
import platform
from importlib import metadata
from pathlib import Path

from cell import DISTURBED, PEERS
from workers import ENGINES, LIMITS, OWN

BEGIN, END = "<!-- measured: begin (./dev bench --peers --docs writes what stands between) -->", "<!-- measured: end -->"
DOCS = Path(__file__).resolve().parents[2] / "docs"
COLUMNS = ("level", "shape", "d_model", "d_ff", "activation", "gated", "bias", "tokens", "threads", "engine", "form", "rounds", "runs", "median_s",
           "p25_s", "p75_s", "min_s", "error", "limit_s", "bound", "flop_per_s", "bytes_per_s", "share", "share_of_minima",
           "disturbance")


def rows(cell):
    shape, limits = cell.shape, cell.limits()
    for engine, times in cell.times.items():
        error = cell.errors[engine]
        quantiles = [f"{cell.quantile(engine, share):.4e}" for share in (0.5, 0.25, 0.75, 0)]
        yield [cell.level, shape.name, shape.d_model, shape.d_ff, shape.activation, int(shape.gated), int(shape.bias), cell.tokens, cell.threads, engine,
               cell.forms[engine], len(times), sum(map(len, times)), *quantiles, "" if error is None else f"{error:.1e}", f"{cell.limit:.4e}", cell.bound,
               f"{shape.flop(cell.tokens) / limits['FLOP']:.4e}", f"{cell.bytes / limits['bytes']:.4e}",
               *([""] * 2 if engine in LIMITS else [f"{cell.share(engine):.3f}", f"{cell.share_of_minima(engine):.3f}"]), f"{cell.disturbance:.2f}"]


def microseconds(seconds):
    value = 1e6 * seconds
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 1000 else f"{value:,.0f}"


def table(cells):
    """One shape with one number of threads; a row for each number of tokens."""
    engines = [name for name in OWN + PEERS if any(name in cell.times for cell in cells)]
    lines = ["| tokens | limit us | of | " + " | ".join(f"{name} us" for name in engines) + " | share of limit | from minima | best peer | its time / libffn's |",
             "| ---: | ---: | --- |" + " ---: |" * len(engines) + " ---: | ---: | --- | ---: |"]
    for cell in cells:
        times = [microseconds(cell.median(name)) if name in cell.times else "" for name in engines]
        own = [f"{cell.share(cell.own):.2f}", f"{cell.share_of_minima(cell.own):.2f}"] if cell.own else ["", ""]
        ratio = f"{cell.ratio():.2f}" if cell.ratio() else ""
        lines.append("| " + " | ".join([f"{cell.tokens}{'*' if cell.disturbed else ''}", microseconds(cell.limit), cell.bound] + times + own + [cell.peer or "", ratio]) + " |")
    return lines


def cpu_model():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def caches():
    found = []
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = ((index / name).read_text().strip() for name in ("level", "type", "size"))
        if kind != "Instruction":
            found.append(f"L{level} {size}")
    return ", ".join(found)


def measured_on(packages=("onednn-cpu-gomp", "scipy-openblas32")):
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in packages)
    return (f"Measured {datetime.date.today().isoformat()} on: {cpu_model()}, {len(os.sched_getaffinity(0))} CPUs; {caches()} per core or "
            f"shared; Linux {'.'.join(platform.release().split('.')[:2])}, {' '.join(platform.libc_ver())}. Peers: {versions}.")


def machine(cells, settings):
    peaks = {}
    for cell in cells:
        flop = cell.shape.flop(cell.tokens) / cell.limits()["FLOP"]
        peaks.setdefault((cell.level, cell.threads), []).append(flop)
    middle = {key: sorted(values)[len(values) // 2] / 1e9 for key, values in peaks.items()}
    return [f"{measured_on(('onednn-cpu-gomp', 'onnxruntime', 'scipy-openblas32'))} Rounds of a cell: up to {settings.rounds}.", "",
            "Multiply-add peak, median over the cells, GFLOP/s: "
            + ", ".join(f"{threads} thread{'s' if threads > 1 else ''}{' (AVX2)' if level == 'avx2' else ''} {value:.0f}"
                        for (level, threads), value in middle.items()) + "."]


def grouped(cells):
    groups = {}
    for cell in cells:
        groups.setdefault((cell.level, cell.shape, cell.threads), []).append(cell)
    return groups


def bandwidths(cells):
    gigabytes = sorted(cell.shape.bytes / cell.limits()["bytes"] / 1e9 for cell in cells)
    return f"{cells[0].shape.bytes / 1e6:.1f} MB of weights, read at {gigabytes[len(gigabytes) // 2]:.1f} GB/s"


def markdown(cells, extra_lines, settings, plot_names):
    lines, groups, shown = machine(cells, settings), grouped(cells), set()
    for (level, shape, threads), group in groups.items():
        if (level, shape) not in shown:
            lines += ["", f"### {shape.name}" + (", AVX2" if level == "avx2" else "")]
            if level == "best" and shape in plot_names:
                lines += ["", f"![Time, and share of the limit, over tokens]({plot_names[shape]})"]
            shown.add((level, shape))
        lines += ["", f"{threads} thread{'s' if threads > 1 else ''} ({bandwidths(group)}):", ""] + table(group)
    if extra_lines:
        lines += ["", "### Host threads, and making a layer", ""] + extra_lines
    return lines + [""] + disturbed_cells(cells) + short_cells(cells)


def disturbed_cells(cells):
    count = sum(cell.disturbed for cell in cells)
    return [f"{count} of {len(cells)} cells, marked with *, were disturbed: the limits' upper quartiles are more than {DISTURBED} times their best medians of the "
            "run, so something else ran, and the figures tell little.", ""] if count else []


def short_cells(cells):
    short = [(cell, cell.short()) for cell in cells if cell.short()]
    measured = sum(cell.own is not None for cell in cells)
    if not short:
        return [f"All {measured} cells reach what is aimed at."]
    lines = [f"### Cells that fall short: {len(short)} of {measured}", "", "| shape | level | threads | tokens | engine | |", "| --- | --- | ---: | ---: | --- | --- |"]
    return lines + [f"| {cell.shape.name} | {cell.level} | {cell.threads} | {cell.tokens} | {cell.own} | {'; '.join(words)} |" for cell, words in short]


def replace_between(page, lines, begin=BEGIN, end=END):
    text = page.read_text()
    head, found, rest = text.partition(begin)
    _, closed, tail = rest.partition(end)
    if not found or not closed:
        raise SystemExit(f"{page} does not have the two lines between which the tables go")
    page.write_text(head + begin + "\n\n" + "\n".join(lines) + "\n\n" + end + tail)


def write_tsv(path, cells):
    path.write_text("\n".join("\t".join(map(str, row)) for row in [COLUMNS] + [row for cell in cells for row in rows(cell)]) + "\n")


def write(cells, extra_lines, settings):
    """Writes whatever there is, also after a failure; docs/ only on demand."""
    if not cells:
        return
    tsv = settings.output / "peers.tsv"
    write_tsv(tsv, cells)
    import plots  # takes matplotlib, which is slow to load
    folder = DOCS if settings.docs else settings.output
    names = plots.draw([cell for cell in cells if cell.level == "best"], folder)
    lines = markdown(cells, extra_lines, settings, names)
    (settings.output / "peers.md").write_text("\n".join(lines) + "\n")
    if settings.docs:
        replace_between(DOCS / "performance.md", lines)
    print("\n".join([""] + disturbed_cells(cells) + short_cells(cells)))
    print(f"\nEvery figure: {tsv}; tables: {settings.output / 'peers.md'}; plots: {folder}" + ("; docs/performance.md is written" if settings.docs else ""))
