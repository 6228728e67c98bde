"""The cache of a machine: what is in it, filling it ahead of training, comparing and clearing it."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from shardstream.dataset.opened import OpenedDataset
from shardstream.dataset.opening import open_dataset
from shardstream.errors import DataError, StorageError, UsageError
from shardstream.options import takes_flat
from shardstream.order import OrderParameters, epoch_line
from shardstream.progress import OnProgress, ProgressEvent, ignore
from shardstream.shards.manifest import Manifest
from shardstream.storage import PathOrUrl, Store, locate
from shardstream.storage.base.location import flat_transport
from shardstream.storage.cache import Cache, maintenance
from shardstream.storage.cache.blocks import Described
from shardstream.storage.cache.maintenance import CachedSet, Damage, TierStatus
from shardstream.storage.cache.manifests import KeptManifest, kept_manifests
from shardstream.storage.transfer import loop

_AT_ONCE = 4  # objects; each is fetched by several requests
_WAIT = 600.0


@dataclass(frozen=True, slots=True)
class KnownSet:
    """What a kept manifest says of a data set.

    Attributes:
        url: Where it is.
        fingerprint: Which it is: that of its oldest version.
        shards: Number of its shards.
        bytes: Bytes of them.
        offline: Whether training can do without the store: all shards are in the cache.
    """

    url: str
    fingerprint: str
    shards: int
    bytes: int
    offline: bool


@dataclass(frozen=True, slots=True)
class CacheStatus:
    """What is in a cache.

    Attributes:
        path: Its folder.
        tiers: Its tiers, the one that is filled first first.
        known: Data sets of which it keeps the manifest.
    """

    path: str
    tiers: tuple[TierStatus, ...]
    known: tuple[KnownSet, ...]


def status(cache: str | os.PathLike[str] | Cache) -> CacheStatus:
    """What is in a cache.

    Args:
        cache: Its folder; a `Cache`, where it has memory too.

    Raises:
        NotFoundError: There is no cache.
        UsageError: The folder is not a cache.

    Example:
        >>> from shardstream.storage.cache.manifests import keep_manifest
        >>> keep_manifest(Cache("cache"), "s3://bucket/photos", None, b"{}", b"")  # training makes one
        True
        >>> status("cache").tiers[0].used
        0
    """
    where = Cache.of(cache)
    tiers = maintenance.look(where)
    known = []
    for kept in kept_manifests(where):
        with suppress(DataError):  # written by a newer version
            known.append(_known(kept, where))
    return CacheStatus(str(where.path), tiers, tuple(known))


def _known(kept: KeptManifest, cache: Cache) -> KnownSet:
    manifest = Manifest.parse(memoryview(kept.head), lambda _: memoryview(kept.table), url=kept.url)
    checksums = manifest.table.checksums

    def belongs(described: Described) -> bool:  # objects of other versions lie beside them
        number = manifest.number_of(described.path)
        return number is not None and int(checksums[number]) == described.checksum

    present = maintenance.present_of(cache, manifest.lineage, belongs)
    return KnownSet(kept.url, manifest.lineage, manifest.shards, manifest.bytes, present >= manifest.bytes)


@dataclass(frozen=True, slots=True)
class ClearReport:
    """What `clear` did.

    Attributes:
        cleared: Data sets that were removed.
        in_use: Data sets that stay, since a process has them open.
    """

    cleared: tuple[CachedSet, ...]
    in_use: tuple[CachedSet, ...]


def clear(cache: str | os.PathLike[str] | Cache, *, only: str | None = None) -> ClearReport:
    """Remove data sets from a cache, except those in use.

    Args:
        cache: Its folder; a `Cache`, where it has memory too.
        only: URL or fingerprint of the only data set to remove; default: all.

    Raises:
        NotFoundError: There is no cache, or not this data set in it.
        UsageError: The folder is not a cache.
        StorageError: It cannot be written.
    """
    where = Cache.of(cache)
    wanted = None if only is None else only.rstrip("/")
    cleared, in_use = maintenance.clear(
        where, chosen=lambda one: wanted in (None, one.url.rstrip("/"), one.fingerprint)
    )
    if only is not None and not cleared and not in_use:
        raise UsageError("this data set is not in the cache", url=only, hint="`shardstream cache status` lists them")
    return ClearReport(tuple(cleared), tuple(in_use))


@dataclass(frozen=True, slots=True)
class VerifyCacheReport:
    """What `verify_cache` found.

    Attributes:
        path: Folder of the cache.
        bytes: Bytes that were compared.
        damages: What was wrong. It was cleared, and will be fetched again.
        seconds: Time taken.
    """

    path: str
    bytes: int
    damages: tuple[Damage, ...]
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether nothing was wrong."""
        return not self.damages


def verify_cache(cache: str | os.PathLike[str] | Cache, *, progress: OnProgress | None = None) -> VerifyCacheReport:
    """Compare all that is in a cache with its checksums, and complete objects with their data set's manifest.

    Args:
        cache: Its folder; a `Cache`, where it has memory too.
        progress: Called with a `ProgressEvent` after each object.

    Raises:
        NotFoundError: There is no cache.
        UsageError: The folder is not a cache.
    """
    started = time.monotonic()
    where, tell = Cache.of(cache), ignore if progress is None else progress

    def compared_so_far(done: int, total: int, damages: int) -> None:
        tell(ProgressEvent("verify", done, total, "bytes", {"damages": damages}))

    compared, damages = maintenance.verify(where, progress=compared_so_far)
    return VerifyCacheReport(str(where.path), compared, tuple(damages), time.monotonic() - started)


@dataclass(frozen=True, slots=True)
class WarmReport:
    """What `warm` did.

    Attributes:
        url: The data set.
        shards: Shards that are in the cache now.
        total_shards: Shards that this machine was to have.
        bytes: Bytes of the shards in the cache.
        fetched: Bytes that were not there before.
        full: Whether the cache had no room for the rest.
        seconds: Time taken.
    """

    url: str
    shards: int
    total_shards: int
    bytes: int
    fetched: int
    full: bool
    seconds: float


@takes_flat(flat_transport("url"))
def warm(
    url: PathOrUrl,
    cache: str | os.PathLike[str] | Cache,
    *,
    node: tuple[int, int] | None = None,
    seed: int = 0,
    storage_options: Mapping[str, Any] | None = None,
    progress: OnProgress | None = None,
) -> WarmReport:
    """Bring a data set into the cache ahead of training, or the part of it that one node will read.

    Args:
        url: The data set.
        cache: Folder of the cache, or a `Cache`; the same as for training.
        node: Number of this node and of nodes, where each reads the same part of the data set in every epoch
            (``OrderOptions(affinity="node")``, the default with a cache). Default: the whole data set.
        seed: Seed of the training, on which it depends who reads what.
        storage_options: Credentials and settings of the store by name.
        progress: Called with a `ProgressEvent` after each shard.

    Raises:
        UsageError: The data set is local, or its values are files of their own, or the node's number is none, or the
            cache's folder holds something else.
        NotFoundError: There is no data set, or a shard is missing.
        StorageError: Fetching failed for good.
    """
    started = time.monotonic()
    location = locate(url, storage_options=storage_options)
    if location.local:
        raise UsageError("a local data set needs no cache", url=location.url, hint="read it where it is")
    if node is not None and not 0 <= node[0] < node[1]:
        raise UsageError(f"there is no node {node[0]} of {node[1]}", hint="nodes count from 0: 0/4, 1/4, 2/4, 3/4")
    dataset = open_dataset(url, cache=cache, storage_options=storage_options)
    if dataset.manifest.reader.whole_objects:
        raise UsageError(
            "each value of this data set is a file of its own, and only whole shards can be brought ahead",
            url=location.url,
            hint="train with cache=: the first epoch brings them",
        )
    shards = _share(dataset.manifest, node, seed)
    sizes = dataset.manifest.table.sizes[shards].astype(np.int64)
    work = _Warming(dataset, shards.tolist(), sizes.tolist(), progress)
    work.run()
    return WarmReport(
        dataset.url, work.shards, len(shards), work.bytes, work.fetched, work.full, time.monotonic() - started
    )


def _share(manifest: Manifest, node: tuple[int, int] | None, seed: int) -> Any:
    """Numbers of the shards that a node reads: all that its group of the line touches."""
    if node is None:
        return np.arange(manifest.shards)
    number, nodes = node
    counts = manifest.table.samples.astype(np.int64)
    one_lane_each = OrderParameters(lanes=nodes, chunk=1, window=1, ranks=nodes, groups=nodes)
    line = epoch_line(counts, one_lane_each, seed=seed, epoch=0)
    begin, end = (np.array([at * line.samples // nodes]) for at in (number, number + 1))
    found, position = [], begin
    while position < end:
        shard, row, _, last = line.find_between(position, begin, end)
        found.append(int(shard[0]))
        position = position + last - row
    return np.unique(np.array(found, np.int64))


class _Warming:
    """Shards being brought, a few at once, in order."""

    def __init__(
        self, dataset: OpenedDataset, shards: list[int], sizes: list[int], progress: OnProgress | None
    ) -> None:
        self._dataset = dataset
        self._left = deque(zip(shards, sizes, strict=True))
        self._tell = ignore if progress is None else progress
        self._totals = len(shards), sum(sizes)
        self._stores: set[Store] = set()
        self.shards = self.bytes = self.fetched = 0
        self.full = False

    def run(self) -> None:
        running: dict[Future[int | None], int] = {}
        try:
            while self._left or running:
                while self._left and len(running) < _AT_ONCE and not self.full:
                    shard, size = self._left.popleft()
                    running[loop.submit(partial(self._fill, shard))] = size
                if not running:
                    break
                arrived = wait(running, timeout=_WAIT, return_when=FIRST_COMPLETED).done
                if not arrived:
                    raise StorageError(f"no shard arrived within {_WAIT:g} s", url=self._dataset.url)
                for future in arrived:
                    self._count(future.result(), running.pop(future))
        finally:
            for future in running:
                future.cancel()
            for store in self._stores:
                store.release()

    async def _fill(self, number: int) -> int | None:
        shard = self._dataset.shard(number)
        self._stores.add(shard.store)
        return await shard.store.fill(shard.name)

    def _count(self, fetched: int | None, size: int) -> None:
        if fetched is None:
            self.full = True
            return
        self.shards += 1
        self.bytes += size
        self.fetched += fetched
        detail = {"shards": self.shards, "total_shards": self._totals[0], "fetched": self.fetched}
        detail["kept"] = self.bytes - self.fetched
        self._tell(ProgressEvent("warm", self.bytes, self._totals[1], "bytes", detail))
