"""``DatasetSource``: one data set, or several laid end to end, through a view: what exists, in no order."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from shardstream.dataset.conditions import Filter
from shardstream.dataset.costs import Costs, CostSpec, ShardBatches, check_costs, count_batches, shard_batches
from shardstream.dataset.drawn_rows import DrawnRows
from shardstream.dataset.joined import digest, joint_identity, merge_fields, samples_of
from shardstream.dataset.numbering import Numbering
from shardstream.dataset.opened import OpenedDataset
from shardstream.dataset.selected.row_set import RowSet
from shardstream.dataset.shared import SharedMemory, SharedWords
from shardstream.dataset.view import SCANNERS, DatasetView, Matcher, ViewSpec, make_view, matcher_of
from shardstream.dataset.weights import ViewedShard, Weighing, WeightSpec, weigh
from shardstream.errors import FieldError, FormatError, UsageError
from shardstream.order import WeightedDraws
from shardstream.shards.index import ShardIndex
from shardstream.shards.manifest import Manifest
from shardstream.threads import each

_ROWS = 1 << 20  # that a condition is asked about at once


class _Chosen(NamedTuple):
    """The rows that conditions left, once they were asked.

    Attributes:
        rows: The rows.
        texts: The conditions in a few words.
    """

    rows: RowSet
    texts: tuple[str, ...]


class DatasetSource:
    """The samples that a `ShardDataset` streams, numbered by shard and row of the view.

    Holds nothing a sample, and of each shard only what its data set's table and the view hold. Its pickle has
    addresses and fingerprints; what took a scan of the data travels in shared memory: counts, and rows that were
    chosen by more than values.

    Attributes:
        datasets: The data sets.
        manifests: The manifest of each data set.
        spec: The view.
        verify: Whether indexes are compared with their checksums.
        excluded: The stored rows that are treated as damaged, whatever the view; ``None`` for none.
        weights: How samples are weighted that are drawn by weight; ``None``: each comes once.
        draws: The draws, where samples are drawn by weight.
        by_cost: The cost of a batch, if an order counts batches by cost; ``None``: it counts samples.

    Args:
        datasets: The data sets; several are streamed as one, in this order.
        spec: The view.
        verify: Compare checksums of indexes.
        excluded: As the attribute.

    Raises:
        FieldError, UsageError: The view or the weights ask for what is not there.
    """

    def __init__(
        self, datasets: Sequence[OpenedDataset], spec: ViewSpec, *, verify: bool, excluded: RowSet | None = None
    ) -> None:
        self._load(datasets, spec, verify)
        self.excluded = excluded

    def _load(
        self,
        datasets: Sequence[OpenedDataset],
        spec: ViewSpec,
        verify: bool,
        filtered: SharedWords | None = None,
        chosen: _Chosen | None = None,
    ) -> None:
        self.weights: WeightSpec | None = None
        self._draws: int | None = None
        self.draws: WeightedDraws | None = None
        self.by_cost: CostSpec | None = None
        self._costs: Costs | None = None
        self.datasets = tuple(datasets)
        self.manifests = tuple(one.manifest for one in datasets)
        self.spec = spec
        self.verify = verify
        self._filtered = filtered
        self._chosen = chosen
        self._members = Numbering([one.shards for one in self.manifests])
        self._stored = samples_of(self.manifests)
        self.fields, self._conflicts = merge_fields(self.manifests)
        self.data = joint_identity([one.fingerprint for one in self.manifests])
        self._fingerprint = self._identity()
        self._matchers = [matcher_of(spec, one) for one in self.manifests]
        self._make_view()

    def _identity(self) -> str:
        """Of data and view: of conditions, what they found counts, not how they were written."""
        if self._chosen is not None:
            return digest([self.data, self.spec.as_json(), self._chosen.rows.digest])
        return self.data if self.spec.whole else digest([self.data, self.spec.as_json()])

    def _make_view(self) -> None:
        known = None if self._filtered is None else self._filtered.words[: len(self._stored)]
        count = self._count_matches if self.spec.where or self._chosen is not None else None
        self._view, filtered = make_view(self.spec, self._stored, count, known)
        if filtered is not None and self._filtered is None:
            self._filtered = SharedWords(max(len(filtered), 1))
            self._filtered.words[: len(filtered)] = filtered
        self.counts = self._view.counts
        self.samples = int(self.counts.sum(dtype=np.int64))

    def __str__(self) -> str:
        """The view in a few words; empty for all samples."""
        parts = [str(replace(self.spec, take=None)), *(() if self._chosen is None else self._chosen.texts)]
        parts += [] if self.spec.take is None else [str(ViewSpec(take=self.spec.take))]
        return ", ".join(filter(None, parts))

    def weighted(self, weights: WeightSpec, draws: int | None) -> DatasetSource:
        """The same with samples drawn by weight.

        Args:
            weights: How they are weighted.
            draws: Samples of an epoch that are drawn; ``None``: as many as the view has.

        Raises:
            FieldError, UsageError: The weights ask for what is not there.
            DataError, StorageError: An index cannot be read.
        """
        copy = self._copy()
        copy._weigh(weights, draws, None)
        return copy

    def drawing(self, draws: int | None) -> DatasetSource:
        """The same with so many samples an epoch, where they are drawn by weight."""
        if self.weights is None or draws == self._draws:
            return self
        copy = self._copy()
        copy._weigh(self.weights, draws, self._weighing)
        return copy

    def _weigh(self, weights: WeightSpec, draws: int | None, known: Weighing | None, *, earlier: bool = False) -> None:
        """Have samples drawn by weight; ``known`` is what was read of them before, ``earlier`` as for `weigh`."""
        self.check_fields([weights.field])
        self.weights, self._draws = weights, draws
        self._weighing = known or weigh(weights, self.manifests, self.counts, self._viewed, earlier=earlier)
        self.draws = WeightedDraws(self._weighing.begins, self.samples if draws is None else draws)
        self._fingerprint = digest([self._identity(), "weights", self._weighing.digest, self.draws.samples])

    def _weighed_as(self, other: DatasetSource, *, earlier: bool = False) -> DatasetSource:
        """This, another view of the same samples, weighted as that one is, or with batches by the same cost."""
        if other.weights is not None:
            self._weigh(other.weights, other._draws, None, earlier=earlier)
        if other.by_cost is not None:
            self._cost(other.by_cost, None)
        return self

    def batched(self, spec: CostSpec | None) -> DatasetSource:
        """The same in batches by cost; ``None``: as samples.

        Raises:
            FieldError: The costs ask for what is not there. That a sample costs too much is said by `costs`, since
                a narrower view of this may leave it out.
            UsageError: Samples are drawn by weight.
            DataError, StorageError: An index cannot be read.
        """
        if spec == self.by_cost:
            return self
        copy = self._copy()
        copy.by_cost = copy._costs = None
        if spec is not None:
            copy._cost(spec, None)
        return copy

    def _cost(self, spec: CostSpec, known: Costs | None) -> None:
        """Have batches by cost; ``known`` is what was found of them before."""
        if self.weights is not None:
            raise UsageError(
                "batches by cost are of each sample once, and weights= draws some more often", url=self.url
            )
        self.check_fields([spec.field])
        check_costs(spec, self.manifests)
        self.by_cost, self._costs = spec, known
        with suppress(FieldError):
            _ = self.costs  # found now, so that all processes that are forked share it

    @property
    def costs(self) -> Costs | None:
        """Batches by cost, if an order counts these.

        Raises:
            FieldError: A sample has no cost, or costs more than a batch may.
            DataError, StorageError: An index cannot be read.
        """
        if self._costs is None and self.by_cost is not None:
            self._costs = count_batches(self.by_cost, self.counts, self._viewed)
        return self._costs

    @property
    def fingerprint(self) -> str:
        """Identity of the data, the view, and what an order counts of it; raises as `costs`."""
        costs = self.costs
        return (
            self._fingerprint
            if costs is None
            else digest([self._fingerprint, "batches", costs.digest, costs.spec.budget])
        )

    @property
    def positions(self) -> int:
        """How many samples or batches by cost an order counts of all shards; raises as `costs`."""
        costs = self.costs
        return self.samples if costs is None else costs.batches

    @property
    def position_counts(self) -> NDArray[np.int64]:
        """What an order counts of each shard: samples of the view, or batches by cost: int64 (shards,)."""
        costs = self.costs
        return self.counts.astype(np.int64) if costs is None else costs.words.words[: self.shards]

    def _viewed(self, shard: int) -> ViewedShard:
        index = self._index(shard)
        return ViewedShard(index, int(self.counts[shard]), self._viewed_rows(shard, index))

    @property
    def shards(self) -> int:
        """Number of shards of all data sets."""
        return len(self.counts)

    @property
    def mean_bytes(self) -> float:
        """Mean bytes a sample, stored; of what is compressed as a whole, inflated."""
        return sum(one.shown_bytes for one in self.manifests) / max(sum(one.samples for one in self.manifests), 1)

    @property
    def position_bytes(self) -> float:
        """The same of what an order counts."""
        return self.mean_bytes if self.by_cost is None else self.mean_bytes * self.samples / max(self.positions, 1)

    @property
    def largest_block(self) -> int:
        """Bytes of the largest block that has to be inflated for a sample; 0 where none is compressed so."""
        return max(one.largest_block for one in self.manifests)

    @property
    def url(self) -> str:
        """The address, for messages."""
        urls = [one.url for one in self.manifests]
        return urls[0] if len(urls) == 1 else f"{urls[0]} and {len(urls) - 1} more"

    def taking(self, count: int) -> DatasetSource:
        """The first ``count`` samples of this, in stored order."""
        copy = self._copy()
        copy.spec = self.spec.taking(count)
        copy._fingerprint = copy._identity()
        copy._make_view()
        return copy._weighed_as(self)

    def _copy(self) -> Self:
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__)
        return copy

    def unweighted(self) -> DatasetSource:
        """The same with each sample once, and no batches by cost."""
        copy = self.batched(None)._copy()
        copy.weights = copy._draws = copy.draws = None
        copy._fingerprint = copy._identity()
        return copy

    def filtered(self, wanted: Filter, keyed: Sequence[RowSet] = ()) -> DatasetSource:
        """Those of the samples of this that meet conditions, which are asked now, in this thread.

        Args:
            wanted: The conditions.
            keyed: The rows of the keys that it asks for, and those that it lists.

        Raises:
            FieldError, UsageError: They ask for what is not there, or of the first so many samples.
            TransformError: A user's callable raised.
            DataError, StorageError: An index cannot be read.
        """
        copy, spec = self._copy(), self.spec.narrowed(wanted.exact)
        before = () if self._chosen is None else self._chosen.texts
        if self._chosen is None and not keyed and not wanted.conditions:
            copy._load(self.datasets, spec, self.verify)
            return copy._weighed_as(self)
        rows, counts = self.choose(wanted, keyed)
        copy._load(self.datasets, spec, self.verify, counts, _Chosen(rows, (*before, *wanted.texts)))
        return copy._weighed_as(self)

    def choose(self, wanted: Filter, keyed: Sequence[RowSet]) -> tuple[RowSet, SharedWords]:
        """The stored rows of the samples of `filtered`, and how many there are in each shard; raises as that."""
        spec, conditions = self.spec.narrowed(wanted.exact), wanted.conditions
        view = make_view(ViewSpec(spec.split), self._stored, None)[0]
        matchers = [matcher_of(spec, one) for one in self.manifests]
        tests = [[condition.test_of(one) for condition in conditions] for one in self.manifests]
        sets = [*(() if self._chosen is None else (self._chosen.rows,)), *keyed]
        asked = [shard for shard in range(self.shards) if view.counts[shard] and all(one.any(shard) for one in sets)]
        found, counts = RowSet(self._stored), SharedWords(max(self.shards, 1))
        for shard, index in zip(asked, self._indexes(asked, needed=bool(conditions or spec.where)), strict=True):
            member = self._members.find(shard)[0]
            matcher = matchers[member]
            matches = None if matcher is None or index is None else matcher(index)
            for rows in _pieces(view, shard):
                for one in sets:
                    rows = rows[one.has(shard, rows)]
                rows = rows if matches is None else rows[matches[rows]]
                for test in tests[member]:
                    assert index is not None
                    rows = test.narrowed(index, rows)
                found.add(shard, rows)
                counts.words[shard] += len(rows)
        return found, counts

    def _indexes(self, shards: Sequence[int], *, needed: bool) -> Iterable[ShardIndex | None]:
        if not needed:
            return [None] * len(shards)
        return each(self._index, shards, at_once=SCANNERS, what="the indexes that where= looks at")

    def at(self, versions: Sequence[int]) -> DatasetSource:
        """The same view of the data sets as they were at these versions, one for each.

        Raises:
            UsageError: There is no such version, or the view asks for what was not there.
            StorageError: It cannot be read.
        """
        datasets = [one.at(version) for one, version in zip(self.datasets, versions, strict=True)]
        copy, then = self._copy(), [one.manifest for one in datasets]
        if self.excluded is not None:
            copy.excluded = self.excluded.carried(samples_of(then), self._runs(then))
        if self._chosen is None:
            copy._load(datasets, self.spec, self.verify)
            return copy._weighed_as(self, earlier=True)
        for now, other in zip(self.manifests, then, strict=True):
            if other.shards > now.shards:
                raise UsageError(
                    f"where= was asked of version {now.version}, and cannot be of version {other.version} any more",
                    url=now.url,
                    hint=f"open the data set anew, with version={other.version}",
                )
        runs = list(self._runs(then))
        assert self._filtered is not None
        counts = SharedWords(max(sum(one.shards for one in then), 1))
        for here, there, shards in runs:
            counts.words[there : there + shards] = self._filtered.words[here : here + shards]
        chosen = self._chosen._replace(rows=self._chosen.rows.carried(samples_of(then), runs))
        copy._load(datasets, self.spec, self.verify, counts, chosen)
        return copy._weighed_as(self, earlier=True)

    def _runs(self, then: Sequence[Manifest]) -> Iterable[tuple[int, int, int]]:
        """The shards that are here and at other versions, as `RowSet.carried` takes them: all but those at the end."""
        there = 0
        for (here, end), other in zip(pairwise(self._begins), then, strict=True):
            yield here, there, min(end - here, other.shards)
            there += other.shards

    @property
    def _begins(self) -> list[int]:
        return [self._members.begin(member) for member in range(len(self.manifests) + 1)]

    def check_fields(self, names: Collection[str]) -> None:
        """Refuse fields that the data sets hold with different types, and labels that mean different things.

        Raises:
            FieldError: There is one; names both data sets.
        """
        for name in names:
            if name in self._conflicts:
                raise FieldError(self._conflicts[name], field=name, hint="leave it out of `fields`, or pack them alike")
        known = [one for one in self.manifests if one.classes is not None]
        for other in known[1:]:
            if "cls" in names and other.classes != known[0].classes:
                raise UsageError(
                    f"{known[0].url} and {other.url} have different class names, so equal labels mean different things",
                    field="cls",
                    hint="pack them with one list: classes= (--classes), or leave cls out of `fields`",
                )

    @property
    def over_network(self) -> bool:
        """Whether shards come over a network."""
        return any(one.over_network for one in self.datasets)

    @property
    def cached(self) -> bool:
        """Whether what comes over a network stays in a cache."""
        return any(one.cached for one in self.datasets)

    def dataset_of(self, shard: int) -> tuple[OpenedDataset, int]:
        """The data set that a shard belongs to, and its number there."""
        member, number = self._members.find(shard)
        return self.datasets[member], number

    def _index(self, shard: int) -> ShardIndex:
        dataset, number = self.dataset_of(shard)
        return dataset.open(number, verify=self.verify).index

    def rows(self, shard: int, index: ShardIndex) -> NDArray[np.int64] | int | DrawnRows:
        """The rows of an open shard that the view's rows are, or draws find; a number where they just begin later."""
        rows = self._viewed_rows(shard, index)
        if self.draws is None:
            return rows
        viewed = ViewedShard(index, int(self.counts[shard]), rows)
        begin, end = self._weighing.begins[shard : shard + 2].tolist()
        return DrawnRows(viewed, self._weighing.whole, self.draws, shard, begin, end)

    def batches(self, shard: int, index: ShardIndex) -> ShardBatches | None:
        """The batches by cost of an open shard.

        Raises:
            FormatError: It has others than when the data set was opened.
        """
        costs = self.costs
        if costs is None or not self.counts[shard]:
            return None
        viewed = ViewedShard(index, int(self.counts[shard]), self._viewed_rows(shard, index))
        found = shard_batches(viewed, costs.spec)
        if len(found.ends) != costs.words.words[shard]:
            raise FormatError(
                "the costs of the shard's samples are others than when the data set was opened",
                url=index.url or None,
                shard=index.path,
                field=costs.spec.field,
                hint="open the data set anew",
            )
        return found

    def _viewed_rows(self, shard: int, index: ShardIndex) -> NDArray[np.int64] | int:
        if self._chosen is not None:
            return self._chosen.rows.rows(shard)
        return self._view.rows_of(shard, index, self._matcher(shard))

    def _matcher(self, shard: int) -> Matcher | None:
        return self._matchers[self._members.find(shard)[0]]

    def _count_matches(self, shard: int, first: int, last: int) -> int:
        matcher = self._matcher(shard)
        assert matcher is not None
        return int(matcher(self._index(shard))[first:last].sum())

    def __getstate__(self) -> dict[str, Any]:
        return {
            "datasets": self.datasets,
            "fingerprint": self.fingerprint,
            "spec": self.spec,
            "verify": self.verify,
            "filtered": self._filtered,
            "chosen": None if self._chosen is None else (self._chosen.rows.memory, self._chosen.texts),
            "excluded": None if self.excluded is None else self.excluded.memory,
            "weights": None if self.weights is None else (self.weights, self._draws, self._weighing),
            "costs": self.costs,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        stored = samples_of([one.manifest for one in state["datasets"]])

        def rows(memory: SharedMemory) -> RowSet:
            return RowSet(stored, memory)

        chosen = None if state["chosen"] is None else _Chosen(rows(state["chosen"][0]), state["chosen"][1])
        self.excluded = None if state["excluded"] is None else rows(state["excluded"])
        self._load(state["datasets"], state["spec"], state["verify"], state["filtered"], chosen)
        if state["weights"] is not None:
            self._weigh(*state["weights"])
        if state["costs"] is not None:
            self._cost(state["costs"].spec, state["costs"])
        if self.fingerprint != state["fingerprint"]:
            raise FormatError(
                "the data set was replaced by another one since this object was made",
                url=self.url,
                hint="make a new ShardDataset",
            )


def _pieces(view: DatasetView, shard: int) -> Iterable[NDArray[np.int64]]:
    """The rows that a view has of a shard, before a filter, some at a time."""
    first = view.first_row(shard)
    end = first + int(view.counts[shard])
    return (np.arange(start, min(start + _ROWS, end)) for start in range(first, end, _ROWS))
