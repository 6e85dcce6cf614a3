# SPDX-License-Identifier: MIT
"""Writes small checkpoints."""
import json
import struct

import numpy as np

DTYPES = {"F32": "<f4", "F16": "<f2", "F64": "<f8", "I64": "<i8"}


def write_safetensors(path, tensors):
    """tensors: {name: array}, or {name: (dtype, array of the bytes)} for what NumPy has no type of."""
    header, data = {}, b""
    for name, array in tensors.items():
        dtype, array = array if isinstance(array, tuple) else (next(k for k, v in DTYPES.items() if np.dtype(v) == array.dtype), array)
        content = array.tobytes()
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def write_llama(folder, layers, config=None):
    """A checkpoint with LLaMA's names, and a config.json. layers: [{"up": ..., "gate": ..., "down": ..., "norm": ...}]"""
    names = {"up": "mlp.up_proj", "gate": "mlp.gate_proj", "down": "mlp.down_proj", "norm": "post_attention_layernorm"}
    write_safetensors(
        folder / "model.safetensors",
        {f"model.layers.{i}.{name}.weight": layer[key] for i, layer in enumerate(layers) for key, name in names.items()},
    )
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "hidden_act": "silu", "rms_norm_eps": 1e-5, **(config or {})}))
