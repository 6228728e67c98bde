"""Layouts that everybody has: a table beside a directory of files, known by the names of both."""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, NamedTuple

from shardstream.errors import StorageError, UnsupportedError, UsageError
from shardstream.formats.files.names import below
from shardstream.formats.files.tables import is_table, rows_of_table
from shardstream.formats.scans.object_bytes import ObjectBytes
from shardstream.names.splits import refuse_splits, several_splits, splits
from shardstream.pack.sources.base import field_of_extension
from shardstream.pack.sources.lists.chosen import FILE, split_template
from shardstream.pack.sources.lists.columns import FILE_NAMES, LABEL_NAMES
from shardstream.pack.sources.lists.quotes import BOM
from shardstream.pack.sources.lists.records import CellKind, parse_label
from shardstream.pack.sources.media import is_media, is_picture, suffix_of
from shardstream.shards.field_names import usable_field
from shardstream.storage import Store

METADATA = ("metadata.csv", "metadata.jsonl", "metadata.parquet")
TRANSCRIPTS = ".trans.txt"
LISTS = (".csv", ".tsv", ".jsonl", "metadata.parquet")
_HEAD = 64 << 10
_LONGEST_NAME = 200
_FIRST = 100  # rows that tell what columns hold
_SHOWS = 3  # rows whose files are looked for
_BEGINNING = 16  # files of a directory that tell suffixes
_DIRECTORIES = ("images", "clips", "wavs", "audio", "train", "train_images", "")
_FILE_NAME = "file_name"
_OF_LJSPEECH = {"1": "text", "2": "normalized_text"}
_IDENTITY = re.compile(r"(^|_)(id|uuid)(_|$)|id$", re.IGNORECASE)


class Layout(NamedTuple):
    """Lists of files whose columns are known.

    Attributes:
        lists: Their names below the root.
        fields: Field by field, the column and what becomes of it, as ``fields=`` of packing.
        kind: How records are written, if names and first lines do not say it.
    """

    lists: tuple[str, ...]
    fields: Mapping[str, str]
    kind: CellKind | None = None

    @property
    def files(self) -> list[str]:
        """Names of the fields that are files."""
        return [name for name, text in self.fields.items() if split_template(text)[0].endswith(f":{FILE}")]

    @property
    def note(self) -> str:
        """A sentence that says what was recognized."""
        first = self.lists[0] if len(self.lists) == 1 else f"{len(self.lists)} lists such as {self.lists[0]}"
        fields = (name if name == text else f"{name}={text}" for name, text in self.fields.items())
        return f"Read as rows of {first}: {', '.join(fields)}."

    @property
    def about(self) -> dict[str, Any]:
        """What the scan of a list has to know."""
        kind = {} if self.kind is None else {"kind": self.kind}
        several = {"several": True} if len(self.lists) > 1 else {}
        return {"options": {}, "chosen": dict(self.fields), "typed": True, **kind, **several}


def layout_of_directory(store: Store, names: Sequence[str], *, split_names: bool = True) -> Layout | None:
    """The layout of a directory; ``None`` if it has none that is known.

    Args:
        store: The directory.
        names: Names of files in it; all of them, if there may be several lists.
        split_names: Whether several splits are refused.

    Raises:
        SplitsError: It has a list for each of several splits.
        UnsupportedError: One list is of several splits, or lists differ in their columns.
    """
    several = [name for name in names if tells_several(name)]
    there = [name for name in several if not name.endswith(TRANSCRIPTS)]
    top = next((name for name in METADATA if name in there or store.exists(name)), None)
    if top is not None:
        found = layout_of_list(store, top)
        if found is not None and split_names:
            _refuse_listed_splits(store, top, names)
        return found
    if there:
        return _joined(store, there, split_names=split_names)
    if several:
        if split_names:
            refuse_splits(store.url, {name.partition("/")[0] for name in several})
        return _of_transcripts(sorted(several), names)
    if any(name.startswith("clips/") for name in names):
        lists = [name for name in names if "/" not in name and suffix_of(name) == "tsv"]
    elif any("/" in name for name in names):
        lists = [name for name in names if "/" not in name and suffix_of(name) == "csv" and "submission" not in name]
    else:
        return None
    layouts = {name.rpartition(".")[0]: one for name in sorted(lists) if (one := layout_of_list(store, name))}
    if len(layouts) > 1 and split_names:
        raise several_splits(store.url, {stem: one.lists[0] for stem, one in layouts.items()})
    if len(layouts) > 1:
        shown = ", ".join(one.lists[0] for one in layouts.values())
        raise UnsupportedError(f"there are several tables here: {shown}", url=store.url, hint="name one of them")
    return next(iter(layouts.values()), None)


def tells_several(name: str) -> bool:
    """Whether a file is called like one of several lists in a directory, all of which belong to one dataset."""
    return name.endswith(TRANSCRIPTS) or name.rpartition("/")[2] in METADATA


def needs_all_names(names: Sequence[str]) -> bool:
    """Whether some of the names in a directory tell of a layout, and others are part of it."""
    clips = any(name.startswith("clips/") for name in names)
    return any(map(tells_several, names)) or (clips and not any(name.endswith(".tsv") for name in names))


def _joined(store: Store, lists: Sequence[str], *, split_names: bool) -> Layout | None:
    """One layout of lists in several directories."""
    if split_names:
        refuse_splits(store.url, {name.partition("/")[0] for name in lists})
    found = [layout_of_list(store, name) for name in sorted(lists)]
    first = found[0]
    if first is None:
        return None
    for one, name in zip(found, sorted(lists), strict=True):
        if one is None or one.fields != first.fields:
            raise UnsupportedError(
                f"the columns of {name} are not those of {first.lists[0]}",
                url=store.url,
                hint="open one of the directories, or give all lists the same columns",
            )
    # Numbers of classes are those of one list.
    fields = {text if name == "cls" else name: text for name, text in first.fields.items()}
    return first._replace(lists=tuple(sorted(lists)), fields=fields)


def _refuse_listed_splits(store: Store, name: str, names: Sequence[str]) -> None:
    """Refuse a list at the top whose files are in directories of several splits."""
    several = splits({one.partition("/")[0] for one in names if "/" in one})
    if several:
        raise UnsupportedError(
            f"one list has the files of several splits: {', '.join(several)}",
            url=store.locate(name),
            hint="write a list for each split, such as "
            f"{several[0]}/{name}, or pack all as one dataset: --no-split-names",
        )


def _of_transcripts(scripts: Sequence[str], names: Sequence[str]) -> Layout | None:
    """LibriSpeech: a text file for each chapter, beside its audio files."""
    suffix = next((suffix_of(name) for name in names if is_media(suffix_of(name))), None)
    if suffix is None:
        return None
    return Layout(tuple(scripts), {suffix: f"0:file:{{}}.{suffix}", "text": "1"}, "words")


def layout_of_list(store: Store, path: str) -> Layout | None:
    """The layout of a list and the files that it names; ``None`` for an ordinary list of files.

    Args:
        store: A directory that both are below.
        path: The list.
    """
    name = path.rpartition("/")[2].lower()
    if not name.endswith(LISTS) or not store.exists(path):
        return None
    size = store.size(path)
    if is_table(name):
        lines = [raw for _, raw in islice(rows_of_table(ObjectBytes(store, path, size, window=_HEAD)), _FIRST)]
        sniffed = _sniffed("rows.jsonl", b"\n".join(lines), whole=True)
    else:
        sniffed = _sniffed(name, bytes(store.get(path, 0, min(size, _HEAD))), whole=size <= _HEAD)
    if sniffed is None or not sniffed.rows:
        return None
    folder = path[: len(path) - len(name)]
    fields = dict(_files(store, folder, name, sniffed))
    if not fields:
        return None
    used = {text.partition(":file")[0] for text in fields.values()}
    for column in sniffed.columns:
        if column not in used:
            fields.setdefault(_name(column, sniffed, labeled="cls" in fields), column)
    return Layout((path,), fields, "json" if is_table(name) else sniffed.kind)


def _name(column: str, sniffed: _Sniffed, *, labeled: bool) -> str:
    """The field of a column that names no files."""
    if sniffed.kind == "bars":
        return _OF_LJSPEECH.get(column, f"column{column}")
    is_label = not labeled and column.lower() in LABEL_NAMES and _are_labels(sniffed.cells(column))
    return "cls" if is_label else usable_field(column)


class _Sniffed(NamedTuple):
    """The first rows of a list.

    Attributes:
        columns: Names of the columns, or their numbers from 0.
        rows: A cell for each column.
        kind: As of `Layout`.
    """

    columns: list[str]
    rows: list[Mapping[str, Any]]
    kind: CellKind | None = None

    def cells(self, column: str) -> list[Any]:
        """What is in a column, where anything is."""
        return [cell for row in self.rows if (cell := row.get(column)) not in (None, "")]


def _sniffed(name: str, head: bytes, *, whole: bool) -> _Sniffed | None:
    """The first rows of a list; ``None`` if it is not text with a header, or with bars between columns."""
    lines = head.removeprefix(BOM).decode("utf-8", "ignore").split("\n")
    if not whole:
        lines = lines[:-1]
    lines = [line.removesuffix("\r") for line in lines[: _FIRST + 1] if line.strip()]
    if suffix_of(name) == "jsonl":
        rows = list[Mapping[str, Any]]()
        for line in lines:
            with suppress(ValueError):
                row = json.loads(line)
                rows += [row] if isinstance(row, dict) else []
        return _Sniffed(list(dict.fromkeys(column for row in rows for column in row)), rows)
    bars = {line.count("|") for line in lines}
    if len(bars) == 1 and bars != {0}:
        cells = [line.split("|") for line in lines]
        return _Sniffed([str(number) for number in range(len(cells[0]))], _as_rows(cells), "bars") if cells else None
    try:
        cells = list(csv.reader(lines)) if suffix_of(name) == "csv" else [line.split("\t") for line in lines]
    except csv.Error:
        return None
    header = [cell.strip() for cell in cells[0]] if cells else []
    if len(set(header)) < len(header) or "" in header or len(cells) < 2:
        return None
    rows = [dict(zip(header, row, strict=False)) for row in cells[1:]]
    return _Sniffed(header, rows)


def _as_rows(cells: Sequence[Sequence[str]]) -> list[Mapping[str, Any]]:
    return [{str(number): cell for number, cell in enumerate(row)} for row in cells]


def _files(store: Store, folder: str, name: str, sniffed: _Sniffed) -> Iterator[tuple[str, str]]:
    """The fields that are files."""
    if name in METADATA:
        for column in sniffed.columns:
            cells = sniffed.cells(column)
            if column.lower().endswith(_FILE_NAME) and cells and all(isinstance(cell, str) for cell in cells):
                own = column[: -len(_FILE_NAME)].rstrip("_")
                yield usable_field(own) if own else _media(cells), f"{column}:file"
        if any(column.lower().endswith(_FILE_NAME) for column in sniffed.columns):
            return
    likely = [column for column in sniffed.columns if column.lower() in FILE_NAMES]
    if suffix_of(name) != "jsonl":  # whose rows may be samples with IDs
        likely += [column for column in sniffed.columns if _IDENTITY.search(column)] or sniffed.columns[:1]
    for column in dict.fromkeys(likely):
        cells = [cell for cell in sniffed.cells(column)[:_SHOWS] if isinstance(cell, str) and _is_plain(cell)]
        template = "{}" if cells and store.exists(f"{folder}{cells[0]}") else None
        template = template or (cells and _template(store, folder, name.partition(".")[0], cells)) or None
        if template is not None and (template != "{}" or sniffed.kind is not None):
            names = [template.replace("{}", str(cell)) for cell in sniffed.cells(column)]
            yield _media(names), f"{column}:file:{template}"
        if template is not None or column.lower() in FILE_NAMES:
            return  # an ordinary list, if names are those of files as they are


def _is_plain(cell: str) -> bool:
    """Whether it may be the name of a file, or of one without its suffix."""
    return len(cell) < _LONGEST_NAME and cell.isprintable() and below("", "", cell) == cell


def _template(store: Store, folder: str, stem: str, cells: Sequence[str]) -> str | None:
    """How names of files are made of some cells: in which directory they are, and with which suffix."""
    for directory in dict.fromkeys((stem, f"{stem}_images", f"{stem}-images", *_DIRECTORIES)):
        inside = f"{directory}/" if directory else ""
        some = _some_names(store, folder + inside)
        ends = dict.fromkeys(os.path.splitext(path)[1] for path in some if is_media(suffix_of(path)))
        for end in ("", *ends) if inside else ends:
            if all(store.exists(f"{folder}{inside}{cell}{end}") for cell in cells):
                return f"{inside}{{}}{end}"
    return None


def _some_names(store: Store, folder: str) -> list[str]:
    """Some of the names in a directory; none if there is no such directory, or the store lists nothing."""
    place = store.file_of(folder)
    try:
        if place is None:
            return [one.path for one in islice(store.list(folder), _BEGINNING)]
        with os.scandir(place) as entries:
            return [entry.name for entry in islice(entries, _BEGINNING)]
    except (StorageError, UsageError, OSError):
        return []


def _media(paths: Sequence[str]) -> str:
    """What the field of some files is called: by their suffix, or by what all of them are."""
    suffixes = {suffix_of(path) for path in paths}
    if len(suffixes) == 1:
        return field_of_extension(suffixes.pop()).field or "file"
    return "image" if all(map(is_picture, suffixes)) else "audio" if all(map(is_media, suffixes)) else "file"


def _are_labels(cells: Sequence[Any]) -> bool:
    """Whether these are numbers or names of classes, and no measurements."""
    integers = [_is_integer(cell) for cell in cells]
    return bool(cells) and (all(integers) or not any(integers)) and not all(map(_is_measured, cells))


def _is_integer(cell: Any) -> bool:
    with suppress(ValueError):
        parse_label(cell)
        return True
    return False


def _is_measured(cell: Any) -> bool:
    with suppress(ValueError, TypeError):
        float(cell)
        return not _is_integer(cell)
    return not isinstance(cell, str)
