"""What key tables list: the keys of samples, or those of the documents that lie in bins."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shardstream.dataset.dataset_rows import DatasetRows
from shardstream.dataset.opened import OpenedDataset
from shardstream.dataset.rows import RowBatch
from shardstream.dataset.shard import check_index
from shardstream.errors import DataError, FormatError, NotFoundError
from shardstream.shards.bins import Bins
from shardstream.shards.heads import OldVersion
from shardstream.shards.index import ShardIndex
from shardstream.shards.key_table import Scan, TableName, hash_of, hashes_of
from shardstream.shards.manifest import Manifest
from shardstream.storage import Store
from shardstream.threads import each

_AT_ONCE = 16  # indexes that are read
_AT_ONCE_BYTES = 16 << 20
_DAMAGED = "restore the shard from its source, or pack again"

Numbered: TypeAlias = "tuple[NDArray[np.uint64], NDArray[np.signedinteger[Any]]]"
"""Hashes of keys, and the samples that they lead to, each (n,)."""


class KeyListing(Protocol):
    """Keys of a data set, and the samples that they lead to.

    Attributes:
        name: What the names of tables begin with.
    """

    name: TableName

    def count(self, version: Manifest | OldVersion) -> int | None:
        """How many keys there are; ``None`` where that is not known."""

    def read(self, dataset: OpenedDataset, shards: range) -> Iterator[Numbered]:
        """The keys of some shards.

        Raises:
            DataError, StorageError: A shard cannot be read.
        """

    def leads(self, rows: DatasetRows, number: int, key: str) -> bool:
        """Whether this key does lead to this sample.

        Args:
            rows: Of the data set; with the fields that the listing needs.
            number: Of the sample.
            key: The key; another one may have its hash.
        """


class SampleKeys:
    """The keys of samples, which stand in the indexes of shards."""

    name: TableName = "keys"

    def count(self, version: Manifest | OldVersion) -> int:
        """One a sample."""
        return version.samples

    def read(self, dataset: OpenedDataset, shards: range) -> Iterator[Numbered]:
        """Of some shards."""
        return keys_in(dataset.manifest, lambda shard: scan_once(dataset, shard), shards)

    def leads(self, rows: DatasetRows, number: int, key: str) -> bool:
        """Whether it is the sample's."""
        shard, row = rows.dataset.numbering.find(number)
        if rows.index(shard).keys[row] == key:
            return True
        rows.check_unchanged(shard)  # equal hashes are rare; more likely is that the index is another one
        return False


class DocumentKeys:
    """The keys of documents, which stand beside the tokens of bins: once for each bin that has a piece of one.

    Args:
        bins: Of the data set.
    """

    name: TableName = "documents"

    def __init__(self, bins: Bins) -> None:
        self.field = bins.beside("keys")

    def count(self, version: Manifest | OldVersion) -> int | None:
        """One a piece; of an old version nothing is known but its samples."""
        bins = version.bins if isinstance(version, Manifest) else None
        return None if bins is None else bins.pieces

    def read(self, dataset: OpenedDataset, shards: range) -> Iterator[Numbered]:
        """Of some shards: all of these keys are read."""
        rows = DatasetRows(dataset, [self.field])
        begin = int(dataset.manifest.table.samples[: shards.start].sum(dtype=np.int64))
        for batch in rows.read_shards(shards):
            found = [self.keys(batch, i, dataset.url) for i in range(len(batch.rows))]
            hashes = [hash_of(key) for keys in found for key in keys]
            numbers = np.repeat(np.arange(begin, begin + len(found)), [len(keys) for keys in found])
            begin += len(found)
            yield np.array(hashes, np.uint64), numbers

    def leads(self, rows: DatasetRows, number: int, key: str) -> bool:
        """Whether the bin has a piece of it."""
        batch = rows.read_ids([number], fields=[self.field], present=True)
        return key in self.keys(batch, 0, rows.dataset.url)

    def keys(self, batch: RowBatch, i: int, url: str) -> list[str]:
        """Those of a bin.

        Raises:
            FormatError: It has none, or what stands there is no list of keys.
        """
        stored = batch.value(self.field, i) if self.field in batch.columns else None
        try:
            found = json.loads(bytes(stored)) if stored is not None else None
        except (ValueError, RecursionError):
            found = None
        if isinstance(found, list) and all(type(key) is str for key in found):
            return found
        where = {"shard": batch.shards[i], "sample": batch.rows[i], "field": self.field}
        raise FormatError("the bin does not say which documents lie in it", url=url, hint=_DAMAGED, **where)  # type: ignore[arg-type] # by name


SAMPLE_KEYS = SampleKeys()


def listings_of(manifest: Manifest) -> list[KeyListing]:
    """All that a data set has tables of."""
    return [SAMPLE_KEYS] if manifest.bins is None else [SAMPLE_KEYS, DocumentKeys(manifest.bins)]


def keys_in(manifest: Manifest, scan: Scan, shards: range) -> Iterator[Numbered]:
    """The keys of the samples of some shards, whose indexes are read with ``scan``."""
    number = int(manifest.table.samples[: shards.start].sum(dtype=np.int64))
    at_once = max(1, min(_AT_ONCE, _AT_ONCE_BYTES // max(manifest.index_bytes, 1)))

    def hashes_in(shard: int) -> NDArray[np.uint64]:
        index = scan(shard)
        check_index(index, manifest, shard)
        return hashes_of(index.keys)

    where = f" of {manifest.url}" if manifest.url else ""  # one that was not written yet has none
    what = f"the keys of one of the shards {shards.start} to {shards.stop - 1}{where}"
    for hashes in each(hashes_in, shards, at_once=at_once, what=what):
        yield hashes, np.arange(number, number + len(hashes))
        number += len(hashes)


def scan_once(dataset: OpenedDataset, shard: int) -> ShardIndex:
    """The index of a shard that is read once: where it is mapped, it is not held for longer.

    Raises:
        DataError, StorageError: As `OpenedDataset.open`.
    """
    found = dataset.shard(shard)
    if found.store.mapped and dataset.manifest.reader.tail_bytes(0):
        with suppress(DataError, NotFoundError):  # it may be whole at another place
            return _scan_apart(found.store, found.name, dataset.manifest)
    return dataset.open(shard).index


def _scan_apart(store: Store, name: str, manifest: Manifest) -> ShardIndex:
    """An index; a mapped one over a mapping of its own, which goes with it."""
    where = copy.copy(store) if store.mapped else store
    return manifest.reader.scan(where, name, index_bytes=manifest.index_bytes)
