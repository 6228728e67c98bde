"""What runs in a worker process: tasks come in, totals and results go out."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import NamedTuple

from shardstream.errors import UsageError
from shardstream.pack.execution import isolated
from shardstream.pack.execution.channel import WorkerEnd, portable
from shardstream.pack.execution.jobs import PackJob, Result
from shardstream.pack.execution.lending import borrowed
from shardstream.pack.output.commits import Committer
from shardstream.pack.output.stats import PackStats

TICK_S = 0.1


class Done(NamedTuple):
    """A task that has ended, in a result or an error."""

    outcome: Result | Exception


class _Totals:
    """Sums up what the task reports, and sends it on ten times a second."""

    def __init__(self, end: WorkerEnd) -> None:
        self._end = end
        self._added = PackStats()
        self._sent = time.monotonic()

    def add(self, tally: PackStats) -> None:
        self._added = self._added.plus(tally)
        if time.monotonic() - self._sent >= TICK_S:
            self.send()

    def send(self) -> None:
        self._end.send(pickle.dumps(self._added))
        self._added = PackStats()
        self._sent = time.monotonic()


def main(handle: int, lent: int | None) -> None:
    """Run tasks until the other end is closed, be it because the parent died.

    Args:
        handle: File descriptor of our end.
        lent: Of the run's tasks, where they are known by numbers.
    """
    signal.signal(signal.SIGTERM, _stop)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # there is a worker a core
    try:
        with closing(WorkerEnd(handle)) as end:
            _work(end, lent)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # we are going, and not to be interrupted in it


def _stop(_number: int, _frame: object) -> None:
    # An exception, so that what is half-written is dropped: a store keeps, and bills, parts that nobody drops.
    sys.exit(128 + signal.SIGTERM)


class _Tasks:
    """The tasks that messages mean.

    Args:
        lent: Of those that are known by numbers.
    """

    def __init__(self, lent: int | None) -> None:
        self._lent = lent
        self._known: Sequence[PackJob[Result]] | None = None

    def task(self, message: bytearray) -> PackJob[Result]:
        """The task: the message itself, or the one of that number.

        Raises:
            UsageError: This process does not find what it is made of.
        """
        try:
            task: PackJob[Result] | int = pickle.loads(message)  # noqa: S301 - of our own parent
            if not isinstance(task, int):
                return task
            if self._known is None:
                assert self._lent is not None, "a number is of tasks that were lent"
                self._known = borrowed(self._lent)
        except (ImportError, AttributeError) as error:
            raise UsageError(
                f"a worker process cannot load its task: {error}",
                hint="define transform= and the source at the top of a module, not in the script itself, or workers=0",
            ) from error
        return self._known[task]


def _work(end: WorkerEnd, lent: int | None) -> None:
    """Task after task; the commit of one goes on beside the next, as far as there is a next one at hand."""
    tasks = _Tasks(lent)
    committer = Committer()
    before: Result | None = None  # being committed

    def settle() -> None:
        nonlocal before
        if before is not None:
            end.send(_outcome(before, committer.wait))
            before = None

    try:
        while True:
            if not end.waiting():
                settle()
            message = end.receive()
            totals = _Totals(end)
            try:
                task = tasks.task(message)
                kept = task.finished()
                if kept is not None:
                    settle()
                    end.send(_message(kept))
                    continue
                result, out = task.write(totals.add)
            except (BrokenPipeError, ConnectionResetError):
                raise
            except Exception as error:
                settle()
                end.send(_message(error))
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
        isolated.end()


def _outcome(result: Result, wait: Callable[[], None]) -> bytes:
    try:
        wait()
    except Exception as error:
        return _message(error)
    return _message(result)


def _message(outcome: Result | Exception) -> bytes:
    """What a task ended with, pickled."""
    return pickle.dumps(Done(portable(outcome) if isinstance(outcome, Exception) else outcome))
