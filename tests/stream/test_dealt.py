"""What one rank reads where a framework deals it out to all; tests/frameworks has Accelerate do it."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

import shardstream as ss
from shardstream.stream.iteration.epoch_run import EpochRun, count_items
from shardstream.stream.iteration.ranks import Dealt, Rank, RankOfAll
from shardstream.stream.iteration.state import ResumePoint

from .making import numbered, write_dataset

COUNT = 227


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("data"), numbered([100, 127]))


def dealt(unit: int, multiple: int) -> Rank:
    return RankOfAll.of(Dealt(unit, multiple), "a framework")


def positions(run: EpochRun) -> list[list[int]]:
    return [run.step(number).positions.tolist() for number in range(run.steps)]


def run_of(dataset: Any, rank: Rank, begin: ResumePoint | None = None) -> EpochRun:
    return EpochRun(dataset._content, dataset._settings, rank, begin or ResumePoint(0), 2)


@pytest.mark.parametrize(
    ("tail", "unit", "multiple", "count"),
    [("drop", 12, 2, 226), ("drop", 24, 24, 216), ("drop", 12, 1, 227), ("exact", 24, 24, 227), ("pad", 12, 2, 227)],
)
def test_a_step_is_what_becomes_one_batch(folder: Path, tail: Any, unit: int, multiple: int, count: int) -> None:
    dataset = ss.ShardDataset(folder, shuffle=True, tail=tail)
    rank = dealt(unit, multiple)
    steps = positions(run_of(dataset, rank))
    assert [position for step in steps for position in step] == list(range(count))
    assert [len(step) for step in steps[:-1]] == [unit] * (len(steps) - 1)
    assert count_items(dataset._content, dataset._settings, rank, ResumePoint(0)) == count


def test_batches_of_the_data_set_are_dealt_out_whole(folder: Path) -> None:
    dataset = ss.ShardDataset(folder, shuffle=True, batch_size=16)
    rank = dealt(16, 32)
    assert [len(step) for step in positions(run_of(dataset, rank))] == [16] * (COUNT // 32 * 2)
    assert count_items(dataset._content, dataset._settings, rank, ResumePoint(0)) == COUNT // 32 * 2


def test_what_is_left_of_an_epoch_is_dealt_out_evenly(folder: Path) -> None:
    dataset = ss.ShardDataset(folder, shuffle=True)
    begun = run_of(dataset, dealt(12, 2)).resume_point
    left = run_of(dataset, dealt(12, 2), ResumePoint(0, position=100, parameters=begun.parameters))
    assert [position for step in positions(left) for position in step] == list(range(100, 226))


def test_a_pickle_takes_along_how_it_is_dealt() -> None:
    rank = pickle.loads(pickle.dumps(dealt(12, 2)))
    assert (rank, rank.dealt) == ((0, 1, "a framework"), (12, 2))


def test_too_few_to_deal_out_is_an_error(folder: Path) -> None:
    with pytest.raises(ss.errors.UsageError, match="needs more than the 227 samples there are"):
        run_of(ss.ShardDataset(folder, shuffle=True), dealt(200, 400))
