# SPDX-License-Identifier: MIT
"""Tensors under the names of Layer's arguments, and names of constants, as the C interface wants them."""
from __future__ import annotations

from ctypes import byref, c_uint32
from enum import IntEnum
from typing import Any, Mapping, Optional, Sequence, Type, Union

from . import _abi
from ._abi import Role
from ._arrays import ArrayLike, Float32, address, as_float32, as_tensor
from ._errors import InvalidError, check
from ._native import lib

# The arguments that are tensors: the roles in lower case, matrices without "_weight".
ROLES = {role.name.lower(): role for role in Role if role}
ROLES = {name[: -len("_weight")] if name.endswith("_weight") and "norm" not in name else name: role for name, role in ROLES.items()}
# Those that each expert of a mixture has of its own.
EXPERT_ROLES = ("up", "up_bias", "gate", "gate_bias", "down", "down_bias", "norm_mid_weight", "norm_mid_bias")
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


def views(arrays: Mapping[str, Union[Float32, Sequence[Float32]]]) -> Any:
    """Views of arrays as the library wants them; a list is of one array for each expert. Arrays outlive the call."""
    flat = [(name, i, one) for name, value in arrays.items() for i, one in enumerate(value if isinstance(value, list) else [value])]
    tensors = (_abi.Tensor * len(flat))()
    for tensor, (name, expert, array) in zip(tensors, flat):
        tensor.role, tensor.expert, tensor.ndim, tensor.data = ROLES[name], expert, array.ndim, address(array)
        for i in range(min(array.ndim, 4)):
            tensor.shape[i], tensor.stride[i] = array.shape[i], array.strides[i]
    return tensors


def known(name: str) -> str:
    """The name, if it is one of a tensor."""
    if name not in ROLES:
        raise InvalidError(f"{name} is not a tensor of a layer, must be one of {', '.join(ROLES)}")
    return name


def given_tensor(value: Union[ArrayLike, float], name: str) -> Union[Float32, list[Float32]]:
    """An argument that is a tensor: an array, or of an expert's own a list of one for each."""
    if isinstance(value, (list, tuple)) and name in EXPERT_ROLES:
        return [as_tensor(one, f"{name}[{i}]") for i, one in enumerate(value)]
    return as_tensor(value, name)


def shapes_of(info: _abi.LayerInfo) -> dict[str, tuple[int, ...]]:
    """The shapes of a layer's tensors."""
    expert, routed = (info.experts,) if info.experts else (), info.experts + info.identity_experts
    d_in, d_down = info.d_latent or info.d_model, info.d_latent or info.d_out
    shapes = {
        "up": (info.d_ff, d_in),
        "gate": (info.d_ff, d_in),
        "down": (d_down, info.d_ff),
        "router": (routed, info.d_model),
        "shared_up": (info.d_shared, info.d_model),
        "shared_gate": (info.d_shared, info.d_model),
        "shared_down": (info.d_out, info.d_shared),
        "shared_scale": (1, info.d_model),
        "latent_in": (info.d_latent, info.d_model),
        "latent_out": (info.d_out, info.d_latent),
    }
    found = {}
    for name, role in ROLES.items():
        count = info.parameters_of[role]
        if count:
            leading = expert if name in EXPERT_ROLES else ()
            found[name] = (*leading, *shapes.get(name, (count // (leading[0] if leading else 1),)))
    return found


def _target(value: ArrayLike, name: str) -> Float32:
    array = as_float32(value, name, written=True)
    if array.size > 1 and not any(array.strides):
        raise InvalidError(f"the strides of {name} let elements share an address")
    return array.reshape(1) if array.ndim == 0 else array


def writable(tensors: Mapping[str, ArrayLike]) -> dict[str, Union[Float32, list[Float32]]]:
    """Arrays of the caller's that tensors are written to, of an expert's own also lists. What else they must be, the library says."""
    arrays: dict[str, Union[Float32, list[Float32]]] = {}
    for name, value in tensors.items():
        if isinstance(value, (list, tuple)) and name in EXPERT_ROLES:
            arrays[name] = [_target(one, f"{name}[{i}]") for i, one in enumerate(value)]
        else:
            arrays[name] = _target(value, known(name))
    return arrays
