"""What this process asks of stores at the moment, so that somebody who waits can say for what."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Self, TypeAlias

_TELL_S = 0.25


class AwaitedRequest:
    """A request that has no answer yet, with all its attempts; a context, while it is open, in a coroutine.

    Args:
        url: The object.

    Attributes:
        url: As given.
        since: When it began, by ``time.monotonic_ns``.
        attempts: How often it was made.
    """

    __slots__ = ("attempts", "since", "url")

    def __init__(self, url: str) -> None:
        self.url = url
        self.since = time.monotonic_ns()
        self.attempts = 0

    def __enter__(self) -> Self:
        _open[id(self)] = self
        if _listener is not None:
            _tell_at_times()
        return self

    def __exit__(self, *_: object) -> None:
        del _open[id(self)]
        if _recorder is not None:
            _recorder(self)


Listener: TypeAlias = Callable[[AwaitedRequest | None, int], None]
Recorder: TypeAlias = Callable[[AwaitedRequest], None]

_open: dict[int, AwaitedRequest] = {}
_listener: Listener | None = None
_recorder: Recorder | None = None
_telling: asyncio.AbstractEventLoop | None = None  # which looks at what is open, until nothing is


def listen(listener: Listener | None) -> None:
    """Have a function called with the oldest request, and how many there are, four times a second while there are any.

    Nobody has a use for requests that are answered at once, and telling of each would cost more than some take.
    """
    global _listener
    _listener = listener


def record(recorder: Recorder | None) -> None:
    """Have a function called with each request that ends."""
    global _recorder
    _recorder = recorder


def _tell_at_times() -> None:
    global _telling
    running = asyncio.get_running_loop()
    if _telling is not running:
        _telling = running
        running.call_later(_TELL_S, _tell)


def _tell() -> None:
    global _telling
    _telling = None
    if _listener is not None:
        with suppress(RuntimeError):  # a request of another loop began or ended meanwhile
            _listener(next(iter(_open.values()), None), len(_open))
        if _open:
            _tell_at_times()


def _forget() -> None:
    # In a forked process: requests, and who listens, are the parent's.
    global _telling
    _open.clear()
    _telling = None
    listen(None)
    record(None)


os.register_at_fork(after_in_child=_forget)
