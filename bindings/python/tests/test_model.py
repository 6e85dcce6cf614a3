# SPDX-License-Identifier: MIT
"""Layers of published checkpoints, through libffn-io."""
import json
import os
import pickle
from pathlib import Path

import numpy as np
import pytest

import libffn
import oracle
from conftest import SHARED_DATA, assert_close
from files import write_llama, write_safetensors


@pytest.fixture
def checkpoint(tmp_path, random):
    """A folder with two layers of LLaMA's kind, and the layers as keyword arguments of libffn.Layer."""
    layers = [{"up": random(12, 8), "gate": random(12, 8), "down": random(8, 12), "norm": random(8)} for _ in range(2)]
    write_llama(tmp_path, layers)
    options = {"activation": "silu", "norm_in": "rms", "residual": "input", "eps": 1e-5}
    return tmp_path, [{**{"norm_in_weight" if k == "norm" else k: v for k, v in layer.items()}, **options} for layer in layers]


def test_load_gives_the_layer_of_a_checkpoint(checkpoint, random):
    folder, layers = checkpoint
    x = random(3, 8)
    for place in (folder, str(folder), os.fsencode(folder), folder / "model.safetensors"):
        for i, options in enumerate(layers):
            assert_close(libffn.load(place, layer=i)(x), oracle.layer(x, **options))
    branch = {name: layers[1][name] for name in ("up", "gate", "down", "activation")}
    assert_close(libffn.load(folder, layer=1, branch=True, context=libffn.Context(2))(x), oracle.layer(x, **branch))
    assert_close(libffn.load(folder, layer=1, map=True)(x), oracle.layer(x, **layers[1]))


def test_a_layer_outlives_its_model(checkpoint, random):
    folder, layers = checkpoint
    model = libffn.Model(folder)
    layer = model.layer(0)
    del model
    (folder / "model.safetensors").unlink()
    x = random(3, 8)
    assert_close(layer(x), oracle.layer(x, **layers[0]))
    np.testing.assert_array_equal(layer.weights()["norm_in_weight"], layers[0]["norm_in_weight"])


def test_a_model_tells_what_is_in_it(checkpoint):
    folder, layers = checkpoint
    model = libffn.Model(folder)
    assert len(model) == model.info.layers == 2
    assert (model.info.family, model.info.model_type, model.info.tensors) == ("llama", "llama", 8)
    assert model.info.parameters == 2 * (3 * 96 + 8) and model.info.bytes > 4 * model.info.parameters
    assert list(model.tensors) == sorted(model.tensors) and len(model.tensors) == 8
    assert model.tensors["model.layers.1.mlp.up_proj.weight"] == libffn.ModelTensor("model.layers.1.mlp.up_proj.weight", "F32", (12, 8))
    np.testing.assert_array_equal(model.read("model.layers.1.mlp.up_proj.weight"), layers[1]["up"])


def test_experts_that_are_the_same_are_the_layer_that_each_of_them_is(checkpoint, tmp_path, random):
    _, (layer, _) = checkpoint
    prefix, names = "model.layers.0.block_sparse_moe.", {"w1": "gate", "w3": "up", "w2": "down"}
    tensors = {f"{prefix}experts.{e}.{w}.weight": layer[name] for e in range(3) for w, name in names.items()}
    tensors[prefix + "gate.weight"] = random(3, 8)
    tensors["model.layers.0.post_attention_layernorm.weight"] = layer["norm_in_weight"]
    write_safetensors(tmp_path / "experts.safetensors", tensors)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "mixtral", "num_experts_per_tok": 2, "rms_norm_eps": 1e-5}))
    model = libffn.Model(tmp_path / "experts.safetensors")
    assert (model.info.family, model.info.parameters) == ("mixtral", 3 * 3 * 96 + 3 * 8 + 8)
    assert model.info.active_parameters == 2 * 3 * 96 + 3 * 8 + 8
    x = random(5, 8)
    assert_close(model.layer(0)(x), oracle.layer(x, **layer))


def test_narrow_and_wide_tensors_are_read_as_float32(tmp_path, random):
    numbers = random(3, 4)
    halves, bits = numbers.astype(np.float16), (numbers.view(np.uint32) >> 16).astype(np.uint16)
    path = tmp_path / "numbers.safetensors"
    write_safetensors(path, {"f64": numbers.astype(np.float64), "f16": halves, "bf16": ("BF16", bits), "i64": np.arange(3), "none": random(0, 4)})
    model = libffn.Model(path)
    np.testing.assert_array_equal(model.read("f64"), numbers)
    np.testing.assert_array_equal(model.read("f16"), halves.astype(np.float32))
    np.testing.assert_array_equal(model.read("bf16"), (bits.astype(np.uint32) << 16).view(np.float32))
    assert model.read("none").shape == (0, 4)
    with pytest.raises(libffn.UnsupportedError, match="I64"):
        model.read("i64")
    with pytest.raises(libffn.UnknownError, match="f64"):
        model.read("f63")
    with pytest.raises(libffn.UnknownError):  # no layers
        model.layer(0)
    assert len(model) == 0 and model.info.family is None


def test_what_is_wrong_with_files_is_told(checkpoint, tmp_path):
    folder, _ = checkpoint
    broken = tmp_path / "broken.safetensors"
    broken.write_bytes(b"\xff" * 100)
    for action, kind, sentence in (
        (lambda: libffn.load(tmp_path / "missing.safetensors", layer=0), libffn.FileError, "missing.safetensors"),
        (lambda: libffn.load(broken, layer=0), libffn.FormatError, "broken.safetensors"),
        (lambda: libffn.load(folder, layer=2), libffn.InvalidError, "2"),
        (lambda: libffn.load(folder, layer=-1), libffn.InvalidError, "layer is -1"),
        (lambda: libffn.load(folder, layer=0, family="lama"), libffn.UnknownError, "lama"),
        (lambda: libffn.load(folder, layer=0, config=tmp_path / "none.json"), libffn.FileError, "none.json"),
        (lambda: libffn.load("a\0b", layer=0), libffn.InvalidError, "path has a NUL character"),
        (lambda: libffn.Model(folder).read("a\0b"), libffn.InvalidError, "name has a NUL character"),
    ):
        with pytest.raises(kind, match=sentence):
            action()
    with pytest.raises(TypeError):
        libffn.load(folder, layer="0")
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(libffn.Model(folder))


def test_an_activation_that_is_not_known_is_told(checkpoint):
    folder, _ = checkpoint
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "hidden_act": "wobble"}))
    with pytest.raises(libffn.Error, match="wobble"):
        libffn.load(folder, layer=0)


def test_names_beyond_ascii(tmp_path, random):
    path = tmp_path / "größe 模型.safetensors"
    write_safetensors(path, {"gewicht.ü": random(2, 3)})
    assert libffn.Model(path).read("gewicht.ü").shape == (2, 3)


@pytest.mark.skipif(not SHARED_DATA.exists(), reason="without ../shared/data, real weights with expected outputs")
def test_real_weights_give_the_expected_outputs():
    """The five layers of a trained LLaMA one after the other, and the first of MiniLM."""
    expected = libffn.Model(SHARED_DATA / "stories260k-expected.safetensors")
    x = expected.read("pieces.input")
    for i in range(5):
        x = libffn.load(SHARED_DATA / "stories260k-ffn.safetensors", layer=i, config=SHARED_DATA / "stories260k-config.json")(x)
        y = expected.read(f"pieces.layers.{i}.output")
        assert np.abs(x - y).max() <= 2e-6 * np.abs(y).max()
    expected = libffn.Model(SHARED_DATA / "minilm-expected.safetensors")
    y = expected.read("model.layer.0.ffn_output")
    (got,) = [libffn.load(Path(SHARED_DATA) / "minilm-layer0.safetensors", layer=0)(expected.read("model.layer.0.ffn_input"))]
    assert np.abs(got - y).max() <= 2e-6 * np.abs(y).max()
