"""The pages of a column chunk: their headers, their bytes without compression, and the levels before their values."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import UnsupportedError
from shardstream.extras import require
from shardstream.formats.blocks.codecs import CODECS, LARGEST, inflate, inflated_into
from shardstream.formats.blocks.parquet.encodings import hybrid, unsupported, wrong
from shardstream.formats.blocks.parquet.thrift import CutOff, Thrift

PLAIN, DICTIONARY_2, RLE, BIT_PACKED, DELTA, DELTA_LENGTH, DELTA_BYTES, DICTIONARY, SPLIT = 0, 2, 3, 4, 5, 6, 7, 8, 9
"""Encodings of values; dictionaries have two numbers."""
OF_DICTIONARIES = frozenset({DICTIONARY_2, DICTIONARY})
COMPRESSIONS = {0: "none", 1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd", 7: "lz4_raw"}
"""Compressions that are read, by their numbers in footers."""
_DATA, _INDEX, _DICTIONARY, _DATA_2 = range(4)
_INNER: dict[Any, int] = {_DATA: 5, _DICTIONARY: 7, _DATA_2: 8}
_COUNTS = {1: None, 2: None, 3: None, 4: None}
_HEADER = {1: None, 2: None, 3: None, 4: None, 5: _COUNTS, 7: _COUNTS, 8: dict.fromkeys(range(1, 8))}
_TAKEN = (512, 64 << 10, 16 << 20)  # bytes that are taken for a header: statistics in it may be long
_FEW_VALUES = 1 << 22  # that pages may have, however few bytes they take: all of them may be the same
_VALUES_A_BYTE = 16  # that they may have where they take more
_FEW_BYTES, _LARGEST_FACTOR = 32 << 20, 4096  # the same of bytes that a page inflates to
_LENGTH = struct.Struct("<I")

Get = Callable[[int, int], memoryview]
"""Bytes of the object from a place on, so many."""


class Page(NamedTuple):
    """A page as its header describes it.

    Attributes:
        at: Where its header begins.
        body: Where its bytes begin.
        stored: How many they are.
        size: How many they are inflated.
        values: Its values and what stands for missing ones; of a dictionary its entries.
        encoding: Of its values.
        dictionary: Whether it is one.
        levels: Bytes of its repetition and definition levels, which are not compressed in such a page; ``None``: they
            stand before the values with their lengths, compressed as these.
        compressed: Whether its values are.
        checksum: CRC-32 of its stored bytes; ``None`` if nobody wrote one.
    """

    at: int
    body: int
    stored: int
    size: int
    values: int
    encoding: int
    dictionary: bool
    levels: tuple[int, int] | None
    compressed: bool
    checksum: int | None

    @property
    def end(self) -> int:
        """Where the next page begins."""
        return self.body + self.stored

    @property
    def of_dictionary(self) -> bool:
        """Whether its values are entries of the chunk's dictionary."""
        return not self.dictionary and self.encoding in OF_DICTIONARIES


class Levels(NamedTuple):
    """What stands before the values of a page.

    Attributes:
        repetition: At which depth each value repeats; ``None`` where the column has no lists.
        definition: How much of each value's path is there; ``None`` where it always is all.
        begin: Where the values begin in the page.
    """

    repetition: NDArray[Any] | None
    definition: NDArray[Any] | None
    begin: int


def pages(get: Get, begin: int, end: int) -> Iterator[Page]:
    """The pages that lie between two places; those of indexes are left out.

    Raises:
        DecodeError: What is there is no page, or reaches past the end.
    """
    at, left = begin, max(_FEW_VALUES, _VALUES_A_BYTE * (end - begin))
    while at < end:
        header, length = _header(get, at, end)
        page = _page(header, at, at + length)
        if page.end > end:
            raise wrong(f"it has {page.stored} bytes, and {end - page.body} are left of its column")
        at, left = page.end, left - page.values
        if left < 0:
            raise wrong(f"more values than there can be in {end - begin} bytes")
        if header.get(1) in (_DATA, _DICTIONARY, _DATA_2):
            yield page


def _header(get: Get, at: int, end: int) -> tuple[dict[int, Any], int]:
    """The header that begins at a place, and its length: few bytes are taken, and more where it needs them."""
    for size in _TAKEN:
        taken = min(size, end - at)
        reader = Thrift(bytes(get(at, taken)))
        try:
            return reader.struct(_HEADER), reader.at
        except CutOff:
            if taken < size or size == _TAKEN[-1]:
                raise
    raise AssertionError("one of them is the last")


def _page(header: dict[int, Any], at: int, body: int) -> Page:
    kind, size, stored = (header.get(number) for number in (1, 2, 3))
    inner = header.get(_INNER.get(kind, 0), {} if kind == _INDEX else None)
    if not isinstance(inner, dict) or not _counts(size, stored):
        raise wrong("its header says neither what it is nor how large")
    assert size is not None
    assert stored is not None
    values, encoding = inner.get(1, 0), inner.get(4 if kind == _DATA_2 else 2, 0)
    if not _counts(values, encoding):
        raise wrong(f"it announces {values} values")
    if size > min(max(_FEW_BYTES, _LARGEST_FACTOR * stored), LARGEST):
        raise unsupported(f"it announces {size} bytes in {stored}")
    levels, checksum = None, header.get(4)
    if kind == _DATA_2:
        levels = inner.get(6, 0), inner.get(5, 0)
        if not _counts(*levels) or sum(levels) > min(size, stored):
            raise wrong("its levels are larger than it is")
    elif kind == _DATA and BIT_PACKED in (inner.get(3), inner.get(4)):
        # Refused where they are needed: writers name this encoding for levels that a column does not have.
        levels = -(inner.get(4) == BIT_PACKED), -(inner.get(3) == BIT_PACKED)
    return Page(
        at,
        body,
        stored,
        size,
        values,
        encoding,
        kind == _DICTIONARY,
        levels,
        kind != _DATA_2 or inner.get(7, True) is not False,
        checksum & 0xFFFFFFFF if isinstance(checksum, int) else None,
    )


def _counts(*numbers: object) -> bool:
    return all(type(one) is int and 0 <= one < 1 << 31 for one in numbers)


def inflated(page: Page, compression: str, stored: memoryview) -> memoryview:
    """The bytes of a page without compression, `Page.size` of them: levels, then values.

    Args:
        page: The page.
        compression: Of its column chunk, of `COMPRESSIONS`.
        stored: Its bytes as they are stored.

    Raises:
        DecodeError: They are damaged.
        MissingExtraError: A package is not installed that it takes.
    """
    if compression == "none" or not page.compressed:
        if len(stored) != page.size:
            raise wrong(f"it has {len(stored)} bytes, and announces {page.size}")
        return stored
    if page.levels is None or sum(page.levels) <= 0:
        return _inflate(compression, stored, page.size)
    before = sum(page.levels)
    out = np.empty(page.size, np.uint8)
    out[:before] = np.frombuffer(stored, np.uint8, before)
    out[before:] = np.frombuffer(_inflate(compression, stored[before:], page.size - before), np.uint8)
    return out.data.toreadonly()


def _inflate(compression: str, stored: memoryview, size: int) -> memoryview:
    if not size:
        return memoryview(b"")
    if compression == "lz4_raw":
        lz4 = require("cramjam", extra="codecs", purpose="to read what is compressed with lz4").lz4
        return inflated_into(lz4.decompress_block_into, stored, size)
    return inflate(CODECS[compression], stored, size)


def levels(page: Page, body: memoryview, repetition: int, definition: int) -> Levels:
    """The levels of a page.

    Args:
        page: The page.
        body: What `inflated` gives of it.
        repetition: The deepest level of repetition that its column has.
        definition: That of definition.

    Raises:
        UnsupportedError: They are packed in bits.
        DecodeError: They are damaged.
    """
    packed = page.levels is not None and min(page.levels) < 0
    found: list[NDArray[Any] | None] = []
    at = 0
    for part, most in enumerate((repetition, definition)):
        if packed and most and page.levels is not None and page.levels[part] < 0:
            raise UnsupportedError(
                "its levels have the deprecated encoding BIT_PACKED, which is not supported",
                hint="write the file again",
            )
        if page.levels is not None and not packed:
            length = page.levels[part]
        elif most:
            if len(body) - at < _LENGTH.size:
                raise wrong("its levels are cut off")
            length = _LENGTH.unpack_from(body, at)[0]
            at += _LENGTH.size
        else:
            length = 0
        if length > len(body) - at:
            raise wrong("its levels are cut off")
        numbers = hybrid(body[at : at + length], most.bit_length(), page.values) if most else None
        if numbers is not None and len(numbers) and numbers.max() > most:
            raise wrong(f"level {int(numbers.max())} of a column with {most}")
        found.append(numbers)
        at += length
    return Levels(found[0], found[1], at)


def is_sound(page: Page, stored: memoryview) -> bool:
    """Whether the stored bytes of a page are those that its checksum was made of, if there is one."""
    return page.checksum is None or zlib.crc32(stored) == page.checksum
