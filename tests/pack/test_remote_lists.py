"""Lists that lie in a store, and paths in them that are relative to it."""

from __future__ import annotations

import json
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from shardstream import ImageOptions, SourceOptions, StorageOptions
from shardstream.dataset.lists import list_file as listfile
from shardstream.errors import NotFoundError, SourceError, StorageError
from shardstream.pack.run import pack
from shardstream.pack.sources import File, Item, Reject
from shardstream.pack.sources.base import SourceReading
from shardstream.pack.sources.lists.source import ListSource
from shardstream.pack.sources.opening import open_source
from shardstream.storage.base.location import Access

from ..storage.places import AzurePlace, S3Place, WebPlace
from .making import jpeg, photo_list, photos, samples

JPEG = jpeg(1)


def values(source: Any) -> list[object]:
    return [item.values for item in source.part(np.arange(len(source))) if isinstance(item, Item)]


def test_a_list_in_a_bucket(tmp_path: Path, s3: S3Place, monkeypatch: pytest.MonkeyPatch) -> None:
    tsv = photo_list(tmp_path, 30)
    for path in photos(tmp_path, 30):
        s3.plant(f"data set/{path}", (tmp_path / path).read_bytes())
    s3.plant("data set/list.tsv", tsv.read_bytes())
    monkeypatch.setattr(listfile, "_STEP", 100)
    source = open_source(s3 / "data set/list.tsv", access=Access(s3.options))
    assert source.url == s3 / "data set/list.tsv"
    assert values(source)[4] == {"jpg": File(s3 / "data set/c1/00004.jpg"), "cls": 1}
    assert source.fingerprint == open_source(tsv).fingerprint
    pack(
        s3 / "data set/list.tsv",
        tmp_path / "out",
        storage=StorageOptions(source=s3.options),
        workers=0,
        images=ImageOptions(jpeg="keep"),
    )
    pack(tsv, tmp_path / "same", workers=0, images=ImageOptions(jpeg="keep"))
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
    trusted = open_source(
        s3 / f"lists/{name}", access=Access(s3.options), reading=SourceReading(allow_other_origins=True)
    )
    assert values(trusted) == [
        {"jpg": File(s3 / "lists/a/1.jpg"), "cls": 1},
        {"jpg": File("https://h/2.jpg?x"), "cls": 2},
        {"jpg": File("/local/3.jpg"), "cls": 3},
    ]


OTHERS = ("/etc/hostname", "file:///etc/hostname", "//h/x.jpg", "http://169.254.169.254/x.jpg", "s3://tests2/x.jpg",
          "s3://testsx", "gs://tests/x.jpg", "S3://user@tests/x.jpg")  # fmt: skip


@pytest.mark.parametrize("name", ["list.csv", "list.jsonl", "list.parquet"])
def test_a_list_in_a_bucket_names_nothing_elsewhere(s3: S3Place, tmp_path: Path, name: str) -> None:
    own = ["a/1.jpg", "../b.jpg", s3 / "c.jpg", (s3 / "d.jpg").replace("s3://", "s3a://")]
    rows = {"url": [*own, *OTHERS], "cls": list(range(len(own) + len(OTHERS)))}
    if name == "list.csv":
        text = "url,cls\n" + "".join(f"{url},{cls}\n" for url, cls in zip(*rows.values(), strict=True))
        s3.plant(name, text.encode())
    elif name == "list.jsonl":
        lines = (json.dumps({"url": url, "cls": cls}) + "\n" for url, cls in zip(*rows.values(), strict=True))
        s3.plant(name, "".join(lines).encode())
    else:
        parquet.write_table(pyarrow.table(rows), tmp_path / name)
        s3.plant(name, (tmp_path / name).read_bytes())
    source = open_source(s3 / name, access=Access(s3.options))
    assert isinstance(source, ListSource)
    found = list(source.part(np.arange(len(source))))
    assert [item.values["jpg"] for item in found if isinstance(item, Item)] == [
        File(s3 / "a/1.jpg"), File(s3 / "../b.jpg"), File(s3 / "c.jpg"), File(own[3])
    ]  # fmt: skip
    refused = [one for one in found if isinstance(one, Reject)]
    assert len(refused) == len(OTHERS)
    assert all("does not lie below s3://tests, as the list does" in one.reason for one in refused)


def test_a_list_of_nothing_else_says_how_to_trust_it(s3: S3Place) -> None:
    s3.plant("list.tsv", b"/etc/hostname\t1\nhttp://127.0.0.1/x.jpg\t2\n")
    with pytest.raises(SourceError, match="--allow-other-origins") as caught:
        open_source(s3 / "list.tsv", access=Access(s3.options))
    assert caught.value.place["line"] == 1


def test_redirects_to_another_host_are_not_followed(tmp_path: Path, web: WebPlace) -> None:
    asked: list[str] = []

    class Inner(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", str(len(JPEG)))
            self.end_headers()
            self.wfile.write(JPEG)

        do_HEAD = do_GET

        def log_message(self, *_: object) -> None:
            """Quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Inner) as inner:
        Thread(target=inner.serve_forever, daemon=True).start()
        web.plant("a.jpg", JPEG)
        web.plant("list.tsv", f"a.jpg\n{web.endpoint}/to/self/{web.name}/a.jpg?b\n"
                  f"{web.endpoint}/to/127.0.0.1:{inner.server_port}/secret.jpg\n".encode())  # fmt: skip
        manifest = pack(web / "list.tsv", tmp_path / "out", workers=0, images=ImageOptions(jpeg="keep"), key="line")
        assert (manifest.samples, asked) == (2, [])
        (reject,) = map(json.loads, (tmp_path / "out/rejects.jsonl").read_text().splitlines())
        assert (reject["line"], reject["reason"]) == (3, "the web server redirects to another host, 127.0.0.1")
        pack(
            web / "list.tsv",
            tmp_path / "all",
            workers=0,
            images=ImageOptions(jpeg="keep"),
            key="line",
            reading=SourceOptions(allow_other_origins=True),
        )
        assert len(samples(tmp_path / "all")) == 3
        inner.shutdown()


def test_a_list_without_suffix(s3: S3Place) -> None:
    s3.plant("names", b"a/1.jpg\na/2.jpg\n")
    assert len(open_source(s3 / "names", access=Access(s3.options))) == 2


def test_a_list_in_azure(azure: AzurePlace) -> None:
    azure.plant("list.tsv", b"a/1.jpg\t1\n")
    assert values(open_source(azure / "list.tsv", access=Access(azure.options))) == [
        {"jpg": File(azure / "a/1.jpg"), "cls": 1}
    ]


def test_a_list_on_a_web_server(tmp_path: Path, web: WebPlace) -> None:
    tsv = photo_list(tmp_path, 6)
    for path in photos(tmp_path, 6):
        web.plant(path, (tmp_path / path).read_bytes())
    web.plant("list.tsv", tsv.read_bytes())
    assert pack(web / "list.tsv", tmp_path / "out", workers=0, images=ImageOptions(jpeg="keep")).samples == 6


def test_lists_that_are_not_there(s3: S3Place, web: WebPlace) -> None:
    with pytest.raises(NotFoundError):
        open_source(s3 / "nowhere.tsv", access=Access(s3.options))
    with pytest.raises(NotFoundError):
        open_source(web / "nowhere.tsv")
    s3.plant("empty.tsv", b"")
    with pytest.raises(SourceError, match="empty"):
        open_source(s3 / "empty.tsv", access=Access(s3.options))


def test_no_room_for_a_copy(s3: S3Place, monkeypatch: pytest.MonkeyPatch) -> None:
    s3.plant("list.tsv", b"a/1.jpg\t1\n" * 1000)
    full = partial(open, "/dev/full", "r+b", buffering=0)
    monkeypatch.setattr(listfile.tempfile, "TemporaryFile", lambda **_: full())
    with pytest.raises(StorageError, match="No space left") as caught:
        open_source(s3 / "list.tsv", access=Access(s3.options))
    assert "TMPDIR" in str(caught.value)
