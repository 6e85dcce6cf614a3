# SPDX-License-Identifier: MIT
"""Many host threads on one layer, and making a large layer: what extra.c measures, as lines of Markdown."""
import subprocess

import numpy as np

from workers import environment

HOST_SHAPE = (768, 3072)
HOST_TOKENS = (1, 16, 128)
LARGE_SHAPE = (4096, 14336)


def run(bin_folder, *words):
    """The columns that the program printed, by name, or None and why not."""
    done = subprocess.run([str(word) for word in (bin_folder / "peers_extra",) + words], capture_output=True, text=True, env=environment("best"))
    if done.returncode:
        return None, done.stderr.strip()
    names, *rows = (line.split("\t") for line in done.stdout.splitlines())
    return dict(zip(names, np.array(rows, dtype=float).T)), ""


def measure(bin_folder, quick, progress):
    lines = ["| | figure | libffn native | libffn blas |", "| --- | --- | ---: | ---: |"]
    seconds = 0.5 if quick else 1.5
    for tokens in HOST_TOKENS[1:2] if quick else HOST_TOKENS:
        progress(f"host threads, {tokens} tokens")
        cells = [host_ratio(*run(bin_folder, "hosts", engine, *HOST_SHAPE, tokens, seconds)) for engine in ("native", "blas")]
        lines.append(f"| {HOST_SHAPE[0]}-{HOST_SHAPE[1]} GELU, {tokens} tokens | 8 host threads with a one-thread context each: runs a second over those of "
                     f"2 such threads; of a two-thread context | {' | '.join(cells)} |")
    progress("ffn_layer_create")
    cells = [create_ratio(*run(bin_folder, "create", engine, *LARGE_SHAPE, 3 if quick else 7)) for engine in ("native", "blas")]
    lines.append(f"| {LARGE_SHAPE[0]}-{LARGE_SHAPE[1]} SwiGLU | seconds of ffn_layer_create with 1, 2 threads; over a memcpy of the same bytes by as many "
                 f"threads into fresh memory | {' | '.join(cells)} |")
    for line in lines[2:]:
        progress(line)
    return lines


def host_ratio(columns, sentence):
    if not columns:
        return sentence
    return "; ".join(f"{np.median(columns['hosts8'] / columns[other]):.2f}" for other in ("hosts2", "context2"))


def create_ratio(columns, sentence):
    if not columns:
        return sentence
    seconds = ", ".join(f"{np.median(columns[f'create{threads}_s']):.2f}" for threads in (1, 2))
    ratios = ", ".join(f"{np.median(columns[f'create{threads}_s'] / columns[f'memcpy{threads}_s']):.2f}" for threads in (1, 2))
    return f"{seconds} s; {ratios}"
