# SPDX-License-Identifier: MIT
"""The two C libraries, found and loaded, every function with its types (_abi.py, _abi_io.py).

They are looked for in this order, and the first that is there is taken:
  LIBFFN_PATH    in the environment: the folder that holds libffn.so.0, or the file itself. If it is set, it has to be right.
  the package    where a wheel has put them
  the system     what the dynamic loader finds under the name libffn.so.0
libffn-io is loaded when it is first needed, from where libffn came."""
from __future__ import annotations

import ctypes
import functools
import os
from typing import Iterator, Optional

from . import _abi, _abi_io

ABI_VERSION = 0  # the number in the SONAME


def _file(stem: str) -> str:
    return f"lib{stem}.so.{ABI_VERSION}"


def _folder_of_user() -> Optional[str]:
    """The folder that LIBFFN_PATH names, if it is set."""
    given = os.environ.get("LIBFFN_PATH")
    if not given:
        return None
    folder = given if os.path.isdir(given) else os.path.dirname(given)
    if not os.path.exists(given) or not os.path.exists(os.path.join(folder, _file("ffn"))):
        raise ImportError(f"LIBFFN_PATH is {given}: there is no {_file('ffn')}")
    return folder


def _folders_of_package() -> Iterator[str]:
    from . import __path__ as folders  # two in an editable install: the source's, and the one that the libraries are built into

    return (folder for folder in folders if os.path.exists(os.path.join(folder, _file("ffn"))))


def _declare(library: ctypes.CDLL, functions: _abi.Functions, path: str) -> ctypes.CDLL:
    for name, (result, *arguments) in functions.items():
        try:
            function = getattr(library, name)
        except AttributeError:
            raise ImportError(f"{path} has no {name}: it is older than this package") from None
        function.restype, function.argtypes = result, arguments
    return library


def _load(stem: str, functions: _abi.Functions, folder: Optional[str]) -> ctypes.CDLL:
    path = os.path.join(folder, _file(stem)) if folder else _file(stem)
    try:
        library = ctypes.CDLL(path)  # CDLL, not PyDLL: calls release the interpreter lock
    except OSError as error:
        where = "" if folder else ": neither LIBFFN_PATH, nor the package, nor the system has it"
        raise ImportError(f"{error}{where}") from None
    return _declare(library, functions, path)


folder = _folder_of_user() or next(_folders_of_package(), None)
lib = _load("ffn", _abi.FUNCTIONS, folder)
if lib.ffn_abi_version() != ABI_VERSION:
    raise ImportError(f"{lib._name} has ABI version {lib.ffn_abi_version()}, this package needs {ABI_VERSION}")


@functools.lru_cache(maxsize=None)
def io() -> ctypes.CDLL:
    """libffn-io. ImportError where it is not installed."""
    return _load("ffn-io", _abi_io.FUNCTIONS, folder)
