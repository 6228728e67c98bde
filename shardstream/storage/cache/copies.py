"""``CachedBuffers``: ranges of objects that a cache holds, copied out of it when they are used."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shardstream.storage.base.buffers import Buffers, gathered, stacked
from shardstream.storage.base.store import Store

_EMPTY = memoryview(b"")
_SPARSE = 4  # times as many bytes as are wanted may be copied to have them in one piece


class CachedBuffers(Buffers):
    """Everything in the objects of a store behind a cache; what turns out not to be in the cache is fetched.

    So what is planned takes no memory before it is used, and a cache that changes meanwhile does no harm.

    Args:
        store: The store.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def view(self, path: str, offset: int, length: int | None) -> memoryview:
        return self._store.get(path, offset, length) if length != 0 else _EMPTY

    def views(self, path: str, offsets: NDArray[np.int64], lengths: NDArray[np.int64]) -> list[memoryview]:
        found = self._store.copies(path, offsets, lengths)
        return super().views(path, offsets, lengths) if found is None else found

    def gather(self, path: str, offsets: NDArray[np.int64], width: int) -> NDArray[np.uint8]:
        count = len(offsets)
        if not count or not width:
            return np.empty((count, width), np.uint8)
        start, end = int(offsets.min()), int(offsets.max()) + width
        if end - start > _SPARSE * count * width:
            return stacked(self.views(path, offsets, np.full(count, width, np.int64)), width)
        return gathered(self.view(path, start, end - start), offsets - start, width)
