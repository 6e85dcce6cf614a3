# SPDX-License-Identifier: MIT
"""ffn.h for ctypes: what hidden units do, and health of tensors."""
from __future__ import annotations

from ctypes import POINTER, c_double, c_int64, c_uint32, c_void_p

from ._abi_layer import Allocator, Constants, Functions, Sized, Structs, Tensor, handle, status

CONSTANTS: Constants = ()


class StatsOptions(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("d_ff", c_int64),
        ("allocator", POINTER(Allocator)),
        ("experts", c_int64),
        ("d_shared", c_int64),
    ]


class StatsInfo(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("d_ff", c_int64),
        ("positions", c_int64),
        ("positive", c_int64),
        ("non_finite", c_int64),
        ("dead_units", c_int64),
        ("density", c_double),
        ("mean", c_double),
        ("largest", c_double),
        ("experts", c_int64),
        ("d_shared", c_int64),
        ("units", c_int64),
        ("activations", c_int64),
        ("unseen_units", c_int64),
    ]


class TensorHealth(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("count", c_int64),
        ("zeros", c_int64),
        ("non_finite", c_int64),
        ("norm", c_double),
        ("largest", c_double),
    ]


STRUCTS: Structs = {
    "ffn_stats_options_t": StatsOptions,
    "ffn_stats_info_t": StatsInfo,
    "ffn_tensor_health_t": TensorHealth,
}

FUNCTIONS: Functions = {
    "ffn_stats_create": (status, POINTER(StatsOptions), POINTER(handle)),
    "ffn_stats_free": (None, handle),
    "ffn_stats_reset": (status, handle),
    "ffn_stats_merge": (status, handle, handle),
    "ffn_stats_info": (status, handle, POINTER(StatsInfo)),
    "ffn_stats_units": (status, handle, c_void_p, c_void_p, c_void_p),
    "ffn_stats_experts": (status, handle, c_void_p, c_void_p, c_void_p),
    "ffn_stats_histogram": (status, handle, c_int64, c_void_p, c_void_p),
    "ffn_tensor_health": (status, handle, POINTER(Tensor), POINTER(TensorHealth)),
    "ffn_update_ratio": (status, handle, POINTER(Tensor), POINTER(Tensor), POINTER(c_double)),
}
