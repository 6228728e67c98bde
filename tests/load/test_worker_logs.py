"""What workers log reaches the loggers of the training process, and no worker waits for that."""

from __future__ import annotations

import logging
import os
import resource
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import shardstream as ss

from ..stream.making import numbered, write_dataset

TALKS = "shardstream.stream.base"
FLOOD = 400  # records a sample: far more than a pipe holds


def talks(sample: dict[str, Any]) -> dict[str, Any]:
    logging.getLogger(TALKS).info("at %d\n%s", sample["id"], "ö")
    logging.getLogger(TALKS).debug("nobody wants this")
    return sample


def floods(sample: dict[str, Any]) -> dict[str, Any]:
    for number in range(FLOOD):
        logging.getLogger(TALKS).info("%d %s", number, "x" * 5000)
    return sample


class Heard(logging.Handler):
    """Records; the first one can be held for a while, as by a slow disk."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []
        self.held = False

    def emit(self, record: logging.LogRecord) -> None:
        deadline = time.monotonic() + 60
        while self.held and time.monotonic() < deadline:
            time.sleep(0.01)
        self.records.append(record)

    def wait(self, count: int, text: str) -> list[logging.LogRecord]:
        """So many records with this text."""
        deadline = time.monotonic() + 20
        while len(found := [one for one in self.records if text in one.getMessage()]) < count:
            assert time.monotonic() < deadline, [one.getMessage()[:99] for one in self.records[:9]]
            time.sleep(0.01)
        return found


@pytest.fixture
def heard() -> Iterator[Heard]:
    handler, logger = Heard(), logging.getLogger("shardstream")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield handler
    handler.held = False
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)


@pytest.mark.parametrize(
    "method",
    ["fork", pytest.param("forkserver", marks=pytest.mark.full), pytest.param("spawn", marks=pytest.mark.full)],
)
def test_records_of_workers_come_once_with_their_level_and_worker(tmp_path: Path, heard: Heard, method: str) -> None:
    dataset = ss.ShardDataset(write_dataset(tmp_path / "d", numbered([20])), transform=talks, batch_size=5)
    loader = ss.Loader(dataset, num_workers=2, multiprocessing_context=method)
    assert len(list(loader)) == 4
    records = heard.wait(20, "at ")
    assert sorted(one.getMessage().partition(" (in worker")[0] for one in records) == sorted(
        f"at {number}\nö" for number in range(20)
    )
    assert {(one.name, one.levelno) for one in records} == {(TALKS, logging.INFO)}
    assert {one.processName for one in records} == {"DataLoader worker 0", "DataLoader worker 1"}
    assert not [one for one in heard.records if "nobody" in one.getMessage()]
    logging.getLogger("shardstream").setLevel(logging.WARNING)  # workers that stay follow
    before = len(heard.records)
    list(loader)
    assert len(heard.records) == before


def test_a_flood_that_nobody_reads_is_dropped_and_counted(tmp_path: Path, heard: Heard) -> None:
    dataset = ss.ShardDataset(write_dataset(tmp_path / "d", numbered([20])), transform=floods, batch_size=5)
    heard.held = True  # the thread that reads hangs in a handler
    loader = ss.Loader(dataset, num_workers=2)
    assert len(list(loader)) == 4
    heard.held = False
    said = heard.wait(1, " log records of workers were dropped: there was no room for them")
    dropped = int(said[0].getMessage().split()[0])
    kept = heard.wait(20 * FLOOD - dropped, "x" * 99)  # what was in the pipe is read after it is said, too
    assert dropped + len(kept) == 20 * FLOOD
    assert 0 < len(kept) < 20 * FLOOD


def test_records_are_heard_behind_more_than_1024_open_files(tmp_path: Path, heard: Heard) -> None:
    dataset = ss.ShardDataset(write_dataset(tmp_path / "d", numbered([4])), transform=talks, batch_size=2)
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 2048:
        pytest.skip("fewer files may be open")
    with ExitStack() as files:
        for _ in range(1100):
            files.enter_context(open(os.devnull))
        assert len(list(ss.Loader(dataset, num_workers=1))) == 2
        heard.wait(4, "at ")
