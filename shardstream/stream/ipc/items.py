"""``items_of``: what a training loop gets out of parcels. The last item says that it is the last.

A loop may take just as many items as there are, and never ask for one more. So the end of an iteration comes with its
last item, not with the question for another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from shardstream.stream.ipc.worker_batch import BatchFailure, WorkerBatch


class StreamItem(NamedTuple):
    """What a training loop gets at once.

    Attributes:
        data: A batch, or a sample where there is no batch size.
        counted: The parcels that arrived with it, without their data.
        before: Positions of the stream that come before it.
        after: The same with it, and with what was dropped at the end of the stream.
        last: Whether nothing follows.
    """

    data: Any
    counted: list[WorkerBatch]
    before: int
    after: int
    last: bool


def items_of(
    request: Callable[[], WorkerBatch | BatchFailure | None],
    count: int,
    rest: list[WorkerBatch],
    *,
    single: bool,
    drops: bool,
) -> Iterator[StreamItem]:
    """The items in parcels, one after another. The parcel after the last one is not asked for.

    Args:
        request: Gives the next parcel; ``None`` if there is none.
        count: How many there are.
        rest: Here lie the parcels that came since the last item.
        single: Whether parcels hold lists of samples.
        drops: Whether samples can be missing in them. The last sample of a parcel then waits for the next parcel that
            has any: it may be the last of all.

    Raises:
        ShardStreamError: A failure came, or `request` raised it.
    """
    taken, held, drops = 0, None, single and drops
    for number in range(1, count + 1):
        try:
            parcel = _next(request)
        except Exception:
            if held is not None:  # it comes before what failed
                yield held
            raise
        if parcel is None:
            break
        items = parcel.data if single else (parcel.data,)
        slots = parcel.slots if single else [parcel.positions - 1]
        parcel.data = None
        rest.append(parcel)
        before, left = taken, len(items)
        for data, slot in zip(items, range(parcel.positions) if slots is None else slots, strict=True):
            if held is not None:
                yield held
                held = None
            left -= 1
            last = number == count and not left
            after = taken + (parcel.positions if last else slot + 1)
            item = StreamItem(data, rest[:], before, after, last)
            del data, rest[:]  # slices: this is done for each sample
            before = after
            if drops and not left and not last:
                held = item
            else:
                yield item
            del item
        del items
        taken += parcel.positions
    if held is not None:
        counted = held.counted + rest
        del rest[:]
        yield held._replace(counted=counted, after=taken, last=True)


def _next(request: Callable[[], WorkerBatch | BatchFailure | None]) -> WorkerBatch | None:
    parcel = request()
    if isinstance(parcel, BatchFailure):
        error = parcel.raised()
        try:
            raise error
        finally:  # or this frame, which the error's traceback holds, would hold the error
            del error, parcel
    return parcel
