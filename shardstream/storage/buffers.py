"""What was read, addressed by object and byte range, so that readers need not know how it came."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import StorageError
from shardstream.storage.base import Request, Store


class Buffers(ABC):
    """Byte ranges of objects that are at hand."""

    @abstractmethod
    def view(self, path: str, offset: int, length: int | None) -> memoryview:
        """The bytes of one range, without copying; ``None`` for up to the end of the object."""

    def views(self, path: str, extents: Sequence[tuple[int, int]]) -> list[memoryview]:
        """The bytes of many (offset, length) ranges of one object, without copying."""
        return [self.view(path, offset, length) for offset, length in extents]

    @abstractmethod
    def gather(self, path: str, offsets: NDArray[np.int64], width: int) -> NDArray[np.void]:
        """``width`` bytes from each offset as an array of ``V{width}`` of shape (n,), copied in one step."""


class MappedBuffers(Buffers):
    """Everything in a store that maps its objects: nothing is read before it is used."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def view(self, path: str, offset: int, length: int | None) -> memoryview:
        return self._store.get(path, offset, length)

    def views(self, path: str, extents: Sequence[tuple[int, int]]) -> list[memoryview]:
        whole = self._store.get(path)
        size = len(whole)
        if any(offset + length > size for offset, length in extents):
            return super().views(path, extents)  # raises with the offset
        return [whole[offset : offset + length] for offset, length in extents]

    def gather(self, path: str, offsets: NDArray[np.int64], width: int) -> NDArray[np.void]:
        if not len(offsets) or not width:
            return np.empty(len(offsets), f"V{width}")
        start = int(offsets.min())
        span = self._store.get(path, start, int(offsets.max()) + width - start)
        # One element begins at every byte, so any set of offsets is one fancy index.
        elements = np.ndarray(len(span) - width + 1, f"V{width}", span, strides=(1,))
        return elements[offsets - start]


class FetchedBuffers(Buffers):
    """Ranges that were fetched beforehand; asking for anything else is an error.

    Args:
        parts: The requests and what came of them.
    """

    def __init__(self, parts: Iterable[tuple[Request, memoryview]]) -> None:
        self._parts: dict[str, list[tuple[int, memoryview]]] = {}
        for request, data in parts:
            self._parts.setdefault(request.path, []).append((request.offset, data))
        for ranges in self._parts.values():
            ranges.sort(key=lambda part: part[0])
        self._starts = {path: [start for start, _ in ranges] for path, ranges in self._parts.items()}

    def view(self, path: str, offset: int, length: int | None) -> memoryview:
        ranges = self._parts.get(path, [])
        found = bisect_right(self._starts.get(path, []), offset) - 1
        if found >= 0:
            start, data = ranges[found]
            end = len(data) if length is None else offset - start + length
            if end <= len(data):
                return data[offset - start : end]
        raise StorageError(f"{length} bytes were used that had not been planned", url=path, offset=offset)

    def gather(self, path: str, offsets: NDArray[np.int64], width: int) -> NDArray[np.void]:
        out = np.empty(len(offsets), f"V{width}")
        for i, offset in enumerate(offsets.tolist()):
            out[i : i + 1] = np.frombuffer(self.view(path, offset, width), f"V{width}")
        return out


def fetch(store: Store, plan: Callable[[], Iterable[Request]]) -> Buffers:
    """The buffers for a plan: a mapped store needs none, any other is asked for each range of it."""
    if store.mapped:
        return MappedBuffers(store)
    return FetchedBuffers((request, store.get(*request)) for request in plan())
