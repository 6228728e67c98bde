from __future__ import annotations

import os
import threading

import pytest

from shardstream.storage import counters
from shardstream.storage.base.counters import NAMES, Counters


def test_they_count_from_zero_by_name() -> None:
    count = Counters()
    assert count.snapshot() == dict.fromkeys(NAMES, 0)
    before = count.snapshot()
    count.add("requests")
    count.add("bytes", 100)
    after = count.snapshot()
    count.add("bytes", 11)
    assert {name: total for name, total in after.items() if total} == {"requests": 1, "bytes": 100}
    assert {name: total for name, total in count.since(before).items() if total} == {"requests": 1, "bytes": 111}
    assert {name: total for name, total in count.since(after).items() if total} == {"bytes": 11}


def test_a_name_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(KeyError):
        Counters().add("byte")


def test_threads_lose_nothing() -> None:
    count = Counters()
    threads = [threading.Thread(target=lambda: [count.add("bytes") for _ in range(2000)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert count.snapshot()["bytes"] == 8000


def test_a_forked_child_counts_from_zero_even_if_the_lock_was_held() -> None:
    counters().add("requests")
    with counters()._lock:
        child = os.fork()
        if not child:
            good = counters().snapshot()["requests"] == 0
            counters().add("requests")
            os._exit(0 if good and counters().snapshot()["requests"] == 1 else 1)
    assert os.waitpid(child, 0)[1] == 0
