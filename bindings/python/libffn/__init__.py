# SPDX-License-Identifier: MIT
"""The feed-forward sublayer of transformers on CPUs: libffn for NumPy, and for the CPU arrays of PyTorch, JAX and others.

    import libffn
    layer = libffn.Layer(up=W1, down=W2, up_bias=b1, down_bias=b2, activation="gelu", norm_in="layer", residual="input")
    y = layer(x)                                           # x: float32 [..., d_model]

    layer = libffn.load("model.safetensors", layer=3)      # of a published checkpoint
    y = layer(x, threads=4)

Every failure is a libffn.Error with the library's sentence."""
from . import moe
from ._context import Allocator, Context, ContextInfo, build_info, gated_d_ff, thread_info, version
from ._conv import Conv, ConvInfo
from ._errors import BusyError, Error, FileError, FormatError, InvalidError, NoMemoryError, UnknownError, UnsupportedError
from ._health import Stats, StatsInfo, TensorHealth, tensor_health, update_ratio
from ._layer import Layer, LayerInfo
from ._model import Model, ModelInfo, ModelTensor, load
from ._optimisers import adamw_step, clip_global_norm, sgd_step, weight_init
from ._training import Dropout, Tape

__all__ = [
    "Allocator",
    "BusyError",
    "Context",
    "ContextInfo",
    "Conv",
    "ConvInfo",
    "Dropout",
    "Error",
    "FileError",
    "FormatError",
    "InvalidError",
    "Layer",
    "LayerInfo",
    "Model",
    "ModelInfo",
    "ModelTensor",
    "NoMemoryError",
    "Stats",
    "StatsInfo",
    "Tape",
    "TensorHealth",
    "UnknownError",
    "UnsupportedError",
    "adamw_step",
    "build_info",
    "clip_global_norm",
    "gated_d_ff",
    "load",
    "moe",
    "sgd_step",
    "tensor_health",
    "thread_info",
    "update_ratio",
    "version",
    "weight_init",
]
