# SPDX-License-Identifier: MIT
"""Routers in training: noise, and the backward passes of routing."""
from __future__ import annotations

import math
from ctypes import byref
from dataclasses import dataclass
from typing import Any, Optional

import numpy as np

from . import _abi
from ._arrays import F32, ArrayLike, address, as_dense, as_rows, optional, shaped
from ._context import INT64, UINT64, Context, context_for, integer, number
from ._errors import InvalidError, check
from ._moe import Router, Routing
from ._native import lib
from ._tensors import member


@dataclass(frozen=True)
class Noise:
    """Noise of a call, a function of these and of a number's place alone: the same in the backward pass, and in every part of a batch.

    site   "input" or "logits" of jitter, "noise" of add_noise, "choice" (size 0) of sparse_mixer_sample
    size   jitter's epsilon, at most 1; or a standard deviation. 0 leaves alone, to the bit
    seed, step, layer, first_row   as those of libffn.Dropout"""

    site: str
    size: float
    seed: int = 0
    step: int = 0
    layer: int = 0
    first_row: int = 0

    def _struct(self) -> _abi.MoeNoise:
        return _abi.MoeNoise(
            site=member(_abi.MoeSite, self.site, "site"),
            size=number(self.size, "size"),
            seed=integer(self.seed, "seed", UINT64),
            step=integer(self.step, "step", UINT64),
            layer=integer(self.layer, "layer", UINT64),
            first_row=integer(self.first_row, "first_row", INT64),
        )


def jitter(
    x: ArrayLike, noise: Noise, *, out: Optional[ArrayLike] = None, threads: Optional[int] = None, context: Optional[Context] = None
) -> Any:
    """x * (1 + size * (2 u - 1)), u in (0, 1) at random: of a router's input, or of a whole block's. The backward pass is the same call on derivatives.

    x    [..., width], float32; out [..., width], float32, contiguous: written, and given back; it may be x. Without it: a new array

    Raises InvalidError, UnsupportedError (not float32), NoMemoryError, BusyError."""
    context = context_for(threads, context)
    rows = as_rows(x, "x")
    y = np.empty(rows.shape, F32) if out is None else shaped(out, "out", rows.shape, written=True)
    count = math.prod(rows.shape[:-1])
    check(
        lib.ffn_moe_jitter(
            context and context._handle, byref(noise._struct()), count, rows.shape[-1], address(rows), 0, address(y), 0
        )
    )
    return y if out is None else out


def add_noise(
    logits: ArrayLike,
    noise: Noise,
    noise_logits: Optional[ArrayLike] = None,
    *,
    threads: Optional[int] = None,
    context: Optional[Context] = None,
) -> Any:
    """logits += (size + softplus(noise_logits)) * z in place, z normal: noisy top-k gating (arXiv 1701.06538); without noise_logits logits += size * z.

    logits, noise_logits  [..., experts], float32; logits contiguous, and given back. The derivatives by the logits go through unchanged

    Raises InvalidError, UnsupportedError (not float32), NoMemoryError, BusyError."""
    context = context_for(threads, context)
    array = as_rows(logits, "logits", written=True)
    more = shaped(noise_logits, "noise_logits", array.shape)
    tokens, handle = math.prod(array.shape[:-1]), context and context._handle
    check(lib.ffn_moe_add_noise(handle, byref(noise._struct()), tokens, array.shape[-1], optional(more), address(array)))
    return logits


def add_noise_backward(
    noise_logits: ArrayLike,
    noise: Noise,
    d_logits: ArrayLike,
    *,
    out: Optional[ArrayLike] = None,
    threads: Optional[int] = None,
    context: Optional[Context] = None,
) -> Any:
    """The derivatives by noise_logits: d_logits * z * sigmoid(noise_logits), with the z of add_noise. All [..., experts], float32; out contiguous.
    Raises InvalidError, UnsupportedError (not float32), NoMemoryError, BusyError."""
    context = context_for(threads, context)
    array = as_rows(noise_logits, "noise_logits")
    given = shaped(d_logits, "d_logits", array.shape)
    found = np.empty(array.shape, F32) if out is None else shaped(out, "out", array.shape, written=True)
    tokens, handle = math.prod(array.shape[:-1]), context and context._handle
    check(
        lib.ffn_moe_add_noise_backward(
            handle, byref(noise._struct()), tokens, array.shape[-1], address(array), address(given), address(found)
        )
    )
    return found if out is None else out


def _route_gradients(
    routing: Routing,
    d_weights: Optional[ArrayLike],
    d_scores: Optional[ArrayLike],
    out: Optional[ArrayLike],
    d_expert_scale: Optional[ArrayLike],
    accumulate: bool,
) -> tuple[_abi.MoeRouteGradients, Any, list[Any]]:
    """For the library; the array of d_logits; and arrays that must outlive the call."""
    each = (*routing.leading, routing.experts)
    if accumulate and out is None:
        raise InvalidError("accumulate is asked for, but there is no out to add to")
    found = np.empty(each, F32) if out is None else shaped(out, "out", each, written=True)
    kept = [
        shaped(d_weights, "d_weights", routing.ids.shape),
        shaped(d_scores, "d_scores", each),
        shaped(d_expert_scale, "d_expert_scale", (routing.experts,), written=True),
    ]
    gradients = _abi.MoeRouteGradients(
        flags=_abi.BackwardFlag.ACCUMULATE if accumulate else 0,
        d_weights=optional(kept[0]),
        d_scores=optional(kept[1]),
        d_logits=address(found),
        d_expert_scale=optional(kept[2]),
    )
    return gradients, found, kept


def route_backward(
    logits: ArrayLike,
    router: Router,
    routing: Routing,
    *,
    d_weights: Optional[ArrayLike] = None,
    d_scores: Optional[ArrayLike] = None,
    expert_scale: Optional[ArrayLike] = None,
    d_expert_scale: Optional[ArrayLike] = None,
    given_ids: bool = False,
    accumulate: bool = False,
    out: Optional[ArrayLike] = None,
    threads: Optional[int] = None,
    context: Optional[Context] = None,
) -> Any:
    """The backward pass of route: the derivatives by the logits, [..., experts]. Which experts are chosen is a constant.

    logits, router, routing, expert_scale   as they were there; of the routing the ids by which the weights were made. given_ids: it was route(given=...)
    d_weights, d_scores  [..., top_k], [..., experts]: the derivatives by the weights, and by the scores (the losses' gradients). None: 0
    d_expert_scale       [experts], contiguous: those by the experts' scales are written to it. None: not wanted
    out                  [..., experts], contiguous: written, and given back. Without it: a new array. accumulate adds to it (and to d_expert_scale)

    Raises InvalidError, UnsupportedError (not float32), NoMemoryError, BusyError."""
    context = context_for(threads, context)
    array = shaped(logits, "logits", (*routing.leading, routing.experts))
    scale = shaped(expert_scale, "expert_scale", (routing.experts,))
    gradients, found, _kept = _route_gradients(routing, d_weights, d_scores, out, d_expert_scale, accumulate)
    options = router._struct(_abi.MoeRouterFlag.GIVEN_IDS if given_ids else 0)
    handle = context and context._handle
    check(
        lib.ffn_moe_route_backward(
            handle, byref(options), address(array), optional(scale), byref(routing._struct()), byref(gradients)
        )
    )
    return found if out is None else out


def sparse_mixer_sample(
    logits: ArrayLike,
    noise: Noise,
    *,
    jitter_eps: float = 0.01,
    mask: Optional[ArrayLike] = None,
    threads: Optional[int] = None,
    context: Optional[Context] = None,
) -> Routing:
    """sparse_mixer as it is trained (arXiv 2310.00811): choices drawn from the softmax over the experts that did not drop out, and weights that are whole or
    a third of it. Its backward pass is sparse_mixer_backward. logits [..., experts], float32; noise at site "choice", of size 0.
    Raises InvalidError, UnsupportedError (not float32), NoMemoryError, BusyError."""
    context = context_for(threads, context)
    array = as_rows(logits, "logits")
    routing = Routing.empty(array.shape[:-1], 2, array.shape[-1], mask)
    handle, eps = context and context._handle, number(jitter_eps, "jitter_eps")
    check(lib.ffn_moe_sparse_mixer_sample(handle, byref(noise._struct()), eps, address(array), byref(routing._struct())))
    return routing


def sparse_mixer_backward(
    logits: ArrayLike,
    routing: Routing,
    d_weights: ArrayLike,
    *,
    jitter_eps: float = 0.01,
    accumulate: bool = False,
    out: Optional[ArrayLike] = None,
    threads: Optional[int] = None,
    context: Optional[Context] = None,
) -> Any:
    """The same for sparse_mixer and sparse_mixer_sample: each weight has the derivative of a softmax over the experts that did not drop out.
    Raises InvalidError, UnsupportedError (not float32), NoMemoryError, BusyError."""
    context = context_for(threads, context)
    array = shaped(logits, "logits", (*routing.leading, routing.experts))
    gradients, found, _kept = _route_gradients(routing, d_weights, None, out, None, accumulate)
    handle, eps = context and context._handle, number(jitter_eps, "jitter_eps")
    check(lib.ffn_moe_sparse_mixer_backward(handle, eps, address(array), byref(routing._struct()), byref(gradients)))
    return found if out is None else out


def logits_backward(
    x: ArrayLike,
    weight: ArrayLike,
    d_logits: ArrayLike,
    *,
    norm: Optional[str] = None,
    norm_eps: float = 0,
    norm_weight: Optional[ArrayLike] = None,
    d_x: Optional[ArrayLike] = None,
    add_d_x: bool = False,
    d_weight: Optional[ArrayLike] = None,
    d_bias: Optional[ArrayLike] = None,
    d_norm_weight: Optional[ArrayLike] = None,
    accumulate: bool = False,
    threads: Optional[int] = None,
    context: Optional[Context] = None,
) -> None:
    """The backward pass of logits, into arrays of yours; None: not wanted.

    x, weight, norm, norm_eps, norm_weight   as they were there
    d_logits             [..., experts]: the derivatives by the logits
    d_x                  [..., d_model], contiguous: written, or with add_d_x added to, as to the experts' share of it
    d_weight, d_bias, d_norm_weight   [experts, d_model], [experts], [d_model], contiguous: written, or with accumulate added to

    Raises InvalidError, UnsupportedError (not float32), NoMemoryError, BusyError."""
    context = context_for(threads, context)
    rows, matrix = as_dense(x, "x"), as_dense(weight, "weight")
    if rows.ndim == 0 or matrix.ndim != 2 or matrix.shape[1] != rows.shape[-1]:
        raise InvalidError(f"the shapes of x and weight are {rows.shape} and {matrix.shape}, must be (..., d_model) and (experts, d_model)")
    experts, d_model = matrix.shape
    arrays = {
        "d_logits": shaped(d_logits, "d_logits", (*rows.shape[:-1], experts)),
        "d_x": shaped(d_x, "d_x", rows.shape, written=True),
        "d_weight": shaped(d_weight, "d_weight", matrix.shape, written=True),
        "d_bias": shaped(d_bias, "d_bias", (experts,), written=True),
        "d_norm_weight": shaped(d_norm_weight, "d_norm_weight", (d_model,), written=True),
    }
    gain = shaped(norm_weight, "norm_weight", (d_model,))
    options = _abi.MoeLogitsOptions(
        d_model=d_model,
        experts=experts,
        weight=address(matrix),
        norm=member(_abi.Norm, norm, "norm"),
        norm_eps=number(norm_eps, "norm_eps"),
        norm_weight=optional(gain),
    )
    flags = (_abi.BackwardFlag.ACCUMULATE if accumulate else 0) | (_abi.MoeGradientsFlag.ADD_D_X if add_d_x else 0)
    gradients = _abi.MoeLogitsGradients(flags=flags, **{name: optional(array) for name, array in arrays.items()})
    tokens, handle = math.prod(rows.shape[:-1]), context and context._handle
    check(lib.ffn_moe_logits_backward(handle, byref(options), tokens, address(rows), 0, byref(gradients)))
