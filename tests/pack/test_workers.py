"""Worker processes and executors: messages of any size, lists of which much is missing, others that hang or die."""

from __future__ import annotations

import json
import os
import pickle
import random
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from shardstream import waits
from shardstream.errors import ShardStreamError, SourceError, UsageError, WorkerError
from shardstream.pack.execution import process as process_module
from shardstream.pack.execution.channel import ParentEnd, framed
from shardstream.pack.execution.workers import run_in_processes
from shardstream.pack.export.run import export
from shardstream.pack.options import PackOptions
from shardstream.pack.output.stats import PackStats
from shardstream.pack.repack import repack
from shardstream.pack.run import pack, run_pack
from shardstream.pack.writer import ShardWriter
from shardstream.progress import ProgressEvent
from shardstream.storage import locate

from ..processes import pack_workers
from .making import photo_list, samples, tree
from .test_kill import until

HELPERS = """
import os, signal, subprocess, time
from dataclasses import dataclass
from shardstream.pack.output.stats import PackStats

@dataclass
class Result:
    number: int
    payload: bytes
    tally: PackStats = PackStats(samples=1)
    kept: bool = True

class Odd(Exception):
    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")

@dataclass
class Task:
    number: int
    payload: bytes
    dest: object
    act: str = ""
    name = property(lambda self: f"task-{self.number}")

    def finished(self):
        if self.act == "odd":
            raise Odd(1, 2)
        if self.act == "leave a child and die":
            child = subprocess.Popen(["sleep", "60"], close_fds=False, start_new_session=True)
            with open(os.environ["CHILD"], "w") as file:
                file.write(str(child.pid))
            os.kill(os.getpid(), signal.SIGKILL)
        return Result(self.number, self.payload)

@dataclass
class Refusing:
    below: int

    def __call__(self, sample):
        if sample["cls"] < self.below:
            raise ValueError("no " * 50)
        return sample

def slow(sample):
    time.sleep(0.01)
    return sample
"""


@pytest.fixture
def helpers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A module that worker processes find, too."""
    (tmp_path / "helpers_of_workers.py").write_text(HELPERS)
    monkeypatch.syspath_prepend(str(tmp_path))
    import helpers_of_workers  # type: ignore[import-not-found]

    yield helpers_of_workers
    del sys.modules["helpers_of_workers"]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> list[str]:
    """What waits say, soon."""
    monkeypatch.setattr(waits, "NOTICE_S", 0.2)
    found: list[str] = []
    monkeypatch.setattr(waits._log, "warning", lambda text, *values: found.append(text % values))
    return found


def ignore(*_: object) -> None: ...


# ------------------------------------------------------------------------------------------------------------- messages


@pytest.mark.one_in(2)
@pytest.mark.parametrize("workers", [1, 3])
def test_messages_of_megabytes_both_ways(helpers: ModuleType, tmp_path: Path, workers: int) -> None:
    payload = random.Random(0).randbytes(4 << 20)
    tasks = [helpers.Task(i, payload, locate(tmp_path)) for i in range(12)]
    found = {}
    for result in run_in_processes(tasks, ignore, workers=workers):
        found[result.number] = result.payload == payload  # type: ignore[attr-defined]
    assert found == dict.fromkeys(range(12), True)


@pytest.mark.full
def test_of_large_tasks_one_waits_here_at_a_time(
    helpers: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    payload, most = bytes(2 << 20), 0
    put = ParentEnd.put
    ends: set[ParentEnd] = set()

    def counted(self: ParentEnd, message: object) -> None:
        nonlocal most
        put(self, message)
        ends.add(self)
        most = max(most, sum(len(one._unsent) for one in ends))

    monkeypatch.setattr(ParentEnd, "put", counted)
    tasks = [helpers.Task(i, payload, locate(tmp_path)) for i in range(16)]
    assert len(list(run_in_processes(tasks, ignore, workers=4))) == 16
    assert most == 4  # at the start, one for each worker; none that would only follow it


def test_a_message_that_breaks_off() -> None:
    one, other = socket.socketpair()
    end = ParentEnd(one)
    message = framed(pickle.dumps(list(range(1000))))
    other.sendall(message[:3])
    assert list(end.receive()) == []  # not even its length is there
    other.sendall(message[3:] + message[:500])
    assert list(end.receive()) == [list(range(1000))]
    other.close()
    with pytest.raises(EOFError):
        list(end.receive())
    with pytest.raises(OSError, match="Broken pipe"):
        end.put(1)
    end.close()


def test_an_error_that_cannot_be_unpickled(helpers: ModuleType, tmp_path: Path) -> None:
    tasks = [helpers.Task(i, b"", locate(tmp_path), "odd") for i in range(2)]
    with pytest.raises(ShardStreamError, match=r"^Odd: 1 and 2$"):
        list(run_in_processes(tasks, ignore, workers=2))


def of_the_script(sample: dict[str, Any]) -> dict[str, Any]:
    return sample


def test_a_function_that_workers_do_not_find(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = photo_list(tmp_path / "in", 60)
    monkeypatch.setattr(of_the_script, "__module__", "__main__")
    monkeypatch.setattr(sys.modules["__main__"], "of_the_script", of_the_script, raising=False)
    with pytest.raises(UsageError, match=r"a worker process cannot load its task: .*of_the_script"):
        pack(source, tmp_path / "out", shard_size="10kB", workers=2, transform=of_the_script)


# ---------------------------------------------------------------------------------------------------------- small tasks


def long_list(folder: Path, lines: int, share: float) -> Path:
    """Lines that are long, so that those of one shard, and what is said of the missing ones, fill any pipe."""
    folder.mkdir(exist_ok=True)
    for number in range(10):
        (folder / f"{number}.bin").write_bytes(random.Random(number).randbytes(100))
    draw = random.Random(1)
    path = folder / f"list-{share}.tsv"
    with path.open("w") as out:
        out.write("path\tlabel\tid\n")
        for i in range(lines):
            name = f"{i % 10}.bin" if i == 0 or draw.random() >= share else f"{'missing/' * 20}{i % 10}.bin"
            out.write(f"{name}\t{i % 7}\t{'x' * 60}/{i}\n")
    return path


@pytest.mark.one_in(3)
@pytest.mark.parametrize("share", [0.0, 0.25, 0.99])
def test_lists_of_which_much_is_missing(tmp_path: Path, share: float) -> None:
    lines = 4_000
    source = long_list(tmp_path / "in", lines, share)
    options = PackOptions(key="id", format="record", shard_size="120kB")
    whole = run_pack(source, tmp_path / "whole", options, workers=0)
    assert whole.manifest.shards > 5
    report = run_pack(source, tmp_path / "out", options, workers=2)
    assert tree(tmp_path / "out") == tree(tmp_path / "whole")
    assert report.rejects + report.manifest.samples == lines
    assert (report.rejects, report.first_reject, report.reasons) == (whole.rejects, whole.first_reject, whole.reasons)
    assert report.rejects == pytest.approx(share * lines, abs=200)
    if share:
        found = [json.loads(line) for line in (tmp_path / "out" / "rejects.jsonl").read_text().splitlines()]
        assert [entry["line"] for entry in found] == sorted(entry["line"] for entry in found)
        assert {(len(entry["path"]), entry["reason"]) for entry in found} == {(165, "there is no such file")}
        assert dict(report.reasons) == {"there is no such file": report.rejects}


@pytest.mark.full
@pytest.mark.parametrize("share", [0.25, 0.99])
def test_repack_and_export_where_much_is_rejected(helpers: ModuleType, tmp_path: Path, share: float) -> None:
    with ShardWriter(tmp_path / "in", format="record", shard_size="200kB") as writer:
        for i in range(8000):
            writer.write({"__key__": f"{'k' * 80}/{i}", "txt": "x" * 60, "cls": i})
    bad = int(8000 * share)
    for name, workers in (("whole", 0), ("out", 2)):
        options: dict[str, Any] = {"shuffle": True, "shard_size": "300kB", "transform": helpers.Refusing(bad)}
        manifest = repack(tmp_path / "in", tmp_path / name, workers=workers, **options)
        assert (manifest.samples, manifest.shards > 5) == (8000 - bad, True)
    assert tree(tmp_path / "out") == tree(tmp_path / "whole")
    assert (tmp_path / "out" / "rejects.jsonl").read_bytes().count(b"\n") == bad
    report = export(tmp_path / "out", tmp_path / "files", to="webdataset", workers=2)
    assert report.samples == 8000 - bad


class Sizes:
    """The bytes of all messages to workers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.largest = self.count = 0
        put = ParentEnd.put

        def counted(end: ParentEnd, message: object) -> None:
            self.count += 1
            self.largest = max(self.largest, len(pickle.dumps(message)))
            put(end, message)

        monkeypatch.setattr(ParentEnd, "put", counted)


@pytest.mark.full
def test_a_task_of_a_local_worker_is_a_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = Sizes(monkeypatch)
    source = long_list(tmp_path / "in", 3000, 0.5)
    options: dict[str, Any] = {"shard_size": "60kB", "workers": 2}
    pack(source, tmp_path / "out", key="id", dedup=True, **options)
    photo_list(tmp_path / "photos", 90)
    (tmp_path / "photos" / "list.tsv").unlink()
    pack(tmp_path / "photos", tmp_path / "folder", shard_size="10kB", workers=2)
    repack(tmp_path / "folder", tmp_path / "again", shard_size="5kB", workers=2)
    export(tmp_path / "again", tmp_path / "files", to="files", workers=2)
    assert sizes.count > 30
    assert sizes.largest < 100


def test_a_list_that_changes_while_it_is_packed(tmp_path: Path) -> None:
    source = photo_list(tmp_path / "in", 60)

    def change(event: ProgressEvent) -> None:
        if event.stage == "pack":
            source.write_text(source.read_text() + "\n")

    with pytest.raises(SourceError, match="the list changed while it was being packed"):
        pack(source, tmp_path / "out", shard_size="10kB", workers=2, progress=change)


def test_a_sequence_that_stays_here_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = Sizes(monkeypatch)
    source = [{"__key__": str(i), "raw": random.Random(i).randbytes(20_000), "cls": i} for i in range(200)]
    pack(source, tmp_path / "out", shard_size="500kB", workers=2)
    assert sizes.largest > 400_000
    assert {key: sample["raw"] for key, sample in samples(tmp_path / "out").items()} == {
        one["__key__"]: one["raw"] for one in source
    }


# ---------------------------------------------------------------------------------------------- who hangs, and who dies


@pytest.mark.full
def test_a_worker_dies_whose_child_holds_its_channel_open(
    helpers: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHILD", str(tmp_path / "child"))
    tasks = [helpers.Task(i, b"", locate(tmp_path), "leave a child and die") for i in range(2)]
    try:
        with pytest.raises(ShardStreamError, match="a worker process was killed by SIGKILL"):
            list(run_in_processes(tasks, ignore, workers=1))
    finally:
        os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)


@pytest.mark.full
def test_a_worker_that_stands_still_is_told_of_and_waited_for(
    helpers: ModuleType, tmp_path: Path, told: list[str]
) -> None:
    source = photo_list(tmp_path / "in", 120)
    stopped: list[int] = []

    def stop(event: ProgressEvent) -> None:
        if event.tally.samples and not stopped:
            stopped.extend(pack_workers())
            for pid in stopped:
                os.kill(pid, signal.SIGSTOP)
            threading.Thread(target=go_on).start()

    def go_on() -> None:
        try:
            until(lambda: len(told) >= 2, 60)
        finally:
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)

    options = PackOptions(shard_size="10kB", transform=helpers.slow)
    report = run_pack(source, tmp_path / "out", options, workers=2, progress=stop)
    assert report.manifest.samples == 120
    assert "waiting for news of the worker process" in told[0]
    assert ", which makes shard-" in told[0]
    assert any(str(pid) in told[0] for pid in stopped)


@pytest.mark.full
def test_a_worker_that_cannot_be_killed_is_left(
    helpers: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(process_module, "_PATIENCE_S", 0.05)
    processes: list[subprocess.Popen[bytes]] = []

    class Unkillable(subprocess.Popen[bytes]):
        def __init__(self, *args: Any, **arguments: Any) -> None:
            super().__init__(*args, **arguments)
            processes.append(self)

        def kill(self) -> None:
            self.poll()

        def terminate(self) -> None:
            os.kill(self.pid, signal.SIGSTOP)

    monkeypatch.setattr(process_module.subprocess, "Popen", Unkillable)

    def fail(event: ProgressEvent) -> None:
        if event.tally.samples:
            raise KeyboardInterrupt

    try:
        with pytest.raises(KeyboardInterrupt):
            pack(
                photo_list(tmp_path / "in", 120),
                tmp_path / "out",
                shard_size="10kB",
                workers=2,
                transform=helpers.slow,
                progress=fail,
            )
    finally:
        for process in processes:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
    assert "does not end: it hangs in the system, on a disk or a network file system" in caplog.text


class Deaf(Executor):
    """Takes tasks, and does nothing about them."""

    def __init__(self) -> None:
        self.given: list[Future[Any]] = []

    def submit(self, fn: Any, /, *args: Any, **arguments: Any) -> Future[Any]:
        self.given.append(Future())
        return self.given[-1]


def test_an_executor_that_does_not_answer_is_told_of(tmp_path: Path, told: list[str]) -> None:
    executor = Deaf()
    source = photo_list(tmp_path / "in", 60)

    def give_up() -> None:
        try:
            until(lambda: told, 60)
        finally:
            for future in executor.given:
                future.cancel()

    thread = threading.Thread(target=give_up)
    thread.start()
    with pytest.raises(WorkerError, match="the executor does not run a task: it was cancelled") as caught:
        pack(source, tmp_path / "out", shard_size="10kB", on=executor)
    thread.join()
    assert str(caught.value.place["shard"]).startswith("shard-")
    assert told[0].startswith(f"waiting for one of {len(executor.given)} tasks that were handed out, shard-")


def test_an_executor_that_was_shut_down(tmp_path: Path) -> None:
    executor = ThreadPoolExecutor(1)
    executor.shutdown()
    with pytest.raises(WorkerError, match="the executor does not run a task: cannot schedule new futures"):
        pack(photo_list(tmp_path / "in", 60), tmp_path / "out", shard_size="10kB", on=executor)


def test_totals_come_while_tasks_are_done(helpers: ModuleType, tmp_path: Path) -> None:
    seen: list[PackStats] = []
    tasks = [helpers.Task(i, b"", locate(tmp_path)) for i in range(5)]
    list(run_in_processes(tasks, lambda tally, kept: seen.append(tally), workers=2))
    assert seen[-1].samples == 5
