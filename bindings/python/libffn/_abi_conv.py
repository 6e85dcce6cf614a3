# SPDX-License-Identifier: MIT
"""ffn.h for ctypes: convolutional layers."""
from __future__ import annotations

from ctypes import POINTER, c_float, c_int64, c_uint32, c_uint64, c_void_p
from enum import IntEnum, IntFlag

from ._abi_layer import Allocator, Constants, Dropout, Functions, Sized, Structs, Tensor, handle, status
from ._abi_training import Backward


class ConvPadding(IntEnum):
    SAME = 0
    LEFT = 1


class ConvMask(IntEnum):
    TAPS = 0
    ALL = 1


class ConvFlag(IntFlag):
    SCALE_BY_TAPS = 1
    TRAINABLE = 4


CONSTANTS: Constants = (
    ("FFN_CONV_", ConvPadding),
    ("FFN_CONV_MASK_", ConvMask),
    ("FFN_CONV_", ConvFlag),
)


class ConvOptions(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("d_model", c_int64),
        ("d_ff", c_int64),
        ("d_out", c_int64),
        ("kernel_size", c_int64),
        ("second_kernel_size", c_int64),
        ("padding", c_uint32),
        ("mask", c_uint32),
        ("activation", c_uint32),
        ("alpha", c_float),
        ("beta", c_float),
        ("engine", c_uint32),
        ("max_isa", c_uint32),
        ("reserved", c_uint32),
        ("tensors", POINTER(Tensor)),
        ("tensor_count", c_uint64),
        ("allocator", POINTER(Allocator)),
    ]


class ConvRun(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("batch", c_int64),
        ("length", c_int64),
        ("x", c_void_p),
        ("y", c_void_p),
        ("mask", c_void_p),
        ("x_stride", c_int64 * 2),
        ("y_stride", c_int64 * 2),
        ("mask_stride", c_int64),
        ("x_dtype", c_uint32),
        ("y_dtype", c_uint32),
        ("dropout", POINTER(Dropout)),
        ("tape", c_void_p),
        ("stats", c_void_p),
    ]


class ConvInfo(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("d_model", c_int64),
        ("d_ff", c_int64),
        ("d_out", c_int64),
        ("kernel_size", c_int64),
        ("second_kernel_size", c_int64),
        ("separable", c_uint32),
        ("padding", c_uint32),
        ("mask", c_uint32),
        ("activation", c_uint32),
        ("engine", c_uint32),
        ("isa", c_uint32),
        ("parameters", c_int64),
        ("parameters_of", c_int64 * 64),
        ("bytes", c_uint64),
    ]


STRUCTS: Structs = {
    "ffn_conv_options_t": ConvOptions,
    "ffn_conv_run_t": ConvRun,
    "ffn_conv_info_t": ConvInfo,
}

FUNCTIONS: Functions = {
    "ffn_conv_create": (status, handle, POINTER(ConvOptions), POINTER(handle)),
    "ffn_conv_free": (None, handle),
    "ffn_conv_reserve": (status, handle, handle, handle, c_int64, c_int64),
    "ffn_conv_run": (status, handle, handle, POINTER(ConvRun)),
    "ffn_conv_info": (status, handle, POINTER(ConvInfo)),
    "ffn_conv_read": (status, handle, POINTER(Tensor), c_uint64),
    "ffn_conv_backward": (status, handle, handle, POINTER(Backward)),
    "ffn_conv_update": (status, handle, handle, POINTER(Tensor), c_uint64),
}
