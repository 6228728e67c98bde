"""A folder as a remote store: each read is written into a log that all processes share."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

from shardstream.errors import NotFoundError, StorageError
from shardstream.storage import ObjectMeta, ObjectWriter, Store
from shardstream.storage.local.store import LocalStore


class CountedStore(Store):
    """Reads of ``root``; ``delay`` seconds each."""

    def __init__(self, root: Path, log: Path, delay: float = 0.0) -> None:
        self.url = f"s3://bucket/{root.name}"
        self._root = root
        self._log = log
        self._delay = delay
        self._files = LocalStore(root)

    def fetched(self) -> int:
        """Bytes that were read, by all processes."""
        return sum(length for _, _, length in self.requests())

    def requests(self) -> list[tuple[str, int, int]]:
        """Path, offset and length of all reads."""
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        return [(path, int(offset), int(length)) for path, offset, length in (line.split("\t") for line in lines)]

    def forget(self) -> None:
        """Count from zero."""
        self._log.write_text("")

    def _note(self, path: str, offset: int, length: int) -> None:
        descriptor = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(descriptor, f"{path}\t{offset}\t{length}\n".encode())
        os.close(descriptor)

    async def read(self, path: str, offset: int, length: int | None, *, size: int | None = None) -> list[memoryview]:
        if length is None:
            length = self.size(path) - offset
        self._note(path, offset, length)
        await asyncio.sleep(self._delay)
        return self._pieces(path, offset, length, size)

    def _pieces(self, path: str, offset: int, length: int, size: int | None) -> list[memoryview]:
        try:
            with open(self._root / path, "rb") as file:
                found = os.fstat(file.fileno()).st_size
                if size not in (None, found):
                    raise StorageError("another size", url=self.locate(path))
                data = os.pread(file.fileno(), length, offset)
        except FileNotFoundError:
            raise NotFoundError("no such object", url=self.locate(path)) from None
        if len(data) != length or offset < 0 or length < 0:
            raise StorageError("past the end", url=self.locate(path), offset=offset)
        # Pieces that fit no block.
        view = memoryview(data)
        return [view[start : start + 300_001] for start in range(0, length, 300_001)]

    def get(self, path: str, offset: int = 0, length: int | None = None) -> memoryview:
        found = (self._root / path).read_bytes()
        end = len(found) if length is None else offset + length
        self._note(path, offset, end - offset)
        return memoryview(found)[offset:end]

    def get_tail(self, path: str, length: int) -> tuple[memoryview, int]:
        size = self.size(path)
        return self.get(path, max(0, size - length)), size

    def size(self, path: str) -> int:
        return self._files.size(path)

    def exists(self, path: str) -> bool:
        return self._files.exists(path)

    def list(self, prefix: str = "") -> Iterator[ObjectMeta]:
        return self._files.list(prefix)

    def create(self, path: str) -> ObjectWriter:
        return self._files.create(path)

    def delete(self, path: str) -> None:
        self._files.delete(path)

    def move(self, path: str, target: str) -> None:
        self._files.move(path, target)

    def sweep(self) -> None:
        self._files.sweep()
