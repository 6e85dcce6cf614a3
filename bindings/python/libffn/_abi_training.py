# SPDX-License-Identifier: MIT
"""ffn.h for ctypes: tapes, the backward pass, initialisation, optimisers."""
from __future__ import annotations

from ctypes import POINTER, c_double, c_float, c_int64, c_uint32, c_uint64, c_void_p
from enum import IntEnum, IntFlag

from ._abi_layer import Allocator, Constants, Functions, MoeBackward, Sized, Structs, Tensor, handle, status


class TapeFlag(IntFlag):
    RECOMPUTE = 1


class BackwardFlag(IntFlag):
    ACCUMULATE = 1


class Init(IntEnum):
    XAVIER_UNIFORM = 1
    XAVIER_NORMAL = 2
    KAIMING_UNIFORM = 3
    KAIMING_NORMAL = 4
    LECUN_NORMAL = 5
    NORMAL = 6
    TRUNCATED_NORMAL = 7
    TORCH_LINEAR = 8
    T5 = 9
    GPT2_SCALED = 10
    NEOX_SMALL = 11
    NEOX_WANG = 12
    UNIFORM_UNIT_SCALING = 13


class InitFlag(IntFlag):
    KEEP_VARIANCE = 1


class SgdFlag(IntFlag):
    NESTEROV = 1


# the header's names are these prefixes and the members' names
CONSTANTS: Constants = (
    ("FFN_TAPE_", TapeFlag),
    ("FFN_BACKWARD_", BackwardFlag),
    ("FFN_INIT_", Init),
    ("FFN_INIT_", InitFlag),
    ("FFN_SGD_", SgdFlag),
)


class TapeOptions(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("allocator", POINTER(Allocator)),
    ]


class Backward(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("tape", c_void_p),
        ("d_y", c_void_p),
        ("d_x", c_void_p),
        ("d_residual", c_void_p),
        ("d_y_stride", c_int64 * 2),
        ("d_x_stride", c_int64 * 2),
        ("d_residual_stride", c_int64 * 2),
        ("d_y_dtype", c_uint32),
        ("d_x_dtype", c_uint32),
        ("d_residual_dtype", c_uint32),
        ("reserved", c_uint32),
        ("gradients", POINTER(Tensor)),
        ("gradient_count", c_uint64),
        ("moe", POINTER(MoeBackward)),
    ]


class InitOptions(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("scheme", c_uint32),
        ("gain", c_float),
        ("seed", c_uint64),
        ("stream", c_uint64),
        ("fan_in", c_int64),
        ("fan_out", c_int64),
        ("layers", c_int64),
        ("cutoff", c_float),
        ("reserved", c_uint32),
    ]


class SgdOptions(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("learning_rate", c_float),
        ("momentum", c_float),
        ("weight_decay", c_float),
        ("reserved", c_uint32),
    ]


class AdamwOptions(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("step", c_int64),
        ("learning_rate", c_float),
        ("beta1", c_float),
        ("beta2", c_float),
        ("eps", c_float),
        ("weight_decay", c_float),
        ("reserved", c_uint32),
    ]


STRUCTS: Structs = {
    "ffn_tape_options_t": TapeOptions,
    "ffn_backward_t": Backward,
    "ffn_init_options_t": InitOptions,
    "ffn_sgd_options_t": SgdOptions,
    "ffn_adamw_options_t": AdamwOptions,
}

FUNCTIONS: Functions = {
    "ffn_tape_create": (status, POINTER(TapeOptions), POINTER(handle)),
    "ffn_tape_free": (None, handle),
    "ffn_tape_reserve": (status, handle, handle, c_int64),
    "ffn_layer_backward": (status, handle, handle, POINTER(Backward)),
    "ffn_layer_update": (status, handle, handle, POINTER(Tensor), c_uint64),
    "ffn_weight_init": (status, c_void_p, c_int64, POINTER(InitOptions)),
    "ffn_sgd_step": (status, handle, POINTER(SgdOptions), c_int64, c_void_p, c_void_p, c_void_p),
    "ffn_adamw_step": (status, handle, POINTER(AdamwOptions), c_int64, c_void_p, c_void_p, c_void_p, c_void_p),
    "ffn_clip_global_norm": (status, handle, POINTER(c_void_p), c_void_p, c_uint64, c_double, POINTER(c_double)),
}
