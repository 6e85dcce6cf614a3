# SPDX-License-Identifier: MIT
"""The feed-forward layer whose products reach along the sequence."""
from __future__ import annotations

from contextlib import nullcontext
from ctypes import byref, pointer
from dataclasses import dataclass
from typing import Any, Mapping, Optional, Union

import numpy as np

from . import _abi
from ._arrays import F32, ArrayLike, Float32, address, as_float32, as_mask, as_tensor, check_shape, find_sequences, has_rows, optional
from ._context import INT64, Allocator, Context, context_for, integer, number
from ._errors import InvalidError, check
from ._handles import Handle
from ._health import Stats
from ._native import lib
from ._tensors import ROLES, activation_id, known, member, views, writable
from ._training import Dropout, Tape, run_backward

_NAMES = ("up", "down", "up_taps", "down_taps", "up_bias", "down_bias", "xielu_alpha_p", "xielu_alpha_n")


@dataclass(frozen=True)
class ConvInfo:
    """What a convolutional layer is: Conv.info.

    d_model, d_ff, d_out             widths of input, hidden row and output
    kernel_size, second_kernel_size  of the two convolutions
    separable, second_separable      whether they are
    padding, mask, activation        names, as given to Conv
    engine, isa                      as resolved: never "auto"
    parameters, parameters_of        numbers in all tensors, and by tensor
    bytes                            memory that it holds
    trainable, scale_by_taps         as given to Conv"""

    d_model: int
    d_ff: int
    d_out: int
    kernel_size: int
    second_kernel_size: int
    separable: bool
    second_separable: bool
    padding: str
    mask: str
    activation: str
    engine: str
    isa: str
    parameters: int
    parameters_of: Mapping[str, int]
    bytes: int
    trainable: bool
    scale_by_taps: bool


class Conv(Handle):
    """A convolutional feed-forward layer: y = CONV2(act(CONV1(x))), each convolution along the sequence with k taps; docs/convolution.md has tensor2tensor's
    conv_hidden_relu, FastSpeech's and others. Kernel sizes of 1 make it the position-wise layer.

    up, down              float32 with any strides. Dense: [d_ff, d_model, k] and [d_out, d_ff, k], as PyTorch's Conv1d; without k where it is 1, and where
                          the convolution is separable
    up_taps, down_taps    [d_model, k], [d_ff, k]: make a convolution separable
    up_bias, down_bias    [d_ff], [d_out]
    activation, alpha, beta, xielu_alpha_p, xielu_alpha_n     as those of libffn.Layer
    padding               "same", or "left": causal
    mask                  where the mask of a call makes zeros: "taps": in the input of each convolution whose k is not 1; "all": in the input of both, and
                          in y
    scale_by_taps         each convolution is multiplied by k^-1/2
    d_model, d_ff, d_out, kernel_size, second_kernel_size     to be checked against the tensors' shapes; 0: taken from them
    engine, max_isa, trainable, context, allocator            as those of libffn.Layer; a trainable one has the blas engine

    It never changes (but by update), and any number of threads may call it at once. Raises as libffn.Layer does."""

    _free, _instead = lib.ffn_conv_free, "make it in the process that uses it, or send its weights()"

    def __init__(
        self,
        up: ArrayLike,
        down: ArrayLike,
        *,
        activation: str,
        up_taps: Optional[ArrayLike] = None,
        down_taps: Optional[ArrayLike] = None,
        up_bias: Optional[ArrayLike] = None,
        down_bias: Optional[ArrayLike] = None,
        alpha: float = 0,
        beta: float = 0,
        xielu_alpha_p: Union[ArrayLike, float, None] = None,
        xielu_alpha_n: Union[ArrayLike, float, None] = None,
        padding: str = "same",
        mask: str = "taps",
        scale_by_taps: bool = False,
        d_model: int = 0,
        d_ff: int = 0,
        d_out: int = 0,
        kernel_size: int = 0,
        second_kernel_size: int = 0,
        engine: Optional[str] = None,
        max_isa: Optional[str] = None,
        trainable: bool = False,
        context: Optional[Context] = None,
        allocator: Optional[Allocator] = None,
    ) -> None:
        given = locals()
        arrays = {name: as_tensor(given[name], name) for name in _NAMES if given[name] is not None}
        tensors = views(arrays)
        options = _abi.ConvOptions(
            flags=_abi.ConvFlag.SCALE_BY_TAPS * bool(scale_by_taps) | _abi.ConvFlag.TRAINABLE * bool(trainable),
            padding=member(_abi.ConvPadding, padding, "padding"),
            mask=member(_abi.ConvMask, mask, "mask"),
            activation=activation_id(activation),
            alpha=number(alpha, "alpha"),
            beta=number(beta, "beta"),
            engine=member(_abi.Engine, engine, "engine"),
            max_isa=member(_abi.Isa, max_isa, "max_isa"),
            tensors=tensors,
            tensor_count=len(tensors),
            allocator=allocator and allocator._pointer,
        )
        for name in ("d_model", "d_ff", "d_out", "kernel_size", "second_kernel_size"):
            setattr(options, name, integer(given[name], name, INT64))
        self._own(lambda made: check(lib.ffn_conv_create(context and context._handle, byref(options), made)), allocator)
        info = self._read_info()
        self._d_model, self._d_out = info.d_model, info.d_out

    def __repr__(self) -> str:
        info = self.info
        kernels = f"kernel sizes {info.kernel_size}{' separable' * info.separable} and {info.second_kernel_size}{' separable' * info.second_separable}"
        return f"<libffn.Conv {info.d_model}-{info.d_ff}-{info.d_out} {info.activation}, {kernels}, {info.parameters:,} parameters>"

    def __call__(
        self,
        x: ArrayLike,
        *,
        out: Optional[ArrayLike] = None,
        mask: Optional[ArrayLike] = None,
        dropout: Optional[Dropout] = None,
        tape: Optional[Tape] = None,
        stats: Optional[Stats] = None,
        threads: Optional[int] = None,
        context: Optional[Context] = None,
    ) -> Any:
        """Runs the layer on sequences: rows along the last but one dimension of x.

        x        [..., length, d_model], float32, read where it lies if its rows are dense and the sequences one stride apart; else copied
        out      [..., length, d_out], float32: written, and given back. It must not be x. Without it: a new array
        mask     [..., length], bool or uint8: 0 where the position is padding
        stats    a Stats(d_ff) that counts what the hidden units do at the positions that are no padding
        dropout, tape, threads, context   as those of a libffn.Layer's call; the tape borrows the mask too

        Raises InvalidError, UnsupportedError, NoMemoryError, BusyError, as a libffn.Layer's call."""
        context = context_for(threads, context)
        with nullcontext() if tape is None else tape._lent() as handle, nullcontext() if stats is None else stats._lent() as stats_handle:
            return self._run(x, out, mask, dropout, tape, handle, stats_handle, context)

    def _run(
        self,
        x: ArrayLike,
        out: Optional[ArrayLike],
        mask: Optional[ArrayLike],
        dropout: Optional[Dropout],
        tape: Optional[Tape],
        tape_handle: Optional[int],
        stats_handle: Optional[int],
        context: Optional[Context],
    ) -> Any:
        rows = as_float32(x, "x")
        if rows.ndim < 2 or rows.shape[-1] != self._d_model:
            raise InvalidError(f"the shape of x is {rows.shape}, must be (..., length, {self._d_model}) (d_model)")
        leading = rows.shape[:-1]
        y = None if out is None else as_float32(out, "out", written=True)
        if y is not None:
            check_shape(y, "out", leading, self._d_out)
        padding = as_mask(mask, leading)
        rows = rows if has_rows(rows) else rows.copy()
        written = y if y is not None and has_rows(y) else np.empty((*leading, self._d_out), F32)
        found = find_sequences([rows, written])
        if found is None:
            rows, written = np.array(rows, F32, order="C"), np.empty((*leading, self._d_out), F32)
            found = find_sequences([rows, written])
        assert found is not None
        run = _abi.ConvRun(batch=found.batch, length=found.length, x=address(rows), y=address(written), mask=optional(padding), tape=tape_handle, stats=stats_handle)
        run.x_stride[:], run.y_stride[:] = found.strides
        if dropout is not None:
            run.dropout = pointer(dropout._struct())
        check(lib.ffn_conv_run(self._handle, context and context._handle, byref(run)))
        if tape is not None:
            tape._record(self._handle, leading, [rows] if padding is None else [rows, padding])
        if y is not None and written is not y:
            y[...] = written
        return out if y is not None else written

    def backward(
        self,
        tape: Tape,
        d_y: ArrayLike,
        gradients: Optional[Mapping[str, ArrayLike]] = None,
        *,
        accumulate: bool = False,
        d_x: Optional[ArrayLike] = None,
        threads: Optional[int] = None,
        context: Optional[Context] = None,
    ) -> None:
        """The backward pass of the call that was recorded on `tape`, as libffn.Layer.backward, through the same dropout and mask. d_x must be apart from
        d_y; gradients of dense convolutions are [out, in, k], without gaps along in and k."""
        run_backward(lib.ffn_conv_backward, self, tape, d_y, gradients, accumulate, d_x, None, context_for(threads, context))

    def update(self, *, threads: Optional[int] = None, context: Optional[Context] = None, **tensors: Union[ArrayLike, float]) -> None:
        """Puts new values of some tensors into a trainable layer, as libffn.Layer.update."""
        context = context_for(threads, context)
        arrays = {known(name): as_tensor(value, name) for name, value in tensors.items()}
        found = views(arrays)
        check(lib.ffn_conv_update(self._handle, context and context._handle, found, len(found)))

    def reserve(
        self, batch: int, length: int, *, tape: Optional[Tape] = None, threads: Optional[int] = None, context: Optional[Context] = None
    ) -> None:
        """Allocates the scratch memory that calls (and backward passes) of up to batch * length positions need, and the tape's. What was recorded on it is
        lost. Raises InvalidError, UnsupportedError, NoMemoryError, BusyError."""
        context = context_for(threads, context)
        handle, sizes = context and context._handle, (integer(batch, "batch", INT64), integer(length, "length", INT64))
        if tape is None:
            check(lib.ffn_conv_reserve(self._handle, handle, None, *sizes))
            return
        with tape._lent() as room:
            check(lib.ffn_conv_reserve(self._handle, handle, room, *sizes))
            tape._record(None, (), ())

    def _read_info(self) -> _abi.ConvInfo:
        info = _abi.ConvInfo()
        check(lib.ffn_conv_info(self._handle, byref(info)))
        return info

    @property
    def info(self) -> ConvInfo:
        """What the layer is."""
        info = self._read_info()
        return ConvInfo(
            d_model=info.d_model,
            d_ff=info.d_ff,
            d_out=info.d_out,
            kernel_size=info.kernel_size,
            second_kernel_size=info.second_kernel_size,
            separable=bool(info.separable & 1),
            second_separable=bool(info.separable & 2),
            padding=_abi.ConvPadding(info.padding).name.lower(),
            mask=_abi.ConvMask(info.mask).name.lower(),
            activation=lib.ffn_activation_name(info.activation).decode(),
            engine=_abi.Engine(info.engine).name.lower(),
            isa=_abi.Isa(info.isa).name.lower(),
            parameters=info.parameters,
            parameters_of={name: info.parameters_of[ROLES[name]] for name in _NAMES if info.parameters_of[ROLES[name]]},
            bytes=info.bytes,
            trainable=bool(info.flags & _abi.ConvFlag.TRAINABLE),
            scale_by_taps=bool(info.flags & _abi.ConvFlag.SCALE_BY_TAPS),
        )

    def weights(self) -> dict[str, Float32]:
        """Every tensor of the layer, exactly as it was given, in new arrays under the names of Conv's arguments; dense convolutions whose k is not 1 as
        [out, in, k]."""
        info = self.info
        taps, second = ((k,) if k != 1 and not separable else () for k, separable in (
            (info.kernel_size, info.separable), (info.second_kernel_size, info.second_separable),
        ))  # fmt: skip
        shapes: dict[str, tuple[int, ...]] = {
            "up": (info.d_ff, info.d_model, *taps),
            "down": (info.d_out, info.d_ff, *second),
            "up_taps": (info.d_model, info.kernel_size),
            "down_taps": (info.d_ff, info.second_kernel_size),
        }
        arrays = {name: np.empty(shapes.get(name, (count,)), F32) for name, count in info.parameters_of.items()}
        self.read(**arrays)
        return arrays

    def read(self, **tensors: ArrayLike) -> None:
        """Writes tensors of the layer into arrays of yours, as libffn.Layer.read; here the ranges of two arrays must be apart."""
        arrays = writable(tensors)
        found = views(arrays)
        check(lib.ffn_conv_read(self._handle, found, len(found)))
