"""Data of other libraries, packed through their catalogue: any order, one pass.

The catalogue is made by the process that plans, as the first part of a run, and kept where `ShardDataset` looks for it;
a run that was killed goes on. Processes that read get its place, and the place of the data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardstream.dataset.dataset_rows import DatasetRows
from shardstream.dataset.foreign.kept import FoundCatalogue, read_catalogue
from shardstream.dataset.foreign.make import find_or_make
from shardstream.dataset.foreign.plan import Making
from shardstream.dataset.foreign.spec import ForeignSpec
from shardstream.dataset.opened import DatasetAddress, OpenedDataset
from shardstream.errors import DataError, FieldError, FormatError, NotFoundError, SourceError, UsageError
from shardstream.images.formats import BY_SUFFIX, format_of, refused_suffix
from shardstream.pack.sources.base import LABEL, Item, Reject, SourcePart
from shardstream.pack.sources.containers import kind_of_file
from shardstream.pack.sources.declared import parse_type
from shardstream.pack.sources.listings import split_glob
from shardstream.pack.sources.lists.columns import Wanted
from shardstream.pack.sources.lists.labels import Classes, not_listed
from shardstream.pack.sources.lists.mapping import FieldRule, converted
from shardstream.pack.sources.missing import instead_of
from shardstream.pack.sources.stored import StoredPart, StoredSource
from shardstream.pack.sources.values import is_picture_name
from shardstream.progress import OnProgress, ignore
from shardstream.shards.catalogue import Catalogue
from shardstream.shards.fields import IMAGE, FieldType
from shardstream.shards.foreign.formats.files.chosen import FILE
from shardstream.shards.foreign.formats.files.records import Broken
from shardstream.shards.heads import is_no_data_set
from shardstream.shards.manifest import unknown_field
from shardstream.storage import Location, locate, open_store

_SAMPLED = 512  # values that are looked at where a name says that they may be pictures
_WEIGHED = 32  # indexes by which the mean size of a sample is told
_MOSTLY = 0.9
_OR_PACK = ", or pack it"  # what formats propose where they do not read in place


@dataclass(frozen=True)
class SourceReading:
    """How a source is read, where it is not samples from Python.

    Attributes:
        format: Name of the format, of data of another library; ``None``: as it is recognised.
        options: Of reading it; ``None``: those of the catalogue that is there, if any.
        progress: Told of each object that is indexed.
        allow_other_origins: Whether a list that is not local may name files beyond its own bucket or host.
    """

    format: str | None = None
    options: Mapping[str, str] | None = None
    progress: OnProgress = ignore
    allow_other_origins: bool = False

    def spec(self, names: tuple[str, ...]) -> ForeignSpec:
        """Which objects are meant."""
        return ForeignSpec.of(names, self.format, self.options)


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
    spec: ForeignSpec
    kept: Location
    fingerprint: str

    def open(self) -> OpenedDataset:
        """The data set. Where the catalogue cannot be had, as on another machine, it is made there, once."""
        found = None
        with suppress(DataError, NotFoundError):
            found = read_catalogue(open_store(self.kept), open_store(self.location).url)
        if found is None or found.catalogue.fingerprint != self.fingerprint:
            found = find_or_make(self.location, self.spec, None, _making())
        return OpenedDataset.of_catalogue(DatasetAddress(self.location, foreign=self.spec), found)

    def opened(self) -> OpenedDataset:
        """The same, opened once in a process and kept for its next task."""
        return _opened(self)


_opened = lru_cache(maxsize=2)(ForeignAddress.open)


@dataclass(frozen=True, slots=True)
class FieldOf:
    """A field, and the field of the foreign data that it comes from.

    Attributes:
        name: Its name.
        column: That of the other.
        type: What it is made; ``None`` leaves it as it is.
    """

    name: str
    column: str
    type: str | None

    def value(self, found: Any) -> Any:
        """The value, of one that a sample has.

        Raises:
            Broken, FieldError, ValueError, TypeError, OverflowError, RecursionError: It cannot be of this type.
        """
        if self.type is None:
            return found
        kind = parse_type(self.type)
        if isinstance(found, bytes) and kind.kind == "payload":
            return found
        if isinstance(found, bytes) and kind.kind == "scalar":
            found = found.decode("utf-8", "replace")
        return converted(kind, found)


@dataclass(frozen=True, slots=True)
class ForeignPart(SourcePart):
    """Samples by their numbers.

    Attributes:
        part: The same with the fields of the foreign data.
        fields: Fields that are made of them; empty for all, under their names.
        classes: What a label that is text is looked up in; ``None`` leaves it text.
        url: Where the data lie.
    """

    part: SourcePart
    fields: tuple[FieldOf, ...] = ()
    classes: Classes | None = None
    url: str = ""

    def __iter__(self) -> Iterator[Item | Reject]:
        if not self.fields and self.classes is None:
            yield from self.part
            return
        for item in self.part:
            yield self._changed(item) if isinstance(item, Item) else item

    def _changed(self, item: Item) -> Item | Reject:
        values = dict(item.values)
        try:
            if self.fields:
                values = {
                    one.name: one.value(values[one.column]) for one in self.fields if values.get(one.column) is not None
                }
        except (Broken, FieldError, ValueError, TypeError, OverflowError, RecursionError) as error:
            what = error.what if isinstance(error, FieldError) else str(error)
            return Reject(item.line, item.path, what)
        label = values.get(LABEL)
        if self.classes is not None and isinstance(label, bytes | str):
            return self._labelled(item._replace(values=values), label)
        return item._replace(values=values)

    def _labelled(self, item: Item, label: bytes | str) -> Item | Reject:
        """The sample with the number of its class."""
        assert self.classes is not None
        text = (label.decode("utf-8", "replace") if isinstance(label, bytes) else label).strip()
        try:
            number: int | None = int(text)
        except ValueError:
            number = self.classes.number(text, url=self.url, key=item.key)
        if number is None:
            return Reject(item.line, item.path, not_listed("label", text))
        return item._replace(values={**item.values, LABEL: number})


class ForeignSource(StoredSource):
    """Data of another library.

    Args:
        location: Where they lie.
        names: Names of the objects that are meant, or globs of them; empty for all of the folder.
        reading: How they are read.
        wanted: What the user says of keys, fields and classes.
        columns: The only fields that are read, of formats that keep each apart; empty for all.

    Raises:
        SourceError: They are not there.
        NotFoundError: No format takes them for its own.
        DataError, UsageError, FieldError, StorageError: As `find_or_make`.
        DuplicateKeyError: Two samples have one key.
    """

    def __init__(
        self,
        location: Location,
        names: tuple[str, ...],
        reading: SourceReading,
        wanted: Wanted,
        columns: tuple[str, ...] = (),
    ) -> None:
        spec = replace(reading.spec(names), columns=columns)
        found = _found(location, spec, reading)
        catalogue = found.catalogue
        store = open_store(location)
        kept = location if found.store.url == store.url else locate(found.store.url)
        chosen, declared = chosen_fields(wanted.fields, [*catalogue.fields], catalogue.url)
        dataset = OpenedDataset.of_catalogue(DatasetAddress(location, foreign=spec), found)
        super().__init__(
            dataset,
            address=ForeignAddress(location, spec, kept, catalogue.fingerprint),
            key=wanted.key,
            unique=False,
            fields={one.column for one in chosen} or None,
        )
        self._made = catalogue.fingerprint
        self._fields = chosen
        self._labels = wanted.classes if _is_text(chosen, catalogue) else None
        self.declared = declared
        self.types = _types(chosen, dataset)
        if self._labels is not None:
            self.types[LABEL] = FieldType.parse("int64")
        self.mean_bytes = _mean_bytes(dataset, self._columns)
        self.url = store.url if len(names) != 1 else store.locate(names[0])
        self.root = store.url if location.local and not names else None
        self.notes = catalogue.notes
        self.rejects = _rejects(catalogue)

    def part(self, numbers: NDArray[np.int64]) -> ForeignPart:
        part = StoredPart(self._address, self._made, self._key, self._columns, numbers, named=True)
        return ForeignPart(part, self._fields, self._labels, self.url)

    @property
    def fingerprint(self) -> str:
        fields = [(one.name, one.column, one.type) for one in self._fields]
        labels = None if self._labels is None else (self._labels.names, self._labels.unknown)
        return f"foreign {self._made} {fields} {labels}"

    def __getstate__(self) -> dict[str, Any]:
        """What parts are made of, in another process: the catalogue is read there."""
        return {name: value for name, value in self.__dict__.items() if name != "manifest"}


def _making(progress: OnProgress = ignore) -> Making:
    """How catalogues are made for packing: however long it takes, and without what is lost of damaged objects."""
    return Making(damaged="reject", loose=False, limit=None, progress=progress)


def _found(location: Location, spec: ForeignSpec, reading: SourceReading) -> FoundCatalogue:
    making = _making(reading.progress)
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


def chosen_fields(
    rules: tuple[FieldRule, ...], names: Sequence[str], url: str
) -> tuple[tuple[FieldOf, ...], dict[str, FieldType]]:
    """The fields that are made of which, none for all as they are; and the types that are declared.

    Args:
        rules: What the user says.
        names: The fields that there are.
        url: Where, for messages.

    Raises:
        FieldError: There is no such field.
        UsageError: A field is to be the content of a file.
    """
    kinds = ((rule.name, rule.declared) for rule in rules if rule.column not in names)
    declared = {name: kind for name, kind in kinds if kind is not None}
    if len(declared) == len(rules):
        return (), declared
    chosen = []
    for rule in (rule.among(names) for rule in rules):
        if rule is None:
            continue
        if rule.column not in names:
            raise unknown_field(rule.column, names, url=url)
        kind = None if rule.text == rule.column else rule.type
        if kind == FILE:
            raise UsageError(f"field {rule.column!r} holds no paths of files", field=rule.name, hint="leave :file out")
        if kind is not None:
            declared[rule.name] = parse_type(kind)
        chosen.append(FieldOf(rule.name, rule.column, kind))
    return tuple(chosen), declared


def _is_text(chosen: tuple[FieldOf, ...], catalogue: Catalogue) -> bool:
    """Whether labels are text."""
    column = next((one.column for one in chosen if one.name == LABEL), None if chosen else LABEL)
    kind = catalogue.fields.get(column) if column else None
    return kind is not None and kind.kind == "payload"


def _types(chosen: tuple[FieldOf, ...], dataset: OpenedDataset) -> dict[str, FieldType]:
    """Types by field, as far as they are known.

    Bytes under the name of a picture format are such pictures, or rejected, wherever they come from, and so are those
    under the name of a format that is never opened; bytes that are
    called like a picture of no format in particular are pictures where nearly all are.
    """
    stored = dataset.manifest.fields
    pairs = [(one.name, one.column) for one in chosen if one.type is None] if chosen else [(one, one) for one in stored]
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
    for start in range(0, len(ids), 64):
        batch = rows.read_ids(ids[start : start + 64])
        for i in range(len(batch.keys)):
            value = batch.values(i).get(column)
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
    """What is lost of objects that are damaged: one for each, at the number of the first sample that is missing."""
    ends = np.cumsum(catalogue.objects.samples, dtype=np.int64)
    found = []
    for number, name in enumerate(catalogue.names):
        if name in catalogue.lost:
            before = int(np.searchsorted(catalogue.objects.objects, number, side="right"))
            line = (int(ends[before - 1]) if before else 0) + 1
            found.append(Reject(line, name, catalogue.lost[name].replace("\n", " ")))
    return found
