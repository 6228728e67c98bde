"""``take``: memory to read into, used again once nothing of it is referred to any more.

Fresh memory costs more than the copy that is made into it: the kernel clears each page, and hands it out at its first
touch. Batches follow one another, so two or three slabs a thread serve them all.
"""

from __future__ import annotations

import sys
import threading

_STEP = 1 << 20
_MOST = 64 << 20  # bytes a thread keeps


def _references(slabs: list[bytearray]) -> list[int]:
    return [sys.getrefcount(slab) for slab in slabs]


_UNUSED = _references([bytearray(1)])[0]  # what counting itself adds differs from one Python to another


class _Slabs(threading.local):
    def __init__(self) -> None:
        self._slabs: list[bytearray] = []

    def take(self, size: int) -> memoryview:
        unused = [count == _UNUSED for count in _references(self._slabs)]
        for slab, free in zip(self._slabs, unused, strict=True):
            if free and len(slab) >= size:
                return memoryview(slab)[:size]
        slab = bytearray(-(-size // _STEP) * _STEP)
        if sum(map(len, self._slabs)) + len(slab) > _MOST:
            self._slabs = [one for one, free in zip(self._slabs, unused, strict=True) if not free]
        if sum(map(len, self._slabs)) + len(slab) <= _MOST:
            self._slabs.append(slab)
        return memoryview(slab)[:size]


_slabs = _Slabs()


def take(size: int) -> memoryview:
    """Writable memory of ``size`` bytes, with any content. It stays the caller's while any view of it lives."""
    return _slabs.take(size)
