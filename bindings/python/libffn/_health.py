# SPDX-License-Identifier: MIT
"""Whether a layer is healthy: what its hidden units do, and the numbers of its tensors and gradients."""
from __future__ import annotations

from ctypes import byref, c_double
from dataclasses import dataclass
from typing import Any, Callable, Optional, Union

import numpy as np
import numpy.typing as npt

from . import _abi
from ._arrays import ArrayLike, address, as_tensor
from ._context import INT64, Allocator, Context, context_for, integer
from ._errors import InvalidError, check
from ._handles import SingleHandle
from ._native import lib

#: The whole range of hidden_density_logit: of a unit that is never on, and of one that always is.
LOGIT_RANGE = (float(np.log(np.exp(-10)) - np.log(1 + np.exp(-10))), float(np.log(1 + np.exp(-10)) - np.log(np.exp(-10))))


@dataclass(frozen=True)
class StatsInfo:
    """What all units of a layer did: Stats.info.

    d_ff          hidden units, of a mixture those of each expert
    positions     rows counted so far; of a mixture of all experts, and of the shared ones, together
    positive      activations > 0
    non_finite    activations that are infinite or NaN
    dead_units    units that were never > 0, and had a position
    density       positive / activations; NaN without a position
    mean          of |activation|, over the finite ones; NaN if there is none
    largest       |activation|, of the finite ones; 0 if there is none
    experts       of a mixture, 0 of a layer; d_shared: hidden width of its shared experts
    units         all of them: d_ff, or experts * d_ff + d_shared
    activations   counted so far: for each unit its positions
    unseen_units  units that had no position: of experts that no token came to"""

    d_ff: int
    positions: int
    positive: int
    non_finite: int
    dead_units: int
    density: float
    mean: float
    largest: float
    experts: int
    d_shared: int
    units: int
    activations: int
    unseen_units: int


class Stats(SingleHandle):
    """Counts what the hidden units of a layer do while it runs: y = layer(x, stats=stats), in training and in inference.

    >>> stats = Stats(layer.info.d_ff)
    >>> for x in batches:
    ...     layer(x, stats=stats)
    >>> stats.info.dead_units, stats.info.density, stats.density.max()

    A unit's activation at a row is act(W_up x + b_up), or with a gate act(W_gate x + b_gate), before the product with the other branch; after dropout
    before the activation, and before every other. The counts are exact, whatever the threads and the order of calls; y has the same bits as without.
    A Conv counts its first convolution's, where the mask is not 0. In a mixture unit j of expert e is number e * d_ff + j, unit j of the shared experts
    experts * d_ff + j, and each is judged by the tokens that its expert computed: those of an expert without tokens are unseen, not dead.

    d_ff       hidden units of the layers that it will count for, of mixtures those of each expert
    experts    of mixtures; 0: of layers without
    d_shared   of mixtures: hidden units of the shared experts. Stats(info.d_ff, experts=info.experts, d_shared=info.d_shared) with info = layer.info fits
               every layer
    allocator  an Allocator for its memory

    One call at a time: a second one at once gets BusyError. Threads that run a layer at once have a Stats each, and merge adds them up.
    Raises InvalidError, NoMemoryError."""

    _free, _instead = lib.ffn_stats_free, "send what is read from it"
    _busy = "the stats are inside another call"

    def __init__(self, d_ff: int, *, experts: int = 0, d_shared: int = 0, allocator: Optional[Allocator] = None) -> None:
        options = _abi.StatsOptions(
            d_ff=integer(d_ff, "d_ff", INT64),
            allocator=allocator and allocator._pointer,
            experts=integer(experts, "experts", INT64),
            d_shared=integer(d_shared, "d_shared", INT64),
        )
        self._own(lambda made: check(lib.ffn_stats_create(byref(options), made)), allocator)
        self._units_shape = self.info.units
        self._experts_shape = max(1, int(options.experts)) + int(options.d_shared > 0)

    @property
    def info(self) -> StatsInfo:
        """The sums over all units."""
        info = _abi.StatsInfo()
        with self._lent() as handle:
            check(lib.ffn_stats_info(handle, byref(info)))
        return StatsInfo(**{name: getattr(info, name) for name in StatsInfo.__dataclass_fields__})

    def _read(self, function: Callable[..., Any], which: int, made: npt.NDArray[Any]) -> npt.NDArray[Any]:
        places: list[Optional[int]] = [None, None, None]
        places[which] = address(made)
        with self._lent() as handle:
            check(function(handle, *places))
        return made

    def _units(self, which: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        return self._read(lib.ffn_stats_units, which, np.empty(self._units_shape, dtype))

    def _experts(self, which: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        return self._read(lib.ffn_stats_experts, which, np.empty(self._experts_shape, dtype))

    @property
    def positive(self) -> npt.NDArray[np.int64]:
        """[info.units]: the rows where each unit was > 0."""
        return self._units(0, np.int64)

    @property
    def density(self) -> npt.NDArray[np.float64]:
        """[info.units]: the share of rows where each unit was > 0; NaN without a row."""
        return self._units(1, np.float64)

    @property
    def density_logit(self) -> npt.NDArray[np.float64]:
        """[info.units]: log(f + e^-10) - log(1 - f + e^-10) of each unit's density f, tensor2tensor's hidden_density_logit: -10 is dead, 10 always on."""
        return self._units(2, np.float64)

    @property
    def expert_positions(self) -> npt.NDArray[np.int64]:
        """[experts, and one more for the shared ones]: the tokens that each expert computed. Of a layer without experts: [1]."""
        return self._experts(0, np.int64)

    @property
    def expert_density(self) -> npt.NDArray[np.float64]:
        """Likewise the share of each expert's activations that are > 0; NaN without a token."""
        return self._experts(1, np.float64)

    @property
    def expert_dead_units(self) -> npt.NDArray[np.int64]:
        """Likewise each expert's dead units; 0 without a token."""
        return self._experts(2, np.int64)

    def histogram(self, bins: Union[int, ArrayLike] = 40) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """The histogram of density_logit, as numpy.histogram gives it: units by bin, and the edges.

        bins  a number of bins of equal width over the whole range, in which every unit is that had a row; or ascending edges, infinite ones too, outside of which
              units count nowhere"""
        given = np.ndim(bins) > 0
        edges = np.array(bins, np.float64) if given else np.linspace(*LOGIT_RANGE, integer(bins, "bins", 2**20) + 1)
        if edges.ndim != 1 or edges.size < 2:
            raise InvalidError(f"bins is {bins!r}, must be a number from 1 to {2**20}, or at least two edges")
        counts = np.empty(edges.size - 1, np.int64)
        with self._lent() as handle:
            check(lib.ffn_stats_histogram(handle, counts.size, address(edges) if given else None, address(counts)))
        return counts, edges

    def reset(self) -> None:
        """Back to having counted nothing."""
        with self._lent() as handle:
            check(lib.ffn_stats_reset(handle))

    def merge(self, other: Stats) -> None:
        """Adds what another Stats of the same d_ff, experts and d_shared has counted. Raises InvalidError, BusyError."""
        if other is self:
            raise InvalidError("the stats to add are the same")
        with self._lent() as handle, other._lent() as added:
            check(lib.ffn_stats_merge(handle, added))


@dataclass(frozen=True)
class TensorHealth:
    """The numbers of a tensor: tensor_health.

    count       how many
    zeros       0 and -0
    non_finite  infinities and NaN
    norm        the square root of the sum of squares, in float64: infinite or NaN where a number is
    largest     |number|, of the finite ones; 0 if there is none"""

    count: int
    zeros: int
    non_finite: int
    norm: float
    largest: float


def _tensor(value: ArrayLike, name: str) -> tuple[Any, npt.NDArray[np.float32]]:
    """The view, and the array that must outlive it: one of more than four dimensions, which the library does not take, as one of one."""
    array = as_tensor(value, name)
    if array.ndim > 4:
        array = array.reshape(-1)
    tensor = _abi.Tensor(ndim=array.ndim, data=address(array))
    tensor.shape[: array.ndim] = array.shape
    tensor.stride[: array.ndim] = array.strides
    return tensor, array


def tensor_health(tensor: ArrayLike, *, threads: Optional[int] = None, context: Optional[Context] = None) -> TensorHealth:
    """Looks at the numbers of a weight, a gradient, an update: float32 of any shape and strides.

    threads, context  as those of a layer's call; results do not depend on them

    Raises UnsupportedError (not float32), NoMemoryError, BusyError."""
    given, kept = _tensor(tensor, "tensor")
    health = _abi.TensorHealth()
    context = context_for(threads, context)
    check(lib.ffn_tensor_health(context and context._handle, byref(given), byref(health)))
    return TensorHealth(**{name: getattr(health, name) for name in TensorHealth.__dataclass_fields__})


def update_ratio(before: ArrayLike, after: ArrayLike, *, threads: Optional[int] = None, context: Optional[Context] = None) -> float:
    """How far a step moved a tensor: norm(after - before) / norm(before), in float64. 1e-3 is usual in training. 0 where nothing moved, infinite where
    something moved away from zeros. (Of an update that is an array of its own, divide two norms of tensor_health.)

    before, after     float32 of one shape, any strides
    threads, context  as those of a layer's call; results do not depend on them

    Raises InvalidError, UnsupportedError (not float32), NoMemoryError, BusyError."""
    if np.shape(before) != np.shape(after):
        raise InvalidError(f"the shape of after is {np.shape(after)}, must be {np.shape(before)}, as that of before")
    old, kept_old = _tensor(before, "before")
    new, kept_new = _tensor(after, "after")
    ratio = c_double()
    context = context_for(threads, context)
    check(lib.ffn_update_ratio(context and context._handle, byref(old), byref(new), byref(ratio)))
    return ratio.value
