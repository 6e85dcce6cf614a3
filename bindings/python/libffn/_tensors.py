# SPDX-License-Identifier: MIT
"""Tensors under the names of Layer's arguments, and names of constants, as the C interface wants them."""
from __future__ import annotations

from ctypes import byref, c_uint32
from enum import IntEnum
from typing import Any, Mapping, Optional, Type

from . import _abi
from ._abi import Role
from ._arrays import ArrayLike, Float32, address, as_float32
from ._errors import InvalidError, check
from ._native import lib

# The arguments that are tensors: the roles in lower case, the three matrices without "_weight".
ROLES = {role.name.lower(): role for role in Role if role}
ROLES = {{"up_weight": "up", "gate_weight": "gate", "down_weight": "down"}.get(name, name): role for name, role in ROLES.items()}
SLOTS = tuple(slot.name.lower() for slot in _abi.NormSlot)


def member(kind: Type[IntEnum], value: Optional[str], name: str) -> int:
    """The number of a name in lower case; None is the 0 of the enum."""
    if value is None:
        return 0
    for one in kind:
        if one.name.lower() == value:
            return one
    known = ", ".join(one.name.lower() for one in kind)
    raise InvalidError(f"{name} is {value!r}, must be one of {known}")


def activation_id(name: str) -> int:
    found = c_uint32()
    check(lib.ffn_activation_from_name(str(name).encode(), byref(found)))
    return found.value


def views(arrays: Mapping[str, Float32]) -> Any:
    """Views of arrays as the library wants them. Arrays outlive the call."""
    tensors = (_abi.Tensor * len(arrays))()
    for tensor, (name, array) in zip(tensors, arrays.items()):
        tensor.role, tensor.ndim, tensor.data = ROLES[name], array.ndim, address(array)
        for i in range(min(array.ndim, 4)):
            tensor.shape[i], tensor.stride[i] = array.shape[i], array.strides[i]
    return tensors


def known(name: str) -> str:
    """The name, if it is one of a tensor."""
    if name not in ROLES:
        raise InvalidError(f"{name} is not a tensor of a layer, must be one of {', '.join(ROLES)}")
    return name


def writable(tensors: Mapping[str, ArrayLike]) -> dict[str, Float32]:
    """Arrays of the caller's that tensors are written to. What else they must be, the library says."""
    arrays = {}
    for name, value in tensors.items():
        array = as_float32(value, known(name), written=True)
        if array.size > 1 and not any(array.strides):
            raise InvalidError(f"the strides of {name} let elements share an address")
        arrays[name] = array.reshape(1) if array.ndim == 0 else array
    return arrays
