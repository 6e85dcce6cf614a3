# SPDX-License-Identifier: MIT
"""The statuses of the two libraries as exceptions."""
from __future__ import annotations

from . import _abi, _abi_io, _native


class Error(Exception):
    """What every failure of the library is. str(error) is the library's sentence; `status` is the number of ffn_status_t.

    On failure nothing else has happened: outputs are untouched, layers, contexts and models stay usable."""

    status: int = 0


class InvalidError(Error, ValueError):
    """FFN_INVALID: an argument is wrong."""

    status = int(_abi.Status.INVALID)


class NoMemoryError(Error, MemoryError):
    """FFN_NO_MEMORY: an allocation failed, or a thread that was needed could not be started."""

    status = int(_abi.Status.NO_MEMORY)


class UnsupportedError(Error, NotImplementedError):
    """FFN_UNSUPPORTED: well-formed, but this version, CPU or build cannot do it. Arrays of another type than float32 are among these."""

    status = int(_abi.Status.UNSUPPORTED)


class BusyError(Error, RuntimeError):
    """FFN_BUSY: the context is inside another call."""

    status = int(_abi.Status.BUSY)


class FileError(Error, OSError):
    """FFN_FILE: the operating system refused a file."""

    status = int(_abi_io.Status.FILE)


class FormatError(Error, ValueError):
    """FFN_FORMAT: a file is not what its format demands."""

    status = int(_abi_io.Status.FORMAT)


class UnknownError(Error, LookupError):
    """FFN_UNKNOWN: no known family of layers, or a name that is not in the file."""

    status = int(_abi_io.Status.UNKNOWN)


_CLASSES = {
    kind.status: kind for kind in (InvalidError, NoMemoryError, UnsupportedError, BusyError, FileError, FormatError, UnknownError)
}


def _error(status: int, sentence: bytes) -> Error:
    error = _CLASSES.get(status, Error)(sentence.decode("utf-8", "replace"))
    error.status = status
    return error


def check(status: int) -> None:
    """Raises what a call into libffn on this thread returned."""
    if status:
        raise _error(status, _native.lib.ffn_last_error())


def check_io(status: int) -> None:
    """The same for libffn-io."""
    if status:
        raise _error(status, _native.io().ffn_io_last_error())
