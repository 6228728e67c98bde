"""The contract through which all bytes pass. `shardstream.testing.StoreConformance` holds every store to it."""

from __future__ import annotations

import asyncio
import os
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import numpy as np
import xxhash
from numpy.typing import NDArray

from shardstream.errors import NotFoundError, StorageError
from shardstream.storage.base.held import HeldObject
from shardstream.storage.base.policy import RetryPolicy

_PIECE = 8 << 20  # of an object that is copied through this machine


class ObjectMeta(NamedTuple):
    """An object in a listing.

    Attributes:
        path: Its path below the store's root.
        size: Its size in bytes.
        version: A number of 64 bits that changes when the object is replaced: of its ETag, or when its file was last
            written; 0 where the store says neither.
    """

    path: str
    size: int
    version: int = 0


def version_number(version: object) -> int:
    """`ObjectMeta.version` of what a store calls the version of an object; ``None`` where it has none."""
    # Some stores quote an ETag in a header, and do not in a listing.
    return 0 if version is None else xxhash.xxh3_64_intdigest(str(version).removeprefix("W/").strip('"').encode())


class FileState(NamedTuple):
    """Which file is mapped, and what it was like then; all times in ns since 1970.

    A file that is written to in place has other times, and one that is replaced by renaming is another file.

    Attributes:
        device: The file system.
        inode: The file, whatever its name means later.
        size: Its size in bytes.
        modified: When it was last written to; writers may set it back.
        changed: When anything of it was last changed, its rights and links included; nobody can set it.
    """

    device: int
    inode: int
    size: int
    modified: int
    changed: int

    @classmethod
    def of(cls, info: os.stat_result) -> FileState:
        """The state of a file."""
        return cls(info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)


class Head(NamedTuple):
    """What a store says of an object: its size in bytes, and its version (``None`` where the store has none)."""

    size: int
    etag: str | None


class Request(NamedTuple):
    """A byte range of an object that somebody wants: ``length=None`` means up to its end."""

    path: str
    offset: int
    length: int | None


def past_the_end(offset: int, length: int | None, size: int) -> StorageError:
    """The error for a range that is not inside an object of ``size`` bytes."""
    asked = f"bytes from {offset} on" if length is None else f"bytes [{offset}, {offset + length})"
    return StorageError(
        f"{asked} reach past the end of an object of {size} bytes",
        offset=offset,
        hint="it is truncated, or was replaced while in use: `shardstream verify` finds out",
    )


class ObjectWriter(ABC):
    """An object being written: all of it appears under its name at once, or nothing does.

    A context manager: leaving the block normally commits, leaving it by an exception discards.
    """

    @abstractmethod
    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append ``data``."""

    @abstractmethod
    def tell(self) -> int:
        """Bytes written so far."""

    @abstractmethod
    def commit(self) -> None:
        """Make the object durable and visible; replaces one of the same name."""

    @abstractmethod
    def discard(self) -> None:
        """Drop what was written. Does nothing after `commit`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.commit()
        else:
            self.discard()


class Store(ABC):
    """A tree of objects below one URL. Paths are relative, with ``/``.

    All that readers and writers ask of a store stands here, so that none of them asks what kind of store it is. A store
    that can be read has `get`, `size` and `list`; one that can be written has `create` and `delete` as well. What else
    it can do better than by these it does in methods of its own: many reads at once (`read`), copies inside the
    store (`copy`), reads out of a cache (`holds`, `copies`, `held`, `repair`, `fill`).

    Stores are cheap to make and to pickle, and safe to carry over a fork: whatever holds a connection or a mapping is
    opened in the process that uses it. Threads share them.

    Attributes:
        url: The root, without credentials, as errors and logs show it.
        mapped: Whether any part of an object is addressable without reading it first, so that ranges need no planning.
    """

    url: str
    mapped: bool = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    # ------------------------------------------------------------------------------------------------------ reading

    @abstractmethod
    def get(self, path: str, offset: int = 0, length: int | None = None) -> memoryview:
        """Bytes ``[offset, offset + length)`` of an object, or up to its end: a read-only buffer.

        Raises:
            NotFoundError: No such object.
            StorageError: The range is not inside the object, or reading failed.
        """

    @abstractmethod
    def size(self, path: str) -> int:
        """Size of an object in bytes; NotFoundError if there is none."""

    def meta(self, path: str) -> ObjectMeta:
        """What a listing says of an object, asked for it alone; NotFoundError if there is none."""
        return ObjectMeta(path, self.size(path))

    def exists(self, path: str) -> bool:
        """Whether there is an object of this name."""
        try:
            self.size(path)
        except NotFoundError:
            return False
        return True

    def at_hand(self, path: str) -> bool:
        """Whether nothing is won by reading ranges of an object before they are used."""
        return self.mapped

    def views(self, path: str, offsets: NDArray[np.int64], lengths: NDArray[np.int64]) -> Sequence[memoryview]:
        """Many ranges of an object that is `at_hand`; raises as `get`."""
        whole = self.get(path)
        ends = offsets + lengths
        if len(ends) and int(ends.max()) > len(whole):  # raises with the offset
            return [self.get(path, *one) for one in zip(offsets.tolist(), lengths.tolist(), strict=True)]
        return [whole[start:end] for start, end in zip(offsets.tolist(), ends.tolist(), strict=True)]

    def get_tail(self, path: str, length: int) -> tuple[memoryview, int]:
        """The last ``length`` bytes of an object (all of it, if shorter) and its size, in one request if possible.

        Raises:
            NotFoundError: No such object.
            StorageError: Reading failed.
        """
        size = self.size(path)
        length = min(max(length, 0), size)
        return self.get(path, size - length, length), size

    def whole(self, path: str) -> tuple[memoryview, Head]:
        """An object as it is now, with its size and version.

        Raises:
            NotFoundError: No such object.
            StorageError: Reading failed.
        """
        data = self.get(path)
        return data, Head(len(data), None)

    def get_small(self, path: str, most: int) -> memoryview | int:
        """All of an object, or its size if it has more than ``most`` bytes: nothing is read of it then.

        In one request if possible, of which the answer says the size before any byte comes.

        Raises:
            NotFoundError: No such object.
            StorageError: Reading failed.
        """
        size = self.size(path)
        return size if size > most else self.get(path)

    def pieces(self, path: str, size: int) -> Iterator[bytes]:
        """All bytes of an object, ``size`` of them at a time.

        Raises:
            NotFoundError: No such object.
            StorageError: Reading failed.
        """
        end = self.size(path)
        for offset in range(0, end, size):
            yield bytes(self.get(path, offset, min(size, end - offset)))

    async def read(self, path: str, offset: int, length: int | None, *, size: int | None = None) -> list[memoryview]:
        """Bytes ``[offset, offset + length)`` of an object, in read-only pieces that follow one another.

        A coroutine of the loop of ``loop``, on which a process has many reads on their way at once. Failures that may
        pass were retried. By default `get` is called in a thread.

        Args:
            path: The object.
            offset: First byte.
            length: Number of bytes; ``None``: up to the end.
            size: Size of the object, where it is known; one of another size is refused by stores that learn of it.

        Raises:
            NotFoundError: No such object.
            StorageError: The range is not inside the object, or reading failed for good. ChangedError: The object is
                another one than it was; see `renew`.
        """
        return [await asyncio.to_thread(self.get, path, offset, length)]

    async def stream(self, path: str, take: Callable[[int, memoryview], Awaitable[None]], *, size: int) -> None:
        """Hand over all bytes of an object in order, in pieces, without asking for a range; a coroutine as `read`.

        Args:
            path: The object.
            take: Called with the offset of each piece and its bytes. After a failure that may pass, the object begins
                again at offset 0.
            size: The size that the object has to have.

        Raises:
            NotFoundError, StorageError: As `read`.
        """
        for offset in range(0, size, _PIECE):
            await take(offset, await asyncio.to_thread(self.get, path, offset, min(_PIECE, size - offset)))

    async def read_newer(self, path: str, *, than: int = 0) -> tuple[list[memoryview] | None, int]:
        """All of an object as it is now, where its version is another one than a reader knows; a coroutine as `read`.

        Args:
            path: The object.
            than: `ObjectMeta.version` that the reader knows; 0 for none.

        Returns:
            The bytes, ``None`` where the version is the known one; and the version, 0 where the store has none.

        Raises:
            NotFoundError, StorageError: As `read`.
        """
        version = (await asyncio.to_thread(self.meta, path)).version  # before its bytes: they may be newer, never older
        if than and version == than:
            return None, version
        return await self.read(path, 0, None), version

    def renew(self, path: str) -> None:  # noqa: B027 - not all stores have versions
        """Take the present version of an object for the right one: once for each object, then nothing happens any more.

        For readers that have checksums of what they read: an object that is written again with the same bytes, by a
        sync or a change of its tier, is another version. Stores without versions have nothing to do.

        Raises:
            NotFoundError: No such object.
            StorageError: It cannot be asked.
        """

    def renewed(self, path: str) -> bool:
        """Whether `renew` took another version of an object for the right one."""
        return False

    def touched(self, path: str) -> tuple[FileState, FileState] | None:
        """The state of a mapped object's file when it was mapped, or accepted, and now; ``None`` if they are equal.

        A file that was replaced by renaming is not touched: the mapping still shows the old one.

        Raises:
            ChangedError: The file was cut, so that parts of the mapping cannot be read any more.
        """
        return None

    def accept(self, path: str, state: FileState) -> None:  # noqa: B027 - most stores map nothing
        """Take the state that `touched` found for the right one, after what was verified was verified again."""

    def with_policy(self, policy: RetryPolicy) -> Store:
        """The same store with other patience; one that makes no request again is returned as it is."""
        return self

    def of_versions(self, versions: Callable[[str], int]) -> Store:
        """The same store for a reader who knows which versions the objects have: others are refused as `ChangedError`.

        A store that remembers versions of what it has read begins anew; one without versions is returned as it is.

        Args:
            versions: `ObjectMeta.version` of an object; 0 where any is right.
        """
        return self

    def decompressed_at_once(
        self, path: str, offsets: NDArray[np.int64], lengths: NDArray[np.int64]
    ) -> NDArray[np.int64] | None:
        """How many bytes have to be decompressed as a whole to read each range; ``None`` if nothing has.

        Args:
            path: The object.
            offsets: Where ranges begin, in the object as it is read.
            lengths: Their lengths in bytes.
        """
        return None

    # ----------------------------------------------------------------------------- what a cache has; others have none

    def holds(self, path: str) -> bool:
        """Whether a cache holds all of an object, verified by this process."""
        return False

    def holds_ranges(self, path: str, offsets: NDArray[np.int64], lengths: NDArray[np.int64]) -> bool:
        """Whether a cache holds all that these ranges touch, verified by this process.

        Args:
            path: The object.
            offsets: Where ranges begin; not negative.
            lengths: Their lengths in bytes; not negative. Those that reach past the object are not held.
        """
        return False

    def copies(self, path: str, offsets: NDArray[np.int64], lengths: NDArray[np.int64]) -> list[memoryview] | None:
        """Copies of these ranges, if a cache holds them all; nothing is fetched. ``None`` if not.

        Args:
            path: The object.
            offsets: Where ranges begin; not negative.
            lengths: Their lengths in bytes; not negative.
        """
        return None

    def held(self, path: str) -> HeldObject | None:
        """All of an object, where a cache has all of it, to copy values of many objects at once from; else ``None``."""
        return None

    def repair(self, path: str, offset: int, length: int) -> bool:
        """Say that the bytes of a range are wrong, so that a cache drops what it holds of them.

        Returns:
            Whether anything was dropped, so that reading the range again may help.
        """
        return False

    async def fill(self, path: str) -> int | None:
        """See that a cache holds all of an object; a coroutine of the loop of ``loop``.

        Returns:
            Bytes that it did not hold before; ``None`` where it has no room for the object, or cannot be written.

        Raises:
            NotFoundError: No such object.
            StorageError: Fetching failed for good.
        """
        return 0

    def release(self) -> None:  # noqa: B027 - most stores are not caches
        """Let go of the cache in this process, so that it may be cleared. The next use opens it again."""

    # ------------------------------------------------------------------------------------------------------- names

    @abstractmethod
    def list(self, prefix: str = "") -> Iterator[ObjectMeta]:
        """All objects whose path begins with ``prefix``, in order of path; objects still being written are left out."""

    def file_of(self, path: str) -> Path | None:
        """The file of this machine that an object is, or would be; ``None`` where objects are not files.

        Raises:
            UsageError: It would not lie below the root.
        """
        return None

    def locate(self, path: str) -> str:
        """The full URL of an object, for messages."""
        return f"{self.url}/{path}" if path else self.url

    # ------------------------------------------------------------------------------------------------------ writing

    def create(self, path: str) -> ObjectWriter:
        """Begin an object, see `ObjectWriter`.

        Raises:
            StorageError: This store is read only.
        """
        raise self._read_only(path)

    def delete(self, path: str) -> None:
        """Remove an object; nothing happens if there is none.

        Raises:
            StorageError: This store is read only.
        """
        raise self._read_only(path)

    def put(self, path: str, data: bytes | bytearray | memoryview) -> None:
        """Write a whole object at once, atomically."""
        with self.create(path) as writer:
            writer.write(data)

    def copy(self, path: str, target: str) -> None:
        """Copy an object inside the store, replacing one of the new name; not through this machine where avoidable.

        Raises:
            NotFoundError: No such object.
        """
        with self.create(target) as writer:
            for piece in self.pieces(path, _PIECE):
                writer.write(piece)

    def move(self, path: str, target: str) -> None:
        """Rename an object, replacing one of the new name; in one step where the store can.

        By default it is copied and then deleted: a reader may see both for a moment.

        Raises:
            NotFoundError: No such object.
        """
        self.copy(path, target)
        self.delete(path)

    def sweep(self) -> None:  # noqa: B027 - what is half-written is invisible, or somebody else is writing it
        """Remove what writers that died left half-written; objects being written now are left alone."""

    def _read_only(self, path: str) -> StorageError:
        return StorageError("this store is read only", url=self.locate(path))
