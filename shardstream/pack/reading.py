"""The files of samples, in order, with many on their way where reading them takes time.

A warm page cache hands out a file in some 20 µs, and threads would only stand in each other's way. A spinning disk, NFS
or an object store takes milliseconds for each, and serves many at once. So reading begins one by one, and goes on with
threads once it has shown to be slow; files behind a URL have threads from the start. Either way samples come in their
order.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeAlias

from shardstream.pack.files import Unreadable, is_url
from shardstream.pack.sources.base import File, Item, Part, Reject

_SLOW_S = 1e-3  # a sample, on average: beyond it, what threads cost is small beside what they gain
_WEIGHT = 1 / 16  # of the last sample in that average
_THREADS = 32
_AHEAD_BYTES = 64 << 20  # read and not yet taken, beyond which nothing more is begun

Contents: TypeAlias = dict[str, bytes]
"""What the files of a sample hold, by field."""
Read: TypeAlias = tuple[Item | Reject, "Contents | Unreadable"]


def read_all(part: Part, read: Callable[[str], bytes]) -> Iterator[Read]:
    """Every sample of a part with the contents of its files; `Unreadable` in their place where one cannot be read.

    Args:
        part: The samples.
        read: Gives the content of a file by its path or URL; called from several threads.
    """
    left = iter(part)
    mean = 0.0
    for item in left:
        if _has_url(item):
            yield from _with_threads(item, left, read)
            return
        started = time.perf_counter()
        contents = _contents(item, read)
        mean += (time.perf_counter() - started - mean) * _WEIGHT
        yield item, contents
        if mean > _SLOW_S:
            yield from _with_threads(None, left, read)
            return


def _with_threads(
    first: Item | Reject | None, left: Iterator[Item | Reject], read: Callable[[str], bytes]
) -> Iterator[Read]:
    running: deque[tuple[Item | Reject, Future[Contents | Unreadable]]] = deque()
    pool = ThreadPoolExecutor(_THREADS, "shardstream-read")
    waiting = first if first is not None else next(left, None)
    try:
        while waiting is not None or running:
            while waiting is not None and len(running) < _THREADS and _arrived(running) < _AHEAD_BYTES:
                running.append((waiting, pool.submit(_contents, waiting, read)))
                waiting = next(left, None)
            item, future = running.popleft()
            yield item, future.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _arrived(running: deque[tuple[Item | Reject, Future[Contents | Unreadable]]]) -> int:
    """Bytes that have come and wait for their turn."""
    done = (future.result() for _, future in running if future.done() and future.exception() is None)
    return sum(sum(map(len, contents.values())) for contents in done if not isinstance(contents, Unreadable))


def _has_url(item: Item | Reject) -> bool:
    return isinstance(item, Item) and any(isinstance(one, File) and is_url(one.path) for one in item.values.values())


def _contents(item: Item | Reject, read: Callable[[str], bytes]) -> Contents | Unreadable:
    if isinstance(item, Reject):
        return {}
    try:
        return {name: read(value.path) for name, value in item.values.items() if isinstance(value, File)}
    except Unreadable as error:
        return error
