"""Pillow, or Pillow-SIMD where that is installed in its place: every kind of file, palettes as they are stored."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import UnsupportedError
from shardstream.extras import require
from shardstream.images.backends.contract import Job, NamedBackend
from shardstream.images.formats import BY_KIND, Encoded, ImageKind
from shardstream.images.header import LOSSLESS, ImageInfo
from shardstream.images.opening import is_deep, module, opened
from shardstream.images.unsupported import unsupported

if TYPE_CHECKING:
    from PIL.Image import Image

_READS_LOSSLESS = 3  # the first libjpeg-turbo that decodes lossless JPEG files


class Pillow(NamedBackend):
    """Every file, and JPEG at the scales of Pillow's ``draft``."""

    def __init__(self) -> None:
        found = module().__version__
        self.library = f"Pillow{'-SIMD' if 'post' in found else ''} {found}"  # of which versions end in .postN

    def max_scale(self, info: ImageInfo) -> int:
        return info.max_scale

    def decode(self, data: Encoded, info: ImageInfo, job: Job) -> NDArray[np.uint8]:
        return _load(data, info, job.scale, _rgb, tolerant=job.tolerant)


def of_pixels(pixels: NDArray[np.uint8]) -> Image:
    """An image of Pillow's: RGB of (H, W, 3), L of (H, W)."""
    image: Image = module().fromarray(pixels)
    return image


def saved(image: Image, kind: ImageKind, **options: Any) -> bytes:
    """An image of Pillow's as a file."""
    buffer = io.BytesIO()
    image.save(buffer, BY_KIND[kind].pillow, **options)
    return buffer.getvalue()


def decode_raw(data: Encoded, info: ImageInfo, *, tolerant: bool = False) -> NDArray[Any]:
    """Decode to (H, W) of stored numbers (palette indices, grey) or to uint8 (H, W, 3) where there is colour."""
    return _load(data, info, 1, _numbers, tolerant=tolerant)


def decode_frames(data: Encoded, info: ImageInfo, most: int) -> NDArray[np.uint8]:
    """All frames of a file: uint8 (N, H, W, 3).

    Args:
        data: The file.
        info: Its header.
        most: Pixels of all frames together.

    Raises:
        DecodeError: It is damaged, has more pixels, or frames of different sizes.
    """
    _check_lossless(info)
    with opened(data, info.kind) as image:
        # The further pictures of a camera's JPEG are previews, which no other tool takes for frames.
        count = 1 if info.kind == "jpg" else int(getattr(image, "n_frames", 1))
        if count * info.width * info.height > most:
            raise UnsupportedError(
                f"{count} frames of {info.width} x {info.height} pixels, more than {most} pixels together",
                hint="leave frames='all' out, which decodes the first one, or store fewer frames a file",
            )
        frames = np.empty((count, info.height, info.width, 3), np.uint8)
        for number in range(count):
            image.seek(number)
            # Before it is decoded; an older Pillow has the size of a TIFF as it is before it is turned.
            frame = _rgb(image) if {*image.size} == {info.width, info.height} else None
            if frame is None or frame.shape != frames.shape[1:]:
                width, height = image.size
                raise UnsupportedError(
                    f"frame {number} has {width} x {height} pixels, not {info.width} x {info.height}",
                    hint="leave frames='all' out, or store pages of different sizes as pictures of their own",
                )
            frames[number] = frame
        return frames


def decode_deep(data: Encoded, info: ImageInfo) -> NDArray[np.uint16]:
    """Decode to uint16 (H, W, 1 or 3): 16-bit grey as it is, 8 bits widened to the full range."""
    return _load(data, info, 1, _deep, tolerant=False)


def _load(data: Encoded, info: ImageInfo, scale: int, convert: Any, *, tolerant: bool) -> NDArray[Any]:
    _check_lossless(info)
    with opened(data, info.kind) as image:
        if scale > 1:
            # Exactly this scale: draft() takes the largest that the requested size allows.
            image.draft(None, (max(1, info.width // scale), max(1, info.height // scale)))
        if tolerant:
            _load_truncated(image)
        pixels: NDArray[Any] = convert(image)
        return pixels


def _check_lossless(info: ImageInfo) -> None:
    """Refuse a lossless JPEG if this Pillow cannot read any: it says the same of those as of damaged files.

    Raises:
        UnsupportedError: Pillow was built with another library than libjpeg-turbo 3 or newer.
    """
    if info.sof != LOSSLESS:
        return
    features = require("PIL.features", extra="pillow", purpose="to read images")
    version = features.version("libjpeg_turbo") or "0"
    if int(version.partition(".")[0]) < _READS_LOSSLESS:
        raise unsupported(
            "a lossless JPEG, which only a Pillow built with libjpeg-turbo 3 reads",
            hint="pip install --force-reinstall --only-binary :all: Pillow",
        )


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
    if is_deep(image):
        return np.repeat(_high_byte(image)[..., None], 3, axis=2)
    if image.mode == "P" and isinstance(image.info.get("transparency"), bytes):
        image = image.convert("RGBA")  # dropping it in one step works too, but warns
    return np.array(image if image.mode == "RGB" else image.convert("RGB"))  # which copies in any case


def _deep(image: Image) -> NDArray[np.uint16]:
    image.load()
    if is_deep(image):
        return np.asarray(image).clip(0, 0xFFFF).astype(np.uint16)[..., None]
    if image.mode in ("I", "F"):
        values = np.asarray(image)
        if image.mode == "F" or values.min() < 0 or values.max() > 0xFFFF:
            raise UnsupportedError(
                "its values do not fit 16 bits", hint="store them as an array: the field type 'array'"
            )
        return values.astype(np.uint16)[..., None]
    pixels = np.asarray(image.convert("L"))[..., None] if image.mode in ("1", "L", "LA") else _rgb(image)
    return pixels * np.uint16(257)  # 255 becomes 65535


def _high_byte(image: Image) -> NDArray[np.uint8]:
    values = np.asarray(image)
    return (values.clip(0, 0xFFFF) >> 8).astype(np.uint8)


def _numbers(image: Image) -> NDArray[Any]:
    image.load()
    if is_deep(image):
        return np.asarray(image).clip(0, 0xFFFF).astype(np.uint16)
    if image.mode == "I":
        return np.array(image)
    if image.mode == "F":
        raise UnsupportedError("its values are fractions, where a label map is needed", hint="store integers")
    if image.mode == "1":
        return np.asarray(image).astype(np.uint8)
    if image.mode in ("L", "P"):
        return np.array(image)
    if image.mode == "LA":
        return np.ascontiguousarray(np.asarray(image)[..., 0])
    return np.array(image.convert("RGB"))
