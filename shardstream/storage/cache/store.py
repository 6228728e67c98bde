"""``CachedStore``: a store whose objects come from the cache, block by block."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import StorageError
from shardstream.storage.base.buffers import joined
from shardstream.storage.base.counters import counters
from shardstream.storage.base.store import Store
from shardstream.storage.base.wrapper import WrapperStore
from shardstream.storage.cache.blocks import BlockFile, Described
from shardstream.storage.cache.fill import Loose, Unwritable, assemble, blocks_of, bring
from shardstream.storage.cache.session import CacheSession
from shardstream.storage.cache.spec import Cache
from shardstream.storage.transfer.loop import run

_STEP = 32  # blocks brought at a time
_SHORT = 1 << 20  # what is read on the loop itself
_WAIT = 600.0  # of one call; what it waits for has shorter deadlines of its own


class Identity(NamedTuple):
    """What an object has to be: its size in bytes, and the XXH3-64 of all of it."""

    size: int
    checksum: int


class CachedStore(WrapperStore):
    """Reads through a cache. It is read only: what an object has to be is known before it is read.

    What the cache has no room for is read from the store, and so is everything where it cannot be written. Pickling
    carries no state; each process opens the cache for itself.

    Args:
        inner: The store.
        cache: The cache.
        fingerprint: Of the data set, the same for its versions: its objects lie apart from those of all others.
        identify: What an object has to be, from the data set's manifest; ``None`` for objects that are not in it, which
            are not cached.
    """

    def __init__(
        self, inner: Store, cache: Cache, *, fingerprint: str, identify: Callable[[str], Identity | None]
    ) -> None:
        super().__init__(inner)
        self.cache = cache
        self.fingerprint = fingerprint
        self._identify = identify
        self._places = CacheSession(cache, fingerprint, inner.url)
        self._admitting: dict[str, asyncio.Future[BlockFile | None]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        make = functools.partial(CachedStore, fingerprint=self.fingerprint, identify=self._identify)
        return make, (self.inner, self.cache)

    def hold(self) -> None:
        """Open the cache now, so that nothing clears the data set while this store lives in this process.

        Raises:
            UsageError: The folder of the cache holds something else.
        """
        self._places.open()

    def release(self) -> None:
        self._places.close()

    # ------------------------------------------------------------------------------------------------- what is there

    def holds(self, path: str) -> bool:
        held = self._find(path)
        if held is None or held.complete:
            return held is not None
        # Where half of it was verified, the rest is now: not all of that may ever be read, such as a tar's last blocks.
        rest = np.flatnonzero(~held.verified)
        return len(rest) <= max(1, held.described.blocks // 2) and self._verified(held, rest)

    def holds_ranges(self, path: str, offsets: NDArray[np.int64], lengths: NDArray[np.int64]) -> bool:
        held = self._find(path)
        return held is not None and self._holds(held, offsets, lengths)

    def _holds(self, held: BlockFile, offsets: NDArray[np.int64], lengths: NDArray[np.int64]) -> bool:
        if not len(offsets):
            return True
        if int((offsets + lengths).max()) > held.described.size:
            return False
        used = lengths > 0
        return held.complete or self._verified(held, blocks_of(offsets[used], lengths[used]))

    def copies(self, path: str, offsets: NDArray[np.int64], lengths: NDArray[np.int64]) -> list[memoryview] | None:
        held = self._find(path)
        if held is None or not self._holds(held, offsets, lengths):
            return None
        try:
            found = held.read(offsets.tolist(), lengths.tolist())
        except OSError:
            self._places.drop(held)
            return None
        counters().add("cache_hit_bytes", int(lengths.sum()))
        return found

    def _verified(self, held: BlockFile, blocks: NDArray[np.int64]) -> bool:
        """Whether these blocks are there; what was not verified yet, is."""
        blocks = blocks[~held.verified[blocks]]
        if not len(blocks):
            return True
        blocks = np.unique(blocks)
        try:
            words = held.words(int(blocks[0]), int(blocks[-1]) + 1)
            if not words[blocks - blocks[0]].all():
                return False
            counters().add("cache_repaired", held.verify(blocks))
        except OSError:
            self._places.drop(held)
            return False
        return bool(held.verified[blocks].all())

    def repair(self, path: str, offset: int, length: int) -> bool:
        """Say that the bytes of a range are wrong: a checksum over them, other than the cache's own, fails.

        Its blocks are compared with the map again, and those that fail are cleared; so is, once in a process, a block
        that does not fail, because it may have been spoilt before it was stored.

        Returns:
            Whether a block was cleared, so that reading the range again may help.
        """
        held = self._find(path)
        if held is None or length <= 0:
            return False
        try:
            cleared = held.doubt(*held.span(offset, length))
        except OSError:
            self._places.drop(held)
            return True
        counters().add("cache_repaired", cleared)
        return cleared > 0

    # ------------------------------------------------------------------------------------------------------- reading

    async def read(self, path: str, offset: int, length: int, *, size: int | None = None) -> list[memoryview]:
        held = self._places.find(path) or await self._admit(path)
        if held is None:
            return await self.inner.read(path, offset, length, size=size)
        self._check(held, offset, length, size)
        if not length:
            return []
        first, stop = held.span(offset, length)
        try:
            present = bool(held.verified[first:stop].all())
            loose = [] if present else await self._bring(held, first, stop)
            if length < _SHORT:
                found = assemble(held, offset, length, loose)
            else:
                found = await asyncio.to_thread(assemble, held, offset, length, loose)
        except StorageError:
            raise
        except Unwritable:
            return await self.inner.read(path, offset, length, size=held.described.size)
        except OSError:
            self._places.drop(held)
            return await self.inner.read(path, offset, length, size=held.described.size)
        if present:
            counters().add("cache_hit_bytes", length)
        return found

    pieces = Store.pieces  # through the cache

    async def fill(self, path: str) -> int | None:
        held = self._places.find(path) or await self._admit(path)
        if held is None:
            return None
        brought = 0
        try:
            while (absent := np.flatnonzero(held.words(0, held.described.blocks) == 0)).size:
                for first in range(int(absent[0]), held.described.blocks, _STEP):
                    stop = min(first + _STEP, held.described.blocks)
                    missing = first + np.flatnonzero(held.words(first, stop) == 0)
                    if await self._bring(held, first, stop):
                        return None
                    brought += sum(held.length(block) for block in missing.tolist())
        except StorageError:
            raise
        except (Unwritable, OSError):
            return None
        return brought

    async def _bring(self, held: BlockFile, first: int, stop: int) -> list[Loose]:
        loose = await bring(self.inner, held, first, stop)
        if loose:
            self._places.failed(held)
        if held.mismatched:
            self._places.mismatched(held)
        return loose

    async def _admit(self, path: str) -> BlockFile | None:
        if self._places.refuses(path):
            return None
        task = self._admitting.get(path)
        if task is None or task.get_loop() is not asyncio.get_running_loop():
            task = asyncio.ensure_future(asyncio.to_thread(self._admit_now, path))
            self._admitting[path] = task
            task.add_done_callback(lambda _: self._admitting.pop(path, None))
        return await asyncio.shield(task)

    def _admit_now(self, path: str) -> BlockFile | None:
        described = self._describe(path)
        return None if described is None else self._places.admit(described)

    def _find(self, path: str) -> BlockFile | None:
        """The object's file, if there is one."""
        held = self._places.find(path)
        if held is not None or self._places.refuses(path):
            return held
        described = self._describe(path)
        return None if described is None else self._places.look(described)

    def _describe(self, path: str) -> Described | None:
        identity = self._identify(path)
        if identity is None or not identity.size:
            return None
        return Described(path, identity.size, identity.checksum, "")

    def _check(self, held: BlockFile, offset: int, length: int, size: int | None) -> None:
        where = held.described.path
        if size is not None and size != held.described.size:
            raise StorageError(
                f"the object should have {size} bytes, and has {held.described.size}", url=self.locate(where)
            )
        if not 0 <= offset <= offset + length <= held.described.size:
            raise StorageError(
                f"bytes [{offset}, {offset + length}) reach past the end of an object of {held.described.size} bytes",
                url=self.locate(where),
                offset=offset,
                hint="it is truncated, or was replaced while in use: `shardstream verify` finds out",
            )

    def get(self, path: str, offset: int = 0, length: int | None = None) -> memoryview:
        held = self._find(path)
        described = self._describe(path) if held is None else held.described
        if described is None:
            return self.inner.get(path, offset, length)
        if length is None:
            length = described.size - offset
        if held is not None:
            self._check(held, offset, length, None)
            first, stop = held.span(offset, length)
            if held.verified[first:stop].all():
                try:
                    found = held.read([offset], [length])[0]
                except OSError:
                    self._places.drop(held)
                else:
                    counters().add("cache_hit_bytes", length)
                    return found
        what = f"bytes {offset} to {offset + length} of {self.locate(path)}"
        return joined(run(lambda: self.read(path, offset, length, size=described.size), wait=_WAIT, what=what))

    def get_tail(self, path: str, length: int) -> tuple[memoryview, int]:
        described = self._describe(path)
        if described is None:
            return self.inner.get_tail(path, length)
        length = min(max(length, 0), described.size)
        return self.get(path, described.size - length, length), described.size

    def size(self, path: str) -> int:
        described = self._describe(path)
        return self.inner.size(path) if described is None else described.size

    def exists(self, path: str) -> bool:
        return self.holds(path) or self.inner.exists(path)

    # ----------------------------------------------------------------------------------------------------- read only

    create, delete, put, copy, move = Store.create, Store.delete, Store.put, Store.copy, Store.move

    def sweep(self) -> None:
        raise self._read_only("")
