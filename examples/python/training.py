# SPDX-License-Identifier: MIT
"""What the two training examples share: layers with an optimiser, a loop that can stop and go on, progress, and plots."""
import math
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

import libffn

MOST_STREAMS = 2**32
LARGEST_NORM = 1.0  # of the gradients of a step


def uniform(shape, seed, stream):
    """Numbers in (-1, 1) that depend on seed and stream alone: a batch is a function of its step, so that training can go on from any."""
    return libffn.weight_init(np.empty(shape, np.float32), "uniform_unit_scaling", seed=seed, stream=stream, fan_in=3, fan_out=3)


class Learner:
    """A layer, its weights, and AdamW's state. The error is the square root of the mean square of output - target."""

    def __init__(self, name, weights, **options):
        self.name, self.weights = name, weights
        self.layer, self.tape = libffn.Layer(**weights, **options, trainable=True), libffn.Tape()
        self.gradients, self.first, self.second = ({key: np.zeros_like(value) for key, value in weights.items()} for _ in range(3))

    def train(self, x, target, step, learning_rate):
        """One step on the mean square of output - target. Steps are 1, 2, 3, ..."""
        difference = self.layer(x, tape=self.tape) - target
        self.layer.backward(self.tape, difference * np.float32(2 / difference.size), self.gradients)
        if not math.isfinite(libffn.clip_global_norm(self.gradients, LARGEST_NORM)):
            return
        for key, weight in self.weights.items():
            libffn.adamw_step(weight, self.gradients[key], self.first[key], self.second[key], step=step, learning_rate=learning_rate)
        self.layer.update(**self.weights)

    def error(self, x, target):
        return math.sqrt(np.mean(np.square(self.layer(x) - target), dtype=np.float64))

    @property
    def parameters(self):
        return sum(weight.size for weight in self.weights.values())

    def state(self):
        parts = (("", self.weights), (".first", self.first), (".second", self.second))
        return {f"{self.name}.{key}{end}": array for end, arrays in parts for key, array in arrays.items()}

    def restore(self, state):
        for key, array in self.state().items():
            array[...] = state[key]
        self.layer.update(**self.weights)


class Run:
    """Learners that are trained together, each step on the same batch, up to the state in `path`: weights, AdamW's state, and the curve so far."""

    def __init__(self, learners, settings, path):
        self.learners, self.settings, self.path = learners, settings, Path(path)
        self.step, self.curve = 0, []

    def tensors(self):
        state = {"step": np.array([self.step], np.float32), "settings": np.array(self.settings, np.float32)}
        state["curve"] = np.array(self.curve, np.float32).reshape(-1, 1 + len(self.learners))
        return {**state, **{name: array for learner in self.learners for name, array in learner.state().items()}}

    def save(self):
        """A file is there as a whole or not at all."""
        part = self.path.with_name(self.path.name + ".part")
        save_file(self.tensors(), part)
        os.replace(part, self.path)

    def resume(self):
        """Goes on from the file, if it is there. Gives a sentence if it is another run's."""
        if not self.path.exists():
            return None
        state, own = load_file(self.path), self.tensors()
        if set(state) != set(own) or any(state[name].shape != own[name].shape for name in own if name != "curve"):
            return f"{self.path} holds other layers than these: give another --state"
        if not np.array_equal(state["settings"], own["settings"]):
            return f"{self.path} is of a run with other settings: give another --state"
        for learner in self.learners:
            learner.restore(state)
        self.step, self.curve = int(state["step"][0]), state["curve"].tolist()
        print(f"going on from step {self.step} of {self.path}")
        return None

    def train(self, batch, valid, steps, stop, learning_rate):
        """Trains from where it is to `stop`, or until Ctrl-C, and saves. The learning rate rises for a twentieth of `steps`, then falls to 0 along a
        cosine. Gives whether it came to the end."""
        interrupted, start, began = [], time.monotonic(), self.step
        previous = signal.signal(signal.SIGINT, lambda *_: interrupted.append(True))
        every = (steps - 1) // 40 + 1
        try:
            while self.step < min(stop, steps) and not interrupted:
                self.step += 1
                x, target = batch(self.step)
                rate = learning_rate * min(1, self.step / max(1, steps // 20)) * (1 + math.cos(math.pi * self.step / steps)) / 2
                for learner in self.learners:
                    learner.train(x, target, self.step, rate)
                if self.step % every == 0 or self.step == steps:
                    self.curve.append([self.step, *(learner.error(*valid) for learner in self.learners)])
                    self.tell(steps, time.monotonic() - start, began)
        finally:
            signal.signal(signal.SIGINT, previous)
            self.save()
        return self.step == steps

    def tell(self, steps, seconds, began):
        left = seconds / (self.step - began) * (steps - self.step)
        errors = "  ".join(f"{learner.name} {error:.4f}" for learner, error in zip(self.learners, self.curve[-1][1:]))
        print(f"step {self.step:5} of {steps}, {left:3.0f} s left: {errors}", flush=True)


def add_arguments(parser, steps):
    parser.add_argument("--steps", type=int, default=steps, help="steps of the whole training (%(default)s)")
    parser.add_argument("--stop", type=int, default=MOST_STREAMS, help="stop after this step: the same command goes on from there")
    parser.add_argument("--seed", type=int, default=1, help="of weights and batches (%(default)s)")


def pyplot():
    """matplotlib's pyplot without a screen, or None and a line that says so."""
    try:
        import matplotlib
    except ImportError:
        print("no plot was drawn: matplotlib is not installed (pip install matplotlib)", file=sys.stderr)
        return None
    matplotlib.use("Agg")
    import matplotlib.pyplot

    return matplotlib.pyplot


def draw_curves(axes, run):
    curve = np.array(run.curve).reshape(-1, 1 + len(run.learners))
    for i, learner in enumerate(run.learners):
        axes.plot(curve[:, 0], curve[:, 1 + i], label=f"{learner.name}, {learner.parameters:,} parameters")
    axes.set(xlabel="step", ylabel="error on rows that were not trained on", yscale="log")
    axes.legend(fontsize="small")


def finish(figure, path):
    figure.tight_layout()
    figure.savefig(path)
    print(f"plotted to {path}")
