"""What runs in a worker process: tasks come in through a pipe, totals and results go out."""

from __future__ import annotations

import time
import traceback
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from shardstream.pack.task import ShardResult, ShardTask

TICK_S = 0.1


class Added(NamedTuple):
    """What was done since the last message: samples, rejects and bytes read."""

    samples: int = 0
    rejects: int = 0
    bytes: int = 0


class Done(NamedTuple):
    """A task that has ended, in a result or an error."""

    outcome: ShardResult | Exception


class _Totals:
    """Sums up what the task reports, and sends it on ten times a second."""

    def __init__(self, pipe: Connection[Any, Any]) -> None:
        self._pipe = pipe
        self._added = Added()
        self._sent = time.monotonic()

    def add(self, samples: int, rejects: int, size: int) -> None:
        self._added = Added(self._added.samples + samples, self._added.rejects + rejects, self._added.bytes + size)
        if time.monotonic() - self._sent >= TICK_S:
            self.send()

    def send(self) -> None:
        self._pipe.send(self._added)
        self._added = Added()
        self._sent = time.monotonic()


def main(handle: int) -> None:
    """Run tasks until the other end of the pipe is closed, be it because the parent died.

    Args:
        handle: File descriptor of our end.
    """
    pipe: Connection[Any, Any] = Connection(handle)
    try:
        while True:
            _work(pipe.recv(), pipe)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return


def _work(task: ShardTask, pipe: Connection[Any, Any]) -> None:
    totals = _Totals(pipe)
    try:
        outcome: ShardResult | Exception = task.run(totals.add)
    except (BrokenPipeError, ConnectionResetError):
        raise
    except Exception as error:
        error.add_note(traceback.format_exc())  # the parent shows this for errors that are not ours
        outcome = error
    totals.send()
    pipe.send(Done(outcome))
