"""What hangs while a data set is packed is told of, and does not keep a run from being ended."""

from __future__ import annotations

import operator
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from io import FileIO
from pathlib import Path

import pytest

from shardstream import threads as threads_module
from shardstream import waits
from shardstream.pack.encode.reading import read_all
from shardstream.pack.output.commits import Committer
from shardstream.pack.sources import Item, Reject, SourcePart
from shardstream.storage.local import store as local_module
from shardstream.storage.local import write_behind as behind_module
from shardstream.storage.local.store import LocalStore
from shardstream.storage.local.write_behind import WriteBehind
from shardstream.threads import Threads, each

from .making import photo_list
from .test_kill import until
from .test_reading import Listed, item
from .test_stores import Held


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What waits say, soon."""
    monkeypatch.setattr(waits, "NOTICE_S", 0.1)
    found: list[str] = []
    monkeypatch.setattr(waits._log, "warning", lambda text, *values: found.append(text % values))
    return found


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has patience."""
    monkeypatch.setattr(threads_module, "_PATIENCE_S", 0.1)
    monkeypatch.setattr(local_module, "_PATIENCE_S", 0.1)


def in_thread(act: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=act)
    thread.start()
    return thread


def test_a_shard_that_is_not_completed(told: list[str]) -> None:
    committer, held = Committer(), Held()
    committer.begin(held, "shard-000007.tar")
    waiting = in_thread(committer.wait)
    until(lambda: told)
    held.go.set()
    waiting.join()
    assert told[0].startswith("waiting for shard-000007.tar to be completed, for ")


def test_a_commit_whose_wait_is_interrupted_is_still_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """As by SIGTERM in a worker: the shard is there, and its receipt comes next."""
    committer, held, done = Committer(), Held(), threading.Event()
    commit = held.commit
    monkeypatch.setattr(held, "commit", lambda: (commit(), done.set()))
    committer.begin(held, "shard-000007.tar")
    previous = signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
    try:
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGTERM)).start()
        with pytest.raises(SystemExit):
            committer.wait()
    finally:
        signal.signal(signal.SIGTERM, previous)
    threading.Timer(0.1, held.go.set).start()
    committer.abandon()
    assert done.is_set()


class Hanging:
    """A disk that hangs: calls come back when it is there again."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.back = threading.Event(), threading.Event()
        writev = os.writev

        def write(descriptor: int, parts: list[bytes]) -> int:
            self.begun.set()
            assert self.back.wait(60)
            return writev(descriptor, parts)

        monkeypatch.setattr(behind_module.os, "writev", write)


def test_a_disk_that_hangs_and_comes_back(tmp_path: Path, told: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    disk, path = Hanging(monkeypatch), tmp_path / "x"
    with open(path, "xb", buffering=0) as file:
        behind = WriteBehind(file)
        writing = in_thread(lambda: [behind.write(bytes(1 << 20)) for _ in range(8)])
        until(lambda: told)
        disk.back.set()
        writing.join()
        assert behind.wait() is None
    assert told[0].startswith(f"waiting for {path} to be written to the disk, for ")
    assert path.stat().st_size == 8 << 20


@pytest.mark.parametrize("blocks", [1, 5])  # more than five, and the caller waits
def test_what_is_written_to_a_disk_that_hangs_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hurried: None, blocks: int
) -> None:
    disk, writer = Hanging(monkeypatch), LocalStore(tmp_path).create("x")
    assert isinstance(writer, local_module._LocalWriter)
    file = writer._file
    assert isinstance(file, FileIO)
    for _ in range(blocks):
        writer.write(bytes(1 << 20))
    assert disk.begun.wait(60)
    writer.discard()
    assert not os.listdir(tmp_path)
    assert not file.closed  # its number must not become another file's while a thread may write to it
    disk.back.set()
    until(lambda: not any(one.name == "shardstream-write" for one in threading.enumerate()))
    file.close()
    with LocalStore(tmp_path).create("y") as out:
        out.write(b"1")
    assert (tmp_path / "y").read_bytes() == b"1"


# -------------------------------------------------------------------------------------------------------------- sources


class Dead:
    """Reads files of which some never come."""

    def __init__(self) -> None:
        self.back = threading.Event()

    def read(self, path: str) -> bytes:
        if path.startswith("dead"):
            assert self.back.wait(60)
        elif path.startswith("slow"):
            time.sleep(0.01)
        return path.encode()


@pytest.mark.parametrize("before", ["quick", "slow"])  # read in this thread, or by many
def test_a_file_that_does_not_come(told: list[str], before: str) -> None:
    nfs = Dead()
    items: list[Item | Reject] = [item(i, f"{'dead' if i == 100 else before}{i}") for i in range(140)]
    found: list[str] = []
    reading = in_thread(lambda: found.extend(one.path for one, _ in read_all(Listed(items), nfs.read)))
    until(lambda: told)
    nfs.back.set()
    reading.join()
    assert told[0].startswith("waiting for dead100 of line 100 to be read, for ")
    assert found == [one.path for one in items]


class Stuck(SourcePart):
    def __init__(self, back: threading.Event) -> None:
        self.back = back

    def __iter__(self) -> Iterator[Item | Reject]:
        yield item(1, "a")
        assert self.back.wait(60)
        yield item(2, "b")


def test_a_source_that_gives_no_sample(told: list[str]) -> None:
    back = threading.Event()
    reading = in_thread(lambda: list(read_all(Stuck(back), str.encode)))
    until(lambda: told)
    back.set()
    reading.join()
    assert told[0].startswith("waiting for the next sample of the source, for ")


def test_who_leaves_waits_for_no_thread_that_hangs(hurried: None) -> None:
    nfs = Dead()
    items: list[Item | Reject] = [item(i, f"{'slow' if i < 40 else 'dead'}{i}") for i in range(140)]
    reading = read_all(Listed(items), nfs.read)
    for _ in range(30):
        next(reading)
    reading.close()  # type: ignore[attr-defined] # it is a generator
    nfs.back.set()
    until(lambda: not any(one.name == "shardstream-read" for one in threading.enumerate()))


def test_the_first_error_ends_it_whoever_else_hangs(told: list[str], hurried: None) -> None:
    back = threading.Event()

    def act(number: int) -> int:
        if number == 3:
            raise KeyError(number)
        if number > 3:
            assert back.wait(60)
        return number

    found: list[int] = []
    with pytest.raises(KeyError):
        found.extend(each(act, range(100), at_once=4, what="a number"))
    assert found == [0, 1, 2]
    back.set()


@pytest.mark.parametrize("at_once", [1, 4])
def test_side_by_side_and_in_order(told: list[str], at_once: int) -> None:
    items = iter(range(50))
    for number, doubled in enumerate(each(lambda i: 2 * i, items, at_once=at_once, what="a number")):
        assert doubled == 2 * number
        assert 49 - number - 2 * at_once <= operator.length_hint(items)  # few more are taken
    assert list(each(str, (), at_once=at_once, what="nothing")) == []
    back = threading.Event()
    waiting = in_thread(lambda: list(each(lambda _: back.wait(60), [1], at_once=at_once, what="a number")))
    until(lambda: told)
    back.set()
    waiting.join()
    assert told[0].startswith("waiting for a number, for ")


def test_no_thread_is_begun_for_nothing() -> None:
    with Threads(8, "test-threads") as threads:
        assert threads.submit(int, "7").result() == 7
        assert sum(one.name == "test-threads" for one in threading.enumerate()) == 1
    assert not any(one.name == "test-threads" for one in threading.enumerate())


HANGS = """
import sys, threading, time
from shardstream.pack.run import pack
from shardstream.pack.encode.files import Files

quick = Files.read

def read(self, path):
    if path.endswith("00150.jpg"):
        print("hangs", flush=True)
        threading.Event().wait()
    time.sleep(0.005)  # so that threads read
    return quick(self, path)

Files.read = read
pack(sys.argv[1], sys.argv[2], shuffle=False, workers=0)
"""


@pytest.mark.full
def test_a_dead_source_does_not_keep_a_run_from_being_interrupted(tmp_path: Path) -> None:
    source = photo_list(tmp_path / "in", 200)
    command = [sys.executable, "-c", HANGS, str(source), str(tmp_path / "out")]
    environment = {**os.environ, "SHARDSTREAM_NOTICE_S": "0.2"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "hangs\n"
        lines = iter(process.stderr.readline, "")
        assert any("00150.jpg of line 151 to be read" in line for line in lines)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT
    assert not (tmp_path / "out" / "dataset.json").exists()
