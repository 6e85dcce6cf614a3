# SPDX-License-Identifier: MIT
"""The layers that are measured: their shapes, seeded data in files, and the output in float64."""
import math
from dataclasses import dataclass, field

import numpy as np

TOKENS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128, 256, 512, 2048)
QUICK_TOKENS = (1, 4, 8, 16, 64, 512)


@dataclass(frozen=True)
class Shape:
    d_model: int
    d_ff: int
    activation: str
    gated: bool = False
    bias: bool = False
    max_tokens: int = 2048
    only: tuple = ()  # measured at these (tokens, threads) alone
    # Shares of the limit that one thread is to reach: up to 4 tokens, 8, 32, and above. With more threads: 0.07 less.
    aims: tuple = ()
    # Microseconds that a call is to take at most.
    aim_us: float = field(default=0)

    @property
    def name(self):
        label = {"relu": "ReLU", "gelu": "GELU", "silu": "SwiGLU"}[self.activation]
        return f"{self.d_model}-{self.d_ff} {label}" + (" + bias" if self.bias else "")

    @property
    def numbers(self):
        """Of the weight matrices."""
        return self.d_model * self.d_ff * (3 if self.gated else 2)

    @property
    def bytes(self):
        return 4 * self.numbers

    def arguments(self, max_tokens):
        """What a worker is told, behind its variant and the folder."""
        return [self.d_model, self.d_ff, self.activation, int(self.gated), max_tokens]

    def flop(self, tokens):
        return 2 * self.numbers * tokens

    def aim(self, tokens, threads):
        if not self.aims:
            return None
        share = self.aims[0 if tokens <= 4 else 1 if tokens <= 8 else 2 if tokens <= 32 else 3]
        return share if threads == 1 else round(share - 0.07, 2)

    def cells(self, tokens, threads):
        return list(self.only) or [(t, n) for n in threads for t in tokens if t <= self.max_tokens]


SHAPES = (
    Shape(512, 2048, "relu", bias=True, aims=(0.85, 0.85, 0.90, 0.93)),
    Shape(768, 3072, "gelu", bias=True, aims=(0.83, 0.83, 0.88, 0.90)),
    Shape(1024, 2816, "silu", gated=True, aims=(0.80, 0.80, 0.88, 0.91)),
    Shape(4096, 14336, "silu", gated=True, max_tokens=128, aims=(0.85, 0.85, 0.85, 0.88)),
    Shape(64, 172, "silu", gated=True, only=((1, 1),), aim_us=2.0),
)


def clear(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for stale in folder.iterdir():
        stale.unlink()


def writer_of(folder, seed):
    """Empties the folder, and returns a function that makes an array of uniform numbers within a scale, and writes it there as raw float32."""
    generator = np.random.default_rng(seed)
    clear(folder)

    def uniform(name, dimensions, scale):
        numbers = generator.random(dimensions, dtype=np.float32)
        numbers -= np.float32(0.5)
        numbers *= np.float32(2 * scale)
        numbers.tofile(folder / name)
        return numbers

    return uniform


def make_data(shape, folder, tokens):
    """Writes the layer's arrays and `tokens` rows of x, and returns the output for all rows in float64."""
    uniform = writer_of(folder, shape.d_model)
    in_scale, down_scale = math.sqrt(3 / shape.d_model), math.sqrt(3 / shape.d_ff)
    x = uniform("x", (tokens, shape.d_model), 1.7)
    up = uniform("up", (shape.d_ff, shape.d_model), in_scale)
    gate = uniform("gate", (shape.d_ff, shape.d_model), in_scale) if shape.gated else None
    down = uniform("down", (shape.d_model, shape.d_ff), down_scale)
    up_bias = uniform("up_bias", shape.d_ff, 0.1) if shape.bias else np.zeros(shape.d_ff)
    down_bias = uniform("down_bias", shape.d_model, 0.1) if shape.bias else np.zeros(shape.d_model)
    return reference(shape, x, up, gate, down, up_bias, down_bias)


def activate(name, z):
    if name == "relu":
        return np.maximum(z, 0)
    if name == "silu":
        return z / (1 + np.exp(-z))
    erfc = np.frompyfunc(math.erfc, 1, 1)
    return 0.5 * z * erfc(-z / math.sqrt(2)).astype(np.float64)


def reference(shape, x, up, gate, down, up_bias, down_bias):
    """The layer's formula in float64, a block of d_ff at a time so that large layers fit into memory."""
    x, y = x.astype(np.float64), np.tile(down_bias.astype(np.float64), (len(x), 1))
    for first in range(0, shape.d_ff, 1024):
        block = slice(first, first + 1024)
        hidden = x @ up[block].T.astype(np.float64) + up_bias[block]
        if shape.gated:
            hidden *= activate(shape.activation, x @ gate[block].T.astype(np.float64))
        else:
            hidden = activate(shape.activation, hidden)
        y += hidden @ down[:, block].T.astype(np.float64)
    return y


def relative_error(y, right):
    """The largest deviation, in terms of the largest number."""
    return float(np.abs(y - right).max() / np.abs(right).max())
