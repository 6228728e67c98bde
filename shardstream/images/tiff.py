"""Numbers of a TIFF's first directory. Sources: TIFF 6.0, and BigTIFF."""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray

from shardstream.images.formats import Encoded

WIDTH, HEIGHT, BITS, COMPRESSION, SAMPLE_FORMAT = 256, 257, 258, 259, 339
STRIPS, STRIP_SIZES, TILES, TILE_SIZES = 273, 279, 324, 325
_TAGS = frozenset((WIDTH, HEIGHT, BITS, COMPRESSION, SAMPLE_FORMAT, STRIPS, STRIP_SIZES, TILES, TILE_SIZES))
_NUMBERS = {3: "u2", 4: "u4", 16: "u8"}


def tiff_tags(data: Encoded) -> dict[int, NDArray[np.int64]]:
    """Numbers of the first directory that say what the pixels are and where, by tag.

    Raises:
        KeyError: It is no TIFF, or its numbers are of an odd type.
        struct.error, ValueError, OverflowError: The directory is not all there.
    """
    order = {b"II": "<", b"MM": ">"}[bytes(data[:2])]
    big = struct.unpack_from(order + "H", data, 2)[0] == 43
    offset, counts, room = ("Q", "Q", 8) if big else ("I", "H", 4)
    entry = struct.Struct(order + "HH" + offset)
    (at,) = struct.unpack_from(order + offset, data, room)
    (count,) = struct.unpack_from(order + counts, data, at)
    at += struct.calcsize(order + counts)
    found = {}
    for _ in range(count):
        tag, kind, number = entry.unpack_from(data, at)
        if tag in _TAGS and number:
            dtype = np.dtype(order + _NUMBERS[kind])
            place = at + entry.size
            if number * dtype.itemsize > room:
                (place,) = struct.unpack_from(order + offset, data, place)
            found[tag] = np.frombuffer(data, dtype, number, place).astype(np.int64)
        at += entry.size + room
    return found
