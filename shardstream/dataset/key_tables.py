"""``KeyFinder``: the samples of a data set by key, through its key table.

The table is an object of the data set. One that has none, for it was written without or by an earlier version, gets a
table on this machine, made of its indexes once: in the folder of its cache, else in the user's own
(``$XDG_CACHE_HOME/shardstream/keys``). Both are called after the fingerprint of the version that they are about, which
stands in them, too: a data set that was changed is never answered from the table of what was there before. Where it has
grown, the new table begins with the entries of the old one.
"""

from __future__ import annotations

import copy
import logging
import mmap
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import nullcontext, suppress
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardstream.dataset.dataset_rows import DatasetRows
from shardstream.dataset.opened import OpenedDataset, check_index
from shardstream.errors import (
    AccessError,
    DataError,
    FormatError,
    MissingKeyError,
    NotFoundError,
    ShardStreamError,
    StorageError,
)
from shardstream.shards.heads import OldVersion
from shardstream.shards.index import ShardIndex
from shardstream.shards.key_table import (
    TAIL_BYTES,
    Covers,
    Entries,
    KeyTable,
    Scan,
    SortedKeys,
    hashes_of,
    key_hash,
    key_table_name,
    table_bytes,
    table_size,
)
from shardstream.shards.manifest import Manifest
from shardstream.storage import Store
from shardstream.storage.base.sorting import no_room
from shardstream.storage.cache.cached_dataset import CachedDataset
from shardstream.storage.cache.folder import NEW, Folder, users_own
from shardstream.storage.cache.locks import lock_file
from shardstream.storage.cache.tier import KEPT, NoRoom, tiers_of
from shardstream.text import in_one_line
from shardstream.threads import each
from shardstream.waits import watched

_logger = logging.getLogger(__name__)

_AT_ONCE = 16  # indexes that are read
_AT_ONCE_BYTES = 16 << 20
_FEW = 8  # a new table takes in an older one that has at most so many times its samples
_LOCK = f"lock{KEPT}"
_PATIENCE_S = 600.0  # for another process that makes the same table


# ------------------------------------------------------------------------------------------------- in the data set


def put_key_table(store: Store, manifest: Manifest, old: Manifest | None = None) -> None:
    """Write the key table of a data set that is about to be published. Reads the indexes of its shards.

    Args:
        store: Of the data set.
        manifest: What will be published.
        old: The version that it grew from. The table is then one of the new samples, and of those of small tables
            before it; without a sound table of the old version there is none.

    Raises:
        StorageError: The store cannot be read or written.
        DataError: A shard is damaged.
    """
    covers = Covers(0, manifest.samples, manifest.fingerprint)
    taken: list[KeyTable] = []
    if old is not None:
        try:
            levels = stored_tables(store, old)
        except (NotFoundError, DataError):
            return
        covers = covers._replace(start=old.samples, below=old.fingerprint)
        while levels and _samples(levels[-1].covers) <= _FEW * _samples(covers):
            taken.insert(0, levels.pop())
            covers = covers._replace(start=taken[0].covers.start, below=taken[0].covers.below)

    def scan(shard: int) -> ShardIndex:
        return _scan_apart(store, manifest.shard_name(shard), manifest)

    with SortedKeys(covers) as keys:
        for table in taken:
            for part in table.entries():
                keys.add(*part)
        add_keys(keys, manifest, scan, range(0 if old is None else old.shards, manifest.shards))
        write_key_table(store, manifest, keys)


def write_key_table(store: Store, manifest: Manifest, keys: SortedKeys) -> None:
    """The same, of keys that were collected already: all of a data set, or those of its new samples."""
    keys.covers = keys.covers._replace(fingerprint=manifest.fingerprint)
    with store.create(key_table_name(manifest.fingerprint)) as out:
        for piece in table_bytes(keys):
            out.write(piece)


def stored_tables(store: Store, manifest: Manifest) -> list[KeyTable]:
    """The tables of a version of a data set, that of the oldest samples first. Each takes a request.

    Raises:
        NotFoundError: It has none.
        DataError: One is damaged, or of another data set.
        StorageError: It cannot be read.
    """
    found: list[KeyTable] = []
    fingerprint, stop = manifest.fingerprint, manifest.samples
    while fingerprint:
        name = key_table_name(fingerprint)
        tail, size = store.get_tail(name, TAIL_BYTES)
        table = KeyTable.parse(tail, size, partial(store.get, name), url=store.locate(name))
        start = table.covers.start
        if table.covers[1:3] != (stop, fingerprint) or (start > 0) != bool(table.covers.below) or start > stop:
            raise FormatError("the key table is not one of this data set", url=store.locate(name), hint="remove it")
        if table.covers.below and start == stop:
            raise FormatError("the key table has no samples", url=store.locate(name), hint="remove it")
        found.insert(0, table)
        fingerprint, stop = table.covers.below, start
    return found


def _samples(covers: Covers) -> int:
    return covers.stop - covers.start


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


def add_keys(keys: SortedKeys, manifest: Manifest, scan: Scan, shards: range) -> None:
    """Add the keys of some shards, read with ``scan``, under the numbers that their samples have in the data set."""
    samples = manifest.table.samples
    number = int(samples[: shards.start].sum(dtype=np.int64))
    at_once = max(1, min(_AT_ONCE, _AT_ONCE_BYTES // max(manifest.index_bytes, 1)))

    def hashes_in(shard: int) -> NDArray[np.uint64]:
        index = scan(shard)
        check_index(index, manifest, shard)
        return hashes_of(index.keys)

    where = f" of {manifest.url}" if manifest.url else ""  # one that was not written yet has none
    what = f"the keys of one of the shards {shards.start} to {shards.stop - 1}{where}"
    for hashes in each(hashes_in, shards, at_once=at_once, what=what):
        keys.add(hashes, np.arange(number, number + len(hashes)))
        number += len(hashes)


# ------------------------------------------------------------------------------------------------ on this machine


class _Shelf(NamedTuple):
    """A folder of this machine that tables are kept in.

    Attributes:
        folder: The folder.
        cached: The data set's place in the cache that it belongs to, which is in use as long as this lives.
    """

    folder: Folder
    cached: CachedDataset | None

    def find(self, version: Manifest | OldVersion, *, once: bool = False) -> KeyTable | None:
        """The table of a version of a data set; ``None`` where there is none, or a damaged one.

        Args:
            version: Which.
            once: It will be read from end to end, and is not to fill this process's memory.
        """
        name = f"{version.fingerprint}{KEPT}"
        try:
            descriptor = self.folder.open(name, os.O_RDONLY)
        except FileNotFoundError:
            return None
        try:
            table = _mapped(descriptor, self.folder.place(name), once=once)
        except (DataError, ValueError):
            return None
        finally:
            os.close(descriptor)
        return table if table.covers == Covers(0, version.samples, version.fingerprint) else None

    def make(self, manifest: Manifest, scan: Scan) -> KeyTable | None:
        """The same, made now unless another process just has; ``None`` if it is gone at once."""
        with watched(f"another process to make the key table of {in_one_line(manifest.url)}"):
            lock = lock_file(self.folder, _LOCK, shared=False, wait=_PATIENCE_S)
        with lock or nullcontext():  # without the lock, both make it: the same bytes
            found = self.find(manifest)
            if found is None:
                if lock is not None:
                    self._sweep()
                self._write(manifest, scan)
                found = self.find(manifest)
            return found

    def _write(self, manifest: Manifest, scan: Scan) -> None:
        name = f"{manifest.fingerprint}{KEPT}"
        size = table_size(manifest.samples)
        with self.folder.replacing(name) if self.cached is None else self.cached.keeping(name, size) as descriptor:
            _fill(descriptor, manifest, scan, *self._before(manifest))

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
            self.folder.unlink(f"{manifest.fingerprint}{KEPT}")


def _fill(descriptor: int, manifest: Manifest, scan: Scan, before: Iterable[Entries], first: int) -> None:
    with SortedKeys(Covers(0, manifest.samples, manifest.fingerprint)) as keys:
        for part in before:
            keys.add(*part)
        add_keys(keys, manifest, scan, range(first, manifest.shards))
        with open(descriptor, "wb", closefd=False) as file:
            file.writelines(table_bytes(keys))


def _mapped(descriptor: int, place: str, *, once: bool = False) -> KeyTable:
    """The table in a file; ValueError or DataError where it is none. For ``once`` see `_Shelf.find`."""
    mapped = mmap.mmap(descriptor, 0, prot=mmap.PROT_READ)
    data = memoryview(mapped)

    def read(offset: int, length: int) -> memoryview:
        if once:  # whatever was read before is let go of; who still looks at it has it read again
            mapped.madvise(mmap.MADV_DONTNEED)
        return data[offset : offset + length]

    return KeyTable.parse(data[-TAIL_BYTES:], len(data), read, url=place)


def _shelves(dataset: OpenedDataset) -> Iterator[_Shelf]:
    """The folders for tables, the best first; OSError where one cannot be used."""
    cache, manifest = dataset.address.cache, dataset.manifest
    if cache is not None:
        place = CachedDataset.open(tiers_of(cache)[-1], manifest.lineage, manifest.url)
        if place.broken is None:
            yield _Shelf(place.folder, place)
    yield _Shelf(users_own().folder("keys", make=True), None)


# ------------------------------------------------------------------------------------------------------- the finder


class KeyFinder:
    """Finds samples by key. For one thread.

    Args:
        rows: The rows of the data set, in whose indexes keys are compared.
    """

    def __init__(self, rows: DatasetRows) -> None:
        self._rows = rows
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
        return next((number for number in self._candidates(key) if self._key_of(number) == key), None)

    def find_all(self, keys: Iterable[str]) -> list[tuple[int, str]]:
        """The numbers of all samples of some keys, in order, with their keys. Each block and index is read once.

        Raises:
            DataError, StorageError: As `find`.
        """
        ordered = sorted(keys, key=lambda key: key_hash(key.encode("utf-8", "surrogatepass")))
        candidates = sorted({(number, key) for key in ordered for number in self._candidates(key)})
        return [(number, key) for number, key in candidates if self._key_of(number) == key]

    def _key_of(self, number: int) -> str:
        shard, row = self._dataset.numbering.find(number)
        return self._rows.index(shard).keys[row]

    def _candidates(self, key: str) -> Iterator[int]:
        """Samples whose keys have this one's hash, in order."""
        while True:
            tables = self._open()
            try:
                for table in tables:
                    yield from table.numbers(key)
            except DataError as error:
                self._drop(error)
            else:
                return

    def _open(self) -> list[KeyTable]:
        if self._tables is None and self._shelf is None and not self._dropped:
            try:
                self._tables = stored_tables(self._dataset.store, self._dataset.manifest)
            except (NotFoundError, AccessError):  # stores that may not be listed refuse what is not there
                pass
            except DataError as error:
                self._drop(error)
        if self._tables is None:
            self._tables = [self._kept()]
        return self._tables

    def _drop(self, error: DataError) -> None:
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
            for shelf in _shelves(self._dataset):
                try:
                    table = shelf.find(manifest) or shelf.make(manifest, self._scan)
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
                _fill(file.fileno(), self._dataset.manifest, self._scan, (), 0)
                return _mapped(file.fileno(), "a temporary file")
        except StorageError:
            raise
        except OSError as error:
            raise no_room(error) from error

    def _scan(self, shard: int) -> ShardIndex:
        return scan_once(self._dataset, shard)
