# SPDX-License-Identifier: MIT
"""Time and share of the limit over tokens: one SVG per shape."""
import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

from cell import PEERS
from workers import OWN

COLOURS = dict(zip(OWN + PEERS, ("#b2182b", "#ef8a62", "#2166ac", "#4dac26", "#7b3294")))


def draw(cells, folder):
    """{shape: file name}, for shapes with more than one number of tokens."""
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "libffn", "font.size": 9})
    names = {}
    for shape in dict.fromkeys(cell.shape for cell in cells):
        own = [cell for cell in cells if cell.shape == shape]
        if len({cell.tokens for cell in own}) > 1:
            names[shape] = f"performance-{shape.d_model}-{shape.d_ff}.svg"
            draw_shape(shape, own, folder / names[shape])
    return names


def draw_shape(shape, cells, path):
    threads = sorted({cell.threads for cell in cells})
    figure, axes = plt.subplots(2, len(threads), figsize=(5 * len(threads), 6), sharex=True, sharey="row", squeeze=False)
    for column, count in enumerate(threads):
        group = [cell for cell in cells if cell.threads == count]
        draw_times(axes[0][column], group)
        draw_shares(axes[1][column], group)
        axes[0][column].set_title(f"{shape.name}, {count} thread{'s' if count > 1 else ''}")
        axes[1][column].set_xlabel("tokens")
    axes[0][0].set_ylabel("milliseconds (median)")
    axes[1][0].set_ylabel("share of the limit (median)")
    axes[0][0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
    # Matplotlib leaves spaces at the ends of lines.
    path.write_text("\n".join(line.rstrip() for line in path.read_text().splitlines()) + "\n")


def over_tokens(axis, cells, value):
    for engine, colour in COLOURS.items():
        points = [(cell.tokens, value(cell, engine)) for cell in cells if engine in cell.times]
        if points:
            axis.plot(*zip(*points), color=colour, marker="o", markersize=3, linewidth=1.2, label=engine)


def draw_times(axis, cells):
    over_tokens(axis, cells, lambda cell, engine: 1e3 * cell.median(engine))
    axis.plot([cell.tokens for cell in cells], [1e3 * cell.limit for cell in cells], color="black", linestyle="--", linewidth=1, label="limit")
    axis.set_yscale("log")
    grid(axis, cells)


def draw_shares(axis, cells):
    over_tokens(axis, cells, lambda cell, engine: cell.share(engine))
    axis.axhline(1, color="black", linestyle="--", linewidth=1)
    axis.set_ylim(0, 1.1)
    grid(axis, cells)


def grid(axis, cells):
    ticks = sorted({cell.tokens for cell in cells if cell.tokens & (cell.tokens - 1) == 0})
    axis.set_xscale("log", base=2)
    axis.set_xticks(ticks, [str(tick) for tick in ticks])
    axis.grid(alpha=0.3, linewidth=0.5)
