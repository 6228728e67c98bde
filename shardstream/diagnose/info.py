"""What a data set holds."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from shardstream.dataset.dataset_rows import DatasetRows
from shardstream.dataset.opened import OpenedDataset
from shardstream.dataset.opening import Opening, open_dataset, takes_opening
from shardstream.errors import DataError, NotFoundError, StorageError
from shardstream.shards.fields import FieldType
from shardstream.shards.index import Column, ShardIndex
from shardstream.shards.layout import FORMAT_VERSION
from shardstream.shards.manifest import Manifest
from shardstream.sizes import plural, size
from shardstream.storage import PathOrUrl, Store

_SHARDS = 16  # whose indexes are read
_NAMED = 12  # fields in a repr
_REJECTS_NAME = "rejects.jsonl"
_PIECE = 8 << 20  # bytes of it at once: it may be larger than memory


@dataclass(frozen=True, slots=True)
class Spread:
    """Smallest, mean and largest of some numbers."""

    least: int
    mean: float
    most: int

    @classmethod
    def of(cls, values: NDArray[Any]) -> Spread:
        """Of an array of integers (n,); all zero where it is empty."""
        return cls(int(values.min()), float(values.mean()), int(values.max())) if len(values) else cls(0, 0.0, 0)


@dataclass(frozen=True, slots=True)
class FieldInfo:
    """A field.

    Attributes:
        name: Its name.
        type: Its type; ``"image"`` is bytes that are image files of any format.
        codec: How its values are compressed: ``"none"`` or ``"zstd"``.
        mean_bytes: Mean stored bytes of a value, of the samples that were counted; ``None`` if none of them has one.
        present: Share of the samples that were counted that have it, in [0, 1]; ``None`` if none was counted.
        kinds: Of a JPEG field, how many files are ``"addressable"``, and of each kind that was kept as it is; of any
            field of pictures, how many are stored although they are ``"damaged"``. Empty where there is nothing to
            count.
    """

    name: str
    type: str
    codec: str
    mean_bytes: float | None
    present: float | None
    kinds: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Info:
    """A data set at a glance.

    Attributes:
        url: Where it lies.
        format: ``"tar"`` or ``"record"``; or the name of another library's.
        format_version: The newest version of the format that this library reads; it has read the data set.
        version: How often the data set has grown, from 1.
        old_versions: The versions before that can still be read.
        samples: Number of samples.
        shards: Number of shards.
        bytes: Bytes of all shards.
        samples_per_shard: Spread over shards.
        shard_bytes: Spread over shards.
        fields: The fields by name.
        counted: Samples of the shards whose indexes were read, which shares and sizes in ``fields`` are of.
        counted_shards: How many shards these are: all of them, or up to 16 from all over the dataset.
        classes: Class names, ``None`` if unknown.
        meta: What was kept with the data set.
        seed: Of the write-time shuffle, ``None`` if samples lie as they came.
        plan: Fingerprint of the pack plan, ``None`` for data sets of a ``ShardWriter``.
        fingerprint: Identity of the stored data.
        rejects: Lines of ``rejects.jsonl``.
        checksums: Whether values have checksums; ``None`` if there is no shard to see it in.
        objects: Files that the data lie in, if they are another library's; ``None`` for ours, where a shard is a file.
        loose: Whether values are files of their own, which have no checksums before they are packed.
        notes: Of data of another library, what was left out or decided when they were indexed.
        bins: Of samples that are bins of documents, how they are packed, how many documents there are, and how full.
    """

    url: str
    format: str
    format_version: int
    version: int
    old_versions: tuple[int, ...]
    samples: int
    shards: int
    bytes: int
    samples_per_shard: Spread
    shard_bytes: Spread
    fields: tuple[FieldInfo, ...]
    counted: int
    counted_shards: int
    classes: tuple[str, ...] | None
    meta: Mapping[str, Any]
    seed: int | None
    plan: str | None
    fingerprint: str
    rejects: int
    checksums: bool | None
    objects: int | None = None
    loose: bool = False
    notes: tuple[str, ...] = ()
    bins: str | None = None

    def __repr__(self) -> str:
        names = [f"{field.name} {field.type}" for field in self.fields]
        more = [f"and {len(names) - _NAMED} more"] if len(names) > _NAMED else []
        classes = "" if self.classes is None else f"; {plural(len(self.classes), 'class', 'classes')}"
        return (
            f"Info({self.url!r}: {plural(self.samples, 'sample')} in {plural(self.shards, 'shard')} ({self.format}),"
            f" {size(self.bytes)}, version {self.version}; {', '.join(names[:_NAMED] + more)}{classes})"
        )


@takes_opening
def info(url: PathOrUrl, **opening: Unpack[Opening]) -> Info:
    """Describe a data set. Reads its manifest and the indexes of up to 16 shards, no payload.

    Args:
        url: Folder or URL of the data set.
        version: Which version of a data set that grew. Default: the newest.
        cache: Folder of a cache for what comes over a network, or a `Cache`. Default: none.
        replicas: Places that have its shards too; asked first, in this order.
        storage_options: Credentials and settings by name, of all these places. Default: those of the environment.

    Raises:
        NotFoundError: There is no data set.
        UsageError: There is no such version, or no place that takes these options.
        StorageError: The store cannot be read.
        DataError: The manifest is damaged. Damaged shards are not counted: `verify` finds them.

    Example:
        >>> info("out/").samples
        200
    """
    dataset = open_dataset(url, **opening)
    manifest = dataset.manifest
    external = manifest.external
    indexes = _read_indexes(dataset) if manifest.shards else []
    checksums = [column.checksums is not None for index in indexes for column in index.columns.values()]
    return Info(
        url=manifest.url,
        format=manifest.format,
        format_version=FORMAT_VERSION,
        version=manifest.version,
        old_versions=tuple(one.version for one in manifest.history),
        samples=manifest.samples,
        shards=manifest.shards,
        bytes=manifest.bytes,
        samples_per_shard=Spread.of(manifest.table.samples),
        shard_bytes=Spread.of(manifest.table.sizes),
        fields=tuple(_field(name, kind, manifest, indexes) for name, kind in manifest.fields.items()),
        counted=sum(index.samples for index in indexes),
        counted_shards=len(indexes),
        classes=manifest.classes,
        meta=manifest.meta,
        seed=manifest.seed,
        plan=manifest.plan,
        fingerprint=manifest.fingerprint,
        rejects=_count_rejects(dataset.store),
        checksums=any(checksums) if indexes else None,
        objects=None if external is None else external.objects,
        loose=external is not None and external.loose,
        notes=() if external is None else external.notes,
        bins=manifest.told_bins,
    )


def _read_indexes(dataset: OpenedDataset) -> list[ShardIndex]:
    """The indexes of shards from all over the dataset, but for damaged ones."""
    shards = np.unique(np.linspace(0, dataset.manifest.shards - 1, _SHARDS).astype(int)).tolist()
    rows = DatasetRows(dataset)
    with suppress(DataError, NotFoundError, StorageError):
        return rows.indexes(shards)
    return [index for index in (_read_index(rows, shard) for shard in shards) if index is not None]


def _read_index(rows: DatasetRows, shard: int) -> ShardIndex | None:
    try:
        return rows.index(shard)
    except (DataError, NotFoundError):
        return None
    except StorageError:
        if rows.dataset.store.mapped:  # a disk that does not give it back: `verify` tells more
            return None
        raise


def _count_rejects(store: Store) -> int:
    try:
        return sum(piece.count(b"\n") for piece in store.pieces(_REJECTS_NAME, _PIECE))
    except NotFoundError:
        return 0


def _field(name: str, kind: FieldType, manifest: Manifest, indexes: Sequence[ShardIndex]) -> FieldInfo:
    codec, kinds = manifest.codecs.get(name, "none"), manifest.kinds.get(name, {})
    counted = sum(index.samples for index in indexes)
    columns = [(index.columns[name], index.samples) for index in indexes if name in index.columns]
    present, bytes = map(sum, zip((0, 0.0), *itertools.starmap(_count, columns), strict=True))
    mean = bytes / present if present and not math.isnan(bytes) else None
    return FieldInfo(name, str(kind), codec, mean, present / counted if counted else None, kinds)


def _count(column: Column, samples: int) -> tuple[int, float]:
    """How many samples have a value, and how many bytes these take; NaN if nothing says that."""
    valid = column.valid_rows(np.arange(samples))
    present = samples if valid is None else int(valid.sum())
    if column.type.kind != "payload":
        return present, float(present * column.type.width)
    sizes = column.sizes
    if sizes is None:
        return present, math.nan
    return present, float((sizes if valid is None else sizes[valid]).sum(dtype=np.int64))
