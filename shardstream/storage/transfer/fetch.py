"""One byte range of one object, whatever the network does: attempts, resumption, second attempts, checks.

Never served: a body that is short, of another range, or of another version of the object than asked.
"""

from __future__ import annotations

import asyncio
import logging
from typing import NamedTuple

from shardstream.errors import AccessError, ChangedError, NotFoundError, StorageError
from shardstream.storage.base.awaited import AwaitedRequest
from shardstream.storage.base.counters import counters
from shardstream.storage.base.policy import RetryPolicy, draw
from shardstream.storage.base.store import Head, past_the_end
from shardstream.storage.transfer.client import Body, Client, Fault, check_version
from shardstream.storage.transfer.retry import SMALL_CHUNK, TROUBLE, Pace, count_retry, tried

_log = logging.getLogger(__name__)

_MOST_HEDGES = 3  # second attempts of a read, one after another


class Fetched(NamedTuple):
    """What was read: pieces that follow one another, where they begin in the object, and what the object is."""

    pieces: list[memoryview]
    start: int
    head: Head


class Known(NamedTuple):
    """What is known of an object before it is read.

    Attributes:
        size: Its size in bytes.
        etag: Its version.
        most: The most bytes that it may have to be read at all.
    """

    size: int | None = None
    etag: str | None = None
    most: int | None = None


class TooLargeError(Exception):
    """An object has more bytes than the reader takes; none of them was read.

    Args:
        size: How many it has.
    """

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.size = size


async def fetch(
    client: Client,
    path: str,
    offset: int,
    length: int | None,
    *,
    where: str,
    policy: RetryPolicy,
    pace: Pace,
    known: Known = Known(),  # noqa: B008 - it cannot be changed
) -> Fetched:
    """Bytes ``[offset, offset + length)`` of an object.

    Args:
        client: Makes the attempts.
        path: The object.
        offset: First byte; negative: so many from the end (fewer, if the object is shorter), with ``length=None``.
        length: Number of bytes, at least 1; ``None``: to the end.
        where: The object's URL, for errors.
        policy: When to try again and when to give up.
        pace: What other reads of this store take.
        known: What the object has to be.

    Raises:
        NotFoundError, AccessError: At once.
        ChangedError: The object has another size or version than given, or was replaced meanwhile.
        StorageError: The range reaches past the end, or time is up.
        TooLargeError: It has more than ``known.most`` bytes.
    """
    read = _Read(client, path, offset, length, policy=policy, pace=pace, known=known)
    try:
        with AwaitedRequest(where) as read.asked:
            return await read.run()
    except Fault as fault:
        raise StorageError(f"{read.story()}: {fault}", url=where, offset=read.at, hint=TROUBLE) from None
    except ChangedError as error:
        if isinstance(await _ask_head(client, path), NotFoundError):  # some stores say the same of one that is gone
            raise NotFoundError("no such object any more: it was deleted while in use", url=where) from None
        raise error.at(url=where) from None
    except (NotFoundError, AccessError) as error:
        raise error.at(url=where) from None
    except StorageError as error:
        if "offset" in error.place:
            raise error.at(url=where) from None
        # Stores refuse ranges without a byte in many words; the size tells whether that is what happened.
        head = await _ask_head(client, path)
        if isinstance(head, Head):
            if length is None and (offset == head.size or (offset < 0 and not head.size)):
                return Fetched([], head.size, head)
            if offset >= head.size or (length or 0) + offset > head.size:
                error = past_the_end(offset, length, head.size)
        raise error.at(url=where, offset=offset) from None


async def _ask_head(client: Client, path: str) -> Head | Exception:
    """Size and version of an object, asked for once, or why they cannot be told."""
    try:
        counters().add("requests")
        return await client.head(path)
    except (Fault, StorageError) as error:
        return error


class _Read:
    """A read with all its attempts. ``pieces`` are what is safe so far."""

    def __init__(
        self,
        client: Client,
        path: str,
        offset: int,
        length: int | None,
        *,
        policy: RetryPolicy,
        pace: Pace,
        known: Known,
    ) -> None:
        self.client, self.path, self.policy, self.pace = client, path, policy, pace
        self.size, self.etag, self.most = known
        self.start = offset
        self.stop = None if length is None else offset + length
        self.pieces: list[memoryview] = []
        self.got = 0  # bytes that are safe
        self.head: Head | None = None
        self.least = pace.chunk()
        self.asked: AwaitedRequest | None = None
        self.attempts = 0
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._limit = asyncio.timeout(None)
        self._last: Fault | None = None

    @property
    def at(self) -> int:
        """The first byte that is still missing."""
        return self.start + self.got

    @property
    def rest(self) -> int:
        """Bytes that are still missing, as far as that is known."""
        return 0 if self.stop is None else self.stop - self.at

    def story(self) -> str:
        """What was tried, for the error."""
        return f"{tried('reading', self._loop.time() - self._began, self.attempts)}, {self.got} bytes came"

    async def run(self) -> Fetched:
        self.pace.reading += 1
        try:
            async with self._limit:
                await self._until_whole()
        except TimeoutError:
            raise self._last or Fault("timeout", "the answer is too slow") from None
        finally:
            self.pace.reading -= 1
        assert self.head is not None, "a read that ended has seen an answer"
        return Fetched(self.pieces, self.start, self.head)

    def allow(self) -> float:
        """Give the read the time that it may take, by what is known of the store by now; when that ends."""
        ends = self._began + self.policy.allowed(self.rest + self.got)
        if not self.pace.reached:
            ends = min(ends, self._began + self.policy.contact)
        if not self._limit.expired():
            self._limit.reschedule(ends)
        return ends

    async def _until_whole(self) -> None:
        failures = 0
        while True:
            self.allow()
            before = self.got
            if self.got:
                counters().add("resumed")
            try:
                return await self._race()
            except Fault as fault:
                self._last = fault.with_traceback(None)
                self.pace.reached |= fault.kind not in ("timeout", "connection")
                failures = 1 if self.got > before else failures + 1
                left = self.allow() - self._loop.time()
                pause = self.policy.pause(fault.kind, failures, left=left, draw=draw(), asked=fault.wait)
                if pause is None:
                    raise
                count_retry(fault)
                _log.debug("%s: %s at byte %d; again in %.2f s", self.path, fault, self.at, pause)
            self.least = SMALL_CHUNK
            await asyncio.sleep(pause)

    async def _race(self) -> None:
        """One attempt, and another beside it where the first is slow. The first that is whole wins."""
        running = [_Attempt(self)]
        hedges = 0
        suspected = False
        fault: Fault | None = None
        try:
            while running:
                pause = self._look_again(running, hedges)
                done, _ = await asyncio.wait(
                    [attempt.task for attempt in running],
                    timeout=max(0.05, pause) if suspected else pause,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                now = self._loop.time()
                for attempt in list(running):
                    if attempt.task in done:
                        if attempt.finished:
                            if attempt.second:
                                counters().add("hedged_won")
                            self._adopt(attempt)
                            return
                        fault = attempt.fault
                        if fault is None:
                            raise attempt.error or asyncio.CancelledError
                        if attempt.second:  # one that fails is not a slow one: it is not made again
                            hedges = _MOST_HEDGES
                    elif now - attempt.moved >= self.policy.stall:
                        fault = Fault("timeout", f"no byte came for {self.policy.stall:g} s")
                    else:
                        continue
                    attempt.task.cancel()
                    running.remove(attempt)
                    self._adopt(attempt)
                if not running or hedges == _MOST_HEDGES or not self._slow(running[-1], now):
                    suspected = False
                    continue
                # A look that comes late because this process was busy finds the bytes there a moment later.
                if suspected and len(running) == 2:
                    # The companion is no better: it makes room for another one, of this read or of others.
                    companion = running.pop()
                    companion.task.cancel()
                    self._adopt(companion)
                elif suspected and self.pace.may_hedge():
                    hedges += 1
                    running.append(_Attempt(self, beside=running[0]))
                suspected = True
        finally:
            for attempt in running:
                attempt.task.cancel()
        assert fault is not None
        raise fault

    def _look_again(self, running: list[_Attempt], hedges: int) -> float:
        """Seconds until an attempt may have to be cut or be given a companion."""
        now = self._loop.time()
        oldest = min(attempt.moved for attempt in running)
        ends = oldest + self.policy.stall
        if hedges < _MOST_HEDGES:
            attempt = running[-1]
            ends = min(ends, attempt.moved + attempt.step(), attempt.began + attempt.whole())
        return max(0.0, ends - now)

    def _slow(self, attempt: _Attempt, now: float) -> bool:
        return now - attempt.moved >= attempt.step() or now - attempt.began >= attempt.whole()

    def _adopt(self, attempt: _Attempt) -> None:
        """Take over what an attempt has brought, if that is more than there was."""
        if attempt.head is not None and (self.head is None or attempt.got > self.got):
            self.head = attempt.head
            self.start, self.stop = attempt.start, attempt.stop
            self.pieces, self.got = attempt.pieces, attempt.got
            if self.got:
                self.etag, self.size = attempt.head.etag, attempt.head.size


class _Attempt:
    """One request for what is missing, from its first byte to its last, in a task of its own."""

    def __init__(self, read: _Read, *, beside: _Attempt | None = None) -> None:
        known = beside if beside is not None and beside.head is not None else read
        self.read = read
        self.second = beside is not None
        self.pieces: list[memoryview] = list(known.pieces)
        self.got: int = known.got  # bytes that came, those of earlier attempts included
        self.head: Head | None = known.head
        self.start: int = known.start
        self.stop: int | None = known.stop
        self.answered = self.finished = False
        self.fault: Fault | None = None
        self.error: Exception | None = None
        self.began = self.moved = asyncio.get_running_loop().time()
        read.attempts += 1
        if read.asked is not None:
            read.asked.attempts += 1
        if self.second:
            counters().add("hedged")
            read.pace.hedging += 1
        self.task = asyncio.create_task(self._end_quietly())
        self.task.add_done_callback(self._ended)

    def _ended(self, _: object) -> None:
        # Not in the coroutine, which a task that is cancelled at once never enters.
        self.read.pace.hedging -= self.second

    async def _end_quietly(self) -> None:
        """What came of it stands in the attempt, not in the task.

        Errors that a task keeps, cancellations too, keep its frames and so the pieces until the next garbage
        collection; and nobody may look at the loser of a race.
        """
        try:
            await self._run()
            self.finished = True
        except Fault as fault:
            self.fault = fault.with_traceback(None)
        except asyncio.CancelledError:
            pass
        except Exception as error:
            self.error = error

    def step(self) -> float:
        """How long the next step may take among its peers."""
        return self.read.pace.limit(self.read.least if self.answered else 0)

    def whole(self) -> float:
        """How long all of it may take among its peers."""
        return self.read.pace.limit(0 if self.stop is None else self.stop - self.start)

    async def _run(self) -> None:
        read, clock = self.read, asyncio.get_running_loop()
        counters().add("requests")
        known = read.etag
        if known is None and self.got and self.head is not None:
            known = self.head.etag
        body = await read.client.open(read.path, self.start + self.got, self.stop, etag=known)
        self._check(body, known)
        answered = self.moved = clock.time()
        self.answered = True
        read.pace.answered(answered - self.began)
        read.allow()  # the store is there: this is not a wrong name, whose time is short
        before = self.got
        assert self.stop is not None
        async for chunk in body.chunks(max(1, min(read.least, self.stop - self.start - self.got))):
            self.moved = clock.time()
            counters().add("bytes", len(chunk))
            if self.start + self.got + len(chunk) > self.stop:
                raise Fault("wrong range", "more bytes came than were announced")
            if chunk:
                self.pieces.append(chunk)
                self.got += len(chunk)
        if self.start + self.got < self.stop:
            raise Fault("short body", f"the body ended {self.stop - self.start - self.got} bytes early")
        read.pace.received(self.got - before, self.moved - answered)

    def _check(self, body: Body, etag: str | None) -> None:
        """Whether the answer is what was asked; takes over what it says of the object."""
        read, head = self.read, body.head
        if read.size is not None and head.size != read.size:
            raise ChangedError(
                f"the object holds {head.size} bytes, not {read.size}: it was replaced, or is truncated",
                hint="open the data set anew; `shardstream verify` finds what does not fit",
            )
        check_version(head, etag)
        if read.most is not None and head.size > read.most:
            raise TooLargeError(head.size)
        if self.start < 0:
            self.start = max(0, head.size + self.start)
        stop = head.size if self.stop is None else self.stop
        if stop > head.size:
            raise past_the_end(read.start, stop - read.start, head.size)
        if (body.start, body.stop) != (self.start + self.got, stop):
            asked = f"[{self.start + self.got}, {stop})"
            raise Fault("wrong range", f"asked for bytes {asked}, answered with [{body.start}, {body.stop})")
        self.head, self.stop = head, stop
