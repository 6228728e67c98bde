"""The samples of a shard, some at a time, so that memory does not depend on its size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from shardstream.dataset.dataset_rows import DatasetRows
from shardstream.dataset.opened import OpenedDataset
from shardstream.errors import DecodeError
from shardstream.images.jpeg.transcode import restore
from shardstream.pack.export.contract import Sample
from shardstream.shards.index import ShardIndex


def read_samples(dataset: OpenedDataset, shard: int, *, original: bool) -> Iterator[Sequence[Sample]]:
    """All samples of a shard in stored order; every value is compared with its checksum.

    Args:
        dataset: Its data set.
        shard: Which.
        original: Whether addressable JPEG files become what they were before.

    Raises:
        DataError: It is damaged; names sample, key and field.
        StorageError: It cannot be read.
    """
    reader = DatasetRows(dataset)
    for batch in reader.read_shards([shard]):
        index = reader.index(shard)
        samples = []
        for i, (row, key) in enumerate(zip(batch.rows, batch.keys, strict=True)):
            found = ((name, batch.value(name, i)) for name in index.columns)
            present = ((name, value) for name, value in found if value is not None)
            values = {name: _as_exported(index, name, row, value, original) for name, value in present}
            samples.append(Sample(key, values))
        yield samples


def _as_exported(index: ShardIndex, name: str, row: int, value: Any, original: bool) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if index.columns[name].type.name != "jpg" or not original:
        return value
    try:
        return restore(value)
    except DecodeError as error:
        place = {"url": index.url or None, "shard": index.path, "sample": row, "key": index.keys[row], "field": name}
        raise error.at(**place) from error.__cause__
