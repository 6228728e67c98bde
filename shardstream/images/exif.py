"""How an image is to be turned, as its EXIF and XMP blocks say it: the same answer as Pillow's ``exif_transpose``.

Sources: EXIF, CIPA DC-008; TIFF 6.0, section 2; XMP specification part 1, 7.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

PREAMBLE = b"Exif\0\0"
XMP_PREAMBLE = b"http://ns.adobe.com/xap/1.0/\0"
_TAG = 0x0112
_TURNING: dict[object, int] = {number: number for number in range(2, 9)}
_PREAMBLES = re.compile(rb"\A(?:Exif\0\0){1,2}")
# TIFF's two byte orders, and the version that some writers store the wrong way round.
_ORDERS = {b"II*\0": "<", b"II\0*": "<", b"MM\0*": ">", b"MM*\0": ">"}
# Type of a value: its bytes, and its numbers; nothing for bytes and text, which never turn an image.
_TYPES = {
    number: (struct.calcsize(f"={form}") or 1, form)
    for number, form in enumerate(("", "", "H", "I", "II", "b", "", "h", "i", "ii", "f", "d", "I"), 1)
} | {16: (8, "Q")}
_XMP = re.compile(rb"tiff:Orientation(?:=\"|>)([0-9])")


def orientation(exif: bytes, xmp: bytes) -> int:
    """The orientation of an image, 1 to 8; 1 if nothing says it. A damaged block never makes an image unreadable.

    Args:
        exif: Its EXIF block, with or without preamble; empty if it has none.
        xmp: Its XMP packet, which counts if the EXIF block has no such tag; empty if it has none.
    """
    stored = _stored(_PREAMBLES.sub(b"", exif)) if exif else None
    if stored is None and xmp:
        match = _XMP.search(xmp)
        stored = int(match[1]) if match else None
    return usable(stored)


def usable(stored: object) -> int:
    """An orientation that turns an image, of any value of the tag; 1 for all others."""
    return _TURNING.get(stored, 1)


def exif_block(orientation: int) -> bytes:
    """The smallest EXIF block that says how an image is turned, with its preamble."""
    return PREAMBLE + struct.pack(">2sHIHHHIHHI", b"MM", 42, 8, 1, _TAG, 3, 1, orientation, 0, 0)


def _stored(tiff: bytes) -> float | None:
    """The first value of the tag in an EXIF block: 0 if it is no number, ``None`` if there is no such tag."""
    order = _ORDERS.get(tiff[:4])
    if order is None or len(tiff) < 8:
        return None
    for tag, kind, value in _entries(tiff, order):
        if tag == _TAG:
            return _number(order + _TYPES[kind][1], value)
    return None


def _number(form: str, value: bytes) -> float:
    """The first number of a value; 0 if it has none."""
    numbers: tuple[float, ...] = struct.unpack_from(form, value)
    if len(numbers) == 2:
        return numbers[0] / numbers[1] if numbers[1] else 0
    return numbers[0] if numbers else 0


def _entries(tiff: bytes, order: str) -> Iterator[tuple[int, int, bytes]]:
    """Tag, type and value of each entry of the first directory that can be read."""
    (table,) = struct.unpack_from(order + "I", tiff, 4)
    if table + 2 > len(tiff):
        return
    (count,) = struct.unpack_from(order + "H", tiff, table)
    entry = struct.Struct(order + "HHI")
    outside = 0
    for at in range(table + 2, min(table + 2 + 12 * count, len(tiff) - 11), 12):
        tag, kind, number = entry.unpack_from(tiff, at)
        size = number * _TYPES.get(kind, (0, ""))[0]
        place = at + 8
        if size > 4:
            outside += size
            if outside > len(tiff):  # more than there is: the entry is damaged, those after it may be whole
                continue
            (place,) = struct.unpack_from(order + "I", tiff, at + 8)
            if place + size > len(tiff):
                return
        if size:
            yield tag, kind, tiff[place : place + size]
