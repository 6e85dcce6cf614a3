# SPDX-License-Identifier: MIT
"""ffn_io.h for ctypes, as _abi.py is ffn.h."""
from __future__ import annotations

from ctypes import POINTER, Structure, c_char_p, c_float, c_int64, c_uint32, c_uint64, c_void_p
from enum import IntEnum, IntFlag

from ._abi import LayerOptions, Sized, handle, status


class Status(IntEnum):
    FILE = -16
    FORMAT = -17
    UNKNOWN = -18


class ModelFlag(IntFlag):
    MAP = 1


class ModelLayerFlag(IntFlag):
    BRANCH = 1


class Layout(IntEnum):
    OUT_IN = 0
    IN_OUT = 1


class Part(IntEnum):
    WHOLE = 0
    FIRST_HALF = 1
    SECOND_HALF = 2
    EVEN = 3
    ODD = 4


CONSTANTS = (("FFN_", Status), ("FFN_MODEL_", ModelFlag), ("FFN_MODEL_", ModelLayerFlag), ("FFN_LAYOUT_", Layout), ("FFN_PART_", Part))


class ModelOptions(Sized):
    _fields_ = [("struct_size", c_uint32), ("flags", c_uint32), ("config", c_char_p), ("family", c_char_p)]


class ModelInfo(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("tensor_count", c_int64),
        ("layer_count", c_int64),
        ("parameters", c_int64),
        ("bytes", c_uint64),
        ("family", c_char_p),
        ("model_type", c_char_p),
        ("active_parameters", c_int64),
    ]


class ModelTensor(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("ndim", c_uint32),
        ("name", c_char_p),
        ("dtype", c_char_p),
        ("shape", POINTER(c_int64)),
        ("elements", c_int64),
        ("bytes", c_uint64),
    ]


class ModelBinding(Structure):
    _fields_ = [
        ("role", c_uint32),
        ("layout", c_uint32),
        ("part", c_uint32),
        ("value", c_float),
        ("tensor", c_char_p),
        ("expert", c_uint32),
        ("experts", c_uint32),
    ]


class ModelLayer(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("family", c_char_p),
        ("prefix", c_char_p),
        ("dtype", c_char_p),
        ("parameters", c_int64),
        ("options", POINTER(LayerOptions)),
        ("bindings", POINTER(ModelBinding)),
        ("binding_count", c_uint64),
        ("active_parameters", c_int64),
    ]


class NpyInfo(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("ndim", c_uint32),
        ("shape", c_int64 * 32),
        ("rows", c_int64),
        ("columns", c_int64),
        ("fortran", c_uint32),
        ("itemsize", c_uint32),
    ]


STRUCTS = {
    "ffn_model_options_t": ModelOptions,
    "ffn_model_info_t": ModelInfo,
    "ffn_model_tensor_t": ModelTensor,
    "ffn_model_binding_t": ModelBinding,
    "ffn_model_layer_t": ModelLayer,
    "ffn_npy_info_t": NpyInfo,
}

FUNCTIONS = {
    "ffn_io_last_error": (c_char_p,),
    "ffn_io_status_name": (c_char_p, status),
    "ffn_model_open": (status, c_char_p, POINTER(ModelOptions), POINTER(handle)),
    "ffn_model_free": (None, handle),
    "ffn_model_info": (status, handle, POINTER(ModelInfo)),
    "ffn_model_tensor": (status, handle, c_int64, POINTER(ModelTensor)),
    "ffn_model_find": (status, handle, c_char_p, POINTER(c_int64)),
    "ffn_model_read": (status, handle, c_int64, c_void_p),
    "ffn_model_layer": (status, handle, c_int64, POINTER(POINTER(ModelLayer))),
    "ffn_model_layer_create": (status, handle, handle, POINTER(ModelLayer), POINTER(handle)),
    "ffn_npy_open": (status, c_char_p, POINTER(handle)),
    "ffn_npy_free": (None, handle),
    "ffn_npy_info": (status, handle, POINTER(NpyInfo)),
    "ffn_npy_read": (status, handle, c_int64, c_int64, c_void_p),
    "ffn_npy_writer_open": (status, c_char_p, c_uint32, POINTER(c_int64), POINTER(handle)),
    "ffn_npy_writer_append": (status, handle, c_void_p, c_int64),
    "ffn_npy_writer_finish": (status, handle),
    "ffn_npy_writer_discard": (None, handle),
}
