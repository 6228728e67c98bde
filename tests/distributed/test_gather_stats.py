"""The numbers of all ranks, on every rank; a rank that does not come is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

import shardstream as ss
from shardstream.errors import RankError

from ..stream.making import numbered, write_dataset
from .launching import on_ranks


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("numbers"), numbered([90]))


def gather(rank: int, folder: Path) -> list[Any]:
    loader = ss.Loader(ss.ShardDataset(folder, fields=["id"], batch_size=10), num_workers=0)
    found = []
    for _ in range(3):
        list(loader)
        found.append([(row.rank, row.values["samples_total"]) for row in ss.gather_stats(loader).ranks])
    return found


def test_every_rank_has_the_numbers_of_all(folder: Path, tmp_path: Path) -> None:
    expected = [[(rank, 30 * turn) for rank in range(3)] for turn in (1, 2, 3)]
    assert on_ranks(tmp_path, 3, gather, folder) == [expected] * 3


def gather_late(rank: int, folder: Path) -> Any:
    loader = ss.Loader(ss.ShardDataset(folder, fields=["id"], batch_size=10), num_workers=0)
    list(loader)
    text = ""
    if rank == 1:
        dist.barrier()  # the others have given up
    try:
        ss.gather_stats(loader, timeout=2)
    except RankError as error:
        text = str(error)
    if rank != 1:
        dist.barrier()
    return text, len(ss.gather_stats(loader).ranks)


def test_a_missing_rank_is_named_and_breaks_nothing(folder: Path, tmp_path: Path) -> None:
    found = on_ranks(tmp_path, 3, gather_late, folder)
    assert [count for _, count in found] == [3, 3, 3]
    for text, _ in found:  # of the rank that comes late, too: no rank has a table that others do not have
        assert text.startswith("gather_stats waited 2 s for rank 1 of 3")
