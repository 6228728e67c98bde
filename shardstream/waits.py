"""Waits that are watched: whoever waits for a minute says what for, and goes on saying so.

::

    with watched("shard-000003.tar to be flushed to the disk"):
        thread.join()

It may be any call: a lock, a queue, a pipe, a file system that hangs. What is open is looked at by one daemon thread of
the process, so a wait costs a microsecond and needs no deadline, nor a loop around it. It is a warning of the logger
``shardstream.waits``, after a minute, then after 2, 4, 8... Python's own wait for a thread to begin ends in `begin`.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Self

_log = logging.getLogger(__name__)

NOTICE_S = float(os.environ.get("SHARDSTREAM_NOTICE_S", "60"))
"""Seconds until a wait is told of first; tests shorten it, those of other processes by the environment."""

_LOOK_S = 1.0
_BEGIN_LOOKS = 20


_open: dict[int, watched] = {}


class watched:  # in lower case, as it is read: `with watched(...):`
    """A context: what is done in it is a wait.

    Args:
        what: What is waited for, to stand behind "waiting for"; a function is called only when it is said.
        after: Seconds until it is said first. Default: `NOTICE_S`.
        detail: Makes further lines of it.

    Attributes:
        since: When the wait began, by ``time.monotonic``. A loop that waits again and again enters once, sets it before
            each wait, and to infinity after it.
    """

    __slots__ = ("_after", "_detail", "_due", "_what", "since")

    def __init__(
        self, what: str | Callable[[], str], *, after: float | None = None, detail: Callable[[], str] | None = None
    ) -> None:
        self._what = what
        self._after = after
        self._detail = detail
        self.news()

    def __enter__(self) -> Self:
        _open[id(self)] = self
        if not _watching:
            _begin_to_watch()
        return self

    # A generator that is left open ends with the interpreter, when the names of this module are gone.
    def __exit__(self, *_: object, _open: dict[int, watched] = _open) -> None:
        _open.pop(id(self), None)

    def news(self) -> None:
        """Something came: a wait that goes on begins anew."""
        self.since = time.monotonic()
        self._due = self.limit

    @property
    def limit(self) -> float:
        """Seconds until it is said first."""
        return NOTICE_S if self._after is None else self._after

    def look(self) -> None:
        """Say what is waited for, if that is due."""
        waited = time.monotonic() - self.since
        if waited < self.limit:  # another wait than the one that was told of
            self._due = self.limit
        elif waited >= self._due:
            self._due = 2 * waited
            what = self._what if isinstance(self._what, str) else self._what()
            detail = "" if self._detail is None else self._detail()
            _log.warning("waiting for %s, for %.0f s so far%s", what, waited, detail)


class _Begun(threading.Event):
    """Whether a thread has begun: Python waits for that without limit, though one that had no memory to begin is gone.

    Attributes:
        given_up: Whether it was waited for in vain, so that whoever started it may do its work meanwhile.
    """

    def __init__(self) -> None:
        super().__init__()
        self._deciding = threading.Lock()
        self.given_up = False

    def wait(self, timeout: float | None = None) -> bool:
        if timeout is not None:
            return super().wait(timeout)
        why = "it did not begin; is memory short?"
        for _ in range(_BEGIN_LOOKS):  # not one long wait: the whole process may have been stopped in its midst
            try:
                if super().wait(_LOOK_S):
                    return True
            except (RuntimeError, MemoryError) as error:  # there is no memory to wait, either
                why = str(error) or why
                break
        with self._deciding:
            self.given_up = not self.is_set()
        if self.given_up:
            raise RuntimeError(why)
        return True

    def set(self) -> None:
        with self._deciding:
            super().set()


def begin(thread: threading.Thread) -> None:
    """Start a thread, or say that it does not start: then it does nothing later. See also `shardstream.threads.start`.

    Raises:
        RuntimeError: The system refuses one more, or it had no memory to begin.
    """
    begun, run = _Begun(), thread.run
    thread._started = begun  # type: ignore[attr-defined] # what `Thread.start` waits for, in Python 3.11 to 3.14
    thread.run = lambda: None if begun.given_up else run()  # type: ignore[method-assign]
    thread.start()
    del thread.run  # it is needed no more, and holds the thread


_watching = False
_lock = threading.Lock()


def _begin_to_watch() -> None:
    global _watching
    with _lock:
        if not _watching:
            with suppress(RuntimeError):  # no more threads: the machine has none left, or Python is about to end
                begin(threading.Thread(target=_watch, name="shardstream-waits", daemon=True))
                _watching = True


def _watch() -> None:
    while True:
        time.sleep(max(0.01, min(_LOOK_S, NOTICE_S / 4)))
        for wait in tuple(_open.values()):
            try:
                wait.look()
            except Exception:  # of a function that tells what for, while what it looks at changes
                _log.debug("a wait could not be told of", exc_info=True)
            del wait  # it may hold what is waited for


def _forget() -> None:
    """In a forked process: the thread, and those that waited, are the parent's."""
    global _watching, _lock
    _open.clear()
    _watching, _lock = False, threading.Lock()


os.register_at_fork(after_in_child=_forget)
