"""How many workers a loader begins that names no number: the machine's, but never another order."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

import shardstream as ss
from shardstream.load import workers

from ..stream.making import numbered, write_dataset

AFFINITIES = range(1, 33)


@pytest.fixture
def dataset(tmp_path: Path) -> ss.ShardDataset:
    return ss.ShardDataset(write_dataset(tmp_path, numbered([20, 20])), batch_size=4, fields=["id"], shuffle=True)


def allow(monkeypatch: pytest.MonkeyPatch, processors: int) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(processors)))


@pytest.mark.parametrize("ranks", [1, 2, 8])
def test_all_processors_but_one_rounded_down(
    dataset: ss.ShardDataset, monkeypatch: pytest.MonkeyPatch, ranks: int
) -> None:
    monkeypatch.setenv("LOCAL_RANK", "0")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(ranks))
    for processors in AFFINITIES:
        allow(monkeypatch, processors)
        free = processors // ranks - 1
        expected = 8 if free >= 8 else 4 if free >= 4 else 2 if free >= 2 else 1
        assert ss.Loader(dataset).num_workers == expected, processors


def test_it_is_said_once(
    dataset: ss.ShardDataset, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    workers._say_workers.cache_clear()
    allow(monkeypatch, 6)
    with caplog.at_level(logging.INFO, logger="shardstream"):
        ss.Loader(dataset)
        ss.Loader(dataset, num_workers="auto")
        ss.Loader(dataset, num_workers=2)
    assert caplog.messages == ['num_workers="auto" is 4 here: 6 processors for 1 rank']


def test_batches_are_those_of_another_machine(dataset: ss.ShardDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    for processors in (1, 3):
        allow(monkeypatch, processors)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ss.Loader, "check_worker_number_rationality", lambda _self: None)  # it asks for more cores
            loader = ss.Loader(dataset)
            loader.set_epoch(3)
            seen.append([batch["id"].tolist() for batch in loader])
    assert seen[0] == seen[1]


def test_other_words_are_refused(dataset: ss.ShardDataset) -> None:
    with pytest.raises(ss.errors.UsageError, match="num_workers must be"):
        ss.Loader(dataset, num_workers="many")  # type: ignore[arg-type]
