# SPDX-License-Identifier: MIT
"""Routes hidden states to experts with a router of random weights, balances it with DeepSeek-V3's bias, and draws the load of each expert.

    pip install bindings/python && pip install --no-deps -r examples/python/requirements.txt && pip install matplotlib
    python minilm_states.py x.npy y.npy && python balance_experts.py x.npy

x.npy: a row for each token, here what a feed-forward layer of MiniLM receives for the pages of this project. The states of a real model have a
direction in common, and so a few experts get most of it. The load before and after is printed, and drawn over the steps to load.svg."""
import argparse
import math
import sys
from pathlib import Path

import numpy as np

import libffn
from libffn import moe

RATE = 0.001  # DeepSeek-V3's


def balance(x, experts, top_k, steps, seed):
    """The share of each expert in the choices, before each step and after the last: [steps + 1, experts]; and the last routing."""
    weight = libffn.weight_init(np.empty((experts, x.shape[-1]), np.float32), "lecun_normal", seed=seed, fan_in=x.shape[-1])
    logits = moe.logits(x, weight, norm="rms")
    bias = np.zeros(experts, np.float32)
    loads = []
    for _ in range(steps + 1):
        routing = moe.route(logits, top_k, moe.Router(normalise="sum"), selection_bias=bias)
        counts = routing.count()
        loads.append(counts[0] / max(counts.sum(), 1))
        moe.update_bias(bias, counts, RATE)
    return np.array(loads), routing


def bars(title, load):
    entropy = -sum(share * math.log(share) for share in load if share > 0)
    print(f"{title}: entropy {entropy:.3f} of at most {math.log(len(load)):.3f}")
    for expert, share in enumerate(load):
        print(f"expert {expert:3} {share:6.1%} {'#' * round(50 * share / max(load.max(), 1e-9))}")


def draw(loads, path):
    try:
        import matplotlib
    except ImportError:
        print("no plot was drawn: matplotlib is not installed (pip install matplotlib)", file=sys.stderr)
        return
    matplotlib.use("Agg")
    import matplotlib.pyplot as pyplot

    figure, axes = pyplot.subplots()
    axes.plot(100 * loads, label=[f"expert {expert}" for expert in range(loads.shape[1])])
    axes.axhline(100 / loads.shape[1], color="black", linewidth=0.5)
    axes.set(xlabel=f"steps of the bias, {RATE} each", ylabel="share of the choices, %", ylim=(0, None))
    axes.legend(fontsize="small", ncols=2)
    figure.savefig(path)
    print(f"plotted to {path}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("states", type=Path, help="a .npy array; its last dimension is the width")
    parser.add_argument("--experts", type=int, default=8, help="(%(default)s)")
    parser.add_argument("--top-k", type=int, default=2, help="experts of a token (%(default)s)")
    parser.add_argument("--steps", type=int, default=500, help="of the bias (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the router (%(default)s)")
    parser.add_argument("--plot", type=Path, default=Path("load.svg"), help="(%(default)s)")
    given = parser.parse_args()
    try:
        x = np.load(given.states).astype(np.float32)
        loads, routing = balance(x, given.experts, given.top_k, given.steps, given.seed)
    except (OSError, ValueError, libffn.Error) as error:
        return f"balance_experts: {error}"
    print(f"{math.prod(routing.leading):,} tokens, each to {given.top_k} of {given.experts} experts")
    bars("random weights", loads[0])
    bars(f"after {given.steps} steps", loads[-1])
    draw(loads, given.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
