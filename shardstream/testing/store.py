"""What every store has to hold."""

from __future__ import annotations

import os
import pickle
from typing import Any

import numpy as np

from shardstream.errors import NotFoundError, StorageError, UsageError
from shardstream.storage import FetchedBuffers, MappedBuffers, ObjectMeta, Request, Store, fetch
from shardstream.storage.transfer.loop import run
from shardstream.testing.asserting import check, check_equal, expect

_TEN = b"0123456789"
_RANGES: tuple[tuple[int, int | None, bytes], ...] = (
    (0, None, _TEN), (0, 10, _TEN), (3, 4, b"3456"), (7, None, b"789"),
    (10, None, b""), (10, 0, b""), (0, 0, b""), (9, 1, b"9"),
)  # fmt: skip
_OUTSIDE: tuple[tuple[int, int | None], ...] = (
    (0, 11), (11, None), (11, 0), (10, 1), (-1, 2), (5, -1), (5, 1 << 62),
)  # fmt: skip
_LEADING_OUT = ("../x", "/etc/hostname", "a/../../x", "a\0b")
_NAMES = ("a b", "é", "#?%20", "a..b", "…/日本.tar")
_ENDED = "an exception inside `with store.create(...)`"


class ReadOnlyStoreConformance:
    """What every `Store` has to hold, read-only ones too, as test methods; subclass it as ``Test...``.

    `plant` goes around the store, so that a broken write cannot hide a broken read.

    Attributes:
        missing: Paths that are not there when the one object is ``folder/x``. A web server, where a folder may be a
            page, has fewer of them.

    Example:
        >>> from shardstream.testing import MemoryStore
        >>> class TestMemory(ReadOnlyStoreConformance):
        ...     def make_store(self):
        ...         self.made = MemoryStore()
        ...         return self.made
        ...     def plant(self, path, data):
        ...         self.made.plant(path, data)
    """

    missing: tuple[str, ...] = ("y", "folder", "folder/y", "folder/x/y")

    # ---------------------------------------------------------------------------------------------------- to override

    def make_store(self) -> Store:
        """The store, empty. Called once in each test, before anything else."""
        raise NotImplementedError(f"{type(self).__name__} must override make_store()")

    def plant(self, path: str, data: bytes) -> None:
        """Put an object into what the store reads, without the store: replace one of that name."""
        raise NotImplementedError(f"{type(self).__name__} must override plant(path, data)")

    # -------------------------------------------------------------------------------------------------------- reading

    def test_get_gives_the_range(self) -> None:
        """A read-only buffer of bytes: of the range, or up to the end."""
        store = self.make_store()
        self.plant("a/b.bin", _TEN)
        for offset, length, expected in _RANGES:
            what = f"get('a/b.bin', {offset}, {length})"
            found = store.get("a/b.bin", offset, length)
            check(isinstance(found, memoryview), f"{what} must return a memoryview, got {type(found).__name__}")
            check(found.readonly, f"{what} must return a read-only buffer")
            check_equal(found.format, "B", f"the format of {what}")
            check_equal(bytes(found), expected, what)

    def test_get_refuses_ranges_outside_with_url_and_offset(self) -> None:
        """A StorageError, and not that there is no such object."""
        store = self.make_store()
        self.plant("x", _TEN)
        for offset, length in _OUTSIDE:
            what = f"get('x', {offset}, {length}) of 10 bytes"
            error = expect(StorageError, what, store.get, "x", offset, length)
            check(not isinstance(error, NotFoundError), f"{what} must not raise NotFoundError: there is such an object")
            check_equal(error.place.get("url"), store.locate("x"), f"url in the place of the error of {what}")
            check_equal(error.place.get("offset"), offset, f"offset in the place of the error of {what}")

    def test_any_range_is_the_truth(self) -> None:
        """Ranges of a larger object, from each way to read them."""
        store = self.make_store()
        size = 300_001
        data = np.random.default_rng(0).bytes(size)
        self.plant("x", data)
        ends = np.random.default_rng(1).integers(0, size, (12, 2), endpoint=True).tolist()
        for one, other in [*ends, (0, size), (0, 0), (size, size), (0, 1), (size - 1, size)]:
            self.check_range(store, data, *sorted((one, other)))

    def check_range(self, store: Store, data: bytes, start: int, stop: int) -> None:
        """Read bytes ``[start, stop)`` of the object ``x``, whose content is ``data``, in each way that there is."""
        size = len(data)
        check_equal(bytes(store.get("x", start, stop - start)), data[start:stop], f"bytes [{start}, {stop})")
        check_equal(bytes(store.get("x", start)), data[start:], f"bytes from {start} on")
        tail, found = store.get_tail("x", stop)
        check_equal(bytes(tail), data[size - stop :], f"the last {stop} bytes")
        check_equal(found, size, "the size that get_tail gives")
        pieces = run(lambda: store.read("x", start, stop - start, size=size), wait=60, what="a range")
        check_equal(b"".join(pieces), data[start:stop], f"read of bytes [{start}, {stop})")
        for known in (size, None):
            pieces = run(lambda: store.read("x", start, None, size=known), wait=60, what="the rest")  # noqa: B023
            check_equal(b"".join(pieces), data[start:], f"read of bytes from {start} on")

    def test_an_object_comes_whole_and_in_pieces(self) -> None:
        """As readers of manifests and copies take it."""
        store = self.make_store()
        self.plant("x", _TEN)
        data, head = store.whole("x")
        check_equal((bytes(data), head.size), (_TEN, 10), "whole('x')")
        for size in (1, 3, 10, 99):
            pieces = list(store.pieces("x", size))
            check_equal(b"".join(pieces), _TEN, f"pieces('x', {size}), joined,")
            check(max(map(len, pieces)) <= size, f"pieces('x', {size}) must have at most {size} bytes each")

    def test_what_is_newer_is_read_whole(self) -> None:
        """Nothing comes of a version that is known; a store without versions says 0."""
        store = self.make_store()
        self.plant("x", _TEN)

        def newer(than: int) -> tuple[bytes | None, int]:
            pieces, version = run(lambda: store.read_newer("x", than=than), wait=60, what="an object")
            return None if pieces is None else b"".join(pieces), version

        data, version = newer(0)
        check_equal(data, _TEN, "read_newer('x')")
        check_equal(newer(version), (None if version else _TEN, version), f"read_newer('x', than={version})")
        check_equal(newer(1), (_TEN, version), "read_newer('x', than=1), which is another version,")

    def test_get_tail_gives_the_end_and_the_size(self) -> None:
        """The last bytes, or all of a shorter object."""
        store = self.make_store()
        self.plant("x", _TEN)
        for length in (0, 1, 9, 10, 11, 1 << 40):
            tail, size = store.get_tail("x", length)
            check_equal(size, 10, f"the size that get_tail('x', {length}) gives")
            check_equal(bytes(tail), _TEN[max(0, 10 - length) :], f"get_tail('x', {length})")
            check(tail.readonly, f"get_tail('x', {length}) must return a read-only buffer")

    def test_get_small_gives_all_or_the_size(self) -> None:
        """All bytes of an object that is small enough, the size of any other."""
        store = self.make_store()
        self.plant("x", _TEN)
        for most in (10, 11, 1 << 40):
            data = store.get_small("x", most)
            check(isinstance(data, memoryview), f"get_small('x', {most}) must return a buffer")
            check_equal(bytes(data), _TEN, f"get_small('x', {most})")
        check_equal(store.get_small("x", 9), 10, "get_small('x', 9), which is the size of the object,")

    def test_empty_objects_are_objects(self) -> None:
        """An object without a byte is there, and has no byte to give."""
        store = self.make_store()
        self.plant("x", b"")
        check_equal(bytes(store.get("x")), b"", "get of an empty object")
        tail, size = store.get_tail("x", 5)
        check_equal((bytes(tail), size), (b"", 0), "get_tail of an empty object")
        check_equal(store.size("x"), 0, "size of an empty object")
        check_equal(store.exists("x"), True, "exists of an empty object")
        expect(StorageError, "get('x', 0, 1) of an empty object", store.get, "x", 0, 1)

    def test_what_is_not_there_is_not_found(self) -> None:
        """NotFoundError with the URL, for names that are not objects: folders too."""
        store = self.make_store()
        self.plant("folder/x", b"1")
        for path in self.missing:
            check_equal(store.exists(path), False, f"exists({path!r}), which is not there,")
            for name, ask in _readers(store):
                what = f"{name}({path!r}), which is not there,"
                error = expect(NotFoundError, what, ask, path)
                check_equal(error.place.get("url"), store.locate(path), f"url in the place of the error of {what}")

    def test_no_path_leads_out(self) -> None:
        """Names come from manifests, which may be hostile: UsageError."""
        store = self.make_store()
        for path in _LEADING_OUT:
            for name, ask in _readers(store):
                expect(UsageError, f"{name}({path!r})", ask, path)

    def test_names_of_any_kind(self) -> None:
        """Blanks, other scripts, and what URLs and patterns give a meaning."""
        store = self.make_store()
        for name in _NAMES:
            self.plant(name, name.encode())
            check_equal(bytes(store.get(name)), name.encode(), f"get({name!r})")
            check_equal(store.size(name), len(name.encode()), f"size({name!r})")

    # ------------------------------------------------------------------------------------------------ life of a store

    def test_pickles_small_and_works_on(self) -> None:
        """It goes to worker processes, in every pickled data set."""
        store = self.make_store()
        self.plant("x", b"123")
        store.get("x")
        text = pickle.dumps(store)
        check(len(text) < 4096, f"a store must pickle to fewer than 4,096 bytes, got {len(text)}")
        other = pickle.loads(text)  # noqa: S301 - made a line above
        check_equal(other.url, store.url, "url of a store that went through a pickle")
        check_equal(bytes(other.get("x")), b"123", "get of a store that went through a pickle")

    def test_works_on_after_a_fork(self) -> None:
        """What holds a connection is opened in the process that uses it; buffers stay."""
        store = self.make_store()
        self.plant("x", b"123")
        self.plant("y", b"456")
        held = store.get("x")
        child = os.fork()
        if not child:
            good = False
            try:
                good = bytes(store.get("x")) + bytes(store.get("y")) + bytes(held) == b"123456123"
            finally:
                os._exit(0 if good else 1)
        check_equal(os.waitpid(child, 0)[1], 0, "the exit status of a forked process that reads")
        check_equal(bytes(held), b"123", "a buffer that was read before the fork")

    def test_locate(self) -> None:
        """The URL of an object, for messages."""
        store = self.make_store()
        check_equal(store.locate(""), store.url, "locate('')")
        check_equal(store.locate("a/b"), f"{store.url}/a/b", "locate('a/b')")

    def test_a_plan_is_fetched_or_mapped(self) -> None:
        """What readers do with it: ``mapped`` says whether ranges need no reading beforehand."""
        store = self.make_store()
        self.plant("x", _TEN)
        buffers = fetch(store, lambda: [Request("x", 2, 3)])
        check_equal(type(buffers), MappedBuffers if store.mapped else FetchedBuffers, "the kind of its buffers")
        check_equal(bytes(buffers.view("x", 2, 3)), b"234", "a range of its buffers")


class StoreConformance(ReadOnlyStoreConformance):
    """What every `Store` that can be written to has to hold, as test methods; subclass it as ``Test...``.

    `plant` and `dig` go around the store, so that a broken write cannot hide a broken read.

    Example:
        >>> from shardstream.testing import MemoryStore
        >>> class TestMemory(StoreConformance):
        ...     def make_store(self):
        ...         self.made = MemoryStore()
        ...         return self.made
        ...     def plant(self, path, data):
        ...         self.made.plant(path, data)
        ...     def dig(self, path):
        ...         return self.made.dig(path)
    """

    def dig(self, path: str) -> bytes | None:
        """The bytes of an object in what the store writes to, without the store; ``None`` where there is none."""
        raise NotImplementedError(f"{type(self).__name__} must override dig(path)")

    def _check_listed(self, store: Store, expected: list[str], when: str) -> None:
        check_equal([meta.path for meta in store.list()], expected, f"what list gives {when}")

    def test_nothing_is_written_outside(self) -> None:
        """Names that lead out of the store: UsageError."""
        store = self.make_store()
        asks: tuple[tuple[str, Any], ...] = (
            ("create", store.create),
            ("delete", store.delete),
            ("put", lambda path: store.put(path, b"")),
        )
        for path in _LEADING_OUT:
            for name, ask in asks:
                expect(UsageError, f"{name}({path!r})", ask, path)

    def test_names_of_any_kind_are_written_and_listed(self) -> None:
        """Blanks, other scripts, and what URLs and patterns give a meaning."""
        store = self.make_store()
        for name in _NAMES:
            store.put(name, name.encode())
            check_equal(self.dig(name), name.encode(), f"what put({name!r}, ...) wrote")
        check_equal({meta.path for meta in store.list()}, set(_NAMES), "what list gives")

    def test_list_is_sorted_recursive_and_by_prefix(self) -> None:
        """In the order of the names' bytes; a prefix is any string, not a folder."""
        store = self.make_store()
        self._check_listed(store, [], "of an empty store")
        for path in ("b/2", "a", "b/10", "b.x", "b/c/d"):
            self.plant(path, path.encode())
        self._check_listed(store, ["a", "b.x", "b/10", "b/2", "b/c/d"], "of all")
        below = [ObjectMeta("b/10", 4), ObjectMeta("b/2", 3), ObjectMeta("b/c/d", 5)]
        check_equal([ObjectMeta(*meta[:2]) for meta in store.list("b/")], below, "list('b/')")
        check_equal([meta.path for meta in store.list("b/1")], ["b/10"], "list('b/1')")
        check_equal(list(store.list("none")), [], "list('none')")

    # -------------------------------------------------------------------------------------------------------- writing

    def test_put_writes_the_whole_object(self) -> None:
        """Of any size, from any buffer of bytes."""
        store = self.make_store()
        buffers: tuple[bytes | bytearray | memoryview, ...] = (b"", b"abc", bytearray(3 << 20), memoryview(b"xyz")[1:])
        for number, data in enumerate(buffers):
            store.put(f"deep/er/{number}", data)
            check_equal(self.dig(f"deep/er/{number}"), bytes(data), f"what put wrote of a {type(data).__name__}")

    def test_nothing_shows_before_the_commit(self) -> None:
        """All of an object appears at once."""
        store = self.make_store()
        with store.create("x") as out:
            for part in (b"ab", memoryview(b"cd"), bytearray(b"ef")):
                out.write(part)
            check_equal(out.tell(), 6, "tell() after 6 bytes")
            check_equal(self.dig("x"), None, "what is there before the commit")
            check_equal(store.exists("x"), False, "exists before the commit")
            self._check_listed(store, [], "before the commit")
        check_equal(self.dig("x"), b"abcdef", "what is there after the commit")
        self._check_listed(store, ["x"], "after the commit")

    def test_tell_counts_bytes_not_elements(self) -> None:
        """A buffer of wider elements is as many bytes as it is."""
        store = self.make_store()
        with store.create("x") as out:
            out.write(memoryview(b"abcdefgh").cast("Q"))
            check_equal(out.tell(), 8, "tell() after a buffer of one element of 8 bytes")
        check_equal(self.dig("x"), b"abcdefgh", "what was written")

    def test_an_exception_leaves_nothing_behind(self) -> None:
        """An object that was not committed is not there, and an old one of its name is."""
        store = self.make_store()
        store.put("x", b"old")

        def interrupted() -> None:
            with store.create("x") as out:
                out.write(b"new")
                raise ZeroDivisionError

        expect(ZeroDivisionError, "what is raised inside `with store.create(...)`", interrupted)
        check_equal(self.dig("x"), b"old", f"what is there after {_ENDED}")
        check_equal(bytes(store.get("x")), b"old", f"get after {_ENDED}")
        store.sweep()
        self._check_listed(store, ["x"], f"after {_ENDED} and a sweep")

    def test_discard_after_commit_does_nothing(self) -> None:
        """As writers end in error paths."""
        store = self.make_store()
        out = store.create("x")
        out.write(b"1")
        out.commit()
        out.discard()
        check_equal(self.dig("x"), b"1", "what is there after a commit and a discard")

    def test_replacing_shows_the_new_and_keeps_old_buffers(self) -> None:
        """A buffer holds what it held when it was read."""
        store = self.make_store()
        self.plant("x", b"old content")
        before = store.get("x", 4)
        store.put("x", b"n")
        check_equal(bytes(before), b"content", "a buffer that was read before the object was replaced")
        check_equal(bytes(store.get("x")), b"n", "get after the object was replaced")
        check_equal(store.size("x"), 1, "size after the object was replaced")

    def test_delete(self) -> None:
        """Deleting what is not there is no error."""
        store = self.make_store()
        self.plant("x", b"1")
        store.get("x")
        store.delete("x")
        store.delete("x")
        check_equal(self.dig("x"), None, "what is there after delete")
        check_equal(store.exists("x"), False, "exists after delete")
        expect(NotFoundError, "get after delete", store.get, "x")

    def test_move_renames_and_replaces(self) -> None:
        """The old name is gone, and what the new one held."""
        store = self.make_store()
        self.plant("a", b"new")
        self.plant("b", b"old")
        held = store.get("b")
        store.get("a")
        store.move("a", "b")
        check_equal((self.dig("a"), self.dig("b")), (None, b"new"), "what is under the old and the new name")
        check_equal(bytes(store.get("b")), b"new", "get of the new name")
        check_equal(bytes(held), b"old", "a buffer that was read before the object was replaced")
        expect(NotFoundError, "get of the old name", store.get, "a")
        expect(NotFoundError, "move of what is not there", store.move, "a", "b")

    def test_copy_leaves_the_old_and_replaces_the_new(self) -> None:
        """Both names then hold the same."""
        store = self.make_store()
        self.plant("a", b"new")
        self.plant("b", b"old")
        store.copy("a", "b")
        check_equal((self.dig("a"), self.dig("b")), (b"new", b"new"), "what is under both names after copy('a', 'b')")
        expect(NotFoundError, "copy of what is not there", store.copy, "none", "c")
        check_equal(self.dig("c"), None, "what is under the new name after a copy of what is not there")

    def test_sweep_spares_what_is_being_written(self) -> None:
        """Sweeping removes what dead writers left, and nothing else."""
        store = self.make_store()
        with store.create("x") as out:
            out.write(b"1")
            store.sweep()
        check_equal(self.dig("x"), b"1", "what is there after a sweep while it was written")


def _readers(store: Store) -> tuple[tuple[str, Any], ...]:
    return (
        ("get", store.get),
        ("size", store.size),
        ("get_tail", lambda path: store.get_tail(path, 1)),
        ("get_small", lambda path: store.get_small(path, 1)),
    )
