"""The samples of a shard, some at a time, so that memory does not depend on its size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import DecodeError
from shardstream.images.jpeg.transcode import restore
from shardstream.pack.export.contract import Sample
from shardstream.shards.framing import FieldValues
from shardstream.shards.index import ShardIndex
from shardstream.shards.manifest import Manifest
from shardstream.storage import Store, fetch

_AT_ONCE = 16 << 20  # bytes of samples, unless one is larger
_MOST = 4096  # samples


def read_samples(store: Store, manifest: Manifest, shard: int, *, original: bool) -> Iterator[Sequence[Sample]]:
    """All samples of a shard in stored order; every value is compared with its checksum.

    Args:
        store: Where it lies.
        manifest: Of its data set.
        shard: Which.
        original: Whether addressable JPEG files become what they were before.

    Raises:
        DataError: It is damaged; names sample, key and field.
        StorageError: It cannot be read.
    """
    framing = manifest.reader
    index = framing.scan(store, manifest.shard_name(shard), index_bytes=manifest.index_bytes)
    names = list(index.columns)
    for rows in _parts(index):
        buffers = fetch(store, lambda rows=rows: framing.plan(index, rows, names))  # type: ignore[misc]
        values = framing.extract(index, buffers, rows, names)
        yield [
            Sample(key, dict(_values(index, values, i, int(row), original=original)))
            for i, (row, key) in enumerate(zip(rows, index.keys.take(rows), strict=True))
        ]


def _parts(index: ShardIndex) -> Iterator[NDArray[np.int64]]:
    sizes = np.zeros(index.samples, np.int64)
    for column in index.columns.values():
        if column.type.kind == "fixed":
            sizes += column.type.width
        elif column.lengths is not None:
            sizes += (column.lengths if column.raw_lengths is None else column.raw_lengths).astype(np.int64)
    ends = np.cumsum(sizes)
    start = 0
    while start < index.samples:
        before = int(ends[start - 1]) if start else 0
        stop = int(np.searchsorted(ends, before + _AT_ONCE, side="right"))
        stop = min(max(stop, start + 1), start + _MOST, index.samples)
        yield np.arange(start, stop)
        start = stop


def _values(
    index: ShardIndex, values: dict[str, FieldValues], at: int, row: int, *, original: bool
) -> Iterator[tuple[str, Any]]:
    for name, found in values.items():
        if found.valid is not None and not found.valid[at]:
            continue
        value: Any = found.data[at]
        if found.type.kind == "scalar":
            yield name, value.item()
        elif found.type.name == "jpg" and original:
            yield name, _original(index, name, row, value)
        else:
            yield name, value


def _original(index: ShardIndex, name: str, row: int, data: memoryview) -> bytes:
    try:
        return restore(data)
    except DecodeError as error:
        place = {"url": index.url or None, "shard": index.path, "sample": row, "key": index.keys[row], "field": name}
        raise error.at(**place) from error.__cause__
