"""The values of pages: numbers as arrays, texts as where they lie, or as bytes of their own."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardstream.formats.blocks.parquet.encodings import (
    dictionary_numbers,
    differences,
    hybrid,
    joined_bytes,
    lengths_first,
    prefixed,
    unpacked,
    unsupported,
    with_prefixes,
    wrong,
)
from shardstream.formats.blocks.parquet.pages import (
    DELTA,
    DELTA_BYTES,
    DELTA_LENGTH,
    OF_DICTIONARIES,
    PLAIN,
    RLE,
    SPLIT,
)

BOOLEAN, INT32, INT64, INT96, FLOAT, DOUBLE, BYTES, FIXED = range(8)
"""How values are stored; `FIXED` are bytes of one length."""
DTYPES = {INT32: "<i4", INT64: "<i8", FLOAT: "<f4", DOUBLE: "<f8"}
"""The dtypes of numbers, by how they are stored."""
ENCODINGS = {
    BOOLEAN: {PLAIN, RLE},
    INT32: {PLAIN, DELTA, SPLIT, *OF_DICTIONARIES},
    INT64: {PLAIN, DELTA, SPLIT, *OF_DICTIONARIES},
    FLOAT: {PLAIN, SPLIT, *OF_DICTIONARIES},
    DOUBLE: {PLAIN, SPLIT, *OF_DICTIONARIES},
    BYTES: {PLAIN, DELTA_LENGTH, DELTA_BYTES, *OF_DICTIONARIES},
    FIXED: {PLAIN, SPLIT, DELTA_BYTES, *OF_DICTIONARIES},
}
"""Encodings that are read, by how values are stored."""


class LeafShape(NamedTuple):
    """How the values of a column are stored.

    Attributes:
        physical: One of `DTYPES`, or `BOOLEAN`, `BYTES` or `FIXED`.
        width: Bytes of a value of `FIXED`.
        repetition: The deepest level of repetition.
        definition: The deepest level of definition: that of values that are there.
        element: Of a list, the level of definition from which on there is an element, be it missing itself.
    """

    physical: int
    width: int
    repetition: int
    definition: int
    element: int = 0

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of an array of its values; those of `FIXED` are void."""
        return np.dtype(DTYPES.get(self.physical, f"V{self.width}"))


def fixed_values(
    leaf: LeafShape, encoding: int, data: memoryview, count: int, dictionary: NDArray[Any] | None = None
) -> NDArray[Any]:
    """Values of one width.

    Args:
        leaf: How they are stored; not as `BYTES`.
        encoding: How they are written.
        data: Their bytes.
        count: How many there are.
        dictionary: What they are entries of, where they are.

    Raises:
        DecodeError: They are damaged, or the encoding is not one of such values.
    """
    if encoding in OF_DICTIONARIES and leaf.physical != BOOLEAN:
        if dictionary is None:
            raise wrong("entries of a dictionary that is not there")
        found: NDArray[Any] = dictionary[dictionary_numbers(data, count, len(dictionary))]
        return found
    if leaf.physical == BOOLEAN:
        return _booleans(encoding, data, count)
    if encoding == PLAIN:
        if len(data) < count * leaf.dtype.itemsize:
            raise wrong(f"{count} values of {leaf.dtype.itemsize} bytes are not in {len(data)} bytes")
        return np.frombuffer(data, leaf.dtype, count)
    if encoding == SPLIT:
        return joined_bytes(data, count, leaf.dtype.itemsize).reshape(-1).view(leaf.dtype)
    if encoding == DELTA and leaf.physical in (INT32, INT64):
        return differences(data, count, 32 if leaf.physical == INT32 else 64)[0].astype(leaf.dtype)
    if encoding == DELTA_BYTES and leaf.physical == FIXED:
        joined = b"".join(with_prefixes(data, count, count * leaf.width))
        if len(joined) == count * leaf.width:
            return np.frombuffer(joined, leaf.dtype)
    raise unsupported(f"its encoding, {encoding}, is not one of such values")


def _booleans(encoding: int, data: memoryview, count: int) -> NDArray[Any]:
    if encoding == RLE:
        if len(data) < 4:
            raise wrong("values are cut off")
        return hybrid(data[4:], 1, count).astype(np.bool_)
    if encoding != PLAIN:
        raise unsupported(f"its encoding, {encoding}, is not one of such values")
    return unpacked(data, 1, count).astype(np.bool_)


def places(encoding: int, data: memoryview, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where values of `BYTES` lie that are written one after another, and their lengths.

    Raises:
        DecodeError: They are damaged, or the encoding is another.
    """
    if encoding == PLAIN:
        return prefixed(data, count)
    if encoding == DELTA_LENGTH:
        return lengths_first(data, count)
    raise unsupported(f"its encoding, {encoding}, is not one of such values")


def byte_values(
    encoding: int, data: memoryview, count: int, most: int, dictionary: list[bytes] | None = None
) -> list[bytes]:
    """Values of `BYTES`, as bytes of their own.

    Args:
        encoding: How they are written.
        data: Their bytes.
        count: How many there are.
        most: Bytes that all may have where they are written by what differs.
        dictionary: What they are entries of, where they are.

    Raises:
        DecodeError: They are damaged, or the encoding is not one of such values.
    """
    if encoding in OF_DICTIONARIES:
        if dictionary is None:
            raise wrong("entries of a dictionary that is not there")
        return [dictionary[one] for one in dictionary_numbers(data, count, len(dictionary)).tolist()]
    if encoding == DELTA_BYTES:
        return with_prefixes(data, count, most)
    begins, lengths = places(encoding, data, count)
    return [
        bytes(data[begin : begin + length]) for begin, length in zip(begins.tolist(), lengths.tolist(), strict=True)
    ]
