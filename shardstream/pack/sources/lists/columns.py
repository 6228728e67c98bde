"""Which column of a list is what."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from shardstream.errors import UsageError, did_you_mean
from shardstream.pack.sources.base import LABEL
from shardstream.pack.sources.keys import MODES
from shardstream.pack.sources.lists.labels import Classes, LabelMode
from shardstream.pack.sources.lists.mapping import NAME, BoundField, FieldRule, bound_columns, is_path, unknown_type
from shardstream.pack.sources.lists.records import Broken, CellKind, Cells, Column

# How the columns that matter are called in headers, in lower case.
FILE_NAMES = frozenset((
    *("path", "file", "filename", "file_name", "filepath", "file_path"),
    *("image", "image_path", "imagepath", "img", "img_path", "jpg", "jpeg", "png"),
))  # fmt: skip
LABEL_NAMES = frozenset((
    *("label", "labels", "cls", "class", "class_id", "class_idx", "class_name"),
    *("target", "category", "category_id", "label_id", "label_idx", "y"),
))  # fmt: skip
_REST = "*"  # all columns that are not taken
PATH_NAMES = FILE_NAMES | {"url", "image_url"}


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a list.

    Attributes:
        count: How many every record has; ``None`` where that may differ.
        path: The one with the path; ``None`` if samples have no files.
        label: The one with the label; ``None`` if there is none.
        key: The one with the key, if keys come from a column.
        fields: Fields and their columns, if the user chose them.
        declared: What the user chose that names no column, but the type of a field.
        header: Whether the first record names the columns.
        unused: Names of columns that are not packed.
    """

    count: int | None
    path: Column | None = 0
    label: Column | None = None
    key: Column | None = None
    fields: tuple[BoundField, ...] = ()
    declared: tuple[FieldRule, ...] = ()
    header: bool = False
    unused: tuple[str, ...] = ()

    def check(self, cells: Cells) -> None:
        """Refuse a record of another width; `Broken`."""
        if self.count is not None and len(cells) != self.count:
            raise Broken(f"the line has {_columns(len(cells))} where the first has {self.count}")


def _columns(count: int) -> str:
    return "1 column" if count == 1 else f"{count} columns"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the user says of a list: how keys are made, what labels are, which fields there are, what it may name.

    Attributes:
        key: How keys are made, see `KeyRule`.
        labels: ``"int"`` or ``"name"``.
        fields: Which column becomes which field.
        other_origins: Whether a list that is not local may name files anywhere.
        classes: The classes that names of labels are looked up in; ``None``: those that are found, in sorting order.
        said: Whether the user said what labels are.
        root: The folder that paths are taken from, from that of the list; ``None``: that one.
    """

    key: str = "path"
    labels: LabelMode = "int"
    fields: tuple[FieldRule, ...] = ()
    other_origins: bool = False
    classes: Classes | None = None
    said: bool = True
    root: str | None = None


def understand(kind: CellKind, first: Cells, wanted: Wanted, *, names: Sequence[str] | None = None) -> Columns:
    """The columns of a list by its first record.

    It is a header if it names the column of ``wanted.key``, or every column of ``wanted.fields`` and at least one of
    them by what is not a number, or if one of its columns is called like a path (`PATH_NAMES`, in any case); the label
    is then the column that is called like one (`LABEL_NAMES`). Without a header, the path comes first and the label
    second.

    Args:
        kind: How records are written.
        first: The first record.
        wanted: What the user asked for.
        names: Names of the columns, where the list tells them apart from its records.

    Raises:
        UsageError: A column that the list does not have.
    """
    if isinstance(first, dict):
        found = _by_name(list(first), wanted, number=False)
    elif names is not None:
        found = _by_name(names, wanted, number=True)
    elif kind == "lst":
        found = Columns(3 if len(first) == 3 else None, path=len(first) - 1 if len(first) == 3 else -1, label=1)
        found = _numbered(found, len(first), wanted)
    elif kind == "blank":
        found = _numbered(Columns(2, label=1), 2, wanted)
    elif _is_header(first, wanted):
        found = replace(_by_name([name.strip() for name in first], wanted, number=True), header=True)
    else:
        found = _numbered(Columns(len(first), label=1 if len(first) > 1 else None), len(first), wanted)
    return _check_files(found, wanted)


def _is_header(first: list[str], wanted: Wanted) -> bool:
    names = [name.strip() for name in first]
    chosen, _ = _chosen(wanted, names)
    found = {rule.in_header(names) for rule in chosen}
    if True in found and False not in found:
        return True
    if wanted.key in names and wanted.key not in MODES and not wanted.key.isdecimal():
        return True
    numbers = [str(number) for number in range(len(names))]
    if any(rule.is_pattern(names) and not rule.matching(names) + rule.matching(numbers) for rule in chosen):
        return True  # so that the error names what stands there
    if any(rule.column not in names and unknown_type(rule.column, names) for rule in chosen):
        return True  # the same
    return any(name.lower() in PATH_NAMES for name in names)


def _chosen(wanted: Wanted, names: Sequence[str]) -> tuple[list[FieldRule], tuple[FieldRule, ...]]:
    """The rules about columns, in a list whose columns are called so, and those that are types alone."""
    found = [(rule, rule.among(names)) for rule in wanted.fields]
    return [own for _, own in found if own is not None], tuple(rule for rule, own in found if own is None)


def _by_name(names: Sequence[str], wanted: Wanted, *, number: bool) -> Columns:
    """Columns that have names; their places are numbers, or the names themselves."""
    chosen, declared = _chosen(wanted, names)

    def place(name: str) -> Column:
        if names.count(name) > 1:
            raise UsageError(f"several columns are called {name!r}", hint="use the number of the column, from 0")
        if name in names:
            return names.index(name) if number else name
        if number and name.isdecimal() and int(name) < len(names):
            return int(name)
        wrong = unknown_type(name, names)
        if wrong is not None:
            raise wrong
        if not number:
            return name  # of a key that the first object may lack
        raise UsageError(
            f"the list has no column {name!r}",
            hint=f"{did_you_mean(name, names)}its columns are {', '.join(names)}",
        )

    if wanted.key not in MODES and wanted.key not in names:
        raise UsageError(
            f"key={wanted.key!r} is neither 'path', 'auto', 'stem' nor 'line', nor a column of the list",
            hint=f"its columns are {', '.join(names)}",
        )
    path = next((name for name in names if name.lower() in PATH_NAMES), None)
    label = next((name for name in names if name.lower() in LABEL_NAMES), None)
    key = None if wanted.key in MODES else place(wanted.key)
    found = Columns(
        len(names) if number else None,
        None if path is None else place(path),
        None if label is None else place(label),
        key,
        _all_bound(chosen, names, range(len(names)) if number else names, place, wanted, key),
        declared,
    )
    if not found.fields:
        if path is None and declared:
            raise UsageError(
                f"the list has no column {declared[0].name!r}, to be stored as {declared[0].text}",
                hint=f"{did_you_mean(declared[0].name, names)}its columns are {', '.join(names)}; where a transform= "
                "makes it, name the columns it is made of too",
            )
        if path is None:
            raise UsageError(
                "no column of the list is called like a path",
                hint=f"name it: fields={{'jpg': 'COLUMN'}}; its columns are {', '.join(names)}",
            )
        used = (path, label, None if key is None else wanted.key)
        found = replace(found, unused=tuple(name for name in names if name not in used))
    return found


def _numbered(default: Columns, width: int, wanted: Wanted) -> Columns:
    """Columns without names."""

    def place(text: str) -> Column:
        if text.isdecimal() and int(text) < width:
            return int(text)
        wrong = unknown_type(text, [str(column) for column in range(width)])
        if wrong is not None:
            raise wrong
        raise UsageError(
            f"the list has no column {text!r}: it has no header",
            hint=f"use the number of one of its {_columns(width)}, from 0",
        )

    key = None
    if wanted.key not in MODES:
        if not wanted.key.isdecimal():
            raise UsageError(
                f"key={wanted.key!r} is not a way of making keys, and the list has no header with such a column",
                hint="use 'path', 'auto', 'stem', 'line', or name a column in a header line (path, label, ...)",
            )
        key = place(wanted.key)
    names = [str(column) for column in range(width)]
    chosen, declared = _chosen(wanted, names)
    fields = _all_bound(chosen, names, range(width), place, wanted, key)
    return replace(default, key=key, fields=fields, declared=declared)


def settled(wanted: Wanted, columns: Columns, values: Callable[[Column], Iterable[object]]) -> Wanted:
    """The same with what labels are, where classes are given and only the labels say: as the first of them is.

    Args:
        wanted: What the user asked for.
        columns: As `understand` found them.
        values: Gives what stands in a column, record by record.

    Raises:
        UsageError: The first may be a number as well as a name.
    """
    column = columns.label
    if columns.fields:
        labels = (one for one in columns.fields if one.rule.name == LABEL and one.rule.type == "int64")
        column = next((one.column for one in labels), None)
    if wanted.said or wanted.classes is None or column is None:
        return wanted
    return replace(wanted, labels=wanted.classes.mode(values(column)), said=True)


def _all_bound(
    rules: Sequence[FieldRule],
    names: Sequence[str],
    places: Sequence[Column],
    place: Callable[[str], Column],
    wanted: Wanted,
    key: Column | None,
) -> tuple[BoundField, ...]:
    """These rules with their columns, of those that have these names and places."""
    single = [rule for rule in rules if not rule.is_pattern(names)]
    bound = {rule.name: _bound(rule, place(rule.column), wanted) for rule in single}
    named = {key, *(one.column for one in bound.values())}
    taken = {number for number, column in enumerate(places) if column in named}
    for rule, numbers in columns_of_patterns(rules, names, taken).items():
        bound[rule.name] = bound_columns(rule, [names[n] for n in numbers], [places[n] for n in numbers])
    return tuple(bound[rule.name] for rule in rules)


def columns_of_patterns(
    rules: Sequence[FieldRule], names: Sequence[str], taken: Collection[int]
) -> dict[FieldRule, list[int]]:
    """The numbers of the columns of each rule that is about many.

    Args:
        rules: All rules.
        names: How columns are called.
        taken: Those that are something else, and not left for a ``*`` alone.

    Raises:
        UsageError: There is none.
    """
    matched = {rule: rule.matching(names) for rule in rules if rule.is_pattern(names)}
    found = {}
    for rule, numbers in matched.items():
        if rule.column == _REST:
            others = {number for other, numbers in matched.items() if other != rule for number in numbers}
            numbers = [number for number in numbers if number not in taken and number not in others]
        if not numbers:
            raise UsageError(
                f"no column {'is left for' if rule.column == _REST else 'matches'} {rule.column!r}",
                field=rule.name,
                hint=f"the columns are {', '.join(names)}",
            )
        found[rule] = numbers
    return found


def _bound(rule: FieldRule, column: Column, wanted: Wanted) -> BoundField:
    if rule.name == LABEL and wanted.labels == "name":
        rule = replace(rule, type=NAME)
    return BoundField(rule, column, is_path(rule))


def _check_files(columns: Columns, wanted: Wanted) -> Columns:
    """With chosen fields, the path of a sample is that of its first file."""
    if not columns.fields:
        return columns
    named = next((field.column for field in columns.fields if field.rule.type == NAME), None)
    if wanted.labels == "name" and named is None:
        raise UsageError("labels='name' needs a label", hint=f"add a field: fields={{{LABEL!r}: 'COLUMN'}}")
    path = next((field.column for field in columns.fields if field.path), None)
    if path is None and wanted.key in ("path", "stem"):
        like = next((field.rule for field in columns.fields if field.rule.column.lower() in PATH_NAMES), None)
        meant = (
            ""
            if like is None
            else (
                f"if column {like.column!r} names files, fields={{'jpg': {like.column!r}}} (or png, ...) or "
                f"fields={{{like.name!r}: {f'{like.column}:file'!r}}} stores them; else "
            )
        )
        raise UsageError(
            f"no field is a file, from whose path key={wanted.key!r} could be made",
            hint=f"{meant}key='auto' or key='line' numbers the samples, key= with the name of a column takes that",
        )
    return replace(columns, path=path, label=named)
