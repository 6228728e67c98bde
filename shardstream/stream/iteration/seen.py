"""What a mixture has handed out of each source, counted from positions."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from shardstream.dataset.dataset_rows import DatasetRows
from shardstream.dataset.indexes import OpenShards
from shardstream.dataset.joined import samples_of
from shardstream.dataset.source import DatasetSource
from shardstream.dataset.step import groups
from shardstream.order import Place
from shardstream.shards.bins import PerBin
from shardstream.shards.fields import ValuesType
from shardstream.stream.iteration.content import Content
from shardstream.stream.iteration.ranks import Rank
from shardstream.stream.iteration.settings import StreamOptions
from shardstream.stream.iteration.state import ResumePoint

_TOGETHER = 1 << 18  # positions that are located at once
_READ = 4096  # bins whose lengths are read at once

Integers = NDArray[np.int64]


def samples_seen(content: Content, settings: StreamOptions, rank: Rank, point: ResumePoint) -> Integers:
    """How many samples of each source of a mixture lie before a point of a run: int64 (sources,)."""
    parameters = point.parameters_of(content, settings, rank, 0)
    samples = content.dealt_samples(parameters)

    def before(place: Place) -> Integers:
        return content.order(settings, place[0], parameters).before(min(place[1], samples))

    rest = point.left_of(samples)
    beyond, _, _ = content.order(settings, point.epoch, parameters).locate(rest.handed_out())
    assert beyond is not None, "of a mixture"
    reached = point.epoch, rest.start
    found: Integers = before(reached) + np.bincount(beyond, minlength=len(content.parts))
    for begin, end in point.skips:
        if begin < reached:
            found -= before(min(end, reached)) - before(begin)
    return found


def tokens_seen(content: Content, settings: StreamOptions, rank: Rank, point: ResumePoint) -> list[int | None]:
    """How many tokens of documents lie before a point of a run, of each source that is bins; ``None`` of others.

    Every position before it is looked at, and what is stored of how long the documents of bins are is read.

    Raises:
        DataError, StorageError: That cannot be read.
    """
    parameters = point.parameters_of(content, settings, rank, 0)
    found = [_Uses(part.source) if has_bins(part.source) else None for part in content.parts]
    epoch, order = -1, None
    for number, positions in _positions_seen(point, content.dealt_samples(parameters)):
        if order is None or number != epoch:
            epoch, order = number, content.order(settings, number, parameters)
        sources, shards, rows = order.locate(positions)
        assert sources is not None, "of a mixture"
        for source, uses in enumerate(found):
            if uses is not None:
                mine = sources == source
                uses.add(shards[mine], rows[mine])
    return [None if uses is None else uses.tokens() for uses in found]


def has_bins(source: DatasetSource) -> bool:
    """Whether what an order counts of it are bins."""
    return source.by_cost is None and all(one.bins is not None for one in source.manifests)


def _positions_seen(point: ResumePoint, samples: int) -> Iterator[tuple[int, Integers]]:
    """What was handed out before a point: epochs, and positions in them, (n,)."""
    for epoch in range(point.epoch + 1):
        whole = point.at_beginning_of(epoch).left_of(samples)
        for start in range(0, whole.samples, _TOGETHER):
            positions = whole.positions(np.arange(start, min(start + _TOGETHER, whole.samples)))
            inside = len(positions)
            if epoch == point.epoch:
                inside = int(np.searchsorted(positions, point.position))
            yield epoch, positions[:inside]
            if inside < len(positions):
                break
    yield point.epoch, point.left_of(samples).handed_out()


class _Uses:
    """How often each bin of a source was handed out.

    Args:
        source: A source whose samples are bins.
    """

    def __init__(self, source: DatasetSource) -> None:
        self._source = source
        self._stored = samples_of(source.manifests).astype(np.int64)
        self._begins = np.cumsum(self._stored) - self._stored
        self._uses = np.zeros(int(self._stored.sum()), np.int64)
        self._all = source.draws is None and source.samples == len(self._uses)
        self._shards = OpenShards([source])

    def add(self, shards: Integers, rows: Integers) -> None:
        """These rows of the view were."""
        if not self._all:
            rows = rows.copy()
            for shard, slots in groups(shards):
                rows[slots] = self._shards.open(0, shard).stored_rows(rows[slots])
        np.add.at(self._uses, self._begins[shards] + rows, 1)

    def tokens(self) -> int:
        """Tokens of documents in all of them; those of a whole epoch are known, so that few have to be read."""
        usual = int(np.bincount(self._uses).argmax()) if self._all and len(self._uses) else 0
        found = usual * sum(one.bins.tokens for one in self._source.manifests if one.bins is not None)
        others, ends = self._uses - usual, np.cumsum([one.samples for one in self._source.manifests])
        for dataset, part in zip(self._source.datasets, np.split(others, ends[:-1]), strict=True):
            rows = np.flatnonzero(part)
            bins = dataset.manifest.bins
            if not len(rows) or bins is None:
                continue
            name = bins.beside("lengths")
            kind = dataset.manifest.fields[name]
            assert isinstance(kind, ValuesType), "as the manifest was checked"
            reader = DatasetRows(dataset, [name], verify=self._source.verify)
            for start in range(0, len(rows), _READ):
                those = rows[start : start + _READ]
                lengths = PerBin.stored(reader.read_ids(those).columns[name].data, kind.elements)
                found += int(part[those] @ lengths.sums(np.maximum(lengths.values.astype(np.int64), 0)))
        return found
