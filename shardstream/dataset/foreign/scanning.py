"""Objects are scanned: the first ones here, until it is known how long all take, the rest side by side."""

from __future__ import annotations

import concurrent.futures
import itertools
import multiprocessing
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool

from shardstream.dataset.foreign.plan import Making, Plan
from shardstream.dataset.foreign.scan import Piece, scan_object
from shardstream.errors import UsageError, WorkerError
from shardstream.progress import ProgressEvent
from shardstream.shards.catalogue import Reading
from shardstream.shards.foreign.contract import ForeignObject
from shardstream.sizes import plural, size
from shardstream.storage import Store
from shardstream.storage.base.store import ObjectMeta
from shardstream.threads import each

_PROBE_S = 3.0
_AT_ONCE = 8  # objects of a store that are scanned side by side


def scan_all(plan: Plan, todo: Sequence[int], making: Making) -> Iterator[tuple[int, Iterable[Piece]]]:
    """The pieces of each of these objects, whatever the order in which they come; those of one before the next one."""
    total = sum(plan.metas[number].size for number in todo)
    watch = _Watch(plan, total, len(todo), making)
    left = iter(todo)
    for number in left:  # the first ones here, until it is known how long all take
        bytes = plan.metas[number].size
        # As they come: an object may be larger than memory.
        yield number, watch.over(_scan(plan, number, watch.reached), bytes)
        watch.done(bytes)
        if watch.knows:
            break
    rest = _in_processes(plan, left, making.workers) if making.workers > 1 else _in_threads(plan, left)
    for number, pieces in rest:
        watch.done(plan.metas[number].size)
        yield number, pieces


class _Watch:
    """How long scanning takes, and what is told of it."""

    def __init__(self, plan: Plan, total: int, objects: int, making: Making) -> None:
        self._plan = plan
        self._total = total
        self._objects = objects
        self._making = making
        self._began = time.monotonic()
        self._bytes = self._done = 0
        self._tell()

    @property
    def knows(self) -> bool:
        """Whether it was watched for long enough to tell."""
        return time.monotonic() - self._began > _PROBE_S

    def over(self, pieces: Iterable[Piece], bytes: int) -> Iterator[Piece]:
        """The pieces of an object of so many bytes as it is being scanned."""
        here = 0
        for piece in pieces:
            yield piece
            here += piece.covered
            if self.knows:
                self._check(self._bytes + here)
                self._tell(min(here, bytes))  # of one that is compressed the values are more

    def reached(self, bytes: int) -> None:
        """So much of an object was read before any piece of it is known."""
        if self.knows:
            self._check(self._bytes + bytes)
            self._tell(bytes)

    def done(self, bytes: int) -> None:
        """An object of so many bytes was scanned."""
        self._bytes, self._done = self._bytes + bytes, self._done + 1
        if self.knows:
            self._check(self._bytes)
        self._tell()

    def _tell(self, here: int = 0) -> None:
        detail = {"objects": self._done, "total_objects": self._objects}
        self._making.progress(ProgressEvent("index", self._bytes + here, self._total, "bytes", detail))

    def _check(self, bytes: int) -> None:
        limit = self._making.limit
        if limit is None or not bytes:
            return
        seconds = (time.monotonic() - self._began) * max(1.0, self._total / bytes)
        if seconds > limit:
            plan = self._plan
            have, they = ("has", "it") if len(plan.metas) == 1 else ("have", "they")
            raise UsageError(
                f"{plan.reading.format.title}: {plural(len(plan.metas), 'object')} of {size(self._total)} {have} to be "
                f"indexed before {they} can be streamed, which takes about {_duration(seconds)} here",
                url=plan.store.url,
                hint=f"run `{plan.command}` once; what was indexed now is kept",
            )


def _duration(seconds: float) -> str:
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"


def _scan(plan: Plan, number: int, reached: Callable[[int], object] = int) -> Iterator[Piece]:
    return scan_object(plan.store, plan.recognised.objects[number], plan.metas[number], plan.reading, reached)


def _in_threads(plan: Plan, numbers: Iterator[int]) -> Iterator[tuple[int, list[Piece]]]:
    def act(number: int) -> tuple[int, list[Piece]]:
        return number, list(_scan(plan, number))

    at_once = 1 if plan.store.mapped else _AT_ONCE
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


def _scan_apart(store: Store, one: ForeignObject, meta: ObjectMeta, reading: Reading) -> list[Piece]:
    """In a process of its own."""
    return list(scan_object(store, one, meta, reading))
