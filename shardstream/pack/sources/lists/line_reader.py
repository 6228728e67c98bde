"""How the record of a list becomes a sample: everything that a worker needs besides the records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from shardstream.errors import FieldError
from shardstream.faults import fault_kind
from shardstream.images.formats import format_of
from shardstream.images.header import not_read
from shardstream.pack.sources.base import LABEL, File, Item, Reject, Value, field_of_extension, file_item
from shardstream.pack.sources.declared import fitted, parse_type
from shardstream.pack.sources.keys import KeyRule
from shardstream.pack.sources.lists.columns import Columns
from shardstream.pack.sources.lists.labels import LabelMode, not_listed, unknown_class
from shardstream.pack.sources.lists.mapping import NAME, check_text
from shardstream.pack.sources.lists.records import (
    Broken,
    CellKind,
    Cells,
    cell,
    content_of,
    is_image,
    label_name,
    parse_label,
    parse_number,
    refuse_windows,
    shown,
    split,
    text_of,
)
from shardstream.pack.sources.paths import Origin, extension_of, join
from shardstream.text import valid_unicode

_LABEL, _LABELS = parse_type("float32"), parse_type("array:float32")
_KEY_HINT = "key='line' makes keys of the numbers of lines, key='COLUMN' of a column"
_ORIGIN_HINT = "SourceOptions(allow_other_origins=True) (--allow-other-origins), if you trust whoever wrote the list"
_NAMES_HINT = "labels='name' (--labels name) numbers names in sorting order and keeps them as the classes"


@dataclass(frozen=True, slots=True)
class LineReader:
    """How a record becomes a sample.

    Attributes:
        kind: How records are written.
        columns: Which column is what.
        keys: How samples get their keys.
        labels: ``"int"`` or ``"name"``.
        folder: Local folder or URL that relative paths are taken from.
        names: Numbers of labels by name; empty until they are known.
        origin: Where all files have to lie; ``None``: anywhere.
        strict: Whether a label that is not among ``names`` ends the run.
        list: Name of the list, for messages.
    """

    kind: CellKind
    columns: Columns
    keys: KeyRule
    labels: LabelMode
    folder: str
    names: Mapping[str, int] = field(default_factory=dict)
    origin: Origin | None = field(default=None, repr=False)  # no part of what the source is
    strict: bool = field(default=False, repr=False)
    list: str = field(default="", repr=False)

    @property
    def whole(self) -> LineReader:
        """The same with keys that still have what is common to all."""
        return replace(self, keys=replace(self.keys, common=""))

    def item(self, raw: bytes, line: int, begin: int = 0) -> Item | Reject:
        """The sample of a record; UsageError where its class ends the run."""
        path = ""
        try:
            cells = self.cells(raw)
            path = self.path(cells)
            return self._item(cells, path, line)
        except Broken as error:
            if error.at is None:
                return Reject(line, valid_unicode(path), str(error), kind=error.kind)
            what = f"line {line} is not a row: {error} (offset {begin + error.at})"
            return Reject(line, valid_unicode(self.list), what, kind="damaged")

    def check(self, raw: bytes, line: int) -> None:
        """Refuse a record that is broken; `Broken`. UsageError where its fields cannot be what was meant."""
        reader = replace(self, names={})  # one whose class is not in the list is well-formed
        cells = self.cells(raw)
        reader._item(cells, self.path(cells), line)
        for one in self.columns.fields:
            one.check_meant(cells)

    def cells(self, raw: bytes) -> Cells:
        """The columns of a record, as many as it must have; `Broken`."""
        cells = split(self.kind, raw)
        self.columns.check(cells)
        return cells

    def path(self, cells: Cells) -> str:
        """The path that keys and messages use, empty if samples have no files; `Broken`."""
        if self.columns.path is None:
            return ""
        path = cell(cells, self.columns.path, "path")
        if is_image(path):
            path = path["path"] or path["bytes"]
        if path == "":
            raise Broken("the line has no path")
        if not isinstance(path, str):
            return ""  # the content of a file may stand there
        if not path.isascii():
            check_text(valid_unicode(path))
        return path

    def key(self, cells: Cells, path: str, line: int) -> str:
        """The key of a record; `Broken`."""
        column = self.columns.key
        if column is not None:
            return self.keys.key(line, path, text_of(cell(cells, column, "key"), "key"))
        if not path and self.keys.mode != "line":
            raise Broken("the line has no path", hint=_KEY_HINT)
        return self.keys.key(line, path)

    def name(self, cells: Cells) -> str:
        """The name of the label; `Broken`."""
        assert self.columns.label is not None
        name = label_name(text_of(cell(cells, self.columns.label, "label"), "label"))
        if not name:
            raise Broken("the label is missing")
        return name

    def _item(self, cells: Cells, path: str, line: int) -> Item | Reject:
        key = self.key(cells, path, line)
        if self.columns.fields:
            values = {one.rule.name: self._field(i, cells, line) for i, one in enumerate(self.columns.fields)}
            return Item(line, path, key, values)
        if self.kind == "lst" and self.columns.count is None:
            return self._detection(cells, path, key, line)
        label = None if self.columns.label is None else self._label(cells, line)
        content = content_of(cell(cells, self.columns.path, "path")) if self.kind == "packed" else None  # type: ignore[arg-type]
        if content is not None:
            return Item(line, path, key, {_image_field(content): content, **({} if label is None else {LABEL: label})})
        return file_item(line, path, key, self._file(path), label=label)

    def _field(self, number: int, cells: Cells, line: int) -> Value:
        one = self.columns.fields[number]
        if one.rule.type == NAME:
            return self._number(self.name(cells), line)
        value = one.value(cells)
        return self._file(value) if one.path and isinstance(value, str) else value

    def _file(self, path: str) -> File:
        """The file of a path in the list; `Broken` where the list may not name it."""
        refuse_windows(path)
        found = join(self.folder, path)
        if self.origin is not None and not self.origin.holds(found):
            raise Broken(f"{shown(path)} does not lie below {self.origin.url}, as the list does", hint=_ORIGIN_HINT)
        return File(found)

    def _label(self, cells: Cells, line: int) -> int:
        if self.labels == "name":
            return self._number(self.name(cells), line)
        assert self.columns.label is not None
        value = cell(cells, self.columns.label, "label")
        try:
            return parse_label(value)
        except ValueError:
            what = shown(value) if isinstance(value, str) else repr(value)
            raise Broken(f"the label {what} is not a 64-bit integer", hint=_NAMES_HINT) from None

    def _number(self, name: str, line: int) -> int:
        number = self.names.get(name) if self.names else 0
        if number is None and self.strict:
            raise unknown_class("label", name, self.names, line=line)
        if number is None:
            raise Broken(not_listed("label", name))
        return number

    def _detection(self, cells: Cells, path: str, key: str, line: int) -> Item | Reject:
        """MXNet's lists for detection: any number of labels, as one array."""
        extension = field_of_extension(extension_of(path))
        if extension.field is None:
            return Reject(line, valid_unicode(path), extension.reason)
        assert isinstance(cells, list)
        try:
            label = fitted(_LABELS, [parse_number(_LABEL, text) for text in cells[1:-1]])
        except ValueError as error:
            raise Broken(f"a label is not a number: {error}") from None
        except FieldError as error:
            raise Broken(error.what) from None
        return Item(line, path, key, {extension.field: self._file(path), LABEL: label})


def _image_field(content: bytes) -> str:
    found = format_of(content)
    if found is None:
        error = not_read(content)
        raise Broken(error.what, kind=fault_kind(error))
    return found.kind
