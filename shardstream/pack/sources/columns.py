"""Which column of a list is what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from shardstream.errors import SourceError, UsageError
from shardstream.pack.sources.keys import MODES

LabelMode: TypeAlias = Literal["int", "name"]

# How the columns that matter are called in headers, in lower case.
PATH_NAMES = frozenset((
    *("path", "file", "filename", "file_name", "filepath", "file_path"),
    *("image", "image_path", "imagepath", "img", "img_path", "jpg", "jpeg", "png"),
))  # fmt: skip
LABEL_NAMES = frozenset((
    *("label", "labels", "cls", "class", "class_id", "class_idx", "class_name"),
    *("target", "category", "category_id", "label_id", "label_idx", "y"),
))  # fmt: skip
_MIN, _MAX = -(1 << 63), (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a list.

    Attributes:
        count: How many every record has.
        path: The one with the path.
        label: The one with the label; ``None`` if there is none.
        key: The one with the key, if keys come from a column.
        header: Whether the first record names the columns.
        unused: Names of columns that are not packed.
    """

    count: int
    path: int = 0
    label: int | None = None
    key: int | None = None
    header: bool = False
    unused: tuple[str, ...] = ()

    def check(self, record: list[str], line: int) -> None:
        """Refuse a record of another width."""
        if len(record) != self.count:
            raise SourceError(
                f"the line has {_columns(len(record))} where the first has {self.count}",
                line=line,
                hint="every line needs the same columns: path, or path<TAB>label (with commas in a .csv)",
            )


def _columns(count: int) -> str:
    return "1 column" if count == 1 else f"{count} columns"


def understand(first: list[str], *, key: str) -> Columns:
    """The columns of a list by its first record.

    It is a header if one of its columns is called like a path (`PATH_NAMES`, in any case); the label is then the column
    that is called like one (`LABEL_NAMES`). Without a header, the path comes first and the label second.

    Raises:
        UsageError: ``key`` names a column that the list does not have.
    """
    names = [name.strip().lower() for name in first]
    path = next((i for i, name in enumerate(names) if name in PATH_NAMES), None)
    if path is None:
        if key not in MODES:
            raise UsageError(
                f"key={key!r} is no way to make keys, and the list has no header with such a column",
                hint="use 'path', 'stem', 'line', or name a column in a header line (path, label, ...)",
            )
        return Columns(len(first), label=1 if len(first) > 1 else None)
    label = next((i for i, name in enumerate(names) if name in LABEL_NAMES), None)
    chosen = None if key in MODES else _column(first, key)
    used = {path, label, chosen}
    unused = tuple(first[i].strip() for i in range(len(first)) if i not in used)
    return Columns(len(first), path, label, chosen, header=True, unused=unused)


def _column(header: list[str], key: str) -> int:
    names = [name.strip() for name in header]
    if key not in names:
        raise UsageError(
            f"key={key!r} is neither 'path', 'stem' nor 'line', nor a column of the list",
            hint=f"its columns are {', '.join(names)}",
        )
    return names.index(key)


def parse_label(text: str) -> int:
    """A label as an integer of 64 bits.

    Raises:
        ValueError: It is none.
    """
    value = int(text)
    if not _MIN <= value <= _MAX or "_" in text:
        raise ValueError(text)
    return value
