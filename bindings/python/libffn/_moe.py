# SPDX-License-Identifier: MIT
"""Mixture of experts: routers and routings."""
from __future__ import annotations

import math
from ctypes import byref
from dataclasses import dataclass
from typing import Any, Optional

import numpy as np
import numpy.typing as npt

from . import _abi
from ._arrays import F32, ArrayLike, Float32, address, as_dense, as_float32, as_mask, as_rows, has_rows, optional, shaped
from ._context import INT64, UINT64, Context, context_for, integer, number
from ._errors import InvalidError, check
from ._native import lib
from ._tensors import member

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]

EXPERTS_MOST = int(_abi.Moe.EXPERTS_MOST)
NO_EXPERT = int(_abi.Moe.NO_EXPERT)


@dataclass(frozen=True)
class Router:
    """How experts are chosen from a token's logits z, and weighed (docs/routing.md has the options of every published family):

        s = SCORE(z); c = s + selection_bias; experts of all but the top_groups best groups are out; the top_k with the largest c are chosen, of equal
        ones the lowest id first; w = s, or the softmax or sigmoid of z, of the chosen; w = w / max(NORM(w) + eps_added, eps_least);
        w = w * scale * expert_scale

    score         softmax, sigmoid, sqrt_softplus or none (z itself)
    weight        score, softmax (over the chosen) or sigmoid
    normalise     none, sum or power ((sum of |w|^p)^(1/p), p = norm_power)
    groups, top_groups, group_score   groups of experts, how many stay, and what a group counts: max or top2_sum. 0: no groups
    eps_added, eps_least              of the normalisation
    scale         DeepSeek's routed_scaling_factor; 0 stands for 1"""

    score: str = "softmax"
    weight: str = "score"
    normalise: str = "none"
    groups: int = 0
    top_groups: int = 0
    group_score: str = "max"
    norm_power: float = 0
    eps_added: float = 0
    eps_least: float = 0
    scale: float = 1

    def _struct(self, flags: int = 0) -> _abi.MoeRouterOptions:
        return _abi.MoeRouterOptions(
            flags=flags,
            score=member(_abi.MoeScore, self.score, "score"),
            weight=member(_abi.MoeWeight, self.weight, "weight"),
            normalise=member(_abi.MoeNormalise, self.normalise, "normalise"),
            group_score=member(_abi.MoeGroup, self.group_score, "group_score"),
            groups=integer(self.groups, "groups", INT64),
            top_groups=integer(self.top_groups, "top_groups", INT64),
            norm_power=number(self.norm_power, "norm_power"),
            eps_added=number(self.eps_added, "eps_added"),
            eps_least=number(self.eps_least, "eps_least"),
            scale=number(self.scale, "scale"),
        )


@dataclass(frozen=True)
class SecondExpert:
    """What becomes of second choices, where a token has two (GShard, NLLB).

    policy     none: all are dropped; threshold: kept if the weight is above `threshold`; random: kept with probability weight / threshold; sampled:
               chosen anew from the logits with Gumbel noise, before the weights are made
    threshold  above 0, of threshold and random
    seed       of random and sampled"""

    policy: str
    threshold: float = 0
    seed: int = 0

    def _struct(self, stream: int = 0, first_token: int = 0) -> _abi.MoeSecondOptions:
        return _abi.MoeSecondOptions(
            policy=member(_abi.MoeSecond, self.policy, "policy"),
            threshold=number(self.threshold, "threshold"),
            seed=integer(self.seed, "seed", UINT64),
            stream=integer(stream, "stream", UINT64),
            first_token=integer(first_token, "first_token", INT64),
        )


@dataclass(frozen=True)
class Capacity:
    """How many tokens an expert takes, and which choices stay.

    capacity      fixed, at least 1. 0: by factor
    factor        of tokens / experts (per_choice: of tokens * top_k / experts), where capacity is 0
    minimum       of the capacity by factor
    rounding      of the capacity by factor: down, nearest (halves to even) or up
    group_tokens  tokens that a capacity is for. 0: all
    drop          which stay: position: all first choices in the order of tokens, then all second ones, ...; priority: likewise, tokens in descending order
                  of their first weight; probability: those with the largest weights"""

    capacity: int = 0
    factor: float = 0
    minimum: int = 0
    rounding: str = "down"
    group_tokens: int = 0
    drop: str = "position"
    per_choice: bool = False

    def _struct(self) -> _abi.MoeCapacityOptions:
        return _abi.MoeCapacityOptions(
            flags=_abi.MoeCapacityFlag.PER_CHOICE if self.per_choice else 0,
            drop=member(_abi.MoeDrop, self.drop, "drop"),
            rounding=member(_abi.MoeRound, self.rounding, "rounding"),
            capacity=integer(self.capacity, "capacity", INT64),
            minimum=integer(self.minimum, "minimum", INT64),
            group_tokens=integer(self.group_tokens, "group_tokens", INT64),
            factor=number(self.factor, "factor"),
        )


@dataclass(frozen=True)
class Statistics:
    """What a routing amounts to.

    tokens, assignments  tokens that are no padding; choices that stand
    dropped, lost_tokens choices that do not; tokens without any expert
    idle_experts, largest_load   experts without a token; tokens of the busiest one
    load_entropy         of the experts' shares of the assignments, in nats: log(experts) when balanced
    router_entropy       the mean over tokens of the entropy of their scores, in nats; 0 without scores"""

    tokens: int
    assignments: int
    dropped: int
    lost_tokens: int
    idle_experts: int
    largest_load: int
    load_entropy: float
    router_entropy: float


def statistics_of(found: _abi.MoeStatistics) -> Statistics:
    return Statistics(**{name: getattr(found, name) for name in Statistics.__dataclass_fields__})


class Routing:
    """Which experts each token goes to, and with which weights.

    ids      [..., top_k], int32: 0 to experts - 1, distinct in a row, first choices first; or NO_EXPERT (-1), which stands for none
    weights  [..., top_k], float32
    experts  how many there are: 1 to 768
    mask     [...], bool or uint8, or None: 0 is padding, which goes to no expert and counts for nothing

    The arrays are used where they are: both contiguous, ids and weights writable, and the same as long as the routing lives (their numbers may be
    changed). The functions of libffn.moe make routings; limit and second_expert change one in place."""

    def __init__(self, ids: ArrayLike, weights: ArrayLike, experts: int, mask: Optional[ArrayLike] = None) -> None:
        self._ids: Int32 = as_dense(ids, "ids", np.int32, written=True)
        self._weights: Float32 = as_dense(weights, "weights", F32, written=True)
        if self._ids.ndim == 0 or self._ids.shape != self._weights.shape:
            raise InvalidError(f"the shapes of ids and weights are {self._ids.shape} and {self._weights.shape}, must be one: (..., top_k)")
        self._experts = integer(experts, "experts", INT64)
        self._mask = as_mask(mask, self._ids.shape[:-1])

    @classmethod
    def empty(cls, leading: tuple[int, ...], top_k: int, experts: int, mask: Optional[ArrayLike] = None) -> Routing:
        """A routing for tokens of that leading shape that goes nowhere yet."""
        shape = (*leading, integer(top_k, "top_k", 2**31))
        return cls(np.full(shape, NO_EXPERT, np.int32), np.zeros(shape, F32), experts, mask)

    @property
    def ids(self) -> Int32:
        return self._ids

    @property
    def weights(self) -> Float32:
        return self._weights

    @property
    def experts(self) -> int:
        return self._experts

    @property
    def mask(self) -> Optional[npt.NDArray[Any]]:
        return self._mask

    @property
    def leading(self) -> tuple[int, ...]:
        """The shape of the tokens."""
        return self._ids.shape[:-1]

    @property
    def top_k(self) -> int:
        return int(self._ids.shape[-1])

    def _struct(self) -> _abi.MoeRouting:
        return _abi.MoeRouting(
            tokens=math.prod(self.leading),
            experts=self._experts,
            top_k=self.top_k,
            ids=address(self._ids),
            weights=address(self._weights),
            mask=optional(self._mask),
        )

    def limit(self, capacity: Capacity, *, threads: Optional[int] = None, context: Optional[Context] = None) -> None:
        """Limits each expert to its capacity: choices beyond it become NO_EXPERT with weight 0; the other weights stay as they are.
        Raises InvalidError, NoMemoryError, BusyError."""
        context = context_for(threads, context)
        check(lib.ffn_moe_limit(context and context._handle, byref(capacity._struct()), byref(self._struct())))

    def second_expert(self, policy: SecondExpert, logits: Optional[ArrayLike] = None, *, stream: int = 0, first_token: int = 0) -> None:
        """Applies a policy of second choices, where top_k is 2. Those that are not kept become NO_EXPERT with weight 0. policy "sampled" takes the
        logits [..., experts] and writes both ids; route(..., given=routing) then makes the weights.

        stream, first_token  which layer and step (0 to 2**32 - 1), and the number of the first token, for the random policies. Raises InvalidError."""
        array = shaped(logits, "logits", (*self.leading, self.experts))
        check(lib.ffn_moe_second_expert(byref(policy._struct(stream, first_token)), optional(array), byref(self._struct())))

    def count(self, *, group_tokens: int = 0, choices: int = 0) -> Int64:
        """Tokens per expert, int64 [groups, experts]: those of each group of group_tokens tokens (0: all are one) whose first `choices` choices (0: all)
        have the expert. Count before capacity drops choices, if a loss is over what was asked for. Raises InvalidError."""
        tokens = math.prod(self.leading)
        group = integer(group_tokens, "group_tokens", INT64)
        counts = np.zeros((-(-tokens // group) if group else 1, integer(self.experts, "experts", EXPERTS_MOST)), np.int64)
        check(lib.ffn_moe_count(byref(self._struct()), group, integer(choices, "choices", INT64), address(counts)))
        return counts

    def statistics(self, scores: Optional[ArrayLike] = None) -> Statistics:
        """What the routing amounts to. scores [..., experts], as route writes them. Raises InvalidError."""
        found, array = _abi.MoeStatistics(), shaped(scores, "scores", (*self.leading, self.experts))
        check(lib.ffn_moe_statistics(byref(self._struct()), optional(array), byref(found)))
        return statistics_of(found)


def logits(
    x: ArrayLike,
    weight: ArrayLike,
    *,
    bias: Optional[ArrayLike] = None,
    norm: Optional[str] = None,
    norm_eps: float = 0,
    norm_weight: Optional[ArrayLike] = None,
    out: Optional[ArrayLike] = None,
    threads: Optional[int] = None,
    context: Optional[Context] = None,
) -> Any:
    """A router's logits: weight norm(x) + bias, in float32. A token's bits depend on the token, the weights and the ISA level alone.

    x            [..., d_model], float32
    weight       [experts, d_model], float32; a .T too
    bias         [experts]; norm: "layer" or "rms", before the matrix, with norm_weight [d_model]
    out          [..., experts], float32, contiguous: written, and given back. Without it: a new array

    Raises InvalidError, UnsupportedError (not float32), NoMemoryError, BusyError."""
    context = context_for(threads, context)
    rows, matrix = as_float32(x, "x"), as_float32(weight, "weight")
    if rows.ndim == 0 or matrix.ndim != 2 or matrix.shape[1] != rows.shape[-1]:
        raise InvalidError(f"the shapes of x and weight are {rows.shape} and {matrix.shape}, must be (..., d_model) and (experts, d_model)")
    if not matrix.flags.aligned or any(stride <= 0 for stride in matrix.strides):
        matrix = np.ascontiguousarray(matrix.copy())
    if rows.ndim != 2 or not has_rows(rows):
        rows = np.ascontiguousarray(rows if rows.flags.aligned else rows.copy())
    experts, d_model = matrix.shape
    leading = rows.shape[:-1]
    y = np.empty((*leading, experts), F32) if out is None else shaped(out, "out", (*leading, experts), written=True)
    extras = shaped(bias, "bias", (experts,)), shaped(norm_weight, "norm_weight", (d_model,))
    options = _abi.MoeLogitsOptions(
        d_model=d_model,
        experts=experts,
        weight=address(matrix),
        bias=optional(extras[0]),
        norm=member(_abi.Norm, norm, "norm"),
        norm_eps=number(norm_eps, "norm_eps"),
        norm_weight=optional(extras[1]),
    )
    options.weight_stride[:] = matrix.strides
    stride = rows.strides[0] if rows.ndim == 2 and len(rows) > 1 else 0
    check(
        lib.ffn_moe_logits(context and context._handle, byref(options), math.prod(leading), address(rows), stride, address(y))
    )
    return y if out is None else out


def route(
    logits: ArrayLike,
    top_k: int,
    router: Router = Router(),
    *,
    selection_bias: Optional[ArrayLike] = None,
    expert_scale: Optional[ArrayLike] = None,
    scores: Optional[ArrayLike] = None,
    mask: Optional[ArrayLike] = None,
    given: Optional[Routing] = None,
    out: Optional[Routing] = None,
    threads: Optional[int] = None,
    context: Optional[Context] = None,
) -> Routing:
    """Chooses top_k experts for each token, and weighs them.

    >>> import numpy as np
    >>> routing = route(np.array([[0.0, 2.0, 1.0]], np.float32), 2, Router(normalise="sum"))
    >>> routing.ids
    array([[1, 2]], dtype=int32)

    logits          [..., experts], float32
    selection_bias  [experts]: chooses, and is in no weight. expert_scale [experts]: multiplies the weights
    scores          [..., experts], float32, contiguous: s of every token is written to it, for the losses
    mask            [...], bool or uint8: 0 is padding; `given` and `out` keep it. None: theirs
    given           a Routing whose ids are taken as they are: its weights are written, and it is given back. After one of two choices was dropped, the
                    other's normalised weight is 1
    out             a Routing that is written, and given back. Without both: a new one

    A row with a NaN, or of -inf alone, gets distinct valid ids and NaN for each weight; no other row changes.
    Raises InvalidError, UnsupportedError (not float32), NoMemoryError, BusyError."""
    context = context_for(threads, context)
    array = as_rows(logits, "logits")
    leading, experts = array.shape[:-1], array.shape[-1]
    if given is not None and out is not None:
        raise InvalidError("given and out are both there: the weights of given are written")
    routing = given if given is not None else out if out is not None else Routing.empty(leading, top_k, experts, mask)
    if (routing.leading, routing.top_k, routing.experts) != (leading, top_k, experts):
        raise InvalidError(f"the routing is for {routing.leading} tokens, {routing.top_k} of {routing.experts} experts, not {leading}, {top_k} of {experts}")
    if mask is not None:
        routing._mask = as_mask(mask, leading)
    written = shaped(scores, "scores", array.shape, written=True)
    bias, scale = shaped(selection_bias, "selection_bias", (experts,)), shaped(expert_scale, "expert_scale", (experts,))
    options = router._struct(0 if given is None else _abi.MoeRouterFlag.GIVEN_IDS)
    check(
        lib.ffn_moe_route(
            context and context._handle,
            byref(options),
            address(array),
            optional(bias),
            optional(scale),
            optional(written),
            byref(routing._struct()),
        )
    )
    return routing


def sparse_mixer(
    logits: ArrayLike,
    *,
    jitter_eps: float = 0.01,
    mask: Optional[ArrayLike] = None,
    threads: Optional[int] = None,
    context: Optional[Context] = None,
) -> Routing:
    """SparseMixer, of PhiMoE (arXiv 2409.12136): two experts of each token. logits [..., experts], float32. Its weights do not add up to 1.
    Raises InvalidError, UnsupportedError (not float32), NoMemoryError, BusyError."""
    context = context_for(threads, context)
    array = as_rows(logits, "logits")
    routing = Routing.empty(array.shape[:-1], 2, array.shape[-1], mask)
    eps = number(jitter_eps, "jitter_eps")
    check(lib.ffn_moe_sparse_mixer(context and context._handle, eps, address(array), byref(routing._struct())))
    return routing


def expert_choice(
    scores: ArrayLike,
    capacity: int,
    *,
    group_tokens: int = 0,
    top_k: Optional[int] = None,
    mask: Optional[ArrayLike] = None,
    threads: Optional[int] = None,
    context: Optional[Context] = None,
) -> Routing:
    """Expert choice (arXiv 2202.09368): in each group of group_tokens tokens (0: all) each expert takes the `capacity` tokens with the largest scores for
    it. A token's slots are its experts in ascending order, with their scores as weights.

    scores  [..., experts], float32, as route writes them
    top_k   slots of a token: a token that more experts choose is an InvalidError. None: all experts

    Raises InvalidError, UnsupportedError (not float32), NoMemoryError, BusyError."""
    context = context_for(threads, context)
    array = as_rows(scores, "scores")
    routing = Routing.empty(array.shape[:-1], array.shape[-1] if top_k is None else top_k, array.shape[-1], mask)
    group, most = integer(group_tokens, "group_tokens", INT64), integer(capacity, "capacity", INT64)
    check(lib.ffn_moe_expert_choice(context and context._handle, most, group, address(array), byref(routing._struct())))
    return routing


def hash_routing(token_ids: ArrayLike, table: ArrayLike, experts: int, *, mask: Optional[ArrayLike] = None) -> Routing:
    """Hash routing (arXiv 2106.04426): the ids of a token are the row of a fixed table. Its weights are 0; route(..., given=routing) makes them.

    token_ids  [...], int64: 0 to vocabulary - 1
    table      [vocabulary, top_k], int32: ids as in a Routing

    Raises InvalidError, UnsupportedError (other types)."""
    tokens, rows = as_dense(token_ids, "token_ids", np.int64), as_dense(table, "table", np.int32)
    if rows.ndim != 2:
        raise InvalidError(f"the shape of table is {rows.shape}, must be (vocabulary, top_k)")
    routing = Routing.empty(tokens.shape, rows.shape[1], experts, mask)
    check(lib.ffn_moe_hash(address(tokens), rows.shape[0], address(rows), byref(routing._struct())))
    return routing
