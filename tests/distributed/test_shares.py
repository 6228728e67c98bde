"""What each of several real ranks gets of an epoch."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

import shardstream as ss

from ..stream.making import numbered, write_dataset
from .launching import on_ranks

SAMPLES = 1_003


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("ids"), numbered([500, 3, 0, 500]))


def epochs(rank: int, folder: Path, options: dict[str, Any], loader_options: dict[str, Any], count: int) -> Any:
    """Ids and masks of ``count`` epochs of a rank, batch by batch."""
    dataset = ss.ShardDataset(folder, fields=["id"], **options)
    assert dataset.rank_source == "torch.distributed"
    loader = ss.Loader(dataset, **loader_options)
    out = []
    for _ in range(count):
        batches = [(batch["id"].tolist(), batch.get("__valid__")) for batch in loader]
        out.append([(ids, [True] * len(ids) if valid is None else valid.tolist()) for ids, valid in batches])
        assert len(out[-1]) == len(loader)
    return out


@pytest.mark.one_in(5)
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("tail", ["drop", "pad", "exact"])
def test_equal_steps_and_every_sample_once(folder: Path, tmp_path: Path, tail: str, shuffle: bool) -> None:
    options = {"shuffle": shuffle, "tail": tail, "batch_size": 16, "seed": 2}
    ranks = on_ranks(tmp_path, 3, epochs, folder, options, {"num_workers": 1}, 2)
    for epoch in range(2):
        batches = [rank[epoch] for rank in ranks]
        steps = {"drop": [20] * 3, "pad": [21] * 3, "exact": [21, 21, 21]}[tail]
        assert [len(rank) for rank in batches] == steps
        seen = [i for rank in batches for ids, valid in rank for i, good in zip(ids, valid, strict=True) if good]
        assert len(seen) == len(set(seen)) == (960 if tail == "drop" else SAMPLES)
        if tail != "exact":
            assert {len(ids) for rank in batches for ids, _ in rank} == {16}


def test_exact_ends_earlier_on_later_ranks_and_is_complete(folder: Path, tmp_path: Path) -> None:
    """1,003 samples in batches of 25 on 4 ranks: ten steps, and three samples that rank 0 has for itself."""
    options = {"tail": "exact", "batch_size": 25}
    ranks = on_ranks(tmp_path, 4, epochs, folder, options, {"num_workers": 0}, 1)
    assert [len(epoch) for (epoch,) in ranks] == [11, 10, 10, 10]
    assert sorted(i for (epoch,) in ranks for ids, _ in epoch for i in ids) == list(range(SAMPLES))


@pytest.mark.full
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_workers_that_do_not_fork_know_their_rank(folder: Path, tmp_path: Path, method: str) -> None:
    """They have no process group, and here no RANK in the environment either."""
    options = {"shuffle": True, "batch_size": 16, "seed": 2}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="This DataLoader will create", category=UserWarning)
        ranks = on_ranks(tmp_path, 2, epochs, folder, options, {"num_workers": 1, "multiprocessing_context": method}, 1)
    assert ranks == on_ranks(tmp_path, 2, epochs, folder, options, {"num_workers": 0}, 1)
    seen = [i for (epoch,) in ranks for ids, _ in epoch for i in ids]
    assert len(seen) == len(set(seen)) == 992


def handed_on(rank: int, dataset: ss.ShardDataset, method: str) -> list[list[int]]:
    """The epochs of a data set that was made before the ranks were, by a plain DataLoader."""
    loader = DataLoader(dataset, batch_size=None, num_workers=2, multiprocessing_context=method)
    ids = []
    for _ in range(3):
        if rank:  # whose first rank has come to the end before this one begins
            dist.barrier()
        ids.append([i for batch in loader for i in batch["id"].tolist()])
        if not rank:
            dist.barrier()
    return ids


@pytest.mark.parametrize(
    ("method", "pickled"),
    [("fork", True), *(pytest.param(*way, marks=pytest.mark.full) for way in (("fork", False), ("spawn", True)))],
)
def test_a_data_set_that_a_launcher_hands_to_its_ranks_is_read_once(
    folder: Path, tmp_path: Path, method: str, pickled: bool
) -> None:
    """Its pickle carries the launcher's rank, and its epoch lies in shared memory: both are for workers alone."""
    dataset = ss.ShardDataset(folder, fields=["id"], shuffle=True, batch_size=16, seed=2)
    handed = pickle.loads(pickle.dumps(dataset)) if pickled else dataset
    orders = set()
    for epoch in zip(*on_ranks(tmp_path, 2, handed_on, handed, method), strict=True):
        seen = [i for rank in epoch for i in rank]
        assert len(seen) == len(set(seen)) == 992
        orders.add(tuple(seen))
    assert len(orders) == 3
    assert dataset.epoch == 0


def abandon(rank: int, folder: Path, persistent: bool) -> list[int]:
    """Iterators left half-way, some forgotten and some kept, and others made at once; then one whole epoch."""
    dataset = ss.ShardDataset(folder, fields=["id"], shuffle=True, batch_size=16, seed=2)
    loader = ss.Loader(dataset, num_workers=2, persistent_workers=persistent, prefetch_factor=4)
    kept = []
    for steps in (1, 7, 0, 3, 19, 2):
        iterator = iter(loader)
        for _ in range(steps):
            next(iterator)
            dist.all_reduce(torch.zeros(1))
        if steps % 2:
            kept.append(iterator)
    return [i for batch in loader for i in batch["id"].tolist()]


@pytest.mark.full
@pytest.mark.parametrize("persistent", [False, True])
def test_abandoned_iterators_do_not_hang_the_next(folder: Path, tmp_path: Path, persistent: bool) -> None:
    options = {"shuffle": True, "batch_size": 16, "seed": 2}
    expected = on_ranks(tmp_path, 2, epochs, folder, options, {"num_workers": 0}, 1)
    assert on_ranks(tmp_path, 2, abandon, folder, persistent) == [
        [i for ids, _ in epoch for i in ids] for (epoch,) in expected
    ]
