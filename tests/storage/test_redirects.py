"""A web server redirects: which headers go along, and how often."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from shardstream.errors import AccessError, StorageError, UsageError
from shardstream.storage import counters, open_store
from shardstream.storage.base.location import with_transport

from .places import WebPlace

HEADERS = {"X-Token": "geheim", "Authorization": "Bearer geheim", "Cookie": "a=geheim"}


@contextmanager
def another_host(target: str = "") -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Its name, and the headers of the requests that it gets; with ``target``, it redirects there."""
    seen: list[dict[str, str]] = []

    class Host(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append({name.lower(): value for name, value in self.headers.items()})
            wanted = self.headers.get("Range", "").removeprefix("bytes=")
            body = b"data"
            if target:
                self.send_response(302)
                self.send_header("Location", target + self.path)
                body = b""
            elif wanted:
                first, _, last = wanted.partition("-")
                body = body[int(first) : int(last or 3) + 1]
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {first}-{last or 3}/4")
            else:
                self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET

        def log_message(self, *_: object) -> None:
            """Quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Host) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}", seen
        server.shutdown()


@pytest.mark.parametrize("options", [
    {"headers": HEADERS},
    {"default_headers": HEADERS},
    {"client_options": {"default_headers": {"x-token": "geheim"}}},
    {"headers": {"Cookie": "a=geheim"}},
])  # fmt: skip
@pytest.mark.parametrize("transport", ["auto", "fsspec"])
def test_another_host_sees_no_header_of_the_user(web: WebPlace, transport: str, options: dict[str, Any]) -> None:
    with another_host() as (host, seen):
        url = f"{web.endpoint}/to/{host}".replace("://", "://user:geheim@")
        store = open_store(with_transport(url, transport), storage_options=options)
        assert bytes(store.get("object")) == b"data"
        assert store.size("object") == 4
    assert len(seen) >= 2
    assert "geheim" not in str(seen)
    assert not any("authorization" in one for one in seen)


@pytest.mark.parametrize("transport", ["obstore", "fsspec"])
def test_the_same_host_sees_them(web: WebPlace, transport: str) -> None:
    private = web.folder.parent / "private"
    private.mkdir(exist_ok=True)
    (private / web.name).write_bytes(b"data")
    user = {"Authorization": "Basic dXNlcjpwYXNzIHdvcmQ="}
    store = open_store(with_transport(f"{web.endpoint}/to/self/private", transport), storage_options={"headers": user})
    assert bytes(store.get(web.name)) == b"data"


def test_a_redirect_back_brings_no_header_back(web: WebPlace) -> None:
    """Another host cannot send the user's name and token where the user did not."""
    private = web.folder.parent / "private"
    private.mkdir(exist_ok=True)
    (private / web.name).write_bytes(b"data")
    user = {"Authorization": "Basic dXNlcjpwYXNzIHdvcmQ=", "X-Token": "geheim"}
    with another_host(target=web.endpoint) as (host, seen):
        store = open_store(f"{web.endpoint}/to/{host}/private", storage_options={"headers": user})
        with pytest.raises(AccessError):
            store.get(web.name)
    assert seen


@pytest.mark.parametrize("transport", ["obstore", "fsspec"])
def test_redirects_without_end_are_an_error_at_once(transport: str) -> None:
    before = counters().snapshot()
    with another_host(target="/again") as (host, seen):
        store = open_store(with_transport(f"http://{host}", transport))
        for ask in (store.get, store.size):
            with pytest.raises(StorageError, match="redirects more than 10 times"):
                ask("object")
    assert counters().since(before)["retries"] == 0
    assert len(seen) <= 60


def test_a_range_with_headers_is_one_request() -> None:
    with another_host() as (host, seen):
        store = open_store(f"http://{host}", storage_options={"headers": HEADERS})
        assert bytes(store.get("object", 1, 2)) == b"at"
        assert bytes(store.get("object", 2)) == b"ta"
    assert len(seen) == 2
    assert all(one["x-token"] == "geheim" for one in seen)


@pytest.mark.parametrize("options", [{"headers": "X-A: a"}, {"headers": ["X-A"]}, {"client_options": "timeout=1"}])
@pytest.mark.parametrize("transport", ["auto", "fsspec"])
def test_headers_and_options_are_dicts(transport: str, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=f"{next(iter(options))} must be a dict"):
        open_store(with_transport("http://127.0.0.1:1/a", transport), storage_options=options)
