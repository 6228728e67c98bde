"""``Feed``: the items of one iteration of a loader, and how far whoever takes them has come.

An iteration has two sides: what was fetched, and what the training loop has received. In a plain loop they are the
same; a `DevicePrefetcher` fetches ahead, in a thread of its own. So a feed hands items out, and the consumer says which
of them it has received, and that it has received all.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from shardstream.augment import Positions
from shardstream.errors import UsageError
from shardstream.rng import ALL_RANKS, Domain, words
from shardstream.stream.parcel import Failure, Parcel
from shardstream.stream.ranks import find_rank
from shardstream.stream.run import EpochRun

ENDED = "this iterator ended when a newer one of the same loader began, or a state was loaded"


class Item(NamedTuple):
    """What a feed hands out.

    Attributes:
        data: A batch, or a sample of a loader without batch size.
        counted: The parcels that arrived with it, without their data.
        before: Positions of this rank's stream that come before it.
        after: The same with it.
    """

    data: Any
    counted: list[Parcel]
    before: int
    after: int


class Reading:
    """How far one iteration of a `Loader` has come. Holds nothing of its workers: they end with who takes the items.

    Args:
        run: What is read.
        finish: Called when the consumer has received all.

    Attributes:
        run: What is read.
        taken: Positions of this rank's stream that the consumer has received.
        over: Whether it has received all.
    """

    def __init__(self, run: EpochRun, finish: Callable[[], None]) -> None:
        self.run = run
        self.taken = 0
        self.over = False
        self._finish = finish
        self._lock = threading.Lock()
        self._closed = False

    @contextmanager
    def asking(self) -> Iterator[None]:
        """While somebody asks for an item.

        Raises:
            UsageError: It was closed.
        """
        with self._lock:
            if self._closed:
                raise UsageError(ENDED, hint="use a loader for each loop")
            yield

    def close(self) -> None:
        """No more items: another iteration begins. Waits for what another thread is asking for."""
        with self._lock:
            self._closed = True

    def finish(self) -> None:
        """The consumer has received all there was."""
        if not self._closed:
            self.over = True
            self._finish()

    def state(self) -> dict[str, Any]:
        """The state after what the consumer has received."""
        return self.run.state_at(self.run.after((self.taken,)))

    def key(self, item: Item, seed: int) -> int:
        """64 random bits for an item, the same in each run that gives this rank these samples at this place."""
        begin, rank = self.run.begin, self.run.rank
        position = begin.position + item.before * rank.world_size
        drawn = words(1, seed=seed, domain=Domain.BATCH, epoch=begin.epoch, a=position, b=rank.rank)
        return int(drawn[0])

    def positions(self, item: Item, seed: int) -> Positions | None:
        """Which samples of the epoch are in an item that is a batch; ``None`` for a single sample.

        Nothing of it travels: it is the same arithmetic that tells the worker what to read.
        """
        size = self.run.batch_size
        if size is None:
            return None
        values = self.run.positions(item.before // size)
        slots = item.counted[-1].slots
        epoch = self.run.begin.epoch
        drawn = words(1, seed=seed, domain=Domain.BATCH, epoch=epoch, b=ALL_RANKS)
        return Positions(int(drawn[0]), values if slots is None else values[slots])


class Feed(Iterator[Item]):
    """The items of one iteration of a `Loader`.

    Args:
        reading: How far it has come.
        request: Gives the next parcel, or ``None`` at the end.
        single: Whether parcels hold lists of samples.

    Attributes:
        reading: How far it has come.
        rest: After the end: parcels that came without an item.
    """

    def __init__(self, reading: Reading, request: Callable[[], Parcel | Failure | None], *, single: bool) -> None:
        self.reading = reading
        self.rest: list[Parcel] = []
        self._items = _items(request, self.rest, single=single)

    def __next__(self) -> Item:
        with self.reading.asking():
            return next(self._items)


def _items(request: Callable[[], Parcel | Failure | None], rest: list[Parcel], *, single: bool) -> Iterator[Item]:
    """The items in parcels; those that came since the last item lie in ``rest``."""
    taken = 0
    while (parcel := request()) is not None:
        if isinstance(parcel, Failure):
            error = parcel.raised()
            try:
                raise error
            finally:  # or this frame, which the error's traceback holds, would hold the error
                del error, parcel
        items = parcel.data if single else (parcel.data,)
        slots = parcel.slots if single else [parcel.positions - 1]
        parcel.data = None
        rest.append(parcel)
        before = taken
        for data, slot in zip(items, range(parcel.positions) if slots is None else slots, strict=True):
            counted = rest.copy()
            rest.clear()
            yield Item(data, counted, before, taken + slot + 1)
            before = taken + slot + 1
            del data
        del items
        taken += parcel.positions


class PlainFeed(Iterator[Item]):
    """The same for any iterator: it has no state, and nothing is known of what it counts.

    Args:
        items: What is handed out.
        epoch: How many iterations there were before.
    """

    def __init__(self, items: Iterator[Any], epoch: int) -> None:
        self.reading = PlainReading(epoch)
        self.rest: list[Parcel] = []
        self._items = items
        self._count = 0

    def __next__(self) -> Item:
        data = next(self._items)
        self._count += 1
        return Item(data, [], self._count - 1, self._count)


class PlainReading:
    """How far the iteration of any iterator has come: nobody wants to know.

    Args:
        epoch: How many iterations there were before.
    """

    def __init__(self, epoch: int) -> None:
        self.taken = 0
        self._epoch = epoch

    def finish(self) -> None:
        """There is nobody to tell."""

    def key(self, item: Item, seed: int) -> int:
        """64 random bits for an item."""
        rank = find_rank().rank
        return int(words(1, seed=seed, domain=Domain.BATCH, epoch=self._epoch, a=item.before, b=rank)[0])

    def positions(self, item: Item, seed: int) -> None:
        """Nobody knows which samples an item holds."""
