"""A web server redirects to another host: which headers go along."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from shardstream.storage import Transport, open_store

from .places import WebPlace

HEADERS = {"X-Token": "geheim", "Authorization": "Bearer geheim", "Cookie": "a=geheim"}


@contextmanager
def another_host() -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Its name, and the headers of the requests that it gets."""
    seen: list[dict[str, str]] = []

    class Host(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append({name.lower(): value for name, value in self.headers.items()})
            self.send_response(200)
            self.send_header("Content-Length", "4")
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(b"data")

        do_HEAD = do_GET

        def log_message(self, *_: object) -> None:
            """Quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Host) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}", seen
        server.shutdown()


@pytest.mark.parametrize("transport", ["obstore", "fsspec"])
def test_another_host_sees_no_credentials(web: WebPlace, transport: Transport) -> None:
    with another_host() as (host, seen):
        url = f"{web.endpoint}/to/{host}".replace("://", "://user:geheim@")
        store = open_store(url, transport=transport, storage_options={"headers": {"Cookie": "a=geheim"}})
        assert bytes(store.get("object")) == b"data"
    assert len(seen) >= 1
    assert "geheim" not in str(seen)
    assert not any("authorization" in one for one in seen)


def test_another_host_sees_no_header_of_the_user_over_fsspec(web: WebPlace) -> None:
    with another_host() as (host, seen):
        url = f"{web.endpoint}/to/{host}"
        store = open_store(url, transport="fsspec", storage_options={"headers": HEADERS})
        assert bytes(store.get("object")) == b"data"
    assert len(seen) >= 1
    assert "geheim" not in str(seen)


def test_the_same_host_sees_them_over_fsspec(web: WebPlace) -> None:
    private = web.folder.parent / "private"
    private.mkdir(exist_ok=True)
    (private / web.name).write_bytes(b"data")
    user = {"Authorization": "Basic dXNlcjpwYXNzIHdvcmQ="}
    store = open_store(f"{web.endpoint}/to/self/private", transport="fsspec", storage_options={"headers": user})
    assert bytes(store.get(web.name)) == b"data"
