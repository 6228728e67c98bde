"""Data of other libraries, packed through their catalogue: any order, one pass.

The catalogue is made by the process that plans, as the first part of a run, and kept where `ShardDataset` looks for it;
a run that was killed goes on. Processes that read get its place, and the place of the data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardstream.dataset.dataset_rows import DatasetRows
from shardstream.dataset.formats import Selection
from shardstream.dataset.opened import DatasetAddress, OpenedDataset
from shardstream.errors import DataError, FormatError, NotFoundError, SourceError, UsageError, did_you_mean
from shardstream.formats.catalog.catalog import Catalogue
from shardstream.formats.catalog.dataset import ExternalDataset
from shardstream.formats.catalog.kept import FoundCatalogue, read_catalogue
from shardstream.formats.catalog.make import find_or_make
from shardstream.formats.catalog.plan import Making
from shardstream.formats.catalog.selected import tell_remembered, with_remembered
from shardstream.formats.sources.containers import kind_of_file
from shardstream.formats.sources.foreign_items import (
    ChosenField,
    FieldOf,
    ForeignPart,
    chosen_fields,
    key_of,
    text_in,
    with_label,
)
from shardstream.images.formats import BY_SUFFIX, format_of, refused_suffix
from shardstream.names.globs import split_glob
from shardstream.names.missing import instead_of
from shardstream.pack.sources.base import LABEL, Reject, SourceReading
from shardstream.pack.sources.declared import parse_type
from shardstream.pack.sources.duplicates import check_unique
from shardstream.pack.sources.keys import MODES
from shardstream.pack.sources.lists.columns import Wanted
from shardstream.pack.sources.lists.labels import Classes, check_class_count
from shardstream.pack.sources.lists.records import Broken, label_name
from shardstream.pack.sources.stored import StoredPart, StoredSource
from shardstream.pack.sources.values import is_picture_name
from shardstream.progress import OnProgress, ignore
from shardstream.shards.fields import IMAGE, FieldType
from shardstream.shards.heads import is_no_data_set
from shardstream.shards.index import ShardIndex
from shardstream.storage import Location, locate, open_store

_SAMPLED = 512  # values that are looked at where a name says that they may be pictures
_TOGETHER = 64  # of them that are read at once
_WEIGHED = 32  # indexes by which the mean size of a sample is told
_MOSTLY = 0.9
_OR_PACK = ", or pack it"  # what formats propose where they do not read in place


@dataclass(frozen=True, slots=True)
class ForeignAddress:
    """What another process opens the data with: addresses only.

    Attributes:
        location: Where the data lie.
        spec: Which objects are meant.
        kept: Where the catalogue lies.
        fingerprint: Of the catalogue.
    """

    location: Location
    spec: Selection
    kept: Location
    fingerprint: str

    def open(self) -> OpenedDataset:
        """The data set. Where the catalogue cannot be had, as on another machine, it is made there, once."""
        found = None
        with suppress(DataError, NotFoundError):
            found = read_catalogue(open_store(self.kept), open_store(self.location).url)
        if found is None or found.catalogue.fingerprint != self.fingerprint:
            found = find_or_make(self.location, self.spec, None, _making(split_names=False))  # that was asked before
        return ExternalDataset(DatasetAddress(self.location, selection=self.spec), found)

    def opened(self) -> OpenedDataset:
        """The same, opened once in a process and kept for its next task."""
        return _opened(self)


_opened = lru_cache(maxsize=2)(ForeignAddress.open)


class ForeignSource(StoredSource):
    """Data of another library.

    Args:
        location: Where they lie.
        names: Names of the objects that are meant, or globs of them; empty for all of the folder.
        reading: How they are read.
        wanted: What the user says of keys, fields and classes.
        columns: The only fields that are read, of formats that keep each apart, in their order; empty for all.

    Raises:
        SourceError: They are not there.
        NotFoundError: No format takes them for its own.
        DataError, UsageError, FieldError, StorageError: As `find_or_make`.
        DuplicateKeyError: Two samples have one key.
        UsageError: ``key`` is neither a way of making keys nor a field; labels by name, and there are none.
    """

    def __init__(
        self,
        location: Location,
        names: tuple[str, ...],
        reading: SourceReading,
        wanted: Wanted,
        columns: tuple[str, ...] = (),
    ) -> None:
        spec = Selection.of(names, reading.format, reading.options)
        spec = replace(spec, chosen=tuple((name, name) for name in sorted(columns)))
        found = _found(location, spec, reading)
        catalogue = found.catalogue
        store = open_store(location)
        kept = location if found.store.url == store.url else locate(found.store.url)
        fields = [*dict.fromkeys((*(one for one in columns if one in catalogue.fields), *catalogue.fields))]
        types = {name: catalogue.fields[name] for name in fields}
        chosen, declared = chosen_fields(wanted.fields, types, catalogue.url, wanted.key)
        dataset = ExternalDataset(DatasetAddress(location, selection=spec), found)
        column = None if wanted.key in MODES else _checked_column(wanted.key, catalogue)
        if not chosen and (wanted.labels == "name" or wanted.classes is not None):
            chosen = with_label(catalogue.fields)
        super().__init__(
            dataset,
            address=ForeignAddress(location, with_remembered(spec, catalogue), kept, catalogue.fingerprint),
            key="path" if column is not None else wanted.key,
            unique=column is not None,
            fields=_columns(chosen, column),
        )
        self._made = catalogue.fingerprint
        self._key_column = column
        label = next((one.columns[0] for one in chosen if one.name == LABEL), None if chosen else LABEL)
        kind = None if label is None else catalogue.fields.get(label)
        numbered = self.classes is not None and (kind is None or kind.kind == "scalar")  # as COCO's are
        self._named = wanted.labels == "name" and not numbered
        if self._named:
            chosen = tuple(FieldOf(LABEL, one.columns[0], None) if one.name == LABEL else one for one in chosen)
        self._fields = chosen
        self._labels = wanted.classes if kind is not None and (kind.kind == "payload" or self._named) else None
        self.declared = declared
        self.types = _types(chosen, dataset)
        self.url = store.url if len(names) != 1 else store.locate(names[0])
        if column is not None:
            _check_keys(dataset, column, self.url)
        if self._named and self._labels is None:
            self._labels = Classes(_names_of(dataset, label, self.url))
        if self._named and self._labels is not None:
            self.classes = self._labels.names
        if self._labels is not None:
            self.types[LABEL] = FieldType.parse("int64")
        parsed = {label} if label is not None and self._labels is not None else set()
        self._contents = _parses_files(dataset, chosen, parsed | ({column} if column is not None else set()))
        self.mean_bytes = _mean_bytes(dataset, self.columns)
        self.root = store.url if location.local and not names else None
        remembered = tell_remembered(spec, catalogue)
        read = [f"Read with {remembered}, as it was indexed."] if remembered else []
        self.notes = (*read, *catalogue.notes, *catalogue.warnings)
        self.rejects = _rejects(catalogue)

    def part(self, numbers: NDArray[np.int64]) -> ForeignPart:
        part = StoredPart(self._address, self._made, self._key, self.columns, numbers, self._contents)
        return ForeignPart(part, self._fields, self._labels, self._named, self._key_column, self.url)

    def first_without(self, field: str, *, of: str) -> str | None:
        columns = {one.name: one.columns[0] for one in self._fields}
        dataset = self._address.opened()
        rows = DatasetRows(dataset, ())
        without, some_have = None, False
        for shard in range(dataset.manifest.shards):
            index = rows.index(shard)
            counts, has = (_present(index, columns.get(name, name)) for name in (of, field))
            some_have |= bool((counts & has).any())
            if without is None and (lacking := np.flatnonzero(counts & ~has)).size:
                without = index.keys[int(lacking[0])]
            if without is not None and some_have:
                return without
        return None

    @property
    def fingerprint(self) -> str:
        fields = [(one.name, " ".join(one.columns), one.type) for one in self._fields]
        labels = None if self._labels is None else (self._labels.names, self._labels.unknown)
        keys = "" if self._key_column is None else f" keys {self._key_column}"
        return f"foreign {self._made} {fields} {labels}{' named' if self._named else ''}{keys}"

    def __getstate__(self) -> dict[str, Any]:
        """What parts are made of, in another process: the catalogue is read there."""
        return {name: value for name, value in self.__dict__.items() if name != "manifest"}


def _present(index: ShardIndex, column: str) -> NDArray[np.bool_]:
    """Which samples of a shard have a value in a column, bool (n,)."""
    stored = index.columns.get(column)
    if stored is None:
        return np.zeros(index.samples, bool)
    has = stored.valid_rows(np.arange(index.samples))
    return np.ones(index.samples, bool) if has is None else has


def _making(progress: OnProgress = ignore, *, split_names: bool) -> Making:
    """How catalogues are made for packing: however long it takes, and without what is lost of damaged objects."""
    return Making(damaged="reject", loose=False, split_names=split_names, limit=None, progress=progress)


def _found(location: Location, spec: Selection, reading: SourceReading) -> FoundCatalogue:
    making = _making(reading.progress, split_names=reading.split_names)
    try:
        return find_or_make(location, spec, None, making)
    except FormatError as error:
        if error.hint is None or _OR_PACK not in error.hint:
            raise
        raise type(error)(error.what, hint=error.hint.replace(_OR_PACK, ""), **error.place) from error
    except NotFoundError as error:
        if is_no_data_set(error) or not spec.names:
            raise
        url = str(error.place.get("url", location.url))
        hint = instead_of(url) if "://" not in url else "look at the name"
        what = f"there is no such {kind_of_file(url)}" if split_glob(url) is None else error.what
        raise SourceError(what, url=url, hint=hint) from error


def _columns(chosen: Sequence[ChosenField], key: str | None) -> set[str] | None:
    """The fields that are read; ``None`` for all."""
    if not chosen:
        return None
    return {column for one in chosen for column in one.columns} | ({key} if key is not None else set())


def _checked_column(key: str, catalogue: Catalogue) -> str:
    if key not in catalogue.fields:
        raise UsageError(
            f"key={key!r} is neither 'path', 'auto', 'stem' nor 'line', nor a field",
            url=catalogue.url,
            hint=f"{did_you_mean(key, catalogue.fields)}its fields are {', '.join(catalogue.fields)}",
        )
    return key


def _column(dataset: OpenedDataset, name: str) -> Iterator[Any]:
    """What all samples have in a field, in order; ``None`` where one has nothing, or its file is missing."""
    rows, external = DatasetRows(dataset, [name]), dataset.manifest.external
    if external is not None and external.loose:
        for start in range(0, dataset.manifest.samples, _TOGETHER):
            yield from _values(rows, np.arange(start, min(start + _TOGETHER, dataset.manifest.samples)), name)
        return
    for batch in rows.read_shards(range(dataset.manifest.shards)):
        yield from (batch.value(name, i) for i in range(len(batch.rows)))


def _values(rows: DatasetRows, ids: NDArray[np.int64], name: str) -> Iterator[Any]:
    """What these samples have in a field; ``None`` where it cannot be read, for which the sample will be rejected."""
    try:
        batch = rows.read_ids(ids)
    except DataError:
        if len(ids) == 1:
            yield None
        else:
            for half in np.array_split(ids, 2):
                yield from _values(rows, half, name)
        return
    yield from (batch.value(name, i) for i in range(len(ids)))


def _parses_files(dataset: OpenedDataset, chosen: Sequence[ChosenField], columns: set[str]) -> bool:
    """Whether a number, or one of these columns with keys and labels, is the content of a file."""
    typed = (one for one in chosen if one.type is not None and parse_type(one.type).kind != "payload")
    parsed = columns.union(*(one.columns for one in typed))
    index = DatasetRows(dataset, ()).index(0)
    return any(name in parsed and column.names is not None for name, column in index.columns.items())


def _check_keys(dataset: OpenedDataset, column: str, url: str) -> None:
    """Refuse keys that two samples have; DuplicateKeyError."""

    def keys() -> Iterator[str]:
        for number, found in enumerate(_column(dataset, column)):
            try:
                yield key_of(found)
            except Broken:
                yield f"/{number}"  # no key begins so: it will be rejected

    hint = "--key auto (key='auto') makes keys that differ, --key line of the numbers of samples"
    check_unique(keys, dataset.manifest.samples, named=lambda number: f"sample {number + 1}", url=url, hint=hint)


def _names_of(dataset: OpenedDataset, label: str | None, url: str) -> tuple[str, ...]:
    """The names of the classes of all labels, in sorting order."""
    if label is None or label not in dataset.manifest.fields:
        raise UsageError("labels='name' needs a label", url=url, hint=f"add a field: fields={{{LABEL!r}: 'COLUMN'}}")
    names = set[str]()
    for found in _column(dataset, label):
        with suppress(Broken):
            names.add("" if found is None else label_name(text_in(found, "label")))
        check_class_count(len(names), url=url)
    return tuple(sorted(names - {""}))


def _types(chosen: Sequence[ChosenField], dataset: OpenedDataset) -> dict[str, FieldType]:
    """Types by field, as far as they are known.

    Bytes under the name of a picture format are such pictures, or rejected, wherever they come from, and so are those
    under the name of a format that is never opened; bytes that are
    called like a picture of no format in particular are pictures where nearly all are.
    """
    stored = dataset.manifest.fields
    pairs = (
        [(one.name, one.columns[0]) for one in chosen if one.type is None] if chosen else [(one, one) for one in stored]
    )
    found = {}
    for name, column in pairs:
        kind = stored[column]
        suffix = name.rpartition(".")[2].lower()
        if kind.name == "bytes" and (suffix in BY_SUFFIX or refused_suffix(suffix) is not None):
            continue
        if kind.name == "bytes" and is_picture_name(name) and _are_pictures(dataset, column):
            kind = FieldType.parse(IMAGE)
        found[name] = kind
    return found


def _are_pictures(dataset: OpenedDataset, column: str) -> bool:
    samples = dataset.manifest.samples
    ids = np.unique(np.linspace(0, samples - 1, min(samples, _SAMPLED)).astype(np.int64))
    seen = pictures = 0
    rows = DatasetRows(dataset, [column])
    for start in range(0, len(ids), _TOGETHER):
        for value in _values(rows, ids[start : start + _TOGETHER], column):
            if value is not None:
                seen += 1
                pictures += format_of(bytes(value)) is not None
    return seen > 0 and pictures >= _MOSTLY * seen


def _mean_bytes(dataset: OpenedDataset, fields: tuple[str, ...]) -> float | None:
    """Mean size of a sample, by some of the indexes: an object may hold much that is not read.

    ``None`` where nobody knows the sizes of files.
    """
    shards = dataset.manifest.shards
    total = samples = 0
    rows = DatasetRows(dataset, ())
    for shard in np.unique(np.linspace(0, shards - 1, min(shards, _WEIGHED)).astype(np.int64)).tolist():
        index = rows.index(shard)
        samples += index.samples
        for column in (column for name, column in index.columns.items() if name in fields):
            if column.type.kind != "payload":
                total += index.samples * column.type.width
            elif (sizes := column.sizes) is not None:
                total += int(sizes.sum(dtype=np.int64))
            else:
                return None
    return total / max(samples, 1)


def _rejects(catalogue: Catalogue) -> list[Reject]:
    """Samples of objects that cannot be read: by their line, else at the number of the first sample that is missing."""
    ends = np.cumsum(catalogue.objects.samples, dtype=np.int64)
    found = []
    for number, name in enumerate(catalogue.names):
        if name in catalogue.lost:
            before = int(np.searchsorted(catalogue.objects.objects, number, side="right"))
            first = (int(ends[before - 1]) if before else 0) + 1
            lost = catalogue.lost[name]
            found += [
                Reject(one.line or first, name, one.told.replace("\n", " "), one.samples, one.kind) for one in lost
            ]
    return found
