"""A client over one object in memory whose answers follow a script, for failures that come at an exact point."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Literal

from shardstream.storage import Head
from shardstream.storage.transfer.client import Body, Client, Fault, FaultKind


@dataclass(frozen=True)
class Answer:
    """What one request gets: all is well but what is said here.

    Attributes:
        error: Raised instead of an answer.
        hangs: Nothing comes, not even an answer.
        after: So many bytes come, and then ``ends``.
        ends: By a fault, by silence, or as if that had been all.
        shift: The answer is of a range so much further on.
        etag: The object's version by now.
        size: The object's size by now.
    """

    error: BaseException | None = None
    hangs: bool = False
    after: int | None = None
    ends: FaultKind | Literal["silence", "early"] = "connection"
    shift: int = 0
    etag: str | None = "one"
    size: int | None = None


GOOD = Answer()


class ScriptedClient(Client):
    """Answers by the script, then well."""

    def __init__(self, data: bytes, *script: Answer, chunk: int = 7) -> None:
        self.data = data
        self.script = list(script)
        self.chunk = chunk
        self.asked: list[tuple[int, int | None, str | None]] = []
        self.heads = 0
        self.cancelled = 0

    async def open(self, path: str, start: int, stop: int | None, *, etag: str | None = None) -> Body:
        self.asked.append((start, stop, etag))
        answer = self.script.pop(0) if self.script else GOOD
        if answer.error is not None:
            raise answer.error
        if answer.hangs:
            await self.silence()
        return ScriptedBody(self, answer, start, stop)

    async def silence(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled += 1

    async def head(self, path: str) -> Head:
        self.heads += 1
        return Head(len(self.data), "one")

    def list(self, prefix: str, after: str = "") -> AsyncIterator[Any]:
        raise NotImplementedError

    async def put(self, path: str, data: Any) -> None:
        raise NotImplementedError

    async def upload(self, path: str) -> Any:
        raise NotImplementedError

    async def delete(self, path: str) -> None:
        raise NotImplementedError

    async def copy(self, path: str, target: str) -> None:
        raise NotImplementedError


class ScriptedBody(Body):
    def __init__(self, client: ScriptedClient, answer: Answer, start: int, stop: int | None) -> None:
        size = len(client.data) if answer.size is None else answer.size
        self.client, self.answer = client, answer
        self.head = Head(size, answer.etag)
        first = max(0, size + start) if start < 0 else start
        last = size if stop is None else min(stop, size)
        self.start, self.stop = first + answer.shift, last + answer.shift

    async def chunks(self, least: int) -> AsyncIterator[memoryview]:
        data = self.client.data[self.start : self.stop]
        last = len(data) if self.answer.after is None else min(self.answer.after, len(data))
        for at in range(0, last, self.client.chunk):
            yield memoryview(data)[at : min(at + self.client.chunk, last)]
        if self.answer.after is None or self.answer.ends == "early":
            return
        if self.answer.ends == "silence":
            await self.client.silence()
        else:
            raise Fault(self.answer.ends, "the script says so")
