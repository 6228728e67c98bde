"""``OpenedDataset``: one data set: where its bytes lie, near and far, and its manifest."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from shardstream.dataset.shared import SharedBytes
from shardstream.errors import DataError, NotFoundError, ShardStreamError, StorageError
from shardstream.shards.heads import MANIFEST_NAME, OldVersion, no_data_set, old_version
from shardstream.shards.manifest import Manifest
from shardstream.storage import Location, RetryPolicy, Store, open_store
from shardstream.storage.cache import Cache, CachedStore, Identity
from shardstream.storage.cache.manifests import KeptManifest, keep_manifest, kept_manifest
from shardstream.text import in_one_line

logger = logging.getLogger(__name__)

# How long a store may take to say whether the manifest in the cache is still the one, before training goes on with it.
_REVALIDATION = RetryPolicy(deadline=3.0, contact=3.0, stall=3.0)


class Shard(NamedTuple):
    """Where the bytes of a shard are read: a store, and the object's name and size there."""

    store: Store
    name: str
    size: int


class OpenedDataset:
    """A data set and the places its shards are read from, the nearest first.

    Its pickle has addresses only, and a manifest that came over a network in shared memory.

    Args:
        location: Where the data set lies. Its manifest says what the data set is, whoever else has it.
        replicas: Places that have its shards too, or some of them; asked first, in this order.
        cache: Where blocks of shards that come over a network are kept.
        version: Which version of a data set that grew; ``None`` for the newest. Whatever is published meanwhile, the
            home stays at this version, in all processes.

    Raises:
        NotFoundError: There is no data set.
        DataError: Its manifest is damaged.
        StorageError: It cannot be read, and the cache has no manifest either.
        UsageError: There is no such version, or the folder of the cache holds something else.
    """

    def __init__(
        self,
        location: Location,
        *,
        replicas: Sequence[Location] = (),
        cache: Cache | None = None,
        version: int | None = None,
    ) -> None:
        self.location = location
        self._places = tuple(replicas)
        self._cache = cache
        self._kept: _Kept | None = None
        self._open()
        self.manifest = self._find_manifest(version)
        self._main = self._with_cache()

    def at(self, version: int) -> OpenedDataset:
        """The same data set as it was at a version.

        Raises:
            UsageError: There is no such version.
            StorageError: It cannot be read.
        """
        if version == self.manifest.version:
            return self
        return OpenedDataset(self.location, replicas=self._places, cache=self._cache, version=version)

    def _open(self) -> None:
        self._store = open_store(self.location)
        self._replicas: list[_Replica] | None = None

    def _find_manifest(self, version: int | None) -> Manifest:
        if self._store.mapped:
            return Manifest.read(self._store, version=version)
        newest = self._find_newest()
        old = old_version(memoryview(newest.head), version, url=self._store.url)
        if old is None:
            return self._complete(newest, None)
        kept = self._kept_manifest(old.version)
        if kept is not None:
            with suppress(DataError):  # of another data set that was there before
                return self._share(kept.head, kept.table, old)
        head, (_, etag) = self._store.whole(old.head)
        return self._complete(_Found(bytes(head), etag, None), old)

    def _find_newest(self) -> _Found:
        store, kept = self._store, self._kept_manifest(None)
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
            tables.append(SharedBytes(self._store.get(name)))
            return tables[0].view

        url = self._store.url
        manifest = Manifest.parse(memoryview(found.head), fetch_table, url=url, old=old)
        self._kept = _Kept(SharedBytes(found.head), tables[0], old)
        if self._cache is not None:
            table = bytes(tables[0].view)
            keep_manifest(self._cache, url, found.etag, found.head, table, version=old and old.version)
        return manifest

    def _kept_manifest(self, version: int | None) -> KeptManifest | None:
        return None if self._cache is None else kept_manifest(self._cache, self._store.url, version=version)

    def _share(self, head: bytes | memoryview, table: bytes | memoryview, old: OldVersion | None = None) -> Manifest:
        kept = _Kept(SharedBytes(head), SharedBytes(table), old)
        manifest = kept.manifest(self._store.url)
        self._kept = kept
        return manifest

    @property
    def url(self) -> str:
        """Where the data set lies, for messages."""
        return self.manifest.url

    @property
    def over_network(self) -> bool:
        """Whether shards come over a network, as far as no replica has them."""
        return not self._store.mapped

    @property
    def cached(self) -> bool:
        """Whether what comes over a network stays in a cache."""
        return self.over_network and self._cache is not None

    def shard(self, number: int) -> Shard:
        """Where to read a shard.

        Raises:
            StorageError: A replica cannot be asked.
        """
        name = self.manifest.shard_name(number)
        size, checksum = int(self.manifest.table.sizes[number]), int(self.manifest.table.checksums[number])
        for replica in self._find_replicas():
            found = replica.find(name, size, checksum)
            if found is not None:
                return Shard(replica.store, found, size)
        return Shard(self._main, name, size)

    def _with_cache(self) -> Store:
        if self._cache is None or self._store.mapped:
            return self._store
        cached = CachedStore(self._store, self._cache, fingerprint=self.manifest.lineage, identify=self._identify)
        cached.hold()  # or another run might clear it between two epochs
        return cached

    def _identify(self, name: str) -> Identity | None:
        number = self.manifest.number_of(name)
        if number is None:
            return None
        table = self.manifest.table
        return Identity(int(table.sizes[number]), int(table.checksums[number]))

    def _find_replicas(self) -> list[_Replica]:
        if self._replicas is None:
            self._replicas = []
            for place in self._places:
                try:
                    self._replicas.append(_Replica(place, self.manifest))
                except ShardStreamError as error:
                    logger.warning("the replica %s is not used: %s", in_one_line(place), error.what)
        return self._replicas

    def __getstate__(self) -> dict[str, Any]:
        return {"location": self.location, "places": self._places, "cache": self._cache} | {
            "kept": self._kept,
            "version": self.manifest.version,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.location, self._places, self._cache = state["location"], state["places"], state["cache"]
        self._kept = state["kept"]
        self._open()
        if self._kept is not None:
            self.manifest = self._kept.manifest(self._store.url)
        else:
            self.manifest = Manifest.read(self._store, version=state["version"])
        self._main = self._with_cache()


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


class _Replica:
    """Another place that has shards of a data set, known by what is in them.

    Args:
        place: Where it is.
        manifest: Of the data set.

    Raises:
        ShardStreamError: There is no data set.
    """

    def __init__(self, place: Location, manifest: Manifest) -> None:
        self.store = open_store(place)
        self._own = Manifest.read(self.store)
        self._same = self._own.fingerprint == manifest.fingerprint
        self._order = None if self._same else np.argsort(self._own.table.checksums, kind="stable")

    def find(self, name: str, size: int, checksum: int) -> str | None:
        """Its name here of the shard that is called ``name`` there; ``None`` if it is not here."""
        if self._order is not None:
            checksums = self._own.table.checksums
            at = int(np.searchsorted(checksums, np.uint64(checksum), sorter=self._order))
            if at == len(checksums) or int(checksums[self._order[at]]) != checksum:
                return None
            name = self._own.shard_name(int(self._order[at]))
        try:
            return name if self.store.size(name) == size else None
        except NotFoundError:
            return None
