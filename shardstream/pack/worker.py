"""What runs in a worker process: tasks come in through a pipe, totals and results go out."""

from __future__ import annotations

import signal
import sys
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from shardstream.pack.commits import Committer
from shardstream.pack.jobs import Job, Result
from shardstream.pack.tally import Tally

TICK_S = 0.1


class Done(NamedTuple):
    """A task that has ended, in a result or an error."""

    outcome: Result | Exception


class _Totals:
    """Sums up what the task reports, and sends it on ten times a second."""

    def __init__(self, pipe: Connection[Any, Any]) -> None:
        self._pipe = pipe
        self._added = Tally()
        self._sent = time.monotonic()

    def add(self, tally: Tally) -> None:
        self._added = self._added.plus(tally)
        if time.monotonic() - self._sent >= TICK_S:
            self.send()

    def send(self) -> None:
        self._pipe.send(self._added)
        self._added = Tally()
        self._sent = time.monotonic()


def main(handle: int) -> None:
    """Run tasks until the other end of the pipe is closed, be it because the parent died.

    Args:
        handle: File descriptor of our end.
    """
    signal.signal(signal.SIGTERM, _stop)
    pipe: Connection[Any, Any] = Connection(handle)
    try:
        _work(pipe)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # we are going, and not to be interrupted in it


def _stop(_number: int, _frame: object) -> None:
    # An exception, so that what is half-written is dropped: a store keeps, and bills, parts that nobody drops.
    sys.exit(128 + signal.SIGTERM)


def _work(pipe: Connection[Any, Any]) -> None:
    """Task after task; the commit of one goes on beside the next, as far as there is a next one at hand."""
    committer = Committer()
    before: Result | None = None  # being committed

    def settle() -> None:
        nonlocal before
        if before is not None:
            pipe.send(_outcome(before, committer.wait))
            before = None

    try:
        while True:
            if not pipe.poll():
                settle()
            task: Job[Result] = pipe.recv()
            totals = _Totals(pipe)
            try:
                kept = task.finished()
                if kept is not None:
                    settle()
                    pipe.send(Done(kept))
                    continue
                result, out = task.write(totals.add)
            except (BrokenPipeError, ConnectionResetError):
                raise
            except Exception as error:
                settle()
                pipe.send(Done(_told(error)))
                continue
            totals.send()
            try:
                settle()
            except BaseException:
                out.discard()
                raise
            committer.begin(out, task.name)
            before = result
    finally:
        committer.abandon()


def _outcome(result: Result, wait: Callable[[], None]) -> Done:
    try:
        wait()
    except Exception as error:
        return Done(_told(error))
    return Done(result)


def _told(error: Exception) -> Exception:
    error.add_note(traceback.format_exc())  # the parent shows this for errors that are not ours
    return error
