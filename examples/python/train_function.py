# SPDX-License-Identifier: MIT
"""A two-layer FFN (GELU) and a SwiGLU FFN of equal parameters learn a function that is not linear: y_i = x_i x_{i+1} + sin(3 x_i), for 15 numbers x and a 1.

    pip install bindings/python safetensors matplotlib && python train_function.py

Under a minute on two cores. Ctrl-C stops it, and so does --stop; the same command goes on from function.safetensors, to the same bits. The curves
of both are drawn to function.svg. Where the hidden width of the first is d_ff, that of the second is 2/3 d_ff: it has three matrices, not two."""
import argparse
import sys

import numpy as np

import libffn
import training

D_MODEL, D_FF, ROWS = 16, 384, 256


def batch(rows, seed, stream):
    x = training.uniform((rows, D_MODEL), seed, stream)
    x[:, -1] = 1  # in place of biases
    return x, x * np.roll(x, -1, axis=1) + np.sin(3 * x)


def learners(seed):
    def matrix(out, into, stream):
        return libffn.weight_init(np.empty((out, into), np.float32), "lecun_normal", seed=seed, stream=stream)

    d_gated = libffn.gated_d_ff(D_FF)
    dense = {"up": matrix(D_FF, D_MODEL, 0), "down": matrix(D_MODEL, D_FF, 1)}
    gated = {"up": matrix(d_gated, D_MODEL, 2), "gate": matrix(d_gated, D_MODEL, 3), "down": matrix(D_MODEL, d_gated, 4)}
    return [training.Learner("gelu", dense, activation="gelu"), training.Learner("swiglu", gated, activation="silu")]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    training.add_arguments(parser, steps=2000)
    parser.add_argument("--state", default="function.safetensors", help="where the training is kept (%(default)s)")
    parser.add_argument("--plot", default="function.svg", help="where the curves are drawn (%(default)s)")
    given = parser.parse_args()

    run = training.Run(learners(given.seed), [given.seed, given.steps, ROWS], given.state)
    refused = run.resume()
    if refused:
        return f"train_function: {refused}"
    # Streams below 16 are the weights'; the last one is of numbers that no step sees.
    valid = batch(2048, given.seed, training.MOST_STREAMS - 1)
    ended = run.train(lambda step: batch(ROWS, given.seed, 16 + step), valid, given.steps, given.stop, learning_rate=0.01)
    if not ended:
        print(f"stopped after step {run.step}: the same command goes on from there")
        return 0
    print(f"{'':8}{'parameters':>12}{'error':>10}    (root mean square; of y = 0: {np.sqrt(np.mean(valid[1] ** 2)):.4f})")
    for learner in run.learners:
        print(f"{learner.name:8}{learner.parameters:12,}{learner.error(*valid):10.4f}")
    plt = training.pyplot()
    if plt:
        figure, axes = plt.subplots(figsize=(7, 4.5))
        training.draw_curves(axes, run)
        training.finish(figure, given.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
