"""Ranks compare what they are about to read, without waiting. Real processes do so in ``tests/distributed``."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest
import torch.distributed as dist

import shardstream as ss
from shardstream.load.rank_check import RankCheck
from shardstream.stream.iteration.ranks import Rank

SOURCE = "torch.distributed"
PLAN = {"fingerprint": "abc", "seed": 1, "epoch": 0, "position": 128}


@pytest.fixture
def group() -> Iterator[None]:
    """A process group, of this process alone; all that is said to be a rank below compares by its store."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def in_another_process() -> type[RankCheck]:
    """The class as a process that has made no loader yet imports it."""
    spec = importlib.util.find_spec(RankCheck.__module__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: type[RankCheck] = getattr(module, RankCheck.__name__)
    return found


def of_processes(count: int) -> list[RankCheck]:
    """The first loaders that so many processes make, all at one place of the program."""
    return [in_another_process()() for _ in range(count)]


@pytest.mark.usefixtures("group")
def test_ranks_that_agree_pass_in_any_order() -> None:
    for rank, loader in zip((2, 0, 1), of_processes(3), strict=True):
        loader.check(Rank(rank, 3, SOURCE), lambda: dict(PLAN))


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize(("name", "value"), [("seed", 2), ("fingerprint", "abd"), ("position", 0), ("epoch", 3)])
def test_the_one_that_differs_fails_with_both_values(name: str, value: object) -> None:
    first, second = of_processes(2)
    first.check(Rank(1, 2, SOURCE), lambda: dict(PLAN))
    with pytest.raises(ss.errors.RankError) as caught:
        second.check(Rank(0, 2, SOURCE), lambda: PLAN | {name: value})
    assert f"{name} is {value!r} on rank 0 and {PLAN[name]!r} on rank 1" in str(caught.value)


@pytest.mark.usefixtures("group")
def test_it_is_compared_at_first_and_after_a_state_was_loaded() -> None:
    first, second = of_processes(2)
    first.check(Rank(0, 2, SOURCE), lambda: dict(PLAN))
    second.check(Rank(1, 2, SOURCE), lambda: dict(PLAN))
    # a look at the loader on one rank alone, later on
    first.check(Rank(0, 2, SOURCE), lambda: PLAN | {"epoch": 1})
    first.renew()
    second.renew()
    first.check(Rank(0, 2, SOURCE), lambda: PLAN | {"position": 500})
    with pytest.raises(ss.errors.RankError, match="position is 128 on rank 1 and 500 on rank 0"):
        second.check(Rank(1, 2, SOURCE), lambda: dict(PLAN))


def make(process: type[RankCheck], seed: int, rank: int) -> None:
    process().check(Rank(rank, 2, SOURCE), lambda: PLAN | {"seed": seed})


@pytest.mark.usefixtures("group")
def test_loaders_are_told_apart_by_place_and_number() -> None:
    for rank in (0, 1):
        process = in_another_process()
        if rank == 0:
            make(process, 77, rank)  # rank 0 looks at something of its own
        for seed in (1, 2):
            make(process, seed, rank)
        make(process, 3, rank)


@pytest.mark.usefixtures("group")
def test_loaders_of_one_place_are_compared() -> None:
    with pytest.raises(ss.errors.RankError, match="seed is 3 on rank 1 and 1 on rank 0"):  # noqa: PT012 - one place
        for rank, seed in ((0, 1), (1, 3)):
            make(in_another_process(), seed, rank)


@pytest.mark.parametrize("rank", [Rank(0, 2, "arguments"), Rank(0, 1, SOURCE), Rank(1, 2, "RANK and WORLD_SIZE")])
def test_without_a_store_or_others_nothing_is_compared(rank: Rank) -> None:
    with pytest.raises(ValueError, match="process group has not been initialized"):  # whoever looks for a store
        RankCheck().check(Rank(1, 2, SOURCE), lambda: dict(PLAN))
    RankCheck().check(rank, lambda: dict(PLAN))
