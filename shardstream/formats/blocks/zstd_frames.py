"""The frames of a file that is compressed with zstd: each can be inflated alone, so each is a block.

Headers say where a frame ends, and mostly how large it is when it is inflated: RFC 8878, section 3.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import xxhash

from shardstream.errors import DecodeError
from shardstream.formats.blocks import BlockList
from shardstream.formats.blocks.codecs import CODECS, LARGEST, inflate_unknown
from shardstream.formats.blocks.found_blocks import LARGEST_WHOLE, PACK, FoundBlocks
from shardstream.formats.scans.object_bytes import ObjectBytes
from shardstream.sizes import size as sized

_MAGIC = 0xFD2FB528
_SKIPPED = 0x184D2A50  # and the 15 numbers after it
_DICTIONARY = (0, 1, 2, 4)  # bytes of its number
_CONTENT = (0, 2, 4, 8)  # bytes of the size that a frame announces
_RAW, _REPEATED, _COMPRESSED = range(3)
_LARGEST_BLOCK = 128 << 10


class _Frame(NamedTuple):
    """Where a frame lies, and what it announces to inflate to, if it does."""

    offset: int
    length: int
    size: int | None


def zstd_blocks(data: ObjectBytes) -> FoundBlocks:
    """A block for each frame; a frame that does not announce its size is inflated now.

    Raises:
        FormatError: It is damaged, or a frame is too large to be read in place.
        MissingExtraError: zstandard is not installed.
        StorageError: It cannot be read.
    """
    blocks, first = BlockList(), None
    for frame in _frames(data):
        size, checksum = frame.size, 0
        if frame.length > LARGEST:
            raise _too_large(data, frame.offset)
        if size is None:
            found = _inflated(data, frame)
            size, checksum = len(found), xxhash.xxh3_64_intdigest(found)
            first = first if len(blocks) else found
        if size > LARGEST_WHOLE:
            raise _too_large(data, frame.offset)
        blocks.add("zstd", frame.offset, frame.length, size, checksum)
    return FoundBlocks(blocks.of(data.size), first)


def _inflated(data: ObjectBytes, frame: _Frame) -> memoryview:
    try:
        found = inflate_unknown(CODECS["zstd"], data.get(frame.offset, frame.length), LARGEST_WHOLE)
    except DecodeError as error:
        raise data.damaged(error.what, frame.offset) from error
    if found is None:
        raise _too_large(data, frame.offset)
    return found


def _too_large(data: ObjectBytes, offset: int) -> Exception:
    what = f"a zstd frame is larger than {sized(LARGEST_WHOLE)} when it is inflated, and can only be read as a whole"
    return data.unsupported(what, offset, hint=PACK)


def _frames(data: ObjectBytes) -> Iterator[_Frame]:
    at = 0
    while at < data.size:
        magic = _number(data, at, 4)
        if magic & ~15 == _SKIPPED:
            at += 8 + _number(data, at + 4, 4)
            if at > data.size:
                raise data.damaged("a frame reaches past the end of the file", at)
            continue
        if magic != _MAGIC:
            raise data.damaged("no zstd frame begins where one should", at)
        frame = _frame(data, at)
        yield frame
        at += frame.length


def _frame(data: ObjectBytes, begin: int) -> _Frame:
    flags = _number(data, begin + 4, 1)
    single, checked = flags >> 5 & 1, flags >> 2 & 1
    at = begin + 5 + (1 - single)
    dictionary, content = _DICTIONARY[flags & 3], _CONTENT[flags >> 6] or single
    if flags & 8 or (dictionary and _number(data, at, dictionary)):
        raise data.unsupported("a frame needs a dictionary, or what is not known yet", begin, hint=PACK)
    at += dictionary
    size = _number(data, at, content) + (256 if content == 2 else 0) if content else None
    at += content
    most, last = 0, False
    while not last:
        head = _number(data, at, 3)
        last, kind, length = bool(head & 1), head >> 1 & 3, head >> 3
        if kind > _COMPRESSED or length > _LARGEST_BLOCK:
            raise data.damaged("a block of a zstd frame is of no known kind", at)
        most += _LARGEST_BLOCK if kind == _COMPRESSED else length
        at += 3 + (1 if kind == _REPEATED else length)
    at += 4 * checked
    if at > data.size:
        raise data.damaged("a zstd frame is cut off", begin)
    if size is not None and size > most:
        raise data.damaged(f"a frame announces {size} bytes, and its blocks hold {most} at most", begin)
    return _Frame(begin, at - begin, size)


def _number(data: ObjectBytes, offset: int, length: int) -> int:
    if offset + length > data.size:
        raise data.damaged("a zstd frame is cut off", offset)
    return int.from_bytes(data.get(offset, length), "little")
