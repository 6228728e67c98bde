"""What is packed, and functions that workers have to find."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardstream.pack.run import pack

from ..pack.making import photo_list, tree
from .contract import SMALL

HELPERS = """
import os, signal, sys, time

def slow(sample):
    time.sleep(0.02)
    return sample

def once(sample):
    planning = "shardstream" in sys.argv[0]
    if sample["__key__"] == "c0/00003" and not planning and not os.path.exists(os.environ["FLAG"]):
        open(os.environ["FLAG"], "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return sample
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    found = photo_list(tmp_path / "in", 60)
    (tmp_path / "in" / "c0" / "00006.jpg").write_bytes(b"no image")
    return found


@pytest.fixture
def whole(source: Path, tmp_path: Path) -> dict[str, bytes]:
    pack(source, tmp_path / "whole", shard_size=SMALL, workers=2)
    return tree(tmp_path / "whole")


@pytest.fixture
def helpers(tmp_path: Path) -> Path:
    (tmp_path / "helpers.py").write_text(HELPERS)
    return tmp_path
