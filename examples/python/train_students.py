# SPDX-License-Identifier: MIT
"""Smaller layers learn what a layer of a model does: ReLU, GELU and SwiGLU students of three sizes each, and the error of each against its parameters.

    python minilm_states.py x.npy y.npy          what layer 2 of MiniLM receives for sentences, and what it gives
    python train_students.py x.npy y.npy

A student is y = LayerNorm(x + FFN(x)), as the teacher is, with a narrower hidden row and without biases. The last tenth of the rows is not trained on.
Under a minute on two cores. Ctrl-C stops it, and so does --stop; the same command goes on from students.safetensors, to the same bits. The curves,
and error against parameters, are drawn to students.svg. x and y may be of any layer: [rows, d_model] both."""
import argparse
import sys

import numpy as np

import libffn
import training

WIDTHS = (24, 72, 216)  # d_ff of ReLU and GELU
ROWS = 192


def student(kind, d_ff, d_model, seed, stream):
    """Of d_ff hidden numbers, or with a gate of 2/3 d_ff: the same parameters. Its branch begins small."""
    gated = kind == "swiglu"
    width = libffn.gated_d_ff(d_ff) if gated else d_ff
    shapes = {"up": (width, d_model), "down": (d_model, width), **({"gate": (width, d_model)} if gated else {})}
    weights = {
        name: libffn.weight_init(np.empty(shape, np.float32), "lecun_normal", seed=seed, stream=stream + i, gain=0.1 if name == "down" else 0)
        for i, (name, shape) in enumerate(shapes.items())
    }
    weights["norm_out_weight"], weights["norm_out_bias"] = np.ones(d_model, np.float32), np.zeros(d_model, np.float32)
    options = {"activation": "silu" if gated else kind, "residual": "input", "norm_out": "layer"}
    return training.Learner(f"{kind}-{d_ff}", weights, **options)


def draw(plt, run, valid, path):
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.5))
    training.draw_curves(left, run)
    left.legend(fontsize="xx-small")
    for kind in ("relu", "gelu", "swiglu"):
        of_kind = [learner for learner in run.learners if learner.name.startswith(kind)]
        right.plot([one.parameters for one in of_kind], [one.error(*valid) for one in of_kind], marker="o", label=kind)
    right.set(xlabel="parameters", ylabel="error on rows that were not trained on", xscale="log", yscale="log")
    right.legend()
    training.finish(figure, path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("x", help=".npy: what the teacher receives, [rows, d_model]")
    parser.add_argument("y", help=".npy: what it gives, likewise")
    training.add_arguments(parser, steps=400)
    parser.add_argument("--state", default="students.safetensors", help="where the training is kept (%(default)s)")
    parser.add_argument("--plot", default="students.svg", help="where the curves are drawn (%(default)s)")
    given = parser.parse_args()

    x, y = (np.ascontiguousarray(np.load(path), np.float32) for path in (given.x, given.y))
    if x.ndim != 2 or x.shape != y.shape or len(x) < 10:
        return f"train_students: x is {x.shape} and y {y.shape}, must be of one shape [rows, d_model], with 10 rows or more"
    trained = len(x) - len(x) // 10
    valid = x[trained:], y[trained:]
    kinds = [(kind, d_ff) for d_ff in WIDTHS for kind in ("relu", "gelu", "swiglu")]
    learners = [student(kind, d_ff, x.shape[1], given.seed, 3 * i) for i, (kind, d_ff) in enumerate(kinds)]

    def batch(step):
        """Rows drawn by chance; streams below 64 are the weights'."""
        rows = ((training.uniform(ROWS, given.seed, 64 + step).astype(np.float64) + 1) / 2 * trained).astype(np.int64)
        return x[rows], y[rows]

    run = training.Run(learners, [given.seed, given.steps, ROWS, *x.shape], given.state)
    refused = run.resume()
    if refused:
        return f"train_students: {refused}"
    if not run.train(batch, valid, given.steps, given.stop, learning_rate=0.003):
        print(f"stopped after step {run.step}: the same command goes on from there")
        return 0
    scale = np.sqrt(np.mean(np.square(valid[1]), dtype=np.float64))
    print(f"{'':12}{'parameters':>12}{'error':>10}    (root mean square; of the teacher's output: {scale:.4f})")
    for learner in learners:
        print(f"{learner.name:12}{learner.parameters:12,}{learner.error(*valid):10.4f}")
    plt = training.pyplot()
    if plt:
        draw(plt, run, valid, given.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
