"""The verbs on data of other libraries: what they say, and of what."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import shardstream as ss
from shardstream.cli.app import app
from shardstream.dataset.opening import open_dataset
from shardstream.diagnose import info, verify
from shardstream.errors import FormatError, UsageError

from .every import SETS, golden
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


def test_single_files_get_checksums_by_packing(tmp_path: Path) -> None:
    pictures = tmp_path / "pictures"
    for name in ("cat/a.jpg", "dog/b.jpg"):
        (pictures / name).parent.mkdir(parents=True)
        (pictures / name).write_bytes(b"\xff\xd8\xff" + name.encode())
    shown = run("info", pictures).stdout
    assert "none: `shardstream pack` makes them" in shown
    assert "1 (files)," in shown
    assert f"next: shardstream pack {pictures} DEST," in " ".join(run("verify", pictures).stdout.split())


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


OWN = {
    "zip": ("zip", "CRC-32 of members", "the CRC-32 of 'all/00.jpg' is"),
    "npy": ("npy", "CRC-32 of members", "the CRC-32 of"),
    "tfrecord": ("tfrecord", "CRC-32C of records", "are not those that were written"),
    "mds": ("mds", "xxh64 of shards", "its xxh64 is"),
}


@pytest.mark.parametrize("name", OWN)
def test_verify_compares_the_checksums_that_a_format_keeps_itself(name: str, tmp_path: Path) -> None:
    format, kinds, wrong = OWN[name]
    folder = tmp_path / "data"
    folder.mkdir()
    made = golden("mds/merged") if name == "mds" else SETS[format].make
    made(folder)
    report = verify(folder)
    assert (report.ok, report.compared, report.own) == (True, True, (kinds,))
    shown = run("verify", folder).stdout
    assert f"sound ({report.shards} shard" in shown
    assert f"{kinds} compared" in shown
    path, place = _value(folder)
    when, data = path.stat().st_mtime_ns, bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(when, when))  # what rots on a disk keeps its time
    (problem,) = verify(folder).problems
    assert (problem.check, problem.shard) == ("checksum", path.relative_to(folder).as_posix())
    assert wrong in problem.what
    assert run("verify", folder).exit_code == 1


def _value(folder: Path) -> tuple[Path, int]:
    """The file and the place of a byte of the first value that lies in one."""
    opened = open_dataset(folder).open(0)
    column = next(one for one in opened.index.columns.values() if one.type.kind != "scalar")
    offsets, lengths = column.extents(np.arange(1))
    return folder / opened.index.path, int(offsets[0] + lengths[0] // 2)


def test_a_format_that_keeps_checksums_of_some_objects_only_is_not_called_sound(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    golden("mds/merged")(folder)
    path = folder / "index.json"
    index = json.loads(path.read_text())
    index["shards"][0]["raw_data"]["hashes"] = {"unknown": "0"}
    path.write_text(json.dumps(index))
    report = verify(folder)
    assert (report.ok, report.compared, report.own) == (True, False, ("xxh64 of shards",))
