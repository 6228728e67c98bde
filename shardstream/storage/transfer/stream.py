"""All bytes of one object in order, without ranges: what broke begins again at the first byte."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from shardstream.errors import ChangedError, StorageError
from shardstream.storage.base.awaited import AwaitedRequest
from shardstream.storage.base.counters import counters
from shardstream.storage.base.policy import RetryPolicy, draw
from shardstream.storage.base.store import Head
from shardstream.storage.transfer.client import Client, Fault, replaced
from shardstream.storage.transfer.retry import TROUBLE, Pace, count_retry, tried

_PIECE = 1 << 20


async def stream(
    client: Client,
    path: str,
    take: Callable[[int, memoryview], Awaitable[None]],
    *,
    size: int,
    where: str,
    policy: RetryPolicy,
    pace: Pace,
) -> Head:
    """Hand over all bytes of an object.

    Args:
        client: Makes the attempts.
        path: The object.
        take: Called with the offset of each piece and its bytes; an offset of 0 begins the object again.
        size: Its size.
        where: Its URL, for errors.
        policy: When to try again and when to give up.
        pace: Knows whether the store has ever answered.

    Returns:
        Size and version of the object.

    Raises:
        NotFoundError, AccessError: At once.
        ChangedError: The object has another size, or was replaced between two attempts.
        StorageError: Time is up.
    """
    clock = asyncio.get_running_loop()
    began, failures, furthest = clock.time(), 0, 0
    once = _Once(client, path, take, size, policy.stall)
    with AwaitedRequest(where) as asked:
        while True:
            counters().add("requests")
            asked.attempts += 1
            try:
                return await once.run()
            except (Fault, TimeoutError) as error:
                fault = error if isinstance(error, Fault) else Fault("timeout", f"no byte came for {policy.stall:g} s")
                pace.reached |= fault.kind not in ("timeout", "connection")
                failures = 1 if once.at > furthest else failures + 1
                furthest = max(furthest, once.at)
                allowed = policy.allowed(size) if pace.reached or furthest else policy.contact
                left = began + allowed - clock.time()
                pause = policy.pause(fault.kind, failures, left=left, draw=draw(), asked=fault.wait)
                if pause is None:
                    story = tried("reading", clock.time() - began, asked.attempts)
                    raise StorageError(f"{story}: {fault}", url=where, offset=once.at, hint=TROUBLE) from None
                count_retry(fault)
                await asyncio.sleep(pause)
            except StorageError as error:
                raise error.at(url=where) from None


class _Once:
    """Attempts at an object, one after another.

    Attributes:
        at: Bytes that the last one handed over.
    """

    def __init__(
        self, client: Client, path: str, take: Callable[[int, memoryview], Awaitable[None]], size: int, stall: float
    ) -> None:
        self._client, self._path, self._take, self._size, self._stall = client, path, take, size, stall
        self._etag: str | None = None
        self.at = 0

    async def run(self) -> Head:
        """One attempt. Raises `Fault` or TimeoutError for what may pass."""
        self.at = 0
        async with asyncio.timeout(self._stall):
            body = await self._client.open(self._path, 0, None)
        head = body.head
        if head.size != self._size:
            raise ChangedError(
                f"the object holds {head.size} bytes, not {self._size}: it was replaced, or is truncated",
                hint="open the data set anew",
            )
        if self._etag not in (None, head.etag):
            raise replaced()
        self._etag = head.etag
        chunks = body.chunks(_PIECE)
        while self.at < self._size:
            async with asyncio.timeout(self._stall):
                chunk = await anext(chunks, None)
            if chunk is None:
                raise Fault("short body", f"the body ended {self._size - self.at} bytes early")
            if self.at + len(chunk) > self._size:
                raise Fault("wrong range", "more bytes came than were announced")
            counters().add("bytes", len(chunk))
            await self._take(self.at, chunk)
            self.at += len(chunk)
        return head
