"""Whether a picture file is whole, by its structure: nothing is decoded, and hardly any of its bytes are looked at.

What is found here is a file that ends too early, the commonest damage of all. Bytes behind a picture's end are none:
phones and cameras append previews, depth maps and films. Checksums of PNG are not compared: Pillow decodes pixels whose
checksum is wrong. JPEG 2000, TGA, PPM and ICO are not looked at.
Sources: JPEG, ITU-T T.81 annex B; PNG, W3C 3rd edition; WebP, RFC 9649; GIF 89a; TIFF 6.0 and BigTIFF; AVIF and HEIC,
ISO/IEC 14496-12; BMP, Microsoft's BITMAPINFOHEADER.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import DecodeError
from shardstream.images.formats import Encoded, ImageKind
from shardstream.images.header import ImageInfo, jpeg_scan_offset
from shardstream.images.tiff import (
    BITS,
    COMPRESSION,
    HEIGHT,
    STRIP_SIZES,
    STRIPS,
    TILE_SIZES,
    TILES,
    WIDTH,
    tiff_tags,
)

_JPEG_END = b"\xff\xd9"
_PNG_CHUNK = struct.Struct(">I4s")
_PNG_FIRST = 8  # behind the signature
_PNG_END = b"\0\0\0\0IEND\xaeB`\x82"
_RIFF_SIZE = struct.Struct("<4xI")
_GIF_HEADER, _GIF_IMAGE = 13, 10
_BMP_SMALL, _BMP_HEADER = 12, struct.Struct("<iiHHI")
_BMP_AS_IT_IS = (0, 3, 6)  # values of its field for compression: rows of one size
_OLD_JPEG = 6  # whose sizes are often wrong
_ISO_BOX = struct.Struct(">I4s")
_ISO_BOXES = frozenset((b"ftyp", b"meta", b"mdat", b"moov"))


def check_structure(data: Encoded, info: ImageInfo) -> None:
    """Refuse a picture file that ends before its picture does.

    Args:
        data: The file, a contiguous buffer of bytes.
        info: Its header, from `probe`.

    Raises:
        DecodeError: It is truncated, or lacks its pixels.

        >>> from shardstream.images.header import probe
        >>> check_structure(jpeg_bytes, probe(jpeg_bytes))
    """
    what = damage_of(data, info.kind)
    if what is not None:
        raise DecodeError(what, hint="the file is damaged: replace it or leave it out", offset=len(data))


def damage_of(data: Encoded, kind: ImageKind) -> str | None:
    """What is wrong with a file of this kind, as a sentence; ``None`` where nothing is seen."""
    check = _CHECKS.get(kind)
    return None if check is None else check(data)


def lacks_end(data: Encoded) -> bool:
    """Whether a JPEG has no end marker after its first scan: it is truncated, whatever libjpeg made of it.

    Raises:
        DecodeError: It has no scan.
    """
    return bytes(data).rfind(_JPEG_END) < jpeg_scan_offset(data)


def _jpeg(data: Encoded) -> str | None:
    try:
        truncated = lacks_end(data)
    except DecodeError:
        return "the JPEG file is truncated: it ends before its pixels begin"
    return "the JPEG file is truncated: it has no end marker (EOI)" if truncated else None


def _png(data: Encoded) -> str | None:
    at, size, pixels = _PNG_FIRST, len(data), 0
    while at + _PNG_CHUNK.size <= size:
        length, name = _PNG_CHUNK.unpack_from(data, at)
        if name == b"IEND":
            break
        if name == b"IDAT" and not pixels:
            pixels = at
        at += 12 + length
    if at + len(_PNG_END) <= size:
        return None if pixels else "the PNG file holds no pixels (IDAT)"
    # Decoders are done once they have the pixels, so stray bytes between chunks do no harm.
    if pixels and bytes(data).find(_PNG_END, pixels) >= 0:
        return None
    return "the PNG file is truncated: it has no end (IEND)"


def _webp(data: Encoded) -> str | None:
    (length,) = _RIFF_SIZE.unpack_from(data)
    if len(data) >= 8 + length:
        return None
    return f"the WebP file is truncated: it has {len(data)} of {8 + length} bytes"


def _gif(data: Encoded) -> str | None:
    if bytes(data[-2:]) == b"\0;":
        return None
    at, size, pictures = _GIF_HEADER, len(data), 0
    if size >= at:
        at += _gif_colours(data[10])
    while at < size:
        mark = data[at]
        if mark == 0x3B:
            return None
        if mark == 0x21:
            at = _gif_blocks(data, at + 2)
        elif mark == 0x2C and at + _GIF_IMAGE <= size:
            at = _gif_blocks(data, at + _GIF_IMAGE + _gif_colours(data[at + _GIF_IMAGE - 1]) + 1)
            pictures += 1
        elif mark == 0x2C:
            break
        else:
            at += 1  # decoders look for the next block, too
    # Where the trailer alone is missing, no pixel is.
    return None if at == size and pictures else "the GIF file is truncated: it has no end"


def _gif_colours(flags: int) -> int:
    """Bytes of a table of colours."""
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


def _gif_blocks(data: Encoded, at: int) -> int:
    """The end of some blocks of data; behind that of the file where they are cut short."""
    while at < len(data):
        length = data[at]
        at += 1 + length
        if not length:
            return at
    return len(data) + 1


def _bmp(data: Encoded) -> str | None:
    if len(data) < 26:
        return "the BMP file is truncated: it ends within its header"
    start, header = struct.unpack_from("<II", data, 10)
    if header == _BMP_SMALL:
        width, height, _, bits = struct.unpack_from("<HHHH", data, 18)
    elif len(data) < 18 + _BMP_HEADER.size:
        return "the BMP file is truncated: it ends within its header"
    else:
        width, height, _, bits, compression = _BMP_HEADER.unpack_from(data, 18)
        if compression not in _BMP_AS_IT_IS:
            return None
    needed = start + (width * bits + 31) // 32 * 4 * (abs(height) - 1) + (width * bits + 7) // 8
    if start and len(data) < needed:
        return f"the BMP file is truncated: it has {len(data)} of {needed} bytes"
    return None


def _tiff(data: Encoded) -> str | None:
    try:
        tags = tiff_tags(data)
    except KeyError:  # numbers of another kind
        return None
    except (struct.error, ValueError, OverflowError):
        return "the TIFF file is truncated: its directory lies behind its end"
    offsets = tags.get(TILES, tags.get(STRIPS))
    sizes = tags.get(TILE_SIZES, tags.get(STRIP_SIZES))
    if offsets is None or sizes is None or len(offsets) != len(sizes):
        return None
    ends = offsets + (sizes if _trusted(tags, sizes) else np.minimum(sizes, 1))
    needed = int(ends.max(initial=0))
    return f"the TIFF file is truncated: it has {len(data)} of {needed} bytes" if needed > len(data) else None


def _trusted(tags: dict[int, NDArray[np.int64]], sizes: NDArray[np.int64]) -> bool:
    """Whether decoders need as many bytes as the sizes of strips say; they take others for raw pixels."""
    compression = int(tags.get(COMPRESSION, np.ones(1, np.int64))[0])
    if compression != 1:
        return compression != _OLD_JPEG
    if not tags.keys() >= {WIDTH, HEIGHT, BITS} or TILES in tags:
        return False
    return int(sizes.sum()) == (int(tags[WIDTH][0]) * int(tags[BITS].sum()) + 7) // 8 * int(tags[HEIGHT][0])


def _iso(data: Encoded) -> str | None:
    at, size = 0, len(data)
    while at + _ISO_BOX.size <= size:
        length, name = _ISO_BOX.unpack_from(data, at)
        if name not in _ISO_BOXES and at:  # perhaps what a camera appended, which need not be a box
            return None
        if length == 1 and at + 16 <= size:
            length = int.from_bytes(data[at + 8 : at + 16])
        if length == 0:  # up to the end
            return None
        if at + length > size:
            return f"the file is truncated: it has {size} of {at + length} bytes or more"
        at += max(length, _ISO_BOX.size)
    return None


_CHECKS: dict[ImageKind, Callable[[Encoded], str | None]] = {
    "jpg": _jpeg,
    "png": _png,
    "webp": _webp,
    "gif": _gif,
    "bmp": _bmp,
    "tiff": _tiff,
    "avif": _iso,
    "heic": _iso,
}
