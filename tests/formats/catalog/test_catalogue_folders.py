"""Where a catalogue is kept: folders that cannot be used, that lost something, that somebody else fills too."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import shardstream as ss
from shardstream.errors import NotFoundError, StorageError
from shardstream.formats.catalog import journal, kept
from shardstream.formats.catalog.scan import Piece
from shardstream.storage.cache import Cache

from .making import tar

KEYS = [f"s{row}" for row in range(8)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a", "b"):
        tar(tmp_path / f"data/{name}.tar", [f"{name}{key}" for key in KEYS], txt=lambda row: f"text {row}")
    return tmp_path / "data"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    return tmp_path / "home"


def place_of(home: Path) -> Path:
    (place,) = (home / "shardstream/catalogues").iterdir()
    return place


def length(url: Any, **options: Any) -> int:
    return len(list(ss.Reader(url, **options)))


def test_training_starts_where_the_home_cannot_be_written(
    folder: Path, home: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home.write_text("a file, so that there is no folder of this name")
    assert length(folder) == 16
    assert "cannot be kept in its best place" in caplog.text
    assert (tmp_path / f"tmp/shardstream-{os.geteuid()}/catalogues").stat().st_mode & 0o777 == 0o700
    assert ss.index(folder, workers=1).scanned == 0  # and it is found there


def test_a_cache_that_cannot_be_written_is_no_reason_to_forget_the_catalogue(folder: Path, home: Path) -> None:
    assert length(folder, cache="/proc/no/cache") == 16
    assert place_of(home).is_dir()


def test_where_there_is_no_home_nothing_is_made_in_the_working_folder(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr("os.path.expanduser", lambda path: path)  # as without HOME, for a user whom nobody knows
    monkeypatch.chdir(tmp_path)
    assert length(folder) == 16
    assert not (tmp_path / "~").exists()
    assert ss.Reader(folder).get("as3")["txt"] == "text 3"


def test_a_catalogue_that_cannot_be_written_any_more_is_read(
    folder: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ss.index(folder, workers=1)

    def refused(*_: Any, **__: Any) -> None:
        raise OSError(30, "Read-only file system")

    for name in ("fchmod", "replace"):
        monkeypatch.setattr(os, name, refused)
    monkeypatch.setattr(kept, "lock_file", refused)
    assert length(folder) == 16
    tar(folder / "c.tar", ["c"], txt=lambda row: "x")
    monkeypatch.undo()


def test_nowhere_to_keep_it_is_one_error(folder: Path, home: Path, tmp_path: Path) -> None:
    home.write_text("a file")
    (tmp_path / "tmp").rmdir()
    (tmp_path / "tmp").write_text("a file")
    with pytest.raises(StorageError, match=r"cannot be kept[\s\S]*XDG_CACHE_HOME"):
        ss.Reader(folder)


def test_a_full_disk_names_the_folder(folder: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(journal.Journal, "_write", full)
        with pytest.raises(StorageError, match=r"No space left.*home/shardstream/catalogues"):
            ss.index(folder, workers=1)
    with monkeypatch.context() as patch:
        patch.setattr("shardstream.formats.catalog.write.ObjectTable", full)
        with pytest.raises(StorageError, match=r"No space left.*home/shardstream/catalogues"):
            ss.index(folder, workers=1)
    assert ss.index(folder, workers=1).scanned == 0


@pytest.mark.parametrize("suffix", [".bin", ".table", ".json"])
def test_a_catalogue_that_lost_an_object_is_made_again(folder: Path, home: Path, suffix: str) -> None:
    ss.index(folder, workers=1)
    next(place_of(home).glob(f"*{suffix}")).unlink()
    assert length(folder) == 16


@pytest.mark.parametrize("cut", [b"", b"garbage" * 9, b"\0" * 99])
def test_a_journal_of_another_version_is_no_journal(
    folder: Path, home: Path, monkeypatch: pytest.MonkeyPatch, cut: bytes
) -> None:
    class Stopped(Exception):
        pass

    def stop(*_: Any, **__: Any) -> None:
        raise Stopped

    with monkeypatch.context() as patch:
        patch.setattr("shardstream.formats.catalog.make.write_catalogue", stop)
        with pytest.raises(Stopped):
            ss.index(folder, workers=1)
    (left,) = place_of(home).glob("*.journal")
    data = left.read_bytes()
    left.write_bytes(cut or data.replace(b"covered", b"hovered"))
    if not cut:
        monkeypatch.setattr(journal, "_MAGIC", b"SSJRNL9\n")
    assert ss.index(folder, workers=1).scanned == 2
    assert length(folder) == 16


def test_pieces_of_an_object_that_were_half_written_are_no_part_of_it(tmp_path: Path) -> None:
    state, pieces = journal.ObjectState("a.tar", 9, 1, 0, 0), [Piece(2, {"txt": "str"}, bytes(99), 5)] * 3

    def killed() -> Iterator[Piece]:
        yield from pieces[:2]
        raise KeyboardInterrupt

    def opened() -> journal.Journal:
        return journal.Journal(os.open(tmp_path / "journal", os.O_RDWR | os.O_CREAT))

    for _ in range(2):
        left = opened()
        with pytest.raises(KeyboardInterrupt):
            left.add(state, killed())
        left.close()
    whole = opened()
    assert state not in whole
    whole.add(state, pieces)
    whole.close()
    again = opened()
    assert list(again.pieces(state)) == pieces
    again.close()


def test_users_who_share_a_cache_share_its_catalogues(folder: Path, tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        ss.index(folder, workers=1, cache=Cache(tmp_path / "cache", shared=True))
    finally:
        os.umask(before)
    (place,) = (tmp_path / "cache/catalogues").iterdir()
    assert {path.name for path in place.iterdir() if path.stat().st_mode & 0o060 != 0o060} == set()


def test_a_catalogue_that_is_removed_while_it_is_used_is_told_of(folder: Path, home: Path) -> None:
    ds = ss.ShardDataset(folder, fields=["txt"], batch_size=8)
    shutil.rmtree(home)
    with pytest.raises(NotFoundError, match=r"the catalogue was removed[\s\S]*open the data set anew"):
        list(ss.Loader(ds, num_workers=0))


def test_ctrl_c_ends_it_and_the_next_run_goes_on(folder: Path) -> None:
    code = (
        "import os, signal, sys\n"
        "from shardstream.cli import main\n"
        "from shardstream.formats.catalog import journal\n"
        "add = journal.Journal.add\n"
        "def interrupted(self, *given):\n"
        "    add(self, *given)\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "journal.Journal.add = interrupted\n"
        f"sys.argv = ['shardstream', 'index', {str(folder)!r}, '--workers', '1']\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 130, done.stderr
    assert "Traceback" not in done.stderr
    assert ss.index(folder, workers=1).scanned == 1


@pytest.mark.parametrize("suffix", [".bin", ".table", ".json"])
@pytest.mark.parametrize("beside", [False, True])
def test_to_index_again_mends_a_catalogue(folder: Path, home: Path, suffix: str, beside: bool) -> None:
    ss.index(folder, workers=1, beside=beside)
    (damaged,) = (folder if beside else place_of(home)).glob(f"shardstream-*{suffix}")
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 0x40
    damaged.write_bytes(data)
    ss.index(folder, workers=1, beside=beside)
    assert length(folder) == 16
