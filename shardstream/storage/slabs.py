"""``Slabs``: memory to read into, used again once nothing of it is referred to any more.

Fresh memory costs as much as the copy that is made into it: the kernel clears each page, and hands it out at its first
touch. And a heap in which buffers of many sizes come and go holds up to twice what is in use.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import TypeAlias

Take: TypeAlias = Callable[[int], memoryview]
"""Gives writable memory of a size, with any content. It stays the caller's while any view of it lives."""

_STEP = 256 << 10
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of malloc.h


def _references(slabs: list[bytearray]) -> list[int]:
    return [sys.getrefcount(slab) for slab in slabs]


def keep_freed_memory() -> None:
    """Have this process's heap keep what is freed, up to 256 MiB a pool, for a process that is there to read.

    Buffers of 1 MiB come and go with every answer. By default glibc gives their pages back, and takes them again.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # of glibc only
    if mallopt is not None:
        mallopt(_TRIM_THRESHOLD, 256 << 20)
        mallopt(_MMAP_THRESHOLD, 32 << 20)  # the most it takes


_UNUSED = _references([bytearray(1)])[0]  # what counting itself adds differs from one Python to another


class Slabs:
    """Slabs of one thread.

    Args:
        limit: Bytes of slabs that are kept. What is in use may be more.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._slabs: list[bytearray] = []

    @property
    def bytes(self) -> int:
        """Bytes of all slabs, in use or not."""
        return sum(map(len, self._slabs))

    def take(self, size: int) -> memoryview:
        """Memory of ``size`` bytes, see `Take`: an unused slab of which a fifth stays empty at most, or a new one."""
        wanted = -(-size // _STEP) * _STEP
        unused = [count == _UNUSED for count in _references(self._slabs)]
        best: bytearray | None = None
        for slab, free in zip(self._slabs, unused, strict=True):
            if free and wanted <= len(slab) <= wanted + wanted // 4 and (best is None or len(slab) < len(best)):
                best = slab
        if best is None:
            best = bytearray(wanted)
            self._make_room(wanted, unused)
            if self.bytes + wanted <= self._limit:
                self._slabs.append(best)
        return memoryview(best)[:size]

    def _make_room(self, size: int, unused: list[bool]) -> None:
        """Give up unused slabs, oldest first, until one more of ``size`` bytes can be kept."""
        total, kept = self.bytes + size, []
        for slab, free in zip(self._slabs, unused, strict=True):
            if free and total > self._limit:
                total -= len(slab)
            else:
                kept.append(slab)
        self._slabs = kept
