"""Where the values of a data set with compact layout are: in its object header, which the library does not tell.

Source: the HDF5 file format specification, version 3.0, IV.A.1 "Object Headers" and IV.A.2.i "Data Layout Message".
Addresses and lengths have 8 bytes: files with others are refused before.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

_LAYOUT, _CONTINUES = 8, 16  # types of messages
_SIGNATURE, _CHUNK = b"OHDR", b"OCHK"
_COMPACT = 0
_CHECKSUM = 4
_MOST = 1000  # parts of a header


class CompactPlace(NamedTuple):
    """Where values begin in the file, and their bytes."""

    offset: int
    length: int


def compact_place(read: Callable[[int, int], bytes], address: int) -> CompactPlace | None:
    """The values in the object header at an address; ``None`` where none are found.

    Args:
        read: Gives bytes of the file: of an offset, so many.
        address: Of the header.
    """
    for kind, begin, length in _messages(read, address):
        if kind == _LAYOUT and length >= 4:
            version, layout, size = struct.unpack("<BBH", read(begin, 4))
            if version in (3, 4) and layout == _COMPACT and size <= length - 4:
                return CompactPlace(begin + 4, size)
    return None


def _messages(read: Callable[[int, int], bytes], address: int) -> Iterator[tuple[int, int, int]]:
    """Type, place, and bytes of each message of an object header, its continuations included."""
    start = read(address, 16)
    modern = start.startswith(_SIGNATURE)
    if modern:
        flags, at = start[5], address + 6 + (16 if start[5] & 32 else 0) + (4 if start[5] & 16 else 0)
        width = 1 << (flags & 3)
        parts = [(at + width, int.from_bytes(read(at, width), "little"))]
        head = 6 if flags & 4 else 4
    else:
        parts, head = [(address + 16, int.from_bytes(start[8:12], "little"))], 8
    for number in range(_MOST):
        if number >= len(parts):
            return
        at, length = parts[number]
        end = at + length
        while at + head <= end:
            raw = read(at, 4)
            kind, size = (raw[0], int.from_bytes(raw[1:3], "little")) if modern else struct.unpack("<HH", raw)
            at += head
            if at + size > end:
                break
            if kind == _CONTINUES and size >= 16:
                parts.append(_continued(read, *struct.unpack("<QQ", read(at, 16)), modern=modern))
            yield kind, at, size
            at += size


def _continued(read: Callable[[int, int], bytes], begin: int, length: int, *, modern: bool) -> tuple[int, int]:
    """Where the messages of a continuation begin, and their bytes."""
    if not modern:
        return begin, length
    whole = read(begin, len(_CHUNK)) == _CHUNK
    return begin + len(_CHUNK), length - len(_CHUNK) - _CHECKSUM if whole else 0
