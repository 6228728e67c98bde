"""The verbs on data of other libraries: what they say, and of what."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import shardstream as ss
from shardstream.cli.app import app
from shardstream.diagnose import info, verify
from shardstream.errors import FormatError, UsageError

from .making import SAMPLES, everything, webdataset


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return webdataset(tmp_path / "data", tars=2)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_info_says_what_was_left_out_and_that_nothing_has_checksums(folder: Path) -> None:
    path = folder / "part-1.tar"
    path.write_bytes(path.read_bytes()[:9000])
    ss.index(folder, workers=1, damaged="reject")
    (note,) = info(folder).notes
    assert "part-1.tar" in note
    assert "hint" not in note
    assert info(folder).objects == 2
    shown = run("info", folder).stdout
    assert "(webdataset, 2 files)" in shown
    assert "cut off" in shown
    assert "none: `shardstream index URL --checksums`" in shown


def test_what_was_left_out_is_still_told_when_other_objects_come(folder: Path) -> None:
    path = folder / "part-1.tar"
    path.write_bytes(path.read_bytes()[:9000])
    ss.index(folder, workers=1, damaged="reject")
    before = info(folder).notes
    webdataset(folder, tars=1, start=2)
    assert info(folder).notes == before
    webdataset(folder, tars=1, start=1)  # whole again
    assert info(folder).notes == ()


def test_damage_is_told_with_one_hint(folder: Path) -> None:
    path = folder / "part-1.tar"
    path.write_bytes(path.read_bytes()[:9000])
    with pytest.raises(FormatError, match="--damaged reject") as caught:
        ss.ShardDataset(folder)
    assert str(caught.value).count("hint") == 1


def test_verify_does_not_call_sound_what_it_could_not_compare(folder: Path) -> None:
    assert not verify(folder).compared
    shown = run("verify", folder)
    assert shown.exit_code == 0
    assert "no checksums to compare" in shown.stdout
    ss.index(folder, workers=1, checksums=True)
    assert verify(folder).compared
    assert "sound" in run("verify", folder).stdout


def test_one_file_is_exported_and_packed(folder: Path, tmp_path: Path) -> None:
    assert ss.export(folder / "part-0.tar", tmp_path / "files", to="files").samples == SAMPLES
    ss.repack(f"{folder}/part-*.tar", tmp_path / "ours", workers=0)
    assert len(everything(tmp_path / "ours")) == 2 * SAMPLES


def test_a_catalogue_that_would_not_be_found_is_not_made(folder: Path) -> None:
    ss.index(folder, workers=1, beside=True)
    for options in ({"fields": {"label": "cls"}}, {"checksums": True}):
        with pytest.raises(UsageError, match="found first"):
            ss.index(folder, workers=1, **options)
    ss.index(folder, workers=1, beside=True, fields={"label": "cls"})
    assert list(ss.ShardDataset(folder).manifest.fields) == ["label"]
    assert ss.index(folder, workers=1, fields={"label": "cls"}).scanned == 0


def test_nothing_is_announced_where_nothing_is_read(folder: Path) -> None:
    assert "2 files of" in run("index", folder, "--workers", 1).stderr
    assert "to look through" not in run("index", folder, "--workers", 1).stderr
