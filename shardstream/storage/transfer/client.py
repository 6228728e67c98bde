"""The contract between our transfers and the libraries that speak to stores.

A client makes *one attempt* at each request and says precisely what came of it; when to try again, where to go on and
when to give up is decided in one place for all of them (``transfer``). All coroutines run on the loop of ``loop``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator

from shardstream.errors import ChangedError
from shardstream.storage.base.policy import FaultKind
from shardstream.storage.base.store import Head, ObjectMeta


class Fault(Exception):
    """An attempt that failed in a way that the next one may not.

    Args:
        kind: What kind of failure, for the statistics.
        what: One sentence, without URL and without secrets.
        wait: Seconds that the server asks us to wait (``Retry-After``), where it does and the library shows it.
    """

    def __init__(self, kind: FaultKind, what: str, *, wait: float | None = None) -> None:
        super().__init__(what)
        self.kind = kind
        self.wait = wait

    def __str__(self) -> str:
        return super().__str__() + (f" (asked to wait {self.wait:g} s)" if self.wait else "")


def replaced() -> ChangedError:
    """The error for an object that is of another version than what was read of it, or is known of it."""
    return ChangedError("the object was replaced while in use", hint="open the data set anew")


def check_version(head: Head, etag: str | None) -> None:
    """Compare the version of an object with the one that it has to be of, where both are known.

    Raises:
        ChangedError: It is another one.
    """
    if etag is not None and head.etag is not None and head.etag != etag:
        raise replaced()


class Body(ABC):
    """The answer to one ranged request.

    Attributes:
        head: Size and version of the whole object.
        start: First byte that is sent.
        stop: The byte after the last one.
    """

    head: Head
    start: int
    stop: int

    @abstractmethod
    def chunks(self, least: int) -> AsyncIterator[memoryview]:
        """The bytes as they come, in pieces of at least ``least`` bytes (but the last): read-only, format ``B``.

        Raises:
            Fault: The connection broke, or nothing came for as long as the client's stall deadline.
        """


class Client(ABC):
    """One bucket, container or host, below a prefix. Made and used in one process only.

    Every coroutine raises `Fault` for what may pass (timeouts, resets, 408, 429, 5xx, throttling answers), and for
    what will not: NotFoundError (404, no such bucket), AccessError (401, 403, no credentials), StorageError (the rest).
    Messages hold no secret, no query of a signed URL, and no address; the caller adds the object's.

    Attributes:
        suffix_ranges: Whether the store can be asked for the last n bytes of an object of unknown size.
        lists_in_order: Whether it lists paths in the order of their bytes, so that a listing can go on behind one.
    """

    suffix_ranges: bool = True
    lists_in_order: bool = False

    @abstractmethod
    async def open(self, path: str, start: int, stop: int | None, *, etag: str | None = None) -> Body:
        """Ask for bytes ``[start, stop)``.

        Args:
            path: The object.
            start: First byte; negative: so many from the end, where `suffix_ranges`, with ``stop=None``.
            stop: The byte after the last; ``None``: to the end.
            etag: Answer only if this is still the object's version, where the store can be asked that.

        Raises:
            ChangedError: The object has another version.
        """

    @abstractmethod
    async def head(self, path: str) -> Head:
        """Size and version of an object."""

    @abstractmethod
    def list(self, prefix: str, after: str = "") -> AsyncIterator[list[ObjectMeta]]:
        """The objects whose path begins with ``prefix`` (any string, not a folder), page by page, in any order.

        Args:
            prefix: What paths begin with.
            after: Only those that come behind this one.
        """

    @abstractmethod
    async def put(self, path: str, data: bytes | bytearray | memoryview) -> None:
        """Write a whole object in one request."""

    @abstractmethod
    async def upload(self, path: str) -> Upload:
        """Begin a large object, sent in parts."""

    @abstractmethod
    async def delete(self, path: str) -> None:
        """Remove an object; nothing happens if there is none."""

    @abstractmethod
    async def copy(self, path: str, target: str) -> None:
        """Copy an object inside the store, replacing one of that name; not through this machine where avoidable."""

    @staticmethod  # noqa: B027 - for clients that are not Python's
    def settle() -> None:
        """Let go of what cancelled requests of such clients held. Called at exit, maybe many times; see ``loop``.

        Of no single client: that one would be kept for ever.
        """


class Upload(ABC):
    """A large object being sent: nothing is visible under its name before `finish`."""

    @abstractmethod
    async def send(self, data: bytes) -> None:
        """Take the next bytes (parts are several MiB but the last); returns once there is room for more."""

    @abstractmethod
    async def finish(self) -> None:
        """Wait for all parts and make the object visible."""

    @abstractmethod
    async def abort(self) -> None:
        """Drop the parts, as far as the store lets us."""
