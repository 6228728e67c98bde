"""``Flow``: one iteration of a `DevicePrefetcher`: a thread that sends batches on their way, some steps ahead."""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

from shardstream.errors import UsageError
from shardstream.load.device import Road
from shardstream.load.feed import ENDED
from shardstream.stream.items import Item

_PATIENCE = 5.0  # seconds for a thread at the end of the process

Transform = Callable[[Any, Item], Any]


@dataclass(frozen=True, slots=True)
class Sent:
    """A batch on its way.

    Attributes:
        batch: As the transform left it.
        ticket: For `Road.receive`.
        item: What it was made of, without the data.
        sending: Seconds that the thread spent on `Road.send`.
        transforming: Seconds that it spent in the transform.
    """

    batch: Any
    ticket: Any
    item: Item
    sending: float
    transforming: float


@dataclass(frozen=True, slots=True)
class _Ended:
    error: BaseException | None


class Flow:
    """The thread, and what it has sent.

    It begins with the first batch at once, and is at most ``depth`` ahead of the receiver. It ends when the data does,
    with an error, or after `stop`.

    Args:
        items: What is to be sent; only the thread asks for them.
        road: To the device.
        transform: What is done there.
        depth: How many batches may be ready or in work while the receiver has one.
    """

    def __init__(self, items: Iterator[Item], road: Road, transform: Transform, depth: int) -> None:
        self._room = threading.Semaphore(depth)
        self._stopped = False
        self._sent: SimpleQueue[Sent | _Ended] = SimpleQueue()
        # A daemon, so that a process that ends in the middle of a loop does not wait for it for ever; `_stop_all` ends
        # it while CUDA is still there.
        self._thread = threading.Thread(
            target=self._run, args=(items, road, transform), name="shardstream-prefetch", daemon=True
        )
        _running.add(self)
        self._thread.start()

    def receive(self) -> Sent | None:
        """The next batch; ``None`` at the end.

        Raises:
            UsageError: It was stopped.
            Exception: Whatever the loader or the transform raised, in its turn.
        """
        if self._stopped:
            raise UsageError(ENDED, hint="use a prefetcher for each loop")
        sent = self._sent.get()
        if isinstance(sent, Sent):
            self._room.release()
            return sent
        self._sent.put(sent)  # for who asks again
        if sent.error is not None:
            raise sent.error
        return None

    def stop(self, timeout: float | None = 0) -> None:
        """Have the thread end after what it is doing.

        Args:
            timeout: Seconds to wait until it has, ``None`` without limit. It may be waiting for a worker.
        """
        self._stopped = True
        self._room.release()
        self._thread.join(timeout)

    def _run(self, items: Iterator[Item], road: Road, transform: Transform) -> None:
        error: BaseException | None = None
        try:
            with road.working():
                self._send_all(items, road, transform)
        except BaseException as raised:  # for the receiver to raise
            error = raised
        self._sent.put(_Ended(error))

    def _send_all(self, items: Iterator[Item], road: Road, transform: Transform) -> None:
        while True:
            self._room.acquire()
            item = None if self._stopped else next(items, None)
            if item is None or self._stopped:
                return
            self._sent.put(_sent(item, road, transform))
            del item  # its memory is the worker's again as soon as it was copied


def _sent(item: Item, road: Road, transform: Transform) -> Sent:
    begun = time.perf_counter()
    batch = road.send(item.data)
    item = item._replace(data=None)
    moved = time.perf_counter()
    batch = transform(batch, item)
    return Sent(batch, road.sent(), item, moved - begun, time.perf_counter() - moved)


_running: weakref.WeakSet[Flow] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    flows = list(_running)
    for flow in flows:
        flow.stop()
    deadline = time.monotonic() + _PATIENCE
    for flow in flows:
        flow.stop(max(0.0, deadline - time.monotonic()))
