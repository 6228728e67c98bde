"""``DatasetSource``: one data set, or several laid end to end, through a view: what exists, in no order."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from shardstream.dataset.drawn_rows import DrawnRows
from shardstream.dataset.numbering import Numbering
from shardstream.dataset.opened import OpenedDataset
from shardstream.dataset.shared import SharedWords
from shardstream.dataset.view import Matcher, ViewSpec, make_view, matcher_of
from shardstream.dataset.weights import ViewedShard, Weighing, WeightSpec, weigh
from shardstream.errors import FieldError, FormatError, UsageError
from shardstream.order import WeightedDraws
from shardstream.shards.fields import FieldType
from shardstream.shards.index import ShardIndex
from shardstream.shards.manifest import Manifest


class DatasetSource:
    """The samples that a `ShardDataset` streams, numbered by shard and row of the view.

    Holds nothing a sample, and of each shard only what its data set's table and the view hold. Its pickle has
    addresses and fingerprints; counts that took a scan of the data travel in shared memory.

    Attributes:
        verify: Whether indexes are compared with their checksums.
        weights: How samples are weighted that are drawn by weight; ``None``: each comes once.
        draws: The draws, where samples are drawn by weight.

    Args:
        datasets: The data sets; several are streamed as one, in this order.
        spec: The view.
        verify: Compare checksums of indexes.
        weights: How samples are weighted that are drawn by weight; ``None``: each comes once.
        draws: Samples of an epoch that are drawn. Default: as many as the view has.

    Raises:
        FieldError, UsageError: The view or the weights ask for what is not there.
    """

    def __init__(
        self,
        datasets: Sequence[OpenedDataset],
        spec: ViewSpec,
        *,
        verify: bool,
        weights: WeightSpec | None = None,
        draws: int | None = None,
    ) -> None:
        self._load(datasets, spec, verify, None)
        if weights is not None:
            self._weigh(weights, draws, None)

    def _load(
        self, datasets: Sequence[OpenedDataset], spec: ViewSpec, verify: bool, filtered: SharedWords | None
    ) -> None:
        self.weights: WeightSpec | None = None
        self._draws: int | None = None
        self.draws: WeightedDraws | None = None
        self._datasets = tuple(datasets)
        self.manifests = tuple(one.manifest for one in datasets)
        self.spec = spec
        self.verify = verify
        self._filtered = filtered
        self._members = Numbering([one.shards for one in self.manifests])
        columns = [one.table.samples for one in self.manifests]
        self._stored = columns[0] if len(columns) == 1 else np.concatenate(columns)  # one alone stays mapped
        self.fields, self._conflicts = _merged_fields(self.manifests)
        self.data = joint_identity([one.fingerprint for one in self.manifests])
        self.fingerprint = self.data if spec.whole else digest([self.data, spec.as_json()])
        self._matchers = [matcher_of(spec, one) for one in self.manifests]
        self._make_view()

    def _make_view(self) -> None:
        known = None if self._filtered is None else self._filtered.words[: len(self._stored)]
        count = self._count_matches if self.spec.where else None
        self._view, filtered = make_view(self.spec, self._stored, count, known)
        if filtered is not None and self._filtered is None:
            self._filtered = SharedWords(max(len(filtered), 1))
            self._filtered.words[: len(filtered)] = filtered
        self.counts = self._view.counts
        self.samples = int(self.counts.sum(dtype=np.int64))

    def _weigh(self, weights: WeightSpec, draws: int | None, known: Weighing | None) -> None:
        """Have samples drawn by weight; ``known`` is what was read of the weights before."""
        self.check_fields([weights.field])
        self.weights, self._draws = weights, draws
        self._weighing = known or weigh(weights, self.manifests, self.counts, self._viewed)
        self.draws = WeightedDraws(self._weighing.begins, self.samples if draws is None else draws)
        view = self.data if self.spec.whole else digest([self.data, self.spec.as_json()])
        self.fingerprint = digest([view, "weights", self._weighing.digest, self.draws.samples])

    def _viewed(self, shard: int) -> ViewedShard:
        dataset, number = self.dataset_of(shard)
        index = dataset.open(number, verify=self.verify).index
        return ViewedShard(index, int(self.counts[shard]), self._view.rows_of(shard, index, self._matcher(shard)))

    def drawing(self, draws: int | None) -> DatasetSource:
        """The same with so many samples an epoch, where they are drawn by weight."""
        if self.weights is None or draws == self._draws:
            return self
        copy = self._copy()
        copy._weigh(self.weights, draws, self._weighing)
        return copy

    def _copy(self) -> DatasetSource:
        copy: DatasetSource = object.__new__(DatasetSource)
        copy.__dict__.update(self.__dict__)
        return copy

    @property
    def shards(self) -> int:
        """Number of shards of all data sets."""
        return len(self.counts)

    @property
    def mean_bytes(self) -> float:
        """Mean stored bytes a sample."""
        return sum(one.bytes for one in self.manifests) / max(sum(one.samples for one in self.manifests), 1)

    @property
    def url(self) -> str:
        """The address, for messages."""
        urls = [one.url for one in self.manifests]
        return urls[0] if len(urls) == 1 else f"{urls[0]} and {len(urls) - 1} more"

    def taking(self, count: int) -> DatasetSource:
        """The first ``count`` samples of this, in stored order."""
        copy = self._copy()
        copy.spec = self.spec.taking(count)
        copy.fingerprint = digest([self.data, copy.spec.as_json()])
        copy._make_view()
        if self.weights is not None:
            copy._weigh(self.weights, self._draws, None)
        return copy

    def at(self, versions: Sequence[int]) -> DatasetSource:
        """The same view of the data sets as they were at these versions, one for each.

        Raises:
            UsageError: There is no such version, or the view asks for what was not there.
            StorageError: It cannot be read.
        """
        datasets = [one.at(version) for one, version in zip(self._datasets, versions, strict=True)]
        return DatasetSource(datasets, self.spec, verify=self.verify, weights=self.weights, draws=self._draws)

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
                    hint="pack them with one list of classes (classes=, --classes), or leave cls out of `fields`",
                )

    @property
    def over_network(self) -> bool:
        """Whether shards come over a network."""
        return any(one.over_network for one in self._datasets)

    @property
    def cached(self) -> bool:
        """Whether what comes over a network stays in a cache."""
        return any(one.cached for one in self._datasets)

    def dataset_of(self, shard: int) -> tuple[OpenedDataset, int]:
        """The data set that a shard belongs to, and its number there."""
        member, number = self._members.find(shard)
        return self._datasets[member], number

    def rows(self, shard: int, index: ShardIndex) -> NDArray[np.int64] | int | DrawnRows:
        """The rows of an open shard that the view's rows are, or draws find; a number where they just begin later."""
        rows = self._view.rows_of(shard, index, self._matcher(shard))
        if self.draws is None:
            return rows
        viewed = ViewedShard(index, int(self.counts[shard]), rows)
        return DrawnRows(viewed, self._weighing.whole, self.draws, *self._weighing.begins[shard : shard + 2].tolist())

    def _matcher(self, shard: int) -> Matcher | None:
        return self._matchers[self._members.find(shard)[0]]

    def _count_matches(self, shard: int, first: int, last: int) -> int:
        matcher = self._matcher(shard)
        assert matcher is not None
        dataset, number = self.dataset_of(shard)
        return int(matcher(dataset.open(number, verify=self.verify).index)[first:last].sum())

    def __getstate__(self) -> dict[str, Any]:
        return {
            "datasets": self._datasets,
            "fingerprint": self.fingerprint,
            "spec": self.spec,
            "verify": self.verify,
            "filtered": self._filtered,
            "weights": None if self.weights is None else (self.weights, self._draws, self._weighing),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._load(state["datasets"], state["spec"], state["verify"], state["filtered"])
        if state["weights"] is not None:
            self._weigh(*state["weights"])
        if self.fingerprint != state["fingerprint"]:
            raise FormatError(
                "the data set was replaced by another one since this object was made",
                url=self.url,
                hint="make a new ShardDataset",
            )


def _merged_fields(manifests: Sequence[Manifest]) -> tuple[dict[str, FieldType], dict[str, str]]:
    """The fields of all data sets, and what is wrong with those that they hold with different types."""
    found: dict[str, tuple[FieldType, str]] = {}
    conflicts: dict[str, str] = {}
    for one in manifests:
        for name, kind in one.fields.items():
            first, where = found.setdefault(name, (kind, one.url))
            if first != kind:
                conflicts[name] = f"the field is {first} in {where}, but {kind} in {one.url}"
    return {name: kind for name, (kind, _) in found.items()}, conflicts


def joint_identity(fingerprints: Sequence[str]) -> str:
    """The identity of several things in this order; of one, its own."""
    return fingerprints[0] if len(fingerprints) == 1 else digest(fingerprints)


def digest(value: Any) -> str:
    """32 hexadecimal digits of a JSON value."""
    return xxhash.xxh3_128_hexdigest(json.dumps(value, sort_keys=True).encode())
