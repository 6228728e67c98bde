"""How many requests a rank makes to the store of the process group, and what it does when ranks are missing."""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch.distributed as dist

from shardstream.errors import RankError
from shardstream.load.gather import RankExchange

MOST = 4  # requests of a rank, however many ranks there are


class Counting:
    """A store that counts its requests.

    Args:
        store: The store of all ranks.
    """

    def __init__(self, store: dist.Store) -> None:
        self._store = store
        self.requests: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        self.requests[name] += 1
        return getattr(self._store, name)


def exchange(
    stores: dict[int, Any], count: int, number: int, timeout: float = 60.0, value: str = ""
) -> list[list[Any] | str]:
    """What each of these ranks gets, an error as its text; each rank is a thread."""

    def gather(rank: int) -> list[Any] | str:
        keys = f"numbers/{number}", f"numbers/{number - 1}"
        try:
            return RankExchange(stores[rank], rank, count).gather(keys, f"{number} of {rank}{value}", timeout)
        except RankError as error:
            return str(error).partition("\n")[0]

    with ThreadPoolExecutor(len(stores)) as threads:
        return list(threads.map(gather, stores))


@pytest.fixture(params=["hash", "tcp", "prefix"])
def store(request: pytest.FixtureRequest) -> dist.Store:
    makers = {
        "hash": dist.HashStore,
        "tcp": lambda: dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False),
        "prefix": lambda: dist.PrefixStore("of a group", dist.HashStore()),
    }
    return makers[request.param]()


def test_many_ranks_make_few_requests_each() -> None:
    ranks, store = 512, dist.HashStore()
    for number in range(2):
        stores = {rank: Counting(store) for rank in range(ranks)}
        expected = [f"{number} of {rank}" for rank in range(ranks)]
        assert all(values == expected for values in exchange(stores, ranks, number))
        assert max(each.requests.total() for each in stores.values()) <= MOST
    assert store.num_keys() == 1  # the last answer: nothing else is left behind


def test_every_store_serves(store: dist.Store) -> None:
    for ranks in (1, 3):
        clients = {rank: store if rank == 0 else connect(store) for rank in range(ranks)}
        for number in range(10 * ranks, 10 * ranks + 3):
            assert exchange(clients, ranks, number) == [[f"{number} of {rank}" for rank in range(ranks)]] * ranks


def connect(store: dist.Store) -> dist.Store:
    """A connection of its own, as each rank has one."""
    return dist.TCPStore("127.0.0.1", store.port, is_master=False) if isinstance(store, dist.TCPStore) else store


@pytest.mark.parametrize("missing", [[2], [1, 3], [0]])
def test_all_ranks_name_the_missing_ones_and_meet_again(missing: list[int]) -> None:
    store, count = dist.HashStore(), 4
    there = {rank: store for rank in range(count) if rank not in missing}
    names = "rank" + "s" * (len(missing) > 1) + " " + ", ".join(map(str, missing))
    assert exchange(there, count, 0, timeout=0.05) == [f"gather_stats waited 0.05 s for {names} of 4"] * len(there)
    exchange(dict.fromkeys(missing, store), count, 0, timeout=0.05)  # they come after all
    everyone = dict.fromkeys(range(count), store)
    assert exchange(everyone, count, 1) == [[f"1 of {rank}" for rank in range(count)]] * count


def test_entries_of_an_earlier_start_of_the_job_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    store = dist.HashStore()
    stores = dict.fromkeys(range(3), store)
    exchange(stores, 3, 0, value=" before")
    exchange({1: store}, 3, 0, timeout=0.01, value=" before")  # an entry that no rank has deleted
    began = time.time()
    monkeypatch.setattr("shardstream.load.gather.process_start", lambda: began)
    assert exchange(stores, 3, 0) == [[f"0 of {rank}" for rank in range(3)]] * 3


def test_a_store_that_has_failed_is_no_missing_rank() -> None:
    class Failed:
        def set(self, key: str, value: bytes) -> None:
            pass

        def fail(self, *arguments: Any) -> Any:
            raise RuntimeError("Connection reset by peer")

        wait = check = multi_get = fail

    with pytest.raises(RuntimeError, match="Connection reset"):
        RankExchange(Failed(), 1, 2).gather(("a", "b"), 1, 0.01)
