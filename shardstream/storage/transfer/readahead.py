"""Many reads on their way at once, those that are needed first first."""

from __future__ import annotations

import asyncio
import heapq
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import count

from shardstream.errors import NotFoundError, StorageError
from shardstream.storage.base.buffers import Buffers, FetchedBuffers, MappedBuffers, joined
from shardstream.storage.base.ranges import plan_reads
from shardstream.storage.base.store import Request, Store
from shardstream.storage.transfer import loop
from shardstream.waits import watched

REQUESTS = 128
"""Reads on their way at once in a process at most: at 50 ms latency and 55 KB a read, 140 MB/s."""

ON_THE_WAY = 64 << 20
"""Bytes on their way at once, beyond which no further read begins: at 50 ms latency, 1.3 GB/s."""

_LONGEST_WAIT = 900.0  # every transfer has a shorter deadline of its own; this one is for what nobody thought of
_LATEST = 16  # reads whose length nobody knew that the guess for others goes by
_EMPTY = memoryview(b"")
_numbers = count()


class Read:
    """One range that was asked for.

    Args:
        store: Where it lies.
        request: The range.
        order: Smaller numbers are read first.
        size: Size of the object, where it is known.

    Attributes:
        bytes: Of the range; ``None`` where nobody knows before it is done.
    """

    __slots__ = ("_error", "_pieces", "_task", "bytes", "cancelled", "done", "order", "request", "size", "store")

    def __init__(self, store: Store, request: Request, *, order: int, size: int | None = None) -> None:
        self.store = store
        self.request = request
        self.order = (order, next(_numbers))
        self.size = size
        self.bytes = _length(request, size)
        self.done = False
        self.cancelled = False
        self._pieces: list[memoryview] = []
        self._error: Exception | None = None
        self._task: asyncio.Task[None] | None = None

    def __lt__(self, other: Read) -> bool:
        return self.order < other.order

    @property
    def parts(self) -> list[tuple[Request, memoryview]]:
        """What came, once it is done.

        Raises:
            StorageError: Nothing came.
        """
        if self._error is not None:
            raise self._error
        path, offset, length = self.request
        parts = []
        for piece in self._pieces:
            parts.append((Request(path, offset, len(piece)), piece))
            offset += len(piece)
        if length is None:  # the object is known to end here
            rest, piece = parts.pop() if parts else (self.request, _EMPTY)
            parts.append((rest._replace(length=None), piece))
        return parts

    @property
    def data(self) -> memoryview:
        """The bytes in one piece, once it is done.

        Raises:
            StorageError: Nothing came.
        """
        return joined([piece for _, piece in self.parts])


def _length(request: Request, size: int | None) -> int | None:
    if request.length is not None or size is None:
        return request.length
    return max(0, size - request.offset)


class ReadQueue:
    """Reads of one process, so many at a time. For one thread that asks and waits.

    Attributes:
        guess: Bytes that a read counts for whose length nobody knows: about the mean of the latest that came.
    """

    def __init__(self) -> None:
        self.guess = ON_THE_WAY // REQUESTS
        self._running = 0
        self._bytes = 0
        self._waiting: list[Read] = []
        self._left = 0
        self._arrived = threading.Condition()

    @property
    def idle(self) -> bool:
        """Whether all that was asked for has come."""
        return not self._left

    def submit(self, reads: Sequence[Read]) -> None:
        """Begin these, as soon as it is their turn."""
        if reads:
            self._count(len(reads))
            loop.submit(lambda: self._take(reads))

    def cancel(self, reads: Iterable[Read]) -> None:
        """Nobody needs these any more."""
        gone = [read for read in reads if not read.done]
        for read in gone:
            read.cancelled = True
        if any(read._task is not None for read in gone):
            loop.submit(lambda: _stop(gone))

    def wait(self, reads: Iterable[Read]) -> None:
        """Return once all of these are done, with or without success.

        Raises:
            StorageError: They never were.
        """
        begun = time.monotonic()
        with self._arrived:
            for read in reads:
                if read.done:
                    continue
                with watched(partial(_describe, read)):
                    while not read.done:
                        if not self._arrived.wait(1.0) and time.monotonic() - begun > _LONGEST_WAIT:
                            raise StorageError(
                                f"waited {_LONGEST_WAIT:g} s for bytes",
                                url=read.store.locate(read.request.path),
                                offset=read.request.offset,
                                hint="look at the network and the store",
                            )

    async def _take(self, reads: Sequence[Read]) -> None:
        for read in reads:
            heapq.heappush(self._waiting, read)
        self._start()

    def _start(self) -> None:
        while self._waiting and loop.ending():  # what is cancelled makes room, but for nobody
            read = heapq.heappop(self._waiting)
            self._finish(read, StorageError("the interpreter is exiting", url=read.store.locate(read.request.path)))
        while self._waiting and self._running < REQUESTS and self._bytes < ON_THE_WAY:
            read = heapq.heappop(self._waiting)
            if read.cancelled:
                self._count(-1)
                continue
            counted = self.guess if read.bytes is None else read.bytes
            self._running += 1
            self._bytes += counted
            read._task = asyncio.get_running_loop().create_task(self._fetch(read, counted))

    def _count(self, change: int) -> None:
        with self._arrived:
            self._left += change

    async def _fetch(self, read: Read, counted: int) -> None:
        path, offset, length = read.request
        try:
            read._pieces = await read.store.read(path, offset, length, size=read.size)
            if read.bytes is None:
                read.bytes = sum(map(len, read._pieces))
                self.guess += (read.bytes - self.guess) // _LATEST  # slowly: values of several fields differ
        except Exception as error:
            read._error = error
        except asyncio.CancelledError:
            read._error = StorageError("the read was given up", url=read.store.locate(path), offset=offset)
            raise
        finally:
            read._task = None
            self._running -= 1
            self._bytes -= counted
            self._finish(read, read._error)
            self._start()

    def _finish(self, read: Read, error: Exception | None) -> None:
        with self._arrived:
            self._left -= 1
            read._error, read.done = error, True
            self._arrived.notify_all()


def _describe(read: Read) -> str:
    path, offset, length = read.request
    what = f"the bytes from {offset} on" if length is None else f"{length} bytes at {offset}"
    return f"{what} of {read.store.locate(path)}"


async def _stop(reads: Iterable[Read]) -> None:
    for read in reads:
        if read._task is not None:
            read._task.cancel()


def fetch(store: Store, plan: Callable[[], Iterable[Request]]) -> Buffers:
    """The buffers for a plan: a mapped store needs none; of any other its ranges are read now, side by side."""
    if store.mapped:
        return MappedBuffers(store)
    return fetched([Read(store, request, order=0) for request in plan_reads(plan())])


def fetched(reads: Sequence[Read]) -> Buffers:
    """What these reads bring, now and side by side; of objects that are not there, the error when they are used.

    Raises:
        StorageError: One failed for another reason.
    """
    queue = ReadQueue()
    queue.submit(reads)
    queue.wait(reads)
    return FetchedBuffers(*parts_of(reads))


def parts_of(reads: Iterable[Read]) -> tuple[list[tuple[Request, memoryview]], dict[str, NotFoundError]]:
    """What came of reads that are done, and which of their objects are not there.

    Raises:
        StorageError: One failed for another reason.
    """
    parts, missing = list[tuple[Request, memoryview]](), dict[str, NotFoundError]()
    for read in reads:
        try:
            parts += read.parts
        except NotFoundError as error:
            missing[read.request.path] = error
    return parts, missing
