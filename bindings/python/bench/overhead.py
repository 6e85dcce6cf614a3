# SPDX-License-Identifier: MIT
"""What a call through Python costs more than the same call from C: medians of interleaved rounds, in microseconds.

    python bindings/python/bench/overhead.py [--rounds 1001]

Takes a C compiler. The layer is so small that the call itself shows."""
import argparse
import ctypes
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import libffn
from libffn._arrays import address
from libffn._native import lib

HERE = Path(__file__).resolve().parent
CALLS = 100  # a round is shorter than a time slice, so that other programs are not measured with it


def loop_in_c(folder):
    """seconds_of_call of calls.c, compiled."""
    library = Path(folder) / "calls.so"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", f"-I{HERE.parents[2] / 'include'}", HERE / "calls.c", "-o", library], check=True)
    function = ctypes.CDLL(str(library)).seconds_of_call
    function.restype = ctypes.c_double
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
    return function


def seconds(call):
    start = time.perf_counter()
    for _ in range(CALLS):
        call()
    return (time.perf_counter() - start) / CALLS


def cpu_name():
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
        return next((line.split(":")[1].strip() for line in file if line.startswith("model name")), platform.machine())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=1001)
    rounds = parser.parse_args().rounds

    rng = np.random.default_rng(1)
    up, down = rng.standard_normal((8, 4), np.float32), rng.standard_normal((4, 8), np.float32)
    layer = libffn.Layer(up, down, activation="relu")
    x, read_only, wide = (rng.standard_normal(shape, np.float32) for shape in ((1, 4), (1, 4), (2, 3, 8)))
    view, out = wide[:, :2, :4], np.empty_like(x)
    read_only.setflags(write=False)
    context = libffn.Context(1)

    with tempfile.TemporaryDirectory() as folder:
        in_c = loop_in_c(folder)
        forward = ctypes.cast(lib.ffn_layer_forward, ctypes.c_void_p).value
        ways = {
            "the call from C": lambda: in_c(forward, layer._handle, 1, address(x), address(out), CALLS),
            "layer(x, out=out)": lambda: seconds(lambda: layer(x, out=out)),
            "layer(x)": lambda: seconds(lambda: layer(x)),
            "layer(x, context=context)": lambda: seconds(lambda: layer(x, context=context)),
            "layer(x, threads=1)": lambda: seconds(lambda: layer(x, threads=1)),
            "layer(read_only)": lambda: seconds(lambda: layer(read_only)),
            "layer(view), two strides": lambda: seconds(lambda: layer(view)),
            "an empty function of Python": lambda: seconds(lambda: None),
        }
        taken = {name: [] for name in ways}
        for _ in range(rounds):
            for name, way in ways.items():
                taken[name].append(way())

    medians = {name: statistics.median(times) * 1e6 for name, times in taken.items()}
    print(f"{cpu_name()}, Python {platform.python_version()}, NumPy {np.__version__}, {time.strftime('%Y-%m-%d')}; medians of {rounds} rounds")
    print(f"{'':28}  {'us':>6}  {'more than from C':>16}")
    for name, median in medians.items():
        print(f"{name:28}  {median:6.2f}  {median - medians['the call from C']:16.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
