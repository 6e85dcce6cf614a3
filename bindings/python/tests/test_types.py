# SPDX-License-Identifier: MIT
"""The package's type hints: without a fault in themselves, and seen by who uses the package."""
import subprocess
import sys
from pathlib import Path

import pytest

import libffn

pytest.importorskip("mypy")
FOLDER = Path(__file__).resolve().parents[1]


def mypy(*arguments, cwd):
    return subprocess.run([sys.executable, "-m", "mypy", "--cache-dir=/dev/null", *arguments], cwd=cwd, capture_output=True, text=True)


def test_the_package_has_no_fault_in_its_types():
    done = mypy("--config-file", FOLDER / "pyproject.toml", FOLDER / "libffn", cwd=FOLDER)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_wrong_argument_is_seen_before_the_program_runs(tmp_path):
    assert (Path(libffn.__path__[0]) / "py.typed").exists()
    (tmp_path / "program.py").write_text('import libffn\nlayer = libffn.load("model", layer="3")\nlayer.info.d_model + ""\n')
    done = mypy("--strict", "program.py", cwd=tmp_path)
    assert done.returncode == 1 and done.stdout.count("error:") == 2, done.stdout + done.stderr
