"""``LoaderIteration``: the items of one iteration of a loader, and how far whoever takes them has come.

An iteration has two sides: what was fetched, and what the training loop has received. In a plain loop they are the
same; a `DevicePrefetcher` fetches ahead, in a thread of its own. So an iteration hands items out, and the consumer says
which of them it has received, and that it has received all.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from shardstream.augment import Positions
from shardstream.errors import UsageError
from shardstream.load.frameworks import Announced
from shardstream.load.rank_check import RankIteration
from shardstream.load.tracing import follow, in_range
from shardstream.rng import ALL_RANKS, Domain, words
from shardstream.stream.ipc.worker_batch import BatchFailure, Requests, StreamItem, WorkerBatch, items_of
from shardstream.stream.iteration.cursor import StreamPlace
from shardstream.stream.iteration.ranks import find_rank
from shardstream.waits import watched

ENDED = "this iterator ended when a newer one of the same loader began, or a state was loaded"


class ConsumerPosition(Announced):
    """How far one iteration of a `Loader` has come. Holds nothing of its workers: they end with who takes the items.

    Args:
        place: Where it begins.
        finish: Called when the consumer has received all.
        ranks: Compares what ranks read: from the second item on, this is more than a look at a batch.

    Attributes:
        run: What is read.
        received: Items that the consumer has received.
        over: Whether it has received all: the last item counts, not the question for one more.
        closed: Whether there are no more items: another iteration began, or nobody wants more.
        asking: Held by whoever asks for an item.
    """

    def __init__(self, place: StreamPlace, finish: Callable[[], None], ranks: RankIteration) -> None:
        self.run = place.run
        self.received = 0
        self._place = place
        self.over = False
        self.closed = False
        self.asking = threading.Lock()
        self._finish = finish
        self._ranks = ranks
        self._last: WorkerBatch | None = None
        self.announce()
        if not self.run.steps:
            self.finish()

    @property
    def taken(self) -> int:
        """Positions of this rank's stream that the consumer has received."""
        return self._place.taken

    def close(self) -> None:
        """No more items: another iteration begins, or nobody wants more. Whoever is asking may still be at it."""
        self.closed = True
        self.recall()

    def check_open(self) -> None:
        """Refuse where it was closed.

        Raises:
            UsageError: It was.
        """
        if self.closed:
            raise UsageError(ENDED, hint="use a loader for each loop")

    def left(self, timeout: float) -> bool:
        """Whether nobody is asking for an item, or has stopped within so many seconds."""
        if not self.asking.acquire(timeout=timeout):
            return False
        self.asking.release()
        return True

    def receive(self, item: StreamItem) -> None:
        """The consumer has received an item.

        Raises:
            RankError: Ranks do not read the same.
        """
        self.received += 1
        if self.received == 2:
            self._ranks.compare()
        if item.last:
            self._last = item.counted[-1] if item.counted else None
            self.finish()
        if self._place.watched:
            self._place.advance(item.after)
        else:
            self._place.taken = item.after

    @property
    def remainder(self) -> int:
        """How many samples of the last batches of all ranks are no padding, see `Announced`; without dropped ones."""
        unpadded = self.run.unpadded
        slots = None if self._last is None or self.run.rank.world_size > 1 else self._last.slots
        return unpadded if slots is None else sum(slot < unpadded for slot in slots)

    def finish(self) -> None:
        """The consumer has received all there was.

        Raises:
            RankError: Ranks do not read the same.
        """
        if not self.closed and not self.over:
            self._ranks.end()
            self.over = True
            self._finish()

    def end(self) -> None:
        """The consumer has asked for one more, and there was none."""
        self.finish()
        self.recall()

    def state(self) -> dict[str, Any]:
        """The state after what the consumer has received; raises as `StreamPlace.state`."""
        return self._place.state()

    def key(self, item: StreamItem, seed: int) -> int:
        """64 random bits for an item, the same in each run that gives this rank these samples at this position."""
        begin, rank = self.run.resume_point, self.run.rank
        position = begin.position + item.before * rank.world_size
        drawn = words(1, seed=seed, domain=Domain.BATCH, epoch=begin.epoch, a=position, b=rank.rank)
        return int(drawn[0])

    def positions(self, item: StreamItem, seed: int) -> Positions | None:
        """Which samples of the epoch are in an item that is a batch; ``None`` for a single sample.

        Nothing of it travels: it is the same arithmetic that tells the worker what to read.
        """
        size = self.run.batch_size
        if size is None:
            return None
        batch = item.counted[-1]
        values, slots = self.run.positions(item.before // size, batch.members), batch.slots
        epoch = self.run.resume_point.epoch
        drawn = words(1, seed=seed, domain=Domain.BATCH, epoch=epoch, b=ALL_RANKS)
        return Positions(int(drawn[0]), values if slots is None else values[slots])


class LoaderIteration(Iterator[StreamItem]):
    """The items of one iteration of a `Loader`.

    Args:
        position: How far it has come.
        request: Gives the next batch of a worker, or ``None`` at the end.
        trace: Has workers record what takes how long, see `Stream.trace`.
        awaited: Says, for people, what it waits for.
        wait: Makes the wait of who asks for an item, see `Loader.wait`.
        single: Whether they hold lists of samples.
        drops: Whether samples can be missing in them.

    Attributes:
        position: How far it has come.
        rest: After the end: what came without an item.
        awaited: As given.
        wait: As given.
    """

    def __init__(
        self,
        position: ConsumerPosition,
        request: Callable[[], WorkerBatch | BatchFailure | None],
        trace: Callable[[int], None],
        awaited: Callable[[], str],
        wait: Callable[[Callable[[], str]], watched],
        *,
        single: bool,
        drops: bool,
    ) -> None:
        self.position = position
        self.awaited = awaited
        self.wait = wait
        self.rest: list[WorkerBatch] = []
        self._request, self._requests = request, Requests(request)
        self._trace = trace
        self._items = items_of(self._requests, position.run.steps, self.rest, single=single, drops=drops)
        follow(self)

    def trace(self, since: int) -> None:
        """Have workers record what takes how long, and torch's profiler show the waits for them.

        Args:
            since: When that began, by ``time.perf_counter_ns``; 0: no more.
        """
        self._trace(since)
        self._requests.ask = partial(in_range, "wait", self._request) if since else self._request

    def __next__(self) -> StreamItem:
        position = self.position
        with position.asking:
            if position.closed:
                position.check_open()
            return next(self._items)


class PlainIteration(Iterator[StreamItem]):
    """The same for anything that can be iterated over: it has no state, and nothing is known of what it counts.

    Args:
        items: What is handed out.
        epoch: How many iterations there were before.
    """

    def __init__(self, items: Iterable[Any], epoch: int) -> None:
        self.position = PlainPosition(epoch)
        self.rest: list[WorkerBatch] = []
        self._name = type(items).__name__
        with watched(f"an iteration of a {self._name} to begin"):
            self._items = iter(items)
        self._count = 0

    def awaited(self) -> str:
        """What it waits for, for people."""
        return f"an item of a {self._name}"

    def wait(self, what: Callable[[], str]) -> watched:
        """The wait of who asks for an item."""
        return watched(what)

    def __next__(self) -> StreamItem:
        data = next(self._items)
        self._count += 1
        return StreamItem(data, [], self._count - 1, self._count, last=False)


class PlainPosition:
    """How far the iteration of any iterator has come: nobody wants to know.

    Args:
        epoch: How many iterations there were before.
    """

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch

    def receive(self, item: StreamItem) -> None:
        """There is nobody to tell."""

    def end(self) -> None:
        """There is nobody to tell."""

    def key(self, item: StreamItem, seed: int) -> int:
        """64 random bits for an item."""
        rank = find_rank().rank
        return int(words(1, seed=seed, domain=Domain.BATCH, epoch=self._epoch, a=item.before, b=rank)[0])

    def positions(self, item: StreamItem, seed: int) -> None:
        """Nobody knows which samples an item holds."""
