"""A worker that dies without a word: the error says what it was reading."""

from __future__ import annotations

import errno
import os
import signal
from functools import partial
from multiprocessing.context import ForkContext, ForkProcess
from pathlib import Path
from typing import Any

import pytest

import shardstream as ss

from ..stream.making import die_at, numbered, write_dataset


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_dataset(tmp_path / "d", numbered([50, 100, 80]))


@pytest.mark.parametrize(
    ("context", "how"),
    [("fork", signal.SIGSEGV), pytest.param("forkserver", signal.SIGKILL, marks=pytest.mark.full)],
)
def test_the_error_names_the_sample(folder: Path, how: signal.Signals, context: str) -> None:
    dataset = ss.ShardDataset(folder, transform=partial(die_at, 60, how), batch_size=10)
    loader = ss.Loader(dataset, num_workers=2, multiprocessing_context=context)
    with pytest.raises(ss.errors.WorkerError) as caught:
        list(loader)
    error = caught.value
    assert error.place == {"url": str(folder), "shard": "shard-000001.tar", "sample": 10}
    assert "DataLoader worker 0 (process " in str(error)
    assert isinstance(error, RuntimeError)


def refused(number: int) -> Any:
    raise OSError(number, os.strerror(number))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EAGAIN, errno.ENOMEM, errno.EMFILE], ids=errno.errorcode.get)
def test_workers_that_the_system_does_not_start_are_one_clear_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr("multiprocessing.synchronize.SemLock.__init__", lambda *_, **__: refused(number))
    loader = ss.Loader(ss.ShardDataset(folder, batch_size=10), num_workers=2)
    with pytest.raises(ss.errors.WorkerError, match="workers could not be started: ") as caught:
        list(loader)
    word = {errno.ENOSPC: "/dev/shm", errno.EAGAIN: "ulimit -u", errno.ENOMEM: "fewer", errno.EMFILE: "ulimit -n"}
    assert word[number] in str(caught.value.hint)
    monkeypatch.undo()
    assert sum(len(batch["id"]) for batch in loader) == 230


def test_no_worker_stays_where_another_was_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = []

    class One(ForkProcess):
        def start(self) -> None:
            if begun:
                refused(errno.EAGAIN)
            super().start()
            begun.append(self)

    monkeypatch.setattr(ForkContext, "Process", One)
    loader = ss.Loader(ss.ShardDataset(folder, batch_size=10), num_workers=2, multiprocessing_context="fork")
    with pytest.raises(ss.errors.WorkerError, match="workers could not be started: "):
        list(loader)
    begun[0].join(20)
    assert begun[0].exitcode is not None


def test_the_source_of_a_mixture_is_named(folder: Path, tmp_path: Path) -> None:
    other = write_dataset(tmp_path / "other", numbered([300]))
    parts = {
        "a": (ss.ShardDataset(folder), 1),
        "b": (ss.ShardDataset(other, transform=partial(die_at, 200, signal.SIGKILL)), 1),
    }
    loader = ss.Loader(ss.Mixture(parts, batch_size=10, epoch="b"), num_workers=1)
    with pytest.raises(ss.errors.WorkerError) as caught:
        list(loader)
    assert caught.value.place == {"url": str(other), "shard": "shard-000000.tar", "sample": 200}


def test_other_errors_of_torch_pass(folder: Path) -> None:
    def fail(sample: dict[str, Any]) -> dict[str, Any]:
        raise RuntimeError("DataLoader worker is not what failed")

    with pytest.raises(ss.errors.TransformError, match="not what failed"):
        list(ss.Loader(ss.ShardDataset(folder, transform=fail, batch_size=10), num_workers=1))
