# SPDX-License-Identifier: MIT
"""Threads: the interpreter lock is released, layers are shared, contexts serve one call at a time."""
import threading

import numpy as np
import pytest

import libffn
from conftest import assert_close


@pytest.fixture
def slow(random):
    """A layer and an input whose call takes some tens of milliseconds."""
    return libffn.Layer(random(1024, 256), random(256, 1024), activation="gelu"), random(2048, 256)


def in_threads(count, work):
    """Runs work(i) in so many threads at once; raises the first failure."""
    failures, barrier = [], threading.Barrier(count)

    def run(i):
        try:
            barrier.wait()
            work(i)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def seen_busy(layer, x, context):
    """Whether this thread, while another one is inside a call, gets to run and is told so."""
    thread = threading.Thread(target=lambda: layer(x, context=context))
    thread.start()
    busy = False
    while thread.is_alive() and not busy:
        try:
            context.info
        except libffn.BusyError:
            busy = True
    thread.join()
    return busy


def test_other_threads_run_python_during_a_call(slow):
    """With the lock held for the whole call, the context would never be seen busy."""
    layer, x = slow
    context = libffn.Context(1)
    assert any(seen_busy(layer, x, context) for _ in range(100))


def test_a_context_inside_a_call_refuses_another_and_stays_usable(slow):
    layer, x = slow
    x = x[:64]
    context, refused, expected = libffn.Context(1), [], layer(x)

    def run(i):
        for _ in range(20):
            out = np.full_like(x, 7)
            try:
                layer(x, out=out, context=context)
                np.testing.assert_array_equal(out, expected)
            except libffn.BusyError as error:
                refused.append(str(error))
                assert (out == 7).all()

    in_threads(4, run)
    assert refused and all("inside another call" in sentence for sentence in refused)
    np.testing.assert_array_equal(layer(x, context=context), expected)


@pytest.mark.parametrize("threads", [None, 1, 2, 0])
def test_one_layer_used_by_32_threads_at_once(threads, random):
    layer = libffn.Layer(random(96, 32), random(32, 96), activation="silu", gate=random(96, 32), norm_in="rms", residual="input")
    inputs = [random(1 + i % 7, 32) for i in range(32)]
    expected = [layer(x) for x in inputs]

    def run(i):
        for _ in range(10):
            assert_close(layer(inputs[i], threads=threads), expected[i])

    in_threads(32, run)


def test_layers_are_made_and_freed_by_many_threads(weights, random):
    x = random(3, 24)
    expected = libffn.Layer(**weights)(x)

    def run(i):
        for _ in range(10):
            np.testing.assert_array_equal(libffn.Layer(**weights)(x), expected)

    in_threads(8, run)


def test_threads_of_a_call(layer, random):
    x = random(300, 24)
    expected = layer(x)
    for threads in (1, 2, 3, 2, 0):
        assert_close(layer(x, threads=threads), expected)
    context = libffn.Context(3)
    assert_close(layer(x, context=context), expected)
    assert (context.info.threads_requested, context.info.scratch_bytes > 0) == (3, True)
    assert libffn.Context(0).info.threads_requested >= 1


def test_scratch_memory_can_be_reserved(layer, random):
    context = libffn.Context(1)
    assert context.info.scratch_bytes == 0
    context.reserve(layer, 1000)
    held = context.info.scratch_bytes
    layer(random(1000, 24), context=context)
    assert context.info.scratch_bytes == held > 0
    layer.reserve(100_000)
    held = libffn.thread_info().scratch_bytes
    layer(random(100_000, 24))
    assert libffn.thread_info().scratch_bytes == held > 0


def test_scratch_memory_can_be_limited(layer, random):
    x = random(1000, 24)
    context = libffn.Context(1, scratch_limit=64 << 10)
    assert_close(layer(x, context=context), layer(x))
    assert 0 < context.info.scratch_bytes <= 64 << 10
    with pytest.raises(libffn.NoMemoryError):
        layer(x, context=libffn.Context(1, scratch_limit=64))
    with pytest.raises(libffn.InvalidError, match="scratch_limit is -1"):
        libffn.Context(1, scratch_limit=-1)
