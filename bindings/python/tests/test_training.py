# SPDX-License-Identifier: MIT
"""Training through a layer: gradients against float64 differences of the oracle, dropout against Philox, tapes, updates."""
import dataclasses
import gc
import threading
import weakref

import numpy as np
import pytest

import libffn
import oracle
import philox

D_MODEL, D_FF, D_OUT, SHAPE = 6, 9, 5, (2, 3)


def cases(random):
    up, down, gate = random(D_FF, D_MODEL) / 2, random(D_MODEL, D_FF) / 2, random(D_FF, D_MODEL) / 2
    norms = {}
    for slot, width in zip(("in", "mid", "branch", "out"), (D_MODEL, D_FF, D_MODEL, D_MODEL)):
        norms |= {f"norm_{slot}": "layer", f"norm_{slot}_weight": 1 + random(width) / 8, f"norm_{slot}_bias": random(width) / 8}
    dense = {"up": up, "down": down}
    return {
        "gelu": {**dense, "activation": "gelu", "up_bias": random(D_FF), "down_bias": random(D_MODEL)},
        "swiglu": {**dense, "activation": "silu", "gate": gate, "norm_in": "rms", "norm_in_weight": 1 + random(D_MODEL) / 8, "residual": "input"},
        "norms everywhere": {**dense, "activation": "tanh", "residual": "normed", **norms},
        "scales": {**dense, "activation": "gelu_tanh", "residual": "input", "branch_scale": random(D_MODEL), "residual_scale": np.full(1, 0.5, np.float32)},
        "external": {"up": up, "down": random(D_OUT, D_FF), "activation": "sigmoid", "residual": "external", "gate": gate, "gate_bias": random(D_FF)},
    }


def tensors_of(options):
    return {name: value for name, value in options.items() if isinstance(value, np.ndarray)}


def differences(function, at):
    """Central differences of a scalar function by an array, in float64."""
    step, gradient = 1e-5, np.empty(at.shape)
    for index in np.ndindex(at.shape):
        moved = [at.astype(np.float64) for _ in range(2)]
        moved[0][index] += step
        moved[1][index] -= step
        gradient[index] = (function(moved[0]) - function(moved[1])) / (2 * step)
    return gradient


def assert_close(got, expected, name=""):
    np.testing.assert_allclose(got, expected, rtol=0, atol=2e-6 * max(1, np.abs(expected).max()), err_msg=name)


def trained(random, **options):
    """A layer and all that a backward pass of it takes and gives."""
    layer = libffn.Layer(**options, trainable=True)
    x, d_y = random(*SHAPE, D_MODEL), random(*SHAPE, layer.info.d_out)
    external = random(*SHAPE, D_OUT) if options.get("residual") == "external" else None
    return layer, x, d_y, external


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("name", cases(lambda *shape: np.zeros(shape, np.float32)))
def test_gradients_are_those_of_the_formula(name, recompute, random):
    options = cases(random)[name]
    layer, x, d_y, external = trained(random, **options)
    tape = libffn.Tape(recompute=recompute)
    y = layer(x, residual=external, tape=tape)
    np.testing.assert_allclose(y, oracle.layer(x, external=external, **options), rtol=0, atol=1e-5)
    gradients = {tensor: np.full_like(value, np.nan) for tensor, value in tensors_of(options).items()}
    d_x, d_residual = np.full_like(x, np.nan), None if external is None else np.full_like(external, np.nan)
    assert layer.backward(tape, d_y, gradients, d_x=d_x, d_residual=d_residual) is None

    def loss(**changed):
        given = {"external": external, **options, **changed}
        return np.sum(d_y.astype(np.float64) * oracle.layer(given.pop("x", x), **given))

    for tensor, value in tensors_of(options).items():
        assert_close(gradients[tensor], differences(lambda moved: loss(**{tensor: moved}), value), tensor)
    assert_close(d_x, differences(lambda moved: loss(x=moved), x), "x")
    if external is not None:
        assert_close(d_residual, differences(lambda moved: loss(external=moved), external), "residual")


def test_gradients_are_added_where_asked_and_some_may_be_left_out(random):
    options = cases(random)["gelu"]
    layer, x, d_y, _ = trained(random, **options)
    tape, once = libffn.Tape(), np.empty_like(options["up"])
    layer(x, tape=tape)
    layer.backward(tape, d_y, {"up": once})
    start = random(*once.shape)
    added = start.copy()
    layer(x, tape=tape)
    layer.backward(tape, d_y, {"up": added}, accumulate=True)
    assert_close(added, start + once)
    layer(x, tape=tape)
    layer.backward(tape, d_y)  # nothing is wanted
    d_x = np.empty_like(x)
    layer(x, tape=tape)
    layer.backward(tape, d_y, d_x=d_x)
    assert d_x.any()


def test_gradients_of_any_strides(random):
    options = cases(random)["swiglu"]
    layer, x, d_y, _ = trained(random, **options)
    tape, plain = libffn.Tape(), {name: np.empty_like(value) for name, value in tensors_of(options).items()}
    layer(x, tape=tape)
    layer.backward(tape, d_y, plain)
    fused, down, norm = np.full((2 * D_FF, D_MODEL), np.nan, np.float32), np.empty((D_FF, D_MODEL), np.float32), np.empty((D_MODEL, 3), np.float32)
    layer(x, tape=tape)
    layer.backward(tape, d_y, {"gate": fused[::2], "up": fused[1::2], "down": down.T, "norm_in_weight": norm[:, 1]})
    for name, got in (("gate", fused[::2]), ("up", fused[1::2]), ("down", down.T), ("norm_in_weight", norm[:, 1])):
        assert_close(got, plain[name], name)


VIEWS = {
    "rows of wider arrays": lambda a: a[:, :, :D_MODEL],
    "every other row": lambda a: a[:, ::2, :D_MODEL],
    "sequences turned": lambda a: a[:, :3, :D_MODEL].swapaxes(0, 1).copy().swapaxes(0, 1),
    "backwards": lambda a: a[::-1, :3, :D_MODEL],
    "every other column": lambda a: a[:, :3, : 2 * D_MODEL : 2],
    "four dimensions, three strides": lambda a: a.reshape(2, 2, 3, 12)[:, :, ::2, :D_MODEL],
}


@pytest.mark.parametrize("name", VIEWS)
def test_rows_of_any_strides(name, random):
    """The same bits as from contiguous arrays; the tape keeps a copy where the library cannot use an array."""
    view = VIEWS[name]
    options = cases(random)["swiglu"]
    layer, tape = libffn.Layer(**options, trainable=True), libffn.Tape()
    x, d_y, d_x = view(random(2, 6, 12)), view(random(2, 6, 12)), view(random(2, 6, 12))
    dropout = libffn.Dropout(seed=3, hidden=0.5, path=0.4, broadcast=("hidden",))
    expected, gradient = np.empty(x.shape, np.float32), np.empty_like(options["up"])
    y = layer(np.ascontiguousarray(x), tape=tape, dropout=dropout)
    layer.backward(tape, np.ascontiguousarray(d_y), d_x=expected)
    np.testing.assert_array_equal(layer(x, tape=tape, dropout=dropout), y)
    layer.backward(tape, d_y, {"up": gradient}, d_x=d_x)
    np.testing.assert_array_equal(d_x, expected)
    both = d_y.copy()
    layer(x, tape=tape, dropout=dropout)
    layer.backward(tape, both, d_x=both)  # in place of d_y
    np.testing.assert_array_equal(both, expected)


@pytest.mark.parametrize("shape", [(D_MODEL,), (0, D_MODEL), (2, 0, D_MODEL), (1, 1, 1, D_MODEL), (2, 1, 3, D_MODEL)])
def test_any_leading_shape(shape, random):
    options = cases(random)["gelu"]
    layer, tape, gradient = libffn.Layer(**options, trainable=True), libffn.Tape(), np.full(D_MODEL, np.nan, np.float32)
    x, d_y = random(*shape), random(*shape)
    layer(x, tape=tape, dropout=libffn.Dropout(path=0.0))
    layer.backward(tape, d_y, {"down_bias": gradient}, d_x=np.empty_like(x))
    np.testing.assert_allclose(gradient, d_y.reshape(-1, D_MODEL).sum(0), rtol=0, atol=1e-5)


# ---------------------------------------------------------------- dropout


def test_philox_has_its_published_answers():
    ones, pi = (2**32 - 1,) * 6, (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344, 0xA4093822, 0x299F31D0)
    for words, answer in (
        ((0,) * 6, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        (ones, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (pi, (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
    ):
        assert tuple(int(word) for word in philox.philox(words[:4], words[4:])) == answer


@pytest.mark.parametrize("site", ["hidden", "branch", "activation", "pre_activation"])
@pytest.mark.parametrize("broadcast", [False, True])
def test_what_is_dropped_is_a_function_of_its_place(site, broadcast, random):
    up, down = random(D_FF, D_MODEL), random(D_MODEL, D_FF)
    layer, x = libffn.Layer(up, down, activation="tanh", trainable=True), random(2, 3, D_MODEL)
    dropout = libffn.Dropout(seed=2**40 + 5, step=7, layer=2, first_row=4, first_sequence=1, broadcast=(site,) if broadcast else (), **{site: 0.25})
    rows = np.repeat([1, 2], 3) if broadcast else np.arange(4, 10)
    width = D_MODEL if site == "branch" else D_FF
    factor = philox.factors(site, 0.25, rows, width, dropout.seed, 7, 2).reshape(2, 3, width)
    assert 0 < np.mean(factor == 0) < 1
    pre = x.astype(np.float64) @ up.T.astype(np.float64)
    hidden = np.tanh(pre * factor) if site == "pre_activation" else np.tanh(pre) * (factor if site != "branch" else 1)
    y = hidden @ down.T.astype(np.float64) * (factor if site == "branch" else 1)
    np.testing.assert_allclose(layer(x, dropout=dropout), y, rtol=0, atol=1e-5)
    second = dataclasses.replace(dropout, first_row=7, first_sequence=2)  # the batch in two parts
    np.testing.assert_allclose(layer(x[1:], dropout=second), y[1:], rtol=0, atol=1e-5)


def test_a_path_is_a_sequence(random):
    layer = libffn.Layer(random(D_FF, D_MODEL), random(D_MODEL, D_FF), activation="relu", residual="input", trainable=True)
    x = random(2, 8, 3, D_MODEL)
    branch = layer(x) - x
    factor = philox.factors("path", 0.5, range(16), 1, 9, 0, 0).reshape(2, 8, 1, 1)
    np.testing.assert_allclose(layer(x, dropout=libffn.Dropout(seed=9, path=0.5)), x + factor * branch, rtol=0, atol=1e-5)
    assert {0.0, 2.0} == set(factor.ravel())


def test_dropout_of_nothing_and_of_all(random):
    layer = libffn.Layer(random(D_FF, D_MODEL), random(D_MODEL, D_FF), activation="relu", residual="input", trainable=True)
    x = random(2, 3, D_MODEL)
    tape = libffn.Tape()
    expected = layer(x, tape=tape)
    np.testing.assert_array_equal(layer(x, dropout=libffn.Dropout(hidden=0.0), tape=tape), expected)
    np.testing.assert_array_equal(layer(x, dropout=libffn.Dropout(branch=1.0)), x)


# ---------------------------------------------------------------- tapes


def test_a_tape_that_does_not_fit_is_refused_and_nothing_is_written(random):
    options = cases(random)["gelu"]
    layer, x, d_y, _ = trained(random, **options)
    other, wide = libffn.Layer(**options, trainable=True), libffn.Layer(options["up"], random(7, D_FF), activation="relu", trainable=True)
    tape, gradient = libffn.Tape(), np.full_like(options["up"], 7)

    def refused(sentence, made=layer, kind=libffn.InvalidError):
        with pytest.raises(kind, match=sentence):
            made.backward(tape, d_y, {"up": gradient})
        assert (gradient == 7).all()

    refused("the tape is empty")
    layer(x, tape=tape)
    refused("of another layer", other)
    refused("of another layer", wide)
    refused("without FFN_LAYER_TRAINABLE", libffn.Layer(**options), libffn.UnsupportedError)
    layer.update(up=options["up"])
    refused("was updated after")
    layer(x, tape=tape)
    layer.backward(tape, d_y)
    refused("was used up")
    layer(x, tape=tape)
    tape.reserve(layer, 100)
    refused("the tape is empty")


def test_wrong_arguments_of_the_backward_pass_leave_the_tape_as_it_was(random):
    options = cases(random)["gelu"]
    layer, x, d_y, _ = trained(random, **options)
    tape, up = libffn.Tape(), np.full_like(options["up"], 7)
    layer(x, tape=tape)
    read_only = np.zeros_like(up)
    read_only.setflags(write=False)
    for gradients, more, kind, sentence in (
        ({"up": up, "gate": up.copy()}, {}, libffn.InvalidError, "the gate weight is not in this layer"),
        ({"up": up, "middle": up.copy()}, {}, libffn.InvalidError, "middle is not a tensor of a layer"),
        ({"up": up, "down": np.zeros((D_MODEL, D_FF + 1), np.float32)}, {}, libffn.InvalidError, "10"),
        ({"up": read_only}, {}, libffn.InvalidError, "up is read-only"),
        ({"up": up.astype(np.float64)}, {}, libffn.UnsupportedError, "float64"),
        ({"up": up, "up_bias": up[0]}, {}, libffn.InvalidError, "shape|size"),
        ({"up": up}, {"d_x": np.zeros((2, 3, D_MODEL + 1), np.float32)}, libffn.InvalidError, r"the shape of d_x is \(2, 3, 7\), must be \(2, 3, 6\)"),
        ({"up": up}, {"d_x": x}, libffn.InvalidError, "d_x overlaps x, which the tape borrows"),
        ({"up": up}, {"d_residual": np.zeros_like(x)}, libffn.InvalidError, "not external"),
        ({"up": up}, {"threads": -1}, libffn.InvalidError, "threads is -1"),
    ):
        with pytest.raises(kind, match=sentence):
            layer.backward(tape, d_y, gradients, **more)
        assert (up == 7).all()
    with pytest.raises(libffn.InvalidError, match=r"the shape of d_y is \(6, 6\), must be \(2, 3, 6\)"):
        layer.backward(tape, d_y.reshape(6, D_MODEL), {"up": up})
    layer.backward(tape, d_y, {"up": up})
    assert (up != 7).all()


def test_a_tape_keeps_what_it_borrows_until_it_is_read(random):
    options = cases(random)["external"]
    layer, x, d_y, external = trained(random, **options)
    expected = np.empty_like(x)
    tape = libffn.Tape(recompute=True)
    layer(x, residual=external, tape=tape)
    layer.backward(tape, d_y, d_x=expected)
    alive = [weakref.ref(x), weakref.ref(external)]
    layer(x, residual=external, tape=tape)
    del x, external
    gc.collect()
    assert all(one() is not None for one in alive)
    got = np.empty_like(expected)
    layer.backward(tape, d_y, d_x=got)
    np.testing.assert_array_equal(got, expected)
    gc.collect()
    assert all(one() is None for one in alive)


def test_an_output_in_place_of_what_a_tape_borrows_is_refused(random):
    layer, x, _, external = trained(random, **cases(random)["external"])
    with pytest.raises(libffn.InvalidError, match="tape"):
        layer(x, residual=external, out=external, tape=libffn.Tape())


def test_training_takes_a_trainable_layer(weights, random):
    layer = libffn.Layer(**weights)
    assert (layer.info.trainable, libffn.Layer(**weights, trainable=True).info.trainable) == (False, True)
    for action in (
        lambda: layer(random(2, 24), tape=libffn.Tape()),
        lambda: layer(random(2, 24), dropout=libffn.Dropout(hidden=0.5)),
        lambda: layer.update(up=weights["up"]),
        lambda: libffn.Tape().reserve(layer, 3),
    ):
        with pytest.raises(libffn.UnsupportedError, match="TRAINABLE"):
            action()


@pytest.mark.parametrize(
    "fields, sentence",
    [
        (dict(hidden=1.5), "1.5"),
        (dict(path=float("nan")), "nan"),
        (dict(branch=-0.1), "-0.1"),
        (dict(step=2**32), "step of the dropout is 4294967296"),
        (dict(layer=65535), "layer of the dropout is 65535"),
        (dict(seed=-1), "seed is -1"),
        (dict(first_row=2**48), "first_row"),
        (dict(broadcast=("path",)), "broadcast"),
        (dict(broadcast=("middle",)), "broadcast has 'middle', must be of pre_activation, activation, hidden, branch, path"),
        (dict(broadcast="hidden"), "must be a tuple"),
    ],
)
def test_wrong_dropout_is_refused_with_a_sentence(fields, sentence, random):
    layer, out = libffn.Layer(random(D_FF, D_MODEL), random(D_MODEL, D_FF), activation="relu", trainable=True), np.full((2, D_MODEL), 7, np.float32)
    with pytest.raises(libffn.InvalidError, match=sentence):
        layer(random(2, D_MODEL), out=out, dropout=libffn.Dropout(**fields))
    assert (out == 7).all()


def test_a_tape_serves_one_call_at_a_time(random):
    """Other Python threads run during a backward pass, and are told that the tape is in it."""
    layer = libffn.Layer(random(1024, 256), random(256, 1024), activation="gelu", trainable=True)
    x, tape, seen = random(2048, 256), libffn.Tape(), 0
    d_y, gradient = random(2048, 256), np.empty((1024, 256), np.float32)
    for _ in range(100):
        layer(x, tape=tape)
        thread = threading.Thread(target=lambda: layer.backward(tape, d_y, {"up": gradient}))
        thread.start()
        while thread.is_alive() and not seen:
            try:
                layer(x[:1], tape=tape)
            except libffn.BusyError as error:
                assert str(error) == "the tape is inside another call"
                seen += 1
        thread.join()
        if seen:
            break
    assert seen
    layer(x, tape=tape)
    layer.backward(tape, d_y, {"up": gradient})


# ---------------------------------------------------------------- updates


def test_an_updated_layer_is_the_one_made_of_the_new_weights(random):
    for options in cases(random).values():
        layer, x, _, external = trained(random, **options)
        new = {name: value + random(*value.shape) / 4 for name, value in tensors_of(options).items()}
        if "down" in new:
            new["down"] = np.asfortranarray(new["down"])
        layer.update(**new)
        other = libffn.Layer(**{**options, **new}, trainable=True)
        np.testing.assert_array_equal(layer(x, residual=external), other(x, residual=external))
        for name, value in layer.weights().items():
            np.testing.assert_array_equal(value, new[name])


def test_a_wrong_update_changes_nothing(random):
    options = cases(random)["gelu"]
    layer, x, _, _ = trained(random, **options)
    expected, up = layer(x), random(D_FF, D_MODEL)
    for wrong, kind, sentence in (
        ({"up": up, "down": up}, libffn.InvalidError, "down"),
        ({"up": up, "gate": up}, libffn.InvalidError, "the gate weight is not in this layer"),
        ({"up": up, "middle": up}, libffn.InvalidError, "middle is not a tensor of a layer"),
        ({"up": up.astype(np.float64)}, libffn.UnsupportedError, "float64"),
    ):
        with pytest.raises(kind, match=sentence):
            layer.update(**wrong)
        np.testing.assert_array_equal(layer(x), expected)


def test_threads_and_contexts_give_the_same_bits(random):
    options = cases(random)["swiglu"]
    layer, _, _, _ = trained(random, **options)
    x, d_y, found = random(300, D_MODEL), random(300, D_MODEL), []
    for where in ({}, {"threads": 2}, {"context": libffn.Context(3)}):
        tape, gradients, d_x = libffn.Tape(), {name: np.empty_like(value) for name, value in tensors_of(options).items()}, np.empty_like(x)
        layer(x, tape=tape, dropout=libffn.Dropout(seed=1, hidden=0.3), **where)
        layer.backward(tape, d_y, gradients, d_x=d_x, **where)
        layer.update(up=options["up"], **where)
        found.append([d_x, *gradients.values()])
    for others in found[1:]:
        for one, other in zip(found[0], others):
            np.testing.assert_array_equal(one, other)
