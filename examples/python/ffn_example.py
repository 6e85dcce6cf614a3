# SPDX-License-Identifier: MIT
"""A transformer's feed-forward layer, 512 -> 2048 -> 512 with GELU, a LayerNorm before it and a residual around it, on three tokens.

    pip install bindings/python && python ffn_example.py
"""
import sys

import numpy as np

import libffn

D_MODEL, D_FF, TOKENS = 512, 2048, 3


def make(*shape, scale):
    """Small numbers that look random, the same on every machine: those of ../c/ffn_example.c, all at once."""
    factor, step = np.uint32(1664525), np.uint32(1013904223)
    powers = np.cumprod(np.full(np.prod(shape), factor), dtype=np.uint32)
    states = powers + step * np.cumsum(np.concatenate(([np.uint32(1)], powers[:-1])), dtype=np.uint32)
    return np.float32(scale) * ((states >> 8).astype(np.float32) / np.float32(8388608) - np.float32(1)).reshape(shape)


def main():
    up, down = make(D_FF, D_MODEL, scale=0.05), make(D_MODEL, D_FF, scale=0.05)
    x = make(TOKENS, D_MODEL, scale=1)
    try:
        layer = libffn.Layer(up=up, down=down, activation="gelu", norm_in="layer", residual="input")
        y = layer(x)
    except libffn.Error as error:
        return f"ffn_example: {error}"
    total = np.abs(y.astype(np.float64)).sum()
    print(f"{TOKENS} tokens through {D_MODEL}-{D_FF}-{D_MODEL}, sum of |y|: {total:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
