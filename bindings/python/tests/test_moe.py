# SPDX-License-Identifier: MIT
"""Mixture of experts: routing, losses and layers against NumPy in float64, from the formulas of ffn.h. What each function does in full, the C tests show."""
import math

import numpy as np
import pytest

import libffn
import oracle
from conftest import assert_close
from libffn import moe

TOKENS, EXPERTS = 13, 8


def softmax(z):
    powers = np.exp(z - z.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def chosen(c, top_k):
    """Ids by descending c, the lowest first where equal."""
    return np.argsort(-c, axis=-1, kind="stable")[..., :top_k]


def taken(array, ids):
    return np.take_along_axis(array, ids, -1)


def test_mixtral_and_granite(random):
    z = random(2, TOKENS, EXPERTS)
    exact = z.astype(np.float64)
    ids = chosen(exact, 2)
    scores = np.empty_like(z)
    routing = moe.route(z, 2, moe.Router(normalise="sum"), scores=scores)
    np.testing.assert_array_equal(routing.ids, ids)
    weights = taken(softmax(exact), ids)
    np.testing.assert_allclose(routing.weights, weights / weights.sum(-1, keepdims=True), rtol=1e-6)
    np.testing.assert_allclose(scores, softmax(exact), rtol=1e-6)
    assert (routing.leading, routing.top_k, routing.experts) == ((2, TOKENS), 2, EXPERTS)
    for where in ({"threads": 2}, {"context": libffn.Context(3)}, {"out": moe.Routing.empty((2, TOKENS), 2, EXPERTS)}):
        granite = moe.route(z, 2, moe.Router(score="none", weight="softmax"), **where)
        np.testing.assert_array_equal(granite.ids, ids)
        np.testing.assert_allclose(granite.weights, softmax(taken(exact, ids)), rtol=1e-6)


def test_deepseek_v3(random):
    z, bias = random(TOKENS, EXPERTS), random(EXPERTS) / 4
    router = moe.Router(score="sigmoid", groups=4, top_groups=2, group_score="top2_sum", normalise="sum", eps_added=1e-20, scale=2.5)
    routing = moe.route(z, 3, router, selection_bias=bias)
    s = (1 / (1 + np.exp(-z.astype(np.float64)))).astype(np.float32)
    c = (s + bias).reshape(TOKENS, 4, 2)
    out = np.ones((TOKENS, 4), bool)
    np.put_along_axis(out, chosen(c.sum(-1), 2), False, -1)
    ids = chosen(np.where(out[:, :, None], -np.inf, c).reshape(TOKENS, EXPERTS), 3)
    np.testing.assert_array_equal(routing.ids, ids)
    weights = taken(s.astype(np.float64), ids)
    np.testing.assert_allclose(routing.weights, 2.5 * weights / weights.sum(-1, keepdims=True), rtol=1e-6)


def test_given_ids_scales_padding_and_rows_that_are_no_numbers(random):
    z, scale, mask = random(TOKENS, EXPERTS), random(EXPERTS), np.ones(TOKENS, bool)
    z[3], mask[5] = np.nan, False
    routing = moe.route(z, 2, mask=mask, expert_scale=scale)
    assert np.isnan(routing.weights[3]).all() and sorted(routing.ids[3].tolist()) == [0, 1]
    assert (routing.ids[5] == moe.NO_EXPERT).all() and (routing.weights[5] == 0).all()
    np.testing.assert_allclose(routing.weights[0], taken(softmax(z[0].astype(np.float64)), routing.ids[0]) * scale[routing.ids[0]], rtol=1e-6)
    routing.ids[0, 1] = moe.NO_EXPERT
    assert moe.route(z, 2, moe.Router(normalise="sum"), given=routing) is routing
    assert routing.weights[0].tolist() == [1, 0]


def test_logits(random):
    x, weight, bias, norm_weight = random(2, 3, 6), random(EXPERTS, 6), random(EXPERTS), random(6)
    expected = x.astype(np.float64) @ weight.T.astype(np.float64)
    assert_close(moe.logits(x, weight), expected)
    out = np.empty((2, 3, EXPERTS), np.float32)
    assert moe.logits(x, np.ascontiguousarray(weight.T).T, bias=bias, out=out) is out
    assert_close(out, expected + bias)
    assert_close(moe.logits(x[0, ::2], weight[::-1], threads=2), expected[0, ::2, ::-1])
    normed = x / np.sqrt(np.mean(x.astype(np.float64) ** 2, -1, keepdims=True) + 1e-6) * norm_weight
    assert_close(moe.logits(x, weight, norm="rms", norm_weight=norm_weight), normed @ weight.T.astype(np.float64))


def test_the_other_ways_to_choose(random):
    z = random(TOKENS, EXPERTS)
    mixed = moe.sparse_mixer(z)
    np.testing.assert_array_equal(mixed.ids[:, 0], z.argmax(-1))
    scores = softmax(z.astype(np.float64)).astype(np.float32)
    routing = moe.expert_choice(scores, 3)
    np.testing.assert_array_equal(routing.count()[0], [3] * EXPERTS)
    for expert in range(EXPERTS):
        assert set(np.nonzero((routing.ids == expert).any(-1))[0]) == set(np.argsort(-scores[:, expert], kind="stable")[:3])
    table, tokens = np.array([[1, 2], [3, 0], [7, 5]], np.int32), np.array([2, 0, 1, 2])
    hashed = moe.hash_routing(tokens, table, EXPERTS)
    np.testing.assert_array_equal(hashed.ids, table[tokens])
    with pytest.raises(libffn.InvalidError, match="3"):
        moe.hash_routing(np.array([3]), table, EXPERTS)
    moe.route(z[:4], 2, given=hashed)
    np.testing.assert_allclose(hashed.weights, taken(softmax(z[:4].astype(np.float64)), table[tokens]), rtol=1e-6)


def test_second_choices_and_capacity(random):
    z = random(TOKENS, EXPERTS)
    routing = moe.route(z, 2)
    weights = routing.weights.copy()
    routing.second_expert(moe.SecondExpert("threshold", threshold=0.2))
    np.testing.assert_array_equal(routing.ids[:, 1] != moe.NO_EXPERT, weights[:, 1] > 0.2)
    routing.second_expert(moe.SecondExpert("sampled", seed=3), z, stream=1)
    np.testing.assert_array_equal(routing.ids[:, 0], z.argmax(-1))
    assert (routing.ids[:, 1] != routing.ids[:, 0]).all()

    routing = moe.route(np.tile(z[:1], (TOKENS, 1)), 2)
    routing.limit(moe.Capacity(capacity=4))
    first, second = routing.ids[0]
    np.testing.assert_array_equal(routing.ids, [[first, second]] * 4 + [[moe.NO_EXPERT] * 2] * (TOKENS - 4))
    found = routing.statistics()
    assert (found.tokens, found.assignments, found.dropped, found.lost_tokens) == (TOKENS, 8, 2 * TOKENS - 8, TOKENS - 4)
    assert (found.idle_experts, found.largest_load, found.router_entropy) == (EXPERTS - 2, 4, 0)
    assert found.load_entropy == pytest.approx(math.log(2))
    routing = moe.route(z, 2)
    routing.limit(moe.Capacity(factor=1.0, rounding="up", per_choice=True, drop="probability"), threads=1)
    assert routing.count().max() <= math.ceil(2 * TOKENS / EXPERTS)


LOSSES = {  # value for one group of N tokens: counts n, probabilities p
    "loss_switch": lambda n, p, k: EXPERTS * np.sum(n / len(p) * p.mean(0)),
    "loss_gshard": lambda n, p, k: EXPERTS * np.sum(n / len(p) * p.mean(0)),
    "loss_huggingface": lambda n, p, k: EXPERTS * np.sum(n / len(p) * p.mean(0)),
    "loss_megatron": lambda n, p, k: EXPERTS / (k * len(p) ** 2) * np.sum(n * p.sum(0)),
    "loss_deepseek": lambda n, p, k: np.sum(n * EXPERTS / (len(p) * k) * p.mean(0)),
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses_and_their_gradients(name, random):
    scores = np.empty((TOKENS, EXPERTS), np.float32)
    routing = moe.route(random(TOKENS, EXPERTS), 2, scores=scores)
    loss, value = getattr(moe, name), LOSSES[name]
    counts = routing.count(choices=1 if name == "loss_gshard" else 0)
    assert loss(scores, counts, 2) == pytest.approx(value(counts[0], scores.astype(np.float64), 2), rel=1e-6)
    gradient = np.ones_like(scores)
    assert loss(scores, counts, 2, coefficient=0.5, gradient=gradient) == pytest.approx(loss(scores, counts, 2) / 2)
    for at in ((0, 0), (5, 3)):
        moved = scores.astype(np.float64)
        moved[at] += 1e-3
        slope = (value(counts[0], moved, 2) - value(counts[0], scores.astype(np.float64), 2)) / 1e-3
        assert gradient[at] - 1 == pytest.approx(slope / 2, rel=1e-3, abs=1e-5)
    before = gradient.copy()
    assert loss(scores, counts, 2, coefficient=0, gradient=gradient) == 0
    np.testing.assert_array_equal(gradient, before)
    if name not in ("loss_huggingface", "loss_megatron"):
        groups = routing.count(group_tokens=5, choices=1 if name == "loss_gshard" else 0)
        each = [value(n, scores[5 * i : 5 * i + 5].astype(np.float64), 2) for i, n in enumerate(groups)]
        assert loss(scores, groups, 2, group_tokens=5) == pytest.approx(np.mean(each), rel=1e-6)


def test_the_z_loss_and_the_bias_of_deepseek(random):
    z, mask = random(TOKENS, EXPERTS), np.ones(TOKENS, np.uint8)
    mask[2] = 0
    exact = np.log(np.exp(np.delete(z, 2, 0).astype(np.float64)).sum(-1)) ** 2
    gradient = np.zeros_like(z)
    assert moe.loss_z(z, mask=mask, gradient=gradient, coefficient=0.25) == pytest.approx(exact.mean() / 4, rel=1e-6)
    assert not gradient[2].any() and gradient[1].any()
    bias = np.zeros(4, np.float32)
    assert moe.update_bias(bias, np.array([[1, 3, 2, 2]]), 0.5) is bias
    assert bias.tolist() == [0.5, -0.5, 0, 0]


@pytest.mark.parametrize(
    "call, sentence",
    [
        (lambda z: moe.route(z, 9), "top_k is 9"),
        (lambda z: moe.route(z, 0), "top_k is 0"),
        (lambda z: moe.route(z, 2, moe.Router(score="soft")), "score is 'soft', must be one of softmax, sigmoid, sqrt_softplus, none"),
        (lambda z: moe.route(z, 2, moe.Router(groups=3)), "groups is 3"),
        (lambda z: moe.route(z, 2, selection_bias=z[0, :3]), r"the shape of selection_bias is \(3,\), must be \(8,\)"),
        (lambda z: moe.route(z, 2, mask=np.ones(3, bool)), r"the shape of mask is \(3,\), must be \(13,\)"),
        (lambda z: moe.route(z, 2, out=moe.Routing.empty((13,), 3, 8)), "the routing is for"),
        (lambda z: moe.route(z, 2, scores=z[::2]), "scores"),
        (lambda z: moe.expert_choice(z, 0), "capacity is 0"),
        (lambda z: moe.route(z, 2).limit(moe.Capacity()), "factor"),
        (lambda z: moe.route(z, 2).limit(moe.Capacity(factor=float("nan"))), "factor is nan"),
        (lambda z: moe.route(z, 2).second_expert(moe.SecondExpert("threshold")), "threshold is 0"),
        (lambda z: moe.loss_switch(z, np.zeros((2, 8), np.int64), 2), "counts has 16 numbers, must have 1 . 8"),
        (lambda z: moe.loss_switch(z, np.full((1, 8), 99), 2), "99"),
        (lambda z: moe.logits(z, z[:, :3]), "the shapes of x and weight"),
        (lambda z: moe.update_bias(np.zeros(3, np.float32), np.zeros(4, np.int64), 1), "the shapes of selection_bias and counts"),
        (lambda z: moe.Routing(np.zeros((2, 2), np.int32), np.zeros((2, 3), np.float32), 4), "the shapes of ids and weights"),
        (lambda z: moe.Routing(np.array([[1, 1]], np.int32), np.zeros((1, 2), np.float32), 4).count(), "twice"),
        (lambda z: moe.Routing(np.zeros((4, 2), np.int32)[::2], np.zeros((2, 2), np.float32), 4), "ids has gaps"),
    ],
)
def test_wrong_arguments_are_refused_with_a_sentence(call, sentence, random):
    with pytest.raises(libffn.InvalidError, match=sentence):
        call(random(TOKENS, EXPERTS))


# ---------------------------------------------------------------- the layer

D_MODEL, D_FF = 6, 10


def experts(random):
    return {"up": random(EXPERTS, D_FF, D_MODEL), "gate": random(EXPERTS, D_FF, D_MODEL), "down": random(EXPERTS, D_MODEL, D_FF) / 3}


def mixture(x, ids, weights, tensors):
    """The sum over slots of weight * expert(x), in float64. x [tokens, d_model]"""
    y = np.zeros(x.shape)
    for t, k in np.ndindex(ids.shape):
        if ids[t, k] != moe.NO_EXPERT:
            own = {name: array[ids[t, k]] for name, array in tensors.items()}
            y[t] += weights[t, k] * oracle.layer(x[t], activation="silu", **own)
    return y


def test_a_layer_of_experts(random):
    tensors, router, x = experts(random), random(EXPERTS, D_MODEL), random(TOKENS, D_MODEL)
    layer = libffn.Layer(**tensors, activation="silu", residual="input", router=router, moe=moe.Mixture(2, router=moe.Router(normalise="sum")))
    routing = moe.route(moe.logits(x, router), 2, moe.Router(normalise="sum"))
    expected = x + mixture(x, routing.ids, routing.weights, tensors)
    np.testing.assert_allclose(layer(x), expected, rtol=0, atol=2e-5)
    np.testing.assert_allclose(layer(x, threads=2), expected, rtol=0, atol=2e-5)

    told = moe.Call(
        ids=np.empty((TOKENS, 2), np.int32),
        weights=np.empty((TOKENS, 2), np.float32),
        logits=np.empty((TOKENS, EXPERTS), np.float32),
        scores=np.empty((TOKENS, EXPERTS), np.float32),
        counts=np.empty(EXPERTS, np.int64),
        statistics=True,
    )
    np.testing.assert_array_equal(layer(x, moe=told), layer(x))
    np.testing.assert_array_equal(told.ids, routing.ids)
    np.testing.assert_array_equal(told.weights, routing.weights)
    np.testing.assert_array_equal(told.logits, moe.logits(x, router))
    np.testing.assert_array_equal(told.counts, routing.count()[0])
    assert told.statistics == routing.statistics(told.scores)

    one_by_one = {name: list(array) for name, array in tensors.items()}
    same = libffn.Layer(**one_by_one, activation="silu", residual="input", router=router, moe=moe.Mixture(2, router=moe.Router(normalise="sum")))
    np.testing.assert_array_equal(same(x), layer(x))
    info = layer.info
    assert (info.experts, info.identity_experts, info.top_k, info.d_ff) == (EXPERTS, 0, 2, D_FF)
    assert info.active_parameters == info.parameters - (EXPERTS - 2) * 3 * D_FF * D_MODEL
    got = layer.weights()
    assert {name: array.shape for name, array in got.items()} == {name: array.shape for name, array in {**tensors, "router": router}.items()}
    for name, array in tensors.items():
        np.testing.assert_array_equal(got[name], array)


def test_a_routing_of_ones_own_shared_and_identity_experts_and_padding(random):
    tensors, x = experts(random), random(2, TOKENS, D_MODEL)
    shared = {"up": random(4, D_MODEL), "gate": random(4, D_MODEL), "down": random(D_MODEL, 4)}
    layer = libffn.Layer(
        **tensors, **{f"shared_{name}": array for name, array in shared.items()}, activation="silu", moe=moe.Mixture(2, identity_experts=1)
    )
    ids = np.tile(np.array([EXPERTS, 3], np.int32), (2, TOKENS, 1))
    weights = np.abs(random(2, TOKENS, 2))
    mask = np.ones((2, TOKENS), bool)
    mask[1, 4:] = False
    y = layer(x, moe=moe.Call(routing=moe.Routing(ids, weights, EXPERTS + 1, mask)))
    own = {name: array[3] for name, array in tensors.items()}
    routed = weights[..., :1] * x.astype(np.float64) + weights[..., 1:] * oracle.layer(x, activation="silu", **own)
    expected = mask[..., None] * routed + oracle.layer(x, activation="silu", **shared)
    np.testing.assert_allclose(y, expected, rtol=0, atol=2e-5)
    assert layer.info.d_shared == 4 and layer.info.identity_experts == 1
    with pytest.raises(libffn.InvalidError, match="rout"):
        layer(x)
    with pytest.raises(libffn.InvalidError, match="the routing is for"):
        layer(x[0], moe=moe.Call(routing=moe.Routing(ids, weights, EXPERTS + 1)))


def test_a_call_may_bring_the_ids_alone(random):
    """Hash routing: the ids are the call's, the weights the router's."""
    tensors, router, x = experts(random), random(EXPERTS, D_MODEL), random(4, D_MODEL)
    layer = libffn.Layer(**tensors, activation="silu", router=router, moe=moe.Mixture(2, given_ids=True))
    hashed = moe.hash_routing(np.array([2, 0, 1, 2]), np.array([[1, 2], [3, 0], [7, 5]], np.int32), EXPERTS)
    hashed.weights[...] = np.nan  # not read
    told = moe.Call(routing=hashed, weights=np.empty((4, 2), np.float32))
    y = layer(x, moe=told)
    weights = taken(softmax(x.astype(np.float64) @ router.T.astype(np.float64)), hashed.ids)
    np.testing.assert_allclose(told.weights, weights, rtol=0, atol=1e-6)
    np.testing.assert_allclose(y, mixture(x, hashed.ids, weights, tensors), rtol=0, atol=2e-5)
    with pytest.raises(libffn.InvalidError, match="rout"):
        layer(x)


def test_the_arrays_of_a_routing_stay_its_own(random):
    routing = moe.route(random(TOKENS, EXPERTS), 2)
    for name, value in (("ids", np.zeros((1, 2), np.int64)), ("weights", np.zeros(1)), ("mask", np.zeros(1, bool)), ("experts", 9)):
        with pytest.raises(AttributeError):
            setattr(routing, name, value)
    with pytest.raises(libffn.InvalidError, match="experts is -1"):
        moe.Routing(routing.ids, routing.weights, -1)


def test_experts_one_by_one(random):
    """Gradients and tensors of each expert in an array of its own."""
    tensors, router, x, d_y = experts(random), random(EXPERTS, D_MODEL), random(3, D_MODEL), random(3, D_MODEL)
    layer, tape = libffn.Layer(**tensors, activation="silu", router=router, moe=moe.Mixture(2), trainable=True), libffn.Tape()
    stacks = {name: np.full_like(array, np.nan) for name, array in tensors.items()}
    single = {name: [np.full_like(one, np.nan) for one in array] for name, array in tensors.items()}
    for gradients in (stacks, single):
        layer(x, tape=tape)
        layer.backward(tape, d_y, gradients)
    for name, stack in stacks.items():
        np.testing.assert_array_equal(np.stack(single[name]), stack)
    for change in (0, 1):
        now = {name: array + np.float32(change) for name, array in tensors.items()}
        layer.update(**{name: list(array) for name, array in now.items()})
        layer.read(**single)
        for name, array in now.items():
            np.testing.assert_array_equal(np.stack(single[name]), array)
    with pytest.raises(libffn.UnsupportedError, match=r"up\[1\] is of"):
        layer.read(up=[np.zeros((D_FF, D_MODEL), np.float32), np.zeros((D_FF, D_MODEL))])


def test_wrong_mixtures_are_refused_with_a_sentence(random):
    tensors, router = experts(random), random(EXPERTS, D_MODEL)
    for wrong, sentence in (
        (dict(moe=moe.Mixture(9)), "top_k is 9"),
        (dict(moe=moe.Mixture(2, choose="best")), "choose is 'best', must be one of top_k, sparse_mixer, by_experts"),
        (dict(moe=moe.Mixture(2, capacity=moe.Capacity(factor=float("nan")))), "factor is nan"),
        (dict(moe=moe.Mixture(2), up=list(tensors["up"][:-1])), "expert"),
        (dict(moe=None), "."),
    ):
        with pytest.raises(libffn.InvalidError, match=sentence):
            libffn.Layer(**{**tensors, "activation": "silu", "router": router, **wrong})
    layer = libffn.Layer(**tensors, activation="silu", router=router, moe=moe.Mixture(2))
    with pytest.raises(libffn.InvalidError, match=r"the shape of counts is \(3,\), must be \(8,\)"):
        layer(random(2, D_MODEL), moe=moe.Call(counts=np.zeros(3, np.int64)))
    with pytest.raises(libffn.InvalidError):
        libffn.Layer(random(3, 2), random(2, 3), activation="relu")(random(1, 2), moe=moe.Call())


# ---------------------------------------------------------------- training


def slope(function, at, index, step=1e-4):
    moved = [at.astype(np.float64) for _ in range(2)]
    moved[0][index] += step
    moved[1][index] -= step
    return (function(moved[0]) - function(moved[1])) / (2 * step)


def test_the_backward_passes_of_routing(random):
    z, scale, d_weights, d_scores = random(TOKENS, EXPERTS), random(EXPERTS), random(TOKENS, 2), random(TOKENS, EXPERTS)
    router = moe.Router(normalise="sum")
    routing = moe.route(z, 2, router, expert_scale=scale)
    d_scale = np.empty(EXPERTS, np.float32)
    d_z = moe.route_backward(z, router, routing, d_weights=d_weights, d_scores=d_scores, expert_scale=scale, d_expert_scale=d_scale)

    def loss(z, scale=scale.astype(np.float64)):
        s = softmax(z)
        w = taken(s, routing.ids)
        return np.sum(d_weights * w / w.sum(-1, keepdims=True) * scale[routing.ids]) + np.sum(d_scores * s)

    for index in np.ndindex(2, EXPERTS):
        assert d_z[index] == pytest.approx(slope(loss, z, index), abs=1e-5)
    assert d_scale[3] == pytest.approx(slope(lambda moved: loss(z.astype(np.float64), moved), scale, 3), abs=1e-5)
    twice = d_z.copy()
    assert moe.route_backward(z, router, routing, d_weights=d_weights, d_scores=d_scores, expert_scale=scale, out=twice, accumulate=True) is twice
    np.testing.assert_allclose(twice, 2 * d_z, rtol=0, atol=1e-6)
    with pytest.raises(libffn.InvalidError, match="no out to add to"):
        moe.route_backward(z, router, routing, accumulate=True)
    mixed = moe.sparse_mixer(z)
    assert moe.sparse_mixer_backward(z, mixed, d_weights).shape == z.shape
    noise = moe.Noise("choice", 0, seed=1)
    drawn, again = moe.sparse_mixer_sample(z, noise, jitter_eps=5), moe.sparse_mixer_sample(z, noise, jitter_eps=5, threads=2)
    assert (drawn.ids == again.ids).all() and (drawn.weights == again.weights).all() and (drawn.ids[..., 0] != drawn.ids[..., 1]).all()
    assert moe.sparse_mixer_backward(z, drawn, d_weights, jitter_eps=5).any()
    with pytest.raises(libffn.InvalidError, match="size of the noise is 1, must be 0"):
        moe.sparse_mixer_sample(z, moe.Noise("choice", 1))
    hashed = moe.route(z, 2, given=moe.hash_routing(np.zeros(TOKENS, np.int64), np.array([[4, 1]], np.int32), EXPERTS))
    assert moe.route_backward(z, moe.Router(), hashed, d_weights=d_weights, given_ids=True).any()


def test_the_backward_pass_of_logits(random):
    x, weight, d = random(2, TOKENS, 5), random(EXPERTS, 5), random(2, TOKENS, EXPERTS)
    d_x, d_weight, d_bias = np.empty_like(x), np.empty_like(weight), np.empty(EXPERTS, np.float32)
    moe.logits_backward(x, weight, d, d_x=d_x, d_weight=d_weight, d_bias=d_bias)
    exact = d.astype(np.float64)
    np.testing.assert_allclose(d_x, exact @ weight, rtol=0, atol=1e-5)
    np.testing.assert_allclose(d_weight, np.einsum("bte,btd->ed", exact, x), rtol=0, atol=1e-5)
    np.testing.assert_allclose(d_bias, exact.sum((0, 1)), rtol=0, atol=1e-5)
    start = d_x.copy()
    moe.logits_backward(x, weight, d, d_x=d_x, add_d_x=True, d_weight=d_weight, accumulate=True, threads=2)
    np.testing.assert_allclose(d_x, 2 * start, rtol=0, atol=1e-5)
    np.testing.assert_allclose(d_weight, 2 * np.einsum("bte,btd->ed", exact, x), rtol=0, atol=1e-5)
    gain, d_gain = random(5), np.empty(5, np.float32)
    moe.logits_backward(x, weight, d, norm="rms", norm_weight=gain, d_norm_weight=d_gain)
    normed = x / np.sqrt(np.mean(x.astype(np.float64) ** 2, -1, keepdims=True) + 1e-6)
    np.testing.assert_allclose(d_gain, ((exact @ weight) * normed).sum((0, 1)), rtol=0, atol=2e-5)
    with pytest.raises(libffn.InvalidError, match="the shape of d_x"):
        moe.logits_backward(x, weight, d, d_x=d_x[0])


def test_noise_is_a_function_of_its_place(random):
    x = random(3, TOKENS, EXPERTS)
    noise = moe.Noise("input", 0.125, seed=5, step=2, layer=1)
    out = moe.jitter(x, noise)
    assert (out != x).any() and np.all(np.abs(out - x) <= 0.1251 * np.abs(x))
    np.testing.assert_array_equal(moe.jitter(x[1:], moe.Noise("input", 0.125, 5, 2, 1, first_row=TOKENS), threads=2), out[1:])
    np.testing.assert_array_equal(moe.jitter(x, moe.Noise("logits", 0)), x)
    given = x.copy()
    assert moe.jitter(given, noise, out=given) is given
    np.testing.assert_array_equal(given, out)
    noisy, zero, standard = x.copy(), np.zeros_like(x), moe.Noise("noise", 0, seed=3)
    assert moe.add_noise(noisy, standard, zero) is noisy
    z = (noisy - x) / math.log(2)  # softplus(0)
    assert abs(z.std() - 1) < 0.1
    np.testing.assert_allclose(moe.add_noise_backward(zero, standard, np.ones_like(x)), z / 2, rtol=0, atol=1e-5)
    for wrong, sentence in ((moe.Noise("noise", 0.1), "site"), (moe.Noise("input", 2), "size"), (moe.Noise("here", 1), "site is 'here'")):
        with pytest.raises(libffn.InvalidError, match=sentence):
            moe.jitter(x, wrong)


def test_a_mixture_is_trained_through_its_layer(random):
    """Gradients of experts, router and x against float64 differences, with those of a loss over the scores; weights of a routing of one's own."""
    tensors, router, x, d_y, d_scores = experts(random), random(EXPERTS, D_MODEL), random(3, D_MODEL), random(3, D_MODEL), random(3, EXPERTS)
    layer, tape = libffn.Layer(**tensors, activation="silu", router=router, moe=moe.Mixture(2), trainable=True), libffn.Tape()
    gradients = {name: np.full_like(array, np.nan) for name, array in {**tensors, "router": router}.items()}
    told, d_x, d_weights = moe.Call(ids=np.empty((3, 2), np.int32)), np.empty_like(x), np.empty((3, 2), np.float32)
    layer(x, tape=tape, moe=told)
    layer.backward(tape, d_y, gradients, d_x=d_x, moe=moe.Gradients(d_scores=d_scores, d_weights=d_weights))

    def loss(**changed):
        now = {**tensors, "router": router, "x": x, **changed}
        scores = softmax(now["x"].astype(np.float64) @ now["router"].T.astype(np.float64))
        own = {name: now[name] for name in tensors}
        return np.sum(d_y * mixture(now["x"].astype(np.float64), told.ids, taken(scores, told.ids), own)) + np.sum(d_scores * scores)

    for name, found in (("up", gradients["up"]), ("down", gradients["down"]), ("router", gradients["router"]), ("x", d_x)):
        at = {**tensors, "router": router, "x": x}[name]
        for flat in range(0, at.size, 29 if at.size > 100 else 5):
            index = np.unravel_index(flat, at.shape)
            assert found[index] == pytest.approx(slope(lambda moved: loss(**{name: moved}), at, index), abs=1e-4), f"{name}{index}"
    idle = sorted(set(range(EXPERTS)) - set(told.ids.ravel().tolist()))
    assert idle and not gradients["up"][idle].any()
    assert d_weights.any()
    layer(x, tape=tape)
    with pytest.raises(libffn.InvalidError, match="the shape of d_weights"):
        layer.backward(tape, d_y, moe=moe.Gradients(d_weights=np.empty((3, 3), np.float32)))
