"""A data set at a glance, for a page: samples from all over it, and what its fields hold.

Which samples is arithmetic: one from each of so many equal stretches of the stored order. Read are their values and
the indexes of their shards, which also say what all samples of these shards hold in columns of numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from shardstream.dataset.dataset_rows import DatasetRows
from shardstream.dataset.keys.finder import numbers_of
from shardstream.dataset.opened import OpenedDataset
from shardstream.dataset.opening import Opening, open_dataset, takes_opening
from shardstream.dataset.rows import RowBatch
from shardstream.diagnose.shown import Limits, ShownValue, show_values
from shardstream.diagnose.summaries import FieldSummary, FieldTally
from shardstream.errors import DataError, NotFoundError, UsageError
from shardstream.progress import OnProgress, ProgressEvent
from shardstream.rng import Domain, below, words
from shardstream.shards.index import ShardIndex
from shardstream.storage import PathOrUrl

MOST_SAMPLES = 5000
_TOGETHER = 64  # samples, and indexes, that are read side by side
_BYTES = 32 << 20  # of values that are at hand at a time
_LARGEST = 16 << 20  # bytes of a value that is read
_PICTURES = 4_800_000  # bytes of all thumbnails; as text they take a third more
_TEXT = 1_600_000  # characters of all texts
_SOUND = 1_200_000  # bytes of all audio files
_PROFILE = 160  # bars of shards


@dataclass(frozen=True, slots=True)
class ShownSample:
    """One sample.

    Attributes:
        number: In stored order, from 0.
        key: Its key.
        shard: The object that holds it.
        row: Its number in there.
        label: What a caption says of it: its class, or the number in ``cls``; empty where it has none.
        fetch: The line of Python that reads it.
        values: Its values, in the order of their names.
    """

    number: int
    key: str
    shard: str
    row: int
    label: str
    fetch: str
    values: tuple[ShownValue, ...]


@dataclass(frozen=True, slots=True)
class Overview:
    """What `overview` found.

    Attributes:
        url: The data set.
        version: Its version.
        fingerprint: Identity of its data.
        format: How its samples lie in shards.
        total: Number of samples.
        shards: Number of shards.
        bytes: Bytes of all shards.
        seed: Of the choice of samples; ``None`` where they were named.
        opened: Shards whose indexes were read.
        counted: Samples of these shards, which `fields` speak of.
        fields: What the fields hold.
        shard_bytes: Mean bytes of a shard, of so many equal stretches of the shards in order.
        shard_samples: Mean samples of a shard, of the same stretches.
        samples: Those that were looked at, in stored order.
    """

    url: str
    version: int
    fingerprint: str
    format: str
    total: int
    shards: int
    bytes: int
    seed: int | None
    opened: int
    counted: int
    fields: tuple[FieldSummary, ...]
    shard_bytes: tuple[float, ...]
    shard_samples: tuple[float, ...]
    samples: tuple[ShownSample, ...]


@takes_opening
def overview(
    url: PathOrUrl,
    numbers: Iterable[int] = (),
    *,
    keys: Iterable[str] = (),
    samples: int = 200,
    seed: int = 0,
    progress: OnProgress | None = None,
    **opening: Unpack[Opening],
) -> Overview:
    """Look at samples from all over a data set, and at what its fields hold.

    Reads the values of these samples, none of more than 16 MiB, and the indexes of their shards: at most as many of
    either as there are samples to look at, however large the data set is.

    Args:
        url: Folder or URL of the data set.
        numbers: Samples by number in stored order, from 0; negative ones count from the end.
        keys: Samples by key; the first sample of each. With neither, they are chosen by ``samples`` and ``seed``.
        samples: How many are chosen, 1 to 5000: one at random from each of so many equal stretches of the stored
            order, so that they come from all shards, or as many as there are samples.
        seed: Of that choice.
        progress: Called with a `ProgressEvent` of samples, some at a time.
        opening: ``version``, ``cache``, ``replicas``, ``storage_options``, as `view` has them.

    Raises:
        NotFoundError: There is no data set.
        UsageError: There is no such sample, ``samples`` is out of range, or an option that no place takes.
        MissingKeyError: No sample has one of the keys.
        StorageError: The store cannot be read. What is damaged is shown as such.

    Example:
        >>> found = overview("out/", samples=20)
        >>> len(found.samples), found.total
        (20, 200)
    """
    if not 1 <= samples <= MOST_SAMPLES:
        raise UsageError(f"samples must be in [1, {MOST_SAMPLES}], got {samples}", hint="200 fit on a page well")
    dataset = open_dataset(url, **opening)
    return overview_of(dataset, [*numbers, *numbers_of(dataset, keys)], samples=samples, seed=seed, progress=progress)


def overview_of(
    dataset: OpenedDataset,
    numbers: Sequence[int] = (),
    *,
    samples: int = 200,
    seed: int = 0,
    progress: OnProgress | None = None,
) -> Overview:
    """The same of a data set that is open."""
    manifest = dataset.manifest
    ids = np.asarray(numbers, np.int64)
    dataset.locate(ids)  # or a number that is none would count from the end twice
    ids = np.unique(ids % manifest.samples) if len(ids) else spread_numbers(manifest.samples, samples, seed)
    looking = _Looking(dataset, ids)
    shown: list[ShownSample] = []
    for part in looking.parts():
        shown += part
        if progress is not None:
            progress(ProgressEvent("view", len(shown), len(ids)))
    return Overview(
        dataset.url,
        manifest.version,
        manifest.fingerprint,
        manifest.format,
        manifest.samples,
        manifest.shards,
        manifest.bytes,
        None if numbers else seed,
        len(looking.opened),
        looking.counted,
        tuple(tally.summary(manifest) for tally in looking.tallies.values()),
        _profile(manifest.table.sizes),
        _profile(manifest.table.samples),
        tuple(shown),
    )


def spread_numbers(total: int, count: int, seed: int) -> NDArray[np.int64]:
    """A number at random from each of ``count`` equal stretches of [0, total), ascending: int64; all, if they are few.

    >>> spread_numbers(1000, 4, 0)
    array([211, 287, 543, 765])
    """
    if total <= count:
        return np.arange(total)
    edges = np.array([i * total // count for i in range(count + 1)])
    drawn = words(count, seed=seed, domain=Domain.LOOK)
    lengths = np.diff(edges)
    offsets = [below(word, n) for word, n in zip(drawn.tolist(), lengths.tolist(), strict=True)]
    return np.asarray(edges[:-1] + np.array(offsets), np.int64)


def caption_label(shown: Iterable[ShownValue]) -> str:
    """What a caption says of a sample: the text of ``cls``, or else of ``label``."""
    texts = {one.name: one.text for one in shown if one.kind in ("number", "text")}
    return texts.get("cls") or texts.get("label") or ""


class _Looking:
    """The way through the samples, in order, some at a time."""

    def __init__(self, dataset: OpenedDataset, ids: NDArray[np.int64]) -> None:
        self._dataset = dataset
        self._manifest = dataset.manifest
        self._rows = DatasetRows(dataset)
        self._ids = ids
        self._shards, self._places = dataset.locate(ids)
        pictures = sum(kind.is_image or kind.kind == "fixed" for kind in self._manifest.fields.values())
        others = max(len(self._manifest.fields), 1)
        count = max(len(ids), 1)
        self._limits = Limits(
            min(20_000, _PICTURES // (count * max(pictures, 1))), min(4000, max(80, _TEXT // (count * others)))
        )
        self._sound = _SOUND
        self.tallies = {name: FieldTally(name, kind) for name, kind in sorted(self._manifest.fields.items())}
        self.opened: set[int] = set()
        self.counted = 0

    def parts(self) -> Iterator[list[ShownSample]]:
        for start in range(0, len(self._ids), _TOGETHER):
            part = range(start, min(start + _TOGETHER, len(self._ids)))
            indexes = self._open(sorted({int(self._shards[i]) for i in part}))
            yield [one for group in self._groups(part, indexes) for one in self._look(*group, indexes)]

    def _open(self, shards: list[int]) -> dict[int, ShardIndex]:
        """The indexes of these shards but for damaged ones, each counted once."""
        try:
            found = dict(zip(shards, self._rows.indexes(shards), strict=True))
        except (DataError, NotFoundError):
            found = {}
            for shard in shards:
                try:
                    found[shard] = self._rows.index(shard)
                except (DataError, NotFoundError):
                    continue
        for shard, index in found.items():
            if shard not in self.opened:
                self.opened.add(shard)
                self.counted += index.samples
                for tally in self.tallies.values():
                    tally.count(index)
        return found

    def _groups(self, part: range, indexes: Mapping[int, ShardIndex]) -> Iterator[tuple[list[int], frozenset[str]]]:
        """Samples that follow one another whose values fit into memory together, and the fields that are read."""

        def fields(i: int) -> frozenset[str]:
            index = indexes.get(int(self._shards[i]))
            row = int(self._places[i])
            return frozenset() if index is None else frozenset(_small_ones(index, row))

        for names, alike in groupby(part, key=fields):
            group: list[int] = []
            taken = 0
            for i in alike:
                index = indexes.get(int(self._shards[i]))
                own = 0 if index is None else sum(_bytes_of(index, name, int(self._places[i])) for name in names)
                if group and taken + own > _BYTES:
                    yield group, names
                    group, taken = [], 0
                group.append(i)
                taken += own
            yield group, names

    def _look(
        self, group: list[int], names: frozenset[str], indexes: Mapping[int, ShardIndex]
    ) -> Iterator[ShownSample]:
        try:
            batch = self._rows.read_ids(self._ids[group], present=True, fields=names)
        except (DataError, NotFoundError):
            for i in group:
                yield self._by_field(i, names, indexes)
            return
        for slot, i in enumerate(group):
            yield self._shown(i, batch.values(slot), {}, indexes[int(self._shards[i])])

    def _by_field(self, i: int, names: frozenset[str], indexes: Mapping[int, ShardIndex]) -> ShownSample:
        """A sample of which something is damaged."""
        index = indexes.get(int(self._shards[i]))
        if index is None:
            shard = self._manifest.shard_name(int(self._shards[i]))
            return ShownSample(
                int(self._ids[i]),
                "(the index of its shard cannot be read)",
                shard,
                int(self._places[i]),
                "",
                self._fetch(i),
                (),
            )
        values: dict[str, Any] = {}
        wrong: dict[str, str] = {}
        for name in names:
            try:
                batch: RowBatch = self._rows.read_ids(self._ids[[i]], present=True, fields=[name])
                values |= batch.values(0)
            except (DataError, NotFoundError) as error:
                wrong[name] = error.what
        return self._shown(i, values, wrong, index)

    def _shown(self, i: int, values: Mapping[str, Any], wrong: Mapping[str, str], index: ShardIndex) -> ShownSample:
        """A sample, of the values that were read, and of why others could not be."""
        row = int(self._places[i])
        shown = {
            one.name: one
            for one in show_values(values, self._manifest, replace(self._limits, sound=self._sound_left()))
        }
        for name, value in values.items():
            self.tallies[name].look_at(value)
        for name, why in wrong.items():
            kind = str(self._manifest.fields[name])
            shown[name] = ShownValue(name, kind, "damaged", _bytes_of(index, name, row), why, checked="differs")
        for name in index.columns:
            if name in self.tallies and name not in shown and index.columns[name].has(row):
                text = "too large to be shown"
                shown[name] = ShownValue(
                    name, str(self._manifest.fields[name]), "bytes", _bytes_of(index, name, row), text
                )
        placed = tuple(_placed(one, index, row) for _, one in sorted(shown.items()))
        self._sound -= sum(len(one.sound.file) for one in placed if one.sound is not None)
        shard = self._manifest.shard_name(int(self._shards[i]))
        return ShownSample(
            int(self._ids[i]), index.keys[row], shard, row, caption_label(placed), self._fetch(i), placed
        )

    def _sound_left(self) -> int:
        return min(self._limits.sound, max(self._sound, 0))

    def _fetch(self, i: int) -> str:
        return f"ss.Reader({self._dataset.url!r})[{int(self._ids[i])}]"


def _bytes_of(index: ShardIndex, name: str, row: int) -> int:
    """Bytes of a value as it is read; 0 where nobody knows, or there is none."""
    column = index.columns.get(name)
    if column is None or not column.has(row):
        return 0
    if column.type.kind != "payload":
        return column.type.width
    if column.raw_lengths is not None:
        return int(column.raw_lengths[row])
    sizes = column.sizes
    return 0 if sizes is None else int(sizes[row])


def _small_ones(index: ShardIndex, row: int) -> Iterator[str]:
    for name in index.columns:
        if _bytes_of(index, name, row) <= _LARGEST:
            yield name


def _placed(shown: ShownValue, index: ShardIndex, row: int) -> ShownValue:
    """With where it lies, and whether it was compared."""
    column = index.columns[shown.name]
    where = np.array([row])
    offset: int | None = None
    if column.type.kind == "fixed" and (column.base is not None or column.offsets is not None):
        offset = int(column.fixed_offsets(where)[0])
    elif column.offsets is not None and column.names is None:
        offset = int(column.offsets[row])
    checked = shown.checked
    if checked == "none" and column.checksums is not None and shown.text != "too large to be shown":
        checked = "compared"
    return replace(shown, offset=offset, checked=checked)


def _profile(numbers: NDArray[Any]) -> tuple[float, ...]:
    parts = np.array_split(numbers.astype(np.float64), min(max(len(numbers), 1), _PROFILE))
    return tuple(float(part.mean()) for part in parts if len(part))
