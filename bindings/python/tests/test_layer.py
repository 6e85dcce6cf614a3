# SPDX-License-Identifier: MIT
"""What layers compute, against the oracle, and what they tell about themselves. ./dev test runs this file at every ISA level."""
import numpy as np
import pytest

import libffn
import oracle
from conftest import assert_close

D_MODEL, D_FF, D_OUT = 20, 37, 13


def dense(random, **options):
    return {"up": random(D_FF, D_MODEL) / 4, "down": random(D_MODEL, D_FF) / 6, **options}


def norm_tensors(random, slot, width):
    return {f"norm_{slot}": "layer", f"norm_{slot}_weight": 1 + random(width) / 8, f"norm_{slot}_bias": random(width) / 8}


def cases(random):
    every_bias = {"up_bias": random(D_FF), "down_bias": random(D_MODEL)}
    gated = {"gate": random(D_FF, D_MODEL) / 4}
    return {
        **{name: dense(random, activation=name) for name in oracle.ACTIVATIONS},
        **{f"gated {name}": dense(random, activation=name, **gated) for name in oracle.ACTIVATIONS},
        "biases": dense(random, activation="gelu", **every_bias),
        "gated with biases": dense(random, activation="silu", gate_bias=random(D_FF), **gated, **every_bias),
        "another width of y": {**dense(random, activation="gelu"), "down": random(D_OUT, D_FF)},
        "pre-norm": dense(random, activation="relu", residual="input", **norm_tensors(random, "in", D_MODEL)),
        "post-norm": dense(random, activation="gelu", residual="input", eps=1e-12, **norm_tensors(random, "out", D_MODEL)),
        "norms everywhere": dense(
            random,
            activation="gelu_tanh",
            residual="normed",
            **{k: v for slot, width in zip(("in", "mid", "branch", "out"), (D_MODEL, D_FF, D_MODEL, D_MODEL)) for k, v in norm_tensors(random, slot, width).items()},
        ),
        "rms with offset and eps": dense(
            random, activation="silu", residual="input", norm_in="rms", norm_in_weight=random(D_MODEL) / 8, norm_in_offset=1, eps=1e-3, **gated
        ),
        "affine": dense(random, activation="relu", norm_branch="affine", norm_branch_weight=random(D_MODEL), norm_branch_bias=random(D_MODEL)),
        "scales": dense(random, activation="relu", residual="input", branch_scale=random(D_MODEL), residual_scale=0.5),
        "a scale of NumPy's": dense(random, activation="relu", branch_scale=np.float32(0.25)),
    }


@pytest.mark.parametrize("engine", ["blas", "native"])
@pytest.mark.parametrize("name", cases(lambda *shape: np.zeros(shape, np.float32)))
def test_layers_compute_what_their_options_say(name, engine, random):
    options, x = cases(random)[name], random(3, 5, D_MODEL)
    layer = libffn.Layer(**options, engine=engine)
    expected = oracle.layer(x, **options)
    assert_close(layer(x), expected)
    assert_close(layer(x[0, :1]), expected[0, :1])  # one token goes another way through the library


def test_an_external_residual_is_an_argument_of_the_call(random):
    options = {**dense(random, activation="relu", residual="external"), "down": random(D_OUT, D_FF)}
    layer, x, residual = libffn.Layer(**options), random(2, 4, D_MODEL), random(2, 4, D_OUT)
    expected = oracle.layer(x, external=residual, **options)
    assert_close(layer(x, residual=residual), expected)
    wide = random(2, 6, 2 * D_OUT)
    wide[:, 1:5, :D_OUT] = residual
    assert_close(layer(x, residual=wide[:, 1:5, :D_OUT]), expected)  # rows and sequences of other strides than x
    assert layer(x, residual=residual, out=residual) is residual
    assert_close(residual, expected)
    with pytest.raises(libffn.InvalidError, match="residual"):
        layer(x)
    with pytest.raises(libffn.InvalidError, match=r"the shape of residual is \(2, 4, 20\), must be \(2, 4, 13\)"):
        layer(x, residual=x)


def test_a_residual_that_the_layer_does_not_want_is_refused(layer, random):
    x = random(2, 24)
    with pytest.raises(libffn.InvalidError, match="not external"):
        layer(x, residual=x)


def test_the_clamps_of_gpt_oss(random):
    options = dense(random, activation="swish", beta=1.702, gate=3 * random(D_FF, D_MODEL), gate_max=7, up_limit=7, up_offset=1)
    x = random(6, D_MODEL)
    gate, up = (x.astype(np.float64) @ options[name].T.astype(np.float64) for name in ("gate", "up"))
    gate = np.minimum(gate, 7)
    hidden = gate * oracle.sigmoid(1.702 * gate) * (np.clip(up, -7, 7) + 1)
    assert_close(libffn.Layer(**options)(x), hidden @ options["down"].T.astype(np.float64))


def test_parameters_of_activations_and_tanh_gates(random):
    x = random(6, D_MODEL)
    options = dense(random, activation="leaky_relu", alpha=0.25)
    hidden = x.astype(np.float64) @ options["up"].T
    expected = np.where(hidden > 0, hidden, hidden / 4) @ options["down"].T
    assert_close(libffn.Layer(**options)(x), expected)
    tanh = np.tanh(0.5)
    assert_close(libffn.Layer(**options, branch_scale=0.5, tanh_branch_scale=True)(x), tanh * expected)
    both = {"residual": "input", "residual_scale": 0.5, "tanh_residual_scale": True}
    assert_close(libffn.Layer(**options, **both)(x), tanh * x.astype(np.float64) + expected)
    p, n, beta = 0.8, 0.6, 0.5
    softplus = np.log1p(np.exp([p, n]))
    xielu = np.where(hidden > 0, softplus[0] * hidden**2, (beta + softplus[1]) * (np.expm1(np.minimum(hidden, -1e-6)) - hidden)) + beta * hidden
    made = libffn.Layer(options["up"], options["down"], activation="xielu", xielu_alpha_p=p, xielu_alpha_n=np.full(1, n, np.float32))
    assert_close(made(x), xielu @ options["down"].T)


def test_one_eps_for_all_norms_or_one_for_each(random):
    x, up, down = random(3, D_MODEL) / 100, random(D_FF, D_MODEL), random(D_MODEL, D_FF)
    both = {"norm_in": "rms", "norm_out": "layer", "activation": "relu"}
    shared = libffn.Layer(up, down, eps=1e-2, **both)(x)
    np.testing.assert_array_equal(libffn.Layer(up, down, norm_in_eps=1e-2, norm_out_eps=1e-2, **both)(x), shared)
    assert np.any(libffn.Layer(up, down, eps=1e-2, norm_in_eps=1e-3, **both)(x) != shared)
    assert np.any(libffn.Layer(up, down, **both)(x) != shared)


def test_engine_and_level_can_be_asked_for(weights):
    for engine in ("blas", "native"):
        info = libffn.Layer(**weights, engine=engine, max_isa="scalar").info
        assert (info.engine, info.isa) == (engine, "scalar")
    info = libffn.Layer(**weights).info
    assert "auto" not in (info.engine, info.isa)


def test_info_tells_what_the_layer_is(random):
    made = libffn.Layer(
        random(8, 4), random(6, 8), random(8, 4), activation="silu", gate_bias=random(8), norm_mid="layer", residual="external"
    )
    info = made.info
    assert (info.d_model, info.d_ff, info.d_out, info.gated) == (4, 8, 6, True)
    assert (info.activation, info.residual) == ("silu", "external")
    assert info.norm == {"in": "none", "mid": "layer", "branch": "none", "out": "none"}
    assert info.parameters_of == {"up": 32, "gate": 32, "gate_bias": 8, "down": 48}
    assert info.parameters == 120 and info.bytes >= 4 * 120
    assert repr(made) == "<libffn.Layer 4-8-6 silu gated, 120 parameters>"


def test_weights_come_back_exactly(random):
    given = {
        "up": random(8, 4), "gate": random(8, 4), "down": random(6, 8), "up_bias": random(8), "down_bias": random(6),
        "norm_in_weight": random(4), "branch_scale": random(6),
    }  # fmt: skip
    made = libffn.Layer(activation="silu", norm_in="rms", **given)
    got = made.weights()
    assert set(got) == set(given)
    for name, array in given.items():
        np.testing.assert_array_equal(got[name], array)

    fused = np.zeros((16, 4), np.float32)
    down = np.zeros((8, 6), np.float32)
    made.read(up=fused[::2], gate=fused[1::2], down=down.T)
    np.testing.assert_array_equal(fused[::2], given["up"])
    np.testing.assert_array_equal(fused[1::2], given["gate"])
    np.testing.assert_array_equal(down.T, given["down"])


def test_reading_what_cannot_be_read_is_refused_and_writes_nothing(layer):
    up, read_only = np.zeros((40, 24), np.float32), np.zeros((24, 40), np.float32)
    read_only.setflags(write=False)
    one = np.zeros(1, np.float32)
    shared = np.lib.stride_tricks.as_strided(one, (24, 40), (0, 0))
    for wrong, kind, sentence in (
        ({"down": read_only}, libffn.InvalidError, "down is read-only"),
        ({"down": shared}, libffn.InvalidError, "share an address"),
        ({"gate": up.copy()}, libffn.InvalidError, "the gate weight is not in this layer"),
        ({"down": np.zeros((24, 41), np.float32)}, libffn.InvalidError, "41"),
        ({"down": np.zeros((24, 40))}, libffn.UnsupportedError, "float64"),
        ({"middle": up.copy()}, libffn.InvalidError, "middle is not a tensor of a layer, must be one of up, "),
    ):
        with pytest.raises(kind, match=sentence):
            layer.read(up=up, **wrong)
        assert not up.any()


def test_the_small_functions(monkeypatch):
    assert libffn.gated_d_ff(3072) == 2048
    assert libffn.gated_d_ff(16384, 256) == 11008
    with pytest.raises(libffn.InvalidError, match="d_ff is 0"):
        libffn.gated_d_ff(0)
    assert libffn.version() == libffn.build_info().split()[1].rstrip(",")
    assert libffn.thread_info().threads == 1
