"""``OpenedDataset``: one dataset: where its bytes lie, near and far, and its manifest."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shardstream.dataset.formats import Selection, formats
from shardstream.dataset.numbering import Numbering
from shardstream.dataset.shard import DatasetReplica, IndexBytes, OpenShard, Replica, Shard, check_index
from shardstream.dataset.shared import SharedBytes
from shardstream.errors import (
    ChangedError,
    DataError,
    FormatError,
    NotFoundError,
    ShardStreamError,
    StorageError,
    UsageError,
)
from shardstream.shards.framing import Tail
from shardstream.shards.heads import MANIFEST_NAME, OldVersion, is_no_data_set, no_data_set, old_version
from shardstream.shards.manifest import Manifest
from shardstream.storage import Location, Request, RetryPolicy, Store, open_store
from shardstream.storage.base.verified import settled
from shardstream.storage.cache import Cache, CachedStore, Identity
from shardstream.storage.cache.manifests import KeptManifest, keep_manifest, kept_manifest
from shardstream.text import in_one_line

logger = logging.getLogger(__name__)

# How long a store may take to say whether the manifest in the cache is still the one, before training goes on with it.
_REVALIDATION = RetryPolicy(deadline=3.0, contact=3.0, stall=3.0)


@dataclass(frozen=True, slots=True)
class DatasetAddress:
    """All that it takes to open a dataset in another process, or on another machine. Hashable; its pickle is small.

    Attributes:
        location: Where the dataset lies.
        version: Which version; ``None`` for the newest.
        replicas: Places that have its shards too, or some of them; asked first, in this order.
        cache: Where blocks that come over a network are kept.
        selection: Of data in another format, which objects are meant and how they are read.
    """

    location: Location
    version: int | None = None
    replicas: tuple[Location, ...] = ()
    cache: Cache | None = None
    selection: Selection = field(default_factory=Selection)

    def open(self) -> OpenedDataset:
        """Open the dataset of ours that lies there, else the one in another format.

        A dataset in another format is indexed now where no catalog of it is found, if that takes less than a minute.

        Raises:
            NotFoundError: There is no dataset.
            DataError: Its manifest is damaged, or data in another format are.
            StorageError: It cannot be read, and the cache has no manifest either.
            UsageError: There is no such version, the folder of the cache holds something else, or data in another
                format have to be indexed first.
        """
        if not self.selection.names and self.selection.source is None:
            try:
                return OpenedDataset(self)
            except NotFoundError as error:
                if not is_no_data_set(error):
                    raise
        external: OpenedDataset = formats().find_dataset(self)
        return external

    def opened(self) -> OpenedDataset:
        """The same, opened once in a process and kept for its next task."""
        return _opened(self)


_opened = lru_cache(maxsize=2)(DatasetAddress.open)


class Differences(NamedTuple):
    """What the checksums say that a format keeps of its objects itself, beside those of the indexes.

    Attributes:
        kinds: Which checksums were compared, such as ``("CRC-32 of members",)``.
        complete: Whether each object has one, there or in its index.
        mismatches: Each object that differs, by name, and where; `NotFoundError` of one that is gone. Objects are read
            as this is iterated, which raises StorageError where the store cannot be read.
    """

    kinds: tuple[str, ...] = ()
    complete: bool = True
    mismatches: Iterable[tuple[str, FormatError | NotFoundError]] = ()


class OpenedDataset:
    """A dataset of ours, and the places its shards are read from, the nearest first. `open_dataset` makes it of a URL.

    Its pickle has addresses only, and a manifest that came over a network in shared memory. A dataset in another format
    is a subclass, which says by the hooks below what differs.

    Attributes:
        location: Where the dataset lies.
        manifest: Its manifest, at the version that was asked for.
        address: What opens the same dataset, at this version, anywhere.
        store: Of `location`, for objects that are not shards.

    Args:
        address: Where the dataset lies, and what else it is read with. Its manifest says what the dataset is, whoever
            else has it. Whatever is published meanwhile, it stays at this version, in all processes.
        manifest: Its manifest, where that is known; default: the one that lies there.

    Raises:
        NotFoundError: There is no dataset of ours.
        DataError: Its manifest is damaged.
        StorageError: It cannot be read, and the cache has no manifest either.
        UsageError: There is no such version, or the folder of the cache holds something else.
    """

    def __init__(self, address: DatasetAddress, manifest: Manifest | _Kept | None = None) -> None:
        self.location, self._cache = address.location, address.cache
        self.store = open_store(self.location)
        self._kept = manifest if isinstance(manifest, _Kept) else None
        if manifest is None:
            manifest = self._find_manifest(address.version)
        self.manifest = manifest.manifest(self.store.url) if isinstance(manifest, _Kept) else manifest
        self.address = replace(address, version=self.manifest.version)
        self._main = self._with_cache()

    def at(self, version: int) -> OpenedDataset:
        """The same data set as it was at a version.

        Raises:
            UsageError: There is no such version.
            StorageError: It cannot be read.
        """
        if version == self.manifest.version:
            return self
        return replace(self.address, version=version).open()

    def _find_manifest(self, version: int | None) -> Manifest:
        if self.store.mapped:
            return Manifest.read(self.store, version=version)
        newest = self._find_newest()
        old = old_version(memoryview(newest.head), version, url=self.store.url)
        if old is None:
            return self._complete(newest, None)
        kept = self._kept_manifest(old.version)
        if kept is not None:
            with suppress(DataError):  # of another data set that was there before
                return self._share(kept.head, kept.table, old)
        head, (_, etag) = self.store.whole(old.head)
        return self._complete(_Found(bytes(head), etag, None), old)

    def _find_newest(self) -> _Found:
        store, kept = self.store, self._kept_manifest(None)
        try:
            patience = store.with_policy(_REVALIDATION) if kept else store
            head, (_, etag) = patience.whole(MANIFEST_NAME)
        except NotFoundError as error:
            raise no_data_set(store.locate(MANIFEST_NAME), error) from error
        except StorageError as error:
            if kept is None or type(error) is not StorageError:
                raise
            logger.warning(
                "%s cannot be reached, its manifest is taken from the cache: %s", in_one_line(store.url), error.what
            )
            return _Found(kept.head, kept.etag, kept)
        return _Found(bytes(head), etag, kept)

    def _complete(self, found: _Found, old: OldVersion | None) -> Manifest:
        """The manifest of a head that was found."""
        if found.kept is not None and found.head == found.kept.head:
            with suppress(DataError):  # the kept table is damaged
                return self._share(found.head, found.kept.table)
        tables: list[SharedBytes] = []

        def fetch_table(name: str) -> memoryview:
            tables.append(SharedBytes(self.store.get(name)))
            return tables[0].view

        url = self.store.url
        manifest = Manifest.parse(memoryview(found.head), fetch_table, url=url, old=old)
        self._kept = _Kept(SharedBytes(found.head), tables[0], old)
        if self._cache is not None:
            table = bytes(tables[0].view)
            keep_manifest(self._cache, url, found.etag, found.head, table, version=old and old.version)
        return manifest

    def _kept_manifest(self, version: int | None) -> KeptManifest | None:
        return None if self._cache is None else kept_manifest(self._cache, self.store.url, version=version)

    def _share(self, head: bytes | memoryview, table: bytes | memoryview, old: OldVersion | None = None) -> Manifest:
        kept = _Kept(SharedBytes(head), SharedBytes(table), old)
        manifest = kept.manifest(self.store.url)
        self._kept = kept
        return manifest

    @property
    def url(self) -> str:
        """Where the data set lies, for messages."""
        return self.manifest.url

    @property
    def over_network(self) -> bool:
        """Whether shards come over a network, or have to be inflated, as far as no replica has them."""
        return not self._main.mapped

    @property
    def cached(self) -> bool:
        """Whether what comes over a network stays in a cache."""
        return self.over_network and self._cache is not None

    # -------------------------------------------------------------------------------------------------- its samples

    @cached_property
    def numbering(self) -> Numbering:
        """Of its samples, in stored order, through its shards."""
        return Numbering(self.manifest.table.samples)

    def locate(self, ids: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Shard and row of samples by their numbers in stored order; negative ones count from the end.

        Args:
            ids: Integers (n,).

        Returns:
            Shards and rows in these: int64 (n,) each.

        Raises:
            UsageError: There is no such sample.
        """
        numbers, total = np.asarray(ids, np.int64), self.manifest.samples
        wrong = (numbers < -total) | (numbers >= total)
        if wrong.any():
            raise UsageError(
                f"there is no sample {numbers[wrong][0]}",
                url=self.url,
                hint=f"the data set has {total:,} samples, numbered from 0",
            )
        return self.numbering.find_all(np.where(numbers < 0, numbers + total, numbers))

    # --------------------------------------------------------------------------------------------------- its shards

    def shard(self, number: int) -> Shard:
        """Where to read a shard: the nearest place that has it.

        Raises:
            StorageError: A replica cannot be asked.
        """
        return next(self._places(number))

    def copies(self, number: int) -> Iterator[tuple[str, Shard]]:
        """Where a shard is besides the data set's own store, in words too: replicas, and a cache that has all of it.

        Raises:
            StorageError: A replica cannot be asked.
        """
        for copy in self._in_replicas(number):
            yield copy.store.locate(copy.name), copy
        own = self._own(number)
        if self._cache is not None and own.store.holds(own.name):
            yield str(self._cache.path), own

    def _places(self, number: int) -> Iterator[Shard]:
        """All places that a shard is read from, the nearest first; the data set's own comes last, asked or not."""
        yield from self._in_replicas(number)
        yield self._own(number)

    def _own(self, number: int) -> Shard:
        return Shard(self._main, self.manifest.shard_name(number), int(self.manifest.table.sizes[number]))

    def _in_replicas(self, number: int) -> Iterator[Shard]:
        name = self.manifest.shard_name(number)
        size, checksum = int(self.manifest.table.sizes[number]), int(self.manifest.table.checksums[number])
        for replica in self._replicas:
            found = replica.find(name, size, checksum)
            if found is not None:
                yield Shard(replica.store, found, size)

    def index_bytes(self, number: int, shard: Shard) -> IndexBytes | None:
        """Where the bytes lie that opening a shard begins with, to be read ahead; ``None``: it is read as a whole.

        Args:
            number: Which shard.
            shard: Where it is read.
        """
        length = min(self.manifest.reader.tail_bytes(self.manifest.index_bytes), shard.size)
        return IndexBytes(shard.store, Request(shard.name, shard.size - length, length), shard.size) if length else None

    def open(
        self, number: int, *, verify: bool = True, coming: tuple[Shard, Callable[[], memoryview]] | None = None
    ) -> OpenShard:
        """A shard with its index. Holds nothing: `OpenShards` keeps those that are used again.

        What a cache holds of it and is damaged is fetched anew; where a replica is damaged, or gone, the next place is
        read.

        Args:
            number: Which.
            verify: Compare the checksum of the index.
            coming: Where it is read and what gives the bytes of `index_bytes`, where these were read ahead.

        Raises:
            DataError: Its index is damaged everywhere, or the shard does not belong to the data set.
            StorageError: It cannot be read.
        """
        shard, tail = coming or (self.shard(number), None)
        try:
            return self._open_at(number, shard, verify, tail)
        except (DataError, NotFoundError, ChangedError) as error:
            found = self.open_elsewhere(number, shard, error, verify=verify)
            if found is None:
                raise
            return found

    def open_elsewhere(
        self, number: int, shard: Shard, error: ShardStreamError, *, verify: bool = True
    ) -> OpenShard | None:
        """A shard at the next place that has it, after what was read at one is damaged; ``None`` if there is none."""
        places = self._places(number) if self.address.replicas else iter(())
        for other in places:
            if other == shard:
                break
        for other in places:
            logger.warning("shard %s is read from %s instead: %s", shard.name, in_one_line(other.store.url), error.what)
            try:
                return self._open_at(number, other, verify)
            except (DataError, NotFoundError) as another:
                error = another
        return None

    def _open_at(
        self, number: int, shard: Shard, verify: bool, tail: Callable[[], memoryview] | None = None
    ) -> OpenShard:
        """Bytes that a cache holds and are damaged, and an object that was replaced, are read once more."""
        try:
            return self._scan(number, shard, verify, tail)
        except ChangedError:
            if not verify:
                raise
            shard.store.renew(shard.name)  # whoever reads it compares it with what it was
        except DataError:
            index = self.index_bytes(number, shard)
            if index is None or index.store.mapped:
                raise
            index.repair()
        return self._scan(number, shard, verify)

    def _scan(self, number: int, shard: Shard, verify: bool, tail: Callable[[], memoryview] | None = None) -> OpenShard:
        manifest, end = self.manifest, self._end(number, shard, tail)
        index = manifest.reader.scan(shard.store, shard.name, index_bytes=manifest.index_bytes, verify=verify, tail=end)
        check_index(index, manifest, number)
        return OpenShard(index, manifest.reader, shard)

    def _end(self, number: int, shard: Shard, tail: Callable[[], memoryview] | None) -> Tail | None:
        """The bytes of a shard that opening it begins with; ``None``: it is read as a whole.

        Args:
            number: Which.
            shard: Where it is read.
            tail: Gives the bytes of `index_bytes`, where these were read ahead.
        """
        if tail is not None:
            data, size = tail(), shard.size
        elif shard.store.mapped:
            data, size = shard.store.get_tail(shard.name, self.manifest.reader.tail_bytes(self.manifest.index_bytes))
        else:
            return None
        return settled(data, mapped=shard.store.mapped)[0], size

    def check_unchanged(self, number: int, opened: OpenShard, *, verify: bool) -> None:
        """Refuse a shard whose file was written to in place since it was verified, unless it still is what it was.

        Permissions, links and ``touch`` change the times of a file, too. So its index is verified again, and its values
        have checksums of their own. If they have none, nothing tells whether they are the same.

        Args:
            number: Which.
            opened: The shard.
            verify: Whether checksums are compared.

        Raises:
            ChangedError: It is not what it was.
        """
        shard, files = opened.shard, self._files(number, opened.shard)
        touched = [(store, path, states) for store, path in files if (states := store.touched(path)) is not None]
        if not touched:
            return
        written = any(before.modified != now.modified for _, _, (before, now) in touched)
        if written and not self._tells_changes(opened, verify=verify):
            raise shard.rewritten()
        try:
            same = self._scan(number, shard, verify=True).index.checksum == opened.index.checksum
        except (DataError, NotFoundError) as error:
            raise shard.rewritten() from error
        if not same:
            raise shard.rewritten()
        for store, path, (_, now) in touched:
            store.accept(path, now)

    def _with_cache(self) -> Store:
        store = self._shown(self.store)
        if self._cache is None or store.mapped:
            return store
        lineage, since = self.manifest.lineage, self._values_since
        cached = CachedStore(store, self._cache, fingerprint=lineage, identify=self._identify, since=since)
        cached.hold()  # or another run might clear it between two epochs
        return cached

    @cached_property
    def _replicas(self) -> list[Replica]:
        replicas = list[Replica]()
        for location in self.address.replicas:
            try:
                replicas.append(self._replica(location))
            except ShardStreamError as error:
                logger.warning("the replica %s is not used: %s", in_one_line(location), error.what)
        return replicas

    def __reduce__(self) -> tuple[Callable[..., OpenedDataset], tuple[Any, ...]]:
        return (self.address.open, ()) if self._kept is None else (OpenedDataset, (self.address, self._kept))

    # ------------------------------------------------------------------- what differs in a dataset of another format

    def prepare(self, workers: int) -> None:
        """Make room in this process, one of so many workers, for what reading ahead needs at hand."""

    def differences(self) -> Differences:
        """Compare the checksums that the format keeps of its objects; of ours, the indexes have all of them.

        Raises:
            StorageError: The store cannot be read.
        """
        return Differences()

    def _shown(self, store: Store) -> Store:
        """A store of the dataset as its shards are read."""
        return store

    def _identify(self, name: str) -> Identity | None:
        """What an object has to be for what a cache holds of it to be right."""
        number, table = self.manifest.number_of(name), self.manifest.table
        return None if number is None else Identity(int(table.sizes[number]), int(table.checksums[number]))

    @property
    def _values_since(self) -> int | None:
        """Where values are objects of their own, when they were found, in ns since 1970."""
        return None

    def _replica(self, location: Location) -> Replica:
        """Another place that has shards of the dataset; ShardStreamError where it has none."""
        return DatasetReplica(location, self.manifest)

    def _files(self, number: int, shard: Shard) -> list[tuple[Store, str]]:
        """The objects that opening a shard reads, each in its store."""
        return [(shard.store, shard.name)]

    def _tells_changes(self, opened: OpenShard, *, verify: bool) -> bool:
        """Whether checksums tell that the values of a shard are others than when it was opened."""
        return verify and opened.has_checksums([*opened.index.columns])


class _Found(NamedTuple):
    """A head, as the store or the cache has it: its bytes, its version in the store, and what the cache holds."""

    head: bytes
    etag: str | None
    kept: KeptManifest | None


class _Kept(NamedTuple):
    """The two objects of a manifest, in memory that all processes share; of an old version, what the newest says."""

    head: SharedBytes
    table: SharedBytes
    old: OldVersion | None

    def manifest(self, url: str) -> Manifest:
        return Manifest.parse(self.head.view, lambda _: self.table.view, url=url, old=self.old)
