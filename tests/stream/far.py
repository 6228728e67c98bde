"""A local folder read as if over a network: in pieces, side by side, counted, and damaged on demand."""

from __future__ import annotations

import asyncio
import weakref
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import numpy as np

import shardstream as ss
from shardstream.errors import StorageError
from shardstream.storage import WrapperStore
from shardstream.storage.local.store import LocalStore
from tests.grouped import grouped


class FarStore(WrapperStore):
    """Every read is a request that is counted, takes a turn of the loop, and comes in several pieces.

    Attributes:
        requests: What was read: path, offset and length.
        bytes: Bytes that were read.
        on_the_way: Reads that are on their way.
        most: The most of these at once.
        held: Of each read that is on its way, or of which anybody holds the bytes, its length by its number.
        most_held: The most of these bytes at a time.
        delay: Seconds that each read takes.
        damage: Paths whose next read comes with a flipped byte.
        gone: Paths that cannot be read.
    """

    def __init__(self, folder: Path, pieces: int = 3) -> None:
        super().__init__(LocalStore(folder))
        self.mapped = False
        self._pieces = pieces
        self.requests: list[tuple[str, int, int]] = []
        self.bytes = 0
        self.most = 0
        self.held: dict[int, int] = {}
        self.most_held = 0
        self.on_the_way = 0
        self._numbers = count()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.delay = 0.0
        self.damage: set[str] = set()
        self.gone: set[str] = set()

    async def read(self, path: str, offset: int, length: int | None, *, size: int | None = None) -> list[memoryview]:
        if length is None:
            length = self.inner.size(path) - offset
        self._loop = asyncio.get_running_loop()
        self.requests.append((path, offset, length))
        self.bytes += length
        number = next(self._numbers)
        data = np.empty(length, np.uint8)
        self.held[number] = length
        weakref.finalize(data, self.held.pop, number).atexit = False
        self.most_held = max(self.most_held, self.bytes_held)
        self.on_the_way += 1
        self.most = max(self.most, self.on_the_way)
        try:
            await asyncio.sleep(self.delay)
        finally:
            self.on_the_way -= 1
        if path in self.gone:
            raise StorageError("the line is cut", url=self.locate(path))
        if size is not None and size != self.inner.size(path):
            raise StorageError("another size", url=self.locate(path))
        data[:] = np.frombuffer(self.inner.get(path, offset, length), np.uint8)
        if path in self.damage and length:
            self.damage.discard(path)
            data[length // 2] ^= 255
        view = memoryview(data).toreadonly()
        cuts = [length * number // self._pieces for number in range(self._pieces + 1)]
        return [view[first:last] for first, last in pairwise(cuts) if last > first]

    @property
    def bytes_held(self) -> int:
        """How many these are."""
        return sum(list(self.held.values()))

    def settle(self) -> None:
        """Wait until nothing is on its way, and nothing waits for its turn."""
        assert self._loop is not None
        asyncio.run_coroutine_threadsafe(self._settle(), self._loop).result(timeout=60)

    async def _settle(self) -> None:
        quiet, seen = 0, 0
        while quiet < 10:  # turns of the loop: a read begins one or two after another has ended
            await asyncio.sleep(0)
            quiet = 0 if self.on_the_way or seen != len(self.requests) else quiet + 1
            seen = len(self.requests)

    def get_tail(self, path: str, length: int) -> tuple[memoryview, int]:
        self.requests.append((path, -length, length))
        return self.inner.get_tail(path, length)


def from_afar(folder: Path, **arguments: Any) -> tuple[ss.ShardDataset, FarStore]:
    """The data set in a local folder, read through a `FarStore`."""
    store = FarStore(folder)
    return ss.ShardDataset(store, **grouped(arguments)), store
