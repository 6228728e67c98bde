"""The client of a `MemoryStore` with what tests of `RemoteStore` look at: its calls, its process, its uploads."""

from __future__ import annotations

import os

from shardstream.storage.transfer.client import Upload
from shardstream.testing.faults import FaultName, FaultRule, StoreRequest
from shardstream.testing.memory import MemoryClient, MemoryUpload, Shelf

OBJECTS: dict[str, dict[str, tuple[bytes, int]]] = {}
"""Of each store, by its name: content and version of its objects."""

HeldUpload = MemoryUpload


class HeldClient(MemoryClient):
    """Reads and writes `OBJECTS`.

    Args:
        name: Of the store.
        suffix_ranges: See `Client`.
    """

    made = 0

    def __init__(self, name: str, suffix_ranges: bool = True) -> None:
        HeldClient.made += 1
        super().__init__(Shelf(name, OBJECTS.setdefault(name, {})), suffix_ranges)
        self.process = os.getpid()
        self.calls: list[str] = []
        self.uploads: list[MemoryUpload] = []
        self.lost = 0  # bytes of the end of each write that the store forgets

    async def _ask(self, request: StoreRequest) -> dict[FaultName, FaultRule]:
        assert self.process == os.getpid(), "a client used in another process than it was made in"
        assert self.suffix_ranges or request.start >= 0
        self.calls.append(request.kind)
        return await super()._ask(request)

    async def put(self, path: str, data: bytes | bytearray | memoryview) -> None:
        await super().put(path, bytes(data)[: len(data) - self.lost])

    async def upload(self, path: str) -> Upload:
        self.uploads.append(MemoryUpload(self, path))
        await self._ask(StoreRequest("upload", path))
        return self.uploads[-1]
