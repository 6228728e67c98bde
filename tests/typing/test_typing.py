"""Type checkers help those who use the library: they accept what is right, and find what is wrong."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def marked() -> set[int]:
    """The lines of ``wrong.py`` that are wrong."""
    lines = (HERE / "wrong.py").read_text().splitlines()
    return {number for number, line in enumerate(lines, 1) if line.endswith("  # wrong")}


def found_by(command: list[str]) -> str:
    done = subprocess.run(
        [*command, str(HERE / "right.py"), str(HERE / "wrong.py")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


def test_mypy_finds_what_is_wrong_and_nothing_else() -> None:
    found = found_by([sys.executable, "-m", "mypy"])  # with the cache that the whole package fills
    errors = re.findall(r"^(.*?):(\d+): error: ", found, re.MULTILINE)
    assert {Path(file).name for file, _ in errors} == {"wrong.py"}, found
    assert {int(line) for _, line in errors} == marked(), found
    assert len(marked()) > 20


@pytest.mark.skipif(shutil.which("pyright") is None, reason="pyright is not installed")
def test_pyright_finds_what_is_wrong_and_nothing_else() -> None:
    found = json.loads(found_by(["pyright", "--outputjson", "--pythonpath", sys.executable]))
    errors = [one for one in found["generalDiagnostics"] if one["severity"] == "error"]
    assert {Path(one["file"]).name for one in errors} == {"wrong.py"}, errors
    assert {one["range"]["start"]["line"] + 1 for one in errors} == marked(), errors
