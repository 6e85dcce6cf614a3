# SPDX-License-Identifier: MIT
"""Published checkpoints, through libffn-io."""
from __future__ import annotations

import os
from ctypes import POINTER, byref, c_int64
from dataclasses import dataclass
from typing import Optional, Union

import numpy as np

from . import _abi_io
from ._arrays import F32, Float32, address
from ._context import INT64, Context, integer
from ._errors import InvalidError, check_io
from ._handles import Handle
from ._layer import Layer
from ._native import io

Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]


def _bytes(text: Optional[Path], name: str) -> Optional[bytes]:
    """A C string of a path or a name."""
    if text is None:
        return None
    encoded = os.fsencode(text)
    if b"\0" in encoded:
        raise InvalidError(f"{name} has a NUL character: {text!r}")
    return encoded


def _text(given: Optional[bytes]) -> Optional[str]:
    return None if given is None else given.decode("utf-8", "surrogateescape")


@dataclass(frozen=True)
class ModelInfo:
    """tensors, parameters, bytes  of the file or files
    layers                      feed-forward layers that were recognised
    family                      the family of models that they are of (docs/families.md), or None
    model_type                  config.json's, or None
    active_parameters           those that a token meets: without those of the experts that its layers leave out"""

    tensors: int
    layers: int
    parameters: int
    bytes: int
    family: Optional[str]
    model_type: Optional[str]
    active_parameters: int


@dataclass(frozen=True)
class ModelTensor:
    """A tensor as the file describes it: name, dtype ("F32", "BF16", ...) and shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]


class Model(Handle):
    """A checkpoint: a .safetensors file, a model.safetensors.index.json with its shards beside it, or a folder with one of the two.

    path     opening reads headers and config.json alone
    config   path of a config.json; None: the one in the model's folder, if there is one
    family   a row of the family table ("gpt2"), for files that several fit; None: recognised
    map      map the files instead of reading them: you promise that no one truncates them while the model is open

    It never changes, and is freed with its last reference; layers made from it live on. Raises FileError, FormatError, UnknownError (the family),
    InvalidError, NoMemoryError; ImportError where libffn-io is not installed."""

    _instead = "open it in the process that uses it"

    def __init__(self, path: Path, *, config: Optional[Path] = None, family: Optional[str] = None, map: bool = False) -> None:
        self._free = io().ffn_model_free
        options = _abi_io.ModelOptions(
            flags=_abi_io.ModelFlag.MAP if map else 0, config=_bytes(config, "config"), family=_bytes(family, "family")
        )
        self._own(lambda made: check_io(io().ffn_model_open(_bytes(path, "path"), byref(options), made)))

    @property
    def info(self) -> ModelInfo:
        """What the model is."""
        info = _abi_io.ModelInfo()
        check_io(io().ffn_model_info(self._handle, byref(info)))
        return ModelInfo(
            info.tensor_count,
            info.layer_count,
            info.parameters,
            info.bytes,
            _text(info.family),
            _text(info.model_type),
            info.active_parameters,
        )

    def __len__(self) -> int:
        """How many feed-forward layers were recognised."""
        return self.info.layers

    def _tensor(self, index: int) -> _abi_io.ModelTensor:
        tensor = _abi_io.ModelTensor()
        check_io(io().ffn_model_tensor(self._handle, index, byref(tensor)))
        return tensor

    @property
    def tensors(self) -> dict[str, ModelTensor]:
        """Every tensor of the file or files by its name, sorted."""
        found = {}
        for index in range(self.info.tensors):
            tensor = self._tensor(index)
            name = _text(tensor.name) or ""
            found[name] = ModelTensor(name, _text(tensor.dtype) or "", tuple(tensor.shape[: tensor.ndim]))
        return found

    def read(self, name: str) -> Float32:
        """A tensor of the file by its whole name, in a new array of float32: from F64 rounded to nearest, from F16 and BF16 exact.
        Raises UnknownError (with near names in the sentence), UnsupportedError (another dtype), FileError, NoMemoryError."""
        index = c_int64()
        check_io(io().ffn_model_find(self._handle, _bytes(name, "name"), byref(index)))
        tensor = self._tensor(index.value)
        array = np.empty(tuple(tensor.shape[: tensor.ndim]), F32)
        check_io(io().ffn_model_read(self._handle, index, address(array)))
        return array

    def layer(self, index: int, *, branch: bool = False, context: Optional[Context] = None) -> Layer:
        """Feed-forward layer 0 .. len(model) - 1 in the model's order, encoders before decoders, with norms and residual as the family has them.

        branch   leave those out: the matrices, biases and activation alone
        context  a Context whose threads help with packing

        Raises InvalidError (index), UnknownError (a model without recognised layers), FileError, FormatError, UnsupportedError, NoMemoryError,
        BusyError."""
        found = POINTER(_abi_io.ModelLayer)()
        check_io(io().ffn_model_layer(self._handle, integer(index, "layer", INT64), byref(found)))
        description = _abi_io.ModelLayer.from_buffer_copy(found.contents)
        if branch:
            description.flags |= _abi_io.ModelLayerFlag.BRANCH
        layer = Layer.__new__(Layer)
        handle = context and context._handle
        layer._make(lambda made: check_io(io().ffn_model_layer_create(self._handle, handle, byref(description), made)))
        return layer


def load(
    path: Path,
    layer: int,
    *,
    branch: bool = False,
    config: Optional[Path] = None,
    family: Optional[str] = None,
    map: bool = False,
    context: Optional[Context] = None,
) -> Layer:
    """Feed-forward layer `layer` of a checkpoint: Model(path, config=, family=, map=).layer(layer, branch=, context=)."""
    return Model(path, config=config, family=family, map=map).layer(layer, branch=branch, context=context)
