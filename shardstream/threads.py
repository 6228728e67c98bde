"""Threads for what is read or asked for side by side. Leaving waits for none that hangs: a dead NFS may never answer.

The threads of an executor are joined when Python ends, however long that takes; these are not. `cores` says how many
processors there are for them and for worker processes, `Processors` who keeps them busy.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import islice
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeAlias, TypeVar

from shardstream.cgroups import processor_quota
from shardstream.errors import ShardStreamError
from shardstream.waits import begin, watched

T = TypeVar("T")
R = TypeVar("R")

_PATIENCE_S = 4.0
_Work: TypeAlias = "tuple[Future[Any], Callable[..., Any], tuple[Any, ...]]"


def cores() -> int:
    """Processors that this process may use: by its affinity and the quota of its control groups, rounded down."""
    return cores_left(affinity_cores(), processor_quota())


def affinity_cores() -> int:
    """Processors that this process may run on, whatever its control groups leave of their time."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cores_left(affinity: int, quota: float | None) -> int:
    """Whole processors that a quota leaves; ``None`` for no quota."""
    return affinity if quota is None else max(1, min(affinity, int(quota)))


@dataclass(frozen=True, slots=True)
class Processors:
    """Who kept the processors busy that this process may use, on average.

    Attributes:
        cores: How many processors there are.
        ours: Those that this process and its workers kept busy.
        others: Those that other programs kept busy.
        disk: Those that had nothing to do while some program waited for a disk.

        >>> Processors(cores=2, ours=0.5, others=0.25, disk=0.0).idle
        1.25
    """

    cores: int
    ours: float
    others: float
    disk: float

    @property
    def idle(self) -> float:
        """Those that nobody kept busy."""
        return max(0.0, self.cores - self.ours - self.others)


def start(thread: Thread) -> None:
    """Start a thread.

    Raises:
        ShardStreamError: The system refuses one more.
    """
    try:
        begin(thread)
    except RuntimeError as error:
        hint = "raise the limits of this account (ulimit -u and -v), or end other programs"
        raise ShardStreamError(f"no thread could be started: {error}", hint=hint) from error


class Threads:
    """So many threads at most, begun as they are needed; a context manager.

    Args:
        number: How many.
        name: What they are called.
    """

    def __init__(self, number: int, name: str) -> None:
        self._number = number
        self._name = name
        self._work: SimpleQueue[_Work | None] = SimpleQueue()
        self._threads: list[Thread] = []

    def __enter__(self) -> Threads:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing more is begun, and what is running is left to itself after some seconds."""
        while not self._work.empty():
            self._work.get()
        deadline = time.monotonic() + _PATIENCE_S
        for _thread in self._threads:
            self._work.put(None)
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def submit(self, act: Callable[..., T], *args: Any) -> Future[T]:
        """Have it called in one of them.

        Raises:
            ShardStreamError: There is none, and none can be started.
        """
        future: Future[T] = Future()
        self._work.put((future, act, args))
        if len(self._threads) < self._number:
            thread = Thread(target=_take, args=(self._work,), name=self._name, daemon=True)
            try:
                start(thread)
            except ShardStreamError:  # those that there are have to do
                if not self._threads:
                    raise
            else:
                self._threads.append(thread)
        return future


def _take(work: SimpleQueue[_Work | None]) -> None:
    while (one := work.get()) is not None:
        future, act, args = one
        try:
            future.set_result(act(*args))
        except BaseException as error:
            future.set_exception(error)
        del one, future, act, args  # or the last of them would be held until the next one comes


def each(act: Callable[[T], R], items: Iterable[T], *, at_once: int, what: str) -> Iterator[R]:
    """``act`` of every item, in order, so many at a time. The first error ends it.

    Args:
        act: Called with an item.
        items: The items; few more are taken than are being worked on.
        at_once: How many threads; 1: this one.
        what: What is waited for, as `watched` says it.
    """
    if at_once == 1:
        for item in items:
            with watched(what):
                result = act(item)
            yield result
        return
    left = iter(items)
    with Threads(at_once, "shardstream-pack") as threads:
        running = deque(threads.submit(act, item) for item in islice(left, 2 * at_once))
        while running:
            with watched(what):
                result = running.popleft().result()
            yield result
            running.extend(threads.submit(act, item) for item in islice(left, 1))
