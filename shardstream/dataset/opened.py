"""``OpenedDataset``: one data set: where its bytes lie, near and far, and its manifest."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shardstream.dataset.numbering import Numbering
from shardstream.dataset.replicas import ForeignReplica, Replica
from shardstream.dataset.shard import IndexBytes, OpenShard, Shard, check_index
from shardstream.dataset.shared import SharedBytes
from shardstream.errors import (
    ChangedError,
    DataError,
    NotFoundError,
    ShardStreamError,
    StorageError,
    UsageError,
)
from shardstream.formats.catalog.kept import FoundCatalogue
from shardstream.formats.catalog.make import find_or_make
from shardstream.formats.catalog.plan import Making
from shardstream.formats.catalog.spec import ForeignSpec
from shardstream.formats.scans.rows import told_losses
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
    """All it takes to open a data set in another process, or on another machine. Hashable; its pickle is small.

    Attributes:
        location: Where the data set lies.
        version: Which version; ``None`` for the newest.
        replicas: Places that have its shards too.
        cache: Where blocks that come over a network are kept.
        foreign: Of data of another library, which objects are meant and how they are read.
    """

    location: Location
    version: int | None = None
    replicas: tuple[Location, ...] = ()
    cache: Cache | None = None
    foreign: ForeignSpec = field(default_factory=ForeignSpec)

    def open(self) -> OpenedDataset:
        """The data set; raises what `OpenedDataset` does."""
        return OpenedDataset(
            self.location, replicas=self.replicas, cache=self.cache, version=self.version, foreign=self.foreign
        )

    def opened(self) -> OpenedDataset:
        """The same, opened once in a process and kept for its next task."""
        return _opened(self)


_opened = lru_cache(maxsize=2)(DatasetAddress.open)


class OpenedDataset:
    """A data set and the places its shards are read from, the nearest first. `open_dataset` makes it of a URL.

    Its pickle has addresses only, and a manifest that came over a network in shared memory.

    Attributes:
        location: Where the data set lies.
        manifest: Its manifest, at the version that was asked for.
        address: What opens the same data set, at this version, anywhere.
        store: Of `location`, for objects that are not shards.

    Args:
        location: Where the data set lies. Its manifest says what the data set is, whoever else has it.
        replicas: Places that have its shards too, or some of them; asked first, in this order.
        cache: Where blocks of shards that come over a network are kept.
        version: Which version of a data set that grew; ``None`` for the newest. Whatever is published meanwhile, the
            data set stays at this version, in all processes.
        foreign: Of data of another library, which objects are meant and how they are read; they are indexed now where
            no catalogue of them is found, if that takes less than a minute.

    Raises:
        NotFoundError: There is no data set.
        DataError: Its manifest is damaged, or data of another library are.
        StorageError: It cannot be read, and the cache has no manifest either.
        UsageError: There is no such version, the folder of the cache holds something else, or data of another library
            have to be indexed first.
    """

    def __init__(
        self,
        location: Location,
        *,
        replicas: Sequence[Location] = (),
        cache: Cache | None = None,
        version: int | None = None,
        foreign: ForeignSpec | None = None,
    ) -> None:
        self._load(DatasetAddress(location, version, tuple(replicas), cache, foreign or ForeignSpec()), None)

    def _load(self, address: DatasetAddress, known: _Kept | FoundCatalogue | Manifest | None) -> None:
        self.location, self._cache = address.location, address.cache
        self._foreign = known if isinstance(known, FoundCatalogue) else None
        self._kept = known if isinstance(known, _Kept) else None
        self.store = open_store(self.location)
        if self._foreign is not None:
            self.manifest: Manifest = self._foreign.catalogue
        elif isinstance(known, Manifest):
            self.manifest = known
        else:
            self.manifest = self._find(address) if self._kept is None else self._kept.manifest(self.store.url)
        self.address = replace(address, version=self.manifest.version)
        self._main = self._with_cache()

    @classmethod
    def of_catalogue(cls, address: DatasetAddress, found: FoundCatalogue) -> OpenedDataset:
        """Data of another library whose catalogue is at hand."""
        opened = cls.__new__(cls)
        opened._load(address, found)
        return opened

    @classmethod
    def unpublished(cls, location: Location, manifest: Manifest) -> OpenedDataset:
        """A data set whose shards are there, and whose manifest is not yet. For this process."""
        opened = cls.__new__(cls)
        opened._load(DatasetAddress(location), manifest)
        return opened

    def at(self, version: int) -> OpenedDataset:
        """The same data set as it was at a version.

        Raises:
            UsageError: There is no such version.
            StorageError: It cannot be read.
        """
        if version == self.manifest.version:
            return self
        return replace(self.address, version=version).open()

    def _find(self, address: DatasetAddress) -> Manifest:
        """The manifest of a data set of ours, or the catalogue of another library's."""
        if not address.foreign.names and address.foreign.source is None:
            try:
                return self._find_manifest(address.version)
            except NotFoundError as error:
                if not is_no_data_set(error):
                    raise
        found = find_or_make(address.location, address.foreign, address.cache, Making())
        if address.version not in (None, 1):
            raise UsageError("data of another library have no versions", url=self.store.url, hint="leave version out")
        if text := address.foreign.remembered(found.catalogue):
            logger.info("%s is read with %s, as it was indexed", in_one_line(found.catalogue.url), text)
        for name, lost in found.catalogue.lost.items():
            logger.warning("what is lost of %s is left out: %s", in_one_line(name), in_one_line(told_losses(lost)))
        for text in found.catalogue.warnings:
            logger.warning("values of %s: %s", in_one_line(found.catalogue.url), in_one_line(text))
        self._foreign = found
        return found.catalogue

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
        if self._foreign is not None:
            return self._foreign.index_bytes(number, self._main)
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
        manifest = self.manifest
        where, end = shard.store, None
        if self._foreign is not None:
            if shard.store is self._main:
                self._foreign.check_unchanged(number, self.store)
            place = self._foreign.index_bytes(number, self._main)
            where, tail = place.store, tail or place.get
        try:
            if tail is not None:
                end = tail(), shard.size
            elif where.mapped:
                end = where.get_tail(shard.name, manifest.reader.tail_bytes(manifest.index_bytes))
            if end is not None:
                end = settled(end[0], mapped=where.mapped)[0], end[1]
        except NotFoundError as error:
            raise error if self._foreign is None else self._foreign.removed() from error
        index = manifest.reader.scan(shard.store, shard.name, index_bytes=manifest.index_bytes, verify=verify, tail=end)
        check_index(index, manifest, number)
        return OpenShard(index, manifest.reader, shard)

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
        shard, files = opened.shard, [(opened.shard.store, opened.shard.name)]
        if self._foreign is not None:
            place = self._foreign.index_bytes(number, self._main)
            files.append((place.store, place.request.path))
        touched = [(store, path, states) for store, path in files if (states := store.touched(path)) is not None]
        if not touched:
            return
        told = self._foreign is not None or (verify and opened.has_checksums([*opened.index.columns]))
        if not told and any(before.modified != now.modified for _, _, (before, now) in touched):
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
        store = self.store
        if self._foreign is not None:
            store = self._foreign.shown(store.of_versions(self._foreign.catalogue.version_of))
        if self._cache is None or store.mapped:
            return store
        lineage, since = self.manifest.lineage, self._foreign.values_since if self._foreign else None
        cached = CachedStore(store, self._cache, fingerprint=lineage, identify=self._identify, since=since)
        cached.hold()  # or another run might clear it between two epochs
        return cached

    def _identify(self, name: str) -> Identity | None:
        if self._foreign is not None:
            return self._foreign.identify(name)
        number, table = self.manifest.number_of(name), self.manifest.table
        return None if number is None else Identity(int(table.sizes[number]), int(table.checksums[number]))

    @cached_property
    def _replicas(self) -> list[Replica | ForeignReplica]:
        found, foreign = list[Replica | ForeignReplica](), self._foreign
        for location in self.address.replicas:
            try:
                found.append(ForeignReplica(location, foreign) if foreign else Replica(location, self.manifest))
            except ShardStreamError as error:
                logger.warning("the replica %s is not used: %s", in_one_line(location), error.what)
        return found

    def __getstate__(self) -> tuple[DatasetAddress, _Kept | FoundCatalogue | None]:
        return self.address, self._foreign or self._kept

    def __setstate__(self, state: tuple[DatasetAddress, _Kept | FoundCatalogue | None]) -> None:
        self._load(*state)


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
