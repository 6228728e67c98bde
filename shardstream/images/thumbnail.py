"""``thumbnail``: pixels as a small JPEG file, for pages that show many."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shardstream.images.encode import encode
from shardstream.images.geometry import Geometry, Size, whole
from shardstream.images.resize import render

_QUALITIES = (80, 50, 20, 5)


def thumbnail_size(source: Size, side: int) -> Size:
    """(height, width) of an image whose longer side becomes ``side`` pixels, unless it is smaller already.

    >>> thumbnail_size((375, 500), 100)
    (75, 100)
    """
    share = min(1.0, side / max(source))
    height, width = (max(1, round(pixels * share)) for pixels in source)
    return height, width


def thumbnail(pixels: NDArray[np.uint8], side: int, *, most: int) -> tuple[bytes, Size]:
    """A JPEG file, and its (height, width).

    Args:
        pixels: uint8 (H, W, 3).
        side: Of the result, the longer one at most.
        most: Bytes that it should have at most: what is full of detail is stored with less quality.

    Raises:
        MissingExtraError: Neither simplejpeg nor Pillow is installed.

        >>> thumbnail(pixels, 100, most=10_000)[1]
        (75, 100)
    """
    size = pixels.shape[0], pixels.shape[1]
    output = thumbnail_size(size, side)
    small = render(pixels, Geometry(size, whole(size), output))
    file = b""
    for quality in _QUALITIES:
        file = encode(small, "jpg", quality=quality)
        if len(file) <= most:
            break
    return file, output
