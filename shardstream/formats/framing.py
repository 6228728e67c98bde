"""``ForeignFraming``: values of foreign objects, where an index of a catalogue says that they lie."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import DecodeError, UsageError
from shardstream.formats.registry import form_of
from shardstream.shards.framing import Tail
from shardstream.shards.index import Column, ShardIndex
from shardstream.shards.indexed import IndexedFraming, place_of_bytes
from shardstream.shards.layout import parse_index
from shardstream.storage import Store

NAME = "foreign"


class ForeignFraming(IndexedFraming):
    """Objects of other libraries, which know nothing of us: their indexes come from a catalogue, as ``tail``."""

    name = NAME
    suffix = ""

    def tail_bytes(self, index_bytes: int) -> int:
        return 0

    def scan(
        self, store: Store, path: str, *, index_bytes: int | None = None, verify: bool = True, tail: Tail | None = None
    ) -> ShardIndex:
        assert tail is not None, "the object has no index of its own"
        data, size = tail
        return parse_index(data, path=path, url=store.url, framing=self.name, end=size, verify=verify, is_form=is_form)

    def decoded(
        self, index: ShardIndex, column: Column, rows: NDArray[np.int64], stored: list[memoryview]
    ) -> list[memoryview]:
        if column.codec == "zstd":
            return super().decoded(index, column, rows, stored)
        form, text = form_of(column.codec)
        out = []
        for row, data in zip(rows.tolist(), stored, strict=True):
            try:
                out.append(memoryview(form(data, text)))
            except ValueError as error:
                raise DecodeError(
                    f"the value is not what its format says: {error}",
                    hint="on_error='skip' goes on without the sample",
                    **place_of_bytes(index, column, row),
                ) from error
        return out


FRAMING = ForeignFraming()


def is_form(codec: str) -> bool:
    """Whether there is a form of this name."""
    try:
        form_of(codec)
    except UsageError:
        return False
    return True
