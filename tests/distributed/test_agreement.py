"""Ranks that were started with different arguments: an error that names both values, and nobody hangs."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

import shardstream as ss
from shardstream.load.rank_check import RankCheck
from shardstream.stream.iteration.ranks import Rank
from tests.grouped import grouped

from ..formats.catalog.making import tar
from ..stream.making import numbered, write_dataset
from .launching import on_ranks

CHANGES: dict[str, dict[str, Any]] = {
    "seed": {"seed": 7},
    "epoch": {"epoch": 4},
    "batch_size": {"batch_size": 24},
    "position": {"skip": 3},
    "shuffle": {"shuffle": False},
    "view": {"split": ("a", {"a": 0.5, "b": 0.5})},
    "data": {"other": True},
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    one, two = (tmp_path_factory.mktemp(name) for name in ("one", "two"))
    return write_dataset(one, numbered([400, 300])), write_dataset(two, numbered([400, 301]))


def train(rank: int, folders: tuple[Path, Path], changes: dict[str, Any], at: int, workers: int) -> dict[str, Any]:
    """One epoch; rank ``at`` with changes. What the rank's data set is, for comparison with the error."""
    changes = dict(changes) if rank == at else {}
    folder = folders[1] if changes.pop("other", False) else folders[0]
    epoch, skip = changes.pop("epoch", 0), changes.pop("skip", 0)
    settings = {"seed": 0, "batch_size": 16, "shuffle": True} | changes
    dataset = ss.ShardDataset(folder, fields=["id"], **grouped(settings))
    dataset.set_epoch(epoch)
    loader = ss.Loader(dataset, num_workers=workers)
    if skip:  # a state that only this rank has loaded
        other = ss.ShardDataset(folder, fields=["id"], **grouped(settings), ranks=(0, 3))
        before = ss.Loader(other, num_workers=0)
        for _ in zip(range(skip), before, strict=False):
            pass
        loader.load_state_dict(before.state_dict())
    steps = 0
    for _ in loader:
        dist.all_reduce(torch.zeros(1))
        steps += 1
    return {"steps": steps}


@pytest.mark.one_in(5)
@pytest.mark.parametrize("at", [0, 2])
@pytest.mark.parametrize("change", CHANGES)
def test_a_rank_that_differs_is_named_with_both_values(
    folders: tuple[Path, Path], tmp_path: Path, change: str, at: int
) -> None:
    results = on_ranks(tmp_path, 3, train, folders, CHANGES[change], at, 0)
    refused = [result for result in results if isinstance(result, ss.errors.UsageError)]
    assert refused, results
    one, two = (ss.Manifest.load(folder).fingerprint for folder in folders)
    half = ss.ShardDataset(folders[0], split=CHANGES["view"]["split"]).fingerprint
    both = {
        "seed": ("seed", "0", "7"),
        "epoch": ("epoch", "0", "4"),
        "batch_size": ("batch_size", "16", "24"),
        "position": ("position", "0", "144"),
        "shuffle": ("shuffle", "True", "False"),
        "view": (one, half),
        "data": (one, two),
    }[change]
    for error in refused:
        for value in both:
            assert value in str(error), str(error)
    # And those that were not told lost a peer, and ended; none trained to the end.
    assert all(isinstance(result, Exception) for result in results)


def test_ranks_that_agree_are_left_alone(folders: tuple[Path, Path], tmp_path: Path) -> None:
    assert on_ranks(tmp_path, 3, train, folders, {}, 0, 1) == [{"steps": 14}] * 3


def test_ranks_that_find_other_files_are_told(tmp_path: Path) -> None:
    """Each node has a copy of tar files of its own, with its own catalogue; one of them lacks a file."""
    copies = []
    for name, tars in (("whole", 3), ("copy", 3), ("short", 2)):
        for number in range(tars):
            ids = [f"{number}{row:03d}" for row in range(100)]
            tar(tmp_path / name / f"part-{number}.tar", ids, id=lambda row: row)
        ss.index(tmp_path / name, workers=1, beside=True)
        copies.append(tmp_path / name)
    whole, copy, short = copies
    same, other = (tmp_path / name for name in ("same", "other"))
    assert on_ranks(same, 2, train, (whole, copy), {"other": True}, 1, 0) == [{"steps": 9}] * 2
    results = on_ranks(other, 2, train, (whole, short), {"other": True}, 1, 0)
    refused = [str(result) for result in results if isinstance(result, ss.errors.UsageError)]
    assert refused, results
    for folder in (whole, short):
        fingerprint = ss.ShardDataset(folder, fields=["id"]).fingerprint
        assert all(fingerprint in text for text in refused)


def take_turns(rank: int, folder: Path) -> dict[str, Any]:
    """What four ranks of two replicas are told, case by case; none of them meets another one inside of a case."""
    told: dict[str, Any] = {}

    def run(name: str, program: Callable[[], None]) -> None:
        for turn in range(4):  # one rank after another, so that it is known who comes first
            dist.barrier()
            if turn == rank:
                try:
                    program()
                except ss.errors.RankError as error:
                    told[name] = str(error)

    def make(*, replica: int | None = None, workers: int = 0, **settings: Any) -> ss.Loader:
        share = {} if replica is None else {"rank": replica, "world_size": 2}
        defaults: dict[str, Any] = {"fields": ["id"], "batch_size": 16, "shuffle": True}
        return ss.Loader(ss.ShardDataset(folder, **grouped(defaults | share | settings)), num_workers=workers)

    def read(loader: Iterable[Any], batches: int | None = None) -> None:
        for _ in itertools.islice(loader, batches):
            pass

    looked, broken, alone, stored, two = make(), make(), make(), make(shuffle=False), make(replica=rank // 2)
    prefetched = ss.DevicePrefetcher(make(), "cpu")
    run("a look at a batch", lambda: read(looked, 1 if rank == 0 else 0))
    run("the epoch after it", lambda: read(looked))
    run("one rank alone", lambda: read(alone) if rank == 1 else None)
    run("one rank once more", lambda: read(stored) if rank == 0 else None)
    run("all in stored order", lambda: read(stored))
    run("replicas", lambda: read(two))
    run("a set of its own", lambda: read(make(replica=0, world_size=1, rank=0, seed=rank)))
    run("first epoch", lambda: read(broken, 3 if rank == 2 else None))
    run("second epoch", lambda: read(broken))
    run("first to be told", lambda: read(broken, 1))
    run("prefetched", lambda: read(prefetched))
    prefetched.set_epoch(5 if rank == 3 else 1)
    run("prefetched, other epoch", lambda: read(prefetched))
    run("seed within a replica", lambda: read(make(replica=rank // 2, seed=rank % 2)))
    run("workers within a replica", lambda: read(make(replica=rank // 2, workers=int(rank == 3))))
    run("workers of replicas", lambda: read(make(replica=rank // 2, workers=rank // 2)))
    return told


def test_four_ranks_are_told_what_differs_and_only_that(folders: tuple[Path, Path], tmp_path: Path) -> None:
    """Ranks take turns: who comes before the one that finds a difference is told when it comes again."""
    told = on_ranks(tmp_path, 4, take_turns, folders[0])
    cases = {name: {rank for rank in range(4) if name in told[rank]} for name in set().union(*told)}
    assert cases == {
        "second epoch": {2, 3},
        "first to be told": {0, 1, 2, 3},
        "prefetched, other epoch": {3},
        "seed within a replica": {1, 2, 3},
        "workers within a replica": {3},
    }, told
    assert {text["first to be told"] for text in told} == {told[2]["second epoch"]}
    assert "epoch is 0 on rank 2 and 1 on rank 0" in told[2]["second epoch"]
    assert "epoch is 5 on rank 3 and 1 on rank 0" in told[3]["prefetched, other epoch"]
    assert "seed is 1 on rank 1 (rank=0) and 0 on rank 0 (rank=0)" in told[1]["seed within a replica"]
    assert "num_workers is 1 on rank 3 (rank=1) and 0 on rank 2" in told[3]["workers within a replica"]


def compare(port: int, rank: int, position: int, pipe: Connection) -> None:
    """What a rank that is about to read from a position is told, once it is asked."""
    pipe.recv()
    store = dist.TCPStore("localhost", port, is_master=False)
    group = dist.HashStore()
    dist.init_process_group("gloo", store=group, rank=0, world_size=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distributed_c10d, "_get_default_store", lambda: store)  # torch's own, of a group of both ranks
        try:
            plan = {"position": position}
            RankCheck().begin(Rank(rank, 2, "torch.distributed"), lambda: plan, dict).compare()
        except ss.errors.RankError as error:
            pipe.send(str(error))
        else:
            pipe.send(None)


def start(port: int, positions: tuple[int, int]) -> list[str | None]:
    """What two ranks are told, one after the other; both live before either of them compares, as in a process group."""
    context = get_context("fork")
    ranks = []
    for rank, position in enumerate(positions):
        ours, theirs = context.Pipe()
        process = context.Process(target=compare, args=(port, rank, position, theirs))
        process.start()
        ranks.append((process, ours))
    time.sleep(0.1)  # the kernel counts the beginning of a process in hundredths of a second
    told = []
    for process, pipe in ranks:
        pipe.send("go")
        told.append(pipe.recv())
        process.join()
    time.sleep(0.1)
    return told


def test_what_an_earlier_start_wrote_into_a_store_that_outlived_it_does_not_count() -> None:
    """Under ``torchrun --max-restarts`` the store is torchrun's, and ranks start again at another position."""
    server = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    # All at one place of the program, by which loaders are told apart.
    one, two, (first, second) = [start(server.port, positions) for positions in ((0, 0), (96, 96), (96, 112))]
    assert one == [None, None]
    assert two == [None, None]
    assert first is None
    assert "position is 112 on rank 1 and 96 on rank 0" in str(second)
