"""A tar shard as other programs see it: its member headers against its index."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from shardstream.shards.index import Column, ShardIndex, escape_key
from shardstream.shards.tar import INDEX_MEMBER, list_members


class Difference(NamedTuple):
    """Where tar and index disagree: sample, field (``None``: the shard as a whole), byte offset and what is wrong."""

    sample: int | None
    field: str | None
    offset: int | None
    what: str


def differences(data: memoryview, index: ShardIndex) -> Iterator[Difference]:
    """Compare the members of a tar with its index: names, order, places, sizes, and scalars with their columns.

    Args:
        data: The whole shard.
        index: Its index.

    Raises:
        FormatError: It is not a tar.
    """
    members = list_members(data)
    expected = _expected(index)
    for name, offset, size in members[:-1]:
        found = next(expected, None)
        if found is None:
            yield Difference(None, None, offset, f"the tar holds {name!r}, of which the index knows nothing")
            return
        row, column, wanted = found
        if name != wanted:
            yield Difference(row, column.name, offset, f"the tar holds {name!r} where {wanted!r} belongs")
            return  # all that follows would be off by one
        what = _compare(data[offset : offset + size], offset, column, row)
        if what:
            yield Difference(row, column.name, offset, what)
    rest = next(expected, None)
    if rest is not None:
        yield Difference(rest[0], rest[1].name, None, f"the tar has no member {rest[2]!r}")
    if not members or members[-1][0] != INDEX_MEMBER:
        yield Difference(None, None, None, "the last member of the tar is not the index")


def _expected(index: ShardIndex) -> Iterator[tuple[int, Column, str]]:
    rows = np.arange(index.samples)
    columns = [(index.columns[name], index.columns[name].valid_rows(rows)) for name in sorted(index.columns)]
    for row, key in enumerate(index.keys):
        for column, valid in columns:
            if valid is None or valid[row]:
                yield row, column, f"{escape_key(key)}.{column.name}"


def _compare(data: memoryview, offset: int, column: Column, row: int) -> str | None:
    if column.type.kind == "scalar":
        assert column.values is not None
        return _compare_scalar(bytes(data), column.values[row])
    if column.type.kind == "fixed":
        length = column.type.width
        start = int(column.fixed_offsets(np.array([row]))[0])
        # A header of the NPY format comes first.
        at_end = offset + len(data) == start + length
        return (
            None if at_end else f"the array ends at {start + length} by the index, at {offset + len(data)} in the tar"
        )
    assert column.offsets is not None
    assert column.lengths is not None
    start, length = int(column.offsets[row]), int(column.lengths[row])
    if (start, length) == (offset, len(data)):
        return None
    return f"{length} bytes at {start} by the index, {len(data)} at {offset} in the tar"


def _compare_scalar(text: bytes, value: Any) -> str | None:
    kind = value.dtype
    try:
        if kind.kind == "f":
            same = np.array_equal(kind.type(float(text)), value, equal_nan=True)
        else:
            same = int(text) == int(value)
    except (ValueError, OverflowError):
        same = False
    return None if same else f"the member says {text[:40]!r}, the index {value.item()!r}"
