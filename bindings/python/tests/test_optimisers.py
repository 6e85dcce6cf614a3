# SPDX-License-Identifier: MIT
"""Initialisation and optimisers against their formulas in float64, and a layer that learns with them."""
import math

import numpy as np
import pytest

import libffn
import philox


def uniform(count, seed, stream):
    """The numbers in (0, 1) that ffn.h describes."""
    index = np.arange(count, dtype=np.uint64)
    words = philox.philox((index // np.uint64(4), 0 * index, 0 * index + np.uint64(stream), 0 * index + np.uint64(0xFFFF0000)), (seed % 2**32, seed >> 32))
    return (np.choose((index % np.uint64(4)).astype(int), words) + 0.5) / 2**32


BOUNDS = {  # of [out, in] = [30, 20]
    ("xavier_uniform", 2.0): 2 * math.sqrt(6 / 50),
    ("kaiming_uniform", 0): math.sqrt(2) * math.sqrt(3 / 20),
    ("torch_linear", 0): 1 / math.sqrt(20),
    ("uniform_unit_scaling", 0): math.sqrt(6 / 50),
}


@pytest.mark.parametrize("scheme, gain", BOUNDS)
def test_uniform_schemes_are_philox_stretched(scheme, gain):
    values = np.empty((30, 20), np.float32)
    assert libffn.weight_init(values, scheme, seed=2**33 + 1, stream=5, gain=gain) is values
    expected = (2 * uniform(600, 2**33 + 1, 5) - 1) * BOUNDS[scheme, gain]
    np.testing.assert_allclose(values.ravel(), expected, rtol=0, atol=1e-6)


DEVIATIONS = {
    "xavier_normal": math.sqrt(2 / 500),
    "kaiming_normal": math.sqrt(2 / 200),
    "lecun_normal": 1 / math.sqrt(200),
    "normal": 0.02,
    "truncated_normal": 0.02 * 0.8796,
    "t5": 1 / math.sqrt(200),
    "gpt2_scaled": 0.02 / math.sqrt(24),
    "neox_small": math.sqrt(2 / 1000),
    "neox_wang": 2 / (12 * math.sqrt(300)),
}


@pytest.mark.parametrize("scheme", DEVIATIONS)
def test_normal_schemes_have_their_deviation(scheme):
    values = libffn.weight_init(np.empty((300, 200), np.float32), scheme, seed=1, layers=12)
    assert abs(values.std(dtype=np.float64) / DEVIATIONS[scheme] - 1) < 0.02
    assert abs(values.mean(dtype=np.float64)) < 0.02 * DEVIATIONS[scheme]


def test_a_cut_and_a_variance_that_is_kept():
    values = libffn.weight_init(np.empty(60_000, np.float32), "normal", seed=1, gain=0.5, cutoff=2, keep_variance=True)
    assert abs(values.std(dtype=np.float64) / 0.5 - 1) < 0.02 and np.abs(values).max() <= 2 * 0.5 / 0.8796 * 1.0001


def test_values_of_any_strides_and_fans_of_ones_own():
    plain = libffn.weight_init(np.empty((6, 4), np.float32), "torch_linear", seed=3)
    for view in (np.zeros((12, 4), np.float32)[::2], np.zeros((4, 6), np.float32).T, np.zeros((6, 9), np.float32)[:, 2:6]):
        np.testing.assert_array_equal(libffn.weight_init(view, "torch_linear", seed=3), plain)
    np.testing.assert_array_equal(libffn.weight_init(np.zeros(24, np.float32), "torch_linear", seed=3, fan_in=4), plain.ravel())
    assert not np.array_equal(libffn.weight_init(np.empty((6, 4), np.float32), "torch_linear", seed=3, stream=1), plain)
    assert not np.array_equal(libffn.weight_init(np.empty((6, 4), np.float32), "torch_linear", seed=3, fan_in=1), plain)


@pytest.mark.parametrize(
    "shape, scheme, options, sentence",
    [
        ((3, 4), "he", {}, "scheme is 'he', must be one of xavier_uniform, "),
        ((12,), "kaiming_normal", {}, "fan_in is 0"),
        ((3, 4), "normal", {"gain": -1}, "gain is -1"),
        ((3, 4), "torch_linear", {"gain": 1}, "gain"),
        ((3, 4), "neox_wang", {}, "layers is 0"),
        ((3, 4), "normal", {"stream": 2**32}, "stream is 4294967296"),
        ((3, 4), "xavier_uniform", {"cutoff": 2}, "cutoff"),
        ((3, 4), "normal", {"seed": 2**64}, "seed is 18446744073709551616"),
    ],
)
def test_wrong_schemes_are_refused_with_a_sentence(shape, scheme, options, sentence):
    values = np.full(shape, 7, np.float32)
    with pytest.raises(libffn.InvalidError, match=sentence):
        libffn.weight_init(values, scheme, **{"seed": 1, **options})
    assert (values == 7).all()


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("options", [{}, {"momentum": 0.9}, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}])
def test_sgd(options, order, random):
    weight, velocity = np.array(random(7, 5), order=order), np.zeros((7, 5), np.float32, order)
    w, v = weight.astype(np.float64), 0.0
    for _ in range(3):
        gradient = np.array(random(7, 5), order=order)
        g = gradient + options.get("weight_decay", 0) * w
        v = options.get("momentum", 0) * v + g
        w = w - 0.1 * (g + 0.9 * v if options.get("nesterov") else v)
        libffn.sgd_step(weight, gradient, velocity if options else None, learning_rate=0.1, **options)
    np.testing.assert_allclose(weight, w, rtol=0, atol=2e-6)


@pytest.mark.parametrize("where", [{}, {"threads": 2}])
def test_adamw(where, random):
    weight, first, second = random(300), np.zeros(300, np.float32), np.zeros(300, np.float32)
    w, m, v = weight.astype(np.float64), 0.0, 0.0
    for step in range(1, 6):
        gradient = random(300)
        g = gradient.astype(np.float64)
        m, v = 0.8 * m + 0.2 * g, 0.99 * v + 0.01 * g**2
        w = w - 0.01 * (0.1 * w + m / (1 - 0.8**step) / (np.sqrt(v / (1 - 0.99**step)) + 1e-6))
        options = {"learning_rate": 0.01, "beta1": 0.8, "beta2": 0.99, "eps": 1e-6, "weight_decay": 0.1}
        libffn.adamw_step(weight, gradient, first, second, step=step, **options, **where)
    np.testing.assert_allclose(weight, w, rtol=0, atol=2e-6)
    np.testing.assert_allclose(first, m, rtol=0, atol=1e-6)


def test_clipping_by_the_global_norm(random):
    given = {"a": random(7, 5), "b": np.asfortranarray(random(4, 3)), "c": np.zeros(0, np.float32)}
    norm = math.sqrt(sum(np.sum(array.astype(np.float64) ** 2) for array in given.values()))
    gradients = {name: array.copy(order="K") for name, array in given.items()}
    assert libffn.clip_global_norm(gradients, math.inf) == pytest.approx(norm, rel=1e-7)
    assert libffn.clip_global_norm(gradients.values(), 2 * norm) == pytest.approx(norm, rel=1e-7)
    for name, array in given.items():
        np.testing.assert_array_equal(gradients[name], array)
    libffn.clip_global_norm(gradients, norm / 2, threads=2)
    for name, array in given.items():
        np.testing.assert_allclose(gradients[name], array / 2, rtol=1e-6)
    gradients["a"][0, 0] = np.nan
    before = gradients["b"].copy()
    assert math.isnan(libffn.clip_global_norm(gradients, norm / 100))
    np.testing.assert_array_equal(gradients["b"], before)
    assert libffn.clip_global_norm([], 1) == 0


def test_wrong_arguments_are_refused_with_a_sentence(random):
    w, g = random(6, 4), random(6, 4)
    before = w.copy()
    for call, kind, sentence in (
        (lambda: libffn.sgd_step(w, g[:5], learning_rate=1), libffn.InvalidError, r"the shape of gradient is \(5, 4\), must be \(6, 4\), as that of weight"),
        (lambda: libffn.sgd_step(w, g, learning_rate=-1), libffn.InvalidError, "learning_rate is -1"),
        (lambda: libffn.sgd_step(w, g, learning_rate=1, momentum=0.5), libffn.InvalidError, "velocity"),
        (lambda: libffn.sgd_step(w, g, learning_rate=1, nesterov=True), libffn.InvalidError, "NESTEROV"),
        (lambda: libffn.sgd_step(w, w, learning_rate=1), libffn.InvalidError, "overlaps"),
        (lambda: libffn.sgd_step(w, np.asfortranarray(g), learning_rate=1), libffn.InvalidError, "weight, gradient must be contiguous"),
        (lambda: libffn.sgd_step(w[:, :2], g[:, :2], learning_rate=1), libffn.InvalidError, "must be contiguous"),
        (lambda: libffn.sgd_step(w.astype(np.float64), g, learning_rate=1), libffn.UnsupportedError, "weight is of dtype"),
        (lambda: libffn.adamw_step(w, g, g, g.copy(), step=1, learning_rate=1), libffn.InvalidError, "overlaps"),
        (lambda: libffn.adamw_step(w, g, g.copy(), g.copy(), step=0, learning_rate=1), libffn.InvalidError, "step is 0"),
        (lambda: libffn.adamw_step(w, g, g.copy(), g.copy(), step=1, learning_rate=1, beta2=1), libffn.InvalidError, "beta2 is 1"),
        (lambda: libffn.clip_global_norm([w], 0), libffn.InvalidError, "max_norm is 0"),
        (lambda: libffn.clip_global_norm([w[::2]], 1), libffn.InvalidError, "gradient 0 has gaps"),
    ):
        with pytest.raises(kind, match=sentence):
            call()
        np.testing.assert_array_equal(w, before)


def test_a_layer_learns(random):
    """sin(x) by 16 hidden units: the whole loop that the package is for."""
    init, zeros = libffn.weight_init, lambda *shape: np.zeros(shape, np.float32)
    weights = {
        "up": init(zeros(16, 1), "kaiming_normal", seed=1),
        "up_bias": init(zeros(16), "torch_linear", seed=1, stream=1, fan_in=1),
        "down": init(zeros(1, 16), "kaiming_normal", seed=1, stream=2),
        "down_bias": zeros(1),
    }
    layer, tape = libffn.Layer(**weights, activation="tanh", trainable=True), libffn.Tape()
    gradients = {name: np.empty_like(value) for name, value in weights.items()}
    state = {name: (np.zeros_like(value), np.zeros_like(value)) for name, value in weights.items()}
    x = np.linspace(-3, 3, 64, dtype=np.float32)[:, None]
    target, losses = np.sin(x), []
    for step in range(1, 401):
        error = layer(x, tape=tape) - target
        losses.append(float(np.mean(error**2)))
        layer.backward(tape, 2 / error.size * error, gradients)
        libffn.clip_global_norm(gradients, 1.0)
        for name, value in weights.items():
            libffn.adamw_step(value, gradients[name], *state[name], step=step, learning_rate=0.02)
        layer.update(**weights)
    assert losses[0] > 0.1 and losses[-1] < 1e-3
