"""What took how long in a worker, batch by batch: ``SpanRecorder`` records it, ``BatchSpans`` travels with the batch.

Only the training process writes the file of a trace, so that it stays whole whatever becomes of workers.
"""

from __future__ import annotations

import itertools
import json
import os
import threading
import time
from dataclasses import dataclass
from typing import Self

from shardstream.images import region
from shardstream.images.geometry import Box
from shardstream.images.jpeg.cutting import Addressable, CutJpeg
from shardstream.storage.base.awaited import AwaitedRequest, record

_MOST_SPANS = 2048  # of a batch, and as many requests: what is more is counted only


@dataclass(slots=True)
class BatchSpans:
    """What took how long while a batch was made, and while it travelled. Times are those of ``time.perf_counter``.

    Attributes:
        since: What times in ``events`` are counted from, by ``time.perf_counter_ns``.
        process: Who made it.
        worker: The number of that worker; ``None``: the training process itself.
        thread: The system's number of its thread.
        epoch: Whose batch it is.
        number: The step of the iteration that it is.
        begun: When it was begun.
        ended: When it was made.
        events: What is in between, as events of a trace: JSON objects with commas between them.
        dropped: Events that were left out, since there were too many.
        arrived: The thread that received it in the training process, when that began and ended; ``None``: it never
            travelled.
    """

    since: int
    process: int
    worker: int | None
    thread: int
    epoch: int
    number: int
    begun: float
    ended: float
    events: str
    dropped: int
    arrived: tuple[int, float, float] | None = None


class SpanRecorder:
    """Records what one process is doing, while somebody wants to know; a context, while it makes a batch.

    Attributes:
        worker: Its number; ``None``: this is the training process.
        since: What times are counted from, by ``time.perf_counter_ns``; 0: nothing is recorded.
    """

    def __init__(self) -> None:
        self.worker: int | None = None
        self.since = 0
        self._requests: list[tuple[str, int, int, int]] = []
        self._dropped = 0
        self._numbers = itertools.count()

    def follow(self, since: int) -> None:
        """Begin to record, or end it: see ``since``."""
        self.since = since
        self._requests, self._dropped = [], 0
        record(self._answered if since else None)

    def __enter__(self) -> Self:
        self._spans: list[tuple[str, int, float, float]] = []
        self._thread = threading.get_native_id()
        self._begun = time.perf_counter()
        region.cut = self._cut
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = time.perf_counter()
        region.cut = Addressable.cut

    def lap(self, stage: str, begun: float, ended: float) -> None:
        """A stage ends in the thread that makes the batch."""
        self._keep((stage, self._thread, begun, ended))

    def spans(self, epoch: int, number: int) -> BatchSpans:
        """What was recorded of the batch that was made last.

        Args:
            epoch: Whose batch it is.
            number: The step of the iteration that it is.
        """
        requests, self._requests = self._requests, []
        dropped, self._dropped = self._dropped, 0
        process = os.getpid()
        events = [
            event(name, begun, ended, process=process, thread=thread, since=self.since)
            for name, thread, begun, ended in self._spans
        ]
        events += [self._fetch(process, *one) for one in requests]
        begun, ended = self._begun, self._ended
        return BatchSpans(
            self.since, process, self.worker, self._thread, epoch, number, begun, ended, ",\n".join(events), dropped
        )

    def _keep(self, span: tuple[str, int, float, float]) -> None:
        if len(self._spans) < _MOST_SPANS:
            self._spans.append(span)
        else:
            self._dropped += 1

    def _cut(self, file: Addressable, box: Box, *, margin: int) -> CutJpeg:
        begun = time.perf_counter()
        made = file.cut(box, margin=margin)
        self._keep(("cut", threading.get_native_id(), begun, time.perf_counter()))
        return made

    def _answered(self, request: AwaitedRequest) -> None:
        if request.since < self.since:
            return
        if len(self._requests) < _MOST_SPANS:
            self._requests.append((request.url, request.attempts, request.since, time.monotonic_ns()))
        else:
            self._dropped += 1

    def _fetch(self, process: int, url: str, attempts: int, begun: int, ended: int) -> str:
        """Requests overlap, so each is a line of its own: two events with one number."""
        both = f'"name": "fetch", "cat": "shardstream", "id": "{process}.{next(self._numbers)}", "pid": {process}'
        both = f'{both}, "tid": {self._thread}'
        asked = f'"args": {{"url": {json.dumps(url)}, "attempts": {attempts}}}'
        first, last = (f'"ts": {(when - self.since) / 1e3:.3f}' for when in (begun, ended))
        return f'{{"ph": "b", {both}, {first}, {asked}}},\n{{"ph": "e", {both}, {last}}}'


def event(name: str, begun: float, ended: float, *, process: int, thread: int, since: int, args: str = "") -> str:
    """A span as an event of a trace.

    Args:
        name: What was done.
        begun: When, by ``time.perf_counter``.
        ended: Until when.
        process: Who did it.
        thread: Its thread.
        since: What times are counted from, by ``time.perf_counter_ns``.
        args: What else is known, as members of a JSON object.
    """
    first, last = round(begun * 1e9) - since, round(ended * 1e9) - since
    more = f', "args": {{{args}}}' if args else ""
    times = f'"ts": {first / 1e3:.3f}, "dur": {(last - first) / 1e3:.3f}'
    return f'{{"ph": "X", "name": "{name}", "cat": "shardstream", "pid": {process}, "tid": {thread}, {times}{more}}}'
