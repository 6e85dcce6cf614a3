# SPDX-License-Identifier: MIT
"""ffn.h for ctypes: its constants, structs and functions under the header's names, put together from a module for each subject.

What the header gains is a line in one of them: a member of an enum, a field of a struct, a row of FUNCTIONS. tests/test_abi.py holds all three
against the baselines in tests/abi, and fails where one is missing."""
from __future__ import annotations

from . import _abi_conv, _abi_health, _abi_layer, _abi_moe, _abi_training
from ._abi_conv import *
from ._abi_health import *
from ._abi_layer import *
from ._abi_moe import *
from ._abi_training import *

_PARTS = (_abi_layer, _abi_training, _abi_conv, _abi_health, _abi_moe)

CONSTANTS = tuple(row for part in _PARTS for row in part.CONSTANTS)
STRUCTS = {name: kind for part in _PARTS for name, kind in part.STRUCTS.items()}
# name: result, arguments. Pointers to numbers and handles are void pointers: ctypes then takes the address of an array as an int.
FUNCTIONS = {name: types for part in _PARTS for name, types in part.FUNCTIONS.items()}
