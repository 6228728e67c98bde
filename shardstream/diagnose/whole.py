"""Whole shards, one after another, the next one on its way while one is looked at."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from shardstream.dataset.opened import OpenedDataset
from shardstream.dataset.shard import OpenShard
from shardstream.errors import ChangedError, DataError, NotFoundError, ShardStreamError, StorageError
from shardstream.shards.index import Column, ShardIndex
from shardstream.shards.manifest import Manifest
from shardstream.storage import Buffers, Store, fetch
from shardstream.storage.transfer.loop import submit

_PART = 8 << 20  # of one request
_AT_ONCE = 8  # requests: one connection alone seldom fills a line
_SPARE = 1 << 20
_TOGETHER = 64  # values that are objects of their own


class TooLarge(StorageError):
    """An object that is so much larger than it should be that it is not read."""


@dataclass(frozen=True, slots=True)
class ReadShard:
    """The bytes of a shard, and its index; or why there are none.

    Attributes:
        data: All bytes of the object, or of another library's those that its values take, or what reads them; ``None``
            where nobody can say which these are.
        index: The index.
    """

    data: memoryview | FetchedValues | LooseValues | StorageError | None
    index: ShardIndex | ShardStreamError


class FetchedValues:
    """Bytes of some values of an object, addressed as if all of it were here: ``values[begin:end]``.

    Args:
        path: The object.
        size: Its bytes.
        buffers: What was fetched.
    """

    def __init__(self, path: str, size: int, buffers: Buffers) -> None:
        self._path = path
        self._size = size
        self._buffers = buffers

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, span: slice) -> memoryview:
        return self._buffers.view(self._path, span.start, span.stop - span.start)


class LooseValues:
    """Values that are objects of their own, some at a time.

    Args:
        opened: Their shard.
    """

    def __init__(self, opened: OpenShard) -> None:
        self._opened = opened

    def each(self, column: Column) -> Iterator[tuple[int, str, memoryview | StorageError]]:
        """Row and object of each value of a column, with its bytes, or why there are none.

        Raises:
            StorageError: The store cannot be read.
        """
        rows = np.arange(self._opened.index.samples)
        valid = column.valid_rows(rows)
        chosen = rows if valid is None else rows[valid]
        if column.held is not None:
            for row, value in zip(chosen.tolist(), column.held_values(chosen), strict=True):
                yield row, self._opened.index.path, value
            return
        for start in range(0, len(chosen), _TOGETHER):
            part = chosen[start : start + _TOGETHER]
            yield from self._some(part, column)

    def _some(self, rows: NDArray[np.int64], column: Column) -> Iterator[tuple[int, str, memoryview | StorageError]]:
        sizes = [None] * len(rows) if column.lengths is None else column.lengths[rows].tolist()
        try:
            buffers = self._opened.fetched(rows, [column.name])
        except ChangedError as error:
            if len(rows) == 1:
                yield int(rows[0]), column.object_names(rows)[0], error
                return
            for one in np.split(rows, len(rows)):
                yield from self._some(one, column)
            return
        for row, path, size in zip(rows.tolist(), column.object_names(rows), sizes, strict=True):
            try:
                yield row, path, buffers.view(path, 0, size)
            except (NotFoundError, ChangedError) as error:
                yield row, path, error


def read_pieces(dataset: OpenedDataset) -> Iterator[ReadShard]:
    """The same as `read_shards` of a data set of another library, whose objects may be many shards each.

    Raises:
        StorageError: A remote store cannot be read.
    """
    for number in range(dataset.manifest.shards):
        try:
            opened = dataset.open(number)
            if opened.framing.whole_objects:
                yield ReadShard(LooseValues(opened), opened.index)
                continue
            store, name, size = opened.shard
            if store.mapped:
                yield ReadShard(store.get(name), opened.index)
                continue
            rows, index = np.arange(opened.index.samples), opened.index
            buffers = fetch(store, partial(opened.framing.plan, index, rows, list(index.columns)))
            yield ReadShard(FetchedValues(name, size, buffers), index)
        except (NotFoundError, ChangedError) as error:
            yield ReadShard(error, error)
        except DataError as error:
            yield ReadShard(None, error)


def read_shards(store: Store, manifest: Manifest) -> Iterator[ReadShard]:
    """All shards of a data set in order. One that is missing, damaged or not a shard at all is not an error here.

    Raises:
        StorageError: A remote store cannot be read.
    """
    if store.mapped:
        for shard in range(manifest.shards):
            yield _read_local(store, manifest, shard)
        return
    coming: Future[memoryview] | StorageError | None = None
    try:
        for shard in range(manifest.shards):
            data = _outcome(_begin(store, manifest, shard) if coming is None else coming)
            coming = _begin(store, manifest, shard + 1) if shard + 1 < manifest.shards else None
            index = data if isinstance(data, StorageError) else _scan(store, manifest, shard, data)
            yield ReadShard(data, index)
    finally:
        if isinstance(coming, Future):
            coming.cancel()


def _read_local(store: Store, manifest: Manifest, shard: int) -> ReadShard:
    name = manifest.shard_name(shard)
    try:
        data = store.get(name)
    except StorageError as error:
        return ReadShard(error, error)
    try:
        return ReadShard(data, manifest.reader.scan(store, name))
    except (DataError, StorageError) as error:
        return ReadShard(data, error)


def _begin(store: Store, manifest: Manifest, shard: int) -> Future[memoryview] | StorageError:
    name, expected = manifest.shard_name(shard), int(manifest.table.sizes[shard])
    try:
        size = store.size(name)
    except NotFoundError as error:
        return error
    if size > 2 * expected + _SPARE:
        return TooLarge(f"the object has {size} bytes, not {expected}; it was not read")
    return submit(lambda: _parts(store, name, size))


def _outcome(coming: Future[memoryview] | StorageError) -> memoryview | StorageError:
    if isinstance(coming, StorageError):
        return coming
    try:
        return coming.result()  # each of its reads has a deadline
    except NotFoundError as error:  # deleted since its size was asked
        return error


def _scan(store: Store, manifest: Manifest, shard: int, data: memoryview) -> ShardIndex | ShardStreamError:
    try:
        return manifest.reader.scan(store, manifest.shard_name(shard), tail=(data, len(data)))
    except (DataError, NotFoundError) as error:
        return error


async def _parts(store: Store, name: str, size: int) -> memoryview:
    """All bytes of an object, in parts that come side by side."""
    out = bytearray(size)
    target = memoryview(out)
    turn = asyncio.Semaphore(_AT_ONCE)

    async def part(start: int) -> None:
        async with turn:
            at = start
            for piece in await store.read(name, start, min(_PART, size - start), size=size):
                target[at : at + len(piece)] = piece
                at += len(piece)

    parts = [asyncio.ensure_future(part(start)) for start in range(0, size, _PART)]
    try:
        await asyncio.gather(*parts)
    except BaseException:
        for one in parts:
            one.cancel()
        raise
    return target.toreadonly()
