"""``KeyFinder``: the samples of a data set by key, through its key table; bins by the documents in them.

The table is an object of the data set. One that has none, for it was written without or by an earlier version, gets a
table on this machine, made of its shards once: in the folder of its cache, else in the user's own
(``$XDG_CACHE_HOME/shardstream/keys``). Both are called after the fingerprint of the version that they are about, which
stands in them, too: a data set that was changed is never answered from the table of what was there before. Where it has
grown, the new table begins with the entries of the old one.
"""

from __future__ import annotations

import logging
import mmap
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import nullcontext, suppress
from typing import NamedTuple

import numpy as np

from shardstream.dataset.dataset_rows import DatasetRows
from shardstream.dataset.keys.listings import SAMPLE_KEYS, DocumentKeys, KeyListing
from shardstream.dataset.keys.tables import add_keys, all_of, stored_tables
from shardstream.dataset.opened import OpenedDataset
from shardstream.errors import (
    AccessError,
    ChangedError,
    DataError,
    MissingKeyError,
    NotFoundError,
    ShardStreamError,
    StorageError,
)
from shardstream.shards.heads import OldVersion
from shardstream.shards.key_table import (
    TAIL_BYTES,
    Covers,
    Entries,
    KeyTable,
    SortedKeys,
    hash_of,
    table_bytes,
    table_size,
)
from shardstream.shards.manifest import Manifest
from shardstream.storage.base.sorting import no_room
from shardstream.storage.base.verified import settled
from shardstream.storage.cache.cached_dataset import CachedDataset
from shardstream.storage.cache.folder import NEW, Folder, users_own
from shardstream.storage.cache.locks import lock_file
from shardstream.storage.cache.tier import KEPT, NoRoom, tiers_of
from shardstream.text import in_one_line
from shardstream.waits import watched

_logger = logging.getLogger(__name__)

_LOCK = f"lock{KEPT}"
_PATIENCE_S = 600.0  # for another process that makes the same table


# ------------------------------------------------------------------------------------------------ on this machine


class _Shelf(NamedTuple):
    """A folder of this machine that tables are kept in.

    Attributes:
        folder: The folder.
        cached: The data set's place in the cache that it belongs to, which is in use as long as this lives.
        listing: What the tables list.
    """

    folder: Folder
    cached: CachedDataset | None
    listing: KeyListing

    def _name(self, fingerprint: str) -> str:
        return f"{fingerprint}{'' if self.listing is SAMPLE_KEYS else f'-{self.listing.name}'}{KEPT}"

    def find(self, version: Manifest | OldVersion, *, once: bool = False) -> KeyTable | None:
        """The table of a version of a data set; ``None`` where there is none, or a damaged one.

        Args:
            version: Which.
            once: It will be read from end to end, and is not to fill this process's memory.
        """
        name, count = self._name(version.fingerprint), self.listing.count(version)
        if count is None:
            return None
        try:
            descriptor = self.folder.open(name, os.O_RDONLY)
        except FileNotFoundError:
            return None
        try:
            table = _mapped(descriptor, self.folder.place(name), range(version.samples), once=once)
        except (DataError, ValueError):
            return None
        finally:
            os.close(descriptor)
        return table if table.covers == Covers(0, count, version.fingerprint) else None

    def make(self, dataset: OpenedDataset) -> KeyTable | None:
        """The same, made now unless another process just has; ``None`` if it is gone at once."""
        with watched(f"another process to make the key table of {in_one_line(dataset.url)}"):
            lock = lock_file(self.folder, _LOCK, shared=False, wait=_PATIENCE_S)
        with lock or nullcontext():  # without the lock, both make it: the same bytes
            found = self.find(dataset.manifest)
            if found is None:
                if lock is not None:
                    self._sweep()
                self._write(dataset)
                found = self.find(dataset.manifest)
            return found

    def _write(self, dataset: OpenedDataset) -> None:
        name = self._name(dataset.manifest.fingerprint)
        size = table_size(all_of(self.listing, dataset.manifest).stop)
        with self.folder.replacing(name) if self.cached is None else self.cached.keeping(name, size) as descriptor:
            _fill(descriptor, dataset, self.listing, *self._before(dataset.manifest))

    def _before(self, manifest: Manifest) -> tuple[Iterable[Entries], int]:
        """The entries of the newest older version that has a sound table here, and how many shards they are of."""
        for old in reversed(manifest.history):
            if old.samples != manifest.table.samples[: old.shards].sum(dtype=np.int64):  # nothing else compares them
                continue
            table = self.find(old, once=True)
            with suppress(DataError):
                if table is not None:
                    for _ in table.entries():  # all of it is compared with its checksums before any of it is taken
                        pass
                    return table.entries(), old.shards
        return (), 0

    def _sweep(self) -> None:
        """Remove what processes that died left half-made; a cache does that for itself."""
        for name, _ in self.folder.files() if self.cached is None else ():
            if name.startswith(NEW):
                self.folder.unlink(name)

    def forget(self, manifest: Manifest) -> None:
        """Remove a table that is damaged."""
        with suppress(OSError):
            self.folder.unlink(self._name(manifest.fingerprint))


def _fill(descriptor: int, dataset: OpenedDataset, listing: KeyListing, before: Iterable[Entries], first: int) -> None:
    with SortedKeys(all_of(listing, dataset.manifest)) as keys:
        for part in before:
            keys.add(*part)
        add_keys(keys, dataset, listing, range(first, dataset.manifest.shards))
        with open(descriptor, "wb", closefd=False) as file:
            file.writelines(table_bytes(keys))


def _mapped(descriptor: int, place: str, numbers: range, *, once: bool = False) -> KeyTable:
    """The table in a file; ValueError or DataError where it is none. For ``once`` see `_Shelf.find`."""
    mapped = mmap.mmap(descriptor, 0, prot=mmap.PROT_READ)
    data = memoryview(mapped)

    def read(offset: int, length: int) -> tuple[memoryview, bool]:
        if once:  # whatever was read before is let go of; who still looks at it has it read again
            mapped.madvise(mmap.MADV_DONTNEED)
        return settled(data[offset : offset + length], mapped=True)

    return KeyTable.parse(data[-TAIL_BYTES:], len(data), read, url=place, numbers=numbers)


def _shelves(dataset: OpenedDataset, listing: KeyListing) -> Iterator[_Shelf]:
    """The folders for tables, the best first; OSError where one cannot be used."""
    cache, manifest = dataset.address.cache, dataset.manifest
    if cache is not None:
        place = CachedDataset.open(tiers_of(cache)[-1], manifest.lineage, manifest.url)
        if place.broken is None:
            yield _Shelf(place.folder, place, listing)
    yield _Shelf(users_own().folder("keys", make=True), None, listing)


# ------------------------------------------------------------------------------------------------------- the finder


def numbers_of(dataset: OpenedDataset, keys: Iterable[str]) -> list[int]:
    """The number of the first sample of each key; of a key that only documents have, of the first bin with such a one.

    Raises:
        MissingKeyError: There is neither.
        DataError, StorageError: As `KeyFinder.find`.
    """
    samples, bins = KeyFinder(DatasetRows(dataset, ())), dataset.manifest.bins
    documents = None
    if bins is not None:
        listing = DocumentKeys(bins)
        documents = KeyFinder(DatasetRows(dataset, [listing.field]), listing)

    def number_of(key: str) -> int:
        number = samples.find(key)
        if number is None and documents is not None:
            number = documents.find(key)
        return samples.number_of(key) if number is None else number

    return list(map(number_of, keys))


class KeyFinder:
    """Finds samples by key. For one thread.

    Args:
        rows: The rows of the data set, in which keys are compared.
        listing: Which keys lead to samples.
    """

    def __init__(self, rows: DatasetRows, listing: KeyListing = SAMPLE_KEYS) -> None:
        self._rows = rows
        self._listing = listing
        self._dataset = rows.dataset
        self._tables: list[KeyTable] | None = None
        self._shelf: _Shelf | None = None
        self._dropped = 0

    def number_of(self, key: str) -> int:
        """The number of the first sample of this key, in stored order.

        Raises:
            MissingKeyError: No sample has it.
            DataError, StorageError: As `find`.
        """
        number = self.find(key)
        if number is None:
            raise MissingKeyError(
                "no sample has this key",
                url=self._dataset.url,
                key=key,
                hint="keys are paths without extension, unless packed with another `key`: look at some by number",
            )
        return number

    def find(self, key: str) -> int | None:
        """The same; ``None`` if no sample has it.

        Raises:
            DataError: The index of a shard is damaged.
            StorageError: The store cannot be read.
        """
        return next((number for number in self.candidates(key) if self._leads(number, key)), None)

    def find_all(self, keys: Iterable[str]) -> list[tuple[int, str]]:
        """The numbers of all samples of some keys, in order, with their keys. Each block and index is read once.

        Raises:
            DataError, StorageError: As `find`.
        """
        candidates = sorted({(number, key) for key in sorted(keys, key=hash_of) for number in self.candidates(key)})
        return [(number, key) for number, key in candidates if self._leads(number, key)]

    def _leads(self, number: int, key: str) -> bool:
        return self._listing.leads(self._rows, number, key)

    def candidates(self, key: str) -> Iterator[int]:
        """Samples to which a key of this one's hash leads, in order; again from the first on where a table is damaged.

        Raises:
            DataError, StorageError: As `find`.
        """
        while True:
            tables = self._open()
            try:
                for table in tables:
                    yield from table.numbers(key)
            except (DataError, ChangedError) as error:
                self._drop(error)
            else:
                return

    def _open(self) -> list[KeyTable]:
        if self._tables is None and self._shelf is None and not self._dropped:
            try:
                self._tables = stored_tables(self._dataset.store, self._dataset.manifest, self._listing)
            except (NotFoundError, AccessError):  # stores that may not be listed refuse what is not there
                pass
            except (DataError, ChangedError) as error:
                self._drop(error)
        if self._tables is None:
            self._tables = [self._kept()]
        return self._tables

    def _drop(self, error: DataError | ChangedError) -> None:
        """Go on without a table that is damaged: first that of the data set, then one of this machine, once."""
        if self._dropped == 2:
            raise error
        self._dropped += 1
        told, _, _ = str(error).partition("\n  hint: ")  # its advice is taken
        _logger.warning("%s; keys are found by a table that is made anew", told)
        self._tables = None
        if self._shelf is not None:
            self._shelf.forget(self._dataset.manifest)

    def _kept(self) -> KeyTable:
        """A table of this machine, made if there is none."""
        manifest, reason = self._dataset.manifest, ""
        try:
            for shelf in _shelves(self._dataset, self._listing):
                try:
                    table = shelf.find(manifest) or shelf.make(self._dataset)
                except NoRoom as error:
                    reason = f"no room in the cache beyond {error.bound:,} bytes"
                else:
                    if table is not None:
                        self._shelf = shelf
                        return table
        except OSError as error:
            if isinstance(error, ShardStreamError):
                raise
            reason = str(error.strerror or error)
        url = in_one_line(manifest.url)
        _logger.warning("the key table of %s cannot be kept for other processes (%s)", url, reason or "it was removed")
        return self._unkept()

    def _unkept(self) -> KeyTable:
        """A table for this process alone."""
        try:
            with tempfile.TemporaryFile(prefix="shardstream-") as file:
                _fill(file.fileno(), self._dataset, self._listing, (), 0)
                return _mapped(file.fileno(), "a temporary file", range(self._dataset.manifest.samples))
        except StorageError:
            raise
        except OSError as error:
            raise no_room(error) from error
