"""Lists, and other files that a verb opens, that are not regular files: read once to their end, or refused; no hang."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from shardstream import ImageOptions
from shardstream.dataset.lists import list_file as listfile
from shardstream.dataset.lists.list_file import open_local
from shardstream.errors import SourceError
from shardstream.pack.run import pack

from .making import photo_list, tree

COMMAND = [sys.executable, "-m", "shardstream.cli"]


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return photo_list(tmp_path / "in", 12)


def test_a_list_from_a_named_pipe_whose_writer_begins_late_and_takes_its_time(photos: Path, tmp_path: Path) -> None:
    pipe = photos.parent / "pipe.tsv"
    os.mkfifo(pipe)
    late = threading.Event()

    def write() -> None:
        late.wait()
        with pipe.open("wb") as out:
            for line in photos.read_bytes().splitlines(keepends=True):
                out.write(line)
                out.flush()

    writer = threading.Thread(target=write)
    writer.start()
    threading.Timer(0.2, late.set).start()
    pack(pipe, tmp_path / "piped", workers=0, images=ImageOptions(jpeg="keep"))
    writer.join()
    pack(photos, tmp_path / "read", workers=0, images=ImageOptions(jpeg="keep"))
    shards = [{name: data for name, data in tree(tmp_path / one).items() if "tar" in name} for one in ("piped", "read")]
    assert shards[0] == shards[1]


def test_a_list_from_standard_input_takes_paths_from_the_current_folder(photos: Path, tmp_path: Path) -> None:
    run = [*COMMAND, "pack", "/dev/stdin", str(tmp_path / "out"), "--workers", "0", "--quiet"]
    done = subprocess.run(run, input=photos.read_bytes(), cwd=photos.parent, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr.decode()
    assert b"12 samples" in done.stdout
    with photos.open("rb") as file:  # a file, not a pipe
        done = subprocess.run([*run, "--overwrite"], stdin=file, cwd=photos.parent, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr.decode()


def test_a_pipe_that_nobody_writes_to_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listfile, "_WRITER_S", 0.1)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SourceError, match="nobody wrote to this pipe"):
        pack(tmp_path / "pipe", tmp_path / "out")


def test_a_writer_that_writes_nothing_is_an_empty_list(tmp_path: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "pack", "/dev/stdin", str(tmp_path / "out")], input=b"", capture_output=True, timeout=120
    )
    assert done.returncode != 0
    assert b"the list is empty" in done.stderr


@pytest.mark.parametrize(
    ("path", "what"),
    [("/dev/null", "a device"), ("/dev/zero", "a device"), (".", "a folder"), ("a\0b", "null (byte|character)")],
)
def test_what_is_neither_file_nor_pipe_is_refused(path: str, what: str) -> None:
    with pytest.raises(SourceError, match=what):
        open_local(path, "list")


@pytest.mark.full
def test_class_names_from_a_pipe(photos: Path, tmp_path: Path) -> None:
    script = '"$0" -m shardstream.cli pack "$1" "$2" --workers 0 --classes <(printf "a\\nb\\nc\\n") && '
    script += '"$0" -m shardstream.cli info "$2"'
    done = subprocess.run(
        ["bash", "-c", script, sys.executable, photos, tmp_path / "out"], capture_output=True, text=True, timeout=120
    )
    assert "3: a, b, c" in done.stdout, done.stderr
