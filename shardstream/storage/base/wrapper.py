"""Stores in front of another one: ``WrapperStore``, ``FolderStore``."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from shardstream.storage.base.held import HeldObject
from shardstream.storage.base.policy import RetryPolicy
from shardstream.storage.base.store import FileState, Head, ObjectMeta, ObjectWriter, Store


class WrapperStore(Store):
    """Passes on whatever is asked of it, so that a store in front of another one has only what it does otherwise.

    Bytes are read by `get`, `get_tail`, `whole`, `pieces`, `read`, `copies` and `held`: a wrapper that changes or
    counts them overrides all of these, and sets ``mapped`` to false if readers shall plan their reads.

    Args:
        inner: The store behind this one.

        >>> class SlowStore(WrapperStore):
        ...     def get(self, path, offset=0, length=None):
        ...         time.sleep(0.05)
        ...         return self.inner.get(path, offset, length)
    """

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.url = inner.url
        self.mapped = inner.mapped

    def get(self, path: str, offset: int = 0, length: int | None = None) -> memoryview:
        return self.inner.get(path, offset, length)

    # By `get`, `size`, `read` and ``mapped`` of this one, which may be others than those of the store behind it.
    at_hand, views, read_newer, get_small = Store.at_hand, Store.views, Store.read_newer, Store.get_small

    def size(self, path: str) -> int:
        return self.inner.size(path)

    def meta(self, path: str) -> ObjectMeta:
        return self.inner.meta(path)

    def exists(self, path: str) -> bool:
        return self.inner.exists(path)

    def get_tail(self, path: str, length: int) -> tuple[memoryview, int]:
        return self.inner.get_tail(path, length)

    def whole(self, path: str) -> tuple[memoryview, Head]:
        return self.inner.whole(path)

    def pieces(self, path: str, size: int) -> Iterator[bytes]:
        return self.inner.pieces(path, size)

    async def read(self, path: str, offset: int, length: int | None, *, size: int | None = None) -> list[memoryview]:
        return await self.inner.read(path, offset, length, size=size)

    async def stream(self, path: str, take: Callable[[int, memoryview], Awaitable[None]], *, size: int) -> None:
        await self.inner.stream(path, take, size=size)

    def renew(self, path: str) -> None:
        self.inner.renew(path)

    def renewed(self, path: str) -> bool:
        return self.inner.renewed(path)

    def touched(self, path: str) -> tuple[FileState, FileState] | None:
        return self.inner.touched(path)

    def accept(self, path: str, state: FileState) -> None:
        self.inner.accept(path, state)

    def decompressed_at_once(
        self, path: str, offsets: NDArray[np.int64], lengths: NDArray[np.int64]
    ) -> NDArray[np.int64] | None:
        return self.inner.decompressed_at_once(path, offsets, lengths)

    def with_policy(self, policy: RetryPolicy) -> Self:
        return self._before(self.inner.with_policy(policy))

    def of_versions(self, versions: Callable[[str], int]) -> Self:
        return self._before(self.inner.of_versions(versions))

    def _before(self, inner: Store) -> Self:
        """This store in front of another one."""
        if inner is self.inner:
            return self
        other = copy.copy(self)
        other.inner = inner
        return other

    def holds(self, path: str) -> bool:
        return self.inner.holds(path)

    def holds_ranges(self, path: str, offsets: NDArray[np.int64], lengths: NDArray[np.int64]) -> bool:
        return self.inner.holds_ranges(path, offsets, lengths)

    def copies(self, path: str, offsets: NDArray[np.int64], lengths: NDArray[np.int64]) -> list[memoryview] | None:
        return self.inner.copies(path, offsets, lengths)

    def held(self, path: str) -> HeldObject | None:
        return self.inner.held(path)

    def repair(self, path: str, offset: int, length: int) -> bool:
        return self.inner.repair(path, offset, length)

    async def fill(self, path: str) -> int | None:
        return await self.inner.fill(path)

    def release(self) -> None:
        self.inner.release()

    def list(self, prefix: str = "") -> Iterator[ObjectMeta]:
        return self.inner.list(prefix)

    def file_of(self, path: str) -> Path | None:
        return self.inner.file_of(path)

    def locate(self, path: str) -> str:
        return self.inner.locate(path)

    def create(self, path: str) -> ObjectWriter:
        return self.inner.create(path)

    def delete(self, path: str) -> None:
        self.inner.delete(path)

    def put(self, path: str, data: bytes | bytearray | memoryview) -> None:
        self.inner.put(path, data)

    def copy(self, path: str, target: str) -> None:
        self.inner.copy(path, target)

    def move(self, path: str, target: str) -> None:
        self.inner.move(path, target)

    def sweep(self) -> None:
        self.inner.sweep()


class FolderStore(Store):
    """What lies below a folder of a store, as a store of its own.

    Args:
        inner: The store.
        folder: Path of the folder there.
    """

    def __init__(self, inner: Store, folder: str) -> None:
        self.inner = inner
        self.folder = folder.strip("/")
        self.url = inner.locate(self.folder)
        self.mapped = inner.mapped

    def _path(self, path: str) -> str:
        return f"{self.folder}/{path}"

    def get(self, path: str, offset: int = 0, length: int | None = None) -> memoryview:
        return self.inner.get(self._path(path), offset, length)

    async def read(self, path: str, offset: int, length: int | None, *, size: int | None = None) -> list[memoryview]:
        return await self.inner.read(self._path(path), offset, length, size=size)

    def touched(self, path: str) -> tuple[FileState, FileState] | None:
        return self.inner.touched(self._path(path))

    def accept(self, path: str, state: FileState) -> None:
        self.inner.accept(self._path(path), state)

    def size(self, path: str) -> int:
        return self.inner.size(self._path(path))

    def meta(self, path: str) -> ObjectMeta:
        return self.inner.meta(self._path(path))._replace(path=path)

    def list(self, prefix: str = "") -> Iterator[ObjectMeta]:
        cut = len(self.folder) + 1
        return (meta._replace(path=meta.path[cut:]) for meta in self.inner.list(self._path(prefix)))

    def create(self, path: str) -> ObjectWriter:
        return self.inner.create(self._path(path))

    def delete(self, path: str) -> None:
        self.inner.delete(self._path(path))
