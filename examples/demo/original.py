# SPDX-License-Identifier: MIT
"""The feed-forward layer of the original Transformer ("Attention Is All You Need", section 3.3): max(0, x W1 + b1) W2 + b2 from 512 through 2048
to 512, the input added, LayerNorm after that. The weights are seeded. No family of checkpoints has these names: `ffn` is told the layer by hand."""
import math
import os
import random
from array import array
from operator import mul

import files
from report import Ffn, Table, compare

D_MODEL, D_FF, TOKENS, EPS = 512, 2048, 16, 1e-5

BY_HAND = (
    *("--tensor", "up=layers.{i}.w1", "--tensor", "up-bias=layers.{i}.b1", "--tensor", "down=layers.{i}.w2", "--tensor", "down-bias=layers.{i}.b2"),
    *("--activation", "relu", "--residual", "input", "--norm-out", "layer", "--eps", str(EPS)),
)


def seeded(seed, count, limit):
    uniform = random.Random(seed).uniform
    return array("f", [uniform(-limit, limit) for _ in range(count)])


def make_weights():
    limit = math.sqrt(6 / (D_MODEL + D_FF))  # Glorot's
    return {
        "layers.0.w1": ([D_FF, D_MODEL], seeded(1, D_FF * D_MODEL, limit)),
        "layers.0.b1": ([D_FF], seeded(2, D_FF, limit)),
        "layers.0.w2": ([D_MODEL, D_FF], seeded(3, D_MODEL * D_FF, limit)),
        "layers.0.b2": ([D_MODEL], seeded(4, D_MODEL, limit)),
    }


def linear(matrix, bias, x):
    width = len(x)
    return [sum(map(mul, matrix[i * width : (i + 1) * width], x)) + b for i, b in enumerate(bias)]


def layer_norm(x):
    mean = sum(x) / len(x)
    deviations = [v - mean for v in x]
    scale = 1 / math.sqrt(sum(d * d for d in deviations) / len(x) + EPS)
    return [d * scale for d in deviations]


def reference(weights, x):
    """The layer on one row: Python's numbers are float64."""
    w1, b1, w2, b2 = (numbers for _, numbers in weights.values())
    hidden = [max(0.0, v) for v in linear(w1, b1, x)]
    return layer_norm([a + b for a, b in zip(x, linear(w2, b2, hidden))])


def demo(program, folder):
    os.makedirs(folder, exist_ok=True)
    model, source, target = (os.path.join(folder, name) for name in ("model.safetensors", "input.npy", "output.npy"))
    weights, x = make_weights(), seeded(5, TOKENS * D_MODEL, math.sqrt(3))  # variance 1, as after a LayerNorm
    files.write_safetensors(model, weights)
    files.write_npy(source, [TOKENS, D_MODEL], x)

    print(f"the original Transformer's feed-forward layer: {D_MODEL}-{D_FF}-{D_MODEL}, ReLU, biases, residual, LayerNorm; seeded weights")
    ffn = Ffn(program, model, *BY_HAND)
    seconds = ffn.time(1, source, target)
    table = Table(TOKENS)
    layer = ffn.run("0", source, target)["layers"][0]
    expected = []
    for first in range(0, len(x), D_MODEL):
        expected += reference(weights, x[first : first + D_MODEL])
    table.add(layer, seconds[0], *compare(files.read_npy(target)[1], expected))
    status = table.finish()
    print(f"outputs: {folder} (model.safetensors, input.npy, output.npy)")
    return status
