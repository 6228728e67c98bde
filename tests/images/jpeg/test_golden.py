"""Files that version 1 made addressable stay what they are: the same bytes now, cut and restored for ever."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from shardstream.images.geometry import Box
from shardstream.images.jpeg.transcode import make_addressable, restore

from .test_cut import full, opened

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("name", ["plain", "restarts", "tables"])
def test_version_1(name: str) -> None:
    original = (GOLDEN / f"{name}.jpg").read_bytes()
    stored = (GOLDEN / f"{name}.v1.jpg").read_bytes()
    assert make_addressable(original, width=32).data == stored
    assert restore(stored) == original
    part = opened(stored).cut(Box(2, 100, 5, 60))
    whole = full(original)[2:7, 100:160]
    top, left = 2 - part.box.top, 100 - part.box.left
    assert np.array_equal(full(part.data)[top : top + 5, left : left + 60], whole)
