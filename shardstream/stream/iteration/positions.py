"""``positions``: which positions some steps of a run take, for ``skip=``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from shardstream.errors import UsageError
from shardstream.order import PlaceRange, step_count
from shardstream.sizes import plural
from shardstream.stream.iteration.convert import convert_state
from shardstream.stream.iteration.state import begin_of, reading


def positions(state: Mapping[str, Any], *, steps: tuple[int, int], batch_size: int, world_size: int = 1) -> PlaceRange:
    """The range of positions that some steps of a run take, which ``skip=`` leaves out where the run is repeated.

    For a run whose loss went wrong between two steps: go back to a state from before them, and leave out their batches.

    Args:
        state: Where the steps are counted from, and the run is to go on from: of a `Loader`, a data set, or torchdata's
            ``StatefulDataLoader``.
        steps: From which one to before which other, counted from 0 with the first batch after the state.
        batch_size: Samples a batch of one rank in these steps, as the data set or the `Loader` made them; 1 of batches
            by cost, which are a position each.
        world_size: Ranks that took them. Default 1.

    Returns:
        ``((epoch, position), (epoch, position))``, half open, of one epoch.

    Raises:
        UsageError: The epoch has not as many steps left; or the state is none, or lies inside of steps of single
            samples, which no range has.

    Example:
        >>> ds = ss.ShardDataset("out/", fields=["cls"], batch_size=8, shuffle=True)
        >>> bad = ss.positions(ds.state_dict(), steps=(3, 5), batch_size=8)
        >>> bad, len(ds), len(ds.replace(skip=[bad]))
        (((0, 24), (0, 40)), 25, 23)
    """
    state = convert_state(state)
    first, beyond = _checked(steps)
    for name, value in (("batch_size", batch_size), ("world_size", world_size)):
        if type(value) is not int or value < 1:
            raise UsageError(f"{name} must be a positive integer, got {value!r}", hint=f"write {name}=1 or more")
    with reading():
        begin = begin_of(state)
        left = begin.left_of(state["samples"])
        share: dict[str, Any] = {"start": left.start, "world_size": world_size, "batch_size": batch_size}
        count = step_count(left.samples, rank=0, tail=state["tail"], **share)
    if left.stops:
        raise UsageError(
            "the state lies inside of blocks of single samples, so that its first steps are no range of positions",
            hint="count from a state between two epochs, or from one of a loader that makes batches",
        )
    if beyond > count:
        raise UsageError(
            f"steps {first} to {beyond} end behind epoch {begin.epoch}, of which the state leaves "
            f"{plural(count, 'step')} of {world_size} x {batch_size} samples",
            hint="end there, and count what follows from a state of the next epoch",
        )
    virtual = left.start + np.array([first, beyond]) * (world_size * batch_size)
    virtual[1] = min(virtual[1], left.samples) - 1
    begins, last = left.positions(virtual).tolist()
    return (begin.epoch, begins), (begin.epoch, last + 1)


def _checked(steps: Any) -> tuple[int, int]:
    pair = isinstance(steps, tuple | list) and len(steps) == 2 and all(type(one) is int for one in steps)
    if not pair or not 0 <= steps[0] < steps[1]:
        raise UsageError(
            f"steps must be a pair of integers, the first one at least 0 and less than the second, got {steps!r}",
            hint="write steps=(230, 260) for steps 230 to 259, counted from the state",
        )
    return steps[0], steps[1]
