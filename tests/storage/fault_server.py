"""The process behind `faults.FaultProxy`: ``python fault_server.py HOST PORT``, commands and answers as JSON lines.

A thread a connection, blocking sockets: bodies pass at more than a gigabyte a second, and a fault is a plain sleep,
close or return.
"""

from __future__ import annotations

import fcntl
import json
import re
import select
import socket
import struct
import sys
import termios
import threading
import time
from collections import Counter
from contextlib import suppress
from typing import Any

_SLICE = 1 << 20
_LOGGED = 200_000


class Cut(Exception):
    """The client's connection ends here; ``hard``: by a reset."""

    def __init__(self, hard: bool = True) -> None:
        super().__init__()
        self.hard = hard


class State:
    """Rules and counts, shared by all connections."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.rules: list[dict[str, Any]] = []
        self.reset()

    def reset(self) -> None:
        self.requests = self.body_bytes = self.sent_bytes = 0
        self.hits: Counter[str] = Counter()
        self.log: list[tuple[Any, ...]] = []

    def chosen(self, head: Head) -> dict[str, dict[str, Any]]:
        """The faults of this request, by name; each of them counts as one hit."""
        found = {}
        with self.lock:
            self.requests += 1
            for rule in self.rules:
                if rule["match"] not in head.target or rule["method"] not in ("", head.method):
                    continue
                if rule["ranged"] is not None and rule["ranged"] != (head.get("range") is not None):
                    continue
                rule["seen"] = seen = rule.get("seen", 0) + 1
                if seen <= rule["skip"] or (seen - rule["skip"] - 1) % rule["every"] or rule["times"] == 0:
                    continue
                if rule["times"] is not None:
                    rule["times"] -= 1
                self.hits[rule["what"]] += 1
                found[rule["what"]] = rule["how"]
        return found

    def passed(self, *, body: int = 0, sent: int = 0) -> None:
        with self.lock:
            self.body_bytes += body
            self.sent_bytes += sent


class Head:
    """The first line and the header of a message."""

    def __init__(self, text: bytes) -> None:
        first, *lines = text.decode("latin-1").split("\r\n")
        self.first = first
        self.fields = [tuple(line.split(":", 1)) for line in lines if line]
        words = first.split(" ", 2)
        self.method, self.target = words[0], words[1]

    @property
    def status(self) -> int:
        return int(self.first.split(" ")[1])

    def get(self, name: str) -> str | None:
        return next((value.strip() for key, value in self.fields if key.lower() == name), None)

    def set(self, name: str, value: str | None) -> None:
        self.fields = [field for field in self.fields if field[0].lower() != name.lower()]
        if value is not None:
            self.fields.append((name, f" {value}"))

    def __bytes__(self) -> bytes:
        lines = [self.first, *(f"{key}:{value}" for key, value in self.fields), "", ""]
        return "\r\n".join(lines).encode("latin-1")


class Line:
    """One end of a connection, with what was read too far."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.rest = b""
        self.buffer = bytearray(_SLICE)

    def until(self, mark: bytes) -> bytes:
        """Up to and without ``mark``; b"" at the end of the connection."""
        while mark not in self.rest:
            more = self.sock.recv(65536)
            if not more:
                return b""
            self.rest += more
        found, self.rest = self.rest.split(mark, 1)
        return found

    def some(self, most: int) -> memoryview:
        if self.rest:
            found, self.rest = self.rest[:most], self.rest[most:]
            return memoryview(found)
        count = self.sock.recv_into(self.buffer, min(most, _SLICE))
        return memoryview(self.buffer)[:count]

    def head(self) -> Head | None:
        text = self.until(b"\r\n\r\n")
        return Head(text) if text else None

    def chunked(self) -> bytes:
        """A chunked body, as it came."""
        found = b""
        while True:
            size = self.until(b"\r\n")
            found += size + b"\r\n"
            left = int(size.split(b";")[0], 16) + 2
            while left:
                piece = bytes(self.some(left))
                if not piece:
                    raise Cut
                found += piece
                left -= len(piece)
            if size.split(b";")[0].strip(b"0") == b"":
                return found


class Connection(threading.Thread):
    def __init__(self, proxy: Proxy, sock: socket.socket) -> None:
        super().__init__(daemon=True)
        self.proxy, self.client = proxy, Line(sock)
        self.server: Line | None = None

    def run(self) -> None:
        hard = False
        try:
            while self.serve():
                pass
        except Cut as cut:
            hard = cut.hard
        except OSError:
            hard = True
        self.close(hard)

    def close(self, hard: bool) -> None:
        with suppress(OSError):
            if hard:
                self.client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.client.sock.close()
        if self.server is not None:
            with suppress(OSError):
                self.server.sock.close()
        self.proxy.connections.discard(self)

    def serve(self) -> bool:
        """One request and its answer; False when the client is gone."""
        asked = self.client.head()
        if asked is None:
            return False
        faults = self.proxy.state.chosen(asked)
        if asked.get("expect"):
            asked.set("Expect", None)
            self.client.sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        self.asked, self.entry = asked, dict[str, Any]()
        self.sent = self.passed = self.status = 0
        try:
            self.answer(asked, faults)
        finally:
            self.note()
        return True

    def note(self) -> None:
        """Write down how far the request came: before anything of the answer goes out, or whoever has the whole answer
        could read a log without it.
        """
        state = self.proxy.state
        with state.lock:
            if not self.entry and len(state.log) < _LOGGED:
                state.log.append(self.entry)
            self.entry.update(method=self.asked.method, target=self.asked.target, range=self.asked.get("range"))
            self.entry.update(status=self.status, body=self.passed, sent=self.sent)

    def answer(self, asked: Head, faults: dict[str, dict[str, Any]]) -> None:
        if "status" in faults or "reset" in faults or "stall" in faults:
            self.drop_body(asked)
            if "latency" in faults:
                time.sleep(faults["latency"]["seconds"])
            if "stall" in faults:
                self.stall()
            if "reset" in faults:
                raise Cut
            self.refuse(asked, **faults["status"])
            return
        wanted = asked.get("range")
        if wanted and "shifted range" in faults:
            by = faults["shifted range"]["by"]
            asked.set("Range", re.sub(r"\d+", lambda number: str(int(number[0]) + by), wanted))
        if "ignored range" in faults:
            asked.set("Range", None)
        if self.server is None:
            self.server = Line(socket.create_connection(self.proxy.upstream))
        self.server.sock.sendall(bytes(asked))
        self.pass_request_body(asked)
        told = self.server.head()
        while told is not None and told.status == 100:
            told = self.server.head()
        if told is None:
            raise Cut
        self.status = told.status
        if "latency" in faults:
            time.sleep(faults["latency"]["seconds"])
        self.pass_answer(asked, told, faults)

    # -------------------------------------------------------------------------------------------------- the request

    def pass_request_body(self, asked: Head) -> None:
        assert self.server is not None
        if (asked.get("transfer-encoding") or "").lower() == "chunked":
            body = self.client.chunked()
            self.server.sock.sendall(body)
            self.sent = len(body)
        left = int(asked.get("content-length") or 0)
        while left:
            piece = self.client.some(left)
            if not piece:
                raise Cut
            self.server.sock.sendall(piece)
            left -= len(piece)
            self.sent += len(piece)
        self.proxy.state.passed(sent=self.sent)

    def drop_body(self, asked: Head) -> None:
        if (asked.get("transfer-encoding") or "").lower() == "chunked":
            self.client.chunked()
        left = int(asked.get("content-length") or 0)
        while left:
            piece = self.client.some(left)
            if not piece:
                raise Cut
            left -= len(piece)

    # --------------------------------------------------------------------------------------------------- the answer

    def refuse(self, asked: Head, status: int, headers: dict[str, str] | None = None, body: str = "") -> None:
        self.status = status
        told = Head(f"HTTP/1.1 {status} Fault".encode())
        for name, value in {"Content-Length": str(len(body.encode())), **(headers or {})}.items():
            told.set(name, value)
        self.note()
        self.client.sock.sendall(bytes(told) + (b"" if asked.method == "HEAD" else body.encode()))

    def pass_answer(self, asked: Head, told: Head, faults: dict[str, dict[str, Any]]) -> None:
        for name, value in faults.get("header", {}).get("headers", {}).items():
            told.set(name, value)
        said = told.get("content-range")
        if said and "wrong range" in faults:
            by = faults["wrong range"]["by"]
            told.set("Content-Range", re.sub(r"(\d+)-(\d+)", lambda m: f"{int(m[1]) + by}-{int(m[2]) + by}", said))
        empty = asked.method == "HEAD" or told.status in (204, 304)
        length = 0 if empty else int(told.get("content-length") or 0)
        drop = 0
        if length and "short length" in faults:
            drop = faults["short length"]["by"]
            told.set("Content-Length", str(length - drop))
        self.note()
        self.client.sock.sendall(bytes(told))
        if not empty and (told.get("transfer-encoding") or "").lower() == "chunked":
            assert self.server is not None
            body = self.server.chunked()
            self.count(len(body))
            self.client.sock.sendall(body)
        self.pass_body(length - drop, faults)
        if drop:  # what is left on the way from the server belongs to nobody
            raise Cut(hard=False)

    def count(self, body: int) -> None:
        """Bytes of the body that go out next."""
        self.passed += body
        self.proxy.state.passed(body=body)
        self.note()

    def pass_body(self, length: int, faults: dict[str, dict[str, Any]]) -> None:
        ends = {
            name: faults[f"{name} in body"]["after"]
            for name in ("reset", "close", "stall")
            if f"{name} in body" in faults
        }
        last = min([length, *ends.values()])
        rate = faults.get("bandwidth", {}).get("bytes_per_second")
        flip = faults.get("flipped byte", {}).get("after")
        slow = max(1, int(rate / 20)) if rate else _SLICE
        began = time.monotonic()
        assert self.server is not None
        while self.passed < last:
            piece = self.server.some(min(last - self.passed, slow))
            if not piece:
                raise Cut(hard=False)
            if flip is not None and self.passed <= flip < self.passed + len(piece):
                changed = bytearray(piece)
                changed[flip - self.passed] ^= 0xFF
                piece = memoryview(changed)
            self.count(len(piece))
            self.client.sock.sendall(piece)
            if rate:
                time.sleep(max(0.0, began + self.passed / rate - time.monotonic()))
        if length and ends and last < length:
            if "stall" in ends:
                self.stall()
            self.delivered()
            raise Cut(hard="reset" in ends)

    def delivered(self) -> None:
        """Wait until what was sent has arrived: a reset would throw away the rest of it."""
        for _ in range(1000):
            waiting = struct.unpack("i", fcntl.ioctl(self.client.sock, termios.TIOCOUTQ, bytes(4)))[0]
            if not waiting:
                return
            time.sleep(0.002)

    def stall(self) -> None:
        """Nothing, until the client has had enough."""
        while True:
            readable, _, _ = select.select([self.client.sock], [], [], 60.0)
            if readable and not self.client.sock.recv(65536):
                raise Cut(hard=False)


class Proxy:
    def __init__(self, host: str, port: int) -> None:
        self.upstream = (host, port)
        self.state = State()
        self.connections: set[Connection] = set()
        self.listener: socket.socket | None = None
        self.port = 0
        self.up()

    def up(self) -> None:
        if self.listener is not None:
            return
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self.port))
        listener.listen(256)
        self.listener, self.port = listener, listener.getsockname()[1]
        threading.Thread(target=self.accept, args=(listener,), daemon=True).start()

    def accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                sock, _ = listener.accept()
                connection = Connection(self, sock)
                self.connections.add(connection)
                connection.start()

    def down(self) -> None:
        if self.listener is not None:
            with suppress(OSError):
                self.listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
            self.listener.close()
            self.listener = None
        for connection in list(self.connections):
            with suppress(OSError):
                connection.client.sock.shutdown(socket.SHUT_RDWR)

    def obey(self, command: str, rule: dict[str, Any] | None = None) -> dict[str, Any]:
        state = self.state
        if command == "log":
            with state.lock:
                return {"log": list(state.log)}
        with state.lock:
            if command == "add" and rule is not None:
                state.rules.append(rule)
            elif command == "clear":
                state.rules.clear()
            elif command == "reset":
                state.reset()
        if command in ("up", "down"):
            getattr(self, command)()
        return {name: getattr(state, name) for name in ("requests", "body_bytes", "sent_bytes", "hits")}


def main() -> None:
    proxy = Proxy(sys.argv[1], int(sys.argv[2]))
    print(json.dumps({"port": proxy.port}), flush=True)
    for line in sys.stdin:  # ends with the process that started us
        print(json.dumps(proxy.obey(**json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
