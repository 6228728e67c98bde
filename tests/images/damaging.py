"""Damaged image files, drawn by hypothesis."""

from __future__ import annotations

import io

import numpy as np
from hypothesis import strategies as st
from PIL import Image


@st.composite
def damaged_files(draw) -> bytes:
    """A small file of any kind with some bytes changed, or its end cut off."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    pixels = np.kron(rng.integers(0, 256, (4, 5, 3), np.uint8), np.ones((6, 6, 1), np.uint8))
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, draw(st.sampled_from(["JPEG", "PNG", "WEBP"])))
    damaged = bytearray(buffer.getvalue())
    for _ in range(draw(st.integers(0, 4))):
        damaged[int(rng.integers(12, len(damaged)))] = int(rng.integers(256))
    del damaged[len(damaged) - int(rng.integers(0, 30)) * draw(st.integers(0, 1)) :]
    return bytes(damaged)
