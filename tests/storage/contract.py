"""What every store has to hold. Subclass `StoreContract` and say how objects get there without the store under test."""

from __future__ import annotations

import os
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardstream.errors import NotFoundError, StorageError, UsageError
from shardstream.storage import FetchedBuffers, MappedBuffers, ObjectMeta, Request, Store, fetch, open_store
from shardstream.storage.base.location import Transport
from shardstream.storage.transfer.loop import run

from .places import Place


class ReadingContract:
    """What holds for every store, read-only ones too.

    The subclass gives the fixtures ``store`` (empty), ``plant`` (path, bytes) and ``dig`` (path -> bytes or None).

    ``plant`` and ``dig`` go around the store, so that a broken write cannot hide a broken read. For a store behind a
    network the one fixture ``place`` gives all three, see ``places``.
    """

    transport: Transport = "auto"
    missing = ("y", "folder", "folder/y", "folder/x/y")

    @pytest.fixture
    def place(self) -> Place:
        raise NotImplementedError

    @pytest.fixture
    def store(self, place) -> Store:
        return open_store(place.url(), storage_options=place.options, transport=self.transport)

    @pytest.fixture
    def plant(self, place):
        return place.plant

    @pytest.fixture
    def dig(self, place):
        return place.dig

    # ------------------------------------------------------------------------------------------------------ reading

    @pytest.mark.parametrize(
        ("offset", "length", "expected"),
        [
            (0, None, b"0123456789"),
            (0, 10, b"0123456789"),
            (3, 4, b"3456"),
            (7, None, b"789"),
            (10, None, b""),
            (10, 0, b""),
            (0, 0, b""),
            (9, 1, b"9"),
        ],
    )
    def test_get_gives_the_range(self, store, plant, offset, length, expected) -> None:
        plant("a/b.bin", b"0123456789")
        found = store.get("a/b.bin", offset, length)
        assert isinstance(found, memoryview)
        assert found.readonly
        assert found.format == "B"
        assert bytes(found) == expected

    @pytest.mark.parametrize(
        ("offset", "length"), [(0, 11), (11, None), (11, 0), (10, 1), (-1, 2), (5, -1), (5, 1 << 62)]
    )
    def test_get_refuses_ranges_outside_with_url_and_offset(self, store, plant, offset, length) -> None:
        plant("x", b"0123456789")
        with pytest.raises(StorageError) as caught:
            store.get("x", offset, length)
        assert not isinstance(caught.value, NotFoundError)
        assert caught.value.place["url"] == store.locate("x")
        assert caught.value.place["offset"] == offset

    def test_any_range_is_the_truth(self, store, plant) -> None:
        size = 300_001
        data = np.random.default_rng(0).bytes(size)
        plant("x", data)

        @settings(max_examples=12)
        @given(st.integers(0, size), st.integers(0, size))
        def check(start: int, stop: int) -> None:
            start, stop = sorted((start, stop))
            assert store.get("x", start, stop - start) == data[start:stop]
            assert store.get("x", start) == data[start:]
            assert store.get_tail("x", stop) == (data[size - stop :], size)
            pieces = run(lambda: store.read("x", start, stop - start, size=size), wait=60, what="a range")
            assert b"".join(pieces) == data[start:stop]

        check()

    @pytest.mark.parametrize("length", [0, 1, 9, 10, 11, 1 << 40])
    def test_get_tail_gives_the_end_and_the_size(self, store, plant, length) -> None:
        plant("x", b"0123456789")
        tail, size = store.get_tail("x", length)
        assert size == 10
        assert bytes(tail) == b"0123456789"[max(0, 10 - length) :]
        assert tail.readonly

    def test_empty_objects_are_objects(self, store, plant) -> None:
        plant("x", b"")
        assert bytes(store.get("x")) == b""
        assert store.get_tail("x", 5) == (b"", 0)
        assert store.size("x") == 0
        assert store.exists("x")
        with pytest.raises(StorageError):
            store.get("x", 0, 1)

    def test_what_is_not_there_is_not_found(self, store, plant) -> None:
        plant("folder/x", b"1")
        for path in self.missing:
            assert not store.exists(path)
            for ask in (store.get, store.size, lambda path: store.get_tail(path, 1)):
                with pytest.raises(NotFoundError) as caught:
                    ask(path)
                assert caught.value.place["url"] == store.locate(path)

    @pytest.mark.parametrize("path", ["../x", "/etc/hostname", "a/../../x", "a\0b"])
    def test_no_path_leads_out(self, store, path) -> None:
        for ask in (store.get, store.size, lambda path: store.get_tail(path, 1)):
            with pytest.raises(UsageError):
                ask(path)

    def test_names_of_any_kind(self, store, plant) -> None:
        for name in ("a b", "é", "#?%20", "a..b", "…/日本.tar"):
            plant(name, name.encode())
            assert bytes(store.get(name)) == name.encode()
            assert store.size(name) == len(name.encode())

    # --------------------------------------------------------------------------------------------- life of a store

    def test_pickles_small_and_works_on(self, store, plant) -> None:
        plant("x", b"123")
        store.get("x")
        text = pickle.dumps(store)
        assert len(text) < 4096
        other = pickle.loads(text)
        assert other.url == store.url
        assert bytes(other.get("x")) == b"123"

    def test_works_on_after_a_fork(self, store, plant) -> None:
        plant("x", b"123")
        plant("y", b"456")
        held = store.get("x")
        child = os.fork()
        if not child:
            good = bytes(store.get("x")) + bytes(store.get("y")) + bytes(held) == b"123456123"
            os._exit(0 if good else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert bytes(held) == b"123"

    def test_locate(self, store) -> None:
        assert store.locate("") == store.url
        assert store.locate("a/b") == f"{store.url}/a/b"

    def test_a_plan_is_fetched_or_mapped(self, store, plant) -> None:
        plant("x", b"0123456789")
        buffers = fetch(store, lambda: [Request("x", 2, 3)])
        assert isinstance(buffers, MappedBuffers if store.mapped else FetchedBuffers)
        assert bytes(buffers.view("x", 2, 3)) == b"234"


class StoreContract(ReadingContract):
    """What holds for every store that can be written to."""

    @pytest.mark.parametrize("path", ["../x", "/etc/hostname", "a/../../x", "a\0b"])
    def test_nothing_is_written_outside(self, store, path) -> None:
        for ask in (store.create, store.delete, lambda path: store.put(path, b"")):
            with pytest.raises(UsageError):
                ask(path)

    def test_names_of_any_kind_are_written_and_listed(self, store, dig) -> None:
        names = ("a b", "é", "#?%20", "a..b", "…/日本.tar")
        for name in names:
            store.put(name, name.encode())
            assert dig(name) == name.encode()
        assert {meta.path for meta in store.list()} == set(names)

    def test_list_is_sorted_recursive_and_by_prefix(self, store, plant) -> None:
        assert list(store.list()) == []
        for path in ("b/2", "a", "b/10", "b.x", "b/c/d"):
            plant(path, path.encode())
        assert [meta.path for meta in store.list()] == ["a", "b.x", "b/10", "b/2", "b/c/d"]
        assert list(store.list("b/")) == [ObjectMeta("b/10", 4), ObjectMeta("b/2", 3), ObjectMeta("b/c/d", 5)]
        assert [meta.path for meta in store.list("b/1")] == ["b/10"]
        assert list(store.list("none")) == []

    # ------------------------------------------------------------------------------------------------------ writing

    @pytest.mark.parametrize("data", [b"", b"abc", bytearray(3 << 20), memoryview(b"xyz")[1:]])
    def test_put_writes_the_whole_object(self, store, dig, data) -> None:
        store.put("deep/er/x", data)
        assert dig("deep/er/x") == bytes(data)

    def test_nothing_shows_before_the_commit(self, store, dig) -> None:
        with store.create("x") as out:
            for part in (b"ab", memoryview(b"cd"), bytearray(b"ef")):
                out.write(part)
            assert out.tell() == 6
            assert dig("x") is None
            assert not store.exists("x")
            assert list(store.list()) == []
        assert dig("x") == b"abcdef"
        assert [meta.path for meta in store.list()] == ["x"]

    def test_tell_counts_bytes_not_elements(self, store, dig) -> None:
        with store.create("x") as out:
            out.write(memoryview(b"abcdefgh").cast("Q"))
            assert out.tell() == 8
        assert dig("x") == b"abcdefgh"

    def test_an_exception_leaves_nothing_behind(self, store, dig) -> None:
        store.put("x", b"old")
        with pytest.raises(ZeroDivisionError), store.create("x") as out:  # noqa: PT012 - the block is what is tested
            out.write(b"new")
            raise ZeroDivisionError
        assert dig("x") == b"old"
        assert bytes(store.get("x")) == b"old"
        store.sweep()
        assert [meta.path for meta in store.list()] == ["x"]

    def test_discard_after_commit_does_nothing(self, store, dig) -> None:
        out = store.create("x")
        out.write(b"1")
        out.commit()
        out.discard()
        assert dig("x") == b"1"

    def test_replacing_shows_the_new_and_keeps_old_buffers(self, store, plant) -> None:
        plant("x", b"old content")
        before = store.get("x", 4)
        store.put("x", b"n")
        assert bytes(before) == b"content"
        assert bytes(store.get("x")) == b"n"
        assert store.size("x") == 1

    def test_delete(self, store, plant, dig) -> None:
        plant("x", b"1")
        store.get("x")
        store.delete("x")
        store.delete("x")
        assert dig("x") is None
        assert not store.exists("x")
        with pytest.raises(NotFoundError):
            store.get("x")

    def test_move_renames_and_replaces(self, store, plant, dig) -> None:
        plant("a", b"new")
        plant("b", b"old")
        held = store.get("b")
        store.get("a")
        store.move("a", "b")
        assert (dig("a"), dig("b")) == (None, b"new")
        assert bytes(store.get("b")) == b"new"
        assert bytes(held) == b"old"
        with pytest.raises(NotFoundError):
            store.get("a")
        with pytest.raises(NotFoundError):
            store.move("a", "b")

    def test_sweep_spares_what_is_being_written(self, store, dig) -> None:
        with store.create("x") as out:
            out.write(b"1")
            store.sweep()
        assert dig("x") == b"1"
