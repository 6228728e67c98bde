"""Threads that are begun as they are needed, also where the system refuses some."""

from __future__ import annotations

from threading import Thread

import pytest

from shardstream.errors import ShardStreamError
from shardstream.threads import each


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
