"""The samples of a data set of ours: to be packed again, in another order, format or size of shards.

A part reads its samples some hundred at a time, in the order of the part: where each lies is known from the index of
its shard, and what lies behind a network is fetched side by side. Of small samples all over many shards it reads more,
so that a shard that is opened serves several of them.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from threading import get_ident
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from shardstream.dataset.dataset_rows import DatasetRows
from shardstream.dataset.opened import OpenedDataset
from shardstream.dataset.selected.row_set import RowSet
from shardstream.dataset.step import groups
from shardstream.errors import DataError, DecodeError, NotFoundError, SourceError, UsageError
from shardstream.faults import fault_kind
from shardstream.pack.sources.base import File, Item, Reject, Source, SourcePart
from shardstream.pack.sources.duplicates import KeyNumbers, check_unique
from shardstream.pack.sources.keys import check_mode, key_of_name
from shardstream.shards.fields import FieldType, ValuesType
from shardstream.shards.index import Column, ShardIndex
from shardstream.shards.manifest import Manifest, unknown_field
from shardstream.storage import Store

_AT_ONCE = 256  # samples read together, at least
_OF_A_SHARD = 16  # of them, on average, where they are small
_MOST_BYTES = 16 << 20  # of all of them
_MOST = 1 << 16


class Opener(Hashable, Protocol):
    """What another process opens a data set with. Hashable; its pickle is small."""

    def open(self) -> OpenedDataset:
        """The data set."""

    def opened(self) -> OpenedDataset:
        """The same, opened once in a process and kept for its next task."""


@dataclass(frozen=True, slots=True)
class StoredPart(SourcePart):
    """Samples of a dataset by their numbers in stored order.

    Attributes:
        address: What opens the dataset.
        fingerprint: Of the dataset.
        key: As of `StoredSource`.
        fields: The fields that are read.
        numbers: The samples.
        contents: Whether values that are files of this machine are read here. Default: samples name them, and whoever
            packs them reads them, as those of a list.
    """

    address: Opener
    fingerprint: str
    key: str
    fields: tuple[str, ...]
    numbers: NDArray[np.int64]
    contents: bool = False

    def __iter__(self) -> Iterator[Item | Reject]:
        rows = _rows(self.address, self.fingerprint, self.fields, (os.getpid(), get_ident()))
        manifest = rows.dataset.manifest
        named = not self.contents and _is_loose(manifest) and rows.dataset.store.file_of("") is not None
        read = self._files if named else self._samples
        at_once = _at_once(manifest)
        for start in range(0, len(self.numbers), at_once):
            yield from read(rows, self.numbers[start : start + at_once])

    def _files(self, rows: DatasetRows, numbers: NDArray[np.int64]) -> Iterator[Item | Reject]:
        """Samples that name their files: these are read, and rejected, as those of any other list."""
        found = dict[int, Item | Reject]()
        shards, stored = rows.dataset.locate(numbers)
        for shard, slots in groups(shards):
            index, chosen = rows.index(shard), stored[slots]
            columns = [index.columns[name] for name in self.fields if name in index.columns]
            values = [_raw_values(column, chosen) for column in columns]
            for i, (slot, row) in enumerate(zip(slots.tolist(), chosen.tolist(), strict=True)):
                raw = [(column, one[i]) for column, one in zip(columns, values, strict=True) if column.has(row)]
                found[slot] = self._named(rows.dataset.store, index, row, int(numbers[slot]) + 1, raw)
        yield from (found[slot] for slot in range(len(numbers)))

    def _named(
        self, store: Store, index: ShardIndex, row: int, line: int, raw: Sequence[tuple[Column, Any]]
    ) -> Item | Reject:
        """The sample of a row, of these values: names of files, and what the index holds."""
        key = index.keys[row]
        names = [value for column, value in raw if column.names is not None]
        path = names[0] if names else f"{index.path}/{key}"
        try:
            values = {
                column.name: File(str(store.file_of(value))) if column.names is not None else _plain(column.type, value)
                for column, value in raw
            }
        except DecodeError as error:
            return Reject(line, path, error.what, kind=fault_kind(error))
        sizes = [column.lengths for column, _ in raw if column.names is not None]
        known = [int(one[row]) for one in sizes if one is not None]
        size = sum(known) if known and len(known) == len(sizes) else None
        return Item(line, path, key_of_name(self.key, key, line), values, size)

    def _samples(self, rows: DatasetRows, numbers: NDArray[np.int64]) -> Iterator[Item | Reject]:
        manifest = rows.dataset.manifest
        try:
            batch = rows.read_ids(numbers)
        except DataError as error:
            if manifest.external is None or not (_is_loose(manifest) or isinstance(error, DecodeError)):
                raise  # what we have written ourselves is damaged
            if len(numbers) > 1:
                middle = len(numbers) // 2
                yield from self._samples(rows, numbers[:middle])
                yield from self._samples(rows, numbers[middle:])
                return
            if _is_loose(manifest) and isinstance(error.__cause__, NotFoundError):
                (named,) = self._files(rows, numbers)
                yield Reject(named.line, named.path, "there is no such file", kind="missing")
                return
            place = "/".join(str(error.place[part]) for part in ("shard", "key") if part in error.place)
            kind = fault_kind(error)
            yield Reject(int(numbers[0]) + 1, place, f"field {error.place.get('field')!r}: {error.what}", kind=kind)
            return
        for i, (number, key) in enumerate(zip(numbers.tolist(), batch.keys, strict=True)):
            place = f"{batch.shards[i]}/{key}"
            try:
                values = {name: _plain(manifest.fields[name], value) for name, value in batch.values(i).items()}
            except DecodeError as error:
                yield Reject(number + 1, place, error.what, kind=fault_kind(error))
                continue
            yield Item(number + 1, place, key_of_name(self.key, key, number + 1), values)


def _is_loose(manifest: Manifest) -> bool:
    """Whether values are files of their own."""
    return manifest.external is not None and manifest.external.loose


def _raw_values(column: Column, rows: NDArray[np.int64]) -> Sequence[Any]:
    """What a column of a catalog of files has in these rows: names of files, or values."""
    if column.names is not None:
        return column.object_names(rows)
    return column.held_values(rows) if column.values is None else column.values[rows].tolist()


def _at_once(manifest: Manifest) -> int:
    """How many samples are read together: opening a shard costs as much as reading hundreds of small ones."""
    mean = max(manifest.shown_bytes / max(manifest.samples, 1), 1)
    return max(_AT_ONCE, min(_OF_A_SHARD * manifest.shards, int(_MOST_BYTES / mean), _MOST))


@lru_cache(maxsize=4)
def _rows(address: Opener, fingerprint: str, fields: tuple[str, ...], thread: tuple[int, int]) -> DatasetRows:
    """What one thread of one process reads with: the indexes of a part are those of the next one too."""
    return DatasetRows(opened_as(address, fingerprint), fields)


def opened_as(address: Opener, fingerprint: str) -> OpenedDataset:
    """The data set of a task, in the process that runs it.

    Raises:
        SourceError: Another one lies there by now.
    """
    dataset = address.opened()
    if dataset.manifest.fingerprint != fingerprint:  # kept since before it was replaced, perhaps
        dataset = address.open()
    if dataset.manifest.fingerprint != fingerprint:
        raise SourceError("the data set changed while it was being packed", url=dataset.url, hint="pack it again")
    return dataset


class StoredSource(Source):
    """The samples of a data set.

    Args:
        dataset: The data set.
        address: What other processes open it with. Default: its own.
        key: ``"path"`` for the keys it has, ``"stem"`` for their last parts, ``"line"`` for the number of the sample,
            ``"auto"`` for the keys it has, equal ones numbered.
        fingerprint: What stands for its contents; ``None``: its own fingerprint.
        unique: Whether its keys are known to be unique; else they are compared.
        fields: Fields to read. Default: all.
        take: How many of its samples, from the first in stored order on. Default: all.
        rows: Which of its samples. Default: all.

    Raises:
        UsageError: Another ``key``, or ``take`` is not such a number.
        FieldError: There is no such field.
        DuplicateKeyError: Two samples with one key.

    Attributes:
        manifest: Of the data set.
        columns: Names of the fields that are read.
    """

    lendable = True

    def __init__(
        self,
        dataset: OpenedDataset,
        *,
        address: Opener | None = None,
        key: str = "path",
        fingerprint: str | None = None,
        unique: bool = True,
        fields: Collection[str] | None = None,
        take: int | None = None,
        rows: RowSet | None = None,
    ) -> None:
        check_mode(key, "samples have no columns here")
        self._address = address or dataset.address
        self._key = key
        self.url = dataset.location.url
        self.manifest = dataset.manifest
        self.classes = dataset.manifest.classes
        self.mean_bytes = dataset.manifest.bytes / max(dataset.manifest.samples, 1)
        self.types = chosen(fields, dataset.manifest)
        self.columns = tuple(self.types)
        self._rows = rows
        self._count = taken(take, dataset.manifest.samples if rows is None else len(rows))
        bins = dataset.manifest.bins
        if bins is not None and bins.needs(dataset.manifest.fields) <= self.types.keys():
            left_out = self._count < dataset.manifest.samples and bins.pieces > bins.documents
            self.bins = replace(bins, partial=bins.partial or left_out)
        self._fingerprint = fingerprint
        if not self._count:
            if rows is not None:
                raise UsageError("where= leaves no sample", url=self.url, hint="choose others")
            raise SourceError("the data set holds no samples", url=self.url, hint="name a data set that holds some")
        if key == "stem" or (key in ("path", "auto") and not unique):
            self.numbering = _compare_keys(dataset, key)

    def __len__(self) -> int:
        return self._count

    def part(self, numbers: NDArray[np.int64]) -> SourcePart:
        stored = numbers if self._rows is None else self._rows.numbers(numbers)
        return StoredPart(self._address, self.manifest.fingerprint, self._key, self.columns, stored)

    @property
    def fingerprint(self) -> str:
        own = f"data set {self.manifest.fingerprint} {self._count} {sorted(self.types)}"
        return self._fingerprint or (own if self._rows is None else f"{own} rows {self._rows.digest}")


def _compare_keys(dataset: OpenedDataset, mode: str) -> KeyNumbers | None:
    """Raise the error for the first key that two samples have, or number them."""
    rows = DatasetRows(dataset, ())

    def keys() -> Iterator[str]:
        for shard in range(dataset.manifest.shards):
            yield from (key_of_name(mode, key, 0) for key in rows.index(shard).keys)

    def named(number: int) -> str:
        shard, row = dataset.numbering.find(number)
        name = dataset.manifest.shard_name(shard)
        while shard and dataset.manifest.shard_name(shard - 1) == name:  # an object of another library may be several
            shard -= 1
            row += int(dataset.manifest.table.samples[shard])
        return f"{name}#{row}"

    hint = (
        "key='auto' (--key auto) numbers equal keys of tar files and tables, key='line' (--key line) all samples; or "
    )
    hint += "make keys unique"
    number = mode == "auto"
    return check_unique(keys, dataset.manifest.samples, named=named, url=dataset.location.url, hint=hint, number=number)


def chosen(fields: Collection[str] | None, manifest: Manifest) -> dict[str, FieldType]:
    """The types of some fields of a data set, ``None`` for all; FieldError where there is no such field."""
    for name in fields or ():
        if name not in manifest.fields:
            raise unknown_field(name, manifest.fields, url=manifest.url)
    return {name: kind for name, kind in manifest.fields.items() if fields is None or name in fields}


def taken(take: object, samples: int) -> int:
    """How many samples ``take`` leaves, ``None`` all; UsageError where it is not a positive integer."""
    if take is None:
        return samples
    if isinstance(take, bool) or not isinstance(take, int) or take < 1:
        raise UsageError(
            f"take must be a positive integer, got {take!r}", hint="write take=100, for example, or leave it out"
        )
    return min(take, samples)


def _plain(kind: FieldType, value: Any) -> Any:
    """A stored value as sources give values."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(kind, ValuesType):  # bytes that are given for such a field might be taken for an NPY file
        return kind.decode(value)
    return bytes(value) if isinstance(value, memoryview) else value
