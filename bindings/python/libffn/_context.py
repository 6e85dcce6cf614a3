# SPDX-License-Identifier: MIT
"""Contexts, allocators, and the small functions of the library."""
from __future__ import annotations

import operator
import threading
from ctypes import byref, c_double, c_int64, pointer
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Optional

from . import _abi
from ._errors import InvalidError, check
from ._handles import Handle
from ._native import lib

if TYPE_CHECKING:
    from ._layer import Layer


def integer(value: Any, name: str, most: int) -> int:
    """An argument that C takes in so many bits: ctypes would cut it off in silence."""
    try:
        whole = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is of type {type(value).__name__}, must be an integer") from None
    if not 0 <= whole <= most:
        raise InvalidError(f"{name} is {whole}, must be 0 to {most}")
    return whole


def number(value: Any, name: str) -> float:
    """An argument that is a float or a double in C: ctypes would not name it where it is neither a number nor like one."""
    try:
        return c_double(value).value
    except TypeError:
        raise TypeError(f"{name} is of type {type(value).__name__}, must be a number") from None


UINT32, INT64, UINT64 = 2**32 - 1, 2**63 - 1, 2**64 - 1


class Allocator:
    """Where the memory of a layer or a context comes from, in place of the C library.

    allocate(size, alignment)  gives the address of `size` bytes at a multiple of `alignment`, or None (0) where there is no memory
    release(address, size)     gets back what allocate gave

    Both are called from any thread that uses the handle. An allocate that raises counts as one that has no memory; a release should not raise."""

    def __init__(self, allocate: Callable[[int, int], Optional[int]], release: Callable[[int, int], None]) -> None:
        def call_allocate(user: Any, size: int, alignment: int) -> Optional[int]:
            try:
                return allocate(size, alignment)
            except Exception:
                return None

        self._struct = _abi.Allocator(
            allocate=_abi.Allocate(call_allocate), release=_abi.Release(lambda user, address, size: release(address, size))
        )
        self._pointer = pointer(self._struct)


@dataclass(frozen=True)
class ContextInfo:
    """threads_requested  threads after the default was resolved
    threads            that a call uses, the calling one included: less where the system refused to start workers
    scratch_bytes      scratch memory held now"""

    threads_requested: int
    threads: int
    scratch_bytes: int


def _info(handle: Optional[int]) -> ContextInfo:
    info = _abi.ContextInfo()
    check(lib.ffn_context_info(handle, byref(info)))
    return ContextInfo(info.threads_requested, info.threads, info.scratch_bytes)


class Context(Handle):
    """Threads and scratch memory, for one call at a time: a second call at once gets BusyError.

    threads        threads of a call, the calling one included: 1 to 1024. 0: as many as the affinity mask and the cgroup's CPU quota allow.
                   With engine "blas" the matrix products run on OpenBLAS's threads instead (OPENBLAS_NUM_THREADS in the environment)
    scratch_limit  bytes of scratch memory that the context may hold; 0: no limit. Blocks of rows get smaller to keep it, and calls slower
    allocator      an Allocator; None: the C library's memory

    It is freed with its last reference. After a fork it goes on in the child. Raises InvalidError, NoMemoryError."""

    _free, _instead = lib.ffn_context_free, "make one in the process that uses it"

    def __init__(self, threads: int = 0, *, scratch_limit: int = 0, allocator: Optional[Allocator] = None) -> None:
        options = _abi.ContextOptions(
            threads=integer(threads, "threads", UINT32),
            scratch_limit=integer(scratch_limit, "scratch_limit", UINT64),
            allocator=allocator and allocator._pointer,
        )
        self._own(lambda made: check(lib.ffn_context_create(byref(options), made)), allocator)

    @property
    def info(self) -> ContextInfo:
        """What the context is. Raises BusyError while a call is inside."""
        return _info(self._handle)

    def reserve(self, layer: Layer, tokens: int) -> None:
        """Allocates the scratch memory that calls of `layer` on up to `tokens` tokens need: those then cannot fail for want of memory.
        Raises InvalidError, NoMemoryError, BusyError."""
        layer.reserve(tokens, context=self)


class _PerThread(threading.local):
    context: Optional[Context] = None
    threads: Optional[int] = None


_per_thread = _PerThread()


def context_for(threads: Optional[int], context: Optional[Context]) -> Optional[Context]:
    """The context of a call: the one given, or this thread's own with so many threads, or none."""
    if threads is None:
        return context
    if context is not None:
        raise InvalidError("threads and context are both given: a context has threads of its own")
    if _per_thread.threads != threads:
        _per_thread.context, _per_thread.threads = Context(threads), threads
    return _per_thread.context


def thread_info() -> ContextInfo:
    """What a call without threads and context uses: the calling thread alone, and the scratch memory that is kept for it."""
    return _info(None)


def gated_d_ff(d_ff: int, multiple: int = 1) -> int:
    """The d_ff that gives a gated layer (three matrices) the parameters of a dense one (two): 2/3 d_ff, rounded up to a multiple of `multiple`.

    >>> gated_d_ff(3072)
    2048
    """
    found = c_int64()
    check(lib.ffn_gated_d_ff(integer(d_ff, "d_ff", INT64), integer(multiple, "multiple", INT64), byref(found)))
    return found.value


def build_info() -> str:
    """One line: the library's version, compiler, highest ISA level built in, ISA level of this CPU, BLAS library."""
    return str(lib.ffn_build_info(), "ascii")


def version() -> str:
    """The version of the library that runs, "0.1.0"."""
    return str(lib.ffn_version_string(), "ascii")
