# SPDX-License-Identifier: MIT
"""The layer in float64, from the formulas of ffn.h, on the keyword arguments of libffn.Layer. Shares no code with the library."""
import math

import numpy as np

erf = np.vectorize(math.erf, otypes=[np.float64])


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


ACTIVATIONS = {
    "identity": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "relu2": lambda x: np.maximum(x, 0) ** 2,
    "gelu": lambda x: x / 2 * (1 + erf(x / math.sqrt(2))),
    "gelu_tanh": lambda x: x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "quick_gelu": lambda x: x * sigmoid(1.702 * x),
    "silu": lambda x: x * sigmoid(x),
    "sigmoid": sigmoid,
    "tanh": np.tanh,
}


def layer(x, *, up, down, gate=None, activation, residual=None, external=None, eps=0, **options):
    """y for x of any leading shape. `external` is the residual of the call."""

    def get(name, default=0.0):
        value = options.get(name)
        return default if value is None else np.asarray(value, np.float64)

    def norm(slot, v):
        kind = options.get(f"norm_{slot}")
        weight = get(f"norm_{slot}_weight", 1 - get(f"norm_{slot}_offset")) + get(f"norm_{slot}_offset")
        e = eps or {"layer": 1e-5, "rms": 1e-6}.get(kind)
        if kind == "layer":
            v = v - v.mean(-1, keepdims=True)
        if kind in ("layer", "rms"):
            v = v / np.sqrt((v**2).mean(-1, keepdims=True) + e)
        return v if kind is None else v * weight + get(f"norm_{slot}_bias")

    x = np.asarray(x, np.float64)
    n = norm("in", x)
    hidden = n @ np.asarray(up, np.float64).T + get("up_bias")
    if gate is None:
        hidden = ACTIVATIONS[activation](hidden)
    else:
        hidden = ACTIVATIONS[activation](n @ np.asarray(gate, np.float64).T + get("gate_bias")) * hidden
    branch = norm("branch", norm("mid", hidden) @ np.asarray(down, np.float64).T + get("down_bias"))
    r = {None: 0.0, "input": x, "normed": n, "external": external}[residual]
    return norm("out", get("residual_scale", 1.0) * r + get("branch_scale", 1.0) * branch)
