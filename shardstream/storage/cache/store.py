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
from shardstream.storage.base.store import Store, past_the_end
from shardstream.storage.base.wrapper import WrapperStore
from shardstream.storage.cache.blocks import BY_SIZE, BlockFile, Described
from shardstream.storage.cache.fill import Loose, Unwritable, assemble, blocks_of, bring
from shardstream.storage.cache.session import CacheSession
from shardstream.storage.cache.spec import Cache
from shardstream.storage.transfer.loop import run

_STEP = 32  # blocks brought at a time
_SHORT = 1 << 20  # what is read on the loop itself
_WAIT = 600.0  # of one call; what it waits for has shorter deadlines of its own


class Identity(NamedTuple):
    """What an object has to be: its size in bytes, the XXH3-64 of all of it (0: unknown), and else its version."""

    size: int
    checksum: int
    version: str = ""


class CachedStore(WrapperStore):
    """Reads through a cache. It is read only: what an object has to be is known before it is read.

    What the cache has no room for is read from the store, and so is everything where it cannot be written. Pickling
    carries no state; each process opens the cache for itself.

    Args:
        inner: The store.
        cache: The cache.
        fingerprint: Of the data set, the same for its versions: its objects lie apart from those of all others.
        identify: What an object has to be, from the data set's manifest; ``None`` for objects that are not in it: these
            are cached where whoever reads them says their size, by `read`.
    """

    def __init__(
        self, inner: Store, cache: Cache, *, fingerprint: str, identify: Callable[[str], Identity | None]
    ) -> None:
        super().__init__(inner)
        self.cache = cache
        self.fingerprint = fingerprint
        self._identify = identify
        self._session = CacheSession(cache, fingerprint, inner.url)
        self._admitting: dict[str, asyncio.Future[BlockFile | None]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        make = functools.partial(CachedStore, fingerprint=self.fingerprint, identify=self._identify)
        return make, (self.inner, self.cache)

    def hold(self) -> None:
        """Open the cache now, so that nothing clears the data set while this store lives in this process.

        Raises:
            UsageError: The folder of the cache holds something else.
        """
        self._session.open()

    def release(self) -> None:
        self._session.close()

    # ------------------------------------------------------------------------------------------------- what is there

    def holds(self, path: str) -> bool:
        file = self._find(path)
        if file is None or file.complete:
            return file is not None
        # Where half of it was verified, the rest is now: not all of that may ever be read, such as a tar's last blocks.
        rest = np.flatnonzero(~file.verified)
        return len(rest) <= max(1, file.described.blocks // 2) and self._verified(file, rest)

    def holds_ranges(self, path: str, offsets: NDArray[np.int64], lengths: NDArray[np.int64]) -> bool:
        file = self._find(path)
        return file is not None and self._holds(file, offsets, lengths)

    def _holds(self, file: BlockFile, offsets: NDArray[np.int64], lengths: NDArray[np.int64]) -> bool:
        if not len(offsets):
            return True
        if int((offsets + lengths).max()) > file.described.size:
            return False
        used = lengths > 0
        return file.complete or self._verified(file, blocks_of(offsets[used], lengths[used]))

    def copies(self, path: str, offsets: NDArray[np.int64], lengths: NDArray[np.int64]) -> list[memoryview] | None:
        file = self._find(path)
        if file is None or not self._holds(file, offsets, lengths):
            return None
        try:
            found = file.read(offsets.tolist(), lengths.tolist())
        except OSError:
            self._session.drop(file)
            return None
        counters().add("cache_hit_bytes", int(lengths.sum()))
        return found

    def _verified(self, file: BlockFile, blocks: NDArray[np.int64]) -> bool:
        """Whether these blocks are there; what was not verified yet, is."""
        blocks = blocks[~file.verified[blocks]]
        if not len(blocks):
            return True
        blocks = np.unique(blocks)
        try:
            words = file.words(int(blocks[0]), int(blocks[-1]) + 1)
            if not words[blocks - blocks[0]].all():
                return False
            counters().add("cache_repaired", file.verify(blocks))
        except OSError:
            self._session.drop(file)
            return False
        return bool(file.verified[blocks].all())

    def repair(self, path: str, offset: int, length: int) -> bool:
        """Say that the bytes of a range are wrong: a checksum over them, other than the cache's own, fails.

        Its blocks are compared with the map again, and those that fail are cleared; so is, once in a process, a block
        that does not fail, because it may have been spoilt before it was stored.

        Returns:
            Whether a block was cleared, so that reading the range again may help.
        """
        file = self._find(path)
        if file is None or length <= 0:
            return False
        try:
            cleared = file.doubt(*file.span(offset, length))
        except OSError:
            self._session.drop(file)
            return True
        counters().add("cache_repaired", cleared)
        return cleared > 0

    # ------------------------------------------------------------------------------------------------------- reading

    async def read(self, path: str, offset: int, length: int | None, *, size: int | None = None) -> list[memoryview]:
        file = self._session.find(path) or await self._admit(path, size)
        if file is None:
            return await self.inner.read(path, offset, length, size=size)
        if length is None:
            length = file.described.size - offset
        self._check(file, offset, length, size)
        if not length:
            return []
        first, stop = file.span(offset, length)
        try:
            present = bool(file.verified[first:stop].all())
            loose = [] if present else await self._bring(file, first, stop)
            if length < _SHORT:
                found = assemble(file, offset, length, loose)
            else:
                found = await asyncio.to_thread(assemble, file, offset, length, loose)
        except StorageError:
            raise
        except Unwritable:
            return await self.inner.read(path, offset, length, size=file.described.size)
        except OSError:
            self._session.drop(file)
            return await self.inner.read(path, offset, length, size=file.described.size)
        if present:
            counters().add("cache_hit_bytes", length)
        return found

    pieces = Store.pieces  # through the cache

    async def fill(self, path: str) -> int | None:
        file = self._session.find(path) or await self._admit(path)
        if file is None:
            return None
        brought = 0
        try:
            while (absent := np.flatnonzero(file.words(0, file.described.blocks) == 0)).size:
                for first in range(int(absent[0]), file.described.blocks, _STEP):
                    stop = min(first + _STEP, file.described.blocks)
                    missing = first + np.flatnonzero(file.words(first, stop) == 0)
                    if await self._bring(file, first, stop):
                        return None
                    brought += sum(file.length(block) for block in missing.tolist())
        except StorageError:
            raise
        except (Unwritable, OSError):
            return None
        return brought

    async def _bring(self, file: BlockFile, first: int, stop: int) -> list[Loose]:
        loose = await bring(self.inner, file, first, stop)
        self._session.report(file)
        return loose

    async def _admit(self, path: str, size: int | None = None) -> BlockFile | None:
        described = None if self._session.refuses(path) else self._describe(path, size)
        if described is None:
            return None
        task = self._admitting.get(path)
        if task is None or task.get_loop() is not asyncio.get_running_loop():
            task = asyncio.ensure_future(asyncio.to_thread(self._session.admit, described))
            self._admitting[path] = task
            task.add_done_callback(lambda _: self._admitting.pop(path, None))
        return await asyncio.shield(task)

    def _find(self, path: str) -> BlockFile | None:
        """The object's file, if there is one."""
        file = self._session.find(path)
        if file is not None or self._session.refuses(path):
            return file
        described = self._describe(path)
        return None if described is None else self._session.look(described)

    def _describe(self, path: str, size: int | None = None) -> Described | None:
        identity = self._identify(path)
        if identity is None:
            return Described(path, size, 0, BY_SIZE) if size else None
        if not identity.size:
            return None
        return Described(path, *identity)

    def _check(self, file: BlockFile, offset: int, length: int, size: int | None) -> None:
        where = file.described.path
        if size is not None and size != file.described.size:
            raise StorageError(
                f"the object should have {size} bytes, and has {file.described.size}", url=self.locate(where)
            )
        if not 0 <= offset <= offset + length <= file.described.size:
            raise past_the_end(offset, length, file.described.size).at(url=self.locate(where))

    def get(self, path: str, offset: int = 0, length: int | None = None) -> memoryview:
        file = self._find(path)
        described = self._describe(path) if file is None else file.described
        if described is None:
            return self.inner.get(path, offset, length)
        if length is None:
            length = described.size - offset
        if file is not None:
            self._check(file, offset, length, None)
            first, stop = file.span(offset, length)
            if file.verified[first:stop].all():
                try:
                    found = file.read([offset], [length])[0]
                except OSError:
                    self._session.drop(file)
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
