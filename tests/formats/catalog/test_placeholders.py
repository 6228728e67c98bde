"""Git LFS pointers and web pages in the place of data are named as such: in every format, in place and packed."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardstream as ss
from shardstream.dataset.opening import open_dataset
from shardstream.errors import PlaceholderError
from shardstream.formats.catalog.catalog import Catalogue
from shardstream.testing import pictures
from tests.formats.catalog.every import SETS
from tests.grouped import grouped
from tests.pack.test_streams import write_tar

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"4d7a2146" * 8 + b"\nsize 12345\n"
PAGE = b"\xef\xbb\xbf\n<!DOCTYPE html>\n<html><head><title>Log in</title></head>" + b"<p>no</p>" * 500
PLACEHOLDERS = {"pointer": (POINTER, "Git LFS pointer", "git lfs pull"), "page": (PAGE, "web page", "download")}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def npy() -> bytes:
    out = io.BytesIO()
    np.save(out, np.arange(3))
    return out.getvalue()


def read_all(folder: Path, **how: Any) -> None:
    reader = ss.Reader(folder, **grouped(how))
    for row in range(len(reader)):
        reader[row]


@pytest.mark.one_in(3)  # a kind and a place of each format, in turn
@pytest.mark.parametrize("which", [0, -1], ids=["first", "last"])
@pytest.mark.parametrize("kind", PLACEHOLDERS)
@pytest.mark.parametrize("name", SETS)
def test_every_format_names_placeholders(name: str, kind: str, which: int, tmp_path: Path) -> None:
    """One file of a dataset is replaced: the first, or the last."""
    folder = tmp_path / "data"
    folder.mkdir()
    SETS[name].make(folder)
    options = dict(SETS[name].options)
    ss.index(folder, reading=ss.SourceOptions(options=options), workers=0)
    catalogue = open_dataset(folder).manifest
    assert isinstance(catalogue, Catalogue)
    path = folder / list(catalogue.names)[which]
    data, what, hint = PLACEHOLDERS[kind]
    path.write_bytes(data)
    with pytest.raises(PlaceholderError, match=what) as raised:
        read_all(folder, format_options=options)
    assert hint in str(raised.value)
    assert path.name in str(raised.value.place)
    assert "damag" not in raised.value.what


@pytest.mark.parametrize("kind", PLACEHOLDERS)
@pytest.mark.parametrize("name", ["webdataset", "zip", "parquet", "jsonl", "npy", "hdf5", "mds", "tfrecord"])
def test_packing_rejects_placeholders_as_missing(name: str, kind: str, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    SETS[name].make(folder)
    ss.index(folder, reading=ss.SourceOptions(options=dict(SETS[name].options)), workers=0)
    catalogue = open_dataset(folder).manifest
    assert isinstance(catalogue, Catalogue)
    (folder / list(catalogue.names)[-1]).write_bytes(PLACEHOLDERS[kind][0])
    try:
        ss.pack(folder, tmp_path / "out", workers=0)
    except PlaceholderError:  # files beside it, or all of it, cannot be read without it
        return
    (reject,) = map(json.loads, (tmp_path / "out" / "rejects.jsonl").read_text().splitlines())
    assert reject["kind"] == "missing"
    assert PLACEHOLDERS[kind][1] in reject["reason"]


@pytest.mark.parametrize("kind", PLACEHOLDERS)
@pytest.mark.parametrize("suffix", ["csv", "tsv", "txt", "jsonl", "parquet", "arrow", "csv.gz", "tar", "zip"])
def test_single_files_are_named(suffix: str, kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"train.{suffix}"
    data, what, _ = PLACEHOLDERS[kind]
    path.write_bytes(data)
    for act in (lambda: ss.Reader(path), lambda: ss.pack(path, tmp_path / "out", workers=0)):
        with pytest.raises(ss.errors.ShardStreamError, match=what) as raised:
            act()
        assert path.name in str(raised.value)
    assert isinstance(raised.value, PlaceholderError) or suffix in ("tar", "zip")


@pytest.mark.parametrize("kind", PLACEHOLDERS)
def test_values_are_named_in_archives_and_directories(kind: str, tmp_path: Path) -> None:
    """Images, arrays, and JSON, in a tar, as files of their own, packed, and streamed."""
    data, what, _ = PLACEHOLDERS[kind]
    good = {"jpg": pictures.save(pictures.photo(8, 8), "JPEG"), "npy": npy(), "json": b"{}"}
    members = [(f"{row}.{suffix}", data if row == 1 else good[suffix]) for row in range(2) for suffix in good]
    write_tar(tmp_path / "a.tar", members)
    for suffix in ("npy", "json"):
        with pytest.raises(PlaceholderError, match=what) as raised:
            ss.Reader(tmp_path / "a.tar", fields=[suffix])[1]
        assert raised.value.place["field"] == suffix
    with pytest.raises(PlaceholderError, match=what):
        list(ss.ShardDataset(tmp_path / "a.tar", fields={"jpg": ss.decode.Image()}, batch_size=None))
    ss.pack(tmp_path / "a.tar", tmp_path / "out", workers=0)
    (reject,) = map(json.loads, (tmp_path / "out" / "rejects.jsonl").read_text().splitlines())
    assert (reject["kind"], what in reject["reason"]) == ("missing", True)


def test_text_that_is_a_pointer_is_not_taken_for_text(tmp_path: Path) -> None:
    """Captions beside images: nothing in the bytes themselves would be wrong."""
    folder = tmp_path / "data"
    folder.mkdir()
    for row in range(2):
        (folder / f"{row}.jpg").write_bytes(pictures.save(pictures.photo(8, 8), "JPEG"))
        (folder / f"{row}.txt").write_bytes(POINTER if row else b"a caption")
    ss.pack(folder, tmp_path / "out", reading=ss.SourceOptions(group="stem"), workers=0)
    (reject,) = map(json.loads, (tmp_path / "out" / "rejects.jsonl").read_text().splitlines())
    assert reject["kind"] == "missing"
    (tmp_path / "list.csv").write_text("image,caption\ndata/0.jpg,data/0.txt\ndata/1.jpg,data/1.txt\n")
    ss.index(tmp_path / "list.csv", fields={"jpg": "image:file", "txt": "caption:file"})
    assert ss.Reader(tmp_path / "list.csv", fields=["txt"])[0]["txt"] == "a caption"
    with pytest.raises(PlaceholderError, match="pointer"):
        ss.Reader(tmp_path / "list.csv", fields=["txt"])[1]


def test_a_page_that_is_called_so_may_lie_beside_images(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        (tmp_path / "photos" / name / "0.jpg").write_bytes(pictures.save(pictures.photo(8, 8), "JPEG"))
    (tmp_path / "photos/index.html").write_bytes(PAGE)
    assert len(ss.Reader(tmp_path / "photos")) == 2
    (tmp_path / "photos/boxes.json").write_bytes(POINTER)
    (tmp_path / "photos/a/1.jpg").write_bytes(pictures.save(pictures.photo(8, 8), "JPEG"))
    with pytest.raises(PlaceholderError, match="pointer"):
        ss.Reader(tmp_path / "photos")
