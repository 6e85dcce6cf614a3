# SPDX-License-Identifier: MIT
"""PyTorch and JAX, where they are installed: they are too large for every run of the tests, which have NumPy's own DLPack objects instead
(test_arrays.py)."""
import numpy as np
import pytest

import libffn
import oracle
from conftest import assert_close


def test_pytorch(weights, random):
    torch = pytest.importorskip("torch")
    expected = oracle.layer(x := random(2, 3, 24), **weights)
    up = torch.nn.Linear(24, 40, bias=False)
    with torch.no_grad():
        up.weight.copy_(torch.from_numpy(weights["up"]))
    layer = libffn.Layer(**{**weights, "up": up.weight, "down": torch.from_numpy(weights["down"].T.copy()).T})  # a parameter, and a strided view
    given = torch.from_numpy(x.copy())
    assert_close(layer(given), expected)
    assert_close(layer(given.transpose(0, 1)), expected.swapaxes(0, 1))
    out = torch.zeros(2, 3, 24)
    assert layer(given, out=out) is out
    assert_close(out.numpy(), expected)
    assert layer(given, out=given) is given
    assert_close(given.numpy(), expected)
    with pytest.raises(libffn.UnsupportedError, match="x cannot be taken .* grad"):
        layer(torch.zeros(3, 24, requires_grad=True))
    for wrong in (torch.float64, torch.bfloat16):
        with pytest.raises(libffn.UnsupportedError):
            layer(torch.zeros(3, 24, dtype=wrong))


def test_jax(weights, random):
    jax = pytest.importorskip("jax")
    expected = oracle.layer(x := random(2, 3, 24), **weights)
    layer = libffn.Layer(**{name: jax.numpy.asarray(value) if isinstance(value, np.ndarray) else value for name, value in weights.items()})
    given = jax.numpy.asarray(x)
    assert_close(layer(given), expected)
    out = np.empty_like(x)
    assert layer(given, out=out) is out
    assert_close(out, expected)
    with pytest.raises(libffn.InvalidError, match="out is read-only"):  # arrays of JAX never change
        layer(x, out=given)
    np.testing.assert_array_equal(given, x)
    with pytest.raises(libffn.UnsupportedError):
        layer(given.astype("bfloat16"))
