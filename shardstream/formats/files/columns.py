"""Which column of a list is what."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, TypeAlias

from shardstream.errors import FieldError, FormatError, UnsupportedError, UsageError, did_you_mean
from shardstream.pack.sources.lists.chosen import FILE, split_template
from shardstream.pack.sources.lists.columns import FILE_NAMES, LABEL_NAMES
from shardstream.pack.sources.lists.records import CellKind, Cells, Column
from shardstream.pack.sources.media import is_picture
from shardstream.shards.field_names import usable_field
from shardstream.shards.fields import IMAGE, SCALAR_TYPES, FieldType, type_of_extension

OPTIONS: Mapping[str, str] = {
    "path": "columns of a list that name files, by comma",
    "label": "its column with the label",
    "key": "its column with the key",
    "labels": "'int' where labels are numbers, 'name' for names of classes; else as all of them are",
    "root": "directory that relative paths of a list begin in; all its files are below it then",
}
LABEL = "label"
ANY = "any"
Kind: TypeAlias = str
"""What becomes of a cell: ``file``, ``label``, ``any`` (as it stands), or the name of a field type."""
_MADE = frozenset(("jpg", "png", "webp", IMAGE))  # how the files of a list are called, where nobody says it


class ListField(NamedTuple):
    """A field of a list's samples.

    Attributes:
        name: What it is called; empty: by the kind of its files.
        column: Its column.
        kind: What becomes of a cell.
        template: How the name of a file is made of a cell; ``None``: it is that.
    """

    name: str
    column: Column
    kind: Kind = FILE
    template: str | None = None


class ListColumns(NamedTuple):
    """The columns of a list.

    Attributes:
        width: How many every line has; ``None`` of JSON.
        fields: What is read.
        key: The one with the key; ``None``: keys are paths, or numbers where there are none.
        header: Whether the first line names the columns.
        unused: Names of those that are left out.
    """

    width: int | None
    fields: tuple[ListField, ...]
    key: Column | None = None
    header: bool = False
    unused: tuple[str, ...] = ()


def columns_of(
    kind: CellKind, first: Cells, options: Mapping[str, str], chosen: Mapping[str, str], url: str
) -> ListColumns:
    """The columns of a list.

    Args:
        kind: How its records are written.
        first: The cells of the first one.
        options: Of `OPTIONS`.
        chosen: Fields that the user chose; empty for path and label.
        url: The list, for messages.

    Raises:
        FormatError: They cannot be told.
        UsageError: An option, or a field, names no column.
    """
    known = _Known(kind, first, url)
    if options.keys() & {"path", LABEL, "key"}:
        found = known.by_options(options)
    elif chosen:
        found = ListColumns(known.width, (), header=known.has_header)
        if known.may_be_told(chosen):
            with suppress(FormatError):  # then there is no column of that name either
                found = known.told()
    else:
        found = known.told()
    return known.chosen(found, chosen) if chosen else found


class _Known:
    """What the first record of a list shows."""

    def __init__(self, kind: CellKind, first: Cells, url: str) -> None:
        self._kind = kind
        self._url = url
        self._json = isinstance(first, dict)
        self.names = list(first) if isinstance(first, dict) else [str(cell).strip() for cell in first]
        self._cells = list(first.values()) if isinstance(first, dict) else first
        self.width = None if self._json else len(self.names)
        self.has_header = self._json

    def place(self, text: str) -> Column | None:
        """The column of this number or name; ``None`` if there is none."""
        if self._json:
            return text if text in self.names else None
        if text.isdecimal() and int(text) < len(self.names):  # also where a label of the first line is that number
            return int(text)
        if self.names.count(text) > 1:
            raise UsageError(
                f"several columns are called {text!r}", url=self._url, hint="use the number of the column, from 0"
            )
        return self.names.index(text) if text in self.names else None

    def _column(self, text: str, what: str) -> Column:
        found = self.place(text)
        if found is None:
            raise UsageError(
                f"{what}={text!r}: there is no such column",
                url=self._url,
                hint=f"{did_you_mean(text, self.names)}the columns are {', '.join(self.names)}",
            )
        return found

    def by_options(self, options: Mapping[str, str]) -> ListColumns:
        """The columns that options name."""
        texts = options.get("path", "" if self._json else "0").split(",")
        if texts == [""]:
            texts = [name for name in self.names if name.lower() in FILE_NAMES][:1] or ["path"]
        wanted = [*texts, options.get(LABEL, ""), options.get("key", "")]
        header = self._json or any(text in self.names for text in wanted if text)
        several = header and len(texts) > 1
        fields = [ListField(usable_field(text) if several else "", self._column(text, "path")) for text in texts]
        if LABEL in options:
            fields.append(ListField("cls", self._column(options[LABEL], LABEL), LABEL))
        key = self._column(options["key"], "key") if "key" in options else None
        return ListColumns(self.width, tuple(fields), key, header, self._unused(fields, key, header=header))

    def _unused(self, fields: Sequence[ListField], key: Column | None, *, header: bool) -> tuple[str, ...]:
        used = {key, *(one.column for one in fields)}
        places: Sequence[Column] = self.names if self._json else range(len(self.names))
        return tuple(name for name, place in zip(self.names, places, strict=True) if header and place not in used)

    def may_be_told(self, chosen: Mapping[str, str]) -> bool:
        """Whether fields are chosen of those that a list has by itself, as ``cls``."""
        return any(self.place(split_template(text)[0].partition(":")[0]) is None for text in chosen.values())

    def told(self) -> ListColumns:
        """The columns of path and label, by their names or places."""
        lower = [name.lower() for name in self.names]
        paths = [number for number, name in enumerate(lower) if name in FILE_NAMES]
        if self._json:
            paths = [number for number in paths if isinstance(self._cells[number], str)]
        if not paths:
            return self._without_names()
        labels = [number for number, name in enumerate(lower) if name in LABEL_NAMES]
        for found, what, option in ((paths, "paths", "path"), (labels, "labels", "label")):
            if len(found) > 1:
                shown = ", ".join(self.names[number] for number in found)
                raise UnsupportedError(
                    f"several columns may be the {what}: {shown}",
                    url=self._url,
                    hint=f"say which: SourceOptions(options={{'{option}': '...'}}) (--format-option {option}=COLUMN)",
                )
        places: list[Column] = [name if self._json else number for number, name in enumerate(self.names)]
        fields = [ListField("", places[paths[0]])]
        if labels:
            fields.append(ListField("cls", places[labels[0]], LABEL))
        self.has_header = True
        return ListColumns(self.width, tuple(fields), header=True, unused=self._unused(fields, None, header=True))

    def _without_names(self) -> ListColumns:
        names = self.names
        label = ListField("cls", 1, LABEL)
        if self._kind == "lst" and len(names) > 2 and all(map(_is_number, names[:-1])):  # of MXNet
            if len(names) > 3:
                raise UnsupportedError(
                    "lists with several labels a line are not read in place",
                    url=self._url,
                    hint="`shardstream pack` takes them",
                )
            return ListColumns(3, (ListField("", 2), label))
        if len(names) > 2 or self._json:
            where = f"the first line has {len(names)} columns, and none" if not self._json else "no member"
            raise UnsupportedError(
                f"{where} is called as a column of paths",
                url=self._url,
                hint="say what they are: SourceOptions(options={'path': 'COLUMN', 'label': 'COLUMN'}), by name or "
                "number from 0, or choose: `shardstream index LIST --field jpg=COLUMN:file`",
            )
        return ListColumns(len(names), (ListField("", 0), label) if len(names) == 2 else (ListField("", 0),))

    def chosen(self, found: ListColumns, chosen: Mapping[str, str]) -> ListColumns:
        """The fields that a user chose, of columns or of what a list has by itself."""
        fields = [self._field(found, name, text) for name, text in chosen.items()]
        named = any(
            text in self.names and not text.isdecimal()
            for text in (split_template(one)[0].partition(":")[0] for one in chosen.values())
        )
        header = self._json or found.header or named
        unused = self._unused(fields, found.key, header=header)
        return found._replace(fields=tuple(fields), header=header, unused=unused)

    def _field(self, found: ListColumns, name: str, text: str) -> ListField:
        whole, template = split_template(text)
        parts = whole.split(":")
        for count in range(len(parts), 0, -1):
            column, declared = ":".join(parts[:count]), ":".join(parts[count:])
            place = self.place(column)
            if place is not None:
                kind = _declared(declared, name, text) if declared else _usual(name)
                return ListField(name, place, kind, template)
        own = next((one for one in found.fields if _is_made(one, whole)), None)
        if own is None:
            self._column(parts[0], name)
            raise AssertionError("there is such a column")
        return own._replace(name=name)


def _is_made(field: ListField, text: str) -> bool:
    """Whether a list has a field by itself that is called so."""
    return text == "cls" if field.kind == LABEL else text in (_MADE if not field.name else {field.name})


def _usual(name: str) -> Kind:
    """What a field of this name is, where no type is given."""
    last = name.rpartition(".")[2].lower()
    if name == "cls":
        return LABEL
    return FILE if is_picture(last) or type_of_extension(last).name in ("array", "tensor") else ANY


def _declared(text: str, name: str, whole: str) -> Kind:
    if text == "name":
        return LABEL
    if text in (FILE, IMAGE):
        return FILE
    try:
        kind = FieldType.parse({"text": "str"}.get(text, text))
    except FieldError as error:
        raise UsageError(f"fields[{name!r}] = {whole!r}: {error.what}", hint=error.hint) from error
    if kind.is_image:
        return FILE
    if kind.name in SCALAR_TYPES or kind.name in ("str", "json"):
        return kind.name
    raise UsageError(
        f"fields[{name!r}]: cells of a list are not read as {kind} in place",
        hint="file, str, json and single numbers are; `shardstream pack` takes more",
    )


def _is_number(text: str) -> bool:
    try:
        return not math.isnan(float(text))
    except ValueError:
        return False
