# SPDX-License-Identifier: MIT
"""Memory: an allocator of one's own, every allocation failing in turn, nothing lost and nothing freed too early."""
import ctypes
import gc
import weakref

import numpy as np
import pytest

import libffn
from conftest import assert_close

libc = ctypes.CDLL(None)
libc.aligned_alloc.restype, libc.aligned_alloc.argtypes = ctypes.c_void_p, (ctypes.c_size_t, ctypes.c_size_t)
libc.free.restype, libc.free.argtypes = None, (ctypes.c_void_p,)


class Memory(libffn.Allocator):
    """Counts what is held, and refuses allocation number `failing` (from 0)."""

    def __init__(self):
        self.held, self.asked, self.failing = {}, 0, None
        super().__init__(self.take, self.give_back)

    def take(self, size, alignment):
        self.asked += 1
        if self.asked - 1 == self.failing:
            return None
        address = libc.aligned_alloc(alignment, (size + alignment - 1) // alignment * alignment)
        self.held[address] = size
        return address

    def give_back(self, address, size):
        assert self.held.pop(address) == size
        libc.free(address)

    def each_failing(self, action):
        """Runs action() with its first allocation failing, then its second, ..., until none fails: how many were refused."""
        refused = 0
        while True:
            self.asked, self.failing, held = 0, refused, dict(self.held)
            try:
                action()
            except libffn.NoMemoryError as error:
                assert isinstance(error, MemoryError) and "cannot allocate" in str(error)
                assert self.held == held
                refused += 1
            else:
                assert self.asked <= self.failing
                self.failing = None
                return refused


def test_every_allocation_of_a_layer_fails_once(weights, random):
    memory, made, x = Memory(), [], random(3, 24)
    assert memory.each_failing(lambda: made.append(libffn.Layer(**weights, allocator=memory))) >= 1
    assert_close(made[0](x), libffn.Layer(**weights)(x))
    assert made[0].info.bytes == sum(memory.held.values())
    made.clear()
    assert not memory.held


def test_every_allocation_of_a_context_fails_once(layer, weights, random):
    memory, made, x = Memory(), [], random(64, 24)
    assert memory.each_failing(lambda: made.append(libffn.Context(3, allocator=memory))) >= 1
    context = made.pop()
    assert memory.each_failing(lambda: libffn.Layer(**weights, context=context)) >= 0
    assert memory.each_failing(lambda: context.reserve(layer, 3)) == 1
    expected = layer(x)
    out = np.full_like(x, 7)
    memory.asked, memory.failing = 0, 0
    with pytest.raises(libffn.NoMemoryError):
        layer(x, out=out, context=context)
    assert (out == 7).all()
    memory.failing = None
    assert_close(layer(x, out=out, context=context), expected)
    assert context.info.scratch_bytes <= sum(memory.held.values())
    del context
    assert not memory.held


def test_every_allocation_of_a_tape_fails_once(weights, random):
    memory, made, x = Memory(), [], random(50, 24)
    layer = libffn.Layer(**weights, trainable=True)
    expected, gradient = layer(x, tape=libffn.Tape()), np.empty((40, 24), np.float32)
    assert memory.each_failing(lambda: made.append(libffn.Tape(allocator=memory))) >= 1
    tape = made.pop()
    assert memory.each_failing(lambda: tape.reserve(layer, 20)) == 1
    memory.asked, memory.failing = 0, 0
    with pytest.raises(libffn.NoMemoryError):
        layer(x, tape=tape)
    memory.failing = None
    with pytest.raises(libffn.InvalidError, match="the tape is empty"):
        layer.backward(tape, x, {"up": gradient})
    np.testing.assert_array_equal(layer(x, tape=tape), expected)
    held = sum(memory.held.values())
    for _ in range(3):
        layer.backward(tape, x, {"up": gradient})
        layer(x, tape=tape)
    assert sum(memory.held.values()) == held  # it does not grow
    del tape
    assert not memory.held


def test_an_allocator_that_raises_has_no_memory(weights):
    def refuse(size, alignment):
        raise RuntimeError("no")

    with pytest.raises(libffn.NoMemoryError, match="cannot allocate"):
        libffn.Layer(**weights, allocator=libffn.Allocator(refuse, lambda address, size: None))


def test_an_allocator_lives_as_long_as_what_is_made_with_it(weights, random):
    memory = Memory()
    alive = weakref.ref(memory)
    layer = libffn.Layer(**weights, allocator=memory)
    held = memory.held
    del memory
    gc.collect()
    assert alive() and held
    layer(random(3, 24))
    del layer
    gc.collect()
    assert not held and not alive()


def test_handles_are_freed_with_their_last_reference():
    up, down = np.ones((1024, 1024), np.float32), np.ones((1024, 1024), np.float32)
    for _ in range(100):
        libffn.Layer(up, down, activation="relu")
        libffn.Context(2)
    with open("/proc/self/statm", encoding="ascii") as file:
        assert int(file.read().split()[1]) * 4096 < 600 << 20  # all of them: 800 MB


def test_too_little_address_space(run_python):
    """RLIMIT_AS: packing, scratch memory and outputs are refused, and a smaller layer still works."""
    run_python("""
import resource, sys
import numpy as np
import libffn

up, down = np.ones((2048, 1024), np.float32), np.ones((1024, 2048), np.float32)
small = libffn.Layer(up[:64], down[:, :64], activation="relu")
x = np.ones((8, 1024), np.float32)
expected = small(x)
with open("/proc/self/statm") as file:
    now = int(file.read().split()[0]) * 4096
resource.setrlimit(resource.RLIMIT_AS, (now + (8 << 20), now + (8 << 20)))
for _ in range(3):
    try:
        libffn.Layer(up, down, activation="relu")
        sys.exit("packed 16 MB into 8")
    except libffn.NoMemoryError as error:
        assert "cannot allocate" in str(error), error
    assert np.array_equal(small(x), expected)
""")
