"""A batch that does not come: the warning says what every worker is at."""

from __future__ import annotations

import errno
import logging
import os
import signal
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import shardstream as ss
from shardstream.dataset.shared import WorkerState
from shardstream.errors import UsageError, WorkerError
from shardstream.load.stall import workers_at

from ..storage.faults import FaultProxy
from ..storage.places import WebPlace
from ..stream.making import numbered, write_dataset

STALL = 0.5
SOON = STALL + 2.0  # within two seconds of the limit


def asleep(number: int, seconds: float, sample: dict[str, Any]) -> dict[str, Any]:
    if sample["id"] == number:
        time.sleep(seconds)
    return sample


class Warned(logging.Handler):
    """What was said, and how long after it was made."""

    def __init__(self) -> None:
        super().__init__()
        self.began = time.monotonic()
        self.said: list[tuple[float, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append((time.monotonic() - self.began, record.getMessage()))


@pytest.fixture
def warned() -> Iterator[Warned]:
    handler, logger = Warned(), logging.getLogger("shardstream.waits")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_dataset(tmp_path / "d", numbered([50, 40]))


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("workers", "ahead"), [(2, False), (2, True), (0, False)])
def test_a_sleeping_transform_is_named(folder: Path, warned: Warned, workers: int, ahead: bool) -> None:
    dataset = ss.ShardDataset(folder, transform=partial(asleep, 60, SOON + 1.0), batch_size=10)
    loader = ss.Loader(dataset, num_workers=workers, stall=STALL)
    batches: Any = ss.DevicePrefetcher(loader, "cpu") if ahead else loader
    assert len(list(batches)) == 9
    said = warned.said[0][1].splitlines()
    if not ahead:
        assert said[0].startswith("waiting for a batch of ")
    line = next(line for line in said if "is in a transform" in line)
    assert line.startswith("  worker 0 (process ")
    key = ss.Reader(folder)[60]["__key__"]
    assert f" sample 10 (key {key}) of shard-000001.tar in {folder}, for " in line
    if workers:
        assert any(line.startswith("  worker 1 (process ") and "nothing to do" in line for line in said)


@pytest.mark.full
def test_the_shard_behind_a_stalled_proxy_is_named(web: WebPlace, tmp_path: Path, warned: Warned) -> None:
    folder = write_dataset(tmp_path / "d", numbered([40, 40], bin=lambda n: bytes(20_000)), format="record")
    for file in folder.iterdir():
        web.plant(file.name, file.read_bytes())
    with FaultProxy(web.endpoint.removeprefix("http://")) as proxy:
        url = web.url().replace(web.endpoint, proxy.url)
        dataset = ss.ShardDataset(url, fields=["bin"], batch_size=10, reads=ss.ReadOptions(prefetch="64KB"))
        loader = ss.Loader(dataset, num_workers=1, stall=STALL, timeout=3)
        batches = iter(loader)
        next(batches)
        proxy.add("stall", match="shard-000001")
        warned.began = time.monotonic()
        with pytest.raises(WorkerError, match=r"no batch came within 3 s \(timeout=\)") as caught:
            list(batches)
        del batches, loader
    after, text = warned.said[0]
    assert after < SOON + 1.0  # the batches before the stalled one take a moment
    for said in (text, str(caught.value)):
        assert "  worker 0 (process " in said
        assert f"it waits for {url}/shard-000001.rec (attempt " in said


def test_a_stopped_worker_is_called_that(folder: Path, warned: Warned) -> None:
    loader = ss.Loader(ss.ShardDataset(folder, batch_size=10), num_workers=1, prefetch_factor=1, stall=STALL)
    batches = iter(loader)
    next(batches)
    (pid,) = [worker.pid for worker in loader._iterator._workers]  # type: ignore[union-attr]

    def go_on() -> None:
        while not warned.said:
            time.sleep(0.01)
        os.kill(pid, signal.SIGCONT)

    os.kill(pid, signal.SIGSTOP)
    going = threading.Thread(target=go_on)
    going.start()
    assert len(list(batches)) == 8
    going.join()
    assert f"worker 0 (process {pid}) is stopped (SIGSTOP, SIGTSTP): `kill -CONT {pid}`" in warned.said[0][1]


def test_locks_that_cannot_be_made_name_where_they_are(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr("multiprocessing.synchronize.SemLock.__init__", refuse)
    monkeypatch.setattr(os, "access", lambda path, mode: path != "/dev/shm")
    with pytest.raises(WorkerError, match=r"/dev/shm.*Read-only") as caught:
        next(iter(ss.Loader(ss.ShardDataset(folder, batch_size=10), num_workers=1)))
    assert "num_workers=0" in str(caught.value.hint)


def seen_of(batches: Any, warned: Warned) -> tuple[float, str, float, str]:
    """How long after a batch was asked for the warning came, and what it said; the same of the error."""
    iterator = iter(batches)
    while True:
        warned.began = time.monotonic()
        try:
            next(iterator)
        except WorkerError as error:
            return *warned.said[0], time.monotonic() - warned.began, str(error)


@pytest.mark.full
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("cause", ["transform", "proxy"])
def test_both_limits_name_the_cause_within_two_seconds(
    web: WebPlace, tmp_path: Path, warned: Warned, cause: str, workers: int
) -> None:
    folder = write_dataset(tmp_path / "d", numbered([40, 40], bin=lambda n: bytes(20_000)), format="record")
    for file in folder.iterdir():
        web.plant(file.name, file.read_bytes())
    stall, timeout = 1.5, 4
    with FaultProxy(web.endpoint.removeprefix("http://")) as proxy:
        url = web.url().replace(web.endpoint, proxy.url)
        if cause == "proxy":
            proxy.add("stall", match="shard-000001")
            dataset = ss.ShardDataset(url, fields=["bin"], batch_size=10, reads=ss.ReadOptions(prefetch="64KB"))
            named = f"it waits for {url}/shard-000001.rec (attempt "
        else:
            dataset = ss.ShardDataset(folder, fields=["id"], batch_size=10, transform=partial(asleep, 47, 60.0))
            named = f"is in a transform at sample 7 (key k000047) of shard-000001.rec in {folder}, for "
        loader = ss.Loader(dataset, num_workers=workers, stall=stall, timeout=timeout)
        after, warning, ended, error = seen_of(loader, warned)
        del loader
    assert stall <= after < stall + 2.0
    assert timeout <= ended < timeout + 2.0
    assert named in warning
    assert named in error


def test_arguments_that_cannot_be(folder: Path) -> None:
    with pytest.raises(UsageError, match="stall must be a number of seconds, got 0"):
        ss.Loader(ss.ShardDataset(folder, batch_size=10), num_workers=0, stall=0)


def test_those_at_work_come_first_and_text_is_made_harmless() -> None:
    idle = [WorkerState(n, n + 1, -1, -1, "", "idle", 2.0, "", 0, 0.0, 0) for n in range(40)]
    busy = WorkerState(40, 41, 0, 3, "k\x1b\n", "decode", 7.4, "http://h/a", 3, 61.0, 5)
    lines = workers_at([*((one, {}) for one in idle), (busy, {"url": "u", "shard": "s"})]).splitlines()
    assert lines[1] == (
        "  worker 40 (process 41) decodes sample 3 (key k\\x1b\\n) of s in u, for 7 s; "
        "it waits for http://h/a (attempt 3, for 61 s, and 4 more)"
    )
    assert lines[-1] == "  and 9 workers more"
    assert len(lines) == 34
