# SPDX-License-Identifier: MIT
"""Mixture of experts: routers, the helpers of the published families, their losses, and the options of a Layer that is a mixture.

    from libffn import moe
    routing = moe.route(moe.logits(x, router_weight), 2, moe.Router(normalise="sum"))
    layer = libffn.Layer(up=up, gate=gate, down=down, activation="silu", router=router_weight, moe=moe.Mixture(top_k=2))   # up: [experts, d_ff, d_model]

docs/routing.md has the options of every published family."""
from ._moe import (
    EXPERTS_MOST,
    NO_EXPERT,
    Capacity,
    Router,
    Routing,
    SecondExpert,
    Statistics,
    expert_choice,
    hash_routing,
    logits,
    route,
    sparse_mixer,
)
from ._moe_layer import Call, Gradients, Mixture
from ._moe_losses import loss_deepseek, loss_gshard, loss_huggingface, loss_megatron, loss_switch, loss_z, update_bias
from ._moe_training import (
    Noise,
    add_noise,
    add_noise_backward,
    jitter,
    logits_backward,
    route_backward,
    sparse_mixer_backward,
    sparse_mixer_sample,
)

__all__ = [
    "EXPERTS_MOST",
    "NO_EXPERT",
    "Call",
    "Capacity",
    "Gradients",
    "Mixture",
    "Noise",
    "Router",
    "Routing",
    "SecondExpert",
    "Statistics",
    "add_noise",
    "add_noise_backward",
    "expert_choice",
    "hash_routing",
    "jitter",
    "logits",
    "logits_backward",
    "loss_deepseek",
    "loss_gshard",
    "loss_huggingface",
    "loss_megatron",
    "loss_switch",
    "loss_z",
    "route",
    "route_backward",
    "sparse_mixer",
    "sparse_mixer_backward",
    "sparse_mixer_sample",
    "update_bias",
]
