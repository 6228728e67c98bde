"""``LooseFraming``: values that are objects of their own, whose names a catalogue has, and those that it holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import DataError, NotFoundError
from shardstream.placeholders import is_pointer, pointer_error
from shardstream.shards.framing import (
    MAX_VALUE,
    FieldValues,
    Framing,
    Tail,
    oversized,
    place_of_value,
    requests_of,
    with_gaps,
)
from shardstream.shards.index import Column, ShardIndex
from shardstream.shards.layout import LOOSE as NAME
from shardstream.shards.layout import parse_index
from shardstream.storage import Buffers, Request, Store


class LooseFraming(Framing):
    """Files and lists of them: a shard is a run of samples, each value a whole object."""

    name = NAME
    suffix = ""
    whole_objects = True

    def scan(
        self, store: Store, path: str, *, index_bytes: int | None = None, verify: bool = True, tail: Tail | None = None
    ) -> ShardIndex:
        assert tail is not None, "the index comes from a catalogue"
        data, size = tail
        return parse_index(data, path=path, url=store.url, framing=self.name, end=size, verify=verify)

    def plan(self, index: ShardIndex, rows: NDArray[np.int64], fields: Sequence[str]) -> list[Request]:
        def places(column: Column, rows: NDArray[np.int64]) -> Iterator[Request]:
            if column.held is not None:
                return iter(())
            return (Request(path, 0, size) for path, size in _objects(column, rows))

        return requests_of(index, rows, fields, places)

    def extract(
        self,
        index: ShardIndex,
        buffers: Buffers,
        rows: NDArray[np.int64],
        fields: Sequence[str],
        *,
        verify: bool = True,
        max_value: int = MAX_VALUE,
    ) -> dict[str, FieldValues]:
        out = {}
        for name in fields:
            column = index.column(name)
            valid = column.valid_rows(rows)
            data: list[memoryview | None] | NDArray[Any]
            if column.type.kind == "scalar":
                assert column.values is not None
                data = column.values[rows]
            else:
                chosen = rows if valid is None else rows[valid]
                data = with_gaps(self._values(index, column, buffers, chosen, max_value), valid)
            out[name] = FieldValues(column.type, data, valid)
        return out

    def _values(
        self, index: ShardIndex, column: Column, buffers: Buffers, rows: NDArray[np.int64], max_value: int
    ) -> Iterator[memoryview]:
        if column.held is not None:
            for row, value in zip(rows.tolist(), column.held_values(rows), strict=True):
                if len(value) > max_value:
                    raise oversized(index, column.name, row, len(value), max_value)
                yield value
            return
        for row, (path, size) in zip(rows.tolist(), _objects(column, rows), strict=True):
            try:
                found = buffers.view(path, 0, size)
            except NotFoundError as error:
                raise DataError(
                    f"there is no such file: {path}",
                    hint="on_error='skip' goes on without the sample",
                    **place_of_value(index, column.name, row),
                ) from error
            if len(found) > max_value:
                raise oversized(index, column.name, row, len(found), max_value)
            if is_pointer(found):  # text would be taken for what it says
                raise pointer_error(**place_of_value(index, column.name, row))
            yield found


def _objects(column: Column, rows: NDArray[np.int64]) -> Iterator[tuple[str, int | None]]:
    """Names and sizes of the objects of these rows."""
    sizes = [None] * len(rows) if column.lengths is None else column.lengths[rows].tolist()
    return zip(column.object_names(rows), sizes, strict=True)


LOOSE = LooseFraming()
