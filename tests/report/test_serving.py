"""A page on this machine's own address: for whoever was given the link, and for nobody else."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator

import pytest

from shardstream.errors import UsageError
from shardstream.report.serving import PageServer


@pytest.fixture
def server() -> Iterator[PageServer]:
    with PageServer("<p>é</p>") as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def ask(server: PageServer, path: str, *, method: str = "GET", host: str | None = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    connection.request(method, path, headers={} if host is None else {"Host": host})
    answer = connection.getresponse()
    found = answer.status, answer.read()
    connection.close()
    return found


def test_the_page_is_served_under_its_token(server: PageServer) -> None:
    assert ask(server, server.path) == (200, "<p>é</p>".encode())
    assert ask(server, server.path, host=f"localhost:{server.server_port}")[0] == 200
    assert ask(server, server.path, method="HEAD") == (200, b"")
    assert server.url == f"http://127.0.0.1:{server.server_port}{server.path}"
    assert len(server.path) > 30


def test_all_else_is_refused(server: PageServer) -> None:
    for path in ("/", server.path[:-2] + "/", server.path + "x", f"{server.path}?a=b", "/..//etc/passwd"):
        status, body = ask(server, path)
        assert status == 404
        assert server.path.strip("/").encode() not in body
    for host in ("evil.example", f"evil.example:{server.server_port}", "127.0.0.1", ""):
        assert ask(server, server.path, host=host)[0] == 403
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert ask(server, server.path, method=method)[0] == 501


def test_only_the_loopback_address_is_bound(server: PageServer) -> None:
    assert server.server_address[0] == "127.0.0.1"
    with pytest.raises(UsageError, match=f"port {server.server_port} cannot be used"):
        PageServer("", server.server_port)
