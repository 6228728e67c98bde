"""How large one value may become: a few stored bytes may stand for gigabytes, whoever wrote them.

A compressed value says itself what it unpacks to, an array of fixed size is made of zeros where a sample has none, and
a decoded array is a copy. All else takes the room that it takes where it is stored.
"""

from __future__ import annotations

from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import DecodeError, Place, ShardStreamError
from shardstream.shards.index import Column, ShardIndex

MAX_VALUE = 1 << 30
"""Bytes of the largest value that is delivered, unless told otherwise."""


def check_sizes(index: ShardIndex, column: Column, rows: NDArray[np.int64], max_value: int) -> None:
    """Refuse values that would become too large, before anything of them is made.

    Args:
        index: The shard.
        column: A field of it.
        rows: Samples, int64 (n,).
        max_value: Bytes that one value may have as it is delivered.

    Raises:
        DecodeError: One has more; names shard, sample, key and field.
    """
    for row, size in too_large(column, rows, max_value):
        raise oversized(index, column.name, row, size, max_value)


def oversized(index: ShardIndex, field: str, row: int, size: int, max_value: int) -> DecodeError:
    """The error for a value of ``size`` bytes."""
    return DecodeError(
        f"the value has {size} bytes, and max_value is {max_value}",
        hint="read it with a larger max_value= if you trust the data, or leave the field out",
        **place_of_value(index, field, row),
    )


def too_large(column: Column, rows: NDArray[np.int64], max_value: int) -> list[tuple[int, int]]:
    """Row and size of each of these values that has more bytes than that as it is delivered."""
    if column.type.kind == "fixed":
        width = column.type.width
        return [(row, width) for row in rows.tolist()] if width > max_value else []
    sizes = column.raw_lengths
    if sizes is None and column.type.name in ("array", "tensor"):
        sizes = column.lengths
    if sizes is None or not len(rows):
        return []
    chosen = sizes[rows]
    if int(chosen.max()) <= max_value:
        return []
    return [(int(rows[i]), int(chosen[i])) for i in np.flatnonzero(chosen > max_value)]


def place_of_value(index: ShardIndex, field: str, row: int) -> Place:
    """The place of a value, for errors."""
    place: Place = {"shard": index.path, "sample": row, "field": field}
    if index.url:
        place["url"] = index.url
    with suppress(ShardStreamError):  # the shard is damaged in more than one place; tell of the one that was asked for
        place["key"] = index.keys[row]
    return place
