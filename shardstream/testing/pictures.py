"""Pictures that look like photographs, made of numbers, and files of them, written by Pillow alone."""

from __future__ import annotations

import io
import struct
import zlib
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardstream.extras import require


def pillow() -> ModuleType:
    """``PIL.Image``.

    Raises:
        MissingExtraError: Pillow is not installed.
    """
    return require("PIL.Image", extra="pillow", purpose="as the reference that decoders are compared with")


def photo(height: int = 375, width: int = 500, seed: int = 0) -> NDArray[np.uint8]:
    """Smooth noise of several octaves with a few hard edges, uint8 (H, W, 3)."""
    image = pillow()
    rng = np.random.default_rng(seed)
    pixels = np.zeros((height, width, 3))
    for cells in (3, 6, 12, 24, 48):
        if cells > 3 and 4 * cells > min(height, width):
            break
        noise = rng.normal(size=(cells, cells, 3)) / cells**0.7
        rows, columns = (np.minimum(np.arange(n) * cells // n, cells - 1) for n in (height, width))
        blocks = noise[rows[:, None], columns[None, :]]
        soft = [
            np.asarray(image.fromarray(noise[..., c].astype(np.float32)).resize((width, height), image.BICUBIC))
            for c in range(3)
        ]
        pixels += 0.3 * blocks + np.stack(soft, 2)
    low, high = np.percentile(pixels, (1, 99))
    return np.ascontiguousarray(((pixels - low) / (high - low) * 255).clip(0, 255).astype(np.uint8))


def save(picture: Any, kind: str, **options: Any) -> bytes:
    """A file of an array or a PIL image, of a kind that Pillow knows (``"JPEG"``), with Pillow's ``options``."""
    image = pillow().fromarray(picture) if isinstance(picture, np.ndarray) else picture
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def reference(data: bytes | memoryview) -> NDArray[np.uint8]:
    """The pixels that Pillow decodes, uint8 (H, W, 3)."""
    pixels: NDArray[np.uint8] = np.asarray(pillow().open(io.BytesIO(data)).convert("RGB"))
    return pixels


def png16(values: NDArray[np.uint16]) -> bytes:
    """A 16-bit colour PNG of uint16 (H, W, 3), which Pillow cannot write."""

    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    height, width, _ = values.shape
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    header = struct.pack(">IIBBBBB", width, height, 16, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
