"""The local store, by contract and beyond."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import gc
import os
import signal
import subprocess
import sys
import time
from io import FileIO
from pathlib import Path

import numpy as np
import pytest

from shardstream.errors import ChangedError, NotFoundError, StorageError
from shardstream.storage.local import store as local
from shardstream.storage.local.mapped_files import map_file
from shardstream.storage.local.store import LocalStore
from shardstream.storage.local.whole_files import read_whole
from shardstream.testing import StoreConformance


class TestLocalStore(StoreConformance):
    @pytest.fixture(autouse=True)
    def _below(self, tmp_path):
        self.root = tmp_path / "root"

    def make_store(self):
        return LocalStore(self.root)

    def plant(self, path, data):
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)

    def dig(self, path):
        target = self.root / path
        return target.read_bytes() if target.exists() else None

    def test_temporary_files_do_not_stay(self) -> None:
        store = self.make_store()
        with pytest.raises(KeyError), store.create("x") as out:  # noqa: PT012 - the block is what is tested
            out.write(b"1")
            raise KeyError
        store.put("y", b"1")
        assert os.listdir(self.root) == ["y"]


def test_sweep_removes_what_a_killed_writer_left(tmp_path) -> None:
    code = (
        "import sys, time\nfrom shardstream.storage import open_store\n"
        "out = open_store(sys.argv[1]).create('deep/x')\nout.write(b'1' * (3 << 20))\nprint('ready', flush=True)\n"
        "time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        store = LocalStore(tmp_path)
        store.sweep()
        assert len(os.listdir(tmp_path / "deep")) == 1  # it lives
        assert list(store.list()) == []
        child.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 10
    while os.listdir(tmp_path / "deep"):
        assert time.monotonic() < deadline
        store.sweep()
    assert not store.exists("deep/x")


def test_a_writer_that_was_swept_while_it_began_begins_again(tmp_path, monkeypatch) -> None:
    flock, swept = fcntl.flock, []

    def lock(descriptor, how):
        if not swept:
            swept.append(os.readlink(f"/proc/self/fd/{descriptor}"))
            os.unlink(swept[0])
        return flock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", lock)
    LocalStore(tmp_path).put("x", b"1")
    assert swept
    assert (tmp_path / "x").read_bytes() == b"1"


def _open_below(folder) -> list[str]:
    """The files below a folder that this process holds open; other tests' threads may close theirs meanwhile."""
    opened = []
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            opened.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    return [path for path in opened if path.startswith(str(folder))]


def test_mappings_hold_no_file_descriptor_and_end_with_their_last_slice(tmp_path) -> None:
    store = LocalStore(tmp_path)
    for i in range(50):
        (tmp_path / f"{i}").write_bytes(bytes([i]) * 5000)
    with open(tmp_path / "0"):
        assert _open_below(tmp_path) == [str(tmp_path / "0")]
    slices = [store.get(f"{i}", 10, 3) for i in range(50)]
    assert not _open_below(tmp_path)
    del store
    gc.collect()
    assert [bytes(one) for one in slices] == [bytes([i]) * 3 for i in range(50)]

    def mapped() -> int:
        with open("/proc/self/maps") as maps:
            return sum(str(tmp_path) in line for line in maps)

    arrays = [np.frombuffer(one, np.uint8) for one in slices]
    del slices
    assert mapped() == 50
    assert not arrays[0].flags.writeable
    del arrays
    assert mapped() == 0


def test_old_mappings_give_way(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(local, "_OPEN_MAPS", 3)
    store = LocalStore(tmp_path)
    for i in range(5):
        (tmp_path / f"{i}").write_bytes(b"%d" % i)
    for _ in range(2):
        assert [bytes(store.get(f"{i}")) for i in range(5)] == [b"0", b"1", b"2", b"3", b"4"]
    assert len(store._maps) == 3
    store.get("2")  # the oldest, used again
    store.get("0")
    assert list(store._maps) == ["4", "2", "0"]


def test_a_file_that_another_process_replaces_stays_as_it_was(tmp_path) -> None:
    (tmp_path / "x").write_bytes(b"old")
    store = LocalStore(tmp_path)
    store.get("x")
    (tmp_path / "new").write_bytes(b"newer")
    os.replace(tmp_path / "new", tmp_path / "x")
    assert bytes(store.get("x")) == b"old"
    assert bytes(LocalStore(tmp_path).get("x")) == b"newer"


def test_a_file_that_is_cut_in_place_is_an_error_where_an_index_is_opened_again(tmp_path) -> None:
    (tmp_path / "x").write_bytes(bytes(20_000))
    store = LocalStore(tmp_path)
    assert store.get_tail("x", 5)[1] == 20_000
    os.truncate(tmp_path / "x", 100)
    with pytest.raises(StorageError, match="cut from 20000 to 100 bytes"):
        store.get_tail("x", 5)
    (tmp_path / "new").write_bytes(bytes(5))
    os.replace(tmp_path / "new", tmp_path / "x")  # another file, and shorter: what is mapped is what it was
    (tmp_path / "y").write_bytes(bytes(20))
    store.get_tail("y", 5)
    os.replace(tmp_path / "x", tmp_path / "y")
    assert store.get_tail("y", 5)[1] == 20
    os.unlink(tmp_path / "y")
    assert store.get_tail("y", 5)[1] == 20


def test_a_fifo_is_no_object_and_nobody_waits_for_it(tmp_path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(FileNotFoundError):
        map_file(tmp_path / "fifo")
    assert not LocalStore(tmp_path).exists("fifo")
    for name in ("fifo", "."):
        with pytest.raises(NotFoundError):
            read_whole(str(tmp_path / name))


def test_a_file_is_read_whole_or_has_changed(tmp_path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"12345")
    seen = []
    assert read_whole(str(path), size=5, check=lambda _, size: seen.append(size)) == b"12345"
    assert seen == [5]
    for size, what in ((4, "longer"), (6, "shorter")):
        with pytest.raises(ChangedError, match=f"{what}, and had {size} bytes when it was indexed"):
            read_whole(str(path), size=size)
    for data in (b"1234", b"123456", b"54321"):
        with pytest.raises(ChangedError, match="changed while it was being read"):
            read_whole(str(path), check=lambda *_, data=data: (path.write_bytes(data), os.utime(path, (0, 0))))


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_a_storage_error_and_leaves_nothing(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(local, "create_temporary", lambda target: (target, FileIO("/dev/full", "wb")))
    monkeypatch.setattr(local.Path, "exists", lambda path: True)
    out = LocalStore(tmp_path).create("x")
    monkeypatch.undo()
    out.write(b"1")
    with pytest.raises(StorageError, match="No space left") as caught:
        out.commit()
    assert caught.value.place["url"] == str(tmp_path / "x")
    assert os.listdir(tmp_path) == []


def test_a_folder_in_the_way_is_a_storage_error(tmp_path) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "file").write_bytes(b"")
    store = LocalStore(tmp_path)
    with pytest.raises(StorageError, match="directory"):
        store.put("x", b"1")
    with pytest.raises(StorageError):
        store.put("file/below", b"1")
    assert sorted(os.listdir(tmp_path)) == ["file", "x"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_no_right_to_read_is_a_storage_error(tmp_path) -> None:
    (tmp_path / "x").write_bytes(b"1")
    (tmp_path / "x").chmod(0)
    with pytest.raises(StorageError, match="Permission"):
        LocalStore(tmp_path).get("x")


def test_an_error_of_a_flush_in_the_background_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel tells of a failed write once: if a flush that runs beside the writing hears of it, `commit` must."""

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fdatasync", full)
    writer = LocalStore(tmp_path).create("big")
    with pytest.raises(StorageError, match="No space left"):  # noqa: PT012 - the next write may hear of it, too
        for _ in range(20):
            writer.write(bytes(1 << 20))
        writer.commit()
    writer.discard()
    assert list(tmp_path.iterdir()) == []
