"""The folder of a cache: which disk it lies on, and how much that can take."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from shardstream.diagnose import cache as caches
from shardstream.diagnose.doctor.finding import Finding
from shardstream.errors import ShardStreamError
from shardstream.sizes import size
from shardstream.storage.cache.capacity import file_system, in_memory, room

_NETWORK = ("nfs", "cifs", "smb", "lustre", "gpfs", "beegfs", "ceph", "9p", "virtiofs", "fuse", "afs", "glusterfs")
_OF_CONTAINER = ("overlay", "aufs")


@dataclass(frozen=True, slots=True)
class CacheFolder:
    """Where a cache lies.

    Attributes:
        path: The folder that was asked for.
        kind: Its file system, as the kernel calls it.
        room: Bytes that can be written there, a reserve left to others.
        used: Bytes that the cache holds already.
        problem: Why nothing can be written there; empty where it can.
    """

    path: str
    kind: str
    room: int
    used: int = 0
    problem: str = ""


def cache_folder(path: str) -> CacheFolder:
    """Look at a folder that is, or would be, a cache. Nothing is written."""
    there = Path(os.path.abspath(path))
    while not there.exists() and there != there.parent:
        there = there.parent
    kind, problem, left = file_system(str(there)), "", 0
    if not there.is_dir():
        problem = "is not a folder" if there == Path(os.path.abspath(path)) else f"{there} is not a folder"
    elif not os.access(there, os.W_OK | os.X_OK):
        problem = "cannot be written to"
    with suppress(OSError):
        left = room(str(there), memory=in_memory(str(there)))
    return CacheFolder(path, kind, left, _used(path), problem)


def _used(path: str) -> int:
    with suppress(ShardStreamError, OSError):
        return sum(tier.used for tier in caches.status(path).tiers)
    return 0


def cache(found: CacheFolder, data_bytes: int | None = None) -> Finding:
    """Whether a cache would help: a disk of this machine, with room.

    Args:
        found: The folder.
        data_bytes: Bytes of the data set, where it is known.
    """
    fact = f"{found.path} ({found.kind or 'unknown file system'}): {size(found.room)} free"
    other = "give another folder: cache=DIR on a disk of this machine"
    if found.problem:
        return Finding("cache", "fail", f"{found.path}: {found.problem}", other)
    if data_bytes is not None:
        fact += f" for {size(data_bytes)}"
    if found.used:
        fact += f", {size(found.used)} cached"
    if not found.room and (data_bytes is None or found.used < data_bytes):
        fix = f"shardstream cache clear {found.path}" if found.used else f"df -h {found.path}, or {other}"
        return Finding("cache", "fail", f"{fact}: nothing more is cached", fix)
    if found.kind.startswith(_NETWORK):
        return Finding("cache", "warn", f"{fact}; a network file system is no nearer than the store", other)
    if found.kind in _OF_CONTAINER:
        fix = "docker run -v /DISK:/cache, and cache=/cache"
        return Finding("cache", "warn", f"{fact}; a container's own layer is slow, and goes with it", fix)
    if data_bytes is not None and found.room + found.used < data_bytes:
        return Finding("cache", "warn", f"{fact}; the rest streams every epoch", "give a larger disk to cache=DIR")
    return Finding("cache", "ok", fact)
