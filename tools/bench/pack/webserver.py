"""A web server of the files of a folder, quick enough not to be what is measured: ``python -m bench.pack.webserver``.

Takes the folder as its argument, and prints the port it listens on.
"""

from __future__ import annotations

import asyncio
import os
import sys
from urllib.parse import unquote


class _Answers(asyncio.Protocol):
    """GET and HEAD, with ranges, over connections that are kept."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._asked = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._asked += data
        while b"\r\n\r\n" in self._asked:
            head, _, self._asked = self._asked.partition(b"\r\n\r\n")
            self._answer(head.decode("latin-1"))

    def _answer(self, head: str) -> None:
        first, *lines = head.split("\r\n")
        method, path, _ = first.split(" ", 2)
        fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        try:
            with open(os.path.join(self._folder, unquote(path.partition("?")[0]).lstrip("/")), "rb") as file:
                content = file.read()
        except OSError:
            self._transport.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
            return
        status, more = "200 OK", ""
        if "range" in fields:
            start, _, end = fields["range"].removeprefix("bytes=").partition("-")
            last = min(int(end) if end else len(content) - 1, len(content) - 1)
            status, more = "206 Partial Content", f"Content-Range: bytes {start}-{last}/{len(content)}\r\n"
            content = content[int(start) : last + 1]
        more += 'ETag: "1"\r\nAccept-Ranges: bytes\r\nContent-Type: image/jpeg\r\n'
        more += "Last-Modified: Sun, 22 Nov 2026 00:00:00 GMT\r\n"
        self._transport.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(content)}\r\n{more}\r\n".encode())
        if method == "GET":
            self._transport.write(content)
        if fields.get("connection", "").lower() == "close":
            self._transport.close()


async def _serve(folder: str) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Answers(folder), "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1]))
