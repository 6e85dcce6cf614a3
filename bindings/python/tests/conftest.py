# SPDX-License-Identifier: MIT
"""What the tests share: seeded arrays, a small layer, and scripts in processes of their own."""
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # oracle.py, and helpers that spawned processes import

import libffn  # noqa: E402

SOURCE = Path(__file__).resolve().parents[3]
SHARED_DATA = Path(os.environ.get("FFN_SHARED_DATA", SOURCE.parent / "shared" / "data"))


@pytest.fixture
def random():
    """random(shape): the same float32 numbers in every run."""
    generator = np.random.default_rng(1)
    return lambda *shape: generator.standard_normal(shape, np.float32)


@pytest.fixture
def weights(random):
    """A layer of 24-40-24 as keyword arguments."""
    return {"up": random(40, 24) / 5, "down": random(24, 40) / 6, "activation": "gelu", "norm_in": "rms", "residual": "input"}


@pytest.fixture
def layer(weights):
    return libffn.Layer(**weights)


def assert_close(got, expected):
    """Within a few roundings of float32 of the largest value: sums of up to some hundred products."""
    assert got.dtype == np.float32 and got.shape == expected.shape
    limit = 1e-6 * max(1.0, np.abs(expected).max(initial=0))
    np.testing.assert_allclose(got, expected, rtol=0, atol=limit)


@pytest.fixture
def run_python():
    """run_python(script, *arguments, **environment): its standard output. The script must end well and say nothing on standard error."""

    def run(script, *arguments, **environment):
        done = subprocess.run(
            [sys.executable, "-c", script, *map(str, arguments)],
            env={**os.environ, **environment},
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert (done.returncode, done.stderr) == (0, ""), f"status {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    return run
