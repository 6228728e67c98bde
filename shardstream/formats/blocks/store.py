"""``BlockStore``: a store whose compressed objects are shown inflated."""

from __future__ import annotations

import asyncio
import itertools
import weakref
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import ChecksumError, DecodeError
from shardstream.formats.blocks.codecs import PLAIN, checksum_of, inflate
from shardstream.formats.blocks.held import HELD, held
from shardstream.formats.blocks.table import BlockSpan, ObjectBlocks, StoredBlock
from shardstream.storage.base.buffers import joined
from shardstream.storage.base.counters import counters
from shardstream.storage.base.store import Head, ObjectMeta, Store, past_the_end
from shardstream.storage.base.wrapper import WrapperStore
from shardstream.storage.transfer.loop import run

_WAIT = 600.0  # of one call; what it waits for has shorter deadlines of its own
_TOGETHER = 4 << 20  # stored bytes of neighbouring blocks that are fetched and inflated as one
_MADE_TOGETHER = 16 << 20  # the same, inflated
_SMALL = 256 << 10  # bytes of a block that is not kept where a read takes all of it: that would cost more than it saves
_GAP = 64 << 10  # bytes between two blocks that are fetched rather than asked for apart
_owners = itertools.count()

BlocksOf: TypeAlias = Callable[[str], ObjectBlocks | None]
Inflated: TypeAlias = dict[int, memoryview]
"""Blocks by number."""


class BlockStore(WrapperStore):
    """Shows the inflated bytes of objects that are compressed; others pass through. It is read only.

    A block is the smallest read. One that several readers want is inflated once, and kept for a while, but for small
    ones that are read whole; how much is being inflated at a time is bounded. Pickling carries no blocks.

    Args:
        inner: The store.
        blocks_of: The blocks of an object; ``None`` for one that is not compressed.
    """

    def __init__(self, inner: Store, blocks_of: BlocksOf) -> None:
        super().__init__(inner)
        self.mapped = False
        self._blocks_of = blocks_of
        self._begin()

    def _begin(self) -> None:
        self._owner = next(_owners)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._room = _Room(HELD)
        self._coming: dict[tuple[str, int], asyncio.Task[Inflated]] = {}
        weakref.finalize(self, held.forget, self._owner)

    def __reduce__(self) -> tuple[Any, ...]:
        return BlockStore, (self.inner, self._blocks_of)

    def hold(self, path: str, block: int, data: memoryview) -> None:
        """Keep a block that was inflated already."""
        held.put(self._owner, path, block, data)

    # ------------------------------------------------------------------------------------------------------ reading

    def get(self, path: str, offset: int = 0, length: int | None = None) -> memoryview:
        blocks = self._blocks_of(path)
        if blocks is None:
            return self.inner.get(path, offset, length)
        length = blocks.size - offset if length is None else length
        self._check(path, blocks, offset, length)
        spans = list(blocks.spans(offset, length))
        if len(spans) == 1:
            data = held.get(self._owner, path, spans[0].block)
            if data is not None:
                return _cut(data, spans[0])
        if self.at_hand(path):
            return joined(self._now(path, blocks, spans))
        what = f"bytes {offset} to {offset + length} of {self.locate(path)}"
        return joined(run(lambda: self._read(path, blocks, spans), wait=_WAIT, what=what))

    def decompressed_at_once(
        self, path: str, offsets: NDArray[np.int64], lengths: NDArray[np.int64]
    ) -> NDArray[np.int64] | None:
        blocks = self._blocks_of(path)
        return None if blocks is None else blocks.largest_of(offsets, lengths)

    def at_hand(self, path: str) -> bool:
        """Small blocks of a file are inflated where they are used: a thread's turn takes longer than that."""
        blocks = self._blocks_of(path)
        return self.inner.mapped and (blocks is None or blocks.largest < _SMALL)

    def views(self, path: str, offsets: NDArray[np.int64], lengths: NDArray[np.int64]) -> Sequence[memoryview]:
        blocks = self._blocks_of(path)
        if blocks is None:
            return self.inner.views(path, offsets, lengths)
        found, begins, fits = blocks.lie_in(offsets, lengths)
        if not fits.all():  # some lie in several blocks, or not inside of the object
            return [self.get(path, *one) for one in zip(offsets.tolist(), lengths.tolist(), strict=True)]
        spans = map(BlockSpan, found.tolist(), begins.tolist(), (begins + lengths).tolist())
        return self._now(path, blocks, list(spans))

    def _now(self, path: str, blocks: ObjectBlocks, spans: Sequence[BlockSpan]) -> list[memoryview]:
        """Bytes of blocks, inflated here where nobody keeps them."""
        out = []
        for span, stored in zip(spans, blocks.stored_blocks([one.block for one in spans]), strict=True):
            number, begin, end = span
            if stored.codec == PLAIN:
                out.append(self.inner.get(path, stored.offset + begin, end - begin))
                continue
            data = held.get(self._owner, path, number)
            if data is None:
                data = self._made(path, stored, self.inner.get(path, stored.offset, stored.length))
                if end - begin != stored.size:
                    held.put(self._owner, path, number, data)
            out.append(_cut(data, span))
        return out

    async def read(self, path: str, offset: int, length: int | None, *, size: int | None = None) -> list[memoryview]:
        blocks = self._blocks_of(path)
        if blocks is None:
            return await self.inner.read(path, offset, length, size=size)
        length = blocks.size - offset if length is None else length
        self._check(path, blocks, offset, length)
        return await self._read(path, blocks, list(blocks.spans(offset, length)))

    def _check(self, path: str, blocks: ObjectBlocks, offset: int, length: int) -> None:
        if not 0 <= offset <= offset + length <= blocks.size:
            raise past_the_end(offset, length, blocks.size).at(url=self.locate(path))

    async def _read(self, path: str, blocks: ObjectBlocks, spans: Sequence[BlockSpan]) -> list[memoryview]:
        self._stay_on_loop()
        shared = [one.block for one in spans if not (blocks.plain(one.block) or _is_passing(blocks, one))]
        coming = self._coming_blocks(path, blocks, shared)
        jobs: list[Coroutine[Any, Any, list[memoryview]]] = []
        for passing, some in itertools.groupby(spans, partial(_is_passing, blocks)):
            if passing:
                runs = _runs(blocks, [one.block for one in some])
                jobs += [self._passed(path, blocks, run) for run in runs]
            else:
                jobs += [self._part(path, blocks, one, coming.get(one.block)) for one in some]
        return list(itertools.chain.from_iterable(await asyncio.gather(*jobs)))

    async def _part(
        self, path: str, blocks: ObjectBlocks, span: BlockSpan, coming: asyncio.Task[Inflated] | memoryview | None
    ) -> list[memoryview]:
        """Bytes of a block that is kept, on its way, or plain."""
        if coming is None:
            at = int(blocks.offsets[span.block]) + span.begin
            return await self.inner.read(path, at, span.end - span.begin, size=blocks.stored or None)
        data = coming if isinstance(coming, memoryview) else (await asyncio.shield(coming))[span.block]
        return [_cut(data, span)]

    async def _passed(self, path: str, blocks: ObjectBlocks, numbers: Sequence[int]) -> list[memoryview]:
        """Small blocks of which all is wanted, in one piece; nobody else is expected to want a part of them."""
        found = await self._bring(path, blocks, numbers)
        return [joined(list(found.values()))]

    def _coming_blocks(
        self, path: str, blocks: ObjectBlocks, numbers: Sequence[int]
    ) -> dict[int, asyncio.Task[Inflated] | memoryview]:
        """These blocks: kept ones, those that are on their way already, and those that are fetched from now on."""
        found: dict[int, asyncio.Task[Inflated] | memoryview] = {}
        absent = []
        for number in numbers:
            data = held.get(self._owner, path, number)
            if data is not None:
                found[number] = data
            elif (path, number) not in self._coming:
                absent.append(number)
        for together in _runs(blocks, absent):
            task = asyncio.get_running_loop().create_task(self._kept(path, blocks, together))
            self._coming |= dict.fromkeys(((path, number) for number in together), task)
            task.add_done_callback(partial(self._arrived, path, together))
        return found | {number: self._coming[path, number] for number in numbers if number not in found}

    def _stay_on_loop(self) -> None:
        """After a fork there is another loop, and what was on its way is not."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._room, self._coming = loop, _Room(HELD), {}

    def _arrived(self, path: str, numbers: Sequence[int], task: asyncio.Task[Inflated]) -> None:
        if not task.cancelled():
            task.exception()  # whoever waits for it is told; maybe nobody does any more
        for number in numbers:
            if self._coming.get((path, number)) is task:
                del self._coming[path, number]

    async def _kept(self, path: str, blocks: ObjectBlocks, numbers: Sequence[int]) -> Inflated:
        """Fetch and inflate blocks that lie near each other, and keep them for a while."""
        found = await self._bring(path, blocks, numbers)
        for number, data in found.items():
            held.put(self._owner, path, number, data)
        return found

    async def _bring(self, path: str, blocks: ObjectBlocks, numbers: Sequence[int]) -> Inflated:
        """Fetch and inflate blocks that lie near each other."""
        begins, ends = blocks.offsets[numbers], blocks.offsets[numbers] + blocks.lengths[numbers]
        begin, end = int(begins.min()), int(ends.max())
        async with self._room.taken(end - begin + int(blocks.sizes[numbers].sum(dtype="int64"))):
            if self.inner.mapped:
                return await asyncio.to_thread(
                    lambda: self._inflate(path, blocks, numbers, self.inner.get(path, begin, end - begin), begin)
                )
            pieces = await self.inner.read(path, begin, end - begin, size=blocks.stored or None)
            return await asyncio.to_thread(self._inflate, path, blocks, numbers, joined(pieces), begin)

    def _inflate(
        self, path: str, blocks: ObjectBlocks, numbers: Sequence[int], data: memoryview, begin: int
    ) -> Inflated:
        found = {}
        for number, stored in zip(numbers, blocks.stored_blocks(numbers), strict=True):
            at = stored.offset - begin
            found[number] = self._made(path, stored, data[at : at + stored.length])
        return found

    def _made(self, path: str, stored: StoredBlock, data: memoryview) -> memoryview:
        """What a block inflates to, compared with what was indexed."""
        try:
            made = inflate(stored.codec, data, stored.size, stored.setting)
        except DecodeError as error:
            raise error.at(url=self.locate(path), offset=stored.offset) from error.__cause__
        if stored.checksum and checksum_of(stored.codec, made) != stored.checksum:
            raise ChecksumError(
                "a block inflates to other bytes than those that were indexed",
                hint="fetch the object again, or index it anew",
                url=self.locate(path),
                offset=stored.offset,
            )
        counters().add("inflated_blocks", 1)
        return made

    def whole(self, path: str) -> tuple[memoryview, Head]:
        return self.inner.whole(path) if self._blocks_of(path) is None else Store.whole(self, path)

    def get_tail(self, path: str, length: int) -> tuple[memoryview, int]:
        return (
            self.inner.get_tail(path, length) if self._blocks_of(path) is None else Store.get_tail(self, path, length)
        )

    pieces = Store.pieces

    async def stream(self, path: str, take: Callable[[int, memoryview], Awaitable[None]], *, size: int) -> None:
        plain = self._blocks_of(path) is None
        await (self.inner.stream(path, take, size=size) if plain else Store.stream(self, path, take, size=size))

    def repair(self, path: str, offset: int, length: int) -> bool:
        blocks = self._blocks_of(path)
        if blocks is None:
            return self.inner.repair(path, offset, length)
        dropped = [held.drop(self._owner, path, one.block) for one in blocks.spans(offset, length)]
        return any(dropped)

    # ------------------------------------------------------------------------------------------------- what there is

    def size(self, path: str) -> int:
        blocks = self._blocks_of(path)
        return self.inner.size(path) if blocks is None else blocks.size

    def meta(self, path: str) -> ObjectMeta:
        return self._inflated_meta(self.inner.meta(path))

    def list(self, prefix: str = "") -> Iterator[ObjectMeta]:
        return map(self._inflated_meta, self.inner.list(prefix))

    def _inflated_meta(self, meta: ObjectMeta) -> ObjectMeta:
        blocks = self._blocks_of(meta.path)
        return meta if blocks is None else meta._replace(size=blocks.size)

    def file_of(self, path: str) -> Path | None:
        return None

    # A cache behind this store speaks of stored bytes; one in front of it has its own answers.
    holds, holds_ranges, copies, held, fill = Store.holds, Store.holds_ranges, Store.copies, Store.held, Store.fill
    create, delete, put, copy, move = Store.create, Store.delete, Store.put, Store.copy, Store.move

    def sweep(self) -> None:
        raise self._read_only("")


class _Room:
    """So many bytes may be in use at once; one who needs more than all of them has them alone. For one loop."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._used = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def taken(self, bytes: int) -> AsyncIterator[None]:
        if self._waiting or not self._fits(bytes):
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((bytes, turn))
            try:
                await turn  # whoever wakes this one has taken the bytes for it
            except asyncio.CancelledError:
                if not turn.cancelled():
                    self._give_back(bytes)
                raise
        else:
            self._used += bytes
        try:
            yield
        finally:
            self._give_back(bytes)

    def _fits(self, bytes: int) -> bool:
        return not self._used or self._used + bytes <= self._most

    def _give_back(self, bytes: int) -> None:
        self._used -= bytes
        while self._waiting and (self._waiting[0][1].done() or self._fits(self._waiting[0][0])):
            bytes, turn = self._waiting.popleft()
            if not turn.done():  # nobody waits any more
                self._used += bytes
                turn.set_result(None)


def _is_passing(blocks: ObjectBlocks, span: BlockSpan) -> bool:
    """Whether a span is all of a small block."""
    size = span.end - span.begin
    return size < _SMALL and size == blocks.sizes[span.block] and not blocks.plain(span.block)


def _cut(data: memoryview, span: BlockSpan) -> memoryview:
    """Bytes of a block. A few of them are copied: they would keep all of it in memory."""
    part = data[span.begin : span.end]
    return part if 2 * len(part) >= len(data) else memoryview(bytes(part))


def _runs(blocks: ObjectBlocks, numbers: Sequence[int]) -> Iterator[list[int]]:
    """Blocks that lie near each other, so that they are fetched together."""
    run: list[int] = []
    begin = end = made = 0
    for number in numbers:
        offset, length = int(blocks.offsets[number]), int(blocks.lengths[number])
        made += int(blocks.sizes[number])
        near = 0 <= offset - end <= _GAP and offset + length - begin <= _TOGETHER and made <= _MADE_TOGETHER
        if run and not near:
            yield run
            run, made = [], int(blocks.sizes[number])
        begin = begin if run else offset
        run.append(number)
        end = offset + length
    if run:
        yield run
