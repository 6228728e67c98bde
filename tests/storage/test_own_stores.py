"""A store of one's own: what the contract has for it, and a store in front of another one."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Iterator

import numpy as np
import pytest

from shardstream.errors import NotFoundError, StorageError
from shardstream.storage import ObjectMeta, Request, RetryPolicy, Store, WrapperStore, fetch
from shardstream.storage.local.store import LocalStore
from shardstream.storage.transfer.loop import run
from shardstream.storage.transfer.remote import RemoteStore

DATA = bytes(range(256))


class ReadOnly(Store):
    """The least that a store has to have."""

    url = "memory://x"

    def get(self, path: str, offset: int = 0, length: int | None = None) -> memoryview:
        end = self.size(path) if length is None else offset + length
        return memoryview(DATA)[offset:end]

    def size(self, path: str) -> int:
        if path != "x":
            raise NotFoundError("no such object", url=self.locate(path))
        return len(DATA)

    def list(self, prefix: str = "") -> Iterator[ObjectMeta]:
        yield ObjectMeta("x", len(DATA))


class Kept(ReadOnly):
    """One that can be written as well."""

    def __init__(self, folder) -> None:
        self._files = LocalStore(folder)

    def create(self, path: str):
        return self._files.create(path)

    def delete(self, path: str) -> None:
        self._files.delete(path)


def test_get_size_and_list_make_a_store_that_can_be_read() -> None:
    store = ReadOnly()
    assert store.exists("x")
    assert not store.exists("y")
    assert store.get_tail("x", 9) == (DATA[-9:], 256)
    assert store.get_tail("x", 999) == (DATA, 256)
    assert store.get_tail("x", -1) == (b"", 256)
    assert store.whole("x") == (DATA, (256, None))
    assert [*store.pieces("x", 100)] == [DATA[:100], DATA[100:200], DATA[200:]]
    assert run(lambda: store.read("x", 7, 50, size=256), wait=60, what="a range") == [DATA[7:57]]
    found = fetch(store, lambda: [Request("x", 3, 5), Request("x", 90, 20)])
    assert [found.view("x", 3, 5), found.view("x", 100, 10)] == [DATA[3:8], DATA[100:110]]


def test_it_has_no_cache_no_versions_and_no_files() -> None:
    store, ranges = ReadOnly(), (np.array([0]), np.array([1]))
    assert not store.holds("x")
    assert not store.holds_ranges("x", *ranges)
    assert store.copies("x", *ranges) is None
    assert not store.repair("x", 0, 1)
    assert run(lambda: store.fill("x"), wait=60, what="nothing") == 0
    store.renew("x")
    assert not store.renewed("x")
    assert store.file_of("x") is None
    assert store.with_policy(RetryPolicy()) is store


@pytest.mark.parametrize(
    "writing", [("create", "y"), ("put", "y", b"1"), ("copy", "x", "y"), ("move", "x", "y"), ("delete", "x")]
)
def test_it_says_that_it_is_read_only(writing) -> None:
    name, *arguments = writing
    with pytest.raises(StorageError, match=r"read only.*memory://x"):
        getattr(ReadOnly(), name)(*arguments)


def test_create_and_delete_make_one_that_can_be_written(tmp_path) -> None:
    store = Kept(tmp_path)
    store.put("new", b"123")
    store.copy("x", "deep/copy")
    assert (tmp_path / "new").read_bytes() == b"123"
    assert (tmp_path / "deep/copy").read_bytes() == DATA
    store.move("x", "new")
    assert (tmp_path / "new").read_bytes() == DATA


def test_a_wrapper_passes_on_everything_there_is() -> None:
    asked = {name for name, _ in inspect.getmembers(Store, inspect.isfunction) if not name.startswith("_")}
    assert asked <= set(vars(WrapperStore))


def test_what_comes_through_a_wrapper_is_what_is_behind_it(tmp_path) -> None:
    (tmp_path / "x").write_bytes(DATA)
    behind, ranges = LocalStore(tmp_path), (np.array([0]), np.array([1]))
    store = pickle.loads(pickle.dumps(WrapperStore(behind)))
    assert (store.url, store.mapped) == (behind.url, True)
    assert store.get("x", 3, 4) == DATA[3:7]
    assert store.at_hand("x")
    assert store.views("x", np.array([9, 0]), np.array([2, 1])) == [DATA[9:11], DATA[:1]]
    assert store.get_tail("x", 2) == (DATA[-2:], 256)
    assert store.whole("x") == (DATA, (256, None))
    assert [*store.pieces("x", 200)] == [DATA[:200], DATA[200:]]
    assert run(lambda: store.read("x", 0, 9), wait=60, what="a range") == [DATA[:9]]
    assert store.size("x") == 256
    assert store.exists("x")
    assert not store.exists("y")
    assert [(meta.path, meta.size) for meta in store.list("x")] == [("x", 256)]
    assert store.file_of("x") == tmp_path / "x"
    assert store.locate("x") == str(tmp_path / "x")
    assert not store.holds("x")
    assert not store.holds_ranges("x", *ranges)
    assert store.copies("x", *ranges) is None
    assert not store.repair("x", 0, 1)
    assert run(lambda: store.fill("x"), wait=60, what="nothing") == 0
    store.release()
    store.renew("x")
    assert not store.renewed("x")
    store.put("y", b"1")
    store.copy("y", "z")
    store.move("z", "w")
    store.delete("y")
    with store.create("v") as out:
        out.write(b"2")
    store.sweep()
    assert [meta[:2] for meta in store.list()] == [("v", 1), ("w", 1), ("x", 256)]


def test_a_wrapper_has_the_patience_of_the_store_behind_it() -> None:
    remote = WrapperStore(RemoteStore("s3://bucket", lambda: None))
    hasty = remote.with_policy(RetryPolicy(deadline=1.0))
    assert (hasty.inner.policy.deadline, remote.inner.policy.deadline) == (1.0, 180.0)
    assert remote.with_policy(RetryPolicy()) is not remote
    assert (local := WrapperStore(ReadOnly())).with_policy(RetryPolicy()) is local
