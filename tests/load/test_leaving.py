"""Leaving an iteration ends, whatever its source does; what hangs is named, and workers that died are replaced."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import shardstream as ss
from shardstream import waits
from shardstream.load import loader, prefetcher, workers
from shardstream.load import prefetch_thread as flow

from ..stream.making import numbered, write_dataset
from .prefetching import no_thread_is_left, wait_until

__all__ = ["no_thread_is_left"]  # a fixture


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("leaving"), numbered([50, 70]))


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is waited for is given up sooner."""
    for module in (workers, loader, flow, prefetcher):
        if hasattr(module, "LEAVE_S"):
            monkeypatch.setattr(module, "LEAVE_S", 0.5)
    monkeypatch.setattr(workers, "_GOODBYE_S", 0.5)
    monkeypatch.setattr(waits, "NOTICE_S", 0.2)


class Held:
    """A source that hands out two items and then hangs until it is let go; each iteration is a new one."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.asked = threading.Semaphore(0)

    def __iter__(self) -> Iterator[torch.Tensor]:
        yield torch.zeros(2)
        yield torch.ones(2)
        self.asked.release()
        assert self.go.wait(60)
        yield torch.full((2,), 2.0)


@pytest.fixture
def held() -> Iterator[Held]:
    source = Held()
    yield source
    source.go.set()


def hang(where: Path, block: bool, sample: dict[str, Any]) -> dict[str, Any]:
    """A transform that hangs at sample 20 as long as there is a file."""
    if block:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    if sample["id"] == 20:
        while where.exists():
            time.sleep(0.01)
    return sample


def hanging(folder: Path, where: Path, *, block: bool = False, **settings: Any) -> ss.Loader:
    where.touch()
    dataset = ss.ShardDataset(folder, fields=["id"], transform=partial(hang, where, block), batch_size=10)
    return ss.Loader(dataset, **{"num_workers": 2} | settings)


def told(caplog: pytest.LogCaptureFixture, name: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == name]


def ids(batches: Any) -> list[int]:
    return [one for batch in batches for one in batch["id"].tolist()]


# ---------------------------------------------------------------------------------------- any iterable in a prefetcher


def test_a_loop_that_breaks_does_not_wait_for_a_source_that_hangs(held: Held, caplog: pytest.LogCaptureFixture) -> None:
    for _ in ss.DevicePrefetcher(held, "cpu"):
        assert held.asked.acquire(timeout=30)
        break
    assert not held.go.is_set()
    assert "still waits for an item of a Held" in told(caplog, "shardstream.load.prefetch_thread")[0]


def test_a_new_iteration_of_a_source_that_hangs_is_refused_until_it_has_come_back(held: Held) -> None:
    ahead = ss.DevicePrefetcher(held, "cpu")
    iterator = iter(ahead)
    next(iterator)
    assert held.asked.acquire(timeout=30)
    for _ in range(2):
        with pytest.raises(ss.errors.UsageError, match="still waits for an item of a Held"):
            iter(ahead)
    held.go.set()
    assert [int(batch[0]) for batch in ahead] == [0, 1, 2]
    del iterator


def test_a_transform_that_hangs_is_given_up_too(held: Held, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    def transform(batch: Any) -> Any:
        if int(batch["id"][0]) == 10:
            held.asked.release()
            assert held.go.wait(60)
        return batch

    dataset = ss.ShardDataset(folder, fields=["id"], batch_size=10)
    ahead = ss.DevicePrefetcher(ss.Loader(dataset, num_workers=0), "cpu", transform=transform)
    for _ in ahead:
        assert held.asked.acquire(timeout=30)
        break
    state = ahead.state_dict()
    ahead.load_state_dict(state)
    with pytest.raises(ss.errors.UsageError, match="still waits for the transform"):
        iter(ahead)
    held.go.set()
    assert ids(ahead) == list(range(10, 120))


def test_a_receiver_says_what_it_waits_for(held: Held, caplog: pytest.LogCaptureFixture) -> None:
    seen = []
    for batch in ss.DevicePrefetcher(held, "cpu"):
        seen.append(int(batch[0]))
        if seen == [0, 1]:
            threading.Thread(
                target=lambda: (wait_until(lambda: bool(told(caplog, "shardstream.waits"))), held.go.set())
            ).start()
    assert seen == [0, 1, 2]
    assert told(caplog, "shardstream.waits")[0].startswith("waiting for an item of a Held, for ")


# ------------------------------------------------------------------------------------------------------------ workers


@pytest.mark.one_in(3)
@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("ahead", [True, False])
def test_a_new_iteration_does_not_wait_for_workers_that_hang(
    folder: Path, tmp_path: Path, ahead: bool, persistent: bool
) -> None:
    loader = hanging(folder, tmp_path / "hold", persistent_workers=persistent)
    batches = ss.DevicePrefetcher(loader, "cpu", depth=4) if ahead else loader
    for batch in batches:
        assert batch["id"].tolist() == list(range(10))
        break
    iterator = iter(batches)
    assert (tmp_path / "hold").exists()  # still: it was not waited for
    assert next(iterator)["id"].tolist() == list(range(10))
    state = loader.state_dict()
    loader.load_state_dict(state)
    (tmp_path / "hold").unlink()
    assert ids(batches) == list(range(10, 120))
    assert ids(ss.Loader(ss.ShardDataset(folder, fields=["id"], batch_size=10), num_workers=0)) == list(range(120))


def test_a_state_can_be_loaded_while_a_thread_waits_for_workers(folder: Path, tmp_path: Path) -> None:
    ahead = ss.DevicePrefetcher(hanging(folder, tmp_path / "hold"), "cpu", depth=4)
    iterator = iter(ahead)
    next(iterator)
    ahead.load_state_dict(ahead.state_dict())
    with pytest.raises(ss.errors.UsageError, match="ended when a newer one"):
        next(iterator)
    (tmp_path / "hold").unlink()
    assert ids(ahead) == list(range(10, 120))


@pytest.mark.parametrize("workers", [0, 1])
def test_a_loop_says_which_worker_and_which_sample_it_waits_for(
    folder: Path, tmp_path: Path, workers: int, caplog: pytest.LogCaptureFixture
) -> None:
    hold = tmp_path / "hold"
    loader = hanging(folder, hold, num_workers=workers)
    threading.Thread(
        target=lambda: (wait_until(lambda: "sample 20]" in "".join(told(caplog, "shardstream.waits"))), hold.unlink())
    ).start()
    assert ids(loader) == list(range(120))
    said = next(one for one in told(caplog, "shardstream.waits") if "sample 20]" in one)
    assert ("a batch of DataLoader worker 0 (process " if workers else "a batch of this process") in said
    assert "shard shard-000000.tar, sample 20]" in said


@pytest.mark.one_in(2)
@pytest.mark.parametrize("cycle", [False, True])
def test_workers_that_hang_are_ended_together_with_their_loader(folder: Path, tmp_path: Path, cycle: bool) -> None:
    loader: Any = hanging(folder, tmp_path / "hold", block=True)
    next(iter(loader))
    processes = [worker.pid for worker in loader._iterator._workers]
    if cycle:
        loader.me = loader
    del loader
    gc.collect()
    for process in processes:
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)


def collect(iterator: Any) -> None:
    with contextlib.suppress(AssertionError):
        iterator.__del__()  # as the cycle collector would
    time.sleep(0.5)  # for threads that tell workers


def test_a_forked_process_leaves_the_workers_of_its_parent_alone(folder: Path) -> None:
    loader = ss.Loader(ss.ShardDataset(folder, fields=["id"], batch_size=10), num_workers=1)
    iterator = iter(loader)
    next(iterator)
    child = multiprocessing.get_context("fork").Process(target=collect, args=[loader._iterator])
    child.start()
    child.join()
    assert ids(iterator) == list(range(10, 120))


_LEAVES = """
import signal, sys, time
import shardstream as ss

def hang(sample):
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    while sample["id"] == 20:
        time.sleep(0.01)
    return sample

if __name__ == "__main__":
    ds = ss.ShardDataset(sys.argv[1], fields=["id"], batch_size=10, transform=hang)
    loader = ss.Loader(ds, num_workers=2)
    next(iter(ss.DevicePrefetcher(loader, "cpu") if sys.argv[2:] else loader))
    print("leaving", flush=True)
"""


@pytest.mark.full
@pytest.mark.parametrize("ahead", [[], ["ahead"]])
def test_a_process_leaves_workers_that_hang(folder: Path, ahead: list[str]) -> None:
    command = [sys.executable, "-c", _LEAVES, str(folder), *ahead]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout) == (0, "leaving\n")


# ---------------------------------------------------------------------------------------------- workers that have died


def once(where: Path, sample: dict[str, Any]) -> dict[str, Any]:
    """A transform that dies at sample 60, the first time."""
    if sample["id"] == 60:
        with contextlib.suppress(FileExistsError):
            where.mkdir()
            os.kill(os.getpid(), signal.SIGKILL)
    return sample


@pytest.mark.one_in(3)
@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("ahead", [True, False])
def test_after_a_death_the_loader_goes_on_with_new_workers(
    folder: Path, tmp_path: Path, ahead: bool, persistent: bool
) -> None:
    dataset = ss.ShardDataset(folder, fields=["id"], transform=partial(once, tmp_path / "died"), batch_size=10)
    loader = ss.Loader(dataset, num_workers=2, persistent_workers=persistent)
    batches = ss.DevicePrefetcher(loader, "cpu") if ahead else loader
    seen: list[int] = []
    with pytest.raises(ss.errors.WorkerError, match="killed by signal"):
        seen.extend(one for batch in batches for one in batch["id"].tolist())
    loader.load_state_dict(loader.state_dict())
    assert seen + ids(batches) == list(range(120))
    assert ids(batches) == list(range(120))


def die_in_a_step(process: int) -> None:
    os.kill(process, signal.SIGKILL)
    wait_until(lambda: False)  # a step, which torch interrupts


def test_the_first_error_names_the_worker_wherever_the_loop_is(folder: Path) -> None:
    def slowly(sample: dict[str, Any]) -> dict[str, Any]:
        if sample["id"] == 30:
            time.sleep(60)
        return sample

    dataset = ss.ShardDataset(folder, fields=["id"], transform=slowly, batch_size=10)
    loader = ss.Loader(dataset, num_workers=1)
    for batch in loader:
        if 20 in batch["id"]:
            worker: Any = loader._iterator._workers[0]  # type: ignore[union-attr]
            with pytest.raises(ss.errors.WorkerError, match=r"DataLoader worker 0 .*was killed by signal") as caught:
                die_in_a_step(worker.pid)
            break
    assert caught.value.place["shard"] == "shard-000000.tar"


def test_the_death_of_other_processes_is_not_ours(folder: Path) -> None:
    loader = ss.Loader(ss.ShardDataset(folder, fields=["id"], batch_size=10), num_workers=1)
    other = torch.utils.data.DataLoader(range(10**6), num_workers=1, persistent_workers=True)  # type: ignore[arg-type]
    iterator = iter(loader)
    next(iterator)
    next(theirs := iter(other))
    with pytest.raises(RuntimeError, match="DataLoader worker") as caught:
        die_in_a_step(theirs._workers[0].pid)  # type: ignore[attr-defined]
    assert not isinstance(caught.value, ss.errors.WorkerError)
    assert ids(iterator) == list(range(10, 120))
