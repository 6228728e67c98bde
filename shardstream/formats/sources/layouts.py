"""Lists beside directories of files, packed: scanned as in place, and copied to a temporary file of records."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import msgpack
import numpy as np
import xxhash
from numpy.typing import NDArray

from shardstream.errors import UnsupportedError, UsageError, did_you_mean
from shardstream.formats.contract import SourceObject
from shardstream.formats.files.format import SingleFiles
from shardstream.formats.files.layouts import Layout
from shardstream.formats.scans.rows import ScannedRows, usable_key
from shardstream.pack.sources.base import LABEL, File, Item, Reject
from shardstream.pack.sources.duplicates import check_unique
from shardstream.pack.sources.keys import MODES, key_of_name
from shardstream.pack.sources.lists.columns import Wanted
from shardstream.pack.sources.lists.labels import Classes, not_listed
from shardstream.pack.sources.lists.spool import RecordSource, Spool
from shardstream.pack.sources.paths import join
from shardstream.shards.fields import FieldType
from shardstream.shards.index import Column
from shardstream.storage import Location, open_store

_HINT = "--key auto (key='auto') numbers equal keys, --key line makes keys of the numbers of lines"


@dataclass(frozen=True, slots=True)
class LayoutReader:
    """How a record becomes a sample. A record holds a key, the names of files by field, and other values.

    Attributes:
        root: The directory that names of files are below.
        types: Types of the other values.
        key: A way of making keys, or a field.
        labels: Numbers of classes, by the numbers that the list gives them; ``None`` if these are the same.
    """

    root: str
    types: Mapping[str, FieldType]
    key: str
    labels: tuple[int | None, ...] | None = None
    names: Sequence[str] = field(default=(), repr=False)

    def key_of(self, raw: bytes, line: int) -> str:
        """The key of a record."""
        key, _, values = _unpacked(raw)
        return self._key(key, values, line) or f"//{line}"  # no key begins so: it will be rejected

    def _key(self, key: str, values: Mapping[str, Any], number: int) -> str:
        if self.key in MODES:
            return key_of_name(self.key, key, number)
        value = values.get(self.key, "")
        return usable_key(value.decode() if isinstance(value, bytes) else str(value))

    def item(self, raw: bytes, number: int, begin: int = 0) -> Item | Reject:
        """The sample of a record; its number, or line, counts from 1."""
        key, files, found = _unpacked(raw)
        path = next(iter(files.values()), "")
        values: dict[str, Any] = {name: File(join(self.root, path)) for name, path in files.items()}
        for name, value in found.items():
            kind = self.types[name]
            values[name] = value if kind.kind == "scalar" else kind.decode(memoryview(value))
        if self.labels is not None and LABEL in values:
            label = self.labels[values[LABEL]]
            if label is None:
                return Reject(number, path, not_listed("label", self.names[values[LABEL]]))
            values[LABEL] = label
        if not (key := self._key(key, found, number)):
            return Reject(number, path, f"the row has no key: its {self.key!r} is empty")
        return Item(number, path, key, values)


def _unpacked(raw: bytes) -> tuple[str, dict[str, str], dict[str, Any]]:
    key, files, values = msgpack.unpackb(raw, unicode_errors="surrogateescape")
    return key, files, values


class LayoutSource(RecordSource[LayoutReader]):
    """The rows of lists whose columns are known, with the files that they name.

    Args:
        root: The directory that the lists are below.
        layout: The lists.
        wanted: What the user says of keys and classes.

    Raises:
        SourceError: No row can be read.
        DuplicateKeyError: Two rows have one key.
        UsageError: ``key`` is neither a way of making keys nor a field, or a label is none of the classes.
    """

    def __init__(self, root: Location, layout: Layout, wanted: Wanted) -> None:
        store, format, hasher, spool = open_store(root), SingleFiles(), xxhash.xxh3_128(), Spool()
        layout, self.declared = _as_wanted(layout, wanted)
        self.url = store.locate(layout.lists[0]) if len(layout.lists) == 1 else store.url
        self.notes = (layout.note,)
        self.rejects = rejects = list[Reject]()
        types, names, lines = dict[str, FieldType](), tuple[str, ...](), array("q")
        options = {"labels": wanted.labels} if wanted.said else {}
        try:
            for path in layout.lists:
                one = SourceObject(path, store.size(path), {**layout.about, "options": options})
                for rows in format.scan(format.open(store, one), one.about):
                    names = rows.classes or names
                    _add_types(types, rows, self.url)
                    rejects += [Reject(lost.line, path, lost.told, kind=lost.kind) for lost in rows.broken]
                    lines.extend(rows.lines)
                    for record in _records(rows):
                        hasher.update(record)
                        spool.add(record)
            single = len(layout.lists) == 1  # or a line does not tell in which list
            self._records = spool.finish(self.url, np.frombuffer(lines, np.int64) if single else None)
        finally:
            spool.close()
        self._digest = hasher.hexdigest()
        self.types = {name: kind for name, kind in types.items() if kind.is_image or name not in layout.files}
        _check_key(wanted.key, types, self.url)
        self.classes, labels = _classes(names, wanted.classes, self.url)
        self._reader = LayoutReader(store.url, types, wanted.key, labels, names)
        if wanted.key != "line":
            auto = wanted.key == "auto"
            self.numbering = check_unique(self._keys, len(self), named=_row, url=self.url, hint=_HINT, number=auto)

    def _keys(self) -> Iterator[str]:
        for first, data, starts in self._records.blocks():
            for number, (start, end) in enumerate(pairwise([*starts.tolist(), len(data)]), first):
                yield self._reader.key_of(data[start:end], number + 1)

    @property
    def fingerprint(self) -> str:
        return f"layout {self._digest} {self._reader.key} {self.classes} {self._reader.labels}"


def _add_types(types: dict[str, FieldType], rows: ScannedRows, url: str) -> None:
    """Take the types of some rows into account; UnsupportedError if a field has two."""
    for column in rows.columns:
        if types.setdefault(column.name, column.type) != column.type:
            raise UnsupportedError(
                f"the field is {types[column.name]} in one list, and {column.type} in another",
                url=url,
                field=column.name,
                hint=f"name all fields, this one with its type: --field {column.name}=COLUMN:TYPE",
            )


def _row(number: int) -> str:
    return f"row {number + 1}"


def _as_wanted(layout: Layout, wanted: Wanted) -> tuple[Layout, dict[str, FieldType]]:
    """The layout with the fields that a user chose, and the types that name no column."""
    declared = {rule.name: rule.declared for rule in wanted.fields if rule.declared is not None}
    chosen = {rule.name: rule.text for rule in wanted.fields if rule.declared is None}
    return layout._replace(fields=chosen or layout.fields), declared


def _check_key(key: str, types: Mapping[str, FieldType], url: str) -> None:
    if key not in (*MODES, *types):
        raise UsageError(
            f"key={key!r} is neither 'path', 'auto', 'stem' nor 'line', nor a field",
            url=url,
            hint=f"{did_you_mean(key, types)}its fields are {', '.join(types)}",
        )


def _classes(
    names: tuple[str, ...], given: Classes | None, url: str
) -> tuple[tuple[str, ...] | None, tuple[int | None, ...] | None]:
    """The classes of a source, and the number of each class that its list has."""
    if given is None or not names:
        return (names or None) if given is None else given.names, None
    return given.names, tuple(given.number(name, url=url) for name in names)


def _records(rows: ScannedRows) -> Iterator[bytes]:
    """The records of some rows."""
    numbers = np.arange(len(rows.keys))
    files = {column.name: column.object_names(numbers) for column in rows.columns if column.names is not None}
    others = {column.name: _values(column, numbers) for column in rows.columns if column.names is None}
    for row, key in enumerate(rows.keys):
        values = {name: column[row] for name, column in others.items() if column[row] is not None}
        yield msgpack.packb(
            (key, {name: column[row] for name, column in files.items()}, values), unicode_errors="surrogateescape"
        )


def _values(column: Column, rows: NDArray[np.int64]) -> list[Any]:
    """What a column holds, as numbers or as stored bytes; ``None`` where nothing is."""
    if column.type.kind == "scalar":
        assert column.values is not None
        found: list[Any] = column.values.tolist()
    else:
        found = [bytes(one) for one in column.held_values(rows)]
    return [value if column.has(row) else None for row, value in enumerate(found)]
