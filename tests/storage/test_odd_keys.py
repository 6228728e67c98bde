"""Keys that are no paths, and objects that stand for directories, don't make the rest of a bucket unreadable."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.sax.saxutils import escape

import pytest

import shardstream as ss
from shardstream.errors import StorageError
from shardstream.storage import locate, open_store
from shardstream.storage.base.location import with_transport

from .places import S3Place

OPTIONS = {"access_key_id": "key", "secret_access_key": "secret"}
ODD = ("d//stray", "d/./here", "d/b/../up", "d/c\x01control")


class Bucket(BaseHTTPRequestHandler):
    """As much of S3 as reading takes. SeaweedFS changes such keys, or refuses them."""

    objects: dict[str, bytes]
    page: int
    refuses: bool

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        if "list-type" in query:
            if self.refuses and "X-Amz-Signature" in query:
                self._answer(403, b"")
            else:
                self._answer(200, self._listing(query))
            return
        data = self.objects.get(unquote(url.path).removeprefix("/bkt/"))
        if data is None:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
            return
        begin, _, end = (self.headers["Range"] or "bytes=0-").removeprefix("bytes=").partition("-")
        start = int(begin) if begin else len(data) - int(end)
        stop = min(int(end) + 1, len(data)) if begin and end else len(data)
        place = {"Content-Range": f"bytes {start}-{stop - 1}/{len(data)}"} if self.headers["Range"] else {}
        self._answer(206 if place else 200, data[start:stop], place)

    do_HEAD = do_GET

    def _listing(self, query: dict[str, str]) -> bytes:
        after = query.get("continuation-token") or query.get("start-after", "")
        keys = sorted(key for key in self.objects if key.startswith(query.get("prefix", "")) and key > after)
        show = quote if query.get("encoding-type") == "url" else lambda key: escape(key).replace("\x01", "&#1;")
        rows = "".join(
            f"<Contents><Key>{show(key)}</Key><Size>{len(self.objects[key])}</Size><ETag>&quot;e&quot;</ETag>"
            "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
            for key in keys[: self.page]
        )
        more = len(keys) > self.page
        token = f"<NextContinuationToken>{escape(keys[self.page - 1])}</NextContinuationToken>" if more else ""
        encoding = "<EncodingType>url</EncodingType>" if "encoding-type" in query else ""
        head = f"<IsTruncated>{str(more).lower()}</IsTruncated>{token}{encoding}"
        return f'<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{head}{rows}</ListBucketResult>'.encode()

    def _answer(self, status: int, data: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), "ETag": '"e"', **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Bucket]]:
    pytest.importorskip("obstore")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    kind = type("Kind", (Bucket,), {"objects": {}, "page": 1000, "refuses": False})
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
    yield kind
    server.shutdown()
    server.server_close()


def listed(url: str, prefix: str = "") -> list[str]:
    return [meta.path for meta in open_store(locate(url, storage_options=OPTIONS)).list(prefix)]


@pytest.mark.parametrize("key", ODD)
def test_an_odd_key_is_left_out_and_named(key: str, bucket: type[Bucket], caplog: pytest.LogCaptureFixture) -> None:
    bucket.objects |= {"d/a.jsonl": b'{"n":1}\n', "d/é +%.jsonl": b'{"n":2}\n', key: b"x", "d/x/": b"", "e/z": b""}
    assert len(ss.Reader("s3://bkt/d", storage_options=OPTIONS)) == 2
    (record,) = [one for one in caplog.records if one.levelno == logging.WARNING]
    assert "left out of a listing: 1 object with an empty part" in record.getMessage()
    assert key.replace("\x01", "\\x01") in record.getMessage().replace("\\\\", "\\")


@pytest.mark.parametrize("page", [2, 3, 1000])
def test_all_other_keys_are_listed_once_and_in_order(bucket: type[Bucket], page: int) -> None:
    bucket.page = page
    names = [f"{folder}/{number} é.tar" for folder in "abd" for number in range(5)]
    bucket.objects |= dict.fromkeys([*names, *ODD], b"x") | {"d/": b"", "b/sub/": b""}
    assert listed("s3://bkt") == names
    assert listed("s3://bkt/d") == [name[2:] for name in names[-5:]]
    assert listed("s3://bkt", "a/") == names[:5]
    assert listed("s3://bkt/d", "3") == ["3 é.tar"]


def test_a_store_that_refuses_the_listing_without_odd_keys(bucket: type[Bucket]) -> None:
    bucket.objects |= {"d/a.jsonl": b'{"n":1}\n', "d//stray": b"x"}
    bucket.refuses = True
    with pytest.raises(StorageError, match=r"status 403[\s\S]*fsspec\+s3://"):
        listed("s3://bkt/d")


@pytest.mark.parametrize("transport", ["obstore", "fsspec"])
def test_objects_that_stand_for_directories_hide_nothing(
    s3: S3Place, transport: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    pa = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet").write_table(pa.table({"k": [1, 2, 3]}), tmp_path / "a.parquet")
    for name in ("", "v1.0/", "v2.0/", "v2.0/deep.er/"):
        s3.plant(name, b"")
    s3.plant("v2.0/a.parquet", (tmp_path / "a.parquet").read_bytes())
    options = {
        "endpoint_url": s3.endpoint,
        "key": s3.options["access_key_id"],
        "secret": s3.options["secret_access_key"],
    }
    for url in (s3.url(), s3.url("v2.0")):
        assert len(ss.Reader(with_transport(url, transport), storage_options=options)) == 3
    storage = ss.StorageOptions(options=options)
    assert ss.pack(with_transport(s3.url(), transport), tmp_path / "out", storage=storage, workers=0).samples == 3
