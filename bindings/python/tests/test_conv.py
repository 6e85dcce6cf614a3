# SPDX-License-Identifier: MIT
"""Convolutional layers through the ctypes declarations, against NumPy in float64: what the C interface offers is reachable from Python as it is."""
import ctypes

import numpy as np
import pytest

from libffn import _abi, _native

LENGTH, D_MODEL, D_FF, D_OUT = 11, 6, 10, 5


def tensor(role, array):
    view = _abi.Tensor(role=role, ndim=array.ndim, data=array.ctypes.data)
    view.shape[: array.ndim] = array.shape
    view.stride[: array.ndim] = array.strides
    return view


def check(status):
    assert status == _abi.Status.OK, _native.lib.ffn_last_error()


class Conv:
    """A layer of the roles' arrays, freed with the block."""

    def __init__(self, arrays, **options):
        views = [tensor(role, array) for role, array in arrays.items()]
        self.handle, self.kept = ctypes.c_void_p(), (_abi.Tensor * len(views))(*views)
        options = _abi.ConvOptions(activation=_abi.Activation.RELU, tensors=self.kept, tensor_count=len(views), **options)
        check(_native.lib.ffn_conv_create(None, options, ctypes.byref(self.handle)))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        _native.lib.ffn_conv_free(self.handle)

    def run(self, x, y, mask=None, tape=None):
        run = _abi.ConvRun(batch=len(x), length=x.shape[1], x=x.ctypes.data, y=y.ctypes.data, mask=mask.ctypes.data if mask is not None else None, tape=tape)
        check(_native.lib.ffn_conv_run(self.handle, None, run))
        return y


@pytest.fixture
def arrays(random):
    shapes = {
        _abi.Role.UP_WEIGHT: (D_FF, D_MODEL),
        _abi.Role.UP_TAPS: (D_MODEL, 3),
        _abi.Role.UP_BIAS: (D_FF,),
        _abi.Role.DOWN_WEIGHT: (D_OUT, D_FF, 5),
        _abi.Role.DOWN_BIAS: (D_OUT,),
    }
    return {role: random(*shape) for role, shape in shapes.items()}


def shifted(u, offset):
    """u[t + offset], zeros beyond the sequences' ends."""
    out = np.zeros_like(u)
    for t in range(u.shape[1]):
        if 0 <= t + offset < u.shape[1]:
            out[:, t] = u[:, t + offset]
    return out


def formula(arrays, x, mask, left):
    wide = {role: array.astype(np.float64) for role, array in arrays.items()}
    u = x.astype(np.float64) * mask[..., None]
    z = sum(shifted(u, j - left[0]) * wide[_abi.Role.UP_TAPS][:, j] for j in range(3))
    h = np.maximum(z @ wide[_abi.Role.UP_WEIGHT].T + wide[_abi.Role.UP_BIAS], 0) * mask[..., None]
    return sum(shifted(h, j - left[1]) @ wide[_abi.Role.DOWN_WEIGHT][..., j].T for j in range(5)) + wide[_abi.Role.DOWN_BIAS]


@pytest.mark.parametrize("padding, left", [(_abi.ConvPadding.SAME, (1, 2)), (_abi.ConvPadding.LEFT, (2, 4))])
def test_a_layer_is_its_formula(arrays, random, padding, left):
    x = random(3, LENGTH, D_MODEL)
    mask = np.ones((3, LENGTH), np.uint8)
    mask[1, 7:] = 0
    with Conv(arrays, padding=padding) as conv:
        info = _abi.ConvInfo()
        check(_native.lib.ffn_conv_info(conv.handle, info))
        assert (info.kernel_size, info.second_kernel_size, info.separable) == (3, 5, 1)
        assert info.parameters == sum(array.size for array in arrays.values())
        y = conv.run(x, np.empty((3, LENGTH, D_OUT), np.float32), mask)
    np.testing.assert_allclose(y, formula(arrays, x, mask, left), rtol=0, atol=2e-5)


def test_gradients_are_differences(arrays, random):
    x = random(2, LENGTH, D_MODEL)
    d_y = random(2, LENGTH, D_OUT)
    gradients = {role: np.full_like(array, np.nan) for role, array in arrays.items()}
    views = (_abi.Tensor * len(gradients))(*(tensor(role, array) for role, array in gradients.items()))
    tape, d_x, lib = ctypes.c_void_p(), np.empty_like(x), _native.lib
    check(lib.ffn_tape_create(None, ctypes.byref(tape)))
    with Conv(arrays, flags=_abi.ConvFlag.TRAINABLE) as conv:
        conv.run(x, np.empty((2, LENGTH, D_OUT), np.float32), tape=tape)
        check(lib.ffn_conv_backward(conv.handle, None, _abi.Backward(tape=tape, d_y=d_y.ctypes.data, d_x=d_x.ctypes.data, gradients=views,
                                                                     gradient_count=len(views))))
    lib.ffn_tape_free(tape)

    def loss():
        return (formula(wide, x64, np.ones((2, LENGTH)), (1, 2)) * d_y).sum()

    wide, x64, step = {role: array.astype(np.float64) for role, array in arrays.items()}, x.astype(np.float64), 1e-6
    for array, gradient in [(x64, d_x)] + [(wide[role], gradients[role]) for role in arrays]:
        index = tuple(size // 2 for size in array.shape)
        array[index] += step
        above = loss()
        array[index] -= 2 * step
        below = loss()
        array[index] += step
        assert abs((above - below) / (2 * step) - gradient[index]) <= 1e-3 * np.abs(gradient).max()


def test_a_refusal_has_its_sentence(arrays):
    with pytest.raises(AssertionError, match="padding is 9"):
        Conv(arrays, padding=9)
