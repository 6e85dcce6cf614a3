# SPDX-License-Identifier: MIT
"""ffn.h for ctypes, from its top to its layers: statuses, memory, contexts, tensors, layers, runs."""
from __future__ import annotations

from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_float, c_int32, c_int64, c_uint32, c_uint64, c_void_p, sizeof
from enum import IntEnum, IntFlag
from typing import Any, Mapping, Sequence, Tuple, Type, Union

status, handle = c_int32, c_void_p

Constants = Tuple[Tuple[str, Union[Type[IntEnum], Type[IntFlag]]], ...]  # prefix, and the enum of what follows it
Structs = Mapping[str, Type[Structure]]
Functions = Mapping[str, Sequence[Any]]  # name: result, arguments


class Status(IntEnum):
    OK = 0
    INVALID = -1
    NO_MEMORY = -2
    UNSUPPORTED = -3
    BUSY = -4


class Dtype(IntEnum):
    F32 = 0


class Role(IntEnum):
    NONE = 0
    UP_WEIGHT = 1
    UP_BIAS = 2
    GATE_WEIGHT = 3
    GATE_BIAS = 4
    DOWN_WEIGHT = 5
    DOWN_BIAS = 6
    NORM_IN_WEIGHT = 16
    NORM_IN_BIAS = 17
    NORM_MID_WEIGHT = 18
    NORM_MID_BIAS = 19
    NORM_BRANCH_WEIGHT = 20
    NORM_BRANCH_BIAS = 21
    NORM_OUT_WEIGHT = 22
    NORM_OUT_BIAS = 23
    BRANCH_SCALE = 32
    RESIDUAL_SCALE = 33
    XIELU_ALPHA_P = 34
    XIELU_ALPHA_N = 35
    ROUTER_WEIGHT = 40
    ROUTER_BIAS = 41
    ROUTER_NORM_WEIGHT = 42
    SELECTION_BIAS = 43
    EXPERT_SCALE = 44
    COMBINE_BIAS = 45
    SHARED_UP_WEIGHT = 46
    SHARED_UP_BIAS = 47
    SHARED_GATE_WEIGHT = 48
    SHARED_GATE_BIAS = 49
    SHARED_DOWN_WEIGHT = 50
    SHARED_DOWN_BIAS = 51
    SHARED_SCALE_WEIGHT = 52
    LATENT_IN_WEIGHT = 53
    LATENT_IN_BIAS = 54
    LATENT_OUT_WEIGHT = 55
    LATENT_OUT_BIAS = 56
    UP_TAPS = 60
    DOWN_TAPS = 61


class Activation(IntEnum):
    NONE = 0
    IDENTITY = 1
    RELU = 2
    LEAKY_RELU = 3
    RELU6 = 4
    RELU2 = 5
    GELU = 6
    GELU_TANH = 7
    QUICK_GELU = 8
    GELU_10 = 9
    SILU = 10
    SWISH = 11
    SIGMOID = 12
    TANH = 13
    MISH = 14
    ELU = 15
    HARDSWISH = 16
    SOFTPLUS = 17
    LAPLACE = 18
    XIELU = 19


class NormSlot(IntEnum):
    IN = 0
    MID = 1
    BRANCH = 2
    OUT = 3


class Norm(IntEnum):
    NONE = 0
    LAYER = 1
    RMS = 2
    AFFINE = 3


class Residual(IntEnum):
    NONE = 0
    INPUT = 1
    NORMED = 2
    EXTERNAL = 3


class Engine(IntEnum):
    AUTO = 0
    BLAS = 1
    NATIVE = 2


class Isa(IntEnum):
    AUTO = 0
    SCALAR = 1
    AVX2 = 2
    AVX512 = 3


class LayerFlag(IntFlag):
    TANH_BRANCH_SCALE = 1
    TANH_RESIDUAL_SCALE = 2
    TRAINABLE = 4


class DropoutSite(IntEnum):
    PRE_ACTIVATION = 0
    ACTIVATION = 1
    HIDDEN = 2
    BRANCH = 3
    PATH = 4


# the header's names are these prefixes and the members' names
CONSTANTS: Constants = (
    ("FFN_", Status),
    ("FFN_DTYPE_", Dtype),
    ("FFN_ROLE_", Role),
    ("FFN_ACTIVATION_", Activation),
    ("FFN_NORM_", NormSlot),
    ("FFN_NORM_", Norm),
    ("FFN_RESIDUAL_", Residual),
    ("FFN_ENGINE_", Engine),
    ("FFN_ISA_", Isa),
    ("FFN_LAYER_", LayerFlag),
    ("FFN_DROPOUT_", DropoutSite),
)

Allocate = CFUNCTYPE(c_void_p, c_void_p, c_uint64, c_uint64)
Release = CFUNCTYPE(None, c_void_p, c_void_p, c_uint64)
Task = CFUNCTYPE(None, c_void_p, c_int64)
ParallelFor = CFUNCTYPE(None, c_void_p, c_int64, Task, c_void_p)


class Sized(Structure):
    """A struct that starts with its own size, which is filled in here."""

    def __init__(self, **fields: object) -> None:
        super().__init__(sizeof(self), **fields)


class Allocator(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("reserved", c_uint32),
        ("user", c_void_p),
        ("allocate", Allocate),
        ("release", Release),
    ]


class ContextOptions(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("threads", c_uint32),
        ("reserved", c_uint32),
        ("parallel_for", ParallelFor),
        ("parallel_user", c_void_p),
        ("allocator", POINTER(Allocator)),
        ("scratch_limit", c_uint64),
    ]


class ContextInfo(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("threads_requested", c_uint32),
        ("threads", c_uint32),
        ("scratch_bytes", c_uint64),
    ]


class Tensor(Structure):
    _fields_ = [
        ("role", c_uint32),
        ("expert", c_uint32),
        ("dtype", c_uint32),
        ("ndim", c_uint32),
        ("data", c_void_p),
        ("shape", c_int64 * 4),
        ("stride", c_int64 * 4),
        ("quant", c_void_p),
        ("reserved", c_uint64 * 4),
    ]


class MoeOptions(Sized):
    """Its fields are in _abi_moe.py."""


class MoeRun(Sized):
    """Likewise."""


class MoeBackward(Sized):
    """Likewise."""


class LayerOptions(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("d_model", c_int64),
        ("d_ff", c_int64),
        ("d_out", c_int64),
        ("activation", c_uint32),
        ("residual", c_uint32),
        ("alpha", c_float),
        ("beta", c_float),
        ("gate_max", c_float),
        ("up_limit", c_float),
        ("up_offset", c_float),
        ("engine", c_uint32),
        ("max_isa", c_uint32),
        ("norm", c_uint32 * 4),
        ("norm_eps", c_float * 4),
        ("norm_offset", c_float * 4),
        ("reserved", c_uint32),
        ("tensors", POINTER(Tensor)),
        ("tensor_count", c_uint64),
        ("moe", POINTER(MoeOptions)),
        ("allocator", POINTER(Allocator)),
    ]


class Dropout(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("broadcast", c_uint32),
        ("seed", c_uint64),
        ("step", c_uint64),
        ("layer", c_uint64),
        ("first_row", c_int64),
        ("first_sequence", c_int64),
        ("p", c_float * 5),
        ("reserved", c_uint32),
    ]


class Run(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("batch", c_int64),
        ("length", c_int64),
        ("x", c_void_p),
        ("y", c_void_p),
        ("residual", c_void_p),
        ("x_stride", c_int64 * 2),
        ("y_stride", c_int64 * 2),
        ("residual_stride", c_int64 * 2),
        ("x_dtype", c_uint32),
        ("y_dtype", c_uint32),
        ("residual_dtype", c_uint32),
        ("reserved", c_uint32),
        ("dropout", POINTER(Dropout)),
        ("tape", c_void_p),
        ("moe", POINTER(MoeRun)),
        ("stats", c_void_p),
    ]


class LayerInfo(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("d_model", c_int64),
        ("d_ff", c_int64),
        ("d_out", c_int64),
        ("gated", c_uint32),
        ("activation", c_uint32),
        ("residual", c_uint32),
        ("norm", c_uint32 * 4),
        ("engine", c_uint32),
        ("isa", c_uint32),
        ("reserved", c_uint32),
        ("parameters", c_int64),
        ("parameters_of", c_int64 * 64),
        ("bytes", c_uint64),
        ("experts", c_int64),
        ("identity_experts", c_int64),
        ("top_k", c_int64),
        ("d_shared", c_int64),
        ("d_latent", c_int64),
        ("active_parameters", c_int64),
    ]


STRUCTS: Structs = {
    "ffn_allocator_t": Allocator,
    "ffn_context_options_t": ContextOptions,
    "ffn_context_info_t": ContextInfo,
    "ffn_tensor_t": Tensor,
    "ffn_layer_options_t": LayerOptions,
    "ffn_dropout_t": Dropout,
    "ffn_run_t": Run,
    "ffn_layer_info_t": LayerInfo,
}

FUNCTIONS: Functions = {
    "ffn_version": (c_uint32,),
    "ffn_version_string": (c_char_p,),
    "ffn_abi_version": (c_uint32,),
    "ffn_build_info": (c_char_p,),
    "ffn_status_name": (c_char_p, status),
    "ffn_last_error": (c_char_p,),
    "ffn_context_create": (status, POINTER(ContextOptions), POINTER(handle)),
    "ffn_context_free": (None, handle),
    "ffn_context_reserve": (status, handle, handle, c_int64),
    "ffn_context_info": (status, handle, POINTER(ContextInfo)),
    "ffn_activation_from_name": (status, c_char_p, POINTER(c_uint32)),
    "ffn_activation_name": (c_char_p, c_uint32),
    "ffn_layer_create": (status, handle, POINTER(LayerOptions), POINTER(handle)),
    "ffn_layer_free": (None, handle),
    "ffn_layer_forward": (status, handle, handle, c_int64, c_void_p, c_int64, c_void_p, c_int64),
    "ffn_layer_run": (status, handle, handle, POINTER(Run)),
    "ffn_layer_info": (status, handle, POINTER(LayerInfo)),
    "ffn_layer_read": (status, handle, POINTER(Tensor), c_uint64),
    "ffn_gated_d_ff": (status, c_int64, c_int64, POINTER(c_int64)),
}
