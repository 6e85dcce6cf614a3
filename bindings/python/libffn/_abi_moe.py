# SPDX-License-Identifier: MIT
"""ffn.h for ctypes: mixture of experts."""
from __future__ import annotations

from ctypes import POINTER, c_double, c_float, c_int64, c_uint32, c_uint64, c_void_p
from enum import IntEnum, IntFlag

from ._abi_layer import Constants, Functions, MoeBackward, MoeOptions, MoeRun, Sized, Structs, handle, status


class Moe(IntEnum):
    EXPERTS_MOST = 768
    NO_EXPERT = -1


class MoeFlag(IntFlag):
    WEIGHT_ON_INPUT = 1
    ROUTE_UNNORMED = 2
    NORMALISE_LAST = 4
    SHARED_UNCLAMPED = 8


class MoeChoose(IntEnum):
    TOP_K = 0
    SPARSE_MIXER = 1
    BY_EXPERTS = 2


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


class MoeSite(IntEnum):
    INPUT = 5
    LOGITS = 6
    NOISE = 7
    CHOICE = 8


class MoeGradientsFlag(IntFlag):
    ADD_D_X = 2


# the header's names are these prefixes and the members' names
CONSTANTS: Constants = (
    ("FFN_MOE_", Moe),
    ("FFN_MOE_", MoeFlag),
    ("FFN_MOE_CHOOSE_", MoeChoose),
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
    ("FFN_MOE_SITE_", MoeSite),
    ("FFN_MOE_", MoeGradientsFlag),
)


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


MoeOptions._fields_ = [
    ("struct_size", c_uint32),
    ("flags", c_uint32),
    ("experts", c_int64),
    ("identity_experts", c_int64),
    ("top_k", c_int64),
    ("choose", c_uint32),
    ("jitter_eps", c_float),
    ("router_norm", c_uint32),
    ("router_norm_eps", c_float),
    ("chunk_bytes", c_uint64),
    ("router", POINTER(MoeRouterOptions)),
    ("second", POINTER(MoeSecondOptions)),
    ("capacity", POINTER(MoeCapacityOptions)),
]

MoeRun._fields_ = [
    ("struct_size", c_uint32),
    ("flags", c_uint32),
    ("routing", POINTER(MoeRouting)),
    ("mask", c_void_p),
    ("stream", c_uint64),
    ("first_token", c_int64),
    ("ids", c_void_p),
    ("weights", c_void_p),
    ("logits", c_void_p),
    ("scores", c_void_p),
    ("counts", c_void_p),
    ("statistics", POINTER(MoeStatistics)),
]


MoeBackward._fields_ = [
    ("struct_size", c_uint32),
    ("flags", c_uint32),
    ("d_logits", c_void_p),
    ("d_scores", c_void_p),
    ("d_weights", c_void_p),
]


class MoeNoise(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("site", c_uint32),
        ("seed", c_uint64),
        ("step", c_uint64),
        ("layer", c_uint64),
        ("first_row", c_int64),
        ("size", c_float),
        ("reserved", c_uint32),
    ]


class MoeRouteGradients(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("d_weights", c_void_p),
        ("d_scores", c_void_p),
        ("d_logits", c_void_p),
        ("d_expert_scale", c_void_p),
    ]


class MoeLogitsGradients(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("d_logits", c_void_p),
        ("d_x", c_void_p),
        ("d_x_stride", c_int64),
        ("d_weight", c_void_p),
        ("d_weight_stride", c_int64 * 2),
        ("d_bias", c_void_p),
        ("d_norm_weight", c_void_p),
    ]


STRUCTS: Structs = {
    "ffn_moe_routing_t": MoeRouting,
    "ffn_moe_router_options_t": MoeRouterOptions,
    "ffn_moe_logits_options_t": MoeLogitsOptions,
    "ffn_moe_second_options_t": MoeSecondOptions,
    "ffn_moe_capacity_options_t": MoeCapacityOptions,
    "ffn_moe_statistics_t": MoeStatistics,
    "ffn_moe_balance_t": MoeBalance,
    "ffn_moe_options_t": MoeOptions,
    "ffn_moe_run_t": MoeRun,
    "ffn_moe_backward_t": MoeBackward,
    "ffn_moe_noise_t": MoeNoise,
    "ffn_moe_route_gradients_t": MoeRouteGradients,
    "ffn_moe_logits_gradients_t": MoeLogitsGradients,
}

FUNCTIONS: Functions = {
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
    "ffn_moe_jitter": (status, handle, POINTER(MoeNoise), c_int64, c_int64, c_void_p, c_int64, c_void_p, c_int64),
    "ffn_moe_add_noise": (status, handle, POINTER(MoeNoise), c_int64, c_int64, c_void_p, c_void_p),
    "ffn_moe_add_noise_backward": (status, handle, POINTER(MoeNoise), c_int64, c_int64, c_void_p, c_void_p, c_void_p),
    "ffn_moe_sparse_mixer_sample": (status, handle, POINTER(MoeNoise), c_float, c_void_p, POINTER(MoeRouting)),
    "ffn_moe_route_backward": (
        status, handle, POINTER(MoeRouterOptions), c_void_p, c_void_p, POINTER(MoeRouting), POINTER(MoeRouteGradients)
    ),
    "ffn_moe_sparse_mixer_backward": (status, handle, c_float, c_void_p, POINTER(MoeRouting), POINTER(MoeRouteGradients)),
    "ffn_moe_logits_backward": (
        status, handle, POINTER(MoeLogitsOptions), c_int64, c_void_p, c_int64, POINTER(MoeLogitsGradients)
    ),
}
