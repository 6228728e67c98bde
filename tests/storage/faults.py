"""A proxy between a client and a real HTTP server that misbehaves on request, and counts what passes.

    with FaultProxy("127.0.0.1:8333") as proxy:
        proxy.add("reset in body", after=100_000, times=2, match="shard-000001")
        ...                                     # the client speaks to proxy.url
        assert proxy.hits("reset in body") == 2

It is a process of its own, so that neither its work nor a stopped interpreter here disturbs the other, and ends with
this process, however that ends. See `FAULTS` for what it can do.
"""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Self

FAULTS = {
    # before the server is asked
    "status": "answers with `status` (and `headers`, `body`) instead of the server",
    "reset": "cuts the connection instead of answering",
    "stall": "never answers; the connection stays open",
    "shifted range": "asks the server for a range `by` bytes further on than the client wanted",
    "ignored range": "asks the server for the whole object",
    # on the way of the answer
    "latency": "waits `seconds` before the answer's header",
    "bandwidth": "lets `bytes_per_second` of the body through, on each connection",
    "reset in body": "cuts the connection after `after` bytes of the body",
    "close in body": "ends the connection in order after `after` bytes of the body: less than Content-Length said",
    "stall in body": "sends nothing more after `after` bytes of the body; the connection stays open",
    "short length": "announces and sends `by` bytes fewer than the server did",
    "wrong range": "says that the body began `by` bytes further on (Content-Range)",
    "header": "sets `headers` in the answer (None removes one)",
    "flipped byte": "inverts the byte at `after` of the body",
}


class Passed(NamedTuple):
    """A request that reached the proxy, and what came of it."""

    method: str
    target: str
    range: str | None
    status: int
    body: int
    sent: int


class FaultProxy:
    """See the module.

    Args:
        upstream: The server, ``host:port``.
    """

    def __init__(self, upstream: str) -> None:
        self.upstream = upstream
        server = Path(__file__).with_name("fault_server.py")
        self._process = subprocess.Popen(
            [sys.executable, "-I", str(server), *upstream.rsplit(":", 1)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.port: int = self._hear()["port"]
        self.address = f"127.0.0.1:{self.port}"
        self.url = f"http://{self.address}"

    def add(
        self,
        what: str,
        *,
        match: str = "",
        method: str = "",
        ranged: bool | None = None,
        times: int | None = None,
        skip: int = 0,
        every: int = 1,
        **how: Any,
    ) -> None:
        """Misbehave from now on. Each rule counts the requests that it matches, those that others spoil too.

        Args:
            what: One of `FAULTS`, with what it needs in ``how``.
            match: Only requests whose path and query contain this.
            method: Only requests of this method.
            ranged: Only requests with (True) or without (False) a range.
            times: How often; ``None``: until `clear`.
            skip: Spare so many matching requests first.
            every: Then only every so-manieth: 50 is 2 %.
            how: What the fault needs.
        """
        assert what in FAULTS, f"no fault {what!r}; there are {', '.join(FAULTS)}"
        rule = {"what": what, "match": match, "method": method, "ranged": ranged, "times": times}
        self._tell("add", rule=rule | {"skip": skip, "every": every, "how": how})

    def clear(self) -> None:
        """Behave from now on. What is stalled stays stalled."""
        self._tell("clear")

    def down(self) -> None:
        """Close the port and cut all connections, as a server that is stopped does."""
        self._tell("down")

    def up(self) -> None:
        """Open the port again."""
        self._tell("up")

    def hits(self, what: str) -> int:
        """How often a fault happened since the last `reset_counts`."""
        return int(self._tell("counts")["hits"].get(what, 0))

    @property
    def requests(self) -> int:
        """Requests since the last `reset_counts`."""
        return int(self._tell("counts")["requests"])

    @property
    def body_bytes(self) -> int:
        """Bytes of answers' bodies that were passed on to clients."""
        return int(self._tell("counts")["body_bytes"])

    @property
    def sent_bytes(self) -> int:
        """Bytes of requests' bodies that were passed on to the server."""
        return int(self._tell("counts")["sent_bytes"])

    def log(self) -> list[Passed]:
        """The requests since the last `reset_counts`, in the order in which they were answered (or given up).

        Whoever has an answer finds its request here, with all of its body.
        """
        return [Passed(**entry) for entry in self._tell("log")["log"]]

    def reset_counts(self) -> None:
        """Count from zero."""
        self._tell("reset")

    def stop(self) -> None:
        """End the proxy."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _tell(self, command: str, **more: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"command": command, **more}) + "\n")
        self._process.stdin.flush()
        return self._hear()

    def _hear(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the fault proxy died; its error stands above"
        return json.loads(line)
