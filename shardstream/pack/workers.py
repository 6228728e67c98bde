"""Tasks in this process, in worker processes of our own, or on somebody's executor.

Our workers are plain child processes with a pipe each, not ``multiprocessing``'s: those run the caller's script again,
which has to be written for it, or are forked from a process that may hold locks. How this could hang, and why not:

1. A worker is killed: its pipe ends, and the error says by which signal and what was being written.
2. The parent is killed: the pipes of the workers end, and so do they, at the latest with their next report.
3. Ctrl-C, or an error in another task: workers are ended by signal, drop what is half-written, and are killed if that
   takes long; what is still left is swept.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from multiprocessing import connection
from typing import TypeAlias, TypeVar, cast

from shardstream.errors import ShardStreamError, UsageError
from shardstream.pack.commits import Committer
from shardstream.pack.jobs import Job, R, Result
from shardstream.pack.receipts import ShardResult
from shardstream.pack.tally import Tally
from shardstream.pack.task import ShardTask, Task
from shardstream.pack.worker import TICK_S, Done

T = TypeVar("T")
Tick: TypeAlias = Callable[[Tally, int], None]
"""Called some ten times a second with totals, and how many of the samples an earlier run had written."""

_AHEAD = 2  # tasks a worker of an executor that are handed out: the next one is there when one ends
_PATIENCE_S = 5.0
_LOOK_S = 2.0
_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[2]); "
    "from shardstream.pack.worker import main; main(int(sys.argv[1]))"
)


class _Sum:
    """Totals of a run, passed on when they have changed."""

    def __init__(self, tick: Tick) -> None:
        self._tick = tick
        self._done = Tally()
        self._kept = 0
        self._told = time.monotonic()

    def keep(self, result: Result) -> None:
        """Count a shard of an earlier run: its samples, not the time they took then."""
        tally = result.tally
        self._kept += tally.done
        self.add(Tally(tally.samples, tally.rejects, tally.dropped))

    def add(self, tally: Tally) -> None:
        self._done = self._done.plus(tally)
        now = time.monotonic()
        if now - self._told >= TICK_S:
            self._told = now
            self.tell()

    def tell(self) -> None:
        self._tick(self._done, self._kept)


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_travels(task: Task, dumps: Callable[[object], bytes] = pickle.dumps) -> None:
    """Refuse tasks that cannot be sent to another process, with the reason.

    Args:
        task: One of them.
        dumps: What they are pickled with.

    Raises:
        UsageError: ``storage_options``, ``source_options``, ``transform`` or the source hold what cannot be pickled.
    """
    parts: dict[str, object] = {"storage_options": task.dest, "source_options": task.files, "the source": task.part}
    if isinstance(task, ShardTask):
        parts["transform"] = task.recipe.transform
    for name, value in parts.items():
        try:
            dumps(value)
        except Exception as error:  # whatever an object of somebody else's raises
            how = "give credentials by value or through the environment"
            if name == "transform":
                how = "define it at the top of a module"
            raise UsageError(
                f"{name} cannot be sent to worker processes: {type(error).__name__}",
                url=task.dest.url,
                hint=f"{how}, or pack in this process: workers=0",
            ) from None


def run_here(tasks: Sequence[Job[R]], tick: Tick) -> Iterator[R]:
    """Run tasks one after another in this process."""
    total = _Sum(tick)
    before: R | None = None  # being committed
    committer = Committer()
    try:
        for task in tasks:
            kept = task.finished()
            if kept is not None:
                total.keep(kept)
                yield kept
                continue
            result, out = task.write(total.add)
            try:
                committer.wait()
            except BaseException:
                out.discard()
                raise
            committer.begin(out, task.name)
            if before is not None:
                yield before
            before = result
        committer.wait()
    finally:
        committer.abandon()
    if before is not None:
        yield before
    total.tell()


def run_on(executor: Executor, tasks: Sequence[Task], tick: Tick) -> Iterator[ShardResult]:
    """Run tasks on an executor of the caller's, in any order; totals count whole shards."""
    limit = _AHEAD * (os.cpu_count() or 1)

    def start(task: Task) -> Future[ShardResult]:
        return executor.submit(_run, task)

    return run_ahead(start, lambda ended, _: ended.result(), tasks, tick, limit=lambda: limit)


def _run(task: Task) -> ShardResult:
    return task.run()


def run_ahead(
    start: Callable[[Task], Future[T]],
    result_of: Callable[[Future[T], str], ShardResult],
    tasks: Sequence[Task],
    tick: Tick,
    *,
    limit: Callable[[], int],
    look: Callable[[], None] | None = None,
) -> Iterator[ShardResult]:
    """Run tasks by handing out some at a time, in any order; totals count whole shards.

    Args:
        start: Hands out a task. Its future is cancelled when another one fails, and when the run is interrupted.
        result_of: What a task that has ended returned, by its future and the name of its shard.
        tasks: The tasks; only those that are handed out are made.
        tick: Called with totals.
        limit: How many to have handed out, now.
        look: Called every few seconds while nothing comes; raises if nothing can come any more.
    """
    total = _Sum(tick)
    running: dict[Future[T], str] = {}
    waiting = iter(tasks)
    try:
        while True:
            room = limit() - len(running)
            while room > 0 and (task := next(waiting, None)) is not None:
                running[start(task)] = task.name
                room -= 1
            if not running:
                break
            done = wait(running, None if look is None else _LOOK_S, return_when=FIRST_COMPLETED).done
            if look is not None and not done:
                look()
            for ended in done:
                result = result_of(ended, running.pop(ended))
                if result.kept:
                    total.keep(result)
                else:
                    total.add(result.tally)
                yield result
    finally:
        for future in running:
            future.cancel()
    total.tell()


def run_in_processes(tasks: Sequence[Job[R]], tick: Tick, *, workers: int) -> Iterator[R]:
    """Run tasks in processes of our own; results come in any order.

    Raises:
        ShardStreamError: A worker was killed; or what a task raised.
    """
    total = _Sum(tick)
    left = deque(range(len(tasks)))
    crew: dict[connection.Connection, _Worker] = {}

    def next_task() -> Job[R] | None:
        return tasks[left.popleft()] if left else None

    try:
        for _ in range(workers):  # all start before the first is waited for
            worker = _Worker()
            crew[worker.pipe] = worker
        for worker in crew.values():
            worker.give(next_task())
        for worker in crew.values():
            if len(left) >= workers:
                worker.give(next_task())
        while any(worker.tasks for worker in crew.values()):
            for pipe in connection.wait([pipe for pipe, worker in crew.items() if worker.tasks]):
                worker = crew[pipe]  # type: ignore[index] # what was waited for are these pipes
                message = worker.receive()
                if isinstance(message, Tally):
                    total.add(message)
                    continue
                worker.tasks.popleft()
                # At the end of the run, no task waits behind another one while a worker has none.
                if len(left) >= workers or not worker.tasks:
                    worker.give(next_task())
                if isinstance(message.outcome, Exception):
                    raise message.outcome
                if message.outcome.kept:
                    total.keep(message.outcome)
                yield cast("R", message.outcome)  # a task of these made it
    finally:
        for worker in crew.values():
            worker.end()
    total.tell()


class _Worker:
    """A worker process, as the parent sees it.

    Attributes:
        pipe: To it and from it.
        tasks: What it was given: what it is doing, and the one that follows, so that it makes a shard while the end of
            the last one is sent, or flushed to the disk.
    """

    def __init__(self) -> None:
        self.pipe, theirs = connection.Pipe()
        self.tasks: deque[Job[Result]] = deque()
        command = [sys.executable, "-c", _PROGRAM, str(theirs.fileno()), json.dumps(sys.path)]
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - this very program
                command,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                process_group=0,  # Ctrl-C is for the parent, which then ends this process
            )

    def give(self, task: Job[Result] | None) -> None:
        """Hand out a task, or none."""
        if task is not None:
            self.tasks.append(task)
            try:
                self.pipe.send(task)
            except OSError as error:
                raise self._died() from error

    def receive(self) -> Tally | Done:
        """The next message; waits for it."""
        try:
            message: Tally | Done = self.pipe.recv()
        except (EOFError, OSError) as error:
            raise self._died() from error
        return message

    def end(self) -> None:
        """End the process, also in the middle of a task."""
        self.pipe.close()
        if self.tasks:
            self._process.terminate()
        try:
            self._process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _died(self) -> ShardStreamError:
        code = self._process.wait()
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        return ShardStreamError(
            f"a worker process {how}",
            shard=self.tasks[0].name if self.tasks else None,
            hint="was memory short (dmesg tells)? pack again, with fewer workers",
        )
