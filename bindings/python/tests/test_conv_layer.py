# SPDX-License-Identifier: MIT
"""libffn.Conv against NumPy in float64, from the formulas of ffn.h. What the library does in full, the C tests show."""
import numpy as np
import pytest

import libffn

LENGTH, D_MODEL, D_FF, D_OUT = 7, 4, 6, 5


def convolve(u, weight, taps, bias, left):
    """One convolution of u [batch, length, in] in float64."""
    if weight.ndim == 2:
        weight = weight[:, :, None]
    k = weight.shape[2] if taps is None else taps.shape[1]
    padded = np.zeros((u.shape[0], u.shape[1] + k - 1, u.shape[2]))
    start = k - 1 if left else (k - 1) // 2
    padded[:, start : start + u.shape[1]] = u
    windows = np.stack([padded[:, j : j + u.shape[1]] for j in range(k)], -1)  # [batch, length, in, k]
    v = np.einsum("btik,oik->bto", windows, weight) if taps is None else np.einsum("btik,ik,oi->bto", windows, taps, weight[:, :, 0])
    return v if bias is None else v + bias


def reference(x, *, padding="same", up_taps=None, down_taps=None, up_bias=None, down_bias=None, up, down, mask=None):
    zero = 1 if mask is None else mask[..., None]
    left = padding == "left"
    first, second = (1 if (taps is None and weight.ndim == 2) else zero for taps, weight in ((up_taps, up), (down_taps, down)))
    hidden = np.maximum(convolve(x * first, up, up_taps, up_bias, left), 0)
    return convolve(hidden * second, down, down_taps, down_bias, left)


def cases(random):
    return {
        "dense": {"up": random(D_FF, D_MODEL, 3), "down": random(D_OUT, D_FF), "up_bias": random(D_FF), "down_bias": random(D_OUT)},
        "causal": {"up": random(D_FF, D_MODEL, 3), "down": random(D_OUT, D_FF, 2), "padding": "left"},
        "separable": {"up": random(D_FF, D_MODEL), "up_taps": random(D_MODEL, 3), "down": random(D_OUT, D_FF), "down_taps": random(D_FF, 5)},
        "position-wise": {"up": random(D_FF, D_MODEL), "down": random(D_OUT, D_FF), "up_bias": random(D_FF)},
    }


@pytest.mark.parametrize("trainable", [False, True])
@pytest.mark.parametrize("name", cases(lambda *shape: np.zeros(shape, np.float32)))
def test_convolutions_are_those_of_the_formula(name, trainable, random):
    options, x, mask = cases(random)[name], random(2, 3, LENGTH, D_MODEL), np.ones((2, 3, LENGTH), bool)
    mask[1, :, 4:] = False
    layer = libffn.Conv(**options, activation="relu", trainable=trainable)
    flat = x.reshape(6, LENGTH, D_MODEL)
    for given in (None, mask):
        expected = reference(flat, **options, mask=None if given is None else given.reshape(6, LENGTH)).reshape(2, 3, LENGTH, D_OUT)
        np.testing.assert_allclose(layer(x, mask=given), expected, rtol=0, atol=1e-5)
        out = np.empty((2, 3, LENGTH, 2 * D_OUT), np.float32)[..., :D_OUT]
        assert layer(x, mask=given, out=out, threads=2) is out
        np.testing.assert_allclose(out, expected, rtol=0, atol=1e-5)
    swapped = np.ascontiguousarray(x.transpose(1, 0, 2, 3)).transpose(1, 0, 2, 3)  # sequences of two strides go through a copy
    np.testing.assert_allclose(layer(swapped), layer(x), rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", cases(lambda *shape: np.zeros(shape, np.float32)))
def test_gradients_are_those_of_the_formula(name, random):
    options, x, d_y, mask = cases(random)[name], random(2, LENGTH, D_MODEL), random(2, LENGTH, D_OUT), np.ones((2, LENGTH), np.uint8)
    mask[0, 5:] = 0
    tensors = {key: value for key, value in options.items() if isinstance(value, np.ndarray)}
    layer, tape = libffn.Conv(**options, activation="relu", trainable=True), libffn.Tape()
    layer.reserve(2, LENGTH, tape=tape)
    layer(x, tape=tape, mask=mask)
    gradients, d_x = {key: np.full_like(value, np.nan) for key, value in tensors.items()}, np.full_like(x, np.nan)
    layer.backward(tape, d_y, gradients, d_x=d_x)

    def loss(**changed):
        given = {"x": x, **options, **changed}
        return np.sum(d_y.astype(np.float64) * reference(given.pop("x"), mask=mask, **given))

    for key, value in {**tensors, "x": x}.items():
        found = d_x if key == "x" else gradients[key]
        for flat in range(0, value.size, 5):
            index, moved = np.unravel_index(flat, value.shape), [value.astype(np.float64) for _ in range(2)]
            moved[0][index] += 1e-6
            moved[1][index] -= 1e-6
            slope = (loss(**{key: moved[0]}) - loss(**{key: moved[1]})) / 2e-6
            assert found[index] == pytest.approx(slope, abs=2e-5), f"{key}{index}"


def test_updates_info_and_weights(random):
    options, new = cases(random)["separable"], cases(random)["separable"]
    layer, x = libffn.Conv(**options, activation="relu", trainable=True), random(1, LENGTH, D_MODEL)
    layer.update(**new)
    np.testing.assert_array_equal(layer(x), libffn.Conv(**new, activation="relu", trainable=True)(x))
    info = layer.info
    assert (info.d_model, info.d_ff, info.d_out, info.kernel_size, info.second_kernel_size) == (D_MODEL, D_FF, D_OUT, 3, 5)
    assert (info.separable, info.second_separable, info.padding, info.mask, info.activation) == (True, True, "same", "taps", "relu")
    assert info.parameters == sum(value.size for value in new.values()) == sum(info.parameters_of.values())
    for name, value in layer.weights().items():
        np.testing.assert_array_equal(value, new[name])
    dense = cases(random)["dense"]
    np.testing.assert_array_equal(libffn.Conv(**dense, activation="relu").weights()["up"], dense["up"])


def test_a_layer_tells_what_it_is(random):
    dense = libffn.Conv(random(8, 4, 9), random(6, 8), activation="relu")
    assert repr(dense) == "<libffn.Conv 4-8-6 relu, kernel sizes 9 and 1, 336 parameters>"
    separable = libffn.Conv(random(8, 4), random(6, 8), up_taps=random(4, 3), down_taps=random(8, 5), activation="gelu")
    assert repr(separable) == "<libffn.Conv 4-8-6 gelu, kernel sizes 3 separable and 5 separable, 132 parameters>"


def test_what_is_wrong_is_refused_with_a_sentence(random):
    options, x = cases(random)["dense"], random(1, LENGTH, D_MODEL)
    for wrong, sentence in (
        (dict(padding="full"), "padding is 'full', must be one of same, left"),
        (dict(mask="some"), "mask is 'some', must be one of taps, all"),
        (dict(kernel_size=4), "4"),
        (dict(down_bias=random(3)), "3"),
        (dict(up_taps=random(D_MODEL, 2)), "."),
    ):
        with pytest.raises(libffn.InvalidError, match=sentence):
            libffn.Conv(**{**options, "activation": "relu", **wrong})
    layer, tape = libffn.Conv(**options, activation="relu"), libffn.Tape()
    for call, kind, sentence in (
        (lambda: layer(x[0, 0]), libffn.InvalidError, "the shape of x"),
        (lambda: layer(x, mask=np.ones(3, bool)), libffn.InvalidError, r"the shape of mask is \(3,\), must be \(1, 7\)"),
        (lambda: layer(x, tape=tape), libffn.UnsupportedError, "TRAINABLE"),
        (lambda: layer.update(up=options["up"]), libffn.UnsupportedError, "TRAINABLE"),
        (lambda: layer.read(gate=options["up"].copy()), libffn.InvalidError, "which a convolutional layer does not have"),
        (lambda: libffn.Conv(**options, activation="relu", trainable=True).backward(tape, x), libffn.InvalidError, "the tape is empty"),
        (lambda: libffn.Conv(np.ones((4, 4, 3), np.float32), np.ones((4, 4), np.float32), activation="relu")(x, out=x), libffn.InvalidError, "x"),
    ):
        with pytest.raises(kind, match=sentence):
            call()
