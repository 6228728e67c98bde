"""How often each sample comes: weights by a stored number, or by the value of a label, as integers.

Weights are read in two scans of the indexes: the first finds what they add up to, or which labels occur, which says
how they become integers (`WholeWeights`); the second adds these up, shard by shard (`Weighing`). From then on a process
holds a number a shard, and about a byte a row of the shards that are open, see ``drawn_rows.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, TypeAlias

import numpy as np
import xxhash
from numpy.typing import NDArray

from shardstream.dataset.shared import SharedWords
from shardstream.dataset.view import SCANNERS, checked_value, in_column, plain, scalar_type
from shardstream.errors import FieldError, UsageError, did_you_mean
from shardstream.order import WEIGHT_BITS, as_fraction
from shardstream.shards.index import ShardIndex
from shardstream.shards.manifest import Manifest
from shardstream.sizes import plural
from shardstream.threads import each

Integers = NDArray[np.int64]
Weights: TypeAlias = str | Mapping[str, Mapping[Any, float | str | Fraction] | Literal["balanced"]]

_FORMS = 'weights="weight" for a field that holds them, weights={"cls": {"cat": 3, "dog": 1}}, or {"cls": "balanced"}'
_SLAB = 1 << 16  # rows that are looked at together; fingerprints depend on it
_MOST_LABELS = 1 << 20
_FLOAT_BITS = 53


@dataclass(frozen=True, slots=True, eq=False)
class ViewedShard:
    """A shard through a view.

    Attributes:
        index: Its index.
        count: How many rows the view has of it.
        rows: Which rows: the first ``count`` of these; a number where they follow one another from there on.
    """

    index: ShardIndex
    count: int
    rows: Integers | int

    def stored(self, rows: Integers) -> Integers:
        """The rows of the shard that these rows of the view are."""
        return rows + self.rows if isinstance(self.rows, int) else self.rows[rows]

    def slabs(self) -> Iterator[Integers]:
        """The stored rows, some at a time: all of a shard would be a list of samples."""
        for start in range(0, self.count, _SLAB):
            yield self.stored(np.arange(start, min(start + _SLAB, self.count)))

    def missing(self, field: str, rows: Integers) -> NDArray[np.bool_]:
        """Which of these stored rows have no value of a field: bool (n,)."""
        column = self.index.columns.get(field)
        if column is None:
            return np.ones(len(rows), np.bool_)
        valid = column.valid_rows(rows)
        return np.zeros(len(rows), np.bool_) if valid is None else ~valid

    def wrong(self, field: str, rows: Integers, wrong: NDArray[np.bool_], what: str, hint: str) -> FieldError:
        """The error for the first of these stored rows that is wrong."""
        row, index = int(rows[wrong][0]), self.index
        place: dict[str, Any] = {"url": index.url or None, "shard": index.path, "sample": row, "key": index.keys[row]}
        return FieldError(f"the sample {what}", **place, field=field, hint=hint)


@dataclass(frozen=True, slots=True)
class WeightSpec:
    """What a user asked for.

    Attributes:
        field: The field that holds weights, or labels.
        labels: Weight of each label, as it was written; ``()``: each label has the same share; ``None``: the field is
            the weight.
    """

    field: str
    labels: tuple[tuple[Any, str], ...] | None = None

    @classmethod
    def of(cls, weights: Any) -> WeightSpec:
        """The spec of ``weights=``.

        Raises:
            UsageError: It is not of a known form, or a weight is not a number from 0 on.
        """
        if isinstance(weights, str) and weights:
            return cls(weights)
        if not isinstance(weights, Mapping) or len(weights) != 1:
            raise UsageError(f"weights must name one field, got {weights!r}", hint=f"write {_FORMS}")
        [(field, of_labels)] = weights.items()
        if of_labels == "balanced":
            return cls(str(field), ())
        if not isinstance(of_labels, Mapping) or not of_labels:
            hint = did_you_mean(of_labels, ["balanced"]) if isinstance(of_labels, str) else ""
            raise UsageError(
                f"the weights of {field!r} must be a weight for each label, or 'balanced', got {of_labels!r}",
                field=str(field),
                hint=f"{hint}write {_FORMS}",
            )
        hint = f"write {_FORMS}"
        labels = {checked_value(field, one, option="weights", hint=hint): one for one in of_labels}
        return cls(str(field), tuple((label, _written(label, of_labels[one])) for label, one in labels.items()))

    def __str__(self) -> str:
        if self.labels is None:
            return f"weighted by {self.field!r}"
        return f"weighted by the label {self.field!r}" if self.labels else f"{self.field!r} balanced"


def _written(label: Any, weight: Any) -> str:
    exact = as_fraction(plain(weight), f"the weight of {label!r}")
    if exact < 0:
        raise UsageError(f"weights must not be negative, got {weight!r} for {label!r}", hint="0 means never")
    return str(exact)


@dataclass(frozen=True, slots=True, eq=False)
class WholeWeights:
    """How values of a field become whole weights, in every process alike.

    Attributes:
        field: The field.
        power: Without labels: weights are the values times 2 to the power of this, rounded, but at least 1 above 0.
        labels: The values that labels have, ascending; ``None`` where the field is the weight.
        weights: int64, the weight of each of these.
    """

    field: str
    power: int = 0
    labels: NDArray[Any] | None = None
    weights: Integers | None = None

    def alike(self, index: ShardIndex, rows: Integers) -> Integers:
        """What is equal for stored rows that are to be drawn evenly among themselves: label or weight, int64 (n,)."""
        if self.labels is None:
            return self.of(index, rows)
        at: Integers = np.searchsorted(self.labels, _values(index, self.field)[rows])
        return np.minimum(at, len(self.labels) - 1)  # where the data are others by now; the sum of weights tells

    def of(self, index: ShardIndex, rows: Integers) -> Integers:
        """The weights of stored rows that were found to have some: int64 (n,)."""
        if self.weights is not None:
            return self.weights[self.alike(index, rows)]
        values = _values(index, self.field)[rows]
        if values.dtype.kind == "f":
            found = np.rint(np.ldexp(values.astype(np.float64), self.power))
        else:
            found = values.astype(np.uint64) >> np.uint64(-self.power)
        return np.where(values > 0, np.maximum(found.astype(np.int64), 1), 0)


@dataclass(frozen=True, slots=True, eq=False)
class Weighing:
    """Weights as integers, and how they add up. It is the same in all processes: copies share what grows with shards.

    Attributes:
        whole: How values become integers.
        words: The weight of all rows before each shard, and of all rows at last: shards + 1.
        digest: What identifies the weights of all rows.
    """

    whole: WholeWeights
    words: SharedWords
    digest: str

    @property
    def begins(self) -> Integers:
        """The weight of all rows before each shard, and of all rows at last: int64 (shards + 1,)."""
        return self.words.words


def weigh(
    spec: WeightSpec,
    manifests: Sequence[Manifest],
    counts: NDArray[Any],
    view: Callable[[int], ViewedShard],
    *,
    earlier: bool = False,
) -> Weighing:
    """The weights of all samples of a view; scans the indexes twice.

    Args:
        spec: What was asked for.
        manifests: Of the data sets.
        counts: Samples of the view in each shard.
        view: Opens a shard.
        earlier: This is an earlier version of what was asked for, so labels may not occur yet.

    Raises:
        FieldError: A field that is not a number in the index; a sample without a weight, or a negative or infinite one,
            or NaN; a label that does not occur.
        UsageError: All weights are 0, or there are no samples.
        DataError, StorageError: An index cannot be read.
    """
    for manifest in manifests:
        scalar_type(spec.field, manifest, option="weights")
    filled = np.flatnonzero(counts).tolist()

    def scan(look: Callable[[ViewedShard], Any]) -> Iterator[Any]:
        return each(lambda shard: look(view(shard)), filled, at_once=SCANNERS, what="the indexes that weights= reads")

    samples = int(counts.sum(dtype=np.int64))
    if spec.labels is None:
        whole = _of_numbers(spec.field, samples, scan(lambda one: _sums(one, spec.field)))
    else:
        found = _merged(scan(lambda one: _labels(one, spec.field)), spec.field)
        whole = _of_labels(spec, manifests, *found, earlier=earlier)
    words = SharedWords(len(counts) + 1)
    hashes = xxhash.xxh3_128()

    def add(viewed: ViewedShard) -> tuple[int, bytes]:
        total, hashed = 0, xxhash.xxh3_128()
        for rows in viewed.slabs():
            weights = whole.of(viewed.index, rows)
            total += int(weights.sum())
            for numbers in (weights, whole.alike(viewed.index, rows)):
                hashed.update(numbers.astype("<i8").tobytes())
        return total, hashed.digest()

    for shard, (total, hashed) in zip(filled, scan(add), strict=True):
        words.words[shard + 1] = total
        hashes.update(hashed)
    np.cumsum(words.words, out=words.words)
    if not words.words[-1]:
        what = "all weights are 0" if samples else "there are no samples to draw from"
        raise UsageError(
            f"{what}, so no sample can be drawn", url=manifests[0].url, field=spec.field, hint="leave weights= out"
        )
    return Weighing(whole, words, hashes.hexdigest())


def _values(index: ShardIndex, field: str) -> NDArray[Any]:
    values = index.column(field).values
    assert values is not None
    return values


def _present(viewed: ViewedShard, field: str) -> Iterator[tuple[Integers, NDArray[Any]]]:
    """The rows of the view and their values, some at a time; FieldError where one is missing."""
    for rows in viewed.slabs():
        missing = viewed.missing(field, rows)
        if missing.any():
            raise viewed.wrong(field, rows, missing, "has no value to be weighted by", "leave it out, as by where=")
        yield rows, _values(viewed.index, field)[rows]


def _sums(viewed: ViewedShard, field: str) -> tuple[float, Fraction]:
    """The largest weight of a shard, and what all add up to; FieldError where one is not a number from 0 on."""
    largest: float = 0
    total = Fraction(0)
    for rows, values in _present(viewed, field):
        wrong = ~(np.isfinite(values) & (values >= 0))
        if wrong.any():
            what = f"has the weight {values[wrong][0].item()!r}"
            raise viewed.wrong(field, rows, wrong, what, "weights are finite numbers from 0 on; 0 means never")
        largest = max(largest, values.max().item())
        total += _sum(values)
    return largest, total


def _sum(values: NDArray[Any]) -> Fraction:
    """What at most 2^31 numbers from 0 on add up to, each float being rounded up to a power of two.

    So it is the same on every machine, as sums of floats are not, and twice as much at most.
    """
    if values.dtype.kind == "f":
        powers, counts = np.unique(np.frexp(values[values > 0].astype(np.float64))[1], return_counts=True)
        parts = zip(powers.tolist(), counts.tolist(), strict=True)
        return sum((count * Fraction(2) ** power for power, count in parts), Fraction(0))
    high, low = divmod(values.astype(np.uint64), np.uint64(1 << 32))
    return Fraction((int(high.sum()) << 32) + int(low.sum()))


def _of_numbers(field: str, samples: int, sums: Iterable[tuple[float, Fraction]]) -> WholeWeights:
    """Integers as they are, if they add up to less than 2^60; else, and floats, with as many bits as that leaves."""
    largest: float = 0
    total = Fraction(0)
    for most, weight in sums:
        largest, total = max(largest, most), total + weight
    floats = type(largest) is float
    if not total or (not floats and total < 1 << WEIGHT_BITS):
        return WholeWeights(field)
    power = _log2(((1 << WEIGHT_BITS) - 1 - samples) / total)  # what is rounded up adds 1 a sample at most
    return WholeWeights(field, min(power, _FLOAT_BITS - math.frexp(largest)[1]) if floats else power)


def _log2(number: Fraction) -> int:
    """The logarithm of a number above 0, rounded down."""
    power = number.numerator.bit_length() - number.denominator.bit_length()
    return power if number >= Fraction(2) ** power else power - 1


Labels: TypeAlias = tuple[NDArray[Any], Integers]
"""Different values, ascending, and how many samples have each."""


def _labels(viewed: ViewedShard, field: str) -> Labels:
    """Those of a shard; FieldError where one is NaN."""

    def found() -> Iterator[Labels]:
        for rows, values in _present(viewed, field):
            wrong = values != values
            if wrong.any():
                raise viewed.wrong(field, rows, wrong, "has the label nan", "leave it out, as by where=")
            yield np.unique(values, return_counts=True)

    return _merged(found(), field)


def _merged(parts: Iterable[Labels], field: str) -> Labels:
    labels: NDArray[Any] = np.empty(0, np.bool_)  # which any dtype takes in
    counts = np.empty(0, np.int64)
    for more, having in parts:
        labels, which = np.unique(np.concatenate([labels, more]), return_inverse=True)
        if len(labels) > _MOST_LABELS:
            raise FieldError(
                f"more than {_MOST_LABELS:,} different values are too many for labels",
                field=field,
                hint="store the weight itself, and name that field",
            )
        together = np.concatenate([counts, having])
        counts = np.zeros(len(labels), np.int64)
        np.add.at(counts, which, together)
    return labels, counts


def _of_labels(
    spec: WeightSpec, manifests: Sequence[Manifest], labels: NDArray[Any], counts: Integers, *, earlier: bool
) -> WholeWeights:
    """The weight of each label that occurs.

    Raises:
        FieldError: A label that was given does not occur, or one that occurs was not given.
    """
    if not len(labels):
        return WholeWeights(spec.field, labels=labels, weights=counts)
    if spec.labels == ():
        weights = [Fraction(1, count) for count in counts.tolist()]
        return WholeWeights(spec.field, labels=labels, weights=whole_weights(weights, counts.tolist()))
    assert spec.labels is not None
    manifest = next((one for one in manifests if one.classes is not None), manifests[0])
    names = [label for label, _ in spec.labels]
    given = in_column(spec.field, names, manifest, option="weights")
    place = {"url": manifest.url, "field": spec.field}
    unknown = np.flatnonzero(~np.isin(given, labels))
    if len(unknown) and not earlier:
        raise FieldError(f"no sample has the label {names[unknown[0]]!r}", **place, hint="leave it out of weights=")
    _, first_named = np.unique(given, return_index=True)
    again = np.setdiff1d(np.arange(len(given)), first_named)
    if len(again):
        raise FieldError(f"weights= names the label {names[again[0]]!r} twice", **place, hint="name it once")
    absent = np.setdiff1d(labels, given)
    if len(absent):
        first = absent[0].item()
        classes = manifest.classes if any(isinstance(one, str) for one in names) else None
        name = f" ({classes[first]!r})" if classes and type(first) is int and 0 <= first < len(classes) else ""
        others = f", nor for {plural(len(absent) - 1, 'other')}" if len(absent) > 1 else ""
        raise FieldError(
            f"weights= gives no weight for the label {first!r}{name}{others}",
            **place,
            hint="give every label a weight, 0 for never, or leave samples out by where=",
        )
    by_label = dict(zip(given.tolist(), (Fraction(weight) for _, weight in spec.labels), strict=True))
    weights = [by_label[label] for label in labels.tolist()]
    return WholeWeights(spec.field, labels=labels, weights=whole_weights(weights, counts.tolist()))


def whole_weights(weights: Sequence[Fraction], counts: Sequence[int]) -> Integers:
    """Weights as integers: in their exact ratio if those of all samples stay below 2^60, else to 2^-59 of all.

    Args:
        weights: From 0 on.
        counts: How many samples have each.

    Example::

        >>> whole_weights([Fraction(1, 6), Fraction(1, 4), Fraction(0)], [6, 4, 9])
        array([2, 3, 0])
    """
    common = 1
    for weight in weights:
        common = math.lcm(common, weight.denominator)
        if common.bit_length() > WEIGHT_BITS:
            break
    else:
        whole = [int(weight * common) for weight in weights]
        shared = math.gcd(*whole) or 1
        if sum(map(math.prod, zip(whole, counts, strict=True))) // shared < 1 << WEIGHT_BITS:
            return np.array([one // shared for one in whole], np.int64)
    total = sum((weight * count for weight, count in zip(weights, counts, strict=True)), Fraction(0))
    most = (1 << WEIGHT_BITS - 1) / total
    return np.array([max(int(weight * most), 1) if weight else 0 for weight in weights], np.int64)
