"""``CachedStore``: a store whose objects come from the cache, block by block."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import StorageError
from shardstream.storage.base.buffers import joined
from shardstream.storage.base.counters import counters
from shardstream.storage.base.held import HeldObject, can_copy
from shardstream.storage.base.no_ranges import NoRangesError
from shardstream.storage.base.store import Store, past_the_end
from shardstream.storage.base.wrapper import WrapperStore
from shardstream.storage.cache.blocks import BY_SIZE, BlockFile, Described
from shardstream.storage.cache.fill import Loose, Unwritable, assemble, blocks_of, bring
from shardstream.storage.cache.session import CacheSession
from shardstream.storage.cache.spec import Cache
from shardstream.storage.cache.whole_objects import bring_whole
from shardstream.storage.transfer.loop import run

T = TypeVar("T")

_STEP = 32  # blocks brought at a time
_SHORT = 1 << 20  # what is read on the loop itself
_WAIT = 600.0  # of one call; what it waits for has shorter deadlines of its own
_SLOWEST = 100_000  # bytes a second


class Identity(NamedTuple):
    """What an object has to be: its size in bytes, the XXH3-64 of all of it (0: unknown), and else its version."""

    size: int
    checksum: int
    version: str = ""


class _Held(NamedTuple):
    """An object that is kept as it came: its file, its bytes, and when the store was last asked whether it is that."""

    file: BlockFile
    data: memoryview
    asked: int


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
        since: When the data set was opened, in ns since 1970. Objects that are not in the manifest, and whose size
            nobody says, are then cached too, as they come, if they have versions: for each, the store is asked once
            after this whether it is still the same. ``None``: they are not cached.
    """

    def __init__(
        self,
        inner: Store,
        cache: Cache,
        *,
        fingerprint: str,
        identify: Callable[[str], Identity | None],
        since: int | None = None,
    ) -> None:
        super().__init__(inner)
        self.cache = cache
        self.fingerprint = fingerprint
        self.since = since
        self._identify = identify
        self._session = CacheSession(cache, fingerprint, inner.url)
        self._admitting: dict[str, asyncio.Future[BlockFile | None]] = {}
        self._coming: dict[str, asyncio.Future[list[memoryview]]] = {}
        self._wholes: dict[str, asyncio.Future[None]] = {}
        self._whole_only = False  # whether the server was found to send no ranges

    def __reduce__(self) -> tuple[Any, ...]:
        make = functools.partial(CachedStore, fingerprint=self.fingerprint, identify=self._identify, since=self.since)
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

    def held(self, path: str) -> HeldObject | None:
        file = self._find(path) if can_copy() else None
        if file is None or not file.complete:
            return None
        try:
            return file.held()
        except OSError:
            self._session.drop(file)
            return None

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
            if self.since is not None and (offset, length, size) == (0, None, None) and self._identify(path) is None:
                since = self.since
                return await _once(self._coming, path, lambda: self._newest(path, since))
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

    async def _newest(self, path: str, since: int) -> list[memoryview]:
        """An object whose size nobody knows, as it was at some time after the data set was opened."""
        begun = time.time_ns()
        held = await asyncio.to_thread(self._as_it_came, path)
        if held is not None and since <= held.asked <= begun:  # a clock that was wrong may have said what is to come
            counters().add("cache_hit_bytes", len(held.data))
            return [held.data]
        pieces, version = await self.inner.read_newer(path, than=0 if held is None else held.file.described.came)
        if pieces is None:
            assert held is not None, "nothing else has the version"
            with suppress(OSError):
                held.file.confirm(begun)
            counters().add("cache_hit_bytes", len(held.data))
            return [held.data]
        if version:
            described = Described.as_it_came(path, sum(map(len, pieces)), version)
            await asyncio.to_thread(self._keep, described, pieces, begun, held)
        return pieces

    def _as_it_came(self, path: str) -> _Held | None:
        """What the cache holds of an object whose size nobody knows."""
        file = self._session.came(path)
        with suppress(OSError):
            if file is not None:
                asked = file.asked()  # first: bytes that are read later are of that time, or newer
                return _Held(file, file.read([0], [file.described.size])[0], asked)
        return None

    def _keep(self, described: Described, pieces: list[memoryview], when: int, held: _Held | None) -> None:
        if held is not None:
            self._session.discard(held.file)
        if self._session.keep(described, pieces, when):
            counters().add("cache_fetched_bytes", described.size)

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
        loose: list[Loose] = []
        if not self._whole_only:
            try:
                loose = await bring(self.inner, file, first, stop)
            except NoRangesError:
                self._whole_only = True
        if self._whole_only:
            await _once(self._wholes, file.described.path, lambda: bring_whole(self.inner, file))
        self._session.report(file)
        return loose

    async def _admit(self, path: str, size: int | None = None) -> BlockFile | None:
        described = None if self._session.refuses(path) else self._describe(path, size)
        if described is None:
            return None
        return await _once(self._admitting, path, lambda: asyncio.to_thread(self._session.admit, described))

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
        wait = _WAIT + described.size / _SLOWEST  # all of it may have to come
        return joined(run(lambda: self.read(path, offset, length, size=described.size), wait=wait, what=what))

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


async def _once(running: dict[str, asyncio.Future[T]], path: str, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """What comes of work on an object, done once for all who ask for it meanwhile."""
    task = running.get(path)
    if task is None or task.get_loop() is not asyncio.get_running_loop():
        task = running[path] = asyncio.ensure_future(work())
        task.add_done_callback(lambda _: running.pop(path, None))
    return await asyncio.shield(task)
