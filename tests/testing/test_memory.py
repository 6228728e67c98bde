"""The store in memory: a store like others, and what each of its faults does to readers of ours."""

from __future__ import annotations

import multiprocessing
import pickle

import pytest

from shardstream.errors import AccessError, ChangedError, NotFoundError, StorageError, UsageError
from shardstream.storage import RetryPolicy
from shardstream.testing import MemoryStore, StoreConformance

SAMPLES = 24


class TestMemoryStore(StoreConformance):
    def make_store(self):
        self.made = MemoryStore()
        return self.made

    def plant(self, path, data):
        self.made.plant(path, data)

    def dig(self, path):
        return self.made.dig(path)


def test_it_begins_with_what_it_is_given() -> None:
    store = MemoryStore({"a": b"1", "b/c": b"23"})
    assert [meta[:2] for meta in store.list()] == [("a", 1), ("b/c", 2)]
    assert (store.dig("a"), store.dig("none")) == (b"1", None)
    assert store.url != MemoryStore().url


def test_its_pickle_is_the_store_here_and_a_copy_elsewhere() -> None:
    store = MemoryStore({"x": b"123"}, patience=7.0)
    store.fail("missing", "y")
    here = pickle.loads(pickle.dumps(store))
    here.put("z", b"4")
    assert bytes(store.get("z")) == b"4"
    assert here.policy == store.policy
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(_look, (store,)) == (b"123", 7.0, 1)
    assert store.dig("written") is None


def _look(store: MemoryStore) -> tuple[bytes, float, int]:
    store.put("written", b"5")
    with pytest.raises(NotFoundError):
        store.get("y")
    return bytes(store.get("x")), store.policy.deadline, store.hits("missing")


def test_other_patience_is_the_same_store() -> None:
    store = MemoryStore({"x": b"1"})
    other = store.with_policy(RetryPolicy(deadline=3.0))
    store.put("x", b"2")
    assert (bytes(other.get("x")), other.policy.deadline, store.policy.deadline) == (b"2", 3.0, 10.0)


def test_requests_are_noted() -> None:
    store = MemoryStore({"x": b"0123456789"})
    store.get("x", 2, 3)
    store.size("x")
    assert [request.kind for request in store.requests] == ["open", "head"]
    assert (store.requests[0].start, store.requests[0].stop) == (2, 5)
    store.requests.clear()
    store.put("y", b"1")
    assert [(request.kind, request.path) for request in store.requests] == [("put", "y")]


@pytest.mark.parametrize(
    ("arguments", "named", "said"),
    [
        (("misssing",), {}, "'missing'"),
        (("busy",), {"times": 0}, "positive integer"),
        (("busy",), {"after": 3}, "leave it out"),
        (("truncated",), {"after": -3}, "must not be negative"),
        (("slow",), {}, "needs a positive number"),
        (("busy",), {"seconds": 1.0}, "is for 'slow'"),
    ],
)
def test_faults_that_cannot_be_are_refused(arguments, named, said) -> None:
    with pytest.raises(UsageError) as caught:
        MemoryStore().fail(*arguments, **named)
    assert said in str(caught.value)


# ---------------------------------------------------------------------------------------- what a store then does


def test_a_fault_happens_to_its_objects_so_many_times() -> None:
    store = MemoryStore({"a": b"1", "b": b"2"})
    store.fail("missing", "a*", times=1)
    with pytest.raises(NotFoundError) as caught:
        store.get("a")
    assert caught.value.place["url"] == store.locate("a")
    assert (bytes(store.get("a")), bytes(store.get("b"))) == (b"1", b"2")
    assert store.hits("missing") == 1
    store.fail("missing")
    assert not store.exists("b")
    assert [meta.path for meta in store.list()] == ["a", "b"]
    store.mend()
    assert store.exists("b")


@pytest.mark.parametrize("fault", ["busy", "reset"])
def test_what_passes_is_asked_for_again(fault) -> None:
    store = MemoryStore({"x": b"0123456789"})
    store.fail(fault, "x", times=2)
    assert bytes(store.get("x")) == b"0123456789"
    assert store.hits(fault) == 2
    assert len(store.requests) == 3


@pytest.mark.parametrize("fault", ["busy", "reset", "stall"])
def test_what_does_not_pass_is_an_error_after_the_patience(fault) -> None:
    store = MemoryStore({"x": b"0123456789"}, patience=0.5, stall=0.2)
    store.fail(fault, "x")
    with pytest.raises(StorageError, match=r"tried .* times") as caught:
        store.get("x")
    assert caught.value.place["url"] == store.locate("x")


@pytest.mark.parametrize("fault", ["reset", "stall"])
def test_a_read_goes_on_with_the_byte_where_it_ended(fault) -> None:
    store = MemoryStore({"x": b"0123456789"}, stall=0.3)
    store.fail(fault, "x", times=1, after=4)
    assert bytes(store.get("x")) == b"0123456789"
    assert store.hits(fault) == 1
    assert 4 in [request.start for request in store.requests]


def test_a_store_that_denies_is_not_asked_again() -> None:
    store = MemoryStore({"x": b"1"})
    store.fail("denied")
    for ask in (lambda: store.get("x"), lambda: list(store.list()), lambda: store.put("y", b"1")):
        store.requests.clear()
        with pytest.raises(AccessError):
            ask()
        assert len(store.requests) == 1


def test_slow_answers_come() -> None:
    store = MemoryStore({"x": b"0123456789"})
    store.fail("slow", "x", seconds=0.05)
    assert bytes(store.get("x", 2, 3)) == b"234"
    assert store.hits("slow")


def test_a_truncated_object_lacks_its_end() -> None:
    store = MemoryStore({"x": b"0123456789"})
    store.fail("truncated", "x", after=4)
    assert store.size("x") == 4
    assert store.get_tail("x", 2) == (b"23", 4)
    with pytest.raises(StorageError, match="past the end"):
        store.get("x", 3, 3)


def test_a_damaged_byte_is_that_byte() -> None:
    store = MemoryStore({"x": bytes(10)})
    store.fail("damaged byte", "x", after=-3)
    assert bytes(store.get("x")) == bytes(7) + b"\xff" + bytes(2)
    assert bytes(store.get("x", 0, 7)) == bytes(7)
    assert store.hits("damaged byte") == 1


def test_a_changed_object_is_another_version() -> None:
    store = MemoryStore({"x": b"0123456789"})
    store.get("x", 0, 3)
    store.fail("changed", "x", times=1)
    with pytest.raises(ChangedError):
        store.get("x", 3, 3)
    store.renew("x")
    assert bytes(store.get("x", 3, 3)) == b"345"
