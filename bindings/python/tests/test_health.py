# SPDX-License-Identifier: MIT
"""Counts of hidden units, and health of tensors, against NumPy's float64."""
import gc
import pickle
import threading

import numpy as np
import pytest

import libffn
import oracle

D_FF = 40


def activations(weights, x):
    """What is counted, in float64, for layers without dropout."""
    wide = {name: value.astype(np.float64) if isinstance(value, np.ndarray) else value for name, value in weights.items()}
    first, bias = ("gate", "gate_bias") if "gate" in wide else ("up", "up_bias")
    x = x.reshape(-1, x.shape[-1]).astype(np.float64)
    if wide.get("norm_in") == "rms":
        x = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6)
    return oracle.ACTIVATIONS[wide["activation"]](x @ wide[first].T + wide.get(bias, 0))


@pytest.fixture(params=["gelu", "swiglu", "relu"])
def options(request, weights, random):
    if request.param == "swiglu":
        return {**weights, "activation": "silu", "gate": random(D_FF, 24) / 5, "gate_bias": random(D_FF)}
    return {**weights, "activation": request.param, "up_bias": random(D_FF)}


@pytest.mark.parametrize("threads", [None, 2])
@pytest.mark.parametrize("engine", ["native", "blas"])
def test_counts_are_those_of_float64(options, random, threads, engine):
    layer, stats, x = libffn.Layer(**options, engine=engine), libffn.Stats(D_FF), random(7, 31, 24)
    a = activations(options, x)
    assert np.abs(a).min() > 0 or options["activation"] == "relu"
    y = layer(x, stats=stats, threads=threads)
    np.testing.assert_array_equal(y, layer(x, threads=threads))
    np.testing.assert_array_equal(stats.positive, (a > 0).sum(0))
    assert stats.positive.dtype == np.int64
    np.testing.assert_array_equal(stats.density, (a > 0).mean(0))
    f = (a > 0).mean(0)
    np.testing.assert_allclose(stats.density_logit, np.log(f + np.exp(-10)) - np.log(1 - f + np.exp(-10)), rtol=0, atol=1e-12)
    info = stats.info
    assert (info.d_ff, info.positions, info.positive, info.non_finite) == (D_FF, 217, (a > 0).sum(), 0)
    assert info.dead_units == (f == 0).sum()
    assert info.density == pytest.approx((a > 0).mean(), rel=1e-15)
    assert info.mean == pytest.approx(np.abs(a).mean(), rel=1e-6)
    assert info.largest == pytest.approx(np.abs(a).max(), rel=1e-6)


def test_calls_of_every_kind_are_counted(weights, random):
    """Views with strides, into an array, with a tape, with dropout before the activation and behind it."""
    layer, x = libffn.Layer(**weights, trainable=True), random(4, 6, 24)
    once, many = libffn.Stats(D_FF), libffn.Stats(D_FF)
    layer(x, stats=once)
    layer(x[:, ::2], stats=many)
    layer(np.moveaxis(np.ascontiguousarray(np.moveaxis(x[:, 1::2], 2, 0)), 0, 2), out=np.empty((4, 3, 24), np.float32), stats=many)
    assert many.info == once.info
    layer(x, stats=many, tape=libffn.Tape(), dropout=libffn.Dropout(hidden=0.5, branch=0.5))
    once.merge(once_more := libffn.Stats(D_FF))
    layer(x, stats=once_more)
    once.merge(once_more)
    assert many.info == once.info
    layer(x, stats=many, dropout=libffn.Dropout(pre_activation=1))
    assert many.info.positive == once.info.positive and many.info.positions == 72
    many.reset()
    assert many.info == libffn.Stats(D_FF).info or np.isnan(many.info.density)
    assert many.info.positions == 0 and not many.positive.any() and np.isnan(many.density).all()


def test_histograms_are_as_numpys(options, random):
    layer, stats = libffn.Layer(**options), libffn.Stats(D_FF)
    layer(random(200, 24), stats=stats)
    for bins in (1, 7, 40, [-3, -1, 0, 2], np.array([-np.inf, 0, np.inf])):
        counts, edges = stats.histogram(bins)
        expected, expected_edges = np.histogram(stats.density_logit, bins, None if np.ndim(bins) else (-10.000045398899218, 10.000045398899218))
        np.testing.assert_array_equal(counts, expected)
        np.testing.assert_allclose(edges, expected_edges, rtol=1e-12)
    assert stats.histogram()[0].sum() == D_FF


def test_what_is_not_finite_is_counted(weights, random):
    layer, stats, x = libffn.Layer(**weights), libffn.Stats(D_FF), random(3, 24)
    x[1, 5] = np.nan
    layer(x, stats=stats)
    assert stats.info.non_finite == D_FF and stats.info.largest < 100 and stats.info.mean > 0


def test_mistakes_have_sentences(layer, random):
    x = random(2, 24)
    with pytest.raises(libffn.InvalidError, match="d_ff of 41, the layer has 40"):
        layer(x, stats=libffn.Stats(41))
    with pytest.raises(libffn.InvalidError, match="d_ff of the stats is 0"):
        libffn.Stats(0)
    with pytest.raises(libffn.InvalidError, match="d_ff is -1"):
        libffn.Stats(-1)
    stats = libffn.Stats(40)
    with pytest.raises(libffn.InvalidError, match="same"):
        stats.merge(stats)
    with pytest.raises(libffn.InvalidError, match="41, must be for 40"):
        stats.merge(libffn.Stats(41))
    for bins in (0, 2**20 + 1, [1], [[1, 2]], [0, 0], [0, np.nan], []):
        with pytest.raises(libffn.InvalidError):
            stats.histogram(bins)
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(stats)
    assert stats.info.positions == 0


def test_one_call_at_a_time(random):
    layer, stats = libffn.Layer(up=random(512, 256), down=random(256, 512), activation="gelu"), libffn.Stats(512)
    inside, x = [], random(2000, 256)

    def run():
        layer(x, stats=stats)

    with stats._lent():
        thread = threading.Thread(target=lambda: inside.append(pytest.raises(libffn.BusyError, run)))
        thread.start()
        thread.join()
        for call in (stats.reset, lambda: stats.info, lambda: stats.density, lambda: libffn.Stats(512).merge(stats)):
            with pytest.raises(libffn.BusyError):
                call()
    assert len(inside) == 1 and stats.info.positions == 0
    run()
    assert stats.info.positions == 2000


def test_memory_comes_from_the_allocator_and_goes_back():
    held = {}

    def allocate(size, alignment):
        array = np.empty(size + alignment, np.uint8)
        address = (array.ctypes.data + alignment - 1) // alignment * alignment
        held[address] = array
        return address

    stats = libffn.Stats(100, allocator=libffn.Allocator(allocate, lambda address, size: held.pop(address)))
    assert len(held) == 1
    del stats
    gc.collect()
    assert not held
    with pytest.raises(libffn.NoMemoryError):
        libffn.Stats(100, allocator=libffn.Allocator(lambda size, alignment: None, lambda address, size: None))


# ---------------------------------------------------------------- tensors


@pytest.mark.parametrize("threads", [None, 2])
def test_health_of_tensors_is_that_of_float64(random, threads):
    v = random(5, 300, 200)
    v[v < -1] = 0
    views = [v, v[0], v[:, ::3], v.T, v[::-1, :, 5:], v[0, 0], v[:0], np.broadcast_to(v[0, 0], (4, 200)), v.reshape(5, 5, 60, 10, 20), v[0, 0, 0], np.float32(3)]
    for view in views[:-1]:
        health, wide = libffn.tensor_health(view, threads=threads), view.astype(np.float64)
        assert (health.count, health.zeros, health.non_finite) == (view.size, (view == 0).sum(), 0)
        assert health.norm == pytest.approx(np.sqrt((wide**2).sum()), rel=1e-12)
        assert health.largest == np.abs(wide).max(initial=0)
    v[0, 1, 2], v[4, 5, 6] = np.inf, np.nan
    health = libffn.tensor_health(v)
    assert health.non_finite == 2 and np.isnan(health.norm) and health.largest == np.abs(v[np.isfinite(v)]).max()
    assert libffn.tensor_health(np.full(1000, 1e30, np.float32)).norm == pytest.approx(1e30 * np.sqrt(1000), rel=1e-6)


def test_update_ratios_are_those_of_float64(random):
    before, step = random(100, 70), random(100, 70)
    after = before + np.float32(1e-3) * step
    expected = np.sqrt(((after.astype(np.float64) - before) ** 2).sum() / (before.astype(np.float64) ** 2).sum())
    assert libffn.update_ratio(before, after) == pytest.approx(expected, rel=1e-10)
    assert libffn.update_ratio(before.T, np.ascontiguousarray(after.T), threads=2) == pytest.approx(expected, rel=1e-10)
    assert libffn.update_ratio(before, before) == 0
    assert libffn.update_ratio(np.zeros_like(before), after) == np.inf
    assert libffn.update_ratio(before[:0], before[:0]) == 0
    with pytest.raises(libffn.InvalidError, match="shape of after"):
        libffn.update_ratio(before, after[1:])
    with pytest.raises(libffn.UnsupportedError, match="float32"):
        libffn.update_ratio(before, after.astype(np.float64))
    with pytest.raises(libffn.UnsupportedError, match="float32"):
        libffn.tensor_health(np.ones(3))
