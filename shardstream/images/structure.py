"""Whether a picture file is whole, by its structure: nothing is decoded, and hardly any of its bytes are looked at.

What is found here is a file that ends too early, the commonest damage of all. Bytes behind a picture's end are none:
phones and cameras append previews, depth maps and films. Checksums of PNG are not compared: it would take longer than
all else that packing does with such a file, and Pillow decodes pixels whose checksum is wrong.
Sources: JPEG, ITU-T T.81 annex B; PNG, W3C 3rd edition; WebP, RFC 9649.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from shardstream.errors import DecodeError
from shardstream.images.header import Encoded, ImageInfo, jpeg_scan_offset

_JPEG_END = b"\xff\xd9"
_PNG_CHUNK = struct.Struct(">I4s")
_PNG_FIRST = 8  # behind the signature
_PNG_END = b"\0\0\0\0IEND\xaeB`\x82"
_RIFF_SIZE = struct.Struct("<4xI")


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
    check = _CHECKS.get(info.kind)
    what = None if check is None else check(data)
    if what is not None:
        raise DecodeError(what, hint="the file is damaged: replace it or leave it out", offset=len(data))


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


_CHECKS: dict[str, Callable[[Encoded], str | None]] = {"jpg": _jpeg, "png": _png, "webp": _webp}
