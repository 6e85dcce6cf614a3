# SPDX-License-Identifier: MIT
"""The losses of routers, each under its own name: they are not the same. docs/routing.md has the models, and their coefficients."""
from __future__ import annotations

import math
from ctypes import byref, c_double
from typing import Any, Callable, Optional

import numpy as np

from . import _abi
from ._arrays import ArrayLike, address, as_dense, as_mask, as_rows, optional, shaped
from ._context import INT64, integer, number
from ._errors import InvalidError, check
from ._native import lib


def _balance(
    function: Callable[..., int],
    probabilities: ArrayLike,
    counts: ArrayLike,
    top_k: int,
    group_tokens: int,
    mask: Optional[ArrayLike],
    gradient: Optional[ArrayLike],
    coefficient: float,
    normalise: bool,
) -> float:
    array, counted = as_rows(probabilities, "probabilities"), as_dense(counts, "counts", np.int64)
    coefficient = number(coefficient, "coefficient")
    tokens, group = math.prod(array.shape[:-1]), integer(group_tokens, "group_tokens", INT64)
    groups = -(-tokens // group) if group else 1
    if counted.size != groups * array.shape[-1]:
        raise InvalidError(f"counts has {counted.size} numbers, must have {groups} * {array.shape[-1]} (groups * experts)")
    added = shaped(gradient, "gradient", array.shape, written=True)
    padding = as_mask(mask, array.shape[:-1])
    balance = _abi.MoeBalance(
        flags=_abi.MoeLossFlag.NORMALISE if normalise else 0,
        tokens=tokens,
        experts=array.shape[-1],
        top_k=integer(top_k, "top_k", INT64),
        group_tokens=group,
        probabilities=address(array),
        counts=address(counted),
        mask=optional(padding),
        gradient=optional(added) if coefficient else None,
        coefficient=coefficient,
    )
    value = c_double()
    check(function(byref(balance), byref(value)))
    return value.value if coefficient else 0.0  # a coefficient of 0 is the default in C


_ABOUT = """

    With groups of N tokens, n_e the count of expert e in a group, P_e the mean of its probability over the group's tokens, E experts, K = top_k.

    probabilities  [..., experts], float32: scores, as route writes them
    counts         int64 [groups, experts], as Routing.count gives them: each 0 to N. They are constants
    group_tokens   tokens of a group. 0: all are one
    mask           [...], bool or uint8: padding is 0, and counts nowhere
    gradient       [..., experts], float32, contiguous: the derivative by each probability is ADDED to it. None: not wanted
    coefficient    finite
    normalise      each row of probabilities is divided by its sum first: sigmoid and sqrt-softplus scores

    The sum is in float64. Raises InvalidError, UnsupportedError (other types)."""


def _loss(name: str, about: str) -> Callable[..., float]:
    function = getattr(lib, f"ffn_moe_{name}")

    def loss(
        probabilities: ArrayLike,
        counts: ArrayLike,
        top_k: int,
        *,
        group_tokens: int = 0,
        mask: Optional[ArrayLike] = None,
        gradient: Optional[ArrayLike] = None,
        coefficient: float = 1,
        normalise: bool = False,
    ) -> float:
        return _balance(function, probabilities, counts, top_k, group_tokens, mask, gradient, coefficient, normalise)

    loss.__name__ = loss.__qualname__ = name
    loss.__doc__ = about + _ABOUT
    return loss


loss_switch = _loss("loss_switch", "Fedus et al., arXiv 2101.03961: c mean over groups of E sum_e (n_e / N) P_e; balanced: c K.")
loss_gshard = _loss("loss_gshard", "Lepikhin et al., arXiv 2006.16668: likewise, n_e counting first choices alone; balanced: c.")
loss_huggingface = _loss("loss_huggingface", "Transformers' Mixtral, Qwen, ...: c E sum_e (n_e / N) P_e over all tokens at once; balanced: c K.")
loss_megatron = _loss("loss_megatron", "Megatron-LM's aux_loss: c E / (K N^2) sum_e n_e (sum_t p_te), all at once; balanced: c.")
loss_deepseek = _loss("loss_deepseek", "DeepSeek-V2 and V3: c mean over groups of sum_e (n_e E / (N K)) P_e, a group is a sequence; balanced: c.")


def loss_z(
    logits: ArrayLike, *, mask: Optional[ArrayLike] = None, gradient: Optional[ArrayLike] = None, coefficient: float = 1
) -> float:
    """The router z-loss (ST-MoE, arXiv 2202.08906): coefficient * mean over tokens of (log sum_e e^z_te)^2.

    logits    [..., experts], float32; mask [...]: padding is 0
    gradient  [..., experts], float32, contiguous: the derivative by each logit is ADDED to it. None: not wanted

    Raises InvalidError, UnsupportedError (not float32)."""
    array, coefficient = as_rows(logits, "logits"), number(coefficient, "coefficient")
    added, padding = shaped(gradient, "gradient", array.shape, written=True), as_mask(mask, array.shape[:-1])
    value, tokens = c_double(), math.prod(array.shape[:-1])
    target = optional(added) if coefficient else None
    check(lib.ffn_moe_loss_z(tokens, array.shape[-1], address(array), optional(padding), coefficient, target, byref(value)))
    return value.value if coefficient else 0.0


def update_bias(selection_bias: ArrayLike, counts: ArrayLike, rate: float) -> Any:
    """Balancing without a loss (DeepSeek-V3, arXiv 2412.19437), after a step: selection_bias += rate * sign(mean of the counts - counts), in place.

    selection_bias  [experts], float32, contiguous: changed, and given back
    counts          int64 [experts], or [1, experts] as Routing.count gives them
    rate            finite, at least 0: 0.001 in DeepSeek-V3

    Raises InvalidError, UnsupportedError (other types)."""
    bias = as_dense(selection_bias, "selection_bias", written=True)
    counted = as_dense(counts, "counts", np.int64)
    if bias.ndim != 1 or counted.size != bias.size:
        raise InvalidError(f"the shapes of selection_bias and counts are {bias.shape} and {counted.shape}, must be of one number for each expert")
    check(lib.ffn_moe_update_bias(bias.size, address(counted), number(rate, "rate"), address(bias)))
    return selection_bias
