"""Objects of servers that send no ranges: each is fetched whole into its file of the cache, once on this machine.

The bytes go to the file as they come, a block at a time, so memory does not grow with the object. A download that broke
begins again at the first byte, which is all that such a server can do; blocks that are stored already stay.
"""

from __future__ import annotations

import asyncio

import numpy as np

from shardstream.storage.base.counters import counters
from shardstream.storage.base.store import Store
from shardstream.storage.cache.blocks import BLOCK, BlockFile
from shardstream.storage.cache.fill import Unwritable
from shardstream.storage.cache.locks import Claim

_PAUSE = 0.05  # seconds between looks at whether another process has fetched the object


async def bring_whole(origin: Store, file: BlockFile) -> None:
    """See that all blocks of an object are present and verified.

    Other processes that need the object wait for the one that fetches it, as long as that one lives.

    Args:
        origin: Where the object comes from.
        file: Its file.

    Raises:
        Unwritable: The file cannot be written.
        StorageError: Fetching failed.
        OSError: The file cannot be read.
    """
    for _ in range(2):  # an object that was spoilt on its way is fetched once more
        claimed = await _claim(file)
        try:
            if await _absent(file):
                await _fetch(origin, file)
        finally:
            if claimed is not None:
                claimed.release()
        cleared = await asyncio.to_thread(file.compare)
        counters().add("cache_repaired", cleared)
        if not cleared:
            return


async def _claim(file: BlockFile) -> Claim | None:
    """The right to fetch all blocks; ``None`` if this file system has no such locks."""
    while file.writable:
        try:
            claimed = file.claim(0, max(1, file.described.blocks))
        except OSError:
            return None
        if isinstance(claimed, Claim):
            return claimed
        await asyncio.sleep(_PAUSE)
    return None


async def _absent(file: BlockFile) -> bool:
    """Whether a block is absent, once those that are present were compared with their words."""
    blocks = file.described.blocks
    present = np.flatnonzero(~file.verified & (file.words(0, blocks) != 0))
    if len(present):
        counters().add("cache_repaired", await asyncio.to_thread(file.verify, present))
    return not file.verified.all()


async def _fetch(origin: Store, file: BlockFile) -> None:
    if not file.writable:
        raise Unwritable
    filled = _Blocks(file)
    await origin.stream(file.described.path, filled.take, size=file.described.size)
    if file.failure is not None:
        raise Unwritable


class _Blocks:
    """Stores the bytes of an object that come in order, block by block."""

    def __init__(self, file: BlockFile) -> None:
        self._file = file
        self._block = bytearray()

    async def take(self, offset: int, data: memoryview) -> None:
        """Take the bytes from an offset on; an offset of 0 begins again. Raises `Unwritable`."""
        if not offset:
            self._block.clear()
        start, size = offset - len(self._block), self._file.described.size
        while len(data):
            part = data[: BLOCK - len(self._block)]
            self._block += part
            data = data[len(part) :]
            end = start + len(self._block)
            if len(self._block) == BLOCK or end == size:
                await self._store(start // BLOCK)
                start = end
                self._block.clear()

    async def _store(self, number: int) -> None:
        counters().add("cache_fetched_bytes", len(self._block))
        if self._file.verified[number]:
            return
        try:
            await asyncio.to_thread(self._file.store, number, [memoryview(bytes(self._block))])
        except OSError as error:
            self._file.give_up(error)
            raise Unwritable from None
