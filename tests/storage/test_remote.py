"""What a remote store does by itself, whatever client it has. Real servers are in `test_faults` and `test_stores`."""

from __future__ import annotations

import asyncio
import functools
import gc
import os
import pickle
import sys
import threading
import uuid
import warnings
import weakref

import pytest

from shardstream.errors import ChangedError, NotFoundError, StorageError, UsageError
from shardstream.storage import Head, RetryPolicy, counters, open_store
from shardstream.storage.base.location import with_transport
from shardstream.storage.transfer.client import Fault
from shardstream.storage.transfer.loop import run
from shardstream.storage.transfer.remote import PART, RemoteStore
from shardstream.testing import StoreConformance

from .held import OBJECTS, HeldClient, HeldUpload


class TestRemoteStore(StoreConformance):
    suffix_ranges = True

    def make_store(self):
        self.name = uuid.uuid4().hex
        return RemoteStore(f"held://{self.name}", functools.partial(HeldClient, self.name, self.suffix_ranges))

    def plant(self, path, data):
        held = OBJECTS.setdefault(self.name, {})
        held[path] = (bytes(data), held.get(path, (b"", 0))[1] + 1)

    def dig(self, path):
        return OBJECTS.get(self.name, {}).get(path, (None, 0))[0]


class TestRemoteStoreWithoutSuffixRanges(TestRemoteStore):
    suffix_ranges = False


@pytest.fixture
def name():
    name = uuid.uuid4().hex
    OBJECTS[name] = {}
    yield name
    del OBJECTS[name]


@pytest.fixture
def store(name):
    return RemoteStore(f"held://{name}", functools.partial(HeldClient, name))


@pytest.fixture
def held(name):
    return OBJECTS[name]


def client(store: RemoteStore) -> HeldClient:
    async def its_own() -> HeldClient:
        found = store._client()
        assert isinstance(found, HeldClient)
        return found

    return run(its_own, wait=30, what="the client")


# ------------------------------------------------------------------------------------------------------------ clients


def test_a_client_is_made_with_the_first_request_and_once_a_process(store, held) -> None:
    before = HeldClient.made
    held["x"] = (b"0123456789", 1)
    twin = pickle.loads(pickle.dumps(store))
    assert HeldClient.made == before
    assert (store.get("x"), store.size("x"), store.exists("y")) == (b"0123456789", 10, False)
    assert HeldClient.made == before + 1
    child = os.fork()
    if not child:
        good = store.get("x") == b"0123456789"  # the client itself checks its process
        os._exit(0 if good and HeldClient.made == before + 2 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert twin.get("x") == b"0123456789"
    assert HeldClient.made == before + 2


def test_a_store_with_other_patience_shares_the_client(store, held) -> None:
    held["x"] = (b"0123456789", 1)
    hasty = store.with_policy(RetryPolicy(deadline=1))
    assert hasty.policy.deadline == 1
    assert client(hasty) is client(store)
    assert pickle.loads(pickle.dumps(hasty)).policy.deadline == 1
    assert store.policy.deadline == 180


def test_its_repr_shows_the_url_alone() -> None:
    made = functools.partial(HeldClient, "hidden-secret")
    assert repr(RemoteStore("s3://b/x", made)) == "RemoteStore('s3://b/x')"


class Interrupt:
    """Ctrl-C at one moment of what the calling thread does in the modules of stores.

    Handlers of signals are called where a function begins and where a call into C has returned.
    """

    def __init__(self, step: int) -> None:
        self.left = step

    def __enter__(self) -> Interrupt:
        sys.setprofile(self._step)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _step(self, frame, event, _argument):
        if event in {"call", "c_return"} and frame.f_globals["__name__"].startswith("shardstream.storage."):
            self.left -= 1
            if not self.left:
                raise KeyboardInterrupt


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "act",
    [
        lambda store: store.whole("x"),
        lambda store: store.get_tail("x", 5),
        lambda store: list(store.list()),
        lambda store: store.put("y", b"0"),
        lambda store: store.copy("x", "y"),
        lambda store: store.delete("x"),
    ],
    ids=["whole", "get_tail", "list", "put", "copy", "delete"],
)
def test_an_interrupt_leaves_no_work_that_was_never_begun(store, held, act) -> None:
    """Such a coroutine is told of at the end of the program, in the middle of what the user is to read."""
    assert client(store)  # the loop runs
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for step in range(1, 10_000):
            held["x"] = (b"0123456789", 1)
            try:
                with Interrupt(step):
                    act(store)
                break
            except KeyboardInterrupt:
                pass
        gc.collect()
    assert step > 10
    assert not told


# ------------------------------------------------------------------------------------------------------------ reading


def test_ranges_are_read_in_pieces_without_a_copy(store, held) -> None:
    data = bytes(range(256)) * 40_000
    held["x"] = (data, 1)
    pieces = run(lambda: store.read("x", 100, 9_000_000, size=len(data)), wait=30, what="the test")
    assert b"".join(pieces) == data[100:9_000_100]
    assert len(pieces) > 1
    assert all(piece.obj is data and piece.readonly for piece in pieces)
    assert run(lambda: store.read("x", 5, 0), wait=30, what="the test") == []


def test_every_read_costs_one_request(store, held) -> None:
    held["x"] = (b"0123456789", 1)
    store.get("x")
    store.get("x", 3, 4)
    store.get("x", 3)
    store.get_tail("x", 3)
    assert client(store).calls == ["open"] * 4


@pytest.mark.parametrize(("offset", "length"), [(-1, 5), (0, 11), (9, 2), (10, 1), (3, -1)])
def test_ranges_outside_are_refused_with_their_place(store, held, offset, length) -> None:
    held["x"] = (b"0123456789", 1)
    with pytest.raises(StorageError) as caught:
        run(lambda: store.read("x", offset, length), wait=30, what="the test")
    assert caught.value.place["url"] == store.locate("x")


def test_an_object_of_another_size_than_known_is_refused(store, held) -> None:
    held["x"] = (b"0123456789", 1)
    with pytest.raises(ChangedError, match="holds 10 bytes, not 11"):
        run(lambda: store.read("x", 0, 5, size=11), wait=30, what="the test")


@pytest.mark.parametrize("path", ["../x", "/etc/hostname", "a/../../x", "a\0b", ""])
def test_no_name_leads_out(store, path) -> None:
    with pytest.raises(UsageError):
        run(lambda: store.read(path, 0, 5), wait=30, what="the test")
    for ask in (store.head, store.whole, lambda path: store.move("x", path), lambda path: store.get_tail(path, 1)):
        with pytest.raises(UsageError):
            ask(path)


def test_the_version_of_an_object_is_kept(store, held) -> None:
    held["x"] = (b"0123456789", 1)
    store.get_tail("x", 3)
    held["x"] = (b"abcdefghij", 2)
    for ask in (lambda: store.get("x", 1, 3), lambda: store.get("x", 1), lambda: store.get_tail("x", 3)):
        with pytest.raises(ChangedError) as caught:
            ask()
        assert caught.value.place["url"] == store.locate("x")
    assert store.whole("x") == (b"abcdefghij", (10, "v2"))
    assert store.get("x", 1, 3) == b"bcd"
    held["x"] = (b"KLMNOPQRST", 3)
    store.forget("x")
    assert store.get("x", 1, 3) == b"LMN"


def test_only_so_many_versions_are_kept(store, held, monkeypatch) -> None:
    monkeypatch.setattr("shardstream.storage.transfer.remote._VERSIONS", 3)
    for number in range(5):
        held[str(number)] = (b"0123456789", 1)
        store.get(str(number), 1, 2)
    assert list(store._own().versions) == ["2", "3", "4"]


# ------------------------------------------------------------------------------------------------------------ writing


def test_small_objects_take_one_request_and_large_ones_parts(store, held) -> None:
    for length, calls in ((0, ["put"]), (PART, ["put"]), (PART + 1, ["upload", "put"]), (3 * PART, ["upload", "put"])):
        data = os.urandom(length)
        made = client(store)
        made.calls.clear()
        with store.create("x") as out:
            for start in range(0, length, 1_000_003):
                out.write(memoryview(data)[start : start + 1_000_003])
            assert out.tell() == length
        assert held["x"][0] == data
        assert made.calls == [*calls, "head"]
        assert all(len(part) <= PART for upload in made.uploads for part in upload.parts)


def test_what_was_given_up_is_aborted(store, held) -> None:
    out = store.create("x")
    out.write(bytes(3 * PART))
    out.discard()
    assert held == {}
    assert [upload.ended for upload in client(store).uploads] in (["aborted"], [])


@pytest.mark.parametrize("error", [Fault("connection", "reset"), NotFoundError("no such bucket")])
def test_a_part_that_fails_fails_the_write_with_the_url(store, held, error, monkeypatch) -> None:
    async def fails(self: HeldUpload, data: bytes) -> None:
        raise error

    monkeypatch.setattr(HeldUpload, "send", fails)
    with pytest.raises(StorageError) as caught, store.create("x") as out:  # noqa: PT012 - any of them may raise
        for _ in range(20):
            out.write(bytes(PART))
    assert caught.value.place["url"] == store.locate("x")
    assert held == {}
    assert [upload.ended for upload in client(store).uploads] == ["aborted"]


@pytest.mark.parametrize("length", [100, PART + 100])
def test_a_store_that_loses_bytes_is_found_out(store, length) -> None:
    client(store).lost = 1
    with pytest.raises(StorageError, match=f"holds {length - 1} bytes of {length}") as caught, store.create("x") as out:
        out.write(bytes(length))
    assert caught.value.place["url"] == store.locate("x")


def test_few_parts_wait_however_fast_they_are_written(store, monkeypatch) -> None:
    """The writer waits rather than take more memory: here nothing is ever taken from it."""
    begun = []

    async def slow(self: HeldUpload, data: bytes) -> None:
        begun.append(data)
        await self.client.gate.wait()
        self.parts.append(data)

    monkeypatch.setattr(HeldUpload, "send", slow)
    made = client(store)
    made.gate = asyncio.Event()
    out = store.create("x")
    written = []

    def writes() -> None:
        for number in range(12):
            out.write(bytes([number]) * PART)
            written.append(number)

    async def opens() -> None:
        made.gate.set()

    thread = threading.Thread(target=writes)
    thread.start()
    thread.join(0.5)
    assert thread.is_alive()
    assert len(written) <= 5
    run(opens, wait=30, what="the test")
    thread.join(60)
    out.commit()
    assert b"".join(made.uploads[0].parts) == b"".join(bytes([number]) * PART for number in range(12))


def test_what_passed_is_counted(store, held) -> None:
    before = counters().snapshot()
    store.put("x", bytes(1000))
    store.get("x", 10, 100)
    store.size("x")
    spent = counters().since(before)
    assert (spent["requests"], spent["bytes"], spent["sent"]) == (3, 100, 1000)


# ------------------------------------------------------------------------------------------------- written again


def test_another_version_is_taken_once_for_each_object(store, held) -> None:
    held["x"] = held["y"] = (b"0123456789", 1)
    store.get("x", 0, 3)
    store.get("y", 0, 3)
    held["x"] = (b"0123456789", 2)
    with pytest.raises(ChangedError):
        store.get("x", 0, 3)
    assert not store.renewed("x")
    store.renew("x")
    assert (store.renewed("x"), store.renewed("y")) == (True, False)
    assert store.get("x", 0, 3) == b"012"
    held["x"] = (b"0123456789", 3)
    store.renew("x")
    with pytest.raises(ChangedError):
        store.get("x", 0, 3)
    del held["y"]
    with pytest.raises(NotFoundError):
        store.renew("y")


def test_a_read_of_the_old_version_that_ends_late_changes_nothing(store, held) -> None:
    """It began before the object was written again, and gets the bytes that it asked for."""
    held["x"] = (b"0123456789", 1)
    store.get("x", 0, 3)
    held["x"] = (b"0123456789", 2)
    store.renew("x")

    async def late() -> None:
        store._remember("x", Head(10, "v1"))

    with pytest.raises(ChangedError, match="replaced"):
        run(late, wait=30, what="the test")
    assert store.get("x", 0, 3) == b"012"


@pytest.mark.parametrize(
    ("held", "asked", "ranges"),
    [(100, 30, [(70, 100)]), (20, 30, [(0, 20)]), (0, 30, [])],
)
def test_a_tail_without_suffix_ranges_is_a_range_of_known_length(name, held, asked, ranges):
    """So that its deadline grows with its bytes; and nothing is read of an object that has none."""
    store = RemoteStore(f"held://{name}", functools.partial(HeldClient, name, suffix_ranges=False))
    data = bytes(range(held))
    OBJECTS[name]["x"] = (data, 1)
    assert store.get_tail("x", asked) == (data[-asked:], held)
    requests = client(store).shelf.requests
    assert [(one.start, one.stop) for one in requests if one.kind == "open"] == ranges


@pytest.mark.parametrize("transport", ["obstore", "fsspec"])
def test_a_store_that_is_let_go_takes_its_client_along(s3, transport) -> None:
    """Whoever opens data sets again and again keeps no pool of connections of each."""
    s3.plant("there", b"bytes")
    clients = []
    for _ in range(3):
        store = open_store(with_transport(s3.url(), transport), storage_options=s3.options)
        assert isinstance(store, RemoteStore)
        assert store.get("there") == b"bytes"
        clients.append(weakref.ref(store._own().client))
        del store
    gc.collect()
    assert [client() for client in clients] == [None] * 3
