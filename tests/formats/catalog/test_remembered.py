"""What was remembered of a directory never counts for more than what is there, or what is asked."""

from __future__ import annotations

import itertools
import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import shardstream as ss
from shardstream.diagnose import info, verify
from shardstream.errors import FormatError, UsageError

from .making import jpeg, mds, webdataset


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def rows(folder: Path, name: str = "a.jsonl", **columns: list[object]) -> None:
    cells = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in cells))


def parquet(folder: Path, name: str = "a.parquet", **columns: list[object]) -> None:
    pa = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet").write_table(pa.table(columns), folder / name)


def keys_of(reader: ss.Reader) -> list[str]:
    return [sample["__key__"] for sample in reader]


def images(folder: Path) -> None:
    for name in ("cat/1.jpg", "dog/2.jpg"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(jpeg(1))


FORMATS: dict[str, Callable[[Path], object]] = {
    "jsonl": lambda folder: rows(folder, text=["x"], n=[1]),
    "parquet": lambda folder: parquet(folder, n=[1, 2]),
    "webdataset": lambda folder: webdataset(folder, tars=1, samples=3),
    "mds": lambda folder: mds(folder, shards=1, samples=3),
    "npy": lambda folder: np.savez(folder / "a.npz", x=np.arange(4)),
    "files": images,
}


def empty(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


@pytest.mark.one_in(6)  # a chain through all formats
@pytest.mark.parametrize(("old", "new"), [*itertools.permutations(FORMATS, 2)])
def test_a_directory_whose_files_are_of_another_format_now(folder: Path, tmp_path: Path, old: str, new: str) -> None:
    def count() -> int:
        return len(ss.Reader(folder))

    FORMATS[old](folder)
    count()
    empty(folder)
    FORMATS[new](folder)
    assert (info(folder).format, info(folder).samples) == (new, count())
    assert verify(folder).ok
    assert ss.pack(folder, tmp_path / "packed", workers=0).samples == count()
    with pytest.raises(FormatError, match=rf"nothing of format '{old}' is here"):
        ss.Reader(folder, reading=ss.SourceOptions(format=old))
    assert (
        len(ss.Reader(folder, reading=ss.SourceOptions(format=new))) == count() == ss.index(folder, workers=0).samples
    )


@pytest.mark.parametrize("named", [False, True])
def test_files_of_another_format_are_added(folder: Path, *, named: bool) -> None:
    parquet(folder, n=[1, 2])
    ss.index(folder, workers=0, reading=ss.SourceOptions(format="parquet" if named else None))
    rows(folder, n=[1, 2, 3])
    if named:  # which says what counts of several
        assert len(ss.Reader(folder)) == 2
        with pytest.raises(UsageError, match="found here"):
            ss.index(folder, workers=0)
    else:
        with pytest.raises(UsageError, match="found here"):
            ss.Reader(folder)
    assert len(ss.Reader(folder, reading=ss.SourceOptions(format="jsonl"))) == 3
    assert len(ss.Reader(folder, reading=ss.SourceOptions(format="parquet"))) == 2


def test_a_named_format_of_which_nothing_is_left(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    parquet(folder, n=[1, 2], x=[[[1]], [[2]]])
    ss.index(
        folder,
        workers=0,
        reading=ss.SourceOptions(format="parquet", options={"json": "x"}),
        fields={"m": "n", "x": "x"},
    )
    empty(folder)
    rows(folder, n=[1, 2, 3])
    assert list(ss.ShardDataset(folder).manifest.fields) == ["n"]
    (record,) = [one for one in caplog.records if one.levelno == logging.WARNING]
    told = "SourceOptions(format='parquet', options={'json': 'x'}) and fields={'m': 'n', 'x': 'x'}"
    assert f"{told} of the catalog no longer fits" in record.getMessage()


@pytest.mark.parametrize("make", [rows, parquet])
def test_fields_stay_those_of_the_last_index(
    make: Callable[..., None], folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def read(**opening: str) -> list[str]:
        return sorted(ss.ShardDataset(folder, **opening).manifest.fields)

    make(folder, k=[1, 2], text=["a", "b"])
    ss.index(folder, workers=0, fields={"label": "k"})
    with caplog.at_level(logging.INFO, "shardstream"):
        assert read() == read(reading=ss.SourceOptions(format=info(folder).format)) == ["label"]
    assert "is read with fields={'label': 'k'}, as it was indexed" in caplog.text
    assert any("Read with fields={'label': 'k'}" in note for note in info(folder).notes)
    assert verify(folder).ok
    for dest, fields in (("all", None), ("one", {"text": "text"})):  # `pack` has fields= itself, by default all
        packed = ss.pack(folder, tmp_path / dest, fields=fields, workers=0)
        assert sorted(packed.fields) == (["text"] if fields else ["k", "text"])
    assert read() == ["label"]
    make(folder, "b.jsonl" if make is rows else "b.parquet", k=[3], text=["c"])
    assert read() == ["label"]
    assert ss.index(folder, workers=0).fields.keys() == {"k", "text"}
    assert read() == ["k", "text"]


@pytest.mark.parametrize("make", [rows, parquet])
def test_fields_that_none_of_the_files_has_any_more(
    make: Callable[..., None], folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make(folder, k=[1, 2])
    ss.index(folder, workers=0, fields={"label": "k"})
    make(folder, other=[1, 2])
    assert list(ss.ShardDataset(folder).manifest.fields) == ["other"]
    assert "fields={'label': 'k'} of the catalog no longer fits" in caplog.text
    caplog.clear()
    assert list(ss.ShardDataset(folder).manifest.fields) == ["other"]
    assert not caplog.records


def test_options_of_one_opening_are_no_others(folder: Path, tmp_path: Path) -> None:
    def keys(**opening: object) -> list[str]:
        return keys_of(ss.Reader(folder, **opening))  # type: ignore[arg-type] # as a user writes them

    rows(folder, a=["x"], b=["y"])
    plain = keys()
    assert keys(reading=ss.SourceOptions(options={"key": "a"})) == ["x"]
    assert keys() == plain
    ss.index(folder, workers=0, reading=ss.SourceOptions(options={"key": "b"}))
    assert keys() == ["y"]
    assert keys(reading=ss.SourceOptions(options={"key": "a"})) == ["x"]
    assert keys(reading=ss.SourceOptions(options={})) == plain
    assert keys() == ["y"]
    ss.pack(folder, tmp_path / "packed", workers=0)
    assert keys_of(ss.Reader(tmp_path / "packed")) == ["y"]
    ss.index(folder, workers=0)
    assert keys() == plain


def test_fields_of_a_catalog_beside_the_data_stay_if_the_data_grow(folder: Path) -> None:
    rows(folder, k=[1, 2], text=["a", "b"])
    ss.index(folder, workers=0, beside=True, fields={"label": "k"})
    rows(folder, "b.jsonl", k=[3], text=["c"])
    found = ss.ShardDataset(folder).manifest
    assert (found.samples, list(found.fields)) == (3, ["label"])
    with pytest.raises(UsageError, match="found first"):
        ss.index(folder, workers=0, reading=ss.SourceOptions(options={"key": "text"}), fields={"label": "k"})
