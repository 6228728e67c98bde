"""A field of all samples of an object, and the columns of its pieces: for what is decided from the whole object."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardstream.formats.scans.protobuf import Bytes, Places, Spans
from shardstream.formats.scans.rows import SNIFFED, START, image_type
from shardstream.shards.fields import FieldType
from shardstream.shards.index import Column, bitmap_of


class WholeColumn(NamedTuple):
    """A column over all samples of the object: those that have a value, and the values or their places."""

    name: str
    kind: FieldType
    rows: Places
    values: NDArray[Any]
    lengths: Places | None = None
    codec: str = "none"

    def piece(self, begin: int, end: int) -> Column | None:
        """The samples from one to another; ``None`` where none of them has a value."""
        low, high = np.searchsorted(self.rows, [begin, end]).tolist()
        if low == high:
            return None
        rows, count = self.rows[low:high] - begin, end - begin
        has = np.zeros(count, np.bool_)
        has[rows] = True
        valid = bitmap_of(has)
        values = np.zeros(count, self.kind.dtype if self.kind.kind == "scalar" else np.uint64)
        values[rows] = self.values[low:high]
        if self.kind.kind == "scalar":
            return Column(self.name, self.kind, valid=valid, values=values)
        lengths = None
        if self.lengths is not None:
            lengths = np.zeros(count, np.uint64)
            lengths[rows] = self.lengths[low:high]
        return Column(self.name, self.kind, codec=self.codec, valid=valid, offsets=values, lengths=lengths)


def image_types(raw: Bytes, spans: Spans, rows: Places) -> set[str | None]:
    """What kinds of images some values are, by their first bytes; ``rows`` are their numbers in the object."""
    chosen = np.flatnonzero((rows < SNIFFED) | (rows % 64 == 0))
    some = zip(spans.begin[chosen].tolist(), spans.end[chosen].tolist(), strict=True)
    return {image_type(raw[begin : min(end, begin + START)].tobytes()) for begin, end in some}
