"""The contract through which all bytes pass. One backend a file; every backend passes ``tests/storage/contract.py``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from types import TracebackType
from typing import NamedTuple, Self


class ObjectMeta(NamedTuple):
    """An object in a listing: its path below the store's root, and its size in bytes."""

    path: str
    size: int


class Request(NamedTuple):
    """A byte range of an object that somebody wants: ``length=None`` means up to its end."""

    path: str
    offset: int
    length: int | None


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

    Stores are cheap to make and to pickle, and safe to carry over a fork: whatever holds a connection or a mapping is
    opened in the process that uses it.

    Attributes:
        url: The root, without credentials, as errors and logs show it.
        mapped: Whether any part of an object is addressable without reading it first, so that ranges need no planning.
    """

    url: str
    mapped: bool = False

    @abstractmethod
    def get(self, path: str, offset: int = 0, length: int | None = None) -> memoryview:
        """Bytes ``[offset, offset + length)`` of an object, or up to its end: a read-only buffer.

        Raises:
            NotFoundError: No such object.
            StorageError: The range is not inside the object, or reading failed.
        """

    @abstractmethod
    def get_tail(self, path: str, length: int) -> tuple[memoryview, int]:
        """The last ``length`` bytes of an object (all of it, if shorter) and its size, in one request.

        Raises:
            NotFoundError: No such object.
            StorageError: Reading failed.
        """

    @abstractmethod
    def size(self, path: str) -> int:
        """Size of an object in bytes; NotFoundError if there is none."""

    @abstractmethod
    def exists(self, path: str) -> bool:
        """Whether there is an object of this name."""

    @abstractmethod
    def list(self, prefix: str = "") -> Iterator[ObjectMeta]:
        """All objects whose path begins with ``prefix``, in order of path; objects still being written are left out."""

    @abstractmethod
    def create(self, path: str) -> ObjectWriter:
        """Begin an object, see `ObjectWriter`."""

    @abstractmethod
    def delete(self, path: str) -> None:
        """Remove an object; nothing happens if there is none."""

    @abstractmethod
    def move(self, path: str, target: str) -> None:
        """Rename an object, replacing one of the new name; in one step where the store can.

        Raises:
            NotFoundError: No such object.
        """

    @abstractmethod
    def sweep(self) -> None:
        """Remove what writers that died left half-written; objects being written now are left alone."""

    def put(self, path: str, data: bytes | bytearray | memoryview) -> None:
        """Write a whole object at once, atomically."""
        with self.create(path) as writer:
            writer.write(data)

    def locate(self, path: str) -> str:
        """The full URL of an object, for messages."""
        return f"{self.url}/{path}" if path else self.url


class AsyncStore(Store):
    """A store that many ranges can be asked of at once, by coroutines on the loop of ``loop``."""

    @abstractmethod
    async def read(self, path: str, offset: int, length: int, *, size: int | None = None) -> list[memoryview]:
        """Bytes ``[offset, offset + length)`` of an object, in read-only pieces that follow one another.

        Failures that may pass were retried.

        Args:
            path: The object.
            offset: First byte.
            length: Number of bytes.
            size: Size of the object, where it is known; one of another size is refused.

        Raises:
            NotFoundError: No such object.
            StorageError: The range is not inside the object, or reading failed for good. ChangedError: The object is
                another one than it was; see `renew`.
        """

    def renew(self, path: str) -> None:
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
