"""A listing that breaks off between two pages goes on, and nothing is listed twice or left out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardstream.errors import StorageError
from shardstream.storage import ObjectMeta, RetryPolicy, open_store
from shardstream.storage.transfer.client import Fault
from shardstream.storage.transfer.remote import RemoteStore

from .faults import FaultProxy
from .held import HeldClient

SOON = RetryPolicy(first=0.0001, cap=0.0001)


class Breaking(HeldClient):
    """Lists ``pages`` in an order of their own; a page whose turn comes at one of ``breaks`` fails."""

    def __init__(self, pages: list[list[ObjectMeta]], breaks: set[int], *, ordered: bool = True) -> None:
        super().__init__("breaking")
        self.lists_in_order = ordered
        self.pages, self.breaks, self.turn = pages, breaks, 0
        self.after: list[str] = []

    async def list(self, prefix: str, after: str = "") -> AsyncIterator[list[ObjectMeta]]:
        self.after.append(after)
        for page in self.pages:
            self.turn += 1
            if self.turn in self.breaks:
                raise Fault("connection", "reset")
            yield [meta for meta in page if meta.path.startswith(prefix) and meta.path > after]


def listed(client: HeldClient, prefix: str = "") -> list[ObjectMeta]:
    return list(RemoteStore("held://breaking", lambda: client, policy=SOON).list(prefix))


@given(
    names=st.lists(st.text("ab/é\U0001f600", min_size=1), unique=True),
    page=st.integers(1, 4),
    breaks=st.sets(st.integers(1, 30), max_size=8),
    ordered=st.booleans(),
)
def test_all_are_listed_once_and_in_order(names, page, breaks, ordered) -> None:
    if ordered:
        names = sorted(names)
    metas = [ObjectMeta(name, len(name)) for name in names]
    pages = [metas[start : start + page] for start in range(0, len(metas), page)]
    for prefix in ("", "a"):
        expected = sorted(meta for meta in metas if meta.path.startswith(prefix))
        assert listed(Breaking(pages, breaks, ordered=ordered), prefix) == expected


def test_stores_that_list_in_order_are_asked_for_the_rest() -> None:
    pages = [[ObjectMeta(f"{number:04}", 1)] for number in range(10)]
    client = Breaking(pages, {4, 6})
    assert len(listed(client)) == 10
    assert client.after == ["", "0002", "0002"]  # what is skipped comes as empty pages here, of which the second fails


def test_other_stores_are_asked_for_all_of_it_again() -> None:
    pages = [[ObjectMeta(f"{number:04}", 1)] for number in reversed(range(10))]
    for claims in (False, True):
        client = Breaking(pages, {4}, ordered=claims)
        assert len(listed(client)) == 10
        assert client.after == ["", ""]


def test_a_store_that_never_lists_is_given_up() -> None:
    client = Breaking([[ObjectMeta("x", 1)]], set(range(1000)))
    store = RemoteStore("held://breaking", lambda: client, policy=RetryPolicy(first=0.001, cap=0.001, contact=0.1))
    with pytest.raises(StorageError, match="gave up listing"):
        list(store.list())


@pytest.mark.full
def test_pages_of_a_real_store_that_fail_are_asked_for_again(s3, s3_server) -> None:
    """A thousand objects a page. What has come is not asked for a second time."""
    names = [f"deep/{number:05}" for number in range(2100)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: s3.plant(name, b"12345"), names))
    with FaultProxy(s3_server[0].removeprefix("http://")) as proxy:
        store = open_store(s3.url(), storage_options=s3.options | {"endpoint": proxy.url})
        proxy.add("status", status=503, method="GET", match="list-type=2", skip=1, times=1)
        proxy.reset_counts()
        assert [(meta.path, meta.size) for meta in store.list("deep/")] == [(name, 5) for name in names]
        assert proxy.hits("status") == 1
        assert proxy.requests == 4
