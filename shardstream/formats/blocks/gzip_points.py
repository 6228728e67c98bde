"""Parts of a gzip file, inflated from an access point: where a block of deflate begins, with the 32 KB before it.

Such a block may begin at any bit, and zlib, as Python has it, begins at bytes. So empty blocks are put before it, of as
many bits as are missing to whole bytes: those of fixed codes have 10 bits, one of codes of its own 95.

https://www.rfc-editor.org/rfc/rfc1951
"""

from __future__ import annotations

import zlib
from collections.abc import Generator
from typing import Any, NamedTuple

import numpy as np

from shardstream.errors import DecodeError

WINDOW = 32 << 10
"""Bytes before an access point that what follows may repeat."""
_TAKEN = 256 << 10  # bytes that zlib is given at once
_MADE = 1 << 20  # bytes that it may give back at once
_FOOT = 8  # bytes behind the deflated ones of a member: CRC-32 and size
_FIXED = [0, 1, 0, *[0] * 7]  # not the last block, fixed codes, its end
# Not the last block, codes of its own; 257 letters, 1 distance, 19 lengths of codes, of which 18 (many zeros) has one
# bit, and 0 and 1 have two; 138 and 118 zeros, a one for the end, a zero for the distance; the end.
_OWN = [
    *[0, 0, 1, *[0] * 5, *[0] * 5, *[1] * 4],
    *[0] * 6, *[1, 0, 0], *[0, 1, 0], *[0] * 39, *[0, 1, 0], *[0] * 3,
    *[0, *[1] * 7], *[0, *[1, 1, 0, 1, 0, 1, 1]], *[1, 1], *[1, 0],
    0,
]  # fmt: skip


def setting_of(bits: int, window: bytes) -> bytes:
    """What has to be known of an access point.

    Args:
        bits: How many of the highest bits of the first stored byte belong to the part; 0: all.
        window: The inflated bytes before it, at most `WINDOW`; empty at the beginning of a member.
    """
    return bytes([bits]) + (zlib.compress(window) if window else b"")


def part_pieces(data: memoryview, setting: bytes) -> Generator[bytes, None, bool]:
    """What is inflated from an access point on, in pieces of at most 1 MB, until the stored bytes or the file end.

    Returns:
        Whether the file ends there.

    Raises:
        DecodeError: They are damaged.
    """
    try:
        return (yield from _pieces(data, setting))
    except zlib.error as error:
        raise _damaged(str(error)) from error


class LastPart(NamedTuple):
    """What is inflated from an access point to the end of a file; ``whole``: whether the file ends as it should."""

    inflated: memoryview
    whole: bool


def last_part(data: memoryview, setting: bytes, most: int) -> LastPart | None:
    """All that is inflated from an access point to the end of the file; ``None`` where that is more than ``most``.

    Raises:
        DecodeError: They are damaged.
    """
    out, pieces = bytearray(), part_pieces(data, setting)
    while True:
        try:
            out += next(pieces)
        except StopIteration as end:
            return LastPart(memoryview(out).toreadonly(), end.value)
        if len(out) > most:
            return None


def _damaged(what: str) -> DecodeError:
    return DecodeError(
        f"a part of a gzip file does not inflate: {what}",
        hint="the object is damaged, or was replaced; fetch or write it again",
    )


def _pieces(data: memoryview, setting: bytes) -> Generator[bytes, None, bool]:
    bits = setting[0] & 7 if setting else 0
    if bits and not len(data):
        raise _damaged("there are no bytes")
    window = zlib.decompressobj().decompress(setting[1:], WINDOW) if len(setting) > 1 else b""
    stream = zlib.decompressobj(-zlib.MAX_WBITS, zdict=window)
    if bits:
        yield stream.decompress(_lead(bits, data[0]))
    at = (yield from _member(stream, data, 1 if bits else 0)) + _FOOT
    while stream.eof and at < len(data) and (data[at] or np.frombuffer(data[at:], np.uint8).any()):
        stream = zlib.decompressobj(zlib.MAX_WBITS | 16)
        at = yield from _member(stream, data, at)
    return stream.eof and at <= len(data)  # tapes are filled up with zeros


def _member(stream: Any, data: memoryview, at: int) -> Generator[bytes, None, int]:
    """What a stream inflates to, from a stored byte on; which byte follows it, or that none does."""
    while not stream.eof:
        rest = stream.unconsumed_tail
        taken = b"" if rest else data[at : at + _TAKEN]
        at += len(taken)
        piece = stream.decompress(rest or taken, _MADE)
        if piece:
            yield piece
        elif not rest and not len(taken):
            return at
    return at - len(stream.unused_data)


def _lead(bits: int, byte: int) -> bytes:
    """Empty blocks, and then the highest bits of a byte, so that bytes are whole."""
    lead: list[int] = []
    while (len(lead) + bits) % 8:
        lead += _OWN if bits % 2 and not lead else _FIXED
    lead += [byte >> place & 1 for place in range(8 - bits, 8)]
    return np.packbits(np.array(lead, np.uint8), bitorder="little").tobytes()
