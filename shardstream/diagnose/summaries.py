"""What a field holds, counted over the indexes of some shards and over the values of some samples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import DataError, MissingExtraError
from shardstream.images.header import probe
from shardstream.shards.fields import FieldType
from shardstream.shards.index import ShardIndex
from shardstream.shards.manifest import Manifest

_DISTINCT = 100_000  # numbers that are told apart; a field of more has no histogram
_BARS = 40  # of a histogram


@dataclass(frozen=True, slots=True)
class Measured:
    """Some numbers.

    Attributes:
        count: How many; those that are not finite are left out.
        least: The smallest.
        mean: Their mean.
        most: The largest.
    """

    count: int
    least: float
    mean: float
    most: float


@dataclass(frozen=True, slots=True)
class FieldSummary:
    """What a field holds. Attributes that make no sense of its type are ``None`` or empty.

    Attributes:
        name: The field.
        type: Its type.
        codec: How its values are compressed: ``"none"`` or ``"zstd"``.
        counted: Samples of the shards whose indexes were read.
        missing: Of these, the share that has no value, in [0, 1].
        bytes: Stored bytes of a value, over the same samples.
        numbers: The numbers, over the same samples.
        labels: The commonest numbers of an integer field, with the names of classes, and how many samples have each.
        distinct: How many different ones there are; 0 where they were not counted.
        lengths: Characters of texts, of the samples that were looked at.
        sizes: (height, width) in pixels of the pictures that were looked at.
        kinds: Of pictures, by format as stored how many were looked at; of a JPEG field also what the manifest
            counts of all: ``"addressable"`` ones, kinds that were kept as they are, ``"damaged"`` ones.
    """

    name: str
    type: str
    codec: str
    counted: int
    missing: float
    bytes: Measured | None
    numbers: Measured | None
    labels: tuple[tuple[str, int], ...]
    distinct: int
    lengths: Measured | None
    sizes: tuple[tuple[int, int], ...]
    kinds: Mapping[str, int]


class FieldTally:
    """Counts what a field holds; its memory does not grow with the number of samples.

    Args:
        name: The field.
        kind: Its type.
    """

    def __init__(self, name: str, kind: FieldType) -> None:
        self._name = name
        self._type = kind
        self._counted = self._present = 0
        self._bytes, self._numbers, self._lengths = _Numbers(), _Numbers(), _Numbers()
        whole = kind.dtype is not None and kind.kind == "scalar" and kind.dtype.kind in "iub"
        self._labels: Counter[int] | None = Counter() if whole else None
        self._sizes: list[tuple[int, int]] = []
        self._kinds: Counter[str] = Counter()

    def count(self, index: ShardIndex) -> None:
        """Count all samples of a shard."""
        self._counted += index.samples
        column = index.columns.get(self._name)
        if column is None:
            return
        there = column.valid_rows(np.arange(index.samples))
        self._present += index.samples if there is None else int(there.sum())
        if column.values is not None:
            values = column.values if there is None else column.values[there]
            self._numbers.add(values)
            if self._labels is not None:
                found, counts = np.unique(values, return_counts=True)
                self._labels.update(dict(zip(found.astype(object).tolist(), counts.tolist(), strict=True)))
                if len(self._labels) > _DISTINCT:
                    self._labels = None
        elif column.type.kind == "fixed":
            self._bytes.add(np.full(index.samples, column.type.width))
        elif column.sizes is not None:
            self._bytes.add(column.sizes if there is None else column.sizes[there])

    def look_at(self, value: Any) -> None:
        """Count one stored value of a sample that was read."""
        if self._type.is_image:
            try:
                found = probe(value)
            except (DataError, MissingExtraError):
                return
            self._sizes.append((found.height, found.width))
            self._kinds[f"{'progressive ' if found.progressive and found.kind == 'jpg' else ''}{found.kind}"] += 1
        elif self._type.name == "str":
            self._lengths.add(np.array([len(bytes(value).decode(errors="replace"))]))

    def summary(self, manifest: Manifest) -> FieldSummary:
        """What was counted."""
        labels = self._labels or Counter()
        named = [(_named(self._name, label, manifest), count) for label, count in labels.most_common(_BARS)]
        return FieldSummary(
            self._name,
            str(self._type),
            manifest.codecs.get(self._name, "none"),
            self._counted,
            1 - self._present / self._counted if self._counted else 0.0,
            self._bytes.measured,
            self._numbers.measured,
            tuple(named),
            len(labels),
            self._lengths.measured,
            tuple(self._sizes),
            {**self._kinds, **manifest.kinds.get(self._name, {})},
        )


class _Numbers:
    """A running `Measured`."""

    def __init__(self) -> None:
        self._count, self._sum = 0, 0.0
        self._least, self._most = np.inf, -np.inf

    def add(self, values: NDArray[Any]) -> None:
        numbers = values.astype(np.float64)
        numbers = numbers[np.isfinite(numbers)]
        if len(numbers):
            self._count += len(numbers)
            self._sum += float(numbers.sum())
            self._least = min(self._least, float(numbers.min()))
            self._most = max(self._most, float(numbers.max()))

    @property
    def measured(self) -> Measured | None:
        if not self._count:
            return None
        return Measured(self._count, self._least, self._sum / self._count, self._most)


def _named(name: str, label: int, manifest: Manifest) -> str:
    classes = manifest.classes
    if name == "cls" and classes is not None and 0 <= label < len(classes):
        return f"{int(label)} {classes[label]}"
    return str(label)
