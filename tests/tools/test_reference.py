"""What is written from the command line is as it would be written now."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_documents_are_those_of_the_commands() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools/reference.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}run python tools/reference.py"


def test_the_manual_page_is_shown_without_complaints() -> None:
    if not shutil.which("groff"):
        pytest.skip("groff, which shows manual pages, is not installed")
    program = ["groff", "-man", "-Tutf8", "-P-c", "-ww", "docs/shardstream.1"]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=True)
    assert not done.stderr
    text = re.sub(".\b", "", done.stdout)  # letters that a printer would print twice are bold
    assert "shardstream errors [OPTIONS] [CODE]" in text
    assert "--storage-option KEY=VALUE" in text
