"""Objects that are placeholders, told by the first bytes in their store."""

from __future__ import annotations

from shardstream.errors import PlaceholderError
from shardstream.placeholders import PLACEHOLDER_START, find_placeholder
from shardstream.storage.base.store import Store


def placeholder_in(store: Store, path: str, size: int, *, offset: int | None = None) -> PlaceholderError | None:
    """The error for an object that is a placeholder; ``None`` if its first bytes are none.

    Args:
        store: Where the object lies.
        path: The object.
        size: Its size in bytes.
        offset: The place in the object that the error names. Default: none.
    """
    start = store.get(path, 0, min(PLACEHOLDER_START, size))
    return find_placeholder(start, url=store.locate(path), offset=offset)
