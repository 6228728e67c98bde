"""A local folder read as if over a network: in pieces, side by side, counted, and damaged on demand."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import shardstream as ss
from shardstream.errors import StorageError
from shardstream.storage import AsyncStore, ObjectMeta, ObjectWriter
from shardstream.storage.local.store import LocalStore


class FarStore(AsyncStore):
    """Every read is a request that is counted, takes a turn of the loop, and comes in several pieces.

    Attributes:
        requests: What was read: path, offset and length.
        bytes: Bytes that were read.
        damage: Paths whose next read comes with a flipped byte.
        gone: Paths that cannot be read.
    """

    def __init__(self, folder: Path, pieces: int = 3) -> None:
        self._local = LocalStore(folder)
        self._pieces = pieces
        self.url = self._local.url
        self.requests: list[tuple[str, int, int]] = []
        self.bytes = 0
        self.most = 0
        self._now = 0
        self.damage: set[str] = set()
        self.gone: set[str] = set()

    async def read(self, path: str, offset: int, length: int, *, size: int | None = None) -> list[memoryview]:
        self.requests.append((path, offset, length))
        self.bytes += length
        self._now += 1
        self.most = max(self.most, self._now)
        await asyncio.sleep(0)
        self._now -= 1
        if path in self.gone:
            raise StorageError("the line is cut", url=self.locate(path))
        if size is not None and size != self._local.size(path):
            raise StorageError("another size", url=self.locate(path))
        data = bytearray(self._local.get(path, offset, length))
        if path in self.damage and data:
            self.damage.discard(path)
            data[len(data) // 2] ^= 255
        view = memoryview(bytes(data))
        cuts = [length * number // self._pieces for number in range(self._pieces + 1)]
        return [view[first:last] for first, last in pairwise(cuts) if last > first]

    def get(self, path: str, offset: int = 0, length: int | None = None) -> memoryview:
        return self._local.get(path, offset, length)

    def get_tail(self, path: str, length: int) -> tuple[memoryview, int]:
        self.requests.append((path, -length, length))
        return self._local.get_tail(path, length)

    def size(self, path: str) -> int:
        return self._local.size(path)

    def exists(self, path: str) -> bool:
        return self._local.exists(path)

    def list(self, prefix: str = "") -> Iterator[ObjectMeta]:
        return self._local.list(prefix)

    def create(self, path: str) -> ObjectWriter:
        return self._local.create(path)

    def delete(self, path: str) -> None:
        self._local.delete(path)

    def move(self, path: str, target: str) -> None:
        self._local.move(path, target)

    def sweep(self) -> None:
        self._local.sweep()


def from_afar(dataset: ss.ShardDataset) -> FarStore:
    """Have a local data set read through a `FarStore` from now on."""
    (home,) = dataset._source._homes
    store = FarStore(Path(home.location.url))
    home._store = home._main = store
    return store
