"""Mixtures: several sources in one order, by integer quotas, mixed inside each lane.

The epoch of a mixture has as many positions as asked for, dealt to the lanes like those of any epoch. Along the lanes,
from epoch to epoch, go endless *walks* (``walks.py``). On a walk stand blocks of B = Σq labels, each a permutation of
q_s labels of every source s; and each label takes the next sample on the same walk through its source, whose epochs
follow one another as often as its weight wants it. So every position of every epoch of a run is still a pure function
of integers, and each source is used evenly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from shardstream import rng
from shardstream.errors import UsageError, did_you_mean
from shardstream.order.draws import Counts, WeightedDraws, samples_of, without_empty
from shardstream.order.epoch import EpochOrder, HeldEpochs, checked_epoch, checked_positions, gathered
from shardstream.order.held import HeldPermutations
from shardstream.order.lanes import Integers, Lanes, epoch_lanes
from shardstream.order.line import checked_counts
from shardstream.order.parameters import SCHEDULED_VERSION, OrderParameters, default_parameters, fills_lanes
from shardstream.order.quotas import checked_quotas
from shardstream.order.schedule import Schedule, checked_schedule
from shardstream.order.scheduled import ScheduledLabels
from shardstream.order.sequence import Sequence as Deal
from shardstream.order.walks import WalkProgress, Walks

MixBy: TypeAlias = Literal["samples", "batches"]
"""What a label of a mixture stands for: one sample, or all of a batch (of the size the order was made for)."""

_How: TypeAlias = Callable[[EpochOrder, Integers, Integers], tuple[Integers, ...]]

_LABELS_TOGETHER = 1 << 18  # labels that are made at once to be counted
_MOST_WINDOW = 4096  # of a source too small for the lanes, as of a small data set


class MixedOrder:
    """The order of one epoch of a mixture, in the role of ``EpochOrder``.

    Each source is read evenly, one whole epoch of it after another, however small or large its weight, and the next
    epoch of the mixture goes on where the last one stopped. Each block of B positions of a walk has exactly q_s samples
    of source s. The first source is ordered by the seed itself, so a mixture of one source with as many positions as
    it has samples is ``EpochOrder`` in every epoch; with another number it is an endless walk through its epochs.

    A source too small for so many lanes is cut into fewer, each shuffled as a whole, and lanes of the mixture take
    turns on them.

    Costs what ``EpochOrder`` costs, for the one or two epochs of each source that are being read, and one permutation
    of B labels a lane. An epoch number of a million costs no more than the first. Not for several threads at once.

    Attributes:
        samples: Positions of the epoch: as asked for, under ``by="batches"`` cut to whole rows of ``lanes * chunk``.

    Args:
        counts: Of each source, the samples of its shards: int64, shape (shards,). Zeros are fine. Or ``WeightedDraws``,
            see ``EpochOrder``.
        quotas: Of each source, its samples in a block of labels, from ``quotas_of``; or shares that change.
        samples: Positions of an epoch (E).
        seed: Seed of the run; taken modulo 2**64. Sources after the first have seeds derived from it.
        epoch: Epoch, in [0, 2**32).
        parameters: See ``OrderParameters``, from ``mixing_parameters``.
        shuffle: ``False`` is the stored order, epoch after epoch; with one source only.
        by: ``"batches"`` draws one label for the ``chunk`` samples of each of the ``sublanes`` lanes that make up a
            batch. Batches of another size have several sources. Explicit lanes have one sub-lane, so there ``chunk``
            has to be the batch size.

    Raises:
        UsageError: Arguments out of range, or a source without samples.

    Example: three samples of the first source for each of the second::

        >>> order = MixedOrder(
        ...     [np.array([6, 3]), np.array([2])], quotas=(3, 1), samples=8, seed=0, epoch=0,
        ...     parameters=OrderParameters(lanes=1, chunk=1, window=4),
        ... )
        >>> source, shard, row = order.locate(np.arange(8))
        >>> np.bincount(source)
        array([6, 2])
    """

    def __init__(
        self,
        counts: Sequence[Counts],
        *,
        quotas: Sequence[int] | Schedule,
        samples: int,
        seed: int,
        epoch: int,
        parameters: OrderParameters,
        shuffle: bool = True,
        by: MixBy = "samples",
    ) -> None:
        _check(len(counts), samples, checked_epoch(epoch), parameters, shuffle, by)
        if by == "batches":
            samples -= samples % (parameters.lanes * parameters.chunk)
        if not shuffle:
            parameters = OrderParameters(lanes=1, chunk=1, window=1)
        self.samples = samples
        self._epoch = epoch
        # by batches: the lanes of one virtual worker are labelled alike, a chunk at a time
        self._chunk = parameters.chunk if by == "batches" and len(counts) > 1 else 0
        self._sublanes = parameters.sublanes
        self._lanes = epoch_lanes(samples, parameters, seed=seed, epoch=epoch, together=bool(self._chunk))
        self._deal = Deal(self._lanes, parameters.chunk)
        # by batches: those that read together the walks that share labels, the same in every epoch
        self._labelled = epoch_lanes(samples, parameters, seed=seed, epoch=0)
        self._walks = Walks(self._lanes, parameters.groups)
        self._labels: _Labels | ScheduledLabels
        mix = _checked(quotas, len(counts))
        if isinstance(mix, Schedule):
            sharing = self._sublanes if self._chunk else 1  # lanes that are labelled alike
            self._progress = WalkProgress(samples, parameters, seed=seed)
            self._labels = ScheduledLabels(
                schedule_in_effect(mix, parameters, by),
                seed,
                parameters.lanes // sharing,
                _labelled_row(parameters, by),
                self._starts if _acts_at_positions(parameters, by) else None,
            )
        else:
            self._labels = _Labels(mix, seed, parameters.lanes)
        self._sources = [
            _Source(
                one if isinstance(one, WeightedDraws) else checked_counts(one),
                number,
                samples,
                seed=seed,
                parameters=parameters,
                shuffle=shuffle,
            )
            for number, one in enumerate(counts)
        ]

    def locate(self, positions: NDArray[np.int64]) -> tuple[Integers, Integers, Integers]:
        """The stored sample at each position.

        Args:
            positions: int64 in [0, samples), shape (n,), in any order.

        Returns:
            Source, shard inside that source, and row inside that shard: int64, shape (n,) each.

        Raises:
            UsageError: A position out of range.
        """
        source, shard, row = self._find(positions, EpochOrder.locate_in_spans)
        return source, shard, row

    def locate_windows(self, positions: NDArray[np.int64]) -> tuple[Integers, ...]:
        """The same with the windows around: source, then as ``EpochOrder.locate_windows`` of that source."""
        return self._find(positions, EpochOrder.windows_in_spans)

    def _find(self, positions: NDArray[np.int64], how: _How) -> tuple[Integers, ...]:
        lane, offset = self._deal.lanes_of(checked_positions(positions, self.samples))
        span = self._lanes.span_of(lane)
        if self._chunk:
            walk, source, place = self._labelled_by_batches(span, offset)
        else:
            walk, place = self._walks.enter(self._epoch, span, offset)
            source, place = self._labelled_by_samples(walk, place, positions)
        return source, *gathered(source, lambda number, mine: self._sources[number].find(walk[mine], place[mine], how))

    def before(self, position: int) -> Integers:
        """How many samples of each source lie before a position, since the run began: int64 (sources,).

        Costs some microseconds a lane; with long blocks of labels, a permutation of one for each.

        Args:
            position: In [0, samples].
        """
        lane = np.arange(self._lanes.count)
        span, offset = self._lanes.span_of(lane), self._deal.before(position, lane)
        if not self._chunk:
            walk, place = self._walks.enter(self._epoch, span, offset)
            counted: Integers = self._counts_by_samples(walk, place, position).sum(axis=0)
            return counted
        key, turn, inside = self._turns(span, offset)
        found: Integers = self._labels.counts(key, turn).sum(axis=0) * self._chunk
        source, _ = self._labels.find(key, turn)
        np.add.at(found, source, inside)
        return found

    def _key(self, walk: Integers) -> Integers:
        """The row of scheduled labels of each walk: neighbors in the order of consumption compensate each other."""
        return self._labelled.lane_of(walk)

    def _starts(self, key: Integers) -> Callable[[int], Integers]:
        """See `Starts`: an era begins at the place that a walk has reached at the position of the knot."""
        return self._progress.of(self._labelled.span_of(key))

    def _labelled_by_samples(self, walk: Integers, place: Integers, positions: Integers) -> tuple[Integers, Integers]:
        if isinstance(self._labels, ScheduledLabels):
            return self._labels.find(self._key(walk), place, self._epoch * self.samples + positions)
        return self._labels.find(walk, place)

    def _counts_by_samples(self, walk: Integers, place: Integers, position: int) -> Integers:
        if isinstance(self._labels, ScheduledLabels):
            return self._labels.counts(self._key(walk), place, self._epoch * self.samples + position)
        return self._labels.counts(walk, place)

    def _turns(self, span: Integers, offset: Integers) -> tuple[Integers, Integers, Integers]:
        """The key of the labels of each span, the turn in which each offset comes, and how far inside."""
        # whole rows make all lanes as long in every epoch, so each span may be a walk of its own; as it has to be, for
        # those walks to share labels that are read together, by whichever worker an epoch hands them to
        place = self._epoch * (self.samples // self._lanes.count) + offset
        return self._labelled.lane_of(span) // self._sublanes, *divmod(place, self._chunk)

    def _labelled_by_batches(self, span: Integers, offset: Integers) -> tuple[Integers, Integers, Integers]:
        key, turn, inside = self._turns(span, offset)
        source, turn = self._labels.find(key, turn)
        return span, source, turn * self._chunk + inside


class _Labels:
    """Endless rows of labels, one for each key below ``rows``, in blocks with exactly their quota of each source."""

    def __init__(self, quotas: tuple[int, ...], seed: int, rows: int) -> None:
        self._quotas = np.array(quotas, np.int64)
        self._firsts = np.cumsum(self._quotas) - self._quotas
        self._multiset = np.repeat(np.arange(len(quotas)), quotas)
        self._seed = seed
        self._held = HeldPermutations(rows, len(self._multiset))

    def find(self, key: Integers, place: Integers) -> tuple[Integers, Integers]:
        """The label at each place of the row of each key, and how many places of that label lie before it."""
        if len(self._quotas) == 1 or len(place) == 0:
            return np.zeros_like(place), place
        size = len(self._multiset)
        block, inside = divmod(place, size)
        slot = self._held.through(key, block, inside, size=np.full_like(key, size), make=self._permutation)
        source = self._multiset[slot]
        return source, block * self._quotas[source] + slot - self._firsts[source]

    def counts(self, key: Integers, place: Integers) -> Integers:
        """How many places of each source lie before a place of each row: (n, sources)."""
        block, inside = divmod(place, len(self._multiset))
        # lanes that share labels are mostly as far: each part of a block is counted once
        parts, of = np.unique(np.stack([key, block, inside], axis=1), axis=0, return_inverse=True)
        together = max(1, _LABELS_TOGETHER // len(self._multiset))
        counted = [self._begun(parts[first : first + together]) for first in range(0, len(parts), together)]
        begun = np.concatenate([np.empty((0, len(self._quotas)), np.int64), *counted])
        found: Integers = block[:, None] * self._quotas + begun[of.reshape(-1)]
        return found

    def _begun(self, parts: Integers) -> Integers:
        """How many places of each source lie in beginnings of blocks, each a key, number, length: (n, sources)."""
        sources, ends = len(self._quotas), parts[:, 2]
        labels = self._in_blocks(parts[:, 0].tolist(), parts[:, 1].tolist()) + sources * np.arange(len(parts))[:, None]
        before = np.arange(labels.shape[1]) < ends[:, None]
        counted: Integers = np.bincount(labels[before], minlength=sources * len(parts)).reshape(-1, sources)
        return counted

    def _permutation(self, key: int, block: int, size: int) -> Integers:
        """Place in the block -> slot of the multiset, where the slots of each label come in their order."""
        slots = np.empty(size, np.int64)
        slots[np.argsort(self._in_blocks([key], [block])[0], kind="stable")] = np.arange(size)
        return slots

    def _in_blocks(self, keys: Sequence[int], blocks: Sequence[int]) -> Integers:
        """The label at each place of some blocks: (blocks, places)."""
        raw = np.empty((len(keys), len(self._multiset)), np.uint64)
        for row, key, block in zip(raw, keys, blocks, strict=True):
            row[:] = rng.words(len(row), seed=self._seed, domain=rng.Domain.MIXTURE, a=key, b=block)
        found: Integers = self._multiset[rng.permutation(raw)]
        return found


class _Source:
    """One source as endless walks.

    One for each walk of the mixture, where the source has enough samples for so many lanes. Otherwise several
    neighbours take turns on one walk, so that spans are long enough to be shuffled.

    Args:
        counts: Samples of its shards, or how they are drawn.
        number: Which source.
        samples: Positions of an epoch of the mixture.
        seed: Seed of the run.
        parameters: Of the mixture.
        shuffle: Whether its epochs are shuffled.
    """

    def __init__(
        self, counts: Counts, number: int, samples: int, *, seed: int, parameters: OrderParameters, shuffle: bool
    ) -> None:
        total, mixed_lanes = samples_of(counts), parameters.lanes
        if total == 0:
            raise UsageError(f"source {number} has no samples", hint="leave it out of the mixture")
        self._sharers = 1
        self._shards: Integers | None = None
        if total < parameters.groups or (
            total < samples and not fills_lanes(total, lanes=parameters.lanes, chunk=parameters.chunk)
        ):
            parameters = _fewer_lanes(total, parameters)
            self._sharers = mixed_lanes // parameters.lanes
            self._shards, counts = without_empty(counts)  # a filter may leave few samples in very many shards
        self._walks = Walks(Lanes(total, parameters), parameters.groups)
        if number:
            seed = int(rng.words(1, seed=seed, domain=rng.Domain.SOURCE, a=number)[0])
        most = 4 + 2 * mixed_lanes // total  # two, but where walks outnumber samples
        self._epochs = HeldEpochs(counts, most, seed=seed, parameters=parameters, shuffle=shuffle)

    def find(self, walk: Integers, place: Integers, how: _How) -> tuple[Integers, ...]:
        """Shard, row and what else is asked for at each place of each walk of the mixture."""
        if self._sharers > 1:
            walk, turn = divmod(walk, self._sharers)
            place = place * self._sharers + turn
        epoch, span, offset = self._walks.find(walk, place)
        shard, *rest = gathered(epoch, lambda number, now: how(self._epochs[number], span[now], offset[now]))
        return (shard if self._shards is None else self._shards[shard]), *rest


def _fewer_lanes(samples: int, parameters: OrderParameters) -> OrderParameters:
    """Parameters for a source too small for all lanes of a mixture: a whole fraction of them, of one window each."""
    lanes = max(
        (n for n in _divisors(parameters.lanes) if fills_lanes(samples, lanes=n, chunk=parameters.chunk)), default=1
    )
    window = max(parameters.window, min(_MOST_WINDOW, -(-samples // lanes)))
    return OrderParameters(lanes=lanes, chunk=parameters.chunk, window=window, version=parameters.version)


def _divisors(n: int) -> list[int]:
    small = [d for d in range(1, math.isqrt(n) + 1) if n % d == 0]
    return small + [n // d for d in small]


def _check(sources: int, samples: int, epoch: int, parameters: OrderParameters, shuffle: bool, by: MixBy) -> None:
    if by not in get_args(MixBy):
        hint = did_you_mean(str(by), get_args(MixBy)) + "use 'samples' or 'batches'"
        raise UsageError(f"sources are mixed by samples or by batches, got by={by!r}", hint=hint)
    if samples < 0:
        raise UsageError(f"samples must not be negative, got {samples}", hint="pass the positions of an epoch")
    if not shuffle and sources != 1:
        raise UsageError(f"only one source can be read in stored order, got {sources}", hint="mix with shuffle=True")
    if by == "batches" and parameters.sublanes > 1 and not parameters.spread:
        raise UsageError(
            f"by='batches' needs lanes that are a multiple of sublanes, ranks * virtual times as many, got "
            f"{parameters.lanes} and {parameters.sublanes}",
            hint="leave lanes to its default",
        )
    if (epoch + 1) * (samples + parameters.lanes) >= 1 << 62:
        raise UsageError(
            f"epoch {epoch} of {samples} positions is beyond 2**62 positions of the run", hint="use smaller epochs"
        )


def _checked(quotas: Sequence[int] | Schedule, sources: int) -> tuple[int, ...] | Schedule:
    return checked_schedule(quotas, sources) if isinstance(quotas, Schedule) else checked_quotas(quotas, sources)


def schedule_in_effect(schedule: Schedule, parameters: OrderParameters, by: MixBy) -> Schedule:
    """The schedule with its knots where they take effect: at their positions, or by batches at whole rows of chunks.

    Before order version 3, mixtures by samples use whole rows of lanes. Chunks bring the places of such a row up to a
    row of chunks early or late.
    """
    return schedule if _acts_at_positions(parameters, by) else schedule.in_rows(_labelled_row(parameters, by))


def _labelled_row(parameters: OrderParameters, by: MixBy) -> int:
    """Positions in which each lane has one label: by batches, the label of a chunk."""
    return parameters.lanes * (parameters.chunk if by == "batches" else 1)


def _acts_at_positions(parameters: OrderParameters, by: MixBy) -> bool:
    return by == "samples" and parameters.version >= SCHEDULED_VERSION


def mixing_parameters(
    totals: Sequence[int],
    quotas: Sequence[int] | Schedule,
    *,
    samples: int,
    batch_size: int | None,
    world_size: int,
    num_workers: int,
    mean_bytes: float,
    groups: int = 1,
    largest_block: int = 0,
    lanes: int | None = None,
    chunk: int | None = None,
    window: int | None = None,
) -> OrderParameters:
    """The parameters for a mixture: those of a data set of its size, whatever the sizes of its sources.

    Args:
        totals: Samples of each source.
        quotas: Of each source, its samples in a block of labels; or a schedule.
        samples: Positions of an epoch of the mixture (E).
        batch_size: See ``default_parameters``, as for the other arguments.
        world_size: Ranks.
        num_workers: DataLoader workers a rank.
        mean_bytes: Mean stored bytes of a sample of the mixture.
        groups: Affinity groups.
        largest_block: Of all sources.
        lanes: In place of the default number of lanes.
        chunk: In place of the default chunk.
        window: In place of the default window.

    Raises:
        UsageError: A number out of range, or an empty source.

    Example::

        >>> shape = {"batch_size": 128, "world_size": 1, "num_workers": 4, "mean_bytes": 1e4}
        >>> mixing_parameters([10**6, 40], [9, 1], samples=10**6, **shape).lanes
        256
    """
    _checked(quotas, len(totals))
    if min(totals) < 1:
        raise UsageError(f"source {list(totals).index(min(totals))} has no samples", hint="leave it out of the mixture")
    return default_parameters(
        samples,
        batch_size=batch_size,
        world_size=world_size,
        num_workers=num_workers,
        mean_bytes=mean_bytes,
        shuffle=True,
        groups=groups,
        largest_block=largest_block,
        lanes=lanes,
        chunk=chunk,
        window=window,
    )
