"""Images made smaller for good, as they are packed: resized with antialiasing and encoded anew."""

from __future__ import annotations

from typing import Any

from shardstream.images import backends
from shardstream.images.backends import pillow
from shardstream.images.encode import encode
from shardstream.images.geometry import Size
from shardstream.images.header import Encoded, ImageInfo, probe
from shardstream.images.jpeg.segments import with_metadata

_LABELS = frozenset(("1", "L", "P", "I;16", "I"))
_FILTERS = 2  # a JPEG is decoded at a DCT scale that is at least this many times as large as the result


def shrink(data: Encoded, max_side: int, *, quality: int, metadata: bool) -> bytes | None:
    """An image whose longer side is ``max_side`` pixels; the ratio is kept.

    JPEG, WebP and coloured PNG are filtered (Lanczos); grey and palette PNG, which may hold labels, take the nearest
    pixel centres, so that masks stay masks. The kind of file stays, lossless WebP too. Nothing is rotated.

    Args:
        data: A JPEG, PNG or WebP file.
        max_side: Pixels.
        quality: Of JPEG and lossy WebP, 1 to 100.
        metadata: Whether EXIF and colour profile are carried over.

    Returns:
        The file; ``None`` if the image is small enough as it is.

    Raises:
        DecodeError: The file is damaged.
        MissingExtraError: Pillow is not installed.
    """
    info = probe(data)
    size = _fitted((info.height, info.width), max_side)
    if size is None:
        return None
    if info.kind == "jpg":
        return _jpeg(data, info, size, quality, metadata=metadata)
    with pillow.opened(data, info) as image:
        shrunk = _resized(image, size)
        names = ("exif", "icc_profile") if metadata else ()
        carried: dict[str, Any] = {name: image.info[name] for name in names if image.info.get(name)}
        if "transparency" in image.info and shrunk.mode == "P":
            carried["transparency"] = image.info["transparency"]
        if info.kind == "webp":
            carried |= {"quality": quality, "lossless": bytes(data[12:16]) == b"VP8L"}
        return pillow.saved(shrunk, info.kind, **carried)


def _fitted(source: Size, max_side: int) -> Size | None:
    longest = max(source)
    if longest <= max_side:
        return None
    height, width = (max(1, round(side * max_side / longest)) for side in source)
    return height, width


def _jpeg(data: Encoded, info: ImageInfo, size: Size, quality: int, *, metadata: bool) -> bytes:
    wanted = _FILTERS * size[0], _FILTERS * size[1]
    pixels = backends.decode(data, min_size=wanted)
    image = pillow.module().fromarray(pixels)
    if info.channels == 1:
        image = image.convert("L")
    shrunk = encode(_resized(image, size), "jpg", quality=quality)
    return with_metadata(shrunk, data, profile=info.channels != 4) if metadata else shrunk


def _resized(image: Any, size: Size) -> Any:
    filters = pillow.module().Resampling
    how = filters.NEAREST if image.mode in _LABELS and image.format == "PNG" else filters.LANCZOS
    return image.resize((size[1], size[0]), how)
