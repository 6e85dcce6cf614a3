# SPDX-License-Identifier: MIT
"""Host programs that we do not control: processes that fork, spawn and end, and libraries that are loaded in any order. Each script is a process
of its own, which must end with status 0 and a silent standard error."""
import shutil
import subprocess
from pathlib import Path

import pytest

from files import write_llama
from libffn import _native

LIBRARY = Path(_native.lib._name)

MAKE = """
import sys
import numpy as np
import libffn

rng = np.random.default_rng(1)
up, down = rng.standard_normal((256, 64), np.float32) / 8, rng.standard_normal((64, 256), np.float32) / 16
layer = libffn.Layer(up, down, activation="gelu", norm_in="rms", residual="input", engine="blas")
x = rng.standard_normal((40, 64), np.float32)
expected = layer(x)

native = libffn.Layer(up, down, activation="gelu", norm_in="rms", residual="input", engine="native")

def check():
    for threads in (None, 2):
        np.testing.assert_allclose(layer(x, threads=threads), expected, rtol=0, atol=1e-5)
        np.testing.assert_allclose(native(x, threads=threads), expected, rtol=0, atol=1e-5)
"""


def test_fork_with_threads_of_all_kinds_alive(run_python):
    """libffn's, OpenBLAS's and Python's own; child and parent go on."""
    run_python(MAKE + """
import os, threading, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of fork with threads
stop, failures = threading.Event(), []
def work():
    try:
        while not stop.is_set():
            check()
    except BaseException as error:
        failures.append(error)
threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads: thread.start()
for _ in range(10):
    check()
    child = os.fork()
    if child == 0:
        try:
            check()
            libffn.Layer(up, down, activation="relu")(x)
            os._exit(7)
        except BaseException:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
stop.set()
for thread in threads: thread.join()
assert not failures, failures
""")


def test_two_threads_fork_at_once(run_python):
    run_python(MAKE + """
import os, threading, warnings
warnings.simplefilter("ignore", DeprecationWarning)
statuses = []
def fork():
    for _ in range(5):
        check()
        child = os.fork()
        if child == 0:
            try:
                check()
                os._exit(7)
            except BaseException:
                os._exit(1)
        statuses.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
threads = [threading.Thread(target=fork) for _ in range(2)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert statuses == [7] * 10, statuses
""")


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(method, run_python):
    """A forked worker uses the layer that it inherits; the others make their own."""
    run_python("""
import sys
sys.path.insert(0, sys.argv[2])
import multiprocessing
import warnings
import worker

if __name__ == "__main__":
    warnings.simplefilter("ignore", DeprecationWarning)
    expected = worker.run(3)  # libffn has computed here before
    with multiprocessing.get_context(sys.argv[1]).Pool(2) as pool:
        for got in pool.map(worker.run, [3] * 8):
            assert abs(got - expected).max() < 1e-4
""", method, Path(__file__).parent)  # fmt: skip


@pytest.mark.parametrize("engine", ["blas", "native"])
def test_the_interpreter_ends_while_threads_are_inside_calls(engine, run_python):
    """As the main thread returns, in sys.exit, and in os._exit. Each several times: OpenBLAS's threads, which end too, are not always in the way."""
    for end in ("", "sys.exit(0)", "import os; os._exit(0)") * 2:
        run_python(MAKE + """
import threading
busy = libffn.Layer(up, down, activation="gelu", engine=sys.argv[1])
big, started = np.ones((20_000, 64), np.float32), threading.Barrier(4)
def work():
    started.wait()
    while True:
        busy(big)
        busy(big, threads=2)
for _ in range(3): threading.Thread(target=work, daemon=True).start()
started.wait()
""" + end, engine)  # fmt: skip


ORDERS = {
    "NumPy before libffn": "import numpy; numpy.ones((99, 99)) @ numpy.ones((99, 99)); import libffn",
    "libffn's library before NumPy": "import ctypes; ctypes.CDLL(LIBRARY, MODE).ffn_version(); import numpy; import libffn",
    "the system's OpenBLAS before both": "import ctypes; ctypes.CDLL(BLAS, MODE) if BLAS else None; import numpy; import libffn",
}


@pytest.mark.parametrize("mode", ["RTLD_LOCAL", "RTLD_GLOBAL"])
@pytest.mark.parametrize("order", ORDERS)
def test_numpy_has_an_openblas_of_its_own(order, mode, run_python):
    """Both compute rightly, in turn and at once, whoever was loaded first and however."""
    preamble = "import ctypes.util, ctypes, sys\n" f"LIBRARY, MODE = {str(LIBRARY)!r}, ctypes.{mode}\nBLAS = ctypes.util.find_library('openblas')\n"
    run_python(preamble + ORDERS[order] + MAKE + """
import threading
a = rng.standard_normal((300, 200))
product = a @ a.T
def multiply():
    for _ in range(20):
        np.testing.assert_allclose(a @ a.T, product, rtol=1e-12, atol=1e-9)
thread = threading.Thread(target=multiply)
thread.start()
for _ in range(20): check()
thread.join()
hidden = (x / np.sqrt((x.astype(float) ** 2).mean(-1, keepdims=True) + 1e-6)) @ up.T.astype(float)
from oracle import ACTIVATIONS
np.testing.assert_allclose(expected, x + ACTIVATIONS["gelu"](hidden) @ down.T, rtol=0, atol=1e-5)
""")  # fmt: skip


@pytest.fixture
def german(tmp_path):
    """The folder of a locale that writes 1.234,5, made here: tests must not depend on what the system has."""
    made = subprocess.run(["localedef", "-i", "de_DE", "-f", "UTF-8", tmp_path / "de_DE.UTF-8"], capture_output=True, text=True)
    if not (tmp_path / "de_DE.UTF-8").exists():
        pytest.skip(f"localedef cannot make de_DE.UTF-8: {made.stderr}")
    return tmp_path


def test_a_locale_with_a_decimal_comma(german, random, run_python):
    layers = [{"up": random(12, 8), "gate": random(12, 8), "down": random(8, 12), "norm": random(8)}]
    write_llama(german, layers, {"rms_norm_eps": 0.5})
    run_python("""
import locale, sys
import numpy as np
import libffn
locale.setlocale(locale.LC_ALL, "de_DE.UTF-8")
assert locale.localeconv()["decimal_point"] == ","
one = np.ones((2, 2), np.float32)
try:
    libffn.Layer(one, one, activation="relu", norm_in="rms", eps=-0.5)
    sys.exit("not refused")
except libffn.InvalidError as error:
    assert "-0.5" in str(error), error
layer = libffn.load(sys.argv[1], layer=0)
same = libffn.Layer(activation="silu", norm_in="rms", eps=0.5, residual="input", **layer.weights())
x = np.full((1, 8), 0.5, np.float32)
np.testing.assert_array_equal(layer(x), same(x))
assert locale.localeconv()["decimal_point"] == ","
""", german, LOCPATH=str(german))  # fmt: skip


def test_a_closed_standard_error(run_python):
    run_python("import os; os.close(2)\n" + MAKE + """
check()
try:
    libffn.Layer(up, down, activation="no such")
except libffn.InvalidError:
    pass
assert not os.path.exists("/proc/self/fd/2")
""")


def test_floating_point_flags_of_the_host_stay(run_python):
    """Another rounding mode, set before libffn is loaded, is there afterwards, and results are those of the usual one."""
    run_python("""
import ctypes, ctypes.util
libm = ctypes.CDLL(ctypes.util.find_library("m") or "libm.so.6")
before = libm.fegetround()
""" + MAKE + """
UPWARD = {"x86_64": 0x800, "aarch64": 0x400000}.get(__import__("platform").machine())
if UPWARD is not None:
    assert libm.fesetround(UPWARD) == 0
    got = layer(x)
    assert libm.fegetround() == UPWARD
    libm.fesetround(before)
    np.testing.assert_array_equal(got, expected)
assert libm.fegetround() == before
""")


# ---------------------------------------------------------------- where the library is found


def test_libffn_path_names_a_folder_or_the_file(tmp_path, run_python):
    for file in LIBRARY.parent.glob("lib*.so*"):
        shutil.copy(file, tmp_path)
    for given in (tmp_path, tmp_path / "libffn.so.0"):
        found = run_python("import libffn; print(libffn._native.lib._name); libffn._native.io()", LIBFFN_PATH=str(given))
        assert found.strip() == str(tmp_path / "libffn.so.0")


def test_a_wrong_libffn_path_is_an_error_with_a_sentence(tmp_path, run_python):
    (tmp_path / "old").mkdir()
    for given, sentence in ((tmp_path, "there is no libffn.so.0"), (tmp_path / "missing", "there is no libffn.so.0")):
        assert sentence in run_python("try:\n import libffn\nexcept ImportError as error: print(error)", LIBFFN_PATH=str(given))
    (tmp_path / "libffn.so.0").write_bytes(b"not a library")
    assert "libffn.so.0" in run_python("try:\n import libffn\nexcept ImportError as error: print(error)", LIBFFN_PATH=str(tmp_path))


def test_the_systems_library_is_the_last_resort(tmp_path, run_python):
    """The package alone, without libraries: what the dynamic loader finds is taken; where it finds none, a sentence says where was looked."""
    package = tmp_path / "libffn"
    package.mkdir()
    for file in Path(_native.__file__).parent.glob("*.py"):
        shutil.copy(file, package)
    script = """
import sys
sys.path.insert(0, sys.argv[1])
sys.meta_path[:] = [finder for finder in sys.meta_path if isinstance(finder, type)]  # Python's own: not that of an editable install
try:
    import libffn
    print(libffn.__file__, libffn._native.lib._name)
except ImportError as error:
    print(error)
"""
    environment = {"LIBFFN_PATH": "", "PYTHONPATH": ""}
    found = run_python(script, tmp_path, LD_LIBRARY_PATH=str(LIBRARY.parent), **environment)
    assert found.split() == [str(package / "__init__.py"), "libffn.so.0"]
    told = run_python(script, tmp_path, **environment)
    assert "neither LIBFFN_PATH, nor the package, nor the system has it" in told or told.split()[-1] == "libffn.so.0"
