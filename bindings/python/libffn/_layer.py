# SPDX-License-Identifier: MIT
"""The layer."""
from __future__ import annotations

from contextlib import nullcontext
from ctypes import addressof, byref, c_char, pointer
from dataclasses import dataclass
from typing import Any, Callable, Mapping, Optional, Union

import numpy as np

from . import _abi
from ._arrays import F32, DENSE, WRITABLE, ArrayLike, Float32, address, as_float32, check_dimension, check_shape, find_rows, find_sequences, has_rows
from ._context import INT64, Allocator, Context, context_for, integer, number
from ._errors import InvalidError, check
from ._handles import Handle
from ._health import Stats
from ._moe import statistics_of
from ._moe_layer import Call, Gradients, Mixture
from ._native import lib
from ._tensors import ROLES, SLOTS, activation_id, given_tensor, known, member, shapes_of, views, writable
from ._training import Dropout, Tape, run_backward

# what every call needs, found without asking a module for it
ndarray, empty, _forward = np.ndarray, np.empty, lib.ffn_layer_forward
from_buffer: Callable[[Any], c_char] = c_char.from_buffer


@dataclass(frozen=True)
class LayerInfo:
    """What a layer is: Layer.info.

    d_model, d_ff, d_out  widths of input, hidden row and output
    gated                 whether it has a gate
    activation, residual  names, as given to Layer
    norm                  {"in": ..., "mid": ..., "branch": ..., "out": ...}: "layer", "rms", "affine" or "none"
    engine, isa           as resolved: never "auto"
    parameters            numbers in all tensors
    parameters_of         the same by tensor, under the names of Layer's arguments; tensors that were not given are left out
    bytes                 memory that the layer holds
    trainable             as given to Layer
    experts, identity_experts, top_k, d_shared, d_latent   of a mixture of experts; 0 of a dense layer
    active_parameters     that a token meets: all but those of experts - top_k experts"""

    d_model: int
    d_ff: int
    d_out: int
    gated: bool
    activation: str
    residual: str
    norm: Mapping[str, str]
    engine: str
    isa: str
    parameters: int
    parameters_of: Mapping[str, int]
    bytes: int
    trainable: bool
    experts: int
    identity_experts: int
    top_k: int
    d_shared: int
    d_latent: int
    active_parameters: int


class Layer(Handle):
    """A feed-forward layer: y = a * r + c * NORM_BRANCH(W_down h + b_down), then NORM_OUT, with
    h = NORM_MID(act(W_up n + b_up)), or with a gate h = NORM_MID(act(W_gate n + b_gate) * (W_up n + b_up)), and n = NORM_IN(x).

    >>> import numpy as np
    >>> up, down = np.ones((8, 4), np.float32), np.ones((4, 8), np.float32)
    >>> layer = Layer(up=up, down=down, activation="relu", norm_in="rms", residual="input")
    >>> layer(np.ones((2, 3, 4), np.float32)).shape
    (2, 3, 4)

    The names are those of the C options (ffn.h says all about each). Tensors are arrays of float32 with any strides: W.T, rows of a fused matrix
    (fused[:d_ff]), every other row (fused[::2]), broadcasts. They are read where they lie, and copied once, into the layer: they may change or go
    afterwards. A number stands for an array of one.

    up, gate, down        [d_ff, d_model], [d_ff, d_model], [d_out, d_ff]: [out, in], as torch.nn.Linear has them. With a gate, `up` is the linear
                          branch and `gate` the activated one
    up_bias, gate_bias    [d_ff]; down_bias [d_out]
    activation            identity, relu, leaky_relu, relu6, relu2, gelu, gelu_tanh, quick_gelu, gelu_10, silu, swish, sigmoid, tanh, mish, elu,
                          hardswish, softplus, laplace or xielu
    alpha, beta           parameters of leaky_relu, elu and xielu; of swish and xielu. 0: the activation's default
    gate_max, up_limit, up_offset     gated only: clamps of gpt-oss and DeepSeek-V4; 0: none
    residual              "none", "input" (x), "normed" (NORM_IN(x)) or "external" (an argument of the call): r
    norm_in, norm_mid, norm_branch, norm_out          "none", "layer", "rms" or "affine"
    norm_*_weight, norm_*_bias                        [d_model] for in, [d_ff] for mid, [d_out] for branch and out
    norm_*_offset                                     1 for the norms that multiply by (1 + weight)
    eps                   of every norm that has one ("layer", "rms"); 0: 1e-5 for layer, 1e-6 for rms
    norm_*_eps            of one norm, where they differ
    branch_scale, residual_scale                      c and a: a number, [1] or [d_out]; tanh_*: tanh of it
    xielu_alpha_p, xielu_alpha_n                      [1]: xielu's learned scalars
    moe                   a libffn.moe.Mixture makes the branch a mixture of experts. up, gate, down, their biases and norm_mid's tensors are then the
                          experts' own: stacks with one dimension more ([experts, d_ff, d_model]), or lists of one array for each expert
    router, router_bias, router_norm_weight, selection_bias, expert_scale     [experts, d_model], [experts], [d_model], [experts], [experts]; without a
                          router each call brings its routing
    combine_bias          [d_out], added once after the experts
    shared_up, shared_gate, shared_down, their biases, shared_scale           the experts that all tokens go to, as one network; [1, d_model]: sigmoid gate
    latent_in, latent_out, their biases                                       projections around the routed experts: [d_latent, d_model], [d_out, d_latent]
    d_model, d_ff, d_out  to be checked against the tensors' shapes; 0: taken from them
    engine, max_isa       "auto", "blas", "native"; "auto", "scalar", "avx2", "avx512": no level above it
    trainable             may be called with a tape and dropout, and be updated; a mixture then has the blas engine
    context               a Context whose threads help with packing
    allocator             an Allocator for the layer's memory

    A layer never changes (but by update), and any number of threads may call it at once. It is freed with its last reference.
    Raises InvalidError (a wrong value, shape or combination: the sentence names it), UnsupportedError (an array that is not float32, what this
    version cannot do), NoMemoryError, BusyError (the context)."""

    _free, _instead = lib.ffn_layer_free, "make it in the process that uses it, or send its weights()"

    def __init__(
        self,
        up: ArrayLike,
        down: ArrayLike,
        gate: Optional[ArrayLike] = None,
        *,
        activation: str,
        up_bias: Optional[ArrayLike] = None,
        gate_bias: Optional[ArrayLike] = None,
        down_bias: Optional[ArrayLike] = None,
        alpha: float = 0,
        beta: float = 0,
        gate_max: float = 0,
        up_limit: float = 0,
        up_offset: float = 0,
        residual: Optional[str] = None,
        norm_in: Optional[str] = None,
        norm_mid: Optional[str] = None,
        norm_branch: Optional[str] = None,
        norm_out: Optional[str] = None,
        norm_in_weight: Optional[ArrayLike] = None,
        norm_in_bias: Optional[ArrayLike] = None,
        norm_mid_weight: Optional[ArrayLike] = None,
        norm_mid_bias: Optional[ArrayLike] = None,
        norm_branch_weight: Optional[ArrayLike] = None,
        norm_branch_bias: Optional[ArrayLike] = None,
        norm_out_weight: Optional[ArrayLike] = None,
        norm_out_bias: Optional[ArrayLike] = None,
        norm_in_offset: float = 0,
        norm_mid_offset: float = 0,
        norm_branch_offset: float = 0,
        norm_out_offset: float = 0,
        eps: float = 0,
        norm_in_eps: Optional[float] = None,
        norm_mid_eps: Optional[float] = None,
        norm_branch_eps: Optional[float] = None,
        norm_out_eps: Optional[float] = None,
        branch_scale: Union[ArrayLike, float, None] = None,
        residual_scale: Union[ArrayLike, float, None] = None,
        tanh_branch_scale: bool = False,
        tanh_residual_scale: bool = False,
        xielu_alpha_p: Union[ArrayLike, float, None] = None,
        xielu_alpha_n: Union[ArrayLike, float, None] = None,
        moe: Optional[Mixture] = None,
        router: Optional[ArrayLike] = None,
        router_bias: Optional[ArrayLike] = None,
        router_norm_weight: Optional[ArrayLike] = None,
        selection_bias: Optional[ArrayLike] = None,
        expert_scale: Optional[ArrayLike] = None,
        combine_bias: Optional[ArrayLike] = None,
        shared_up: Optional[ArrayLike] = None,
        shared_up_bias: Optional[ArrayLike] = None,
        shared_gate: Optional[ArrayLike] = None,
        shared_gate_bias: Optional[ArrayLike] = None,
        shared_down: Optional[ArrayLike] = None,
        shared_down_bias: Optional[ArrayLike] = None,
        shared_scale: Optional[ArrayLike] = None,
        latent_in: Optional[ArrayLike] = None,
        latent_in_bias: Optional[ArrayLike] = None,
        latent_out: Optional[ArrayLike] = None,
        latent_out_bias: Optional[ArrayLike] = None,
        d_model: int = 0,
        d_ff: int = 0,
        d_out: int = 0,
        engine: Optional[str] = None,
        max_isa: Optional[str] = None,
        trainable: bool = False,
        context: Optional[Context] = None,
        allocator: Optional[Allocator] = None,
    ) -> None:
        given = locals()
        arrays = {name: given_tensor(given[name], name) for name in ROLES if given.get(name) is not None}
        tensors = views(arrays)
        options = _abi.LayerOptions(
            flags=_abi.LayerFlag.TANH_BRANCH_SCALE * bool(tanh_branch_scale)
            | _abi.LayerFlag.TANH_RESIDUAL_SCALE * bool(tanh_residual_scale)
            | _abi.LayerFlag.TRAINABLE * bool(trainable),
            activation=activation_id(activation),
            residual=member(_abi.Residual, residual, "residual"),
            engine=member(_abi.Engine, engine, "engine"),
            max_isa=member(_abi.Isa, max_isa, "max_isa"),
            tensors=tensors,
            tensor_count=len(tensors),
            moe=None if moe is None else pointer(moe._struct()),
            allocator=allocator and allocator._pointer,
        )
        for name in ("d_model", "d_ff", "d_out"):
            setattr(options, name, integer(given[name], name, INT64))
        for name in ("alpha", "beta", "gate_max", "up_limit", "up_offset"):
            setattr(options, name, number(given[name], name))
        for i, slot in enumerate(SLOTS):
            kind, own_eps = member(_abi.Norm, given[f"norm_{slot}"], f"norm_{slot}"), given[f"norm_{slot}_eps"]
            has_eps = kind in (_abi.Norm.LAYER, _abi.Norm.RMS)
            options.norm[i], options.norm_offset[i] = kind, number(given[f"norm_{slot}_offset"], f"norm_{slot}_offset")
            options.norm_eps[i] = number(own_eps, f"norm_{slot}_eps") if own_eps is not None else number(eps, "eps") if has_eps else 0
        self._make(lambda made: check(lib.ffn_layer_create(context and context._handle, byref(options), made)), allocator)
        self._given_ids = moe is not None and moe.given_ids

    def _make(self, create: Callable[[Any], None], allocator: Optional[Allocator] = None) -> None:
        """A layer of what `create` writes to its argument."""
        self._own(create, allocator)
        info = self._read_info()
        self._d_model, self._d_out = info.d_model, info.d_out
        self._row, self._out_row = (info.d_model,), (info.d_out,)
        self._routed, self._top_k, self._given_ids = info.experts + info.identity_experts, info.top_k, False

    def __repr__(self) -> str:
        info = self.info
        return f"<libffn.Layer {info.d_model}-{info.d_ff}-{info.d_out} {info.activation}{' gated' * info.gated}, {info.parameters:,} parameters>"

    def __call__(
        self,
        x: ArrayLike,
        *,
        out: Optional[ArrayLike] = None,
        residual: Optional[ArrayLike] = None,
        dropout: Optional[Dropout] = None,
        tape: Optional[Tape] = None,
        moe: Optional[Call] = None,
        stats: Optional[Stats] = None,
        threads: Optional[int] = None,
        context: Optional[Context] = None,
    ) -> Any:
        """Runs the layer on every row of x.

        x         [..., d_model], float32: a NumPy array, or a CPU array of PyTorch, JAX, ... It is read where it lies if its rows are dense and at
                  most two strides lead from row to row, as in x, x[:, :n], x[::2]; anything else is copied first
        out       [..., d_out], float32: written, and given back. It may be x, or the residual. Without it: a new array
        residual  [..., d_out], float32: for a layer with residual="external", which needs it
        dropout   a Dropout, for a trainable layer. The rows along the last but one dimension of x are a sequence
        tape      a Tape that records the call for backward, for a trainable layer. out must not be x or the residual, which it borrows
        moe       a libffn.moe.Call, for a mixture of experts: routing, padding, and what is to be told of where tokens went
        stats     a Stats that counts what the hidden units do
        threads   so many threads, the calling one included; 0: as many as the process may use. They are this thread's, and sleep between calls
        context   a Context of your own instead. Without both: the calling thread alone

        Other Python threads run meanwhile. Gives y: [..., d_out].
        Raises InvalidError (shapes, a part of out over x, ...), UnsupportedError (not float32, training a layer that is not trainable),
        NoMemoryError, BusyError (the context, the tape, the stats)."""
        if threads is not None:
            context = context_for(threads, context)
        # The way of most calls, kept short: from rows without a gap to rows without a gap. Attributes of arrays are asked for once.
        if residual is None and dropout is None and tape is None and moe is None and stats is None and type(x) is ndarray and x.dtype is F32:
            shape, flags, y = x.shape, x.flags.num, out
            if shape[-1:] == self._row and flags & DENSE == DENSE and x.size:
                shape = shape[:-1] + self._out_row
                if y is None:
                    y = empty(shape, F32)
                elif not (type(y) is ndarray and y.dtype is F32 and y.shape == shape and y.flags.num & WRITABLE == WRITABLE):
                    y = None
                if y is not None:
                    status = _forward(
                        self._handle,
                        context and context._handle,
                        x.size // self._d_model,
                        addressof(from_buffer(x)) if flags & WRITABLE == WRITABLE else address(x),
                        0,
                        addressof(from_buffer(y)),
                        0,
                    )
                    if status:
                        check(status)
                    return y
        with nullcontext() if tape is None else tape._lent() as tape_handle, nullcontext() if stats is None else stats._lent() as stats_handle:
            return self._run(x, out, residual, dropout, tape, tape_handle, moe, stats_handle, context)

    def _run(
        self,
        x: ArrayLike,
        out: Optional[ArrayLike],
        residual: Optional[ArrayLike],
        dropout: Optional[Dropout],
        tape: Optional[Tape],
        tape_handle: Optional[int],
        moe: Optional[Call],
        stats_handle: Optional[int],
        context: Optional[Context],
    ) -> Any:
        """A call that is not contiguous rows from one NumPy array to another."""
        inputs = [as_float32(x, "x")]
        leading = inputs[0].shape[:-1]
        check_dimension(inputs[0], "x")
        if inputs[0].shape[-1] != self._d_model:
            raise InvalidError(f"the last dimension of x is {inputs[0].shape[-1]}, must be {self._d_model} (d_model)")
        if residual is not None:
            inputs.append(as_float32(residual, "residual"))
            check_shape(inputs[1], "residual", leading, self._d_out)
        y = None if out is None else as_float32(out, "out", written=True)
        if y is not None:
            check_shape(y, "out", leading, self._d_out)

        find = find_rows if dropout is None and tape is None else find_sequences
        inputs = [array if has_rows(array) else array.copy() for array in inputs]
        written = y if y is not None and has_rows(y) else np.empty((*leading, self._d_out), F32)
        rows = find([*inputs, written])
        if rows is None:
            # Whatever overlaps what, all of it is read before anything is written.
            inputs, written = [np.array(array, F32, order="C") for array in inputs], np.empty((*leading, self._d_out), F32)
            rows = find([*inputs, written])
        assert rows is not None
        run = _abi.Run(batch=rows.batch, length=rows.length, x=address(inputs[0]), y=address(written), tape=tape_handle, stats=stats_handle)
        run.x_stride[:], run.y_stride[:] = rows.strides[0], rows.strides[-1]
        if residual is not None:
            run.residual, run.residual_stride[:] = address(inputs[1]), rows.strides[1]
        if dropout is not None:
            run.dropout = pointer(dropout._struct())
        if moe is not None:
            particular, _kept = moe._struct(leading, self._routed, self._top_k, self._given_ids)
            run.moe = pointer(particular)
        check(lib.ffn_layer_run(self._handle, context and context._handle, byref(run)))
        if moe is not None and moe.statistics:
            moe.statistics = statistics_of(particular.statistics.contents)
        if tape is not None:
            top_k = self._top_k if moe is None or moe.routing is None else moe.routing.top_k
            tape._record(self._handle, leading, inputs, self._routed, top_k)
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
        d_residual: Optional[ArrayLike] = None,
        moe: Optional[Gradients] = None,
        threads: Optional[int] = None,
        context: Optional[Context] = None,
    ) -> None:
        """The backward pass of the call that was recorded on `tape`: the exact derivatives of a loss by tensors of the layer, by x and by an external
        residual, through the same dropout.

        >>> layer = Layer(up=up, down=down, activation="gelu", trainable=True)
        >>> tape, gradients = Tape(), {"up": np.empty_like(up), "down": np.empty_like(down)}
        >>> y = layer(x, tape=tape)
        >>> layer.backward(tape, 2 * (y - target) / y.size, gradients)                 # of mean((y - target)^2)

        tape        as the call left it; it is used up
        d_y         [..., d_out], float32: the derivatives by y, in the shape of y
        gradients   arrays by tensor under the names of Layer's arguments, any of the layer's: float32 in the tensor's shape, any strides; of an expert's
                    own a stack, or a list of one for each of the first experts. They are overwritten, whatever they held. Of tanh_* scales the derivative is by the number before the tanh, of xielu's scalars before their
                    softplus
        accumulate  add to the gradients instead (d_x and d_residual are overwritten always)
        d_x         [..., d_model], float32, or None: the derivatives by x are written to it. It may be d_y
        d_residual  [..., d_out], float32, or None: those by an external residual. It may be d_y, if d_x is not

        moe         a libffn.moe.Gradients, for a mixture of experts

        threads, context  as those of a call. The bits do not depend on them; with engine "blas" they may on the number of OpenBLAS's threads

        Sums over rows are of float32 over 32 rows, of float64 beyond. Gradients must not overlap each other, nor d_y, d_x, d_residual and x.
        Raises InvalidError, with nothing written and the tape as it was: a tape that is empty or used up, of another layer, or recorded before an update;
        shapes; overlaps; a tensor that the layer does not have. Likewise UnsupportedError, NoMemoryError, BusyError (the context, the tape)."""
        run_backward(lib.ffn_layer_backward, self, tape, d_y, gradients, accumulate, d_x, d_residual, context_for(threads, context), moe)

    def update(self, *, threads: Optional[int] = None, context: Optional[Context] = None, **tensors: Union[ArrayLike, float]) -> None:
        """Puts new values of some tensors into a trainable layer: layer.update(up=up, down_bias=bias).

        The names are those of Layer's arguments, the shapes those that they were given in; any strides. Nothing is changed unless all are right.
        No other call may be using the layer meanwhile; tapes recorded before are no longer accepted.
        Raises InvalidError, UnsupportedError (a layer that is not trainable, not float32), NoMemoryError, BusyError (the context)."""
        context = context_for(threads, context)
        arrays = {known(name): given_tensor(value, name) for name, value in tensors.items()}
        found = views(arrays)
        check(lib.ffn_layer_update(self._handle, context and context._handle, found, len(found)))

    def reserve(self, tokens: int, *, threads: Optional[int] = None, context: Optional[Context] = None) -> None:
        """Allocates the scratch memory that calls with the same threads or context on up to `tokens` tokens need: those then cannot fail for want
        of memory. Raises InvalidError, NoMemoryError, BusyError."""
        context = context_for(threads, context)
        check(lib.ffn_context_reserve(context and context._handle, self._handle, integer(tokens, "tokens", INT64)))

    def _read_info(self) -> _abi.LayerInfo:
        info = _abi.LayerInfo()
        check(lib.ffn_layer_info(self._handle, byref(info)))
        return info

    @property
    def info(self) -> LayerInfo:
        """What the layer is."""
        info = self._read_info()
        return LayerInfo(
            d_model=info.d_model,
            d_ff=info.d_ff,
            d_out=info.d_out,
            gated=bool(info.gated),
            activation=lib.ffn_activation_name(info.activation).decode(),
            residual=_abi.Residual(info.residual).name.lower(),
            norm={slot: _abi.Norm(info.norm[i]).name.lower() for i, slot in enumerate(SLOTS)},
            engine=_abi.Engine(info.engine).name.lower(),
            isa=_abi.Isa(info.isa).name.lower(),
            parameters=info.parameters,
            parameters_of={name: info.parameters_of[role] for name, role in ROLES.items() if info.parameters_of[role]},
            bytes=info.bytes,
            trainable=bool(info.flags & _abi.LayerFlag.TRAINABLE),
            experts=info.experts,
            identity_experts=info.identity_experts,
            top_k=info.top_k,
            d_shared=info.d_shared,
            d_latent=info.d_latent,
            active_parameters=info.active_parameters,
        )

    def weights(self) -> dict[str, Float32]:
        """Every tensor of the layer, exactly as it was given, in new arrays under the names of Layer's arguments."""
        arrays = {name: np.empty(shape, F32) for name, shape in shapes_of(self._read_info()).items()}
        self.read(**arrays)
        return arrays

    def read(self, **tensors: ArrayLike) -> None:
        """Writes tensors of the layer, exactly as they were given, into arrays of yours: layer.read(up=array, down=other).

        The names are those of Layer's arguments. The arrays have their shapes, float32, any strides (an array.T, rows of a fused matrix), and must
        not overlap. Nothing is written unless all are right. Raises InvalidError (also for a tensor that the layer does not have), UnsupportedError."""
        arrays = writable(tensors)
        found = views(arrays)
        check(lib.ffn_layer_read(self._handle, found, len(found)))
