# SPDX-License-Identifier: MIT
"""Initialisation of weights, and steps of optimisers, over arrays of the caller's."""
from __future__ import annotations

from ctypes import byref, c_double, c_int64, c_void_p
from typing import Any, Iterable, Mapping, Optional, Union

import numpy as np

from . import _abi
from ._arrays import F32, ArrayLike, Float32, address, as_float32
from ._context import INT64, UINT64, Context, context_for, integer, number
from ._errors import InvalidError, check
from ._native import lib
from ._tensors import member


def weight_init(
    values: ArrayLike,
    scheme: str,
    *,
    seed: int,
    stream: int = 0,
    fan_in: Optional[int] = None,
    fan_out: Optional[int] = None,
    layers: int = 0,
    gain: float = 0,
    cutoff: float = 0,
    keep_variance: bool = False,
) -> Any:
    """Fills an array with random weights, and gives it back.

    >>> import numpy as np
    >>> up = weight_init(np.empty((2048, 512), np.float32), "kaiming_normal", seed=1, stream=0)

    With U(b) uniform in [-b, b] and N(s) normal with standard deviation s, g the gain ("(v)": its default), L the layers, in and out the fans:

    xavier_uniform U(g sqrt(6 / (in + out))), g (1); xavier_normal N(g sqrt(2 / (in + out))), g (1); kaiming_uniform U(g sqrt(3 / in)), g (sqrt 2);
    kaiming_normal N(g / sqrt(in)), g (sqrt 2); lecun_normal N(g / sqrt(in)), g (1); normal N(g), g (0.02); truncated_normal the same, cut at `cutoff`
    (2) standard deviations; torch_linear U(1 / sqrt(in)); t5 N(g / sqrt(in)), g (1); gpt2_scaled N(g / sqrt(2 L)), g (0.02); neox_small
    N(sqrt(2 / (5 in))); neox_wang N(2 / (L sqrt(out))); uniform_unit_scaling U(sqrt(6 g / (in + out))), g (1)

    values           float32 of any shape and strides. Element i, counted with the last dimension fastest, depends on scheme, seed, stream and i alone
    seed, stream     any number of 64 bits; which array of that seed: 0 to 2**32 - 1. Arrays with different streams are independent
    fan_in, fan_out  of the matrix [out, in]. Left out: those of `values`, if that is a matrix. Of a bias: the matrix's; of gate and up in one array:
                     each one's own
    layers           of the model: gpt2_scaled, neox_wang
    gain, cutoff     0: the scheme's default. cutoff: normal schemes draw within so many standard deviations
    keep_variance    with a cutoff: the standard deviation is that after the cut

    Raises InvalidError, UnsupportedError (not float32)."""
    array = as_float32(values, "values", written=True)
    if array.ndim == 2:
        fan_in, fan_out = array.shape[1] if fan_in is None else fan_in, array.shape[0] if fan_out is None else fan_out
    options = _abi.InitOptions(
        flags=_abi.InitFlag.KEEP_VARIANCE if keep_variance else 0,
        scheme=member(_abi.Init, scheme, "scheme"),
        gain=number(gain, "gain"),
        seed=integer(seed, "seed", UINT64),
        stream=integer(stream, "stream", UINT64),
        fan_in=integer(fan_in or 0, "fan_in", INT64),
        fan_out=integer(fan_out or 0, "fan_out", INT64),
        layers=integer(layers, "layers", INT64),
        cutoff=number(cutoff, "cutoff"),
    )
    filled = array if array.flags.c_contiguous and array.flags.aligned else np.empty(array.shape, F32)
    check(lib.ffn_weight_init(address(filled), filled.size, byref(options)))
    if filled is not array:
        array[...] = filled
    return values


def _alike(read: Mapping[str, ArrayLike], written: Mapping[str, Optional[ArrayLike]]) -> tuple[dict[str, int], int]:
    """Addresses of arrays of one shape that lie in memory alike and without a gap, so that they can be gone through as one row; and their size."""
    arrays: dict[str, Float32] = {name: as_float32(value, name, written=True) for name, value in written.items() if value is not None}
    arrays.update({name: as_float32(value, name) for name, value in read.items()})
    (first, like), *others = arrays.items()
    for name, array in others:
        if array.shape != like.shape:
            raise InvalidError(f"the shape of {name} is {array.shape}, must be {like.shape}, as that of {first}")
    dense = all(array.flags.c_contiguous for array in arrays.values()) or all(array.flags.f_contiguous for array in arrays.values())
    if not dense or not all(array.flags.aligned for array in arrays.values()):
        raise InvalidError(f"{', '.join(arrays)} must be contiguous, in the same order of their dimensions")
    return {name: address(array) for name, array in arrays.items()}, like.size


def sgd_step(
    weight: ArrayLike,
    gradient: ArrayLike,
    velocity: Optional[ArrayLike] = None,
    *,
    learning_rate: float,
    momentum: float = 0,
    weight_decay: float = 0,
    nesterov: bool = False,
    threads: Optional[int] = None,
    context: Optional[Context] = None,
) -> None:
    """One step of SGD in place: g = gradient + weight_decay * weight; velocity = momentum * velocity + g; weight -= learning_rate * velocity, or with
    nesterov learning_rate * (g + momentum * velocity).

    weight, gradient, velocity  float32 of one shape, contiguous in the same order; they must not overlap. velocity is the optimiser's state, zeros
                                before the first step; None where momentum is 0
    learning_rate, weight_decay finite, at least 0; momentum 0 to below 1. nesterov needs momentum
    threads, context            as those of a layer's call; results do not depend on them

    Raises InvalidError, UnsupportedError (not float32), NoMemoryError, BusyError."""
    context = context_for(threads, context)
    arrays, size = _alike({"gradient": gradient}, {"weight": weight, "velocity": velocity})
    options = _abi.SgdOptions(
        flags=_abi.SgdFlag.NESTEROV if nesterov else 0,
        learning_rate=number(learning_rate, "learning_rate"),
        momentum=number(momentum, "momentum"),
        weight_decay=number(weight_decay, "weight_decay"),
    )
    handle = context and context._handle
    check(lib.ffn_sgd_step(handle, byref(options), size, arrays["weight"], arrays["gradient"], arrays.get("velocity")))


def adamw_step(
    weight: ArrayLike,
    gradient: ArrayLike,
    first: ArrayLike,
    second: ArrayLike,
    *,
    step: int,
    learning_rate: float,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0,
    threads: Optional[int] = None,
    context: Optional[Context] = None,
) -> None:
    """One step of AdamW in place (Loshchilov & Hutter, arXiv 1711.05101): m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g^2;
    weight -= learning_rate * (weight_decay * weight + m / (1 - beta1^step) / (sqrt(v / (1 - beta2^step)) + eps)).

    weight, gradient   float32 of one shape, contiguous in the same order, as first and second; they must not overlap
    first, second      m and v, the optimiser's state: zeros before step 1
    step               1, 2, 3, ...
    beta1, beta2, eps  0 stands for the default, as in C
    weight_decay       decoupled from the gradient. 0: none, which is Adam
    threads, context   as those of a layer's call; results do not depend on them

    Raises InvalidError, UnsupportedError (not float32), NoMemoryError, BusyError."""
    context = context_for(threads, context)
    arrays, size = _alike({"gradient": gradient}, {"weight": weight, "first": first, "second": second})
    options = _abi.AdamwOptions(
        step=integer(step, "step", INT64),
        learning_rate=number(learning_rate, "learning_rate"),
        beta1=number(beta1, "beta1"),
        beta2=number(beta2, "beta2"),
        eps=number(eps, "eps"),
        weight_decay=number(weight_decay, "weight_decay"),
    )
    handle = context and context._handle
    check(lib.ffn_adamw_step(handle, byref(options), size, *(arrays[name] for name in ("weight", "gradient", "first", "second"))))


def clip_global_norm(
    gradients: Union[Mapping[Any, ArrayLike], Iterable[ArrayLike]],
    max_norm: float,
    *,
    threads: Optional[int] = None,
    context: Optional[Context] = None,
) -> float:
    """Clips gradients in place by their global norm, and gives it: the square root of the sum of squares over all arrays, summed in float64. If it is
    above max_norm and finite, every number is multiplied by max_norm / norm. With a norm that is not finite nothing is changed: leave that step out.

    gradients         arrays of float32, contiguous in some order of their dimensions; or a mapping, whose values are taken. They must not overlap
    max_norm          above 0; math.inf only measures
    threads, context  as those of a layer's call; results do not depend on them

    Raises InvalidError, UnsupportedError (not float32), NoMemoryError, BusyError."""
    context = context_for(threads, context)
    values = gradients.values() if isinstance(gradients, Mapping) else gradients
    arrays = [as_float32(value, f"gradient {i}", written=True) for i, value in enumerate(values)]
    for i, array in enumerate(arrays):
        if not (array.flags.c_contiguous or array.flags.f_contiguous):
            raise InvalidError(f"gradient {i} has gaps between its elements, must be contiguous")
    addresses = (c_void_p * len(arrays))(*(address(array) for array in arrays))
    counts = (c_int64 * len(arrays))(*(array.size for array in arrays))
    norm, limit = c_double(), number(max_norm, "max_norm")
    check(lib.ffn_clip_global_norm(context and context._handle, addresses, counts, len(arrays), limit, byref(norm)))
    return norm.value
