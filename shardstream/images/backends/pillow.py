"""Pillow, or Pillow-SIMD where that is installed in its place: every kind of file, palettes as they are stored."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shardstream.extras import require
from shardstream.images.backends.contract import Job, NamedBackend, undecodable
from shardstream.images.header import Encoded, ImageInfo, ImageKind

if TYPE_CHECKING:
    from PIL.Image import Image

_FORMATS = {"jpg": "JPEG", "png": "PNG", "webp": "WEBP"}
# What Pillow's readers raise on damaged files, besides the DecompressionBombError added below.
FAILURES = (
    *(OSError, SyntaxError, ValueError, EOFError, IndexError, KeyError, TypeError, OverflowError),
    *(struct.error, zlib.error),
)


def module() -> ModuleType:
    """``PIL.Image``.

    Raises:
        MissingExtraError: Neither Pillow nor Pillow-SIMD is installed.
    """
    return require("PIL.Image", extra="pillow", purpose="for PNG, WebP and unusual JPEG files")


class Pillow(NamedBackend):
    """Every file, and JPEG at the scales of Pillow's ``draft``."""

    def __init__(self) -> None:
        found = module().__version__
        self.library = f"Pillow{'-SIMD' if 'post' in found else ''} {found}"  # of which versions end in .postN

    def max_scale(self, info: ImageInfo) -> int:
        return 8 if info.kind == "jpg" and info.bit_depth == 8 else 1

    def decode(self, data: Encoded, info: ImageInfo, job: Job) -> NDArray[np.uint8]:
        return _load(data, info, job.scale, _rgb, tolerant=job.tolerant)


def of_pixels(pixels: NDArray[np.uint8]) -> Image:
    """An image of Pillow's: RGB of (H, W, 3), L of (H, W)."""
    image: Image = module().fromarray(pixels)
    return image


def saved(image: Image, kind: ImageKind, **options: Any) -> bytes:
    """An image of Pillow's as a file."""
    buffer = io.BytesIO()
    image.save(buffer, _FORMATS[kind], **options)
    return buffer.getvalue()


def decode_raw(data: Encoded, info: ImageInfo, *, tolerant: bool = False) -> NDArray[Any]:
    """Decode to (H, W) of stored numbers (palette indices, grey) or to uint8 (H, W, 3) where there is colour."""
    return _load(data, info, 1, _numbers, tolerant=tolerant)


@contextmanager
def opened(data: Encoded, info: ImageInfo) -> Iterator[Image]:
    """A file as an image of Pillow's. Whatever its readers raise inside is a DecodeError outside.

    Raises:
        DecodeError: The file is damaged.
        MissingExtraError: Neither Pillow nor Pillow-SIMD is installed.
    """
    pil = module()
    try:
        with pil.open(io.BytesIO(data), formats=(_FORMATS[info.kind],)) as image:
            yield image
    except (*FAILURES, pil.DecompressionBombError) as error:
        raise undecodable(info, error) from error


def _load(data: Encoded, info: ImageInfo, scale: int, convert: Any, *, tolerant: bool) -> NDArray[Any]:
    with opened(data, info) as image:
        if scale > 1:
            # Exactly this scale: draft() takes the largest that the requested size allows.
            image.draft(None, (max(1, info.width // scale), max(1, info.height // scale)))
        if tolerant:
            _load_truncated(image)
        pixels: NDArray[Any] = convert(image)
        return pixels


def _load_truncated(image: Image) -> None:
    """Load what there is. Pillow has a global switch for this only, so the reader's own buffer is used instead."""
    try:
        image.load()
    except OSError:
        # What is decoded stays in the image. Without its unfinished tile it counts as loaded; where there is nothing
        # yet, the next use raises again.
        image.tile = []  # type: ignore[attr-defined]


def _rgb(image: Image) -> NDArray[np.uint8]:
    image.load()
    if image.mode.startswith("I"):
        return np.repeat(_high_byte(image)[..., None], 3, axis=2)
    if image.mode == "P" and isinstance(image.info.get("transparency"), bytes):
        image = image.convert("RGBA")  # dropping it in one step works too, but warns
    return np.array(image if image.mode == "RGB" else image.convert("RGB"))  # which copies in any case


def _high_byte(image: Image) -> NDArray[np.uint8]:
    values = np.asarray(image)
    return (values.clip(0, 0xFFFF) >> 8).astype(np.uint8)


def _numbers(image: Image) -> NDArray[Any]:
    image.load()
    if image.mode.startswith("I"):
        return np.asarray(image).clip(0, 0xFFFF).astype(np.uint16)
    if image.mode == "1":
        return np.asarray(image).astype(np.uint8)
    if image.mode in ("L", "P"):
        return np.array(image)
    if image.mode == "LA":
        return np.ascontiguousarray(np.asarray(image)[..., 0])
    return np.array(image.convert("RGB"))
