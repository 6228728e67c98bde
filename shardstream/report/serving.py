"""One page, served to this machine alone."""

from __future__ import annotations

import hmac
import secrets
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

from shardstream.errors import UsageError

_LOOPBACK = "127.0.0.1"


class PageServer(ThreadingHTTPServer):
    """Serves one page on the loopback address, under a path that nobody can guess. A context manager.

    It answers GET and HEAD of that one path, where the request speaks to this machine by the address that it was given
    or as ``localhost``: a name of somebody else that leads here is refused, so that no other site reads the page.

    Args:
        page: The page, as HTML.
        port: Where; 0 for a free port.

    Attributes:
        url: Where it is.

    Raises:
        UsageError: The port is taken, or this process may not have it.

    Example:
        >>> with PageServer("<p>here</p>") as server:
        ...     server.url.startswith("http://127.0.0.1:")
        True
    """

    daemon_threads = True

    def __init__(self, page: str, port: int = 0) -> None:
        self.page = page.encode()
        self.path = f"/{secrets.token_urlsafe(24)}/"
        try:
            super().__init__((_LOOPBACK, port), _Answer)
        except OSError as error:
            raise UsageError(
                f"port {port} cannot be used: {error.strerror}", hint="leave --port out, which takes a free one"
            ) from error
        self.hosts = {f"{host}:{self.server_port}" for host in (_LOOPBACK, "localhost")}
        self.url = f"http://{_LOOPBACK}:{self.server_port}{self.path}"


class _Answer(BaseHTTPRequestHandler):
    """Of one request."""

    server: PageServer  # type: ignore[mutable-override] # nobody else makes these
    server_version = "shardstream"
    sys_version = ""
    timeout: ClassVar[float | None] = 10.0  # for whoever opens a connection and asks for nothing

    def do_GET(self) -> None:
        page = self._found()
        if page is not None:
            self.wfile.write(page)

    def do_HEAD(self) -> None:
        self._found()

    def _found(self) -> bytes | None:
        """The page, its headers being sent; ``None``: refused."""
        if self.headers.get("Host") not in self.server.hosts:
            self.send_error(403)
            return None
        if not hmac.compare_digest(self.path.encode(), self.server.path.encode()):
            self.send_error(404)
            return None
        page = self.server.page
        self.send_response(200)
        for name, value in (
            ("Content-Type", "text/html; charset=utf-8"),
            ("Content-Length", str(len(page))),
            ("Cache-Control", "no-store"),
            ("Referrer-Policy", "no-referrer"),
            ("X-Content-Type-Options", "nosniff"),
            ("X-Frame-Options", "DENY"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
        ):
            self.send_header(name, value)
        self.end_headers()
        return page

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the paths that are asked for hold the token."""
