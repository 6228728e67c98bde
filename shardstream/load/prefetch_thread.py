"""``PrefetchThread``: one iteration of a `DevicePrefetcher`: a thread that sends batches some steps ahead."""

from __future__ import annotations

import atexit
import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from queue import SimpleQueue
from typing import Any

from shardstream.errors import UsageError
from shardstream.load.device.device_copy import DeviceCopy, Ticket
from shardstream.load.iteration import ENDED, LoaderIteration, PlainIteration
from shardstream.load.tracing import SentSpan, ranged
from shardstream.load.workers import LEAVE_S
from shardstream.stream.ipc.worker_batch import StreamItem
from shardstream.threads import start

logger = logging.getLogger(__name__)

_PATIENCE = 5.0  # seconds for a thread at the end of the process

Transform = Callable[[Any, StreamItem], Any]


@dataclass(slots=True)
class Sent:
    """A batch on its way, or received.

    Attributes:
        batch: As the transform left it.
        ticket: For `DeviceCopy.receive`.
        item: What it was made of, without the data.
        sending: Seconds that the thread spent on `DeviceCopy.send`.
        transforming: Seconds that it spent in the transform.
        spans: The same for a trace.
        late: Whether the device was still at it when it was received.
    """

    batch: Any
    ticket: Ticket
    item: StreamItem
    sending: float
    transforming: float
    spans: Sequence[SentSpan] = ()
    late: bool = False


@dataclass(frozen=True, slots=True)
class _Ended:
    error: BaseException | None


class PrefetchThread:
    """The thread, and what it has sent.

    It begins with the first batch at once, and is at most ``depth`` ahead of the receiver, and of the device, which may
    be behind the receiver. It ends when the data does, with an error, or after `stop`.

    Args:
        items: What is to be sent; only the thread asks for them.
        copy: To the device.
        transform: What is done there.
        depth: How many batches may be ready or in work while the receiver has one, or its device is still at it.
    """

    def __init__(
        self, items: LoaderIteration | PlainIteration, copy: DeviceCopy, transform: Transform, depth: int
    ) -> None:
        self._doing: str | None = None  # instead of asking for an item
        self._items = items
        self._copy = copy
        self._transform = transform
        self._depth = depth
        self._room = threading.Semaphore(depth)
        self._marks: deque[Any] = deque()
        self._stopped = False
        self._sent: SimpleQueue[Sent | _Ended] = SimpleQueue()
        # A daemon, so that a process that ends in the middle of a loop does not wait for it for ever; `_stop_all` ends
        # it while CUDA is still there.
        self._thread = threading.Thread(target=self._run, name="shardstream-prefetch", daemon=True)
        _running.add(self)
        start(self._thread)

    @property
    def fetching(self) -> bool:
        """Whether the thread is asking for an item, and will do nothing else any more once it was stopped."""
        return self._doing is None

    def awaited(self) -> str:
        """What the thread is waiting for, for people."""
        return self._doing or self._items.awaited()

    def receive(self) -> Sent | None:
        """The next batch, to be used on the stream that the calling thread works on; ``None`` at the end.

        Raises:
            UsageError: It was stopped.
            Exception: Whatever the loader or the transform raised, in its turn.
        """
        if self._stopped:
            raise UsageError(ENDED, hint="use a prefetcher for each loop")
        with self._items.wait(self.awaited):
            sent = self._sent.get()
        if isinstance(sent, Sent):
            sent.late, mark = self._copy.receive(sent.batch, sent.ticket)
            self._marks.append(mark)
            self._room.release()
            return sent
        self._sent.put(_Ended(None))  # for who asks again
        error = sent.error
        if error is None:
            return None
        try:
            raise error
        finally:  # or this frame, which the error's traceback holds, would hold the error, and with it the workers
            del error, sent

    def stop(self, timeout: float = 0) -> bool:
        """Have the thread end after what it is doing.

        Args:
            timeout: Seconds to wait until it has.

        Returns:
            Whether it has.
        """
        self._stopped = True
        self._room.release()
        if threading.current_thread() is not self._thread:  # where the cycle collector runs in it
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def leave(self) -> None:
        """The same, where whoever goes on may want the source for something else: give it time to come back."""
        if not self.stop(LEAVE_S):
            logger.warning("a loop was left; after %g s its prefetcher still waits for %s", LEAVE_S, self.awaited())

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            with self._copy.working():
                self._send_all()
        except BaseException as raised:  # for the receiver to raise
            error = raised
        self._sent.put(_Ended(None if self._stopped else error))
        del error  # as in `receive`

    def _send_all(self) -> None:
        for number in count():
            self._room.acquire()
            item = None if self._stopped else next(self._items, None)
            if item is None or self._stopped:
                return
            if number >= self._depth:  # one was received for each batch that there was no room for at first
                self._doing = "the device, to finish steps that were launched before"
                self._copy.settle(self._marks.popleft())
            self._sent.put(self._send(item))
            del item  # its memory is the worker's again as soon as it was copied

    def _send(self, item: StreamItem) -> Sent:
        begun = time.perf_counter()
        self._doing = "a batch to be copied to its device"
        with ranged("copy"):
            batch = self._copy.send(item.data)
        item = item._replace(data=None)
        moved = time.perf_counter()
        self._doing = "the transform of a DevicePrefetcher"
        with ranged("transform"):
            batch = self._transform(batch, item)
        ticket = self._copy.sent()
        done = time.perf_counter()
        self._doing = None
        thread = threading.get_native_id()
        spans = [SentSpan("copy", thread, begun, moved), SentSpan("transform", thread, moved, done)]
        return Sent(batch, ticket, item, moved - begun, done - moved, spans)


_running: weakref.WeakSet[PrefetchThread] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    threads = list(_running)
    for thread in threads:
        thread.stop()
    deadline = time.monotonic() + _PATIENCE
    for thread in threads:
        thread.stop(max(0.0, deadline - time.monotonic()))
