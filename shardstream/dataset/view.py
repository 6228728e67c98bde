"""Which samples of a data set are streamed: a split, a filter by an index column, the first n; nothing is rewritten.

A view is a range of rows of each shard, or the rows among them that match a filter, cut off at a count. So it costs
two or three integers a shard, and which row is meant is found when the shard's index is opened.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import FieldError, UsageError, did_you_mean
from shardstream.order import SplitBy, split_ranges, take_counts
from shardstream.shards.fields import FieldType, ValuesType
from shardstream.shards.index import ShardIndex
from shardstream.shards.manifest import Manifest, class_label, unknown_field
from shardstream.shards.scalars import to_comparables
from shardstream.threads import each

Split: TypeAlias = tuple[str, Mapping[str, float | str]]
Exact: TypeAlias = tuple[tuple[str, tuple[Any, ...]], ...]

SCANNERS = 8  # threads that read indexes; more gain nothing on a disk and little on a store


@dataclass(frozen=True, slots=True)
class ViewSpec:
    """What a user asked for, as JSON-able values; the identity of the view.

    Attributes:
        split: Part, shares by name as decimal strings, and whether samples or shards are split.
        where: Allowed values by column, sorted; of a column that stands there twice, those that are in both.
        take: How many samples at most.
    """

    split: tuple[str, tuple[tuple[str, str], ...], SplitBy] | None = None
    where: Exact = ()
    take: int | None = None

    @classmethod
    def of(cls, split: Split | None, split_by: SplitBy) -> ViewSpec:
        """The spec of ``split=`` and ``split_by=``.

        Raises:
            UsageError: They are not of the right form; `split_ranges` checks the shares.
        """
        return cls(split=_split_of(split, split_by))

    def narrowed(self, exact: Exact) -> ViewSpec:
        """The samples of this that have these values, too, in whichever order that is said.

        Raises:
            UsageError: The first so many samples were taken already.
        """
        if self.take is not None:
            raise UsageError(
                f"where cannot narrow down the first {self.take} samples that take() left",
                hint="filter first, and take then: ds.filter(...).take(n)",
            )
        both = sorted({*self.where, *exact}, key=lambda one: (one[0], repr(one[1])))
        return ViewSpec(self.split, tuple(both))

    def taking(self, count: Any) -> ViewSpec:
        """The first ``count`` samples of this."""
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise UsageError(f"take needs a number of samples, got {count!r}", hint="pass an integer from 0 on")
        return ViewSpec(self.split, self.where, count if self.take is None else min(count, self.take))

    @property
    def whole(self) -> bool:
        """Whether this is the whole data set."""
        return self == ViewSpec()

    def as_json(self) -> Any:
        """For fingerprints."""
        return [self.split, self.where, self.take]

    def __str__(self) -> str:
        parts = [] if self.split is None else [f"split {self.split[0]!r}"]
        parts += [f"{name} in {list(values[:8])}{'...' if len(values) > 8 else ''}" for name, values in self.where]
        parts += [] if self.take is None else [f"the first {self.take}"]
        return ", ".join(parts)


def _split_of(split: Any, by: SplitBy) -> tuple[str, tuple[tuple[str, str], ...], SplitBy] | None:
    if by not in get_args(SplitBy):
        hint = f"{did_you_mean(str(by), get_args(SplitBy))}write split_by='samples', or leave it out"
        raise UsageError(f"split_by must be 'samples' or 'shards', got {by!r}", hint=hint)
    if split is None:
        return None
    if not (isinstance(split, tuple | list) and len(split) == 2 and isinstance(split[1], Mapping)):
        raise UsageError(
            f"split must be a name and the shares of all parts, got {split!r}",
            hint='for example split=("val", {"train": 0.98, "val": 0.02})',
        )
    return str(split[0]), tuple((str(name), str(share)) for name, share in split[1].items()), by


def exact_of(name: str, values: Any) -> tuple[Any, ...]:
    """The values that ``where=`` lists for a column, each once, sorted.

    Raises:
        UsageError: One is neither a number nor a name.
    """
    values = plain(values)
    if isinstance(values, str | bytes) or not isinstance(values, Sequence | set | frozenset):
        values = [values]
    hint = 'for example where={"cls": [1, 5, 9]}; nothing equals NaN, a transform can look for it'
    listed = {checked_value(name, value, option="where", hint=hint) for value in values}
    return tuple(sorted(listed, key=lambda value: (isinstance(value, str), value)))


def checked_value(name: str, value: Any, *, option: str, hint: str) -> str | float:
    """What a column may be compared with, as a plain value.

    Raises:
        UsageError: It is not a number, nor a class name; names the option that it was given to.
    """
    value = plain(value)
    if not isinstance(value, str | bool | int | float) or value != value:
        raise UsageError(
            f"{option} can compare {name!r} with numbers and class names, not with {value!r}", field=name, hint=hint
        )
    return value


def plain(value: Any) -> Any:
    """Arrays as lists, their elements as Python's numbers, whosever they are: numpy's, torch's, pandas'."""
    return value.tolist() if hasattr(value, "tolist") else value


Matcher: TypeAlias = Callable[[ShardIndex], NDArray[np.bool_]]


def matcher_of(spec: ViewSpec, manifest: Manifest) -> Matcher | None:
    """What finds the samples of a shard that `ViewSpec.where` asks for, by its index alone; ``None`` for all.

    Compares in the column's own dtype: exactly, and floats as they are rounded where they are stored.

    Raises:
        FieldError: A column that is not stored, or is not a number in the index, a class that is not known, or a value
            that the column cannot hold.
    """
    if not spec.where:
        return None
    wanted = [(name, in_column(name, values, manifest, option="where")) for name, values in spec.where]

    def matches(index: ShardIndex) -> NDArray[np.bool_]:
        found = np.ones(index.samples, np.bool_)
        for name, values in wanted:
            column = index.columns.get(name)
            if column is None:
                return np.zeros(index.samples, np.bool_)
            assert column.values is not None
            found &= np.isin(column.values, values)
            valid = column.valid_rows(np.arange(index.samples))
            if valid is not None:
                found &= valid
        return found

    return matches


def scalar_type(name: str, manifest: Manifest, *, option: str = "where", counts: bool = False) -> FieldType:
    """The type of a column of numbers that stands in the indexes.

    Args:
        name: The field.
        manifest: Of the data set.
        option: What asks for it, for messages.
        counts: Whether a field of ``values:DTYPE`` will do, too: how many numbers each sample has stands there.

    Raises:
        FieldError: There is no such field, or its values do not stand there.
    """
    fields, url = manifest.fields, manifest.url
    kind = fields.get(name)
    if kind is None:
        raise unknown_field(name, fields, url=url)
    scalars = [
        field for field, one in fields.items() if one.kind == "scalar" or (counts and isinstance(one, ValuesType))
    ]
    if name not in scalars:
        others = "; by other values: where=ss.find_rows(url, predicate)"
        raise FieldError(
            f"{option} needs a number that stands in the index, and {name!r} is {kind}",
            url=url,
            field=name,
            hint="there are " + (", ".join(scalars) or "none") + (others if option == "where" else ""),
        )
    return kind


def in_column(name: str, values: Sequence[Any], manifest: Manifest, *, option: str) -> NDArray[Any]:
    """Values, class names among them, in the dtype of a column of numbers; ``option`` is what they were given to.

    Raises:
        FieldError: As `scalar_type`; a class that is not known, or a value that the column cannot hold.
    """
    kind = scalar_type(name, manifest, option=option)
    numbers = [_label(value, name, manifest, option) if isinstance(value, str) else value for value in values]
    try:
        return to_comparables(kind, numbers)
    except FieldError as error:
        raise FieldError(
            f"{option} asks for what the column cannot hold: {error.what}",
            url=manifest.url,
            field=name,
            hint="leave it out: no sample can have it",
        ) from None


def _label(value: str, name: str, manifest: Manifest, option: str) -> int:
    if manifest.classes is None:
        what = f"{option} asks for the class {value!r}, and the data set has no class names"
        raise FieldError(what, url=manifest.url, field=name, hint="write numbers, or pack it with classes= (--classes)")
    return class_label(value, manifest.classes, url=manifest.url, error=FieldError, field=name)


@dataclass(frozen=True, slots=True)
class DatasetView:
    """The samples of a view, shard by shard. Arrays of length shards.

    Attributes:
        counts: Samples of the view; unsigned or int64.
        first_rows: int64, where in each shard the range of rows begins; ``None`` for 0.
        last_rows: int64, the ends of these ranges, before a filter and `ViewSpec.take`; ``None`` for all rows.
    """

    counts: NDArray[Any]
    first_rows: NDArray[np.int64] | None = None
    last_rows: NDArray[np.int64] | None = None

    def first_row(self, shard: int) -> int:
        """Where in a shard the range of rows begins."""
        return 0 if self.first_rows is None else int(self.first_rows[shard])

    def rows_of(self, shard: int, index: ShardIndex, matcher: Matcher | None) -> NDArray[np.int64] | int:
        """The rows of an open shard that the view's rows 0, 1, 2, ... are; a number where they just begin later."""
        first = self.first_row(shard)
        if matcher is None:
            return first
        last = index.samples if self.last_rows is None else int(self.last_rows[shard])
        return first + np.flatnonzero(matcher(index)[first:last])


def make_view(
    spec: ViewSpec,
    samples: NDArray[Any],
    count_matches: Callable[[int, int, int], int] | None,
    filtered: NDArray[np.int64] | None = None,
) -> tuple[DatasetView, NDArray[np.int64] | None]:
    """The view of a data set.

    Args:
        spec: What was asked for.
        samples: Samples of each shard.
        count_matches: With a filter: (shard, first row, last row) -> how many rows match.
        filtered: The same counts, if they are known already: the data is then not looked at.

    Returns:
        The view, and the counts after the filter, if there is one.

    Raises:
        UsageError: Shares that do not add up to 1, or a part that is none.
        DataError, StorageError: An index cannot be read.
    """
    view = DatasetView(samples)
    if spec.split is not None:
        part, shares, by = spec.split
        first, counts = split_ranges(samples.astype(np.int64), dict(shares), part, by=by)
        view = DatasetView(counts, first, first + counts)
    if count_matches is not None:
        if filtered is None:
            filtered = _scan(view, count_matches)
        view = DatasetView(filtered, view.first_rows, view.last_rows)
    if spec.take is not None:
        view = DatasetView(take_counts(view.counts.astype(np.int64), spec.take), view.first_rows, view.last_rows)
    return view, filtered


def _scan(view: DatasetView, count_matches: Callable[[int, int, int], int]) -> NDArray[np.int64]:
    def count(shard: int) -> int:
        size = int(view.counts[shard])
        first = view.first_row(shard)
        return count_matches(shard, first, first + size) if size else 0

    shards = range(len(view.counts))
    return np.fromiter(each(count, shards, at_once=SCANNERS, what="the indexes that where= looks at"), np.int64)
