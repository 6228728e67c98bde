"""Names that are not data: hidden files, and what desktops, archives and Spark leave beside data.

Every listing below a place that a user gave goes by this one rule: directories and buckets, members of zip and tar
files, and the wildcards of a glob. Names that a user wrote, or that a list has, are never asked.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable

from shardstream.sizes import plural
from shardstream.text import in_one_line, valid_unicode

_NAMES = r"(?i:Thumbs\.db|desktop\.ini)|__MACOSX|_temporary|_spark_metadata|_delta_log|_SUCCESS|_(?:common_)?metadata"
STRAY = rf"(?:\.(?!\.?(?:/|\Z))|(?:{_NAMES})(?:/|\Z))"
"""Regular expression for the beginning of a part of a path that is not data. ``.`` and ``..`` are no names."""
STRAY_IN_TABLES = rf"(?:_|{STRAY})"
"""The same in directories of Parquet and JSON Lines, whose writers mark all of their own files so."""
_PART = re.compile(rf"(?<![^/])(?=[._TtDd]){STRAY}")
_PART_IN_TABLES = re.compile(rf"(?<![^/]){STRAY_IN_TABLES}")
_SHOWN = 3
_logger = logging.getLogger(__name__)


def find_stray(path: str, *, tables: bool = False) -> str | None:
    """The path up to its first part that is not data; ``None`` where all of it is.

    Args:
        path: Relative to the place that the user gave, with ``/``.
        tables: Whether it is of a directory of Parquet or JSON Lines.

    >>> find_stray("cat/Thumbs.db"), find_stray("out/_temporary/0/a.parquet"), find_stray("./_cat/1.jpg")
    ('cat/Thumbs.db', 'out/_temporary', None)
    """
    match = (_PART_IN_TABLES if tables else _PART).search(path)
    if match is None:
        return None
    end = path.find("/", match.start())
    return path if end < 0 else path[:end]


def any_stray(paths: Iterable[str], *, tables: bool = False) -> bool:
    """Whether `find_stray` finds anything in these paths: in most of millions there is nothing, which takes 0.3 s."""
    return any(map((_PART_IN_TABLES if tables else _PART).search, paths))


class Strays:
    """Counts what was left out: files, and directories as one each.

    Attributes:
        count: How many.
    """

    def __init__(self) -> None:
        self.count = 0
        self._shown: list[str] = []
        self._last: str | None = None

    def add(self, path: str) -> None:
        """Count what `find_stray` gave; the files of one directory come one after another."""
        if path == self._last:
            return
        self._last = path
        self.count += 1
        if len(self._shown) < _SHOWN:
            self._shown.append(in_one_line(valid_unicode(path)))

    @property
    def notes(self) -> tuple[str, ...]:
        """A sentence on what was left out; none where nothing was."""
        return (f"Not data by name, so left out: {self._text()}.",) if self.count else ()

    def log(self, url: str) -> None:
        """Say it in a log line, where there is no list of notes that it could stand in."""
        if self.count:
            _logger.info("%s: not data by name, so left out: %s", in_one_line(url), self._text())

    def _text(self) -> str:
        names = ", ".join(self._shown) + (", ..." if self.count > _SHOWN else "")
        return f"{plural(self.count, 'file or directory', 'files or directories')} ({names})"
