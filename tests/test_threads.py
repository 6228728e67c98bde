"""Threads that are begun as they are needed, also where the system refuses some."""

from __future__ import annotations

import time
from threading import Event, Thread

import pytest

from shardstream import waits
from shardstream.errors import ShardStreamError
from shardstream.threads import each, start


def refusing(monkeypatch: pytest.MonkeyPatch, allowed: int) -> None:
    """So many threads are started, and no more, as under a limit of processes."""
    start, left = Thread.start, iter(range(allowed))

    def limited(thread: Thread) -> None:
        if thread.name == "shardstream-pack" and next(left, None) is None:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(Thread, "start", limited)


def test_fewer_threads_do_all_of_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    refusing(monkeypatch, 2)
    assert list(each(lambda x: x * x, range(50), at_once=8, what="a square")) == [x * x for x in range(50)]


def test_no_thread_at_all_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    refusing(monkeypatch, 0)
    with pytest.raises(ShardStreamError, match="no thread could be started: can't start new thread") as caught:
        list(each(lambda x: x * x, range(50), at_once=8, what="a square"))
    assert "ulimit" in str(caught.value)


class Slow(Thread):
    """One that finds memory to begin only after some time, or never; Python's own start waits for it without limit."""

    seconds = 0.0

    def _bootstrap(self) -> None:
        time.sleep(self.seconds)
        if self.seconds < 10:
            super()._bootstrap()  # type: ignore[misc]


@pytest.mark.parametrize("seconds", [0.5, 11.0])
def test_a_thread_that_does_not_begin_is_an_error_and_does_not_begin_later(
    monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    monkeypatch.setattr(waits, "_BEGIN_LOOKS", 2)
    monkeypatch.setattr(waits, "_LOOK_S", 0.05)
    called = Event()
    thread = Slow(target=called.set, daemon=True)
    thread.seconds = seconds
    with pytest.raises(ShardStreamError, match="no thread could be started: it did not begin"):
        start(thread)
    assert not called.wait(1.0)


def test_a_thread_that_takes_its_time_is_waited_for() -> None:
    called = Event()
    thread = Slow(target=called.set, daemon=True)
    thread.seconds = 1.5
    start(thread)
    assert called.wait(20)


def test_no_memory_to_wait_is_an_error_and_nothing_is_done_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    def wait(self: Event, timeout: float | None = None) -> bool:
        raise RuntimeError("can't allocate lock")

    called = Event()
    thread = Slow(target=called.set, daemon=True)
    thread.seconds = 0.5
    with monkeypatch.context() as patch:
        patch.setattr(Event, "wait", wait)
        with pytest.raises(ShardStreamError, match="can't allocate lock"):
            start(thread)
    assert not called.wait(1.5)
