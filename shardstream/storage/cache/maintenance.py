"""Looking at a cache from outside: what is in it, whether it is sound, and clearing it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from shardstream.errors import NotFoundError, StorageError
from shardstream.storage.cache.blocks import BLOCK, SUFFIX, BlockFile, Described, describe
from shardstream.storage.cache.capacity import room
from shardstream.storage.cache.folder import Folder
from shardstream.storage.cache.locks import is_locked, lock_file
from shardstream.storage.cache.manifests import forget_manifest
from shardstream.storage.cache.spec import Cache
from shardstream.storage.cache.tier import ABOUT, LEASE, Tier, last_used, tiers_of

_MOST_ABOUT = 1 << 20  # bytes


@dataclass(frozen=True, slots=True)
class CachedSet:
    """A data set in one tier of a cache.

    Attributes:
        url: Where it comes from.
        fingerprint: Which it is.
        objects: Objects that were admitted.
        complete: How many of them are there entirely.
        bytes: Bytes that their files take.
        present: Bytes of the objects that are there.
        in_use: Whether a process has it open.
        last_used: When it was last opened, in seconds since 1970.
    """

    url: str
    fingerprint: str
    objects: int
    complete: int
    bytes: int
    present: int
    in_use: bool
    last_used: float


@dataclass(frozen=True, slots=True)
class TierStatus:
    """One tier of a cache.

    Attributes:
        path: Its folder.
        memory: Whether it lies in memory.
        limit: Bytes it may hold, as the last process that wrote to it had it; ``None`` for no limit.
        used: Bytes that were given out.
        free: Bytes that its file system can still take.
        sets: The data sets in it.
    """

    path: str
    memory: bool
    limit: int | None
    used: int
    free: int
    sets: tuple[CachedSet, ...]


@dataclass(frozen=True, slots=True)
class Damage:
    """Something in a cache that is not what it should be; it will be fetched again.

    Attributes:
        file: The file.
        path: The object; ``None`` where the file does not even say.
        offset: First byte of the object that is damaged; ``None`` where all of it is.
        what: In words.
    """

    file: str
    path: str | None
    offset: int | None
    what: str


OnVerified = Callable[[int, int, int], None]
"""Bytes compared, bytes to compare, damages found."""


def open_tiers(cache: Cache) -> list[Tier]:
    """The tiers of a cache that exist.

    Raises:
        NotFoundError: There is no cache.
        UsageError: The folder is not a cache.
        StorageError: It cannot be read.
    """
    found = []
    for tier in tiers_of(cache):
        try:
            if tier.check():
                found.append(tier)
        except OSError as error:
            raise StorageError.of(error, url=tier.root) from error
    if not found:
        raise NotFoundError("there is no cache here", url=os.fspath(cache.path), hint="training makes one, or `warm`")
    return found


def look(cache: Cache) -> tuple[TierStatus, ...]:
    """What is in a cache, by tier.

    Raises:
        NotFoundError: There is no cache.
        UsageError: The folder is not a cache.
    """
    found = []
    for tier in open_tiers(cache):
        limit, used = None, None
        with suppress(OSError), tier.ledger.open(wait=1.0) as entry:
            limit, used = entry.limit, entry.used
        sets = tuple(_look(folder) for folder in tier.sets())
        held = sum(one.bytes for one in sets) if used is None else used
        free = room(tier.folder.descriptor, memory=tier.memory)
        found.append(TierStatus(tier.root, tier.memory, limit, held, free, sets))
    return tuple(found)


def _look(folder: Folder) -> CachedSet:
    about = _about(folder)
    present = list(_present(folder))
    return CachedSet(
        about.get("url", ""),
        about.get("fingerprint", ""),
        objects=len(present),
        complete=sum(here == described.size for described, here in present),
        bytes=sum(info.st_size for _, info in _files(folder)),
        present=sum(here for _, here in present),
        in_use=_in_use(folder),
        last_used=last_used(folder),
    )


def _present(folder: Folder) -> Iterator[tuple[Described, int]]:
    """The objects in a folder, and the bytes of each that are there."""
    for name, _ in _files(folder):
        with suppress(OSError):
            described = describe(folder, name)
            if described is not None:
                here = BlockFile(folder, name, described, writable=False).words(0, described.blocks) != 0
                lacking = described.blocks * BLOCK - described.size  # in the last block, which is shorter
                yield described, int(here.sum()) * BLOCK - lacking * int(here[-1:].sum())


def present_of(cache: Cache, fingerprint: str, belongs: Callable[[Described], bool]) -> int:
    """Bytes that are there of some objects of a data set.

    Args:
        cache: The cache.
        fingerprint: Of the data set.
        belongs: Which objects.

    Raises:
        NotFoundError: There is no cache.
        UsageError: The folder is not a cache.
    """
    total = 0
    for folder in (folder for tier in open_tiers(cache) for folder in tier.sets()):
        if _about(folder).get("fingerprint") == fingerprint:
            total += sum(here for described, here in _present(folder) if belongs(described))
    return total


def clear(cache: Cache, *, chosen: Callable[[CachedSet], bool]) -> tuple[list[CachedSet], list[CachedSet]]:
    """Remove data sets that are not in use. Nothing but files of caches is ever removed.

    Args:
        cache: The cache.
        chosen: Which data sets.

    Returns:
        The data sets that were removed, and those that are in use and stay.

    Raises:
        NotFoundError: There is no cache.
        UsageError: The folder is not a cache.
        StorageError: It cannot be written.
    """
    cleared: list[CachedSet] = []
    kept: list[CachedSet] = []
    for tier in open_tiers(cache):
        try:
            for folder in tier.sets():
                one = _look(folder)
                if not chosen(one):
                    continue
                with tier.ledger.open() as entry:
                    (cleared if tier.clear(folder, entry) else kept).append(one)
        except OSError as error:
            raise StorageError(f"the cache cannot be cleared: {error.strerror or error}", url=tier.root) from error
    left = {one.url for tier in open_tiers(cache) for folder in tier.sets() for one in [_look(folder)]}
    for url in {one.url for one in cleared} - left:
        forget_manifest(cache, url)
    return cleared, kept


def verify(cache: Cache, *, progress: OnVerified | None = None) -> tuple[int, list[Damage]]:
    """Compare all blocks with the map, and complete objects with what the manifest said of them; clear what fails.

    Args:
        cache: The cache.
        progress: Called after each object.

    Returns:
        Bytes that were compared, and what was found.

    Raises:
        NotFoundError: There is no cache.
        UsageError: The folder is not a cache.
    """
    tiers = open_tiers(cache)
    total = sum(info.st_size for tier in tiers for folder in tier.sets() for _, info in _files(folder))
    done, compared = 0, 0
    damages: list[Damage] = []
    for folder in (folder for tier in tiers for folder in tier.sets()):
        try:
            lease = lock_file(folder, LEASE, shared=True, wait=1.0)
        except OSError:
            lease = None  # it cannot be written, so nobody clears it either
        for name in _names(folder):
            info = folder.stat(name)
            done += 0 if info is None else info.st_size
            with suppress(FileNotFoundError):
                compared += _verify(folder, name, damages)
            if progress is not None:
                progress(done, total, len(damages))
        if lease is not None:
            lease.close()
    return compared, damages


def _verify(folder: Folder, name: str, damages: list[Damage]) -> int:
    file = folder.place(name)
    try:
        described = describe(folder, name)
        if described is None:
            damages.append(Damage(file, None, None, "it is cut, or its head is damaged"))
            return 0
        stored = BlockFile(folder, name, described, writable=True)
        present = np.flatnonzero(stored.words(0, described.blocks))
        stored.verify(present)
        failed = present[~stored.verified[present]]
        starts = [stored.extent(block, block + 1)[0] for block in failed.tolist()]
        damages.extend(Damage(file, described.path, start, "the block is damaged") for start in starts)
        if stored.complete and stored.compare(anew=True):
            damages.append(Damage(file, described.path, None, "the object is not the one in the manifest"))
    except FileNotFoundError:
        raise
    except OSError as error:
        damages.append(Damage(file, None, None, f"it cannot be read: {error.strerror or error}"))
        return 0
    return sum(stored.length(block) for block in present.tolist())


def _names(folder: Folder) -> list[str]:
    """The names of objects' files, also of those that others planted."""
    with suppress(FileNotFoundError):
        return [name for name in folder.names() if name.endswith(SUFFIX)]
    return []


def _files(folder: Folder) -> Iterator[tuple[str, os.stat_result]]:
    return (one for one in folder.files() if one[0].endswith(SUFFIX))


def _about(folder: Folder) -> dict[str, str]:
    try:
        about = json.loads(folder.read(ABOUT, _MOST_ABOUT)[0])
    except (OSError, ValueError, RecursionError):
        return {}
    texts = isinstance(about, dict) and all(isinstance(value, str) for value in about.values())
    return about if texts else {}


def _in_use(folder: Folder) -> bool:
    try:
        return is_locked(folder, LEASE)
    except OSError:
        return False
