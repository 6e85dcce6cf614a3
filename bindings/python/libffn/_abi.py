# SPDX-License-Identifier: MIT
"""ffn.h for ctypes: its constants, structs and functions, in the header's order and under the header's names.

What the header gains is a line here: a member of an enum, a field of a struct, a row of FUNCTIONS. tests/test_abi.py holds all three against the
baselines in tests/abi, and fails where one is missing."""
from __future__ import annotations

from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_double, c_float, c_int32, c_int64, c_uint32, c_uint64, c_void_p, sizeof
from enum import IntEnum, IntFlag

# ---------------------------------------------------------------- constants


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


class Moe(IntEnum):
    EXPERTS_MOST = 512
    NO_EXPERT = -1


class MoeScore(IntEnum):
    SOFTMAX = 0
    SIGMOID = 1
    SQRT_SOFTPLUS = 2
    NONE = 3


class MoeGroup(IntEnum):
    MAX = 0
    TOP2_SUM = 1


class MoeWeight(IntEnum):
    SCORE = 0
    SOFTMAX = 1
    SIGMOID = 2


class MoeNormalise(IntEnum):
    NONE = 0
    SUM = 1
    POWER = 2


class MoeRouterFlag(IntFlag):
    GIVEN_IDS = 1


class MoeSecond(IntEnum):
    NONE = 1
    THRESHOLD = 2
    RANDOM = 3
    SAMPLED = 4


class MoeDrop(IntEnum):
    POSITION = 0
    PRIORITY = 1
    PROBABILITY = 2


class MoeRound(IntEnum):
    DOWN = 0
    NEAREST = 1
    UP = 2


class MoeCapacityFlag(IntFlag):
    PER_CHOICE = 1


class MoeLossFlag(IntFlag):
    NORMALISE = 1


# the header's names are these prefixes and the members' names
CONSTANTS = (
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
    ("FFN_TAPE_", TapeFlag),
    ("FFN_BACKWARD_", BackwardFlag),
    ("FFN_INIT_", Init),
    ("FFN_INIT_", InitFlag),
    ("FFN_SGD_", SgdFlag),
    ("FFN_MOE_", Moe),
    ("FFN_MOE_SCORE_", MoeScore),
    ("FFN_MOE_GROUP_", MoeGroup),
    ("FFN_MOE_WEIGHT_", MoeWeight),
    ("FFN_MOE_NORMALISE_", MoeNormalise),
    ("FFN_MOE_", MoeRouterFlag),
    ("FFN_MOE_SECOND_", MoeSecond),
    ("FFN_MOE_DROP_", MoeDrop),
    ("FFN_MOE_ROUND_", MoeRound),
    ("FFN_MOE_CAPACITY_", MoeCapacityFlag),
    ("FFN_MOE_LOSS_", MoeLossFlag),
)

# ---------------------------------------------------------------- structs

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
        ("moe", c_void_p),
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
    ]


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


class MoeRouting(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("tokens", c_int64),
        ("experts", c_int64),
        ("top_k", c_int64),
        ("ids", c_void_p),
        ("weights", c_void_p),
        ("mask", c_void_p),
    ]


class MoeRouterOptions(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("score", c_uint32),
        ("weight", c_uint32),
        ("normalise", c_uint32),
        ("group_score", c_uint32),
        ("groups", c_int64),
        ("top_groups", c_int64),
        ("norm_power", c_float),
        ("eps_added", c_float),
        ("eps_least", c_float),
        ("scale", c_float),
    ]


class MoeLogitsOptions(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("d_model", c_int64),
        ("experts", c_int64),
        ("weight", c_void_p),
        ("weight_stride", c_int64 * 2),
        ("bias", c_void_p),
        ("norm", c_uint32),
        ("norm_eps", c_float),
        ("norm_weight", c_void_p),
    ]


class MoeSecondOptions(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("policy", c_uint32),
        ("threshold", c_float),
        ("seed", c_uint64),
        ("stream", c_uint64),
        ("first_token", c_int64),
    ]


class MoeCapacityOptions(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("drop", c_uint32),
        ("rounding", c_uint32),
        ("capacity", c_int64),
        ("minimum", c_int64),
        ("group_tokens", c_int64),
        ("factor", c_double),
    ]


class MoeStatistics(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("tokens", c_int64),
        ("assignments", c_int64),
        ("dropped", c_int64),
        ("lost_tokens", c_int64),
        ("idle_experts", c_int64),
        ("largest_load", c_int64),
        ("load_entropy", c_double),
        ("router_entropy", c_double),
    ]


class MoeBalance(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("tokens", c_int64),
        ("experts", c_int64),
        ("top_k", c_int64),
        ("group_tokens", c_int64),
        ("probabilities", c_void_p),
        ("counts", c_void_p),
        ("mask", c_void_p),
        ("gradient", c_void_p),
        ("coefficient", c_double),
    ]


STRUCTS = {
    "ffn_allocator_t": Allocator,
    "ffn_context_options_t": ContextOptions,
    "ffn_context_info_t": ContextInfo,
    "ffn_tensor_t": Tensor,
    "ffn_layer_options_t": LayerOptions,
    "ffn_dropout_t": Dropout,
    "ffn_run_t": Run,
    "ffn_layer_info_t": LayerInfo,
    "ffn_tape_options_t": TapeOptions,
    "ffn_backward_t": Backward,
    "ffn_init_options_t": InitOptions,
    "ffn_sgd_options_t": SgdOptions,
    "ffn_adamw_options_t": AdamwOptions,
    "ffn_moe_routing_t": MoeRouting,
    "ffn_moe_router_options_t": MoeRouterOptions,
    "ffn_moe_logits_options_t": MoeLogitsOptions,
    "ffn_moe_second_options_t": MoeSecondOptions,
    "ffn_moe_capacity_options_t": MoeCapacityOptions,
    "ffn_moe_statistics_t": MoeStatistics,
    "ffn_moe_balance_t": MoeBalance,
}

# ---------------------------------------------------------------- functions

status, handle = c_int32, c_void_p

# name: result, arguments. Pointers to numbers and handles are void pointers: ctypes then takes the address of an array as an int.
FUNCTIONS = {
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
    "ffn_tape_create": (status, POINTER(TapeOptions), POINTER(handle)),
    "ffn_tape_free": (None, handle),
    "ffn_tape_reserve": (status, handle, handle, c_int64),
    "ffn_layer_backward": (status, handle, handle, POINTER(Backward)),
    "ffn_layer_update": (status, handle, handle, POINTER(Tensor), c_uint64),
    "ffn_weight_init": (status, c_void_p, c_int64, POINTER(InitOptions)),
    "ffn_sgd_step": (status, handle, POINTER(SgdOptions), c_int64, c_void_p, c_void_p, c_void_p),
    "ffn_adamw_step": (status, handle, POINTER(AdamwOptions), c_int64, c_void_p, c_void_p, c_void_p, c_void_p),
    "ffn_clip_global_norm": (status, handle, POINTER(c_void_p), c_void_p, c_uint64, c_double, POINTER(c_double)),
    "ffn_moe_route": (status, handle, POINTER(MoeRouterOptions), c_void_p, c_void_p, c_void_p, c_void_p, POINTER(MoeRouting)),
    "ffn_moe_logits": (status, handle, POINTER(MoeLogitsOptions), c_int64, c_void_p, c_int64, c_void_p),
    "ffn_moe_sparse_mixer": (status, handle, c_float, c_void_p, POINTER(MoeRouting)),
    "ffn_moe_expert_choice": (status, handle, c_int64, c_int64, c_void_p, POINTER(MoeRouting)),
    "ffn_moe_hash": (status, c_void_p, c_int64, c_void_p, POINTER(MoeRouting)),
    "ffn_moe_second_expert": (status, POINTER(MoeSecondOptions), c_void_p, POINTER(MoeRouting)),
    "ffn_moe_limit": (status, handle, POINTER(MoeCapacityOptions), POINTER(MoeRouting)),
    "ffn_moe_count": (status, POINTER(MoeRouting), c_int64, c_int64, c_void_p),
    "ffn_moe_statistics": (status, POINTER(MoeRouting), c_void_p, POINTER(MoeStatistics)),
    "ffn_moe_loss_switch": (status, POINTER(MoeBalance), POINTER(c_double)),
    "ffn_moe_loss_gshard": (status, POINTER(MoeBalance), POINTER(c_double)),
    "ffn_moe_loss_huggingface": (status, POINTER(MoeBalance), POINTER(c_double)),
    "ffn_moe_loss_megatron": (status, POINTER(MoeBalance), POINTER(c_double)),
    "ffn_moe_loss_deepseek": (status, POINTER(MoeBalance), POINTER(c_double)),
    "ffn_moe_loss_z": (status, c_int64, c_int64, c_void_p, c_void_p, c_double, c_void_p, POINTER(c_double)),
    "ffn_moe_update_bias": (status, c_int64, c_void_p, c_float, c_void_p),
}
