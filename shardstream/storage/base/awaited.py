"""What this process asks of stores at the moment, so that somebody who waits can say for what."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TypeAlias


@dataclass(slots=True)
class AwaitedRequest:
    """A request that has no answer yet, with all its attempts.

    Attributes:
        url: The object.
        since: When it began, by ``time.monotonic_ns``.
        attempts: How often it was made.
    """

    url: str
    since: int = field(default_factory=time.monotonic_ns)
    attempts: int = 0

    def again(self) -> None:
        """One more attempt begins."""
        self.attempts += 1
        _tell()


Listener: TypeAlias = Callable[[AwaitedRequest | None, int], None]

_open: dict[int, AwaitedRequest] = {}
_listener: Listener | None = None


def listen(listener: Listener | None) -> None:
    """Have a function called with the oldest request, and how many there are, whenever that changes."""
    global _listener
    _listener = listener


@contextmanager
def awaited(url: str) -> Iterator[AwaitedRequest]:
    """A request, while it is open."""
    request = AwaitedRequest(url)
    _open[id(request)] = request
    try:
        yield request
    finally:
        del _open[id(request)]
        _tell()


def _tell() -> None:
    if _listener is not None:
        with suppress(RuntimeError):  # another thread's request began or ended meanwhile: it tells, too
            _listener(next(iter(_open.values()), None), len(_open))


def _forget() -> None:
    # In a forked process: requests, and who listens, are the parent's.
    _open.clear()
    listen(None)


os.register_at_fork(after_in_child=_forget)
