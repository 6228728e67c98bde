"""Objects are scanned: the first ones here, until it is known how long all take, the rest side by side."""

from __future__ import annotations

import concurrent.futures
import itertools
import multiprocessing
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext

from shardstream.errors import UsageError, WorkerError
from shardstream.formats.catalog.catalog import Reading
from shardstream.formats.catalog.plan import Making, Plan
from shardstream.formats.catalog.scan import Piece, scan_object
from shardstream.formats.contract import SourceObject
from shardstream.progress import ProgressEvent, ignore
from shardstream.sizes import duration, plural, size
from shardstream.storage import Store
from shardstream.storage.base.store import ObjectMeta
from shardstream.text import in_one_line
from shardstream.threads import each
from shardstream.waits import watched

_PROBE_S = 3.0
"""Seconds of measured work before an estimate is made."""
_NOTICE_S = 3.0
_SMALL = 256_000_000
"""Bytes below which objects are indexed without an estimate."""
_AT_ONCE = 8  # objects of a store that are scanned side by side


def scan_all(plan: Plan, todo: Sequence[int], making: Making) -> Iterator[tuple[int, Iterable[Piece]]]:
    """The pieces of each of these objects, whatever the order in which they come; those of one before the next one."""
    watch = _Watch(plan, sum(plan.metas[number].size for number in todo), len(todo), making)
    with watched(watch.describe, after=_NOTICE_S) if making.progress is ignore else nullcontext():
        left = iter(todo)
        at_once = 1 if plan.store.mapped else _AT_ONCE
        watch.measure(at_once)
        for number in left:  # the first ones here, until it is known how long all take
            bytes = plan.metas[number].size
            # As they come: an object may be larger than memory.
            yield number, watch.over(_scan(plan, number, watch.reached), bytes)
            watch.done(bytes)
            if watch.seconds > _PROBE_S:
                break
        watch.measure()
        rest = _in_processes(plan, left, making.workers) if making.workers > 1 else _in_threads(plan, left, at_once)
        for number, pieces in rest:
            watch.done(plan.metas[number].size)
            yield number, pieces


class _Watch:
    """How far scanning has come, and how long the rest takes at the speed measured since the first result.

    The time until that first result says nothing: processes start, packages are imported, a store is first reached.
    """

    def __init__(self, plan: Plan, total: int, objects: int, making: Making) -> None:
        self._plan = plan
        self._total = total
        self._objects = objects
        self._making = making
        self._began = time.monotonic()
        self._bytes = self._done = 0
        self._size, self._here, self._knows_share = 0, 0.0, False  # of the object that is being scanned
        self._first: tuple[float, float] | None = None
        self._speedup = 1
        self._tell()

    @property
    def seconds(self) -> float:
        """Seconds since scanning began."""
        return time.monotonic() - self._began

    def describe(self) -> str:
        """What is being done, and how far it has come, for a log line."""
        share = (self._bytes + self._here) / max(self._total, 1)
        plan = self._plan
        title = plan.reading.format.title
        return f"{in_one_line(plan.store.url)} to be indexed ({title}, {share:.0%} of {size(self._total)})"

    def measure(self, speedup: int = 1) -> None:
        """Measure the speed from the next result on; the rest will be scanned ``speedup`` times as fast."""
        self._first, self._speedup = None, speedup

    def over(self, pieces: Iterable[Piece], bytes: int) -> Iterator[Piece]:
        """The pieces of an object of so many bytes as it is being scanned."""
        self._size, self._knows_share = bytes, False
        covered = 0
        for piece in pieces:
            yield piece
            covered += piece.covered
            if not self._knows_share:
                self._advance(min(covered, bytes))

    def reached(self, share: float) -> None:
        """This share of the object was scanned, as its format says."""
        self._knows_share = True
        self._advance(share * self._size)

    def done(self, bytes: int) -> None:
        """An object of so many bytes was scanned."""
        self._bytes, self._done, self._here = self._bytes + bytes, self._done + 1, 0.0
        self._check()
        self._tell()

    def _advance(self, here: float) -> None:
        self._here = max(self._here, here)  # a format may go through an object twice
        self._check()
        if self.seconds > _PROBE_S:
            self._tell()

    def _tell(self) -> None:
        detail = {"objects": self._done, "total_objects": self._objects}
        done = self._bytes + int(self._here)
        self._making.progress(ProgressEvent("index", done, self._total, "bytes", detail))

    def _check(self) -> None:
        limit, now, done = self._making.limit, time.monotonic(), self._bytes + self._here
        if limit is None or self._total < _SMALL:
            return
        self._first = began, before = self._first or (now, done)
        if now - began < _PROBE_S or done <= before:
            return
        speedup = max(1, min(self._speedup, self._objects - self._done))
        seconds = (self._total - done) * (now - began) / (done - before) / speedup
        if seconds > limit:
            plan = self._plan
            have, they = ("has", "it") if len(plan.metas) == 1 else ("have", "they")
            raise UsageError(
                f"{plan.reading.format.title}: {plural(len(plan.metas), 'object')} of {size(self._total)} {have} to be "
                f"indexed before {they} can be streamed, which takes about {duration(seconds)} more here",
                url=plan.store.url,
                hint=f"run `{plan.command}` once; what was indexed now is kept",
            )


def _scan(plan: Plan, number: int, reached: Callable[[float], object] = float) -> Iterator[Piece]:
    return scan_object(plan.store, plan.recognised.objects[number], plan.metas[number], plan.reading, reached)


def _in_threads(plan: Plan, numbers: Iterator[int], at_once: int) -> Iterator[tuple[int, list[Piece]]]:
    def act(number: int) -> tuple[int, list[Piece]]:
        return number, list(_scan(plan, number))

    yield from each(act, numbers, at_once=at_once, what=f"an object of {plan.store.url} to be indexed")


def _in_processes(plan: Plan, numbers: Iterator[int], workers: int) -> Iterator[tuple[int, list[Piece]]]:
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(workers, mp_context=context) as pool:
        running = {}
        try:
            for number in itertools.chain(numbers, [None] * (2 * workers)):
                if number is not None:
                    task = pool.submit(
                        _scan_apart,
                        plan.store,
                        plan.recognised.objects[number],
                        plan.metas[number],
                        plan.reading,
                    )
                    running[task] = number
                while running and (number is None or len(running) >= 2 * workers):
                    done, _ = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
                    for one in done:
                        yield running.pop(one), one.result()
        except BrokenProcessPool as error:
            raise WorkerError(
                "a process that indexed died", url=plan.store.url, hint="look at memory; what was indexed is kept"
            ) from error
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _scan_apart(store: Store, one: SourceObject, meta: ObjectMeta, reading: Reading) -> list[Piece]:
    """In a process of its own."""
    return list(scan_object(store, one, meta, reading))
