# SPDX-License-Identifier: MIT
"""The package's type hints: without a fault in themselves, and seen by who uses the package."""
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import libffn

pytest.importorskip("mypy")
FOLDER = Path(__file__).resolve().parents[1]


PROGRAM = """import libffn
layer = libffn.load("model", layer=3)
width: int = layer.info.d_model
libffn.load("model", layer="3")
layer.info.d_model + ""
"""


def test_the_package_has_no_fault_in_its_types_and_programs_see_them(tmp_path):
    """Lines 4 and 5 of the program are wrong."""
    assert (Path(libffn.__path__[0]) / "py.typed").exists()
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, "-m", "mypy", "--config-file", FOLDER / "pyproject.toml", FOLDER / "libffn", program]
    done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, env={"MYPY_CACHE_DIR": str(tmp_path), **os.environ})
    found = re.findall(r"^(.*?):(\d+): error:", done.stdout, re.MULTILINE)
    assert [(Path(file).name, line) for file, line in found] == [("program.py", "4"), ("program.py", "5")], done.stdout + done.stderr
