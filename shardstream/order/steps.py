"""Steps: which positions of an epoch a rank takes, batch by batch, from any position on.

At step t, counted from position ``start``, rank r of R takes the b positions from ``start + (t R + r) b`` on. So after
any number of steps the ranks together have consumed one stretch of the epoch, and another number of ranks, or another
batch size, can go on from its end. Worker k of K builds the steps t with ``t % K == k``.

Single samples (``batch_size=None``) are dealt in blocks of 64 positions, which are steps of b = 64 here.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import UsageError

Tail: TypeAlias = Literal["drop", "pad", "exact"]
"""What happens to the end of an epoch that does not fill one batch on every rank.

``"drop"`` leaves it out, ``"pad"`` repeats samples and marks them invalid, ``"exact"`` ends with a short batch, on
some ranks earlier than on others.
"""
TAILS: tuple[Tail, ...] = get_args(Tail)

BLOCK = 64
"""Positions a block, where single samples are dealt. Larger blocks would mix ranks worse at the end of an epoch,
smaller ones cost more steps."""


def step_count(samples: int, *, start: int = 0, rank: int, world_size: int, batch_size: int | None, tail: Tail) -> int:
    """How many steps (batches, or blocks where ``batch_size`` is ``None``) this rank has from ``start`` on.

    The same on every rank, except under ``"exact"``.

    Args:
        samples: Samples of the epoch (N).
        start: Position of step 0; at or after ``samples`` nothing is left.
        rank: This rank, in [0, world_size).
        world_size: Ranks (R).
        batch_size: Samples a rank's batch (b), or ``None`` for blocks of 64 single samples.
        tail: How the epoch ends.

    Raises:
        UsageError: A number out of range, or an unknown tail.

    Example::

        >>> step_count(1000, rank=0, world_size=2, batch_size=128, tail="pad")
        4
    """
    left = _positions_left(samples, start, rank, world_size, batch_size, tail)
    batch = batch_size or BLOCK
    full, rest = divmod(left, world_size * batch)
    if tail == "exact":
        return full + (rest > rank * batch)
    if tail == "pad":
        return full + (rest > 0)
    return full + (batch_size is None and rest >= world_size)


def step_positions(
    step: int, *, samples: int, start: int = 0, rank: int, world_size: int, batch_size: int | None, tail: Tail
) -> tuple[NDArray[np.int64], NDArray[np.bool_] | None]:
    """The positions of one step of this rank, and which of them are valid.

    Args:
        step: The step, in [0, step_count(...)), counted from ``start``.
        samples: See ``step_count``, as for the other arguments.
        start: Position of step 0.
        rank: This rank.
        world_size: Ranks.
        batch_size: Samples a rank's batch, or ``None`` for blocks.
        tail: How the epoch ends.

    Returns:
        int64 positions in [0, samples), shape (b,), or fewer in the short last step of ``"exact"`` and the short last
        block of ``"drop"``; and a mask of the same shape that is False where ``"pad"`` repeats an earlier position,
        or ``None`` where all are valid.

    Raises:
        UsageError: A number out of range, or an unknown tail.

    Example::

        >>> step_positions(1, samples=6, rank=0, world_size=1, batch_size=4, tail="pad")
        (array([4, 5, 2, 3]), array([ True,  True, False, False]))
    """
    count = step_count(samples, start=start, rank=rank, world_size=world_size, batch_size=batch_size, tail=tail)
    if not 0 <= step < count:
        raise UsageError(f"step must be in [0, {count}), got {step}", hint="step_count says how many steps there are")
    batch = batch_size or BLOCK
    row = start + step * world_size * batch  # where the ranks' positions of this step begin
    if tail == "drop" and batch_size is None:
        batch = min(batch, (samples - row) // world_size)  # shorter in the last block only
    first = row + rank * batch
    if tail == "exact":
        batch = min(batch, samples - first)
    positions = np.arange(first, first + batch, dtype=np.int64)
    if first + batch <= samples:
        return positions, None
    return _padded(positions, samples, world_size * batch)


def sample_count(
    samples: int, *, start: int = 0, rank: int, world_size: int, batch_size: int | None, tail: Tail
) -> int:
    """How many positions the steps of this rank hold together, those that ``"pad"`` repeats among them.

    Args:
        samples: See ``step_count``, as for the other arguments.
        start: Position of step 0.
        rank: This rank.
        world_size: Ranks.
        batch_size: Samples a rank's batch, or ``None`` for blocks.
        tail: How the epoch ends.

    Raises:
        UsageError: A number out of range, or an unknown tail.

    Example::

        >>> sample_count(1001, rank=0, world_size=2, batch_size=None, tail="drop")
        500
    """
    shape = {"start": start, "rank": rank, "world_size": world_size}
    steps = step_count(samples, **shape, batch_size=batch_size, tail=tail)
    if steps == 0:
        return 0
    last, _ = step_positions(steps - 1, samples=samples, **shape, batch_size=batch_size, tail=tail)
    return (steps - 1) * (batch_size or BLOCK) + len(last)


def _positions_left(samples: int, start: int, rank: int, world_size: int, batch_size: int | None, tail: Tail) -> int:
    if samples < 0 or start < 0:
        raise UsageError(
            f"samples and start must not be negative, got {samples} and {start}", hint="pass both from 0 on"
        )
    if not 0 <= rank < world_size:
        raise UsageError(
            f"rank must be in [0, world_size), got rank={rank}, world_size={world_size}",
            hint="count ranks from 0: 0 to world_size - 1",
        )
    if batch_size is not None and batch_size < 1:
        raise UsageError(f"batch_size must be at least 1 or None, got {batch_size}", hint="pass a positive batch_size")
    if tail not in TAILS:
        raise UsageError(f"unknown tail {tail!r}", hint=f"use one of {', '.join(TAILS)}")
    return max(0, samples - start)


def _padded(positions: NDArray[np.int64], samples: int, row: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Positions past the end repeat what their rank took one step earlier, or go around where that is before 0."""
    valid = positions < samples
    earlier = positions - row
    repeated = np.where(earlier >= 0, earlier, positions % samples)
    return np.where(valid, positions, repeated), valid
