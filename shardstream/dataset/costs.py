"""Batches of about the same cost: which samples of a shard are in which, by a stored number and a budget.

Nothing is planned over the whole data set. The view's rows of a shard are cut into windows of about ``WINDOW``
batches, by what they cost one after another, and each window is dealt to its batches, the most expensive sample first,
each to the batch that costs least so far (*LPT*: R. L. Graham, "Bounds on multiprocessing timing anomalies", 1969). How
many batches a shard has is found when a data set is opened, by one scan of the indexes; which samples they are is found
again by whoever opens the shard. So a process holds a number a shard, and one to four bytes a row of the open shards.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from shardstream.dataset.shared import SharedWords
from shardstream.dataset.view import SCANNERS, scalar_type
from shardstream.dataset.weights import ViewedShard
from shardstream.errors import UsageError
from shardstream.order import as_fraction
from shardstream.shards.bins import inside
from shardstream.shards.fields import ValuesType
from shardstream.shards.index import ShardIndex
from shardstream.shards.manifest import Manifest
from shardstream.threads import each

Integers = NDArray[np.int64]

WINDOW = 48  # batches that are dealt together, at least: fewer cost less evenly, more lie further apart in storage
_BUDGET = 1 << 30  # what a batch may cost, in the integers that costs become
_SLACK = 80  # of this many parts of the budget, one is left free where samples are small, since none fits exactly
_LARGEST = Fraction(10) ** 100
_FORM = 'write batch_size={"seconds": 120}: samples of 120 seconds together, by a stored number'


@dataclass(frozen=True, slots=True)
class CostSpec:
    """What a user asked for.

    Attributes:
        field: The field that says what a sample costs: a number, or numbers of which it counts how many there are.
        budget: What a batch may cost, as a fraction.
    """

    field: str
    budget: str

    @classmethod
    def of(cls, given: Any) -> CostSpec:
        """The spec of a ``batch_size=`` that names a field.

        Raises:
            UsageError: It is not of this form, or no positive number.
        """
        if not isinstance(given, Mapping) or len(given) != 1 or not isinstance(next(iter(given)), str):
            raise UsageError(f"batch_size must be a number of samples, or name one field, got {given!r}", hint=_FORM)
        [(field, budget)] = given.items()
        exact = as_fraction(budget, f"what a batch may cost of {field!r}")
        if not 1 / _LARGEST <= exact <= _LARGEST:
            what = f"what a batch may cost of {field!r} must be positive, and of 100 digits at most, got {budget!r}"
            raise UsageError(what, hint=_FORM)
        return cls(field, str(exact))

    @property
    def given(self) -> dict[str, float]:
        """As it is written."""
        return {self.field: float(Fraction(self.budget))}

    def __str__(self) -> str:
        return f"{float(Fraction(self.budget)):g} of {self.field!r}"


def sized(batch_size: Any) -> tuple[CostSpec | None, int | None]:
    """What a batch may cost, where it is not a number of samples; and how many positions of an epoch it is."""
    return (CostSpec.of(batch_size), 1) if isinstance(batch_size, Mapping) else (None, batch_size)


@dataclass(frozen=True, eq=False)
class Costs:
    """What a scan found; the same in all processes, which share what grows with shards.

    Attributes:
        spec: What was asked for.
        words: Batches of each shard, in memory for all of them.
        digest: What identifies the costs of all rows.
    """

    spec: CostSpec
    words: SharedWords
    digest: str

    @cached_property
    def batches(self) -> int:
        """The number of batches of all shards."""
        return int(self.words.words.sum())


class ShardBatches(NamedTuple):
    """Which rows of a shard are in which batch.

    Attributes:
        rows: The rows, batch by batch, in each in stored order: unsigned (rows of the view,).
        ends: Where each batch ends there: int64 (batches,).
    """

    rows: NDArray[Any]
    ends: Integers

    def members(self, numbers: Integers) -> tuple[Integers, Integers]:
        """Places in ``rows`` of all samples of some batches, batch by batch, and how many each has."""
        begins = np.where(numbers > 0, self.ends[numbers - 1], 0)
        counts = self.ends[numbers] - begins
        return np.repeat(begins, counts) + inside(counts), counts


def check_costs(spec: CostSpec, manifests: Sequence[Manifest]) -> None:
    """Refuse a field that is no cost in one of these datasets.

    Raises:
        FieldError: The index has no such field, or the field is no number.
    """
    for manifest in manifests:
        scalar_type(spec.field, manifest, option="batch_size", counts=True)


def count_batches(spec: CostSpec, counts: NDArray[Any], view: Callable[[int], ViewedShard]) -> Costs:
    """How many batches each shard has; scans the indexes once.

    Args:
        spec: What was asked for.
        counts: Samples of the view in each shard.
        view: Opens a shard.

    Raises:
        FieldError: A sample of the view has no cost, or a negative or infinite one, or NaN, or costs more than a batch
            may.
        DataError, StorageError: An index cannot be read.
    """
    filled = np.flatnonzero(counts).tolist()
    words, hashes = SharedWords(max(len(counts), 1)), xxhash.xxh3_128()

    def look(shard: int) -> tuple[int, bytes]:
        viewed = view(shard)
        costs = costs_of(viewed, spec)
        return len(dealt(costs)[1]), xxhash.xxh3_128_digest(costs.astype("<i8").tobytes())

    found = each(look, filled, at_once=SCANNERS, what="the indexes that batch_size= reads")
    for shard, (batches, hashed) in zip(filled, found, strict=True):
        words.words[shard] = batches
        hashes.update(hashed)
    return Costs(spec, words, hashes.hexdigest())


def shard_batches(viewed: ViewedShard, spec: CostSpec) -> ShardBatches:
    """The batches of a shard; raises as `count_batches`."""
    order, ends = dealt(costs_of(viewed, spec))
    rows = viewed.stored(order)
    return ShardBatches(rows.astype(np.min_scalar_type(max(viewed.index.samples - 1, 0))), ends)


def costs_of(viewed: ViewedShard, spec: CostSpec) -> Integers:
    """What each row of the view costs, a batch being allowed 2^30: int64 (rows,), rounded up, at least 1.

    Raises:
        FieldError: One has no cost, or more than a batch may.
    """
    field, rows, budget = spec.field, viewed.stored(np.arange(viewed.count)), Fraction(spec.budget)
    missing = viewed.missing(field, rows)
    if missing.any():
        what = "has no value, so that what it costs is unknown"
        raise viewed.wrong(field, rows, missing, what, "leave it out by where=")
    values = _values(viewed.index, field)[rows]
    strange = ~np.isfinite(values) | (values < 0)
    if strange.any():
        what = f"costs {values[strange][0].item()!r} of {field!r}"
        raise viewed.wrong(field, rows, strange, what, "costs are finite numbers from 0 on")
    with np.errstate(over="ignore"):
        scaled = np.ceil(values.astype(np.float64) * float(_BUDGET / budget))
    large = scaled > _BUDGET
    if large.any():
        value = values[large][0].item()
        hint = f'leave it out by where={{"{field}": ("<=", {float(budget):g})}}, or let batches cost more'
        raise viewed.wrong(field, rows, large, f"costs {value:g}, and a batch may cost {float(budget):g}", hint)
    found: Integers = np.maximum(scaled.astype(np.int64), 1)
    return found


def dealt(costs: Integers) -> tuple[Integers, Integers]:
    """Samples of a shard as batches: their numbers, batch by batch, and where each batch ends among them.

    Args:
        costs: Of each, 1 to 2^30: int64 (n,).
    """
    if not len(costs):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    total, before = int(costs.sum()), np.cumsum(costs) - costs
    batches = -(-total * _SLACK // (_BUDGET * (_SLACK - 1)))
    windows = max(batches // WINDOW, 1)  # the last one is no smaller: one batch more would cost it much
    firsts = [batches * number // windows for number in range(windows + 1)]
    cuts = [-(-total * first // batches) for first in firsts[1:-1]]
    bounds = [0, *np.searchsorted(before, cuts).tolist(), len(costs)]
    parts: list[Integers] = []
    for (first, beyond), (begin, end) in zip(pairwise(firsts), pairwise(bounds), strict=True):
        parts += [begin + part for part in _dealt_evenly(costs[begin:end], beyond - first)]
    return np.concatenate(parts), np.cumsum([len(part) for part in parts])


def _dealt_evenly(costs: Integers, batches: int) -> Iterator[Integers]:
    """A window's samples in so many batches, or as few more as it takes until none costs too much."""
    if not len(costs):
        return
    falling = np.argsort(-costs, kind="stable")
    in_order, more = costs[falling].tolist(), 1
    of, most = _least_loaded(in_order, batches := min(batches, len(costs)))
    while most > _BUDGET:
        of, most = _least_loaded(in_order, batches := min(batches + more, len(costs)))
        more += 1
    owner = np.empty(len(costs), np.int64)
    owner[falling] = of
    members = np.argsort(owner, kind="stable")
    yield from np.split(members, np.cumsum(np.bincount(owner, minlength=batches))[:-1])


def _least_loaded(costs: list[int], batches: int) -> tuple[list[int], int]:
    """For each cost the batch that had least before it, and what the most expensive batch costs."""
    loads = [(0, number) for number in range(batches)]
    of = []
    for cost in costs:
        load, number = loads[0]
        of.append(number)
        heapq.heapreplace(loads, (load + cost, number))
    return of, max(loads)[0]


def _values(index: ShardIndex, field: str) -> NDArray[Any]:
    """The number of each sample, or how many numbers it has."""
    column = index.column(field)
    if column.values is not None:
        return column.values
    sizes = column.sizes if column.raw_lengths is None else column.raw_lengths
    assert sizes is not None
    assert isinstance(column.type, ValuesType)
    return sizes // column.type.elements.itemsize
