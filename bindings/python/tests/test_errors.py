# SPDX-License-Identifier: MIT
"""Every status is an exception of its own with the library's sentence, and whatever failed can be used again."""
import pickle
import threading

import numpy as np
import pytest

import libffn
from libffn import _abi, _abi_io, _errors


def test_there_is_one_exception_for_each_status_and_a_common_base():
    failures = [*list(_abi.Status)[1:], *_abi_io.Status]
    kinds = {kind.status: kind for kind in _errors._CLASSES.values()}
    assert set(kinds) == set(map(int, failures))
    for status, kind in kinds.items():
        assert issubclass(kind, libffn.Error)
        with pytest.raises(kind) as caught:
            _errors.check(status)
        assert caught.value.status == status
    with pytest.raises(libffn.Error) as caught:  # of a later version of the library
        _errors.check(-99)
    assert caught.value.status == -99


def test_they_are_what_python_calls_such_errors():
    for kind, base in (
        (libffn.InvalidError, ValueError),
        (libffn.NoMemoryError, MemoryError),
        (libffn.UnsupportedError, NotImplementedError),
        (libffn.BusyError, RuntimeError),
        (libffn.FileError, OSError),
        (libffn.FormatError, ValueError),
        (libffn.UnknownError, LookupError),
    ):
        assert issubclass(kind, base)
        assert str(kind("a sentence")) == "a sentence"


WRONG = [
    (dict(activation="geluu"), libffn.InvalidError, "geluu.*gelu_tanh"),
    (dict(residual="inptu"), libffn.InvalidError, "residual is 'inptu', must be one of none, input, normed, external"),
    (dict(norm_out="batch"), libffn.InvalidError, "norm_out is 'batch', must be one of none, layer, rms, affine"),
    (dict(engine="gpu"), libffn.InvalidError, "engine is 'gpu', must be one of auto, blas, native"),
    (dict(max_isa="sse"), libffn.InvalidError, "max_isa is 'sse', must be one of auto, scalar"),
    (dict(norm_in_eps=-1), libffn.InvalidError, r"norm_eps\[IN\] is -1"),
    (dict(eps=float("nan")), libffn.InvalidError, r"norm_eps\[IN\] is nan"),
    (dict(alpha=1), libffn.InvalidError, "alpha"),
    (dict(up_limit=7), libffn.InvalidError, "up_limit"),
    (dict(norm_out_eps=1e-5), libffn.InvalidError, r"norm_eps\[OUT\]"),
    (dict(norm_out_weight=np.ones(24, np.float32)), libffn.InvalidError, r"norm\[OUT\] is none"),
    (dict(gate_bias=np.ones(40, np.float32)), libffn.InvalidError, "gate bias"),
    (dict(up_bias=np.ones(41, np.float32)), libffn.InvalidError, "41"),
    (dict(up_bias=np.ones((1, 1, 1, 1, 40), np.float32)), libffn.InvalidError, "ndim of the up bias is 5"),
    (dict(down=np.ones((24, 0), np.float32)), libffn.InvalidError, "0"),
    (dict(d_ff=41), libffn.InvalidError, "41"),
    (dict(d_model=-1), libffn.InvalidError, "d_model is -1"),
    (dict(d_model=2**64 + 24), libffn.InvalidError, "d_model is 18446744073709551640"),
    (dict(tanh_branch_scale=True), libffn.InvalidError, "branch scale"),
]


@pytest.mark.parametrize("wrong, kind, sentence", WRONG)
def test_wrong_options_are_refused_with_a_sentence(wrong, kind, sentence, weights):
    with pytest.raises(kind, match=sentence):
        libffn.Layer(**{**weights, **wrong})


def test_arguments_that_there_are_not_or_that_are_missing_are_type_errors(weights):
    with pytest.raises(TypeError):
        libffn.Layer(**weights, middle=1)
    with pytest.raises(TypeError):
        libffn.Layer(weights["up"], weights["down"])  # no activation: no default would be right for most


def test_wrong_contexts_are_refused_with_a_sentence(layer):
    x = np.zeros((1, 24), np.float32)
    for threads in (1025, -1, 2**32 + 1):
        with pytest.raises(libffn.InvalidError, match=f"threads is {threads}"):
            libffn.Context(threads)
        with pytest.raises(libffn.InvalidError, match=f"threads is {threads}"):
            layer(x, threads=threads)
    with pytest.raises(libffn.InvalidError, match="threads and context are both given"):
        layer(x, threads=1, context=libffn.Context(1))
    for tokens in (-1, 2**63):
        with pytest.raises(libffn.InvalidError, match=f"tokens is {tokens}"):
            layer.reserve(tokens)


def test_the_sentence_is_that_of_the_thread_that_failed(layer, weights):
    """Another thread fails at the same time with another sentence."""
    wrong = []

    def fail(width):
        for _ in range(300):
            try:
                libffn.Layer(**{**weights, "up_bias": np.zeros(width, np.float32)})
            except libffn.InvalidError as error:
                if f" {width}," not in str(error):
                    wrong.append(str(error))

    threads = [threading.Thread(target=fail, args=(width,)) for width in (101, 202)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_handles_cannot_be_pickled(layer):
    conv = libffn.Conv(np.ones((4, 2), np.float32), np.ones((2, 4), np.float32), activation="relu")
    for handle in (layer, conv, libffn.Context(1), libffn.Tape(), libffn.Stats(4)):
        with pytest.raises(TypeError, match=f"a {type(handle).__name__} cannot be pickled: (make|send)"):
            pickle.dumps(handle)
