"""Bringing blocks into a file: what is absent is fetched in large reads, each block by one process of the node.

Before it fetches, a process claims the blocks. That is a hint: whoever finds them claimed waits for a while, holding
nothing, and then fetches them too. Nothing is wrong when two fetch the same, for they write the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import StorageError
from shardstream.storage.base.counters import counters
from shardstream.storage.base.store import Store
from shardstream.storage.cache.blocks import BLOCK, BlockFile
from shardstream.storage.cache.locks import Claim

T = TypeVar("T")

_LARGEST = 8  # blocks a request
_AT_ONCE = 8  # requests of one read
_PATIENCE = 10.0  # seconds; below the deadline after which transfers take a stalled connection for dead


class Loose(NamedTuple):
    """Bytes that were fetched but could not be stored, from byte ``start`` of the object on."""

    start: int
    pieces: list[memoryview]


class Unwritable(Exception):
    """Blocks are absent, and cannot be stored: there is no use in fetching more than was asked for."""


async def bring(origin: Store, file: BlockFile, first: int, stop: int) -> list[Loose]:
    """See that blocks ``[first, stop)`` are present and verified.

    Args:
        origin: Where absent blocks come from.
        file: The file.
        first: The first block.
        stop: The block after the last one.

    Returns:
        What could not be stored, in order.

    Raises:
        Unwritable: See there.
        StorageError: Fetching failed.
        OSError: The file cannot be read.
    """
    if file.verified[first:stop].all():
        return []
    until = asyncio.get_running_loop().time() + _PATIENCE
    absent = await _verify(file, first, stop)
    if not len(absent):
        return []
    if not file.writable:
        raise Unwritable
    slots = asyncio.Semaphore(_AT_ONCE)
    loose = await _gather(_fetch(origin, file, start, end, until, slots) for start, end in _runs(absent))
    if loose or not file.words(0, file.described.blocks).all():
        return loose
    cleared = await asyncio.to_thread(file.compare)  # the last block came
    counters().add("cache_repaired", cleared)
    return await bring(origin, file, first, stop) if cleared else []


async def _verify(file: BlockFile, first: int, stop: int) -> NDArray[np.int64]:
    """Compare what is present and was not compared yet; the blocks that are absent."""
    todo = first + np.flatnonzero(~file.verified[first:stop])
    words = file.words(first, stop)
    present = todo[words[todo - first] != 0]
    if len(present):
        counters().add("cache_repaired", await asyncio.to_thread(file.verify, present))
    return todo[~file.verified[todo]]


def _runs(blocks: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Neighbours among ``blocks``, which are in order, as ``[start, end)``, none longer than a request."""
    for run in np.split(blocks, np.flatnonzero(np.diff(blocks) != 1) + 1):
        start, end = int(run[0]), int(run[-1]) + 1
        for begin in range(start, end, _LARGEST):
            yield begin, min(begin + _LARGEST, end)


async def _fetch(
    origin: Store, file: BlockFile, first: int, stop: int, until: float, slots: asyncio.Semaphore
) -> list[Loose]:
    claimed = _claim(file, first, stop)
    if claimed is not None and not isinstance(claimed, Claim) and asyncio.get_running_loop().time() < until:
        start, end = claimed
        parts = [(first, start), (end, stop)]
        coroutines = [_fetch(origin, file, *part, until, slots) for part in parts if part[0] < part[1]]
        return await _gather([*coroutines, _wait(origin, file, start, end, until, slots)])
    try:
        absent = await _verify(file, first, stop)  # others may have been faster
        return await _gather(_load(origin, file, *run, slots) for run in _runs(absent)) if len(absent) else []
    finally:
        if isinstance(claimed, Claim):
            claimed.release()


def _claim(file: BlockFile, first: int, stop: int) -> Claim | tuple[int, int] | None:
    try:
        return file.claim(first, stop)
    except OSError:  # no such locks here, or no such file: then nobody waits for anybody
        return None


async def _wait(
    origin: Store, file: BlockFile, first: int, stop: int, until: float, slots: asyncio.Semaphore
) -> list[Loose]:
    """Wait for blocks that another process has claimed; fetch them if it fails or takes too long."""
    clock = asyncio.get_running_loop().time
    pause = 0.002
    while clock() < until:
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, 0.02)
        if file.words(first, stop).all():
            break
        claimed = _claim(file, first, stop)
        if not isinstance(claimed, tuple):  # its owner has stored them, or is gone
            if claimed is not None:
                claimed.release()
            break
    absent = await _verify(file, first, stop)
    if not len(absent):
        return []
    return await _gather(_fetch(origin, file, *run, until, slots) for run in _runs(absent))


async def _load(origin: Store, file: BlockFile, first: int, stop: int, slots: asyncio.Semaphore) -> list[Loose]:
    start, end = file.extent(first, stop)
    path = file.described.path
    async with slots:
        pieces = await origin.read(path, start, end - start, size=file.described.size)
        if sum(len(piece) for piece in pieces) != end - start:
            raise StorageError("a read gave another number of bytes", url=origin.locate(path), offset=start)
        counters().add("cache_fetched_bytes", end - start)
        try:
            await _stored(file, first, pieces)
        except RuntimeError:  # the interpreter is exiting, and starts no thread
            return [Loose(start, pieces)]
        except OSError as error:
            file.give_up(error)
            return [Loose(start, pieces)]
    return []


async def _stored(file: BlockFile, first: int, pieces: list[memoryview]) -> None:
    """Store blocks; in a thread, for a disk that is slower than the network makes writers wait."""
    await asyncio.to_thread(file.store, first, pieces)


async def _gather(coroutines: Iterable[Coroutine[Any, Any, list[Loose]]]) -> list[Loose]:
    """Run all at once. The first that fails ends the others, before the error goes on."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        found = await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
    return sorted(loose for part in found for loose in part)


def assemble(file: BlockFile, offset: int, length: int, loose: list[Loose]) -> list[memoryview]:
    """Bytes ``[offset, offset + length)`` from the file, and from what could not be stored in it.

    Raises:
        OSError: The file cannot be read.
    """
    found, position, end = [], offset, offset + length

    def stored(until: int) -> None:
        nonlocal position
        if position < until:
            found.extend(file.read([position], [until - position]))
            position = until

    for start, pieces in loose:
        stored(min(start, end))
        for piece in pieces:
            if start <= position < min(start + len(piece), end):
                found.append(piece[position - start : end - start])
                position += len(found[-1])
            start += len(piece)
    stored(end)
    return found


def blocks_of(offsets: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """The blocks that ranges touch, some perhaps more than once. Ranges are not empty."""
    firsts, lasts = offsets // BLOCK, (offsets + lengths - 1) // BLOCK
    wide = np.flatnonzero(lasts > firsts + 1)
    middles = [
        np.arange(first + 1, last) for first, last in zip(firsts[wide].tolist(), lasts[wide].tolist(), strict=True)
    ]
    return np.concatenate([firsts, lasts, *middles])
