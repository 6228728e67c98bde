"""Tasks in this process, in worker processes of our own, or on somebody's executor.

Our workers are plain child processes (`process`) with a `channel` each. How this could hang, and why it does not:

1. Both want to send: the parent's end of a channel never waits. Tasks and results are small besides (`lending`).
2. A worker is killed: its channel ends, and the error says by which signal and what was being written. Where what it
   had started holds its end open, its exit is noticed.
3. The parent is killed: the channels of the workers end, and so do they, at the latest with their next report.
4. Ctrl-C, or an error in another task: workers are ended by signal, drop what is half-written, and are killed if that
   takes long; what is still left is swept. One that cannot even be killed is left to the system.
5. A worker hangs, or an executor does: it may come back, so it is waited for, and every wait says what for (`waits`).
"""

from __future__ import annotations

import os
import pickle
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Executor, Future, wait
from contextlib import ExitStack
from selectors import EVENT_READ, EVENT_WRITE, DefaultSelector
from typing import TypeAlias, TypeVar, cast

from shardstream.errors import ShardStreamError, UsageError, WorkerError
from shardstream.pack.bins.documents import DocumentEncoder
from shardstream.pack.execution.channel import ParentEnd
from shardstream.pack.execution.isolated import end
from shardstream.pack.execution.jobs import Jobs, PackJob, R, Result
from shardstream.pack.execution.lending import Lent
from shardstream.pack.execution.process import end_all, ending, exit_code, start
from shardstream.pack.execution.task import ShardTask, Task
from shardstream.pack.execution.worker import TICK_S, Done
from shardstream.pack.output.commits import Committer
from shardstream.pack.output.receipts import ShardResult
from shardstream.pack.output.stats import PackStats
from shardstream.storage import Location
from shardstream.threads import cores
from shardstream.waits import watched

T = TypeVar("T")
Tick: TypeAlias = Callable[[PackStats, int], None]
"""Called some ten times a second with totals, and how many of the samples an earlier run had written."""

_AHEAD = 2  # tasks a worker that are handed out: the next one is there when one ends
_LOOK_S = 2.0
_WORKER = "shardstream.pack.execution.worker"


class _Sum:
    """Totals of a run, passed on when they have changed."""

    def __init__(self, tick: Tick) -> None:
        self._tick = tick
        self._done = PackStats()
        self._kept = 0
        self._ticked = time.monotonic()

    def keep(self, result: Result) -> None:
        """Count a shard of an earlier run: its samples, not the time they took then."""
        tally = result.tally
        self._kept += tally.done
        self.add(PackStats(tally.samples, tally.rejects, tally.dropped))

    def add(self, tally: PackStats) -> None:
        self._done = self._done.plus(tally)
        now = time.monotonic()
        if now - self._ticked >= TICK_S:
            self._ticked = now
            self.tell()

    def tell(self) -> None:
        self._tick(self._done, self._kept)


def check_workers(workers: object) -> None:
    """Refuse what is not a number of processes; UsageError."""
    if workers is not None and (isinstance(workers, bool) or not isinstance(workers, int) or workers < 0):
        raise UsageError(
            f"workers must be an integer from 0 on, got {workers!r}", hint="None is one a core, 0 none at all"
        )


def worker_count(workers: int | None, dest: Location) -> int:
    """How many processes write to a place: as many as were asked for, one a core by default."""
    if dest.address.scheme == "memory" or (workers is None and dest.store is not None):
        return 1  # it is the memory of one process, or may be
    return cores() if workers is None else workers


def check_travels(task: Task, dumps: Callable[[object], bytes] = pickle.dumps) -> None:
    """Refuse tasks that cannot be sent to another process, with the reason.

    Args:
        task: One of them.
        dumps: What they are pickled with.

    Raises:
        UsageError: ``storage``, ``transform``, ``tokenizer`` or the source hold what cannot
            be pickled.
    """
    parts: dict[str, object] = {"storage_options": task.dest, "source_options": task.files, "the source": task.part}
    if isinstance(task, ShardTask):
        parts["transform"] = task.recipe.transform
        if isinstance(task.recipe, DocumentEncoder):
            parts["tokenizer"] = task.recipe.texts
    for name, value in parts.items():
        try:
            dumps(value)
        except Exception as error:  # whatever an object of somebody else's raises
            how = "give credentials by value or through the environment"
            if name in ("transform", "tokenizer"):
                how = "define it at the top of a module"
            raise UsageError(
                f"{name} cannot be sent to worker processes: {type(error).__name__}",
                url=task.dest.url,
                hint=f"{how}, or pack in this process: workers=0",
            ) from None


def run_local(tasks: Sequence[PackJob[R]], tick: Tick, *, workers: int) -> Iterator[R]:
    """Run tasks in so many processes of our own, or in this one where there is no need for several."""
    workers = min(workers, len(tasks))
    return run_in_processes(tasks, tick, workers=workers) if workers > 1 else run_here(tasks, tick)


def run_here(tasks: Sequence[PackJob[R]], tick: Tick) -> Iterator[R]:
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
        end()
    if before is not None:
        yield before
    total.tell()


def run_on(executor: Executor, tasks: Sequence[Task], tick: Tick) -> Iterator[ShardResult]:
    """Run tasks on an executor of the caller's, in any order; totals count whole shards."""
    limit = _AHEAD * (os.cpu_count() or 1)

    def start(task: Task) -> Future[ShardResult]:
        try:
            return executor.submit(_run, task)
        except RuntimeError as error:
            raise _gave_up(error, task.name) from error

    return run_ahead(start, _result_of, tasks, tick, limit=lambda: limit)


def _result_of(ended: Future[ShardResult], name: str) -> ShardResult:
    try:
        return ended.result()
    except (CancelledError, BrokenExecutor) as error:
        raise _gave_up(error, name) from error


def _gave_up(error: Exception, name: str) -> WorkerError:
    return WorkerError(
        f"the executor does not run a task: {str(error) or 'it was cancelled'}",
        shard=name,
        hint="was it shut down, or a worker of it killed (memory)? finished shards are kept: pack again",
    )


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

    def what() -> str:
        names = list(running.values())
        return f"one of {len(names)} tasks that were handed out, {names[0]} first" if names else "a task to be taken"

    silence = watched(what)
    try:
        while True:
            with silence:
                room = limit() - len(running)
                while room > 0 and (task := next(waiting, None)) is not None:
                    running[start(task)] = task.name
                    room -= 1
                if not running:
                    break
                wait(running, _LOOK_S, return_when=FIRST_COMPLETED)
            # Not what that returned: of futures that were cancelled, as in an executor that is shut down, nobody tells.
            done = [future for future in running if future.done()]
            if look is not None and not done:
                look()
            for ended in done:
                silence.news()
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


def run_in_processes(tasks: Sequence[PackJob[R]], tick: Tick, *, workers: int) -> Iterator[R]:
    """Run tasks in processes of our own; results come in any order.

    Raises:
        ShardStreamError: A worker was killed; or what a task raised.
    """
    with ExitStack() as stack:
        lent = stack.enter_context(Lent(tasks)) if isinstance(tasks, Jobs) and tasks.lendable else None
        crew: list[_Worker] = []
        stack.callback(_end, crew)
        for _ in range(workers):  # all start before the first is waited for
            crew.append(_Worker(lent))  # noqa: PERF401 - those that started are ended, should one of them not
        yield from _run_with(crew, tasks, tick, lent=lent is not None)


def _run_with(crew: Sequence[_Worker], tasks: Sequence[PackJob[R]], tick: Tick, *, lent: bool) -> Iterator[R]:
    total = _Sum(tick)
    left = deque(range(len(tasks)))

    def hand_out() -> None:
        """A task for whoever has none; then one more each, but at the end of the run, when another may be free first.

        Of large ones a single one at a time waits here to be sent.
        """
        for given in range(_AHEAD):
            for worker in crew:
                ahead = len(left) >= len(crew) and not any(one.end.sending for one in crew)
                if left and len(worker.tasks) == given and (ahead or not given):
                    number = left.popleft()
                    if lent:
                        assert isinstance(tasks, Jobs)
                        worker.give(tasks.name(number), number)
                    else:
                        task = tasks[number]
                        worker.give(task.name, task)

    hand_out()
    while any(worker.tasks for worker in crew):
        for worker in _heard(crew):
            for message in worker.receive():
                if isinstance(message, PackStats):
                    total.add(message)
                    continue
                worker.ended()
                hand_out()
                if isinstance(message.outcome, Exception):
                    raise message.outcome
                if message.outcome.kept:
                    total.keep(message.outcome)
                yield cast("R", message.outcome)  # a task of these made it
    total.tell()


def _heard(crew: Sequence[_Worker]) -> list[_Worker]:
    """Those of whom something came, or who died; sends meanwhile what there is to be sent."""
    with DefaultSelector() as selector:
        for worker in crew:
            if worker.tasks:
                selector.register(worker.end, EVENT_READ | (EVENT_WRITE if worker.end.sending else 0), worker)
        found = []
        for key, events in selector.select(_LOOK_S):
            if events & EVENT_WRITE:
                key.data.send()
            if events & EVENT_READ:
                found.append(key.data)
    for worker in crew:
        if worker not in found:
            worker.look()
    return found


class _Worker:
    """A worker process, as the parent sees it.

    Args:
        lent: What it inherits.

    Attributes:
        end: Our end of the channel to it.
        tasks: Names of what it was given: what it is doing, and what follows, so that it makes a shard while the end of
            the last one is sent, or flushed to the disk.
    """

    def __init__(self, lent: Lent | None) -> None:
        ours, theirs = socket.socketpair()
        self.end = ParentEnd(ours)
        self.tasks: deque[str] = deque()
        inherited = () if lent is None else lent.descriptors
        with theirs:
            arguments = [theirs.fileno(), None if lent is None else lent.handle]
            self.process = start(_WORKER, arguments, [theirs.fileno(), *inherited])
        self._silence = watched(lambda: f"news of the worker process {self.process.pid}, which makes {self.tasks[0]}")
        self._looked = time.monotonic()

    def give(self, name: str, message: object) -> None:
        """Hand out a task of this name."""
        if not self.tasks:
            self._silence.__enter__()
            self._silence.news()
        self.tasks.append(name)
        try:
            self.end.put(message)
        except OSError as error:
            raise self._died() from error

    def ended(self) -> None:
        """It has done its first task."""
        self.tasks.popleft()
        if not self.tasks:
            self._silence.__exit__()

    def send(self) -> None:
        """Go on sending what there was no room for."""
        try:
            self.end.send()
        except OSError as error:
            raise self._died() from error

    def receive(self) -> list[PackStats | Done]:
        """The messages that have come."""
        self._silence.news()
        try:
            return list(self.end.receive())
        except EOFError as error:
            raise self._died() from error

    def look(self) -> None:
        """Of this one nothing came: notice now and then if it is dead.

        Its end of the channel need not be closed then: what it had started may hold that.
        """
        now = time.monotonic()
        if self.tasks and now - self._looked >= _LOOK_S:
            self._looked = now
            if self.process.poll() is not None and not self.end.waiting():
                raise self._died()

    def close(self) -> None:
        """Have it end, also in the middle of a task."""
        self._silence.__exit__()
        self.end.close()
        if self.tasks:
            self.process.terminate()

    def _died(self) -> ShardStreamError:
        return ShardStreamError(
            f"a worker process {ending(exit_code(self.process))}",
            shard=self.tasks[0] if self.tasks else None,
            hint="was memory short (dmesg tells)? pack again, with fewer workers",
        )


def _end(crew: Sequence[_Worker]) -> None:
    """End all processes, also in the middle of a task."""
    for worker in crew:
        worker.close()
    end_all([worker.process for worker in crew])
