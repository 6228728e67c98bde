"""``take``: memory that copies out of the cache are made into, thread by thread."""

from __future__ import annotations

import threading

from shardstream.storage.slabs import Slabs

_MOST = 64 << 20  # bytes a thread keeps: batches follow one another, so two or three slabs serve them all


class _OfThread(threading.local):
    def __init__(self) -> None:
        self.slabs = Slabs(_MOST)


_of_thread = _OfThread()


def take(size: int) -> memoryview:
    """Writable memory of ``size`` bytes, with any content. It stays the caller's while any view of it lives."""
    return _of_thread.slabs.take(size)
