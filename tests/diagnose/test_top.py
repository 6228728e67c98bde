"""What the workers of a run are at, read from another process."""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from io import FileIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from typer.testing import CliRunner

import shardstream as ss
from shardstream.cli.app import app
from shardstream.cli.verbs.top import top_text
from shardstream.dataset import shared
from shardstream.dataset.shared import SharedWords, WorkerStatuses
from shardstream.diagnose import RunSeen, top
from shardstream.errors import UsageError

from ..storage.faults import FaultProxy
from ..storage.places import WebPlace
from ..stream.making import numbered, write_dataset


@pytest.fixture(autouse=True, scope="module")
def _no_loaders_of_other_tests() -> None:
    """Loaders that other tests left in cycles are runs of this process, too."""
    gc.collect()


FORK: Any = multiprocessing.get_context("fork")


def asleep(sample: dict[str, Any]) -> dict[str, Any]:
    if sample["id"] == 13 or os.environ["RANK"] == "1":
        time.sleep(60)
    return sample


def read(url: str, rank: int, world_size: int) -> None:
    """A rank that hangs: rank 0 at sample 13, rank 1 at its first one."""
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world_size)}
    dataset = ss.ShardDataset(url, fields=["id"], batch_size=5, transform=asleep, shuffle=False)
    list(ss.Loader(dataset, num_workers=1, timeout=60))


def launch(url: str, world_size: int) -> None:
    """What torchrun does."""
    ranks = [FORK.Process(target=read, args=(url, rank, world_size)) for rank in range(world_size)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()


@contextmanager
def running(target: Callable[..., None], *args: Any) -> Iterator[int]:
    """The number of a process that is ended afterwards, with those that it started."""
    process = FORK.Process(target=apart, args=(target, *args))
    process.start()
    try:
        yield process.pid
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.join()


def apart(target: Callable[..., None], *args: Any) -> None:
    os.setsid()
    target(*args)


def until(process: int, enough: Callable[[list[RunSeen]], bool]) -> list[RunSeen]:
    """What is seen of a process, once it is enough."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        try:
            runs = top(process)
        except UsageError:
            runs = []
        if enough(runs):
            return runs
        time.sleep(0.05)
    raise AssertionError(runs)


def keys(runs: list[RunSeen]) -> list[str]:
    return [worker.key for run in runs for worker in run.workers]


def test_ranks_that_a_process_launched_and_the_sample_that_each_is_at(tmp_path: Path) -> None:
    folder = write_dataset(tmp_path / "d", numbered([10, 50]))
    with running(launch, str(folder), 1) as alone:
        (run,) = until(alone, lambda runs: keys(runs) == ["k000013"])
        once = CliRunner().invoke(app, ["top", str(alone), "--once"])
        as_json = CliRunner().invoke(app, ["top", str(alone), "--json"])
    assert (run.rank, run.world_size, run.num_workers, run.urls) == (0, 1, 1, (str(folder),))
    (worker,) = run.workers
    assert len({alone, run.process, worker.process}) == 3
    assert (worker.url, worker.shard, worker.sample) == (str(folder), "shard-000001.tar", 3)
    assert worker.key == "k000013"
    head, names, row, _ = once.stdout.splitlines()
    assert head == f"rank 0, process {run.process}: {folder}"
    assert names.split() == ["worker", "process", "stage", "for", "shard", "sample", "key"]
    assert row.split()[:3] == ["0", str(worker.process), "transform"]
    assert row.split()[-3:] == ["shard-000001.tar", "3", "k000013"]
    (found,) = json.loads(as_json.stdout)["runs"]
    assert found["workers"][0]["shard"] == "shard-000001.tar"
    with running(launch, str(folder), 2) as both:
        runs = until(both, lambda runs: len(runs) == 2)
    assert [(run.rank, run.world_size) for run in runs] == [(0, 2), (1, 2)]


def test_the_request_that_a_worker_waits_for(web: WebPlace, tmp_path: Path) -> None:
    folder = write_dataset(tmp_path / "d", numbered([40]), format="record")
    for file in folder.iterdir():
        web.plant(file.name, file.read_bytes())
    with FaultProxy(web.endpoint.removeprefix("http://")) as proxy:
        url = web.url().replace(web.endpoint, proxy.url)
        proxy.add("stall", match="shard-000000")
        with running(read, url, 0, 1) as process:
            (run,) = until(process, lambda runs: any(one.request for run in runs for one in run.workers))
            text = CliRunner().invoke(app, ["top", str(process)]).stdout
    (worker,) = run.workers
    assert worker.request == f"{url}/shard-000000.rec"
    assert f"  worker 0 waits for {url}/shard-000000.rec (attempt 1, for " in text


def of_another_version(ready: Any) -> None:
    words = WorkerStatuses(1, 4)._shared.words
    words[1] = 99
    ready.set()
    time.sleep(60)


def of_none(ready: Any) -> None:
    kept = SharedWords(100)
    ready.set()
    time.sleep(60)
    assert kept


@pytest.mark.parametrize(
    ("target", "what"),
    [
        (of_another_version, "the run writes its state in layout 99, known here is 1"),
        (of_none, "neither process [0-9]+ nor any that it started reads with an ss.Loader"),
    ],
)
def test_memory_that_is_not_of_this_version(target: Callable[..., None], what: str) -> None:
    ready = FORK.Event()
    with running(target, ready) as process:
        assert ready.wait(30)
        with pytest.raises(UsageError, match=what):
            top(process)


def memory(about: Any, **words: int) -> bytes:
    """What a run of one worker writes, with other numbers in some words."""
    numbers = WorkerStatuses(1, 2, about)._shared.words.copy()
    worker = len(numbers) - shared._size(2)
    numbers[worker + shared._PROCESS], numbers[worker + shared.STAGE], numbers[worker + shared._SHARD] = 7, 1, 1
    for name, number in words.items():
        numbers[getattr(shared, name) + (worker if name in OF_A_WORKER else 0)] = number
    return bytes(numbers)


OF_A_WORKER = {"STAGE", "SLOT", "_LISTED", "_KEYS", "_URL", "_SINCE", "_SHARD"}
PLACES = [[("s3://b", 10, [("shard-{:06d}.tar", 10)])]]
FORGED: dict[str, bytes] = {
    "a width": memory([[("s3://b", 10, [("{:2000000000}", 10)])]]),
    "an attribute": memory([[("s3://b", 10, [("{0.__class__.__mro__}", 10)])]]),
    "a name": memory([[("s3://b", 10, [("{name}", 10)])]]),
    "a path out": memory([[("s3://b", 10, [("../{:d}", 10)])]]),
    "no URL": memory([[(3, 10, [])]]),
    "no count": memory([[("s3://b", "10", [])]]),
    "no list": memory({"a": 1}),
    "other values": memory([5, "x"]),
    "deep lists": memory("x" * 60_000).replace(b"x" * 60_000, b"[" * 60_000),
    "no JSON": memory("xxxx").replace(b"xxxx", b'"\xff\xfe{'),
    "a stage": memory(PLACES, STAGE=99),
    "a negative stage": memory(PLACES, STAGE=-1),
    "workers": memory(PLACES, _WORKERS=1 << 40),
    "no workers": memory(PLACES, _WORKERS=-1),
    "samples": memory(PLACES, _SAMPLES=1 << 62),
    "negative sizes": memory(PLACES, _SAMPLES=-5, _ABOUT=-1),
    "long text": memory(PLACES, _ABOUT=1 << 40),
}
ODD = {  # numbers that no run writes, and that say nothing
    "a slot": memory(PLACES, _LISTED=1 << 60, SLOT=1 << 50, _KEYS=-1),
    "a URL": memory(PLACES, _URL=-3, _SINCE=-(1 << 62)),
    "a shard": memory(PLACES, _SHARD=1 << 60),
    "another shard": memory(PLACES, _SHARD=11),
}


@pytest.mark.parametrize("what", FORGED)
def test_forged_memory_is_an_error_of_ours(what: str) -> None:
    with pytest.raises(UsageError, match=r"is not what a run writes: .*[^\n]"):
        shown(FORGED[what])


@pytest.mark.parametrize("what", ODD)
def test_odd_numbers_are_shown(what: str) -> None:
    text, (run,) = shown(ODD[what])
    assert run.workers[0].process == 7
    assert "read" in text


def test_memory_longer_than_it_says_is_not_read() -> None:
    with pytest.raises(UsageError, match=r"214748364800 bytes where [0-9]+ belong"):
        shown(memory(PLACES), size=200 << 30)


def test_a_forgery_hides_no_run() -> None:
    _, runs = shown(memory(PLACES), FORGED["a width"])
    assert [run.urls for run in runs] == [("s3://b",)]


def shown(*pieces: bytes, size: int = 0) -> tuple[str, list[RunSeen]]:
    """What `top` finds in these pieces of memory of a process that has no others, and how that is drawn."""
    with ExitStack() as stack:
        files = [stack.enter_context(FileIO(os.memfd_create("shardstream"), "r+")) for _ in pieces]
        for file, piece in zip(files, pieces, strict=True):
            file.write(piece)
            file.truncate(size or len(piece))
        only = patch("shardstream.diagnose.top._memory_of", lambda process: map(reopened, files))
        stack.enter_context(only)
        runs = top(os.getpid())
    return top_text(runs, 80), runs


def reopened(file: FileIO) -> FileIO:
    file.seek(0)
    return file


def test_processes_that_cannot_be_looked_at() -> None:
    with pytest.raises(UsageError, match="there is no process 99999999"):
        top(99_999_999)

    def ask(process: int, answers: Any) -> None:
        if not os.geteuid():
            os.seteuid(65534)
        try:
            top(process)
        except UsageError as error:
            answers.send(str(error))

    here, there = FORK.Pipe()
    asker = FORK.Process(target=ask, args=(os.getpid() if not os.geteuid() else 1, there))
    asker.start()
    assert "is of another user (root): its memory is not shown" in here.recv()
    asker.join()


def test_a_name_that_is_kept_by_itself_is_a_number() -> None:
    desk = WorkerStatuses(1, 4, [[("url", 3, [])]])
    status = desk.of(0)
    status.waits(2)
    run = next(run for run in top(os.getpid()) if run.urls == ("url",))
    assert (run.workers[0].url, run.workers[0].shard) == ("url", "2")
    status.lists(np.array([2]))
    status.at("idle")
    run = next(run for run in top(os.getpid()) if run.urls == ("url",))
    assert (run.workers[0].url, run.workers[0].shard) == (None, None)
