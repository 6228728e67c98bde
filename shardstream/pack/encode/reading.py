"""The files of samples, in order, with many on their way where reading them takes time.

A warm page cache hands out a file in some 20 µs, and threads would only stand in each other's way. A spinning disk, NFS
or an object store takes milliseconds for each, and serves many at once. So reading begins one by one, and goes on with
threads once it has shown to be slow; files behind a URL have threads from the start. Either way samples come in their
order. A single long wait shows nothing: on a busy machine another process had the processor. Several among many short
ones do: a disk that reads ahead.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from threading import Lock
from typing import TypeAlias

from shardstream.pack.encode.files import Unreadable, is_url
from shardstream.pack.sources.base import File, Item, Reject, SourcePart
from shardstream.text import valid_unicode
from shardstream.threads import Threads
from shardstream.waits import watched

_SLOW_S = 1e-3  # a sample, on average: beyond it, what threads cost is small beside what they gain
# Samples that are averaged, and what one counts at most: most of few have to be slow, or some of many very slow.
_FEW, _FEW_LONGEST_S = 16, 2 * _SLOW_S
_MANY, _MANY_LONGEST_S = 64, 16 * _SLOW_S
_THREADS = 32
_AHEAD_BYTES = 64 << 20  # read and not yet taken, beyond which nothing more is begun

Contents: TypeAlias = dict[str, bytes]
"""What the files of a sample hold, by field."""
Read: TypeAlias = tuple[Item | Reject, "Contents | Unreadable"]


def read_all(part: SourcePart, read: Callable[[str], bytes]) -> Iterator[Read]:
    """Every sample of a part with the contents of its files; `Unreadable` in their place where one cannot be read.

    Args:
        part: The samples.
        read: Gives the content of a file by its path or URL; called from several threads.
    """
    left = _items(part)
    few, many = _Window(_FEW, _FEW_LONGEST_S), _Window(_MANY, _MANY_LONGEST_S)
    for item in left:
        if _has_url(item):
            yield from _with_threads(item, left, read)
            return
        started = time.perf_counter()
        with watched(partial(_to_be_read, item)):
            contents = _contents(item, read)
        seconds = time.perf_counter() - started
        slow = few.slow(seconds) | many.slow(seconds)
        yield item, contents
        if slow:
            yield from _with_threads(None, left, read)
            return


def _items(part: SourcePart) -> Iterator[Item | Reject]:
    left = iter(part)
    while True:
        with watched("the next sample of the source"):
            item = next(left, None)
        if item is None:
            return
        yield item


def _to_be_read(item: Item | Reject) -> str:
    """What is waited for, for a message."""
    return f"{valid_unicode(item.path)} of line {item.line} to be read"


class _Window:
    """The time that the last samples took.

    Args:
        samples: How many.
        longest: Seconds that one of them counts at most.
    """

    def __init__(self, samples: int, longest: float) -> None:
        self._last = deque([0.0] * samples, samples)
        self._longest = longest
        self._total = 0.0

    def slow(self, seconds: float) -> bool:
        """Add a sample; whether they are slow on average."""
        seconds = min(seconds, self._longest)
        self._total += seconds - self._last[0]
        self._last.append(seconds)
        return self._total > len(self._last) * _SLOW_S


def _with_threads(
    first: Item | Reject | None, left: Iterator[Item | Reject], read: Callable[[str], bytes]
) -> Iterator[Read]:
    running: deque[tuple[Item | Reject, Future[Contents | Unreadable]]] = deque()
    arrived = _Arrived(read)
    waiting = first if first is not None else next(left, None)
    with Threads(_THREADS, "shardstream-read") as threads:
        while waiting is not None or running:
            while waiting is not None and len(running) < _THREADS and arrived.bytes < _AHEAD_BYTES:
                running.append((waiting, threads.submit(arrived.read, waiting)))
                waiting = next(left, None)
            item, future = running.popleft()
            with watched(partial(_to_be_read, item)):
                contents = future.result()
            arrived.take(contents)
            yield item, contents


class _Arrived:
    """Counts the bytes that have come and wait for their turn."""

    def __init__(self, read: Callable[[str], bytes]) -> None:
        self._read = read
        self._lock = Lock()
        self.bytes = 0

    def read(self, item: Item | Reject) -> Contents | Unreadable:
        contents = _contents(item, self._read)
        self._add(_size(contents))
        return contents

    def take(self, contents: Contents | Unreadable) -> None:
        self._add(-_size(contents))

    def _add(self, number: int) -> None:
        with self._lock:
            self.bytes += number


def _size(contents: Contents | Unreadable) -> int:
    return 0 if isinstance(contents, Unreadable) else sum(map(len, contents.values()))


def _has_url(item: Item | Reject) -> bool:
    return isinstance(item, Item) and any(isinstance(one, File) and is_url(one.path) for one in item.values.values())


def _contents(item: Item | Reject, read: Callable[[str], bytes]) -> Contents | Unreadable:
    if isinstance(item, Reject):
        return {}
    try:
        return {name: read(value.path) for name, value in item.values.items() if isinstance(value, File)}
    except Unreadable as error:
        return error
