"""Which files are meant: names with all characters, URLs with secrets, many of them, files and folders together."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import shardstream as ss
from shardstream.dataset.formats import Selection
from shardstream.dataset.opening import find_places
from shardstream.errors import FormatError, NotFoundError, UsageError
from shardstream.formats.catalog.plan import Making
from shardstream.formats.catalog.selected import find_selected
from shardstream.testing import MemoryStore

from .making import tar


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def text_tar(path: Path, *keys: str) -> Path:
    tar(path, list(keys or (path.stem,)), txt=lambda row: f"text {row}")
    return path


def keys_of(url: Any, **options: Any) -> list[str]:
    return [sample["__key__"] for sample in ss.ShardDataset(url, **options)]


@pytest.mark.parametrize("name", ["b[1].tar", "q?.tar", "{a,b}.tar", "st*r.tar", "sp ace.tar", "n\nl.tar", "é#%20.tar"])
def test_a_file_is_taken_by_its_name_whatever_is_in_it(tmp_path: Path, name: str) -> None:
    text_tar(tmp_path / "data" / name, "k0")
    text_tar(tmp_path / "data/b1.tar", "another")
    assert keys_of(tmp_path / "data" / name) == ["k0"]
    assert sorted(keys_of([tmp_path / "data" / name, tmp_path / "data/b1.tar"])) == ["another", "k0"]
    assert sorted(keys_of(f"{tmp_path}/data/*.tar")) == ["another", "k0"]
    assert sorted(keys_of(tmp_path / "data")) == ["another", "k0"]


def test_a_name_that_is_no_utf8_is_refused_by_name(tmp_path: Path) -> None:
    text_tar(tmp_path / "data" / os.fsdecode(b"bad\xff.tar"), "k0")
    with pytest.raises(FormatError, match=r"not UTF-8.*bad[\s\S]*rename"):
        ss.ShardDataset(tmp_path / "data")


def test_many_names_in_a_store_are_asked_for_side_by_side(tmp_path: Path) -> None:
    data = text_tar(tmp_path / "a.tar").read_bytes()
    store = MemoryStore({f"{number:03}.tar": data for number in range(40)})
    store.fail("slow", seconds=0.02)
    selection = Selection(tuple(f"{number:03}.tar" for number in range(40)))
    assert [meta.path for meta in find_selected(selection, store)] == list(selection.names)
    with pytest.raises(NotFoundError, match=r"no such file.*nothing\.tar"):
        find_selected(Selection((*selection.names, "nothing.tar")), store)


@pytest.mark.parametrize(
    "url",
    [
        "https://account.blob.core.windows.net/c/train-{0..1}.tar?sv=1&sig=SECRET%2Fx",
        "https://host/train-{0..1}.tar?sig=SECRET/*",
        "https://user:SECRET@host/train-{0..1}.tar",
    ],
)
def test_a_secret_of_a_url_stays_with_the_place(url: str) -> None:
    ((root, names),) = find_places(url)
    assert names == ("train-0.tar", "train-1.tar")
    assert "SECRET" in str(root)


def test_folders_whose_url_has_a_secret_are_folders() -> None:
    assert find_places("https://host/folder?sig=SECRET/*x?") == [("https://host/folder?sig=SECRET/*x?", ())]


def test_files_with_different_secrets_are_refused_without_saying_them() -> None:
    urls = [f"https://host/{number}.tar?sig=SECRET{number}" for number in range(2)]
    with pytest.raises(UsageError, match="different signatures") as caught:
        find_places(urls)
    assert "SECRET" not in str(caught.value)
    with pytest.raises(UsageError, match="several stores") as caught:
        find_places(["https://user:SECRET@host/0.tar", "https://user:SECRET@other/0.tar"])
    assert "SECRET" not in str(caught.value)


def test_files_of_a_web_server(tmp_path: Path, web: Any, home: Path) -> None:
    for number in range(2):
        web.plant(f"signed/{number}.tar", text_tar(tmp_path / f"{number}.tar").read_bytes())
    url = web.url("signed/{0..1}.tar").replace("%7B", "{").replace("%7D", "}")
    assert keys_of(f"{url}?sig=signature") == ["0", "1"]
    assert not [path for path in home.rglob("*") if path.is_file() and b"signature" in path.read_bytes()]
    with pytest.raises(NotFoundError) as caught:
        ss.ShardDataset(f"{web.url('signed')}/7.tar?sig=signature")
    assert "=signature" not in str(caught.value)


def test_ours_and_theirs_in_one_list(tmp_path: Path) -> None:
    text_tar(tmp_path / "tars/x.tar")
    ss.repack(tmp_path / "tars", tmp_path / "ours", workers=0)
    text_tar(tmp_path / "y.tar")
    assert keys_of(f"{tmp_path}/{{ours,y.tar}}") == ["x", "y"]
    assert keys_of([tmp_path / "y.tar", tmp_path / "ours"]) == ["y", "x"]


def test_a_glob_of_folders_of_other_libraries(tmp_path: Path) -> None:
    for name in ("set-a", "set-b"):
        text_tar(tmp_path / name / "x.tar", name)
    assert keys_of(f"{tmp_path}/set-*") == ["set-a", "set-b"]


def test_what_is_not_there_is_said_with_its_name(tmp_path: Path) -> None:
    path = text_tar(tmp_path / "data/nothing-known", "k")
    with pytest.raises(NotFoundError, match="nothing-known"):
        ss.ShardDataset(path)
    with pytest.raises(FormatError, match="nothing-known"):
        ss.ShardDataset(path, reading=ss.SourceOptions(format="webdataset"))


def test_etags_of_a_listing_and_of_an_object_are_the_same(azure: Any, tmp_path: Path) -> None:
    for number in range(2):
        azure.plant(f"{number}.tar", text_tar(tmp_path / f"{number}.tar").read_bytes())
    assert keys_of(azure.url(), storage_options=azure.options) == ["0", "1"]


@pytest.mark.parametrize(
    ("names", "command"),
    [
        ((), "shardstream index '{root}'`"),
        (("a.tar",), "shardstream index '{root}/a.tar'`"),
        (("a.tar", "b.tar"), "shardstream index URL (the same files"),
    ],
)
def test_the_command_that_an_error_names_indexes_the_same_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...], command: str
) -> None:
    for name in ("a", "b"):
        text_tar(tmp_path / f"data/{name}.tar")
    monkeypatch.setattr("shardstream.formats.catalog.scanning._PROBE_S", -1.0)
    monkeypatch.setattr("shardstream.formats.catalog.scanning._SMALL", 0)
    monkeypatch.setattr("shardstream.formats.catalog.dataset.Making", lambda: Making(limit=-1.0))
    with pytest.raises(UsageError) as caught:
        ss.ShardDataset([tmp_path / "data" / name for name in names] or tmp_path / "data")
    assert command.format(root=tmp_path / "data") in str(caught.value.hint)


def test_options_of_a_store_reach_the_processes_that_index(tmp_path: Path, s3: Any) -> None:
    for number in range(4):
        s3.plant(f"{number}.tar", text_tar(tmp_path / f"{number}.tar").read_bytes())
    report = ss.index(f"{s3.url()}/{{0..3}}.tar", workers=2, storage_options=s3.options)
    assert report.samples == 4
    assert keys_of(f"{s3.url()}/?.tar".replace("?", "*"), storage_options=s3.options) == ["0", "1", "2", "3"]
