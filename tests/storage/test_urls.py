"""URLs to stores."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardstream.errors import UsageError
from shardstream.storage import open_object, open_store


@pytest.mark.parametrize(
    ("url", "folder"),
    [
        ("/data/out", "/data/out"),
        ("/data/out/", "/data/out"),
        (Path("/data/out"), "/data/out"),
        ("file:///data/out", "/data/out"),
        ("file://localhost/data/o%20t", "/data/o t"),
        ("/a/../b", "/b"),
    ],
)
def test_folders(url, folder) -> None:
    assert open_store(url).url == folder


def test_relative_paths_become_absolute(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert open_store("out/").url == str(tmp_path / "out")
    store, name = open_object("x.tar")
    assert (store.url, name) == (str(tmp_path), "x.tar")


def test_objects() -> None:
    store, name = open_object("file:///data/out/x.tar")
    assert (store.url, name) == ("/data/out", "x.tar")


def test_other_schemes_are_refused_without_showing_credentials() -> None:
    with pytest.raises(UsageError, match="s3:// is not supported") as caught:
        open_store("s3://key:geheim@bucket/data?token=geheim")
    assert caught.value.place["url"] == "s3://bucket/data"
    assert "geheim" not in str(caught.value)
    with pytest.raises(UsageError):
        open_store("file://elsewhere/data")
