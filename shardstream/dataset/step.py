"""``Step``: the samples of one step by where they lie; ``Located``: with what is read then; ``ComingSteps``: many."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from shardstream.shards.bins import inside


def groups(keys: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Each key with the slots that have it, in order of key."""
    order = np.argsort(keys, kind="stable")
    ends = np.flatnonzero(np.diff(keys[order], append=-1)) + 1
    start = 0
    for end in ends.tolist():
        slots = order[start:end]
        start = end
        yield int(keys[slots[0]]), slots


@dataclass(frozen=True, slots=True)
class Step:
    """What one step consists of, or several that are read at once. Arrays are of length b.

    Attributes:
        epoch: The epoch.
        positions: int64, positions in the epoch.
        shards: int64, shard numbers.
        rows: int64, sample numbers inside their shards.
        valid: False where a position repeats an earlier one as padding; ``None`` if none does.
        sources: int64, the number of each sample's source in a mixture; ``None`` for a data set.
    """

    epoch: int
    positions: NDArray[np.int64]
    shards: NDArray[np.int64]
    rows: NDArray[np.int64]
    valid: NDArray[np.bool_] | None
    sources: NDArray[np.int64] | None = None

    def only(self, slots: NDArray[np.int64] | slice) -> Step:
        """These slots of the step, as a step."""
        valid = None if self.valid is None else self.valid[slots]
        sources = None if self.sources is None else self.sources[slots]
        return Step(self.epoch, self.positions[slots], self.shards[slots], self.rows[slots], valid, sources)

    def split(self, size: int) -> list[Step]:
        """The steps of this many samples that it was made of, the last of which may have fewer."""
        if len(self.rows) <= size:
            return [self]
        return [self.only(slice(first, first + size)) for first in range(0, len(self.rows), size)]

    def of_members(self, rows: NDArray[np.int64], counts: NDArray[np.int64]) -> Step:
        """The samples of batches by cost, as a step of these.

        Args:
            rows: Their rows, batch by batch: int64 (n,).
            counts: How many each batch has: int64 (b,).
        """
        spread = self.only(np.repeat(np.arange(len(counts)), counts))
        return replace(spread, positions=member_positions(self.positions, counts), rows=rows)


_MEMBER = 44  # bits of a position


def member_positions(positions: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Numbers that tell the samples of batches apart where positions count batches; what is random is drawn by them.

    Args:
        positions: Of the batches: int64 (b,).
        counts: How many samples each has: int64 (b,).
    """
    return np.repeat(positions, counts) | inside(counts) << _MEMBER


class StepWindows(NamedTuple):
    """Which rows are read around the same time as those of a step. Arrays are int64, of length b.

    Attributes:
        first: First row of the part of the window that lies in the sample's shard.
        last: The row after its last one.
        lane: Which lane of its source reads it.
        window: Which window of the epoch it is; a lane reads one after another.
    """

    first: NDArray[np.int64]
    last: NDArray[np.int64]
    lane: NDArray[np.int64]
    window: NDArray[np.int64]


class Located(NamedTuple):
    """A step, and what finds the windows around its samples: nobody asks where a cache has everything."""

    step: Step
    windows: Callable[[], StepWindows]


class ComingSteps(Protocol):
    """The steps that a process goes through, as far as whoever reads ahead has to know them."""

    @property
    def key(self) -> Hashable:
        """What is equal for equal steps."""

    @property
    def open_samples(self) -> int | None:
        """Samples of the windows that are open at a time; ``None`` where windows should not be read whole."""

    def located(self, in_windows: Callable[[], bool]) -> Iterator[Located]:
        """The steps, one after another.

        Args:
            in_windows: Whether the windows will be asked for: finding both at once is faster.
        """

    def following(self) -> ComingSteps | None:
        """The steps of the next epoch; ``None`` if it is not known that there is one."""
