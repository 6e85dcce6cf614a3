# SPDX-License-Identifier: MIT
"""Mixture of experts: what a Layer that is one is made of, called and trained with."""
from __future__ import annotations

from ctypes import pointer
from dataclasses import dataclass
from typing import Any, Optional

import numpy as np

from . import _abi
from ._arrays import ArrayLike, as_mask, optional, shaped
from ._context import INT64, UINT64, integer, number
from ._errors import InvalidError
from ._moe import Capacity, Router, Routing, SecondExpert
from ._tensors import member


@dataclass(frozen=True)
class Mixture:
    """The mixture of experts of a Layer: Layer(..., moe=Mixture(top_k=2)). Its branch is then the sum over a token's experts of weight * expert(n), plus
    shared experts and combine_bias.

    top_k             choices of a token
    experts           with weights; 0: as many as the tensors describe
    identity_experts  so many more, which return their input (LongCat)
    router            a Router; None: all defaults. given_ids: each call brings ids (hash routing), which the router weighs
    choose            "top_k", "sparse_mixer" (with jitter_eps; no router) or "by_experts" (expert choice, with a Capacity; top_k is all experts)
    router_norm, router_norm_eps      "layer" or "rms" of the router's input
    second, capacity  a SecondExpert, a Capacity; None: none
    weight_on_input   expert(weight * n): Llama-4. route_unnormed: the router sees x: Gemma-4. normalise_last: after choices were dropped: NLLB.
    shared_unclamped  the clamps are the routed experts' alone: DeepSeek-V4
    chunk_bytes       scratch memory of a chunk of tokens; 0: 64 MiB"""

    top_k: int
    experts: int = 0
    identity_experts: int = 0
    router: Optional[Router] = None
    given_ids: bool = False
    choose: str = "top_k"
    jitter_eps: float = 0
    router_norm: Optional[str] = None
    router_norm_eps: float = 0
    second: Optional[SecondExpert] = None
    capacity: Optional[Capacity] = None
    weight_on_input: bool = False
    route_unnormed: bool = False
    normalise_last: bool = False
    shared_unclamped: bool = False
    chunk_bytes: int = 0

    def _struct(self) -> _abi.MoeOptions:
        flags = sum(flag for flag in _abi.MoeFlag if getattr(self, str(flag.name).lower()))
        made = _abi.MoeOptions(
            flags=flags,
            experts=integer(self.experts, "experts", INT64),
            identity_experts=integer(self.identity_experts, "identity_experts", INT64),
            top_k=integer(self.top_k, "top_k", INT64),
            choose=member(_abi.MoeChoose, self.choose, "choose"),
            jitter_eps=number(self.jitter_eps, "jitter_eps"),
            router_norm=member(_abi.Norm, self.router_norm, "router_norm"),
            router_norm_eps=number(self.router_norm_eps, "router_norm_eps"),
            chunk_bytes=integer(self.chunk_bytes, "chunk_bytes", UINT64),
        )
        if self.router is not None or self.given_ids:
            made.router = pointer((self.router or Router())._struct(_abi.MoeRouterFlag.GIVEN_IDS if self.given_ids else 0))
        if self.second is not None:
            made.second = pointer(self.second._struct())
        if self.capacity is not None:
            made.capacity = pointer(self.capacity._struct())
        return made


@dataclass
class Call:
    """What is particular to a call of a mixture: layer(x, moe=Call(...)).

    routing              a Routing for x's leading shape, in place of the router; with Mixture.given_ids its ids alone are taken
    mask                 [...], bool or uint8: 0 is padding, which goes to no routed expert. Not with a routing, which has its own
    stream, first_token  of second choices at random
    ids, weights         [..., top_k], int32 and float32, contiguous: written: where each token went. None: not wanted, and so below
    logits, scores       [..., experts], float32, of a layer that routes
    counts               [experts], int64: tokens that each expert computed
    statistics           True: after the call it is the call's Statistics"""

    routing: Optional[Routing] = None
    mask: Optional[ArrayLike] = None
    stream: int = 0
    first_token: int = 0
    ids: Optional[ArrayLike] = None
    weights: Optional[ArrayLike] = None
    logits: Optional[ArrayLike] = None
    scores: Optional[ArrayLike] = None
    counts: Optional[ArrayLike] = None
    statistics: Any = None

    def _struct(self, leading: tuple[int, ...], experts: int, top_k: int, given_ids: bool) -> tuple[_abi.MoeRun, list[Any]]:
        """For the library; and arrays that must outlive the call."""
        if self.routing is not None:
            top_k = self.routing.top_k
            if self.routing.leading != leading:
                raise InvalidError(f"the routing is for {self.routing.leading} tokens, x has {leading}")
        chosen, each = (*leading, top_k), (*leading, experts)
        arrays = {
            "ids": shaped(self.ids, "ids", chosen, np.int32, written=True),
            "weights": shaped(self.weights, "weights", chosen, written=True),
            "logits": shaped(self.logits, "logits", each, written=True),
            "scores": shaped(self.scores, "scores", each, written=True),
            "counts": shaped(self.counts, "counts", (experts,), np.int64, written=True),
            "mask": as_mask(self.mask, leading),
        }
        run = _abi.MoeRun(stream=integer(self.stream, "stream", UINT64), first_token=integer(self.first_token, "first_token", INT64))
        for name, array in arrays.items():
            setattr(run, name, optional(array))
        if self.routing is not None:
            routing = self.routing._struct()
            if given_ids:
                routing.weights = None
            run.routing = pointer(routing)
        if self.statistics:
            run.statistics = pointer(_abi.MoeStatistics())
        return run, list(arrays.values())


@dataclass
class Gradients:
    """What is particular to the backward pass of a mixture: layer.backward(..., moe=Gradients(...)).

    d_logits, d_scores  [..., experts], float32: added to the derivatives by the logits (the z-loss's gradient) and by the scores (the load-balancing
                        losses'), of a call that routed. None: 0
    d_weights           [..., top_k], float32, contiguous: the derivatives by the weights are written to it, where a router of your own goes on. None: not
                        wanted"""

    d_logits: Optional[ArrayLike] = None
    d_scores: Optional[ArrayLike] = None
    d_weights: Optional[ArrayLike] = None

    def _struct(self, leading: tuple[int, ...], experts: int) -> tuple[_abi.MoeBackward, list[Any]]:
        """For the library; and arrays that must outlive the call."""
        kept = [shaped(self.d_logits, "d_logits", (*leading, experts)), shaped(self.d_scores, "d_scores", (*leading, experts))]
        made = _abi.MoeBackward(d_logits=optional(kept[0]), d_scores=optional(kept[1]))
        return made, kept

    def _target(self, leading: tuple[int, ...], top_k: int) -> Any:
        return shaped(self.d_weights, "d_weights", (*leading, top_k), written=True)
