"""Images made smaller for good, as they are packed: resized with antialiasing and encoded anew."""

from __future__ import annotations

from typing import Any

from shardstream.images import backends
from shardstream.images.backends.pillow import saved
from shardstream.images.encode import encode
from shardstream.images.exif import exif_block, orientation
from shardstream.images.formats import Encoded
from shardstream.images.geometry import Size
from shardstream.images.header import ImageInfo, probe
from shardstream.images.jpeg.segments import with_metadata
from shardstream.images.opening import is_deep, module, opened

_LABELS = frozenset(("1", "L", "P", "I;16", "I;16B", "I"))
_LOSSLESS = frozenset(("PNG", "GIF", "BMP", "TIFF", "TGA", "PPM", "ICO"))
_OF_PNG = frozenset(("1", "L", "LA", "P", "RGB", "RGBA"))
_FILTERS = 2  # a JPEG is decoded at a DCT scale that is at least this many times as large as the result


def shrink(data: Encoded, max_side: int, *, quality: int, metadata: bool) -> bytes | None:
    """An image whose longer side is ``max_side`` pixels; the ratio is kept.

    JPEG, WebP and colour are filtered (Lanczos); grey and palette pictures of lossless formats, which may hold labels,
    take the nearest pixel centres, so that masks stay masks. JPEG, PNG and WebP stay what they are, lossless WebP too;
    of all others the first frame becomes a PNG. Nothing is rotated, but TIFF, as whenever it is decoded.

    Args:
        data: An image file.
        max_side: Pixels.
        quality: Of JPEG and lossy WebP, 1 to 100.
        metadata: Whether EXIF and colour profile are carried over; the orientation always is.

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
    with opened(data, info.kind) as image:
        shrunk = _resized(image, size)
        names = ("exif", "icc_profile") if metadata else ()
        carried: dict[str, Any] = {name: image.info[name] for name in names if image.info.get(name)}
        if orientation(carried.get("exif", b""), b"") != info.orientation:
            carried["exif"] = exif_block(info.orientation)
        if "transparency" in image.info and shrunk.mode == "P":
            carried["transparency"] = image.info["transparency"]
        if info.kind == "webp":
            return saved(shrunk, "webp", **carried, quality=quality, lossless=bytes(data[12:16]) == b"VP8L")
        if shrunk.mode not in _OF_PNG and not is_deep(image):
            shrunk = shrunk.convert("RGB")
            carried.pop("icc_profile", None)  # which speaks of other colours
        return saved(shrunk, "png", **carried)


def _fitted(source: Size, max_side: int) -> Size | None:
    longest = max(source)
    if longest <= max_side:
        return None
    height, width = (max(1, round(side * max_side / longest)) for side in source)
    return height, width


def _jpeg(data: Encoded, info: ImageInfo, size: Size, quality: int, *, metadata: bool) -> bytes:
    wanted = _FILTERS * size[0], _FILTERS * size[1]
    pixels = backends.decode(data, min_size=wanted)
    image = module().fromarray(pixels)
    if info.channels == 1:
        image = image.convert("L")
    shrunk = encode(_resized(image, size), "jpg", quality=quality)
    return with_metadata(shrunk, data, exif=metadata, profile=metadata and info.channels != 4)


def _resized(image: Any, size: Size) -> Any:
    filters = module().Resampling
    how = filters.NEAREST if image.mode in _LABELS and image.format in _LOSSLESS else filters.LANCZOS
    return image.resize((size[1], size[0]), how)
