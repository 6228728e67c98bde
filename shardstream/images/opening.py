"""Whatever Pillow opens is opened here: by the one format that the first bytes name, never by trying them all.

Left alone, Pillow asks each of its readers, some of which start programs (EPS runs Ghostscript).
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from shardstream.errors import DecodeError, MissingExtraError
from shardstream.extras import require
from shardstream.images.exif import usable
from shardstream.images.formats import BY_KIND, Encoded, ImageKind
from shardstream.images.unsupported import find_unsupported

if TYPE_CHECKING:
    from PIL.Image import Image

# What Pillow's readers raise on damaged files, besides the DecompressionBombError added below.
FAILURES = (
    *(OSError, SyntaxError, ValueError, EOFError, IndexError, KeyError, TypeError, OverflowError, RuntimeError),
    *(struct.error, zlib.error),
)
_FEATURES = {"avif": "avif", "jp2": "jpg_2000"}  # what Pillow may have been built without, or be too old for
_ORIENTATION = 0x0112
_WIDTH, _HEIGHT, _BITS = 256, 257, 258  # tags of a TIFF
_CHANNELS = {"P": 1, "PA": 2}
_DEPTHS = {"1": 1, "I": 32, "F": 32}


class Header(NamedTuple):
    """What a file says of itself to Pillow; attributes as of `shardstream.images.header.ImageInfo`."""

    width: int
    height: int
    channels: int
    bit_depth: int
    orientation: int


def module() -> ModuleType:
    """``PIL.Image``.

    Raises:
        MissingExtraError: Neither Pillow nor Pillow-SIMD is installed.
    """
    return require("PIL.Image", extra="pillow", purpose="for all images but ordinary JPEG files")


def damaged(kind: ImageKind, why: object) -> DecodeError:
    """The error for a damaged file."""
    hint = "the file is damaged: replace it, leave it out, or skip such samples; tolerant=True accepts truncated files"
    return DecodeError(f"a {kind} file that does not decode: {why}", hint=hint)


@contextmanager
def opened(data: Encoded, kind: ImageKind) -> Iterator[Image]:
    """A file as an image of Pillow's. Whatever its readers raise inside is a DecodeError outside.

    Raises:
        DecodeError: The file is damaged.
        MissingExtraError: What reads such files is not installed.
    """
    pil = module()
    reader = _reader(pil, kind)
    try:
        with reader(io.BytesIO(data)) as image:
            yield image
    except pil.UnidentifiedImageError as error:  # whose text is the address of the buffer
        raise find_unsupported(data, kind, "", header=True) or damaged(kind, "its header is damaged") from error
    except (*FAILURES, pil.DecompressionBombError) as error:
        header = isinstance(error, KeyError)  # a compression that Pillow does not know
        raise find_unsupported(data, kind, error, header=header) or damaged(kind, error) from error


def header(data: Encoded, kind: ImageKind) -> Header:
    """Read the header of a file in one of the formats that only Pillow reads. No pixel is decoded.

    Raises:
        DecodeError: It is damaged; its place is the first byte, for Pillow says none.
        MissingExtraError: What reads such files is not installed.
    """
    try:
        return _header(data, kind)
    except DecodeError as error:
        raise error.at(offset=0) from error.__cause__


def _header(data: Encoded, kind: ImageKind) -> Header:
    with opened(data, kind) as image:
        width, height = image.size
        channels = _CHANNELS.get(image.mode, len(image.getbands()))
        depth = 16 if is_deep(image) else _DEPTHS.get(image.mode, 8)
        if kind != "tiff":
            return Header(width, height, channels, depth, _orientation(image))
        # Pillow turns a TIFF upright as it loads it; which size it has until then differs from version to version.
        tags: Any = image.tag_v2  # type: ignore[attr-defined]
        width, height = tags[_WIDTH], tags[_HEIGHT]
        if _orientation(image) in (5, 6, 7, 8):
            width, height = height, width
        bits = tags.get(_BITS, (depth,))
        return Header(width, height, channels, 16 if channels > 1 and max(bits) == 16 else depth, 1)


def is_deep(image: Image) -> bool:
    """Whether grey values of 16 bits are held as they are."""
    return image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM"))


def _orientation(image: Image) -> int:
    try:
        found = image.getexif().get(_ORIENTATION)
    except FAILURES:  # a damaged EXIF block never makes an image unreadable
        return 1
    return usable(found)


def _reader(pil: ModuleType, kind: ImageKind) -> Callable[[io.BytesIO], Image]:
    if kind == "heic":
        return _heif_reader()
    feature, name = _FEATURES.get(kind), BY_KIND[kind].pillow
    if feature is not None and feature not in _features():
        raise MissingExtraError(
            f"Pillow {pil.__version__} was built without {name}",
            hint="install another build of Pillow; its own wheels read JPEG 2000, and AVIF from 11.3 on",
        )
    return lambda file: pil.open(file, formats=(name,))


@cache
def _features() -> frozenset[str]:
    return frozenset(require("PIL.features", extra="pillow", purpose="to read images").get_supported())


@cache
def _heif_reader() -> Callable[[io.BytesIO], Image]:
    """The reader of pillow-heif where that is installed, else of pi-heif: one library, and one interface."""
    if find_spec("pillow_heif") is not None:
        library = import_module("pillow_heif")
    else:
        library = require("pi_heif", extra="heif", purpose="for HEIC files")
    return library.HeifImageFile  # type: ignore[no-any-return]
