# SPDX-License-Identifier: MIT
"""Handles of the library that are freed with their last reference, and those that serve one call at a time."""
from __future__ import annotations

import threading
from contextlib import contextmanager
from ctypes import byref, c_void_p
from typing import Any, Callable, ClassVar, Iterator, Optional

from ._errors import BusyError


class Handle:
    """Owns a handle. A class of its own says how it is freed, and what to do in place of pickling it."""

    _free: Any  # the library's function
    _instead: ClassVar[str]
    _owner: Optional[c_void_p] = None
    _handle: Optional[int]

    def _own(self, create: Callable[[Any], None], allocator: Any = None) -> None:
        """Takes what `create` writes to its argument. The owner is there first: whatever is raised in between, nothing is lost. The allocator lives as
        long."""
        self._allocator = allocator
        self._owner = c_void_p()
        create(byref(self._owner))
        self._handle = self._owner.value

    def __del__(self) -> None:
        if self._owner:
            self._free(self._owner)

    def __reduce__(self) -> Any:
        raise TypeError(f"a {type(self).__name__} cannot be pickled: {self._instead}")


class SingleHandle(Handle):
    """One that calls borrow, one at a time."""

    _busy: ClassVar[str]

    def _own(self, create: Callable[[Any], None], allocator: Any = None) -> None:
        self._lock = threading.Lock()
        super()._own(create, allocator)

    @contextmanager
    def _lent(self) -> Iterator[Optional[int]]:
        """The handle, for one call at a time."""
        if not self._lock.acquire(blocking=False):
            raise BusyError(self._busy)
        try:
            yield self._handle
        finally:
            self._lock.release()
