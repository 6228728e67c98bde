"""Pictures that look like photographs, made of numbers."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

Photo = Callable[..., NDArray[np.uint8]]
Save = Callable[..., bytes]


@pytest.fixture(scope="session")
def photo() -> Photo:
    """``photo(height, width, seed=0)``: smooth noise of several octaves with a few hard edges, uint8 (H, W, 3)."""

    def make(height: int = 375, width: int = 500, seed: int = 0) -> NDArray[np.uint8]:
        rng = np.random.default_rng(seed)
        pixels = np.zeros((height, width, 3))
        for cells in (3, 6, 12, 24, 48):
            if cells > 3 and 4 * cells > min(height, width):
                break
            noise = rng.normal(size=(cells, cells, 3)) / cells**0.7
            rows, columns = (np.minimum(np.arange(n) * cells // n, cells - 1) for n in (height, width))
            blocks = noise[rows[:, None], columns[None, :]]
            soft = [
                np.asarray(Image.fromarray(noise[..., c].astype(np.float32)).resize((width, height), Image.BICUBIC))
                for c in range(3)
            ]
            pixels += 0.3 * blocks + np.stack(soft, 2)
        low, high = np.percentile(pixels, (1, 99))
        return np.ascontiguousarray(((pixels - low) / (high - low) * 255).clip(0, 255).astype(np.uint8))

    return make


@pytest.fixture(scope="session")
def save() -> Save:
    """``save(array_or_image, "JPEG", **options)``: a file written by Pillow, not by the code under test."""

    def write(picture: Any, kind: str, **options: Any) -> bytes:
        image = Image.fromarray(picture) if isinstance(picture, np.ndarray) else picture
        buffer = io.BytesIO()
        image.save(buffer, kind, **options)
        return buffer.getvalue()

    return write
