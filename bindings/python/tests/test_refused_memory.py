# SPDX-License-Identifier: MIT
"""Every allocation of the libraries failing in turn, through every entry point of the package, without an allocator of one's own: the calling
thread's scratch memory, model files, JSON."""
import shutil
import subprocess
from pathlib import Path

import pytest

from files import write_llama

PRELUDE = """
import ctypes, sys
import numpy as np
import libffn

refusing = ctypes.CDLL(None)
refusing.allocations_asked.restype = ctypes.c_long
rng = np.random.default_rng(1)
up, down = rng.standard_normal((40, 24), np.float32), rng.standard_normal((24, 40), np.float32)
x = rng.standard_normal((600, 24), np.float32)
path = sys.argv[1]
layer, model = libffn.Layer(up, down, activation="gelu"), libffn.Model(path)
expected, out = layer(x), np.empty_like(x)
libffn.load(path, layer=0)(np.ones((1, 8), np.float32))

def each_refused(name, action):
    '''Runs action() with its first allocation refused, then its second, ..., until it needs no more.'''
    number = 0
    while True:
        refusing.refuse_allocation(ctypes.c_long(number))
        try:
            action()
        except libffn.NoMemoryError as error:
            refusing.refuse_allocation(ctypes.c_long(-1))
            assert str(error), name
        else:
            asked = refusing.allocations_asked()
            refusing.refuse_allocation(ctypes.c_long(-1))
            if asked <= number:
                print(name, number)
                return
        np.testing.assert_array_equal(layer(x), expected)
        number += 1
        assert number < 1000, name
"""


@pytest.fixture(scope="module")
def refusing(tmp_path_factory):
    compiler = shutil.which("cc")
    if not compiler:
        pytest.skip("there is no C compiler")
    library = tmp_path_factory.mktemp("refuse") / "refuse_memory.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", Path(__file__).parent / "refuse_memory.c", "-o", library, "-ldl"], check=True)
    return {"LD_PRELOAD": str(library), "LD_BIND_NOW": "1"}


def test_every_allocation_of_the_libraries_fails_once(refusing, tmp_path, random, run_python):
    write_llama(tmp_path, [{"up": random(12, 8), "gate": random(12, 8), "down": random(8, 12), "norm": random(8)}])
    printed = run_python(PRELUDE + """
import threading
def in_new_thread(action):
    '''What a thread needs in its first call.'''
    failures = []
    def run():
        try: each_refused("first call of a thread", action)
        except BaseException as error: failures.append(error)
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert not failures, failures

for engine in ("blas", "native"):
    each_refused("Layer", lambda: libffn.Layer(up, down, activation="gelu", engine=engine))
    fresh = libffn.Layer(up, down, activation="gelu", engine=engine)
    in_new_thread(lambda: fresh(x, out=out))
    in_new_thread(lambda: fresh.reserve(600))
    in_new_thread(lambda: fresh(x, threads=2))
    each_refused("call with a context", lambda: fresh(x, context=libffn.Context(2)))
in_new_thread(libffn.thread_info)

trainable, tape, gradients = libffn.Layer(up, down, activation="gelu", trainable=True), libffn.Tape(), {"up": np.empty_like(up)}
def step():
    y = trainable(x, tape=tape, dropout=libffn.Dropout(hidden=0.1))
    trainable.backward(tape, y, gradients, d_x=out)
    libffn.clip_global_norm(gradients, 1e9)
    libffn.sgd_step(np.empty_like(up), gradients["up"], learning_rate=0.1)
    trainable.update(up=up)
each_refused("Tape", libffn.Tape)
in_new_thread(step)
each_refused("Context", lambda: libffn.Context(3))
each_refused("weights", layer.weights)
each_refused("info", lambda: (layer.info, model.info, libffn.Context(1).info))
each_refused("Model", lambda: libffn.Model(path))
each_refused("tensors", lambda: model.tensors)
each_refused("read", lambda: model.read("model.layers.0.mlp.up_proj.weight"))
each_refused("layer", lambda: model.layer(0))
each_refused("load", lambda: libffn.load(path, layer=0))
""", tmp_path, **refusing)  # fmt: skip
    counts = [(name, int(count)) for name, count in (line.rsplit(" ", 1) for line in printed.splitlines())]
    for name in ("Layer", "first call of a thread", "call with a context", "Context", "Tape", "Model", "layer", "load"):
        assert sum(count for entry, count in counts if entry == name) >= 1, f"nothing was refused in {name}: {printed}"
