"""The integers that, with seed and epoch, fix the order of an epoch; and how they are chosen."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace

from shardstream.errors import UsageError
from shardstream.order.steps import BLOCK

ORDER_VERSION = 2
"""Version of the order arithmetic of new runs. Stands in states; another version gives another order."""

ORDER_VERSIONS = (1, 2)
"""All versions that runs can continue with."""

SCHEDULED_VERSION = 3
"""Version of new runs of mixtures scheduled by samples: as version 2, but a knot acts at its exact position."""

_LIMIT = 1 << 62  # sums of two parameters still fit int64
_MOST_SUBLANES = 32  # a batch mixes at most so many places of the data set
_LEAST_VIRTUAL = 8  # virtual workers a rank: 0, 1, 2, 4 or 8 workers give the same batches
_LEAST_CHUNKS_PER_LANE = 8  # with fewer, lanes are too short to be worth having
_OPEN_WINDOW_BYTES = 1 << 31  # twice what the open windows of one rank may span
_OPEN_BLOCK_BYTES = 1 << 30  # that the blocks of open lanes of one rank may have, where data are compressed in blocks
_MOST_WINDOW = 128  # wider gains little mixing and costs read-ahead memory
_SINGLE_LANE_WINDOW = 4096  # small data sets have one lane and mix by the window alone


@dataclass(frozen=True, slots=True)
class OrderParameters:
    """What makes two runs of one seed see one order, whatever their ranks, workers and batch size.

    Attributes:
        lanes: Spans of the data set that are read side by side (Λ). Where this is ``ranks * virtual * sublanes``, the
            ``sublanes`` lanes of one batch lie far apart; with any other number (explicit lanes) they lie anywhere.
        chunk: Consecutive samples of one lane in a batch (c).
        window: Samples of a lane that are shuffled among themselves (w).
        virtual: Virtual workers a rank (V): what a real worker is a whole number of.
        sublanes: Lanes that make up one batch (m).
        ranks: Ranks the order was made for (R₀); other ranks may resume it.
        groups: Affinity groups (G), one a node: each reads the same part of the data set in every epoch.
        version: Of the order's arithmetic; runs that began with an earlier one go on with it.

    Raises:
        UsageError: A value below 1 or above 2**62, groups that do not divide the ranks, or an unknown version.

    Example::

        >>> OrderParameters(lanes=256, chunk=4, window=128, virtual=8, sublanes=32).groups
        1
    """

    lanes: int
    chunk: int
    window: int
    virtual: int = 1
    sublanes: int = 1
    ranks: int = 1
    groups: int = 1
    version: int = ORDER_VERSION

    def __post_init__(self) -> None:
        for field in fields(self):
            require_positive(field.name, getattr(self, field.name))
        known = (*ORDER_VERSIONS, SCHEDULED_VERSION)
        if self.version not in known:
            raise UsageError(
                f"version must be one of {', '.join(map(str, known))}, got {self.version}",
                hint="leave it to its default, but for runs that go on",
            )
        if self.groups == 1:
            return
        if self.ranks % self.groups:
            raise UsageError(
                f"groups must divide ranks, got groups={self.groups} and ranks={self.ranks}",
                hint="use one group a node and the same number of ranks on every node, or groups=1",
            )
        if not self.spread:
            raise UsageError(
                f"with groups={self.groups}, lanes must be ranks * virtual * sublanes, got lanes={self.lanes} "
                f"and {self.ranks} * {self.virtual} * {self.sublanes}",
                hint="leave lanes to its default, or use groups=1",
            )

    @property
    def spread(self) -> bool:
        """Whether the lanes of one batch are spread over the line, each in a sub-lane of its own."""
        return self.lanes == self.ranks * self.virtual * self.sublanes


def default_parameters(
    samples: int,
    *,
    batch_size: int | None,
    world_size: int,
    num_workers: int,
    mean_bytes: float,
    shuffle: bool,
    groups: int = 1,
    largest_block: int = 0,
    lanes: int | None = None,
    chunk: int | None = None,
    window: int | None = None,
) -> OrderParameters:
    """The parameters for a data set and the shape of a run.

    Batches are the same with 0, 1, 2, 4 or 8 workers. Data sets too small for many lanes fall back to fewer virtual
    workers, and at last to one lane with a window of up to 4,096 samples.

    Args:
        samples: Samples of the view (N).
        batch_size: Samples a rank's batch (b); ``None`` for single samples, which are dealt in blocks of 64.
        world_size: Ranks (R).
        num_workers: DataLoader workers a rank (K); 0 for none.
        mean_bytes: Mean stored bytes a sample, of the fields that are read. Wider samples get narrower windows: the
            open windows of a rank span 1 GiB at most.
        shuffle: ``False`` gives the stored order: one lane, and the explicit values below have no meaning.
        groups: Affinity groups; taken as 1 where they do not divide the ranks or ``lanes`` is given.
        largest_block: Bytes of the largest block of data that are compressed in blocks, 0 for others. Each lane has one
            open, so there are fewer lanes, and their windows are as wide as blocks: those of a rank take 1 GiB at most,
            unless even one lane a virtual worker takes more.
        lanes: In place of the default number of lanes. ``None``: ``world_size * virtual * sublanes``.
        chunk: In place of the default chunk. ``None``: what each sub-lane gives to a batch; there are as many of
            them as the largest number up to 32 that divides ``batch_size``.
        window: In place of the default window. ``None``: 128 samples, or what memory allows, at least the chunk.

    Raises:
        UsageError: A number out of range.

    Example::

        >>> default_parameters(10**6, batch_size=128, world_size=1, num_workers=4, mean_bytes=1e5, shuffle=True)
        OrderParameters(lanes=256, chunk=4, window=41, virtual=8, sublanes=32, ranks=1, groups=1, version=2)
    """
    batch = BLOCK if batch_size is None else batch_size
    for name, value in (("batch_size", batch), ("world_size", world_size), ("groups", groups)):
        require_positive(name, value)
    for name, least_zero in (("samples", samples), ("num_workers", num_workers), ("mean_bytes", mean_bytes)):
        if not 0 <= least_zero < math.inf:
            raise UsageError(
                f"{name} must be finite and not negative, got {least_zero}", hint=f"pass 0 or more as {name}"
            )
    single = _single_lane(samples, batch)
    if not shuffle:
        return single
    default = _spread_lanes(samples, batch, world_size, num_workers, mean_bytes, groups, largest_block) or single
    explicit = {"lanes": lanes, "chunk": chunk, "window": window}
    if lanes is not None:
        # one sub-lane, also where `lanes` happens to equal ranks * virtual * sublanes
        explicit |= {"sublanes": 1, "groups": 1}
    return replace(default, **{name: value for name, value in explicit.items() if value is not None})


def require_positive(name: str, value: int) -> None:
    """Raise ``UsageError`` unless ``value`` is in [1, 2**62]."""
    if not 1 <= value <= _LIMIT:
        raise UsageError(f"{name} must be at least 1 (and at most 2**62), got {value}", hint=f"pass a positive {name}")


def fills_lanes(samples: int, *, lanes: int, chunk: int) -> bool:
    """Whether lanes of that many samples are long enough to be worth having."""
    return samples >= _LEAST_CHUNKS_PER_LANE * chunk * lanes


def _single_lane(samples: int, batch_size: int) -> OrderParameters:
    return OrderParameters(lanes=1, chunk=batch_size, window=max(batch_size, min(_SINGLE_LANE_WINDOW, samples)))


def _spread_lanes(
    samples: int,
    batch_size: int,
    world_size: int,
    num_workers: int,
    mean_bytes: float,
    groups: int,
    largest_block: int,
) -> OrderParameters | None:
    """The regular defaults, or ``None`` where a lane would be too short even with one virtual worker a rank."""
    virtual = _virtual_workers(num_workers)
    sublanes = _sublanes(batch_size, virtual * largest_block)
    chunk = batch_size // sublanes
    while not fills_lanes(samples, lanes=world_size * virtual * sublanes, chunk=chunk):
        if virtual == 1:
            return None
        virtual = 1 if virtual % 2 else virtual // 2
    return OrderParameters(
        lanes=world_size * virtual * sublanes,
        chunk=chunk,
        window=_default_window(virtual * sublanes, mean_bytes, chunk, largest_block),
        virtual=virtual,
        sublanes=sublanes,
        ranks=world_size,
        groups=1 if world_size % groups else groups,
    )


def _sublanes(batch_size: int, block_bytes: int) -> int:
    """Of as many places as can be, each of which gives equally much to a batch and takes so many bytes of blocks."""
    most = min(_MOST_SUBLANES, _OPEN_BLOCK_BYTES // block_bytes if block_bytes else _MOST_SUBLANES)
    return max(number for number in range(1, max(most, 1) + 1) if batch_size % number == 0)


def _virtual_workers(num_workers: int) -> int:
    if num_workers == 0 or _LEAST_VIRTUAL % num_workers == 0:
        return _LEAST_VIRTUAL
    return num_workers * -(-_LEAST_VIRTUAL // num_workers)


def _default_window(lanes_per_rank: int, mean_bytes: float, chunk: int, largest_block: int) -> int:
    in_block = min(int(largest_block // max(mean_bytes, 1.0)), _SINGLE_LANE_WINDOW)
    most = max(chunk, _MOST_WINDOW, in_block)
    bytes_per_step = 2 * lanes_per_rank * mean_bytes
    if bytes_per_step * most <= _OPEN_WINDOW_BYTES:  # also where samples have no bytes
        return most
    return max(chunk, int(_OPEN_WINDOW_BYTES // bytes_per_step))
