# SPDX-License-Identifier: MIT
"""Training through a layer: dropout, the tape, and the backward pass. Layer's methods come here."""
from __future__ import annotations

from ctypes import byref, pointer
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Iterable, Mapping, Optional, Sequence, Union

import numpy as np

from . import _abi
from ._arrays import F32, ArrayLike, Float32, address, as_float32, check_shape, find_sequences, has_rows, optional
from ._context import INT64, UINT64, Allocator, Context, integer, number
from ._errors import InvalidError, check
from ._handles import SingleHandle
from ._moe_layer import Gradients
from ._native import lib
from ._tensors import views, writable

if TYPE_CHECKING:
    from ._conv import Conv
    from ._layer import Layer

_SITES = tuple(site.name.lower() for site in _abi.DropoutSite)


@dataclass(frozen=True)
class Dropout:
    """Dropout of one call: each number is dropped, to 0 whatever it was, with probability p, else multiplied by 1 / (1 - p). p is 0 to 1; 0 leaves a
    site alone, to the bit.

    pre_activation  p on W_up x + b_up; with a gate on W_gate x + b_gate, before its clamp                  Reformer
    activation      p on act(...)                                                                           the Transformer's relu_dropout
    hidden          p on the hidden row, before NORM_MID; with a gate on the product                        T5, ModernBERT
    branch          p on NORM_BRANCH(W_down h + b_down)                                                     residual dropout: BERT, GPT-2
    path            p of the whole branch of a sequence (x[i, ..., :, :]) at once: DropPath                 DINOv2, BEiT
    seed            any number of 64 bits
    step            of training: 0 to 2**32 - 1. dataclasses.replace(dropout, step=n) is that of another step
    layer           number of the layer in the model: 0 to 65534
    broadcast       sites with one mask for all rows of a sequence: ("hidden", "branch")
    first_row, first_sequence   numbers of the call's first row and sequence, where a batch goes through in parts

    What is dropped is a function of these and of a number's place alone (Philox 4x32-10; ffn.h has the formula): the same for any number of threads,
    in every part of a batch, and in the backward pass."""

    seed: int = 0
    step: int = 0
    layer: int = 0
    pre_activation: float = 0
    activation: float = 0
    hidden: float = 0
    branch: float = 0
    path: float = 0
    broadcast: Sequence[str] = ()
    first_row: int = 0
    first_sequence: int = 0

    def _struct(self) -> _abi.Dropout:
        if isinstance(self.broadcast, str) or not isinstance(self.broadcast, Iterable):
            raise InvalidError(f"broadcast is {self.broadcast!r}, must be a tuple of sites")
        for site in self.broadcast:
            if site not in _SITES:
                raise InvalidError(f"broadcast has {site!r}, must be of {', '.join(_SITES)}")
        made = _abi.Dropout(
            broadcast=sum(1 << i for i, site in enumerate(_SITES) if site in self.broadcast),
            seed=integer(self.seed, "seed", UINT64),
            step=integer(self.step, "step", UINT64),
            layer=integer(self.layer, "layer", UINT64),
            first_row=integer(self.first_row, "first_row", INT64),
            first_sequence=integer(self.first_sequence, "first_sequence", INT64),
        )
        for i, site in enumerate(_SITES):
            made.p[i] = number(getattr(self, site), site)
        return made


class Tape(SingleHandle):
    """What a forward pass leaves for the backward pass: layer(x, tape=tape), then layer.backward(tape, d_y, ...).

    recompute  the backward pass computes the pre-activations again, from x: no memory for them, and one product more. Without it they are kept,
               [rows, d_ff], with a gate twice that: the fastest
    allocator  an Allocator for its memory

    It is used up by the backward pass, and may then record again, also for another layer; it allocates only where it has to grow. It borrows x (and an
    external residual): it keeps a reference to them until the backward pass has read them, and their numbers must stay as they are until then. One call
    at a time: a second one at once gets BusyError. Raises NoMemoryError."""

    _free, _instead = lib.ffn_tape_free, "make one in the process that uses it"
    _busy = "the tape is inside another call"

    def __init__(self, *, recompute: bool = False, allocator: Optional[Allocator] = None) -> None:
        options = _abi.TapeOptions(flags=_abi.TapeFlag.RECOMPUTE if recompute else 0, allocator=allocator and allocator._pointer)
        self._borrowed: Sequence[Float32] = ()
        self._leading: tuple[int, ...] = ()
        self._recorder: Optional[int] = None
        self._experts, self._top_k = 0, 0
        self._own(lambda made: check(lib.ffn_tape_create(byref(options), made)), allocator)

    def _record(
        self, recorder: Optional[int], leading: tuple[int, ...], borrowed: Sequence[Float32], experts: int = 0, top_k: int = 0
    ) -> None:
        self._recorder, self._leading, self._borrowed = recorder, leading, borrowed
        self._experts, self._top_k = experts, top_k

    def reserve(self, layer: Layer, tokens: int) -> None:
        """Allocates what recording calls of `layer` on up to `tokens` rows needs. What was recorded is lost.
        Raises InvalidError, UnsupportedError (a layer that is not trainable), NoMemoryError, BusyError."""
        with self._lent() as handle:
            check(lib.ffn_tape_reserve(handle, layer._handle, integer(tokens, "tokens", INT64)))
            self._record(None, (), ())


def run_backward(
    function: Any,
    layer: Union[Layer, Conv],
    tape: Tape,
    d_y: ArrayLike,
    gradients: Optional[Mapping[str, ArrayLike]],
    accumulate: bool,
    d_x: Optional[ArrayLike],
    d_residual: Optional[ArrayLike],
    context: Optional[Context],
    moe: Optional[Gradients] = None,
) -> None:
    """Layer.backward, and Conv's: `function` is the library's."""
    written = writable(gradients or {})
    tensors = views(written)
    flags = _abi.BackwardFlag.ACCUMULATE if accumulate else 0
    with tape._lent() as handle:
        given = _abi.Backward(tape=handle, flags=flags, gradients=tensors, gradient_count=len(tensors))
        if tape._recorder == layer._handle:  # else the library says what is wrong with the tape
            arrays, targets = _backward_rows(layer, tape._leading, d_y, d_x, d_residual)
            rows = find_sequences(list(arrays.values()))
            assert rows is not None
            for (name, array), strides in zip(arrays.items(), rows.strides):
                setattr(given, name, address(array))
                getattr(given, f"{name}_stride")[:] = strides
            if moe is not None:
                particular, _kept = moe._struct(tape._leading, tape._experts)
                target = moe._target(tape._leading, tape._top_k)
                particular.d_weights = optional(target)
                given.moe = pointer(particular)
        check(function(layer._handle, context and context._handle, byref(given)))
        if tape._recorder == layer._handle:
            for name, target in targets.items():
                if arrays[name] is not target:
                    target[...] = arrays[name]
        tape._borrowed = ()


def _backward_rows(
    layer: Union[Layer, Conv], leading: tuple[int, ...], d_y: ArrayLike, d_x: Optional[ArrayLike], d_residual: Optional[ArrayLike]
) -> tuple[dict[str, Float32], dict[str, Float32]]:
    """The arrays that the library gets, and those of the caller's that are written. They are the same where the library can use these."""
    d_out, d_model = layer._d_out, layer._d_model
    arrays, targets = {"d_y": as_float32(d_y, "d_y")}, {}
    check_shape(arrays["d_y"], "d_y", leading, d_out)
    for name, value, width in (("d_x", d_x, d_model), ("d_residual", d_residual, d_out)):
        if value is not None:
            targets[name] = as_float32(value, name, written=True)
            check_shape(targets[name], name, leading, width)
    arrays.update(targets)
    arrays = {name: array if has_rows(array) else array.copy() for name, array in arrays.items()}
    if find_sequences(list(arrays.values())) is None:
        arrays = {name: np.array(array, F32, order="C") for name, array in arrays.items()}
    return arrays, targets
