"""``trace``: what took how long, in all workers and in the training process, as a file that trace viewers open.

Workers record it and send it with each batch (`BatchSpans`); only this process writes. The file is a JSON object at any
moment: what is written ends with its closing brackets, over which the next events are written.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime
from typing import NamedTuple, Protocol, TypeVar

from torch.profiler import record_function

from shardstream.errors import UsageError
from shardstream.storage.local.output_files import check_regular, create_file
from shardstream.stream.ipc.spans import BatchSpans, event
from shardstream.stream.iteration.ranks import find_rank
from shardstream.text import in_one_line

logger = logging.getLogger(__name__)

_MOST_BYTES = 256 << 20
"""Of a file: viewers do not open much larger ones."""

_WRITE_CHARS = 1 << 18
_WRITE_S = 1.0
_END = b"\n]}\n"

T = TypeVar("T")


class Traced(Protocol):
    """Whoever can be told to record what takes how long."""

    def trace(self, since: int) -> None:
        """Record from now on; times count from ``since``. 0: no more."""


_followed: weakref.WeakSet[Traced] = weakref.WeakSet()
_current: _Trace | None = None


@contextmanager
def trace(file: str | os.PathLike[str]) -> Iterator[None]:
    """Record what took how long into a file that ``ui.perfetto.dev`` and ``chrome://tracing`` open; a context.

    It holds the batches that are made and received inside of it, by each `Loader` of this process, in workers that were
    started before or after: when they were made, stage by stage, when they travelled, were copied, transformed, and
    waited for, in microseconds. An arrow follows each batch from its worker to the loop. See ``docs/watching.md``.

    Meanwhile waits, copies and transforms are ``record_function`` ranges for torch's profiler, too.

    Args:
        file: Of this machine, written anew, at most 256 MB long. ``{rank}`` in its name is this rank; where there are
            several ranks, it has to be there.

    Raises:
        UsageError: All ranks would write the same file; it cannot be written; a trace is being recorded already.

    >>> with ss.trace("out/run.json"):
    ...     batches = list(ss.Loader(ss.ShardDataset("out/", batch_size=10, fields=["cls"]), num_workers=0))
    """
    global _current
    if _current is not None:
        hint = "end the `with` of that one first"
        raise UsageError(f"a trace is being recorded already, to {in_one_line(_current.name)}", hint=hint)
    rank = find_rank()
    name = os.fspath(file)
    if rank.world_size > 1 and "{rank}" not in name:
        what = f"{rank.world_size} ranks would write the same trace {in_one_line(name)}"
        raise UsageError(what, hint='put {rank} into its name: "run-{rank}.json"')
    _current = recorded = _Trace(name.replace("{rank}", str(rank.rank)), rank.rank)
    try:
        for one in list(_followed):
            one.trace(recorded.since)
        yield
    finally:
        _current = None
        for one in list(_followed):
            one.trace(0)
        recorded.close()


def follow(one: Traced) -> None:
    """Have somebody record while there is a trace."""
    _followed.add(one)
    one.trace(recorded_since())


def recorded_since() -> int:
    """When the trace began, by ``time.perf_counter_ns``; 0: none is recorded."""
    return 0 if _current is None else _current.since


def ranged(name: str) -> AbstractContextManager[object]:
    """A context that torch's profiler shows, while a trace is recorded."""
    return _NOTHING if _current is None else record_function(f"shardstream.{name}")


def in_range(name: str, call: Callable[[], T]) -> T:
    """What a function returns, in such a context."""
    with ranged(name):
        return call()


class SentSpan(NamedTuple):
    """What this process did with a batch before the loop received it.

    Attributes:
        name: What.
        thread: The system's number of the thread.
        begun: When, by ``time.perf_counter``.
        ended: Until when.
    """

    name: str
    thread: int
    begun: float
    ended: float


def received(spans: BatchSpans, asked: float, sent: Sequence[SentSpan]) -> None:
    """The loop has received a batch.

    Args:
        spans: What came with it.
        asked: When the loop began to wait for it, by ``time.perf_counter``.
        sent: What else was done with it in this process.
    """
    if _current is not None and _current.since == spans.since:
        _current.received(spans, asked, sent)


_NOTHING = nullcontext()


def _forget() -> None:
    """In a forked process: the file is the parent's."""
    global _current
    _current = None


os.register_at_fork(after_in_child=_forget)


class _Trace:
    """One file.

    Args:
        name: Its name.
        rank: Of this process.
    """

    def __init__(self, name: str, rank: int) -> None:
        self.name = name
        self.since = time.perf_counter_ns()
        self._rank = rank
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._named: set[tuple[int, int]] = set()
        self._flows = itertools.count(1)
        self._dropped = 0
        about = {"shardstream": 1, "rank": rank, "host": socket.gethostname(), "began": datetime.now(UTC).isoformat()}
        self._events: list[str] = []
        self._chars = 0
        self._at = 0
        self._open = True
        self._written = time.monotonic()
        head = f'{{"displayTimeUnit": "ms", "otherData": {json.dumps(about)}, "traceEvents": [\n'
        self._add(f"{head}{self._name('process_name', self._process, 0, f'rank {rank}')}")
        check_regular(name)
        try:
            self._file = create_file(name)
        except OSError as error:
            what = f"the trace {in_one_line(name)} cannot be written: {error.strerror}"
            raise UsageError(what, hint="name a file in a directory that exists") from None
        self._write(first=True)

    def received(self, spans: BatchSpans, asked: float, sent: Sequence[SentSpan]) -> None:
        """Add a batch with all that is known of it."""
        now, thread, since = time.perf_counter(), threading.get_native_id(), self.since
        with self._lock:
            if not self._open:
                return
            worker, here = spans.process, self._process
            if (worker, 0) not in self._named and spans.worker is not None:
                self._named.add((worker, 0))
                self._add(self._name("process_name", worker, 0, f"rank {self._rank}, worker {spans.worker}"))
            if (here, thread) not in self._named:
                self._named.add((here, thread))
                self._add(self._name("thread_name", here, thread, threading.current_thread().name))
            args = f'"epoch": {spans.epoch}, "batch": {spans.number}'
            number = next(self._flows)
            where = [(worker, "batch", spans.thread, spans.begun, spans.ended)]
            if spans.arrived is not None:
                where.append((here, "transport", *spans.arrived))
            where += [(here, *one) for one in sent]
            where.append((here, "wait", thread, asked, now))
            steps = "s" + "t" * (len(where) - 2) + "f"
            for step, (process, name, at, begun, ended) in zip(steps, where, strict=True):
                self._add(event(name, begun, ended, process=process, thread=at, since=since, args=args))
                self._add(self._flow(step, number, process, at, ended))
            if spans.events:
                self._add(spans.events)
            self._dropped += spans.dropped
            if self._chars > _WRITE_CHARS or time.monotonic() > self._written + _WRITE_S:
                self._write()

    def close(self) -> None:
        """Write what is left."""
        with self._lock:
            if self._open:
                self._write()
                self._stop()
        if self._dropped:
            logger.warning("the trace %s lacks %d events: a batch had too many", in_one_line(self.name), self._dropped)

    def _stop(self) -> None:
        self._open = False
        self._file.close()

    def _add(self, events: str) -> None:
        self._events.append(events)
        self._chars += len(events)

    def _name(self, what: str, process: int, thread: int, name: str) -> str:
        args = f'"args": {{"name": {json.dumps(name)}}}'
        return f'{{"ph": "M", "name": "{what}", "pid": {process}, "tid": {thread}, {args}}}'

    def _flow(self, step: str, number: int, process: int, thread: int, ended: float) -> str:
        """An end of an arrow: it belongs to the span that is open at that time, a nanosecond before its end."""
        when = (round(ended * 1e9) - self.since - 1) / 1e3
        bound = ', "bp": "e"' if step == "f" else ""
        who = f'"pid": {process}, "tid": {thread}, "ts": {when:.3f}'
        return f'{{"ph": "{step}", "name": "batch", "cat": "shardstream", "id": {number}, {who}{bound}}}'

    def _write(self, *, first: bool = False) -> None:
        if not self._events:
            return
        data = (("" if first else ",\n") + ",\n".join(self._events)).encode()
        self._events, self._chars, self._written = [], 0, time.monotonic()
        if self._at + len(data) + len(_END) > _MOST_BYTES:
            logger.warning("the trace %s ends here: it has %d MB", in_one_line(self.name), _MOST_BYTES >> 20)
            self._stop()
            return
        try:
            if os.pwrite(self._file.fileno(), data + _END, self._at) < len(data) + len(_END):
                raise OSError(0, "the disk is full")
            self._at += len(data)
        except OSError as error:  # training is worth more than its trace
            logger.warning("the trace %s ends here: %s", in_one_line(self.name), error.strerror)
            os.ftruncate(self._file.fileno(), self._at)
            os.pwrite(self._file.fileno(), _END, self._at)
            self._stop()
