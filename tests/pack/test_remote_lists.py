"""Lists that lie in a store, and paths in them that are relative to it."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardstream.errors import NotFoundError, SourceError, StorageError
from shardstream.pack import pack
from shardstream.pack.sources import File, Item, listfile, open_source

from ..storage.places import AzurePlace, S3Place, WebPlace
from .making import photo_list, photos, samples


def values(source: Any) -> list[object]:
    return [item.values for item in source.part(np.arange(len(source))) if isinstance(item, Item)]


def test_a_list_in_a_bucket(tmp_path: Path, s3: S3Place, monkeypatch: pytest.MonkeyPatch) -> None:
    tsv = photo_list(tmp_path, 30)
    for path in photos(tmp_path, 30):
        s3.plant(f"data set/{path}", (tmp_path / path).read_bytes())
    s3.plant("data set/list.tsv", tsv.read_bytes())
    monkeypatch.setattr(listfile, "_STEP", 100)
    source = open_source(s3 / "data set/list.tsv", source_options=s3.options)
    assert source.url == s3 / "data set/list.tsv"
    assert values(source)[4] == {"jpg": File(s3 / "data set/c1/00004.jpg"), "cls": 1}
    assert source.fingerprint == open_source(tsv).fingerprint
    pack(s3 / "data set/list.tsv", tmp_path / "out", source_options=s3.options, workers=0, jpeg="keep")
    pack(tsv, tmp_path / "same", workers=0, jpeg="keep")
    assert samples(tmp_path / "out") == samples(tmp_path / "same")


@pytest.mark.parametrize("name", ["list.csv", "list.jsonl", "list.txt"])
def test_other_kinds_and_urls_in_them(s3: S3Place, name: str) -> None:
    text = {
        "list.csv": "url,cls\na/1.jpg,1\nhttps://h/2.jpg?x,2\n/local/3.jpg,3\n",
        "list.jsonl": "".join(
            json.dumps({"url": url, "cls": i + 1}) + "\n"
            for i, url in enumerate(("a/1.jpg", "https://h/2.jpg?x", "/local/3.jpg"))
        ),
        "list.txt": "a/1.jpg 1\nhttps://h/2.jpg?x 2\n/local/3.jpg 3\n",
    }[name]
    s3.plant(f"lists/{name}", text.encode())
    assert values(open_source(s3 / f"lists/{name}", source_options=s3.options)) == [
        {"jpg": File(s3 / "lists/a/1.jpg"), "cls": 1},
        {"jpg": File("https://h/2.jpg?x"), "cls": 2},
        {"jpg": File("/local/3.jpg"), "cls": 3},
    ]


def test_a_list_without_suffix(s3: S3Place) -> None:
    s3.plant("names", b"a/1.jpg\na/2.jpg\n")
    assert len(open_source(s3 / "names", source_options=s3.options)) == 2


def test_a_list_in_azure(azure: AzurePlace) -> None:
    azure.plant("list.tsv", b"a/1.jpg\t1\n")
    assert values(open_source(azure / "list.tsv", source_options=azure.options)) == [
        {"jpg": File(azure / "a/1.jpg"), "cls": 1}
    ]


def test_a_list_on_a_web_server(tmp_path: Path, web: WebPlace) -> None:
    tsv = photo_list(tmp_path, 6)
    for path in photos(tmp_path, 6):
        web.plant(path, (tmp_path / path).read_bytes())
    web.plant("list.tsv", tsv.read_bytes())
    assert pack(web / "list.tsv", tmp_path / "out", workers=0, jpeg="keep").samples == 6


def test_lists_that_are_not_there(s3: S3Place, web: WebPlace) -> None:
    with pytest.raises(NotFoundError):
        open_source(s3 / "nowhere.tsv", source_options=s3.options)
    with pytest.raises(NotFoundError):
        open_source(web / "nowhere.tsv")
    s3.plant("empty.tsv", b"")
    with pytest.raises(SourceError, match="empty"):
        open_source(s3 / "empty.tsv", source_options=s3.options)


def test_no_room_for_a_copy(s3: S3Place, monkeypatch: pytest.MonkeyPatch) -> None:
    s3.plant("list.tsv", b"a/1.jpg\t1\n" * 1000)
    full = partial(open, "/dev/full", "r+b", buffering=0)
    monkeypatch.setattr(listfile.tempfile, "TemporaryFile", lambda **_: full())
    with pytest.raises(StorageError, match="No space left") as caught:
        open_source(s3 / "list.tsv", source_options=s3.options)
    assert "TMPDIR" in str(caught.value)
