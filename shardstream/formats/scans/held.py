"""Columns of values that lie in no object: the index of a catalogue holds them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from shardstream.shards.arrays import npy_header
from shardstream.shards.fields import FieldType
from shardstream.shards.index import Column, bitmap_of

_BOX = np.dtype("<f4")


def held_column(name: str, kind: str, values: Sequence[bytes | memoryview | None]) -> Column:
    """A column of these stored bytes; ``None`` for a sample without a value."""
    parts = [b"" if one is None else one for one in values]
    has = np.array([one is not None for one in values], np.bool_)
    return Column(
        name,
        FieldType.parse(kind),
        valid=bitmap_of(has),
        held=np.frombuffer(b"".join(parts), np.uint8),
        held_ends=np.cumsum([len(one) for one in parts], dtype=np.uint64),
    )


def boxes_column(name: str, boxes: NDArray[np.float32], ends: NDArray[np.int64]) -> Column:
    """A column of arrays (objects, 4), of which each sample has those up to its end."""
    data, start, parts = np.ascontiguousarray(boxes, _BOX).tobytes(), 0, []
    for end in ends.tolist():
        parts.append(_header(end - start) + data[16 * start : 16 * end])
        start = end
    return held_column(name, "array", parts)


@lru_cache(maxsize=1024)
def _header(count: int) -> bytes:
    return npy_header(_BOX, (count, 4))


def numbers_column(name: str, numbers: NDArray[np.generic], ends: NDArray[np.int64]) -> Column:
    """A column of rows of numbers, of which each sample has those up to its end."""
    little = numbers.astype(numbers.dtype.newbyteorder("<"), copy=False)
    data = np.ascontiguousarray(little).view(np.uint8)
    return Column(
        name,
        FieldType.parse(f"values:{numbers.dtype.name}"),
        held=data,
        held_ends=ends.astype(np.uint64) * np.uint64(numbers.dtype.itemsize),
    )


def lists_column(name: str, texts: Sequence[bytes], ends: NDArray[np.int64]) -> Column:
    """A column of JSON lists of these texts, which are JSON themselves."""
    start, parts = 0, []
    for end in ends.tolist():
        parts.append(b"[" + b",".join(texts[start:end]) + b"]")
        start = end
    return held_column(name, "json", parts)
