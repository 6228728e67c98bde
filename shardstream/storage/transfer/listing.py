"""A listing of any length, page by page: one that breaks off goes on behind what has come."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import chain, pairwise

from shardstream.storage.base.store import ObjectMeta
from shardstream.storage.transfer.client import Client


class Listing:
    """The objects below a prefix. On the loop only.

    Args:
        prefix: What paths begin with.

    Attributes:
        from_start: Whether the last page is the first one, be it again: stores that do not list in order can only be
            asked for all of it again, so what came before is void.
    """

    def __init__(self, prefix: str) -> None:
        self.from_start = True
        self._prefix = prefix
        self._pages: AsyncIterator[list[ObjectMeta]] | None = None
        self._ordered = False
        self._last = ""  # as long as all have come in order

    async def page(self, client: Client) -> list[ObjectMeta] | None:
        """The next page, ``None`` behind the last. If it fails, call it again.

        Raises:
            Fault, StorageError: As the client.
        """
        self.from_start = self._pages is None and not self._last
        if self._pages is None:
            self._pages = client.list(self._prefix, self._last)
            self._ordered = client.lists_in_order
        try:
            page = await anext(self._pages, None)
        except BaseException:
            self._pages = None
            raise
        if page:
            paths = [meta.path for meta in page]
            self._ordered &= all(one < other for one, other in pairwise(chain((self._last,), paths)))
            self._last = paths[-1] if self._ordered else ""
        return page
