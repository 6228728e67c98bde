"""Answers of no bytes: stores refuse to be asked for one, so the size is asked for instead."""

from __future__ import annotations

from collections.abc import AsyncIterator

from shardstream.errors import StorageError
from shardstream.storage.base.store import Head
from shardstream.storage.transfer.client import Body, Client, check_version


async def answer_without_bytes(client: Client, path: str, start: int, etag: str | None, *, asked: bool = False) -> Body:
    """The answer to a request for no bytes, or for a range that the server calls out of range.

    Args:
        client: Asks for the size.
        path: The object.
        start: First byte; negative: counted from the end.
        etag: The version that the object must have.
        asked: Whether a byte was asked for, so that there must be one.

    Raises:
        StorageError: The range is past the end.
        ChangedError: The object has another version.
    """
    head = await client.head(path)
    check_version(head, etag)
    if start > head.size or asked:
        raise StorageError(f"byte {start} is past the end of an object of {head.size} bytes", offset=start)
    return _NoBytes(head, head.size if start < 0 else start)


class _NoBytes(Body):
    def __init__(self, head: Head, at: int) -> None:
        self.head = head
        self.start = self.stop = at

    async def chunks(self, least: int) -> AsyncIterator[memoryview]:
        if self.stop > self.start:  # never
            yield memoryview(b"")
