"""Which column of a list is what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from shardstream.errors import FormatError, UsageError, did_you_mean

# How the columns that matter are called in headers, in lower case.
PATH_NAMES = frozenset((
    *("path", "file", "filename", "file_name", "filepath", "file_path"),
    *("image", "image_path", "imagepath", "img", "img_path", "jpg", "jpeg", "png"),
))  # fmt: skip
LABEL_NAMES = frozenset((
    *("label", "labels", "cls", "class", "class_id", "class_idx", "class_name"),
    *("target", "category", "category_id", "label_id", "label_idx", "y"),
))  # fmt: skip
OPTIONS: Mapping[str, str] = {
    "path": "columns of a list that name files, by comma",
    "label": "its column with the label",
    "key": "its column with the key",
    "labels": "'int' where labels are numbers, 'name' for names of classes; else as all of them are",
}


class ListColumns(NamedTuple):
    """The columns of a list.

    Attributes:
        width: How many every line has.
        paths: Those that name files.
        fields: What the list calls these; empty where it has no header, or there is only one.
        label: The one with the label; ``None`` if there is none.
        key: The one with the key; ``None``: keys are paths.
        header: Whether the first line names the columns.
        unused: Names of those that are left out.
    """

    width: int
    paths: tuple[int, ...] = (0,)
    fields: tuple[str, ...] = ()
    label: int | None = None
    key: int | None = None
    header: bool = False
    unused: tuple[str, ...] = ()


def columns_of(first: Sequence[str], suffix: str, options: Mapping[str, str], url: str) -> ListColumns:
    """The columns of a list whose first line has these cells.

    Raises:
        FormatError: They cannot be told.
        UsageError: An option names no column.
    """
    names = [cell.strip() for cell in first]
    if options.keys() & {"path", "label", "key"}:
        return _chosen(names, options, url)
    lower = [name.lower() for name in names]
    paths = [number for number, name in enumerate(lower) if name in PATH_NAMES]
    if paths:
        labels = [number for number, name in enumerate(lower) if name in LABEL_NAMES]
        for found, what, option in ((paths, "paths", "path"), (labels, "labels", "label")):
            if len(found) > 1:
                told = ", ".join(names[number] for number in found)
                raise FormatError(
                    f"several columns may be the {what}: {told}",
                    url=url,
                    hint=f"say which: format_options={{'{option}': 'COLUMN'}} (--format-option {option}=COLUMN)",
                )
        label = labels[0] if labels else None
        unused = tuple(name for number, name in enumerate(names) if number not in (*paths, label))
        return ListColumns(len(names), (paths[0],), label=label, header=True, unused=unused)
    if suffix == "lst" and len(names) > 2 and all(map(_is_number, names[:-1])):  # of MXNet: number, label, path
        if len(names) > 3:
            raise FormatError(
                "lists with several labels a line are not read in place", url=url, hint="`shardstream pack` takes them"
            )
        return ListColumns(3, (2,), label=1)
    if len(names) > 2:
        raise FormatError(
            f"the first line has {len(names)} columns, and none is called as a column of paths",
            url=url,
            hint="say what they are: format_options={'path': 'COLUMN', 'label': 'COLUMN'}, by name or number from 0",
        )
    return ListColumns(len(names), label=1 if len(names) == 2 else None)


def _chosen(names: Sequence[str], options: Mapping[str, str], url: str) -> ListColumns:
    texts = options.get("path", "0").split(",")
    header = any(text in names for text in [*texts, options.get("label", ""), options.get("key", "")] if text)

    def number(text: str, option: str) -> int:
        if text in names:
            return names.index(text)
        if text.isdecimal() and int(text) < len(names):
            return int(text)
        raise UsageError(
            f"{option}={text!r}: there is no such column",
            url=url,
            hint=f"{did_you_mean(text, names)}the columns are {', '.join(names)}",
        )

    paths = tuple(number(text, "path") for text in texts)
    label = number(options["label"], "label") if "label" in options else None
    key = number(options["key"], "key") if "key" in options else None
    used = (*paths, label, key)
    unused = tuple(name for place, name in enumerate(names) if header and place not in used)
    fields = tuple(names[place] for place in paths) if header and len(paths) > 1 else ()
    return ListColumns(len(names), paths, fields, label, key, header, unused)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
