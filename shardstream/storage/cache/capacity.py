"""How much a folder can still take: its file system, and for one in memory what the container may use.

Containers give ``/dev/shm`` 64 MB, count what lies there as memory, and kill whoever exceeds either; so it is looked at
before anything is written.
"""

from __future__ import annotations

import os
from pathlib import Path

from shardstream.cgroups import ROOT, own_groups

_RESERVED = 1 << 30  # what is left to others on a disk, for a full system disk breaks more than a cache
RESERVED_MEMORY = 4 << 30  # the same in memory, where the batches of data loaders lie too
_TMPFS_MAGIC = ("tmpfs", "ramfs")


def room(folder: str | int, *, memory: bool, groups: Path = ROOT) -> int:
    """Bytes that a folder can take now.

    A reserve stays free: 5 % of the file system, 1 GiB at most; in memory 25 %, 4 GiB at most.

    Args:
        folder: An existing folder, or the descriptor of one.
        memory: Whether it lies in memory.
        groups: Where the limits of containers are found.

    Raises:
        OSError: It cannot be looked at.
    """
    found = os.statvfs(folder)
    total = found.f_blocks * found.f_frsize
    reserve = min(total // 4, RESERVED_MEMORY) if memory else min(total // 20, _RESERVED)
    free = found.f_bavail * found.f_frsize
    if memory and (left := memory_left(groups)) is not None:
        free = min(free, left)
    return max(0, free - reserve)


def memory_left(groups: Path = ROOT) -> int | None:
    """Bytes of memory that this process's control groups leave; ``None`` where none limits it.

    The kernel's file cache does not count as used: it gives way.
    """
    lefts = [
        left
        for limit, usage in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
        for group in own_groups("memory", groups)
        if (left := _left(group, limit, usage)) is not None
    ]
    return min(lefts, default=None)


def _left(group: Path, limit_name: str, usage_name: str) -> int | None:
    limit, usage = _number(group / limit_name), _number(group / usage_name)
    if limit is None or usage is None or limit >= 1 << 60:  # version 1 says "none" by a huge number
        return None
    gives_way = 0
    try:
        for line in (group / "memory.stat").read_text().splitlines():
            name, _, value = line.partition(" ")
            if name in ("inactive_file", "active_file"):
                gives_way += int(value)
    except (OSError, ValueError):
        pass
    return max(0, limit - max(0, usage - gives_way))


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # no such file, or "max"
        return None


def in_memory(folder: str) -> bool:
    """Whether a folder lies on a file system in memory."""
    return file_system(folder) in _TMPFS_MAGIC


def file_system(folder: str) -> str:
    """The kind of file system that a folder lies on, as the kernel calls it, such as ``"ext4"``; empty if unknown."""
    folder = os.path.realpath(folder)
    best, kind = "", ""
    try:
        with open("/proc/self/mounts") as mounts:
            for line in mounts:
                _, point, filesystem, *_ = line.split()
                point = point.encode().decode("unicode_escape")
                if (folder == point or folder.startswith(point.rstrip("/") + "/")) and len(point) >= len(best):
                    best, kind = point, filesystem
    except OSError:
        return ""
    return kind
