# SPDX-License-Identifier: MIT
"""Numbers among the arguments: of another type they are refused with a sentence that names them."""
import numpy as np
import pytest

import libffn
from libffn import moe


def array(*shape):
    return np.zeros(shape, np.float32)


def small(**options):
    return libffn.Layer(array(4, 2), array(2, 4), activation="swish", **options)


def mixture(**options):
    return small(moe=moe.Mixture(**{"top_k": 1, **options}))


ROUTING = moe.Routing.empty((3,), 2, 4)
TYPES = [
    (lambda: small(d_ff=1.5), "d_ff is of type float, must be an integer"),
    (lambda: small(alpha="x"), "alpha is of type str, must be a number"),
    (lambda: small(gate_max=[1.0]), "gate_max is of type list, must be a number"),
    (lambda: small(norm_in="rms", eps="1e-5"), "^eps is of type str"),
    (lambda: small(norm_in="rms", norm_in_eps="1e-5"), "norm_in_eps is of type str"),
    (lambda: small(norm_out_offset=1j), "norm_out_offset is of type complex"),
    (lambda: libffn.Conv(array(4, 2), array(2, 4), activation="relu", beta="1"), "beta is of type str"),
    (lambda: libffn.Conv(array(4, 2), array(2, 4), activation="relu", kernel_size="1"), "kernel_size is of type str, must be an integer"),
    (lambda: libffn.Context("2"), "threads is of type str"),
    (lambda: small()(array(3, 2), threads=1.0), "threads is of type float"),
    (lambda: small(trainable=True)(array(3, 2), dropout=libffn.Dropout(branch="0.1")), "branch is of type str, must be a number"),
    (lambda: small(trainable=True)(array(3, 2), dropout=libffn.Dropout(seed=0.5)), "seed is of type float, must be an integer"),
    (lambda: libffn.weight_init(array(2), "normal", seed=1, gain="2"), "gain is of type str"),
    (lambda: libffn.weight_init(array(2), "normal", seed=1, cutoff={}), "cutoff is of type dict"),
    (lambda: libffn.sgd_step(array(2), array(2), learning_rate="0.1"), "learning_rate is of type str"),
    (lambda: libffn.sgd_step(array(2), array(2), array(2), learning_rate=1, momentum=array(2)), "momentum is of type ndarray"),
    (lambda: libffn.adamw_step(array(2), array(2), array(2), array(2), step=1, learning_rate=1, beta2="0.9"), "beta2 is of type str"),
    (lambda: libffn.adamw_step(array(2), array(2), array(2), array(2), step=1.0, learning_rate=1), "step is of type float"),
    (lambda: libffn.clip_global_norm([array(2)], "1"), "max_norm is of type str"),
    (lambda: moe.route(array(3, 4), "2"), "top_k is of type str"),
    (lambda: moe.route(array(3, 4), 2, moe.Router(scale="2")), "scale is of type str"),
    (lambda: moe.logits(array(3, 2), array(4, 2), norm="rms", norm_eps="0"), "norm_eps is of type str"),
    (lambda: moe.logits_backward(array(3, 2), array(4, 2), array(3, 4), norm="rms", norm_eps="0"), "norm_eps is of type str"),
    (lambda: moe.sparse_mixer(array(3, 4), jitter_eps="0"), "jitter_eps is of type str"),
    (lambda: moe.sparse_mixer_backward(array(3, 4), ROUTING, array(3, 2), jitter_eps="0"), "jitter_eps is of type str"),
    (lambda: ROUTING.limit(moe.Capacity(factor="1.25")), "factor is of type str"),
    (lambda: ROUTING.second_expert(moe.SecondExpert("threshold", threshold="0.2")), "threshold is of type str"),
    (lambda: moe.jitter(array(3, 4), moe.Noise("input", "0.1")), "size is of type str"),
    (lambda: moe.loss_switch(array(3, 4), ROUTING.count(), 2, coefficient="0.1"), "coefficient is of type str"),
    (lambda: moe.loss_z(array(3, 4), coefficient="0.1"), "coefficient is of type str"),
    (lambda: moe.update_bias(array(4), ROUTING.count(), "0.1"), "rate is of type str"),
    (lambda: mixture(jitter_eps="0"), "jitter_eps is of type str"),
    (lambda: mixture(router_norm="rms", router_norm_eps="0"), "router_norm_eps is of type str"),
    (lambda: mixture(top_k="1"), "top_k is of type str"),
]


@pytest.mark.parametrize("wrong, sentence", TYPES)
def test_numbers_of_another_type_are_type_errors_that_name_the_argument(wrong, sentence):
    with pytest.raises(TypeError, match=sentence):
        wrong()


def test_what_is_like_a_number_is_one():
    zero_dimensional, scalar = np.array(0.25), np.float32(0.25)
    for beta in (zero_dimensional, scalar, 0.25):
        assert np.array_equal(small(beta=beta)(array(1, 2)), array(1, 2))
    libffn.Context(np.int64(1))
    with pytest.raises(libffn.InvalidError, match="broadcast is 3"):
        small(trainable=True)(array(3, 2), dropout=libffn.Dropout(hidden=0.5, broadcast=3))
