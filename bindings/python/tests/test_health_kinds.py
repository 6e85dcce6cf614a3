# SPDX-License-Identifier: MIT
"""Counts of the hidden units of convolutional layers and of mixtures, against NumPy's float64."""
import numpy as np
import pytest

import libffn
from libffn import moe


@pytest.mark.parametrize("engine", ["native", "blas"])
def test_a_convolution_counts_what_is_no_padding(random, engine):
    up, bias = random(21, 6, 3), random(21)
    conv = libffn.Conv(up=up, up_bias=bias, down=random(6, 21), activation="relu", engine=engine)
    x, mask, stats = random(4, 17, 6), np.arange(17) < np.array([17, 3, 0, 9])[:, None], libffn.Stats(21)
    np.testing.assert_array_equal(conv(x, mask=mask, stats=stats), conv(x, mask=mask))
    wide = np.pad(np.where(mask[..., None], x, 0).astype(np.float64), ((0, 0), (1, 1), (0, 0)))
    z = sum(wide[:, j : j + 17] @ up[:, :, j].astype(np.float64).T for j in range(3)) + bias
    np.testing.assert_array_equal(stats.positive, (z[mask] > 0).sum(0))
    assert stats.info.positions == mask.sum()
    with pytest.raises(libffn.InvalidError, match="the stats are for a d_ff of 20, the layer has 21"):
        conv(x, stats=libffn.Stats(20))


@pytest.mark.parametrize("engine", ["native", "blas"])
def test_a_mixture_counts_by_expert(random, engine):
    up, shared = random(4, 10, 6), random(7, 6)
    layer = libffn.Layer(
        up=up, down=random(4, 6, 10), shared_up=shared, shared_down=random(6, 7), activation="relu", engine=engine, moe=moe.Mixture(top_k=1)
    )
    x, ids = random(30, 6), np.resize(np.array([0, 3, 0, 1], np.int32), 30)  # none to expert 2
    routing = moe.Routing(ids[:, None], np.ones((30, 1), np.float32), 4)
    info = layer.info
    stats, other = (libffn.Stats(info.d_ff, experts=info.experts, d_shared=info.d_shared) for _ in range(2))
    np.testing.assert_array_equal(layer(x, moe=moe.Call(routing=routing), stats=stats), layer(x, moe=moe.Call(routing=routing)))
    wide = x.astype(np.float64)
    expected = [(wide[ids == e] @ up[e].T.astype(np.float64) > 0).sum(0) for e in range(4)] + [(wide @ shared.T.astype(np.float64) > 0).sum(0)]
    np.testing.assert_array_equal(stats.positive, np.concatenate(expected))
    positions = [*(int((ids == e).sum()) for e in range(4)), 30]
    np.testing.assert_array_equal(stats.expert_positions, positions)
    density = [hits.sum() / (n * len(hits)) if n else np.nan for hits, n in zip(expected, positions)]
    np.testing.assert_allclose(stats.expert_density, density, rtol=1e-15)
    dead = [(hits == 0).sum() if n else 0 for hits, n in zip(expected, positions)]
    np.testing.assert_array_equal(stats.expert_dead_units, dead)
    told = stats.info
    assert (told.units, told.experts, told.d_shared, told.unseen_units, told.dead_units) == (47, 4, 7, 10, sum(dead))
    assert (told.positions, told.activations) == (60, 30 * 10 + 30 * 7)
    assert np.isnan(stats.density[20:30]).all() and not np.isnan(stats.density[:20]).any()
    other.merge(stats)
    assert other.info == told
    with pytest.raises(libffn.InvalidError, match="the stats are for 0 experts, the layer has 4"):
        layer(x, moe=moe.Call(routing=routing), stats=libffn.Stats(10))
    with pytest.raises(libffn.InvalidError, match="d_shared of the stats is 3, but experts is 0"):
        libffn.Stats(10, d_shared=3)
