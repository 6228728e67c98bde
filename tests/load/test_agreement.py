"""Ranks compare what they are about to read, without waiting. Real processes do so in ``tests/distributed``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import torch.distributed as dist

import shardstream as ss
from shardstream.load import rank_check as agreement
from shardstream.load.rank_check import RankCheck
from shardstream.stream.iteration.ranks import Rank

SOURCE = "torch.distributed"
PLAN = {"fingerprint": "abc", "seed": 1, "epoch": 0, "position": 128}


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    store = dist.HashStore()
    monkeypatch.setattr(agreement, "_store", lambda: store)
    return store


def of_process(monkeypatch: pytest.MonkeyPatch) -> RankCheck:
    """The first loader that another process makes at one place of the program."""
    monkeypatch.setattr(RankCheck, "_made", Counter())
    monkeypatch.setattr(agreement, "_place", lambda: "here")
    return RankCheck()


def test_ranks_that_agree_pass_in_any_order(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for rank in (2, 0, 1):
        of_process(monkeypatch).check(Rank(rank, 3, SOURCE), lambda: dict(PLAN))


@pytest.mark.parametrize(("name", "value"), [("seed", 2), ("fingerprint", "abd"), ("position", 0), ("epoch", 3)])
def test_the_one_that_differs_fails_with_both_values(
    store: Any, monkeypatch: pytest.MonkeyPatch, name: str, value: object
) -> None:
    of_process(monkeypatch).check(Rank(1, 2, SOURCE), lambda: dict(PLAN))
    with pytest.raises(ss.errors.RankError) as caught:
        of_process(monkeypatch).check(Rank(0, 2, SOURCE), lambda: PLAN | {name: value})
    assert f"{name} is {value!r} on rank 0 and {PLAN[name]!r} on rank 1" in str(caught.value)


def test_it_is_compared_at_first_and_after_a_state_was_loaded(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = of_process(monkeypatch), of_process(monkeypatch)
    first.check(Rank(0, 2, SOURCE), lambda: dict(PLAN))
    second.check(Rank(1, 2, SOURCE), lambda: dict(PLAN))
    # a look at the loader on one rank alone, later on
    first.check(Rank(0, 2, SOURCE), lambda: PLAN | {"epoch": 1})
    first.renew()
    second.renew()
    first.check(Rank(0, 2, SOURCE), lambda: PLAN | {"position": 500})
    with pytest.raises(ss.errors.RankError, match="position is 128 on rank 1 and 500 on rank 0"):
        second.check(Rank(1, 2, SOURCE), lambda: dict(PLAN))


def make(seed: int, rank: int) -> None:
    RankCheck().check(Rank(rank, 2, SOURCE), lambda: PLAN | {"seed": seed})


def test_loaders_are_told_apart_by_place_and_number(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for rank in (0, 1):
        monkeypatch.setattr(RankCheck, "_made", Counter())
        if rank == 0:
            make(77, rank)  # rank 0 looks at something of its own
        for seed in (1, 2):
            make(seed, rank)
        make(3, rank)


def test_loaders_of_one_place_are_compared(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ss.errors.RankError, match="seed is 3 on rank 1 and 1 on rank 0"):  # noqa: PT012 - one place
        for rank, seed in ((0, 1), (1, 3)):
            monkeypatch.setattr(RankCheck, "_made", Counter())
            make(seed, rank)


@pytest.mark.parametrize("rank", [Rank(0, 2, "arguments"), Rank(0, 1, SOURCE), Rank(1, 2, "RANK and WORLD_SIZE")])
def test_without_a_store_or_others_nothing_is_compared(monkeypatch: pytest.MonkeyPatch, rank: Rank) -> None:
    def fail() -> None:
        raise AssertionError("looked for a store")

    monkeypatch.setattr(agreement, "_store", fail)
    RankCheck().check(rank, lambda: dict(PLAN))
