"""A store in this process's memory, for what a `RemoteStore` does by itself: no server, no network, no faults."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

from shardstream.errors import ChangedError, NotFoundError, StorageError
from shardstream.storage import Head
from shardstream.storage.base.store import ObjectMeta
from shardstream.storage.transfer.client import Body, Client, Upload

OBJECTS: dict[str, dict[str, tuple[bytes, int]]] = {}
"""Of each store, by its name: content and version of its objects."""


class HeldClient(Client):
    """Behaves as S3 does: no empty ranges, no ranges past the end.

    Args:
        name: Of the store.
        suffix_ranges: See `Client`.
    """

    made = 0

    def __init__(self, name: str, suffix_ranges: bool = True) -> None:
        HeldClient.made += 1
        self.suffix_ranges = suffix_ranges
        self.objects = OBJECTS.setdefault(name, {})
        self.process = os.getpid()
        self.calls: list[str] = []
        self.uploads: list[HeldUpload] = []
        self.lost = 0  # bytes of the end of each write that the store forgets

    def _find(self, path: str) -> tuple[bytes, str]:
        assert self.process == os.getpid(), "a client used in another process than it was made in"
        if path not in self.objects:
            raise NotFoundError("no such object")
        data, version = self.objects[path]
        return data, f"v{version}"

    async def open(self, path: str, start: int, stop: int | None, *, etag: str | None = None) -> Body:
        self.calls.append("open")
        data, version = self._find(path)
        if etag is not None and etag != version:
            raise ChangedError("the object was replaced by another one")
        if start < 0:
            assert self.suffix_ranges
            start = max(0, len(data) + start)
        if start >= len(data) and (start or stop):
            raise StorageError("status 416")
        return HeldBody(data, start, len(data) if stop is None else min(stop, len(data)), version)

    async def head(self, path: str) -> Head:
        self.calls.append("head")
        data, version = self._find(path)
        return Head(len(data), version)

    async def list(self, prefix: str, after: str = "") -> AsyncIterator[list[ObjectMeta]]:
        self.calls.append("list")
        found = [
            ObjectMeta(path, len(data))
            for path, (data, _) in self.objects.items()
            if path.startswith(prefix) and path > after
        ]
        for meta in reversed(found):
            yield [meta]

    async def put(self, path: str, data: bytes | bytearray | memoryview) -> None:
        self.calls.append("put")
        self.objects[path] = bytes(data)[: len(data) - self.lost], self.objects.get(path, (b"", 0))[1] + 1

    async def upload(self, path: str) -> Upload:
        self.calls.append("upload")
        self.uploads.append(HeldUpload(self, path))
        return self.uploads[-1]

    async def delete(self, path: str) -> None:
        self.objects.pop(path, None)

    async def copy(self, path: str, target: str) -> None:
        await self.put(target, self._find(path)[0])


class HeldBody(Body):
    def __init__(self, data: bytes, start: int, stop: int, version: str) -> None:
        self.data, self.start, self.stop = data, start, stop
        self.head = Head(len(data), version)

    async def chunks(self, least: int) -> AsyncIterator[memoryview]:
        for at in range(self.start, self.stop, least):
            yield memoryview(self.data)[at : min(at + least, self.stop)]


class HeldUpload(Upload):
    def __init__(self, client: HeldClient, path: str) -> None:
        self.client, self.path = client, path
        self.parts: list[bytes] = []
        self.ended = ""
        self.error: Exception | None = None

    async def send(self, data: bytes) -> None:
        if self.error is not None:
            raise self.error
        self.parts.append(data)

    async def finish(self) -> None:
        self.ended = "finished"
        await self.client.put(self.path, b"".join(self.parts))

    async def abort(self) -> None:
        self.ended = "aborted"
