"""Tasks in worker processes: counters they share with the parent, and every way it can end.

How it could hang, and why it does not:

1. A worker is killed: the pool notices, ends the others, and the error says which shards were being written.
2. The parent is killed: each worker waits for that in a thread, and exits.
3. Ctrl-C, or an error in another task: workers ignore the signal but look at a shared flag before each sample.
4. A lock held by another thread at a fork: workers are not forked from the caller, but from a clean server process.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, ProcessPoolExecutor, wait
from multiprocessing import connection
from signal import SIG_IGN, SIGINT, signal
from typing import Any

from shardstream.errors import ShardStreamError
from shardstream.pack.task import Report, ShardResult, ShardTask

_TICK_S = 0.1
_COUNTERS = 3  # samples, rejects, bytes read
_AHEAD = 2  # tasks a worker that are handed out: the next one is there when one ends


class _Stopped(Exception):
    """The run has failed or was interrupted."""


class Board:
    """Counters in shared memory: a row a worker, which alone writes it, and a flag that tells all to stop.

    Args:
        rows: Number of workers.
        context: Where processes come from; ``None`` for a board that stays in this process.
    """

    def __init__(self, rows: int, context: Any = None) -> None:
        self._rows = rows
        words = 1 + _COUNTERS * rows
        self._words: Any = context.RawArray("q", words) if context else [0] * words
        self._taken: Any = context.Value("i", 0) if context else None

    def take_row(self) -> Report:
        """A row for the worker that asks: a function that adds to it."""
        with self._taken.get_lock():
            row = self._taken.value % self._rows
            self._taken.value += 1
        return self._adder(row)

    def _adder(self, row: int) -> Report:
        words, at = self._words, 1 + _COUNTERS * row

        def add(samples: int, rejects: int, size: int) -> None:
            if words[0]:
                raise _Stopped
            words[at] += samples
            words[at + 1] += rejects
            words[at + 2] += size

        return add

    def stop(self) -> None:
        """Tell all workers to stop before their next sample."""
        self._words[0] = 1

    def totals(self) -> tuple[int, int, int]:
        """Samples, rejects and bytes read so far."""
        words = list(self._words)
        return sum(words[1::_COUNTERS]), sum(words[2::_COUNTERS]), sum(words[3::_COUNTERS])


def run_here(tasks: Sequence[ShardTask], tick: Callable[[int, int, int], None]) -> Iterator[ShardResult]:
    """Run tasks one after another in this process; ``tick`` gets the totals ten times a second."""
    totals, last = [0, 0, 0], time.monotonic()

    def add(samples: int, rejects: int, size: int) -> None:
        nonlocal last
        totals[0] += samples
        totals[1] += rejects
        totals[2] += size
        if time.monotonic() - last > _TICK_S:
            last = time.monotonic()
            tick(totals[0], totals[1], totals[2])

    for task in tasks:
        yield task.run(add)


def run_in_pool(
    tasks: Sequence[ShardTask], tick: Callable[[int, int, int], None], *, workers: int
) -> Iterator[ShardResult]:
    """Run tasks in processes of our own; results come in any order.

    Raises:
        ShardStreamError: A worker was killed; or what a task raised.
    """
    methods = multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
    board = Board(workers, context)
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_enter, initargs=(board,))
    try:
        yield from _collect(pool, tasks, _run_in_worker, _AHEAD * workers, lambda: tick(*board.totals()))
    finally:
        board.stop()
        pool.shutdown(wait=True, cancel_futures=True)


def run_on(
    executor: Executor, tasks: Sequence[ShardTask], tick: Callable[[int, int, int], None]
) -> Iterator[ShardResult]:
    """Run tasks on an executor of the caller's; ``tick`` gets totals as shards are finished."""
    totals = [0, 0, 0]
    limit = _AHEAD * (os.cpu_count() or 1)
    for result in _collect(executor, tasks, ShardTask.run, limit, lambda: tick(totals[0], totals[1], totals[2])):
        totals[0] += result.summary.samples
        totals[1] += len(result.rejects)
        totals[2] += result.summary.bytes
        yield result


def _collect(
    executor: Executor,
    tasks: Sequence[ShardTask],
    run: Callable[[ShardTask], ShardResult],
    limit: int,
    tick: Callable[[], None],
) -> Iterator[ShardResult]:
    running: dict[Future[ShardResult], str] = {}
    waiting = iter(tasks)
    try:
        while True:
            while len(running) < limit and (task := next(waiting, None)) is not None:
                running[executor.submit(run, task)] = task.name
            if not running:
                return
            done, _ = wait(running, timeout=_TICK_S, return_when=FIRST_COMPLETED)
            tick()
            for future in done:
                yield future.result()
                del running[future]
    except BrokenExecutor as error:
        raise ShardStreamError(
            f"a worker process was killed while these were being written: {', '.join(sorted(running.values()))}",
            hint="was memory short (dmesg tells)? pack again, with fewer workers; a script that packs with workers "
            'needs `if __name__ == "__main__":` around its code',
        ) from error
    finally:
        for future in running:
            future.cancel()


_report: Report | None = None


def _enter(board: Board) -> None:
    """What a worker does first."""
    global _report
    signal(SIGINT, SIG_IGN)
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    _report = board.take_row()


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def _run_in_worker(task: ShardTask) -> ShardResult:
    return task.run(_report)
