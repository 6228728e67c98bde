"""Lists whose files are elsewhere: the directory that holds a local list and all the files that it names."""

from __future__ import annotations

import os
import posixpath
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice

from shardstream.dataset.opening import common_parts
from shardstream.errors import FormatError, UsageError
from shardstream.formats.files.text import records
from shardstream.formats.files.written import written
from shardstream.formats.scans.object_bytes import ObjectBytes
from shardstream.pack.sources.lists.records import DELIMITERS, Broken, split
from shardstream.pack.sources.paths import local_path

LOOKED_AT = 10_000
"""Lines by which the directory is found. It does not change after that: names below it are in the catalog."""
_OUT = ("/", "file:", "../")
_TRIED = 16  # cells of a column, of which one has to be a file that is there


def place_of_files(data: ObjectBytes, folder: str) -> str | None:
    """The deepest directory that holds a local list and the files of its first lines.

    Any column may name the files: a later opening doesn't know which one a user chose. Text that merely looks like
    paths does not count, because none of the first ones is there.

    Args:
        data: The list.
        folder: The absolute path of its directory.

    Returns:
        ``None`` if all files are below the directory of the list.
    """
    common = folder.split("/")
    untried: Counter[int | str] = Counter()
    columns: dict[int | str, bool] = {}
    with suppress(FormatError):  # it is no list, which is told by whoever reads it
        for column, path in _outside(data, folder):
            if untried[column] < _TRIED and not columns.get(column):
                untried[column] += 1
                columns[column] = os.path.lexists(path)
            if columns[column]:
                common = common_parts(common, posixpath.dirname(path).rstrip("/").split("/"))
    found = "/".join(common) or "/"
    return None if found == folder else found


def _outside(data: ObjectBytes, folder: str) -> Iterator[tuple[int | str, str]]:
    """The cells of the first lines that may be paths outside of a directory: their columns, and absolute paths."""
    below = f"{folder.rstrip('/')}/"
    kind = written(data, names=False, whole=False).kind
    for _, raw in islice(records(data, delimiter=DELIMITERS.get(kind)), LOOKED_AT):
        try:
            cells = split(kind, raw)
        except Broken:
            continue
        for column, cell in cells.items() if isinstance(cells, dict) else enumerate(cells):
            if isinstance(cell, str) and (cell.startswith(_OUT) or "/../" in cell) and "\0" not in cell:
                with suppress(UsageError):  # a URL of another host
                    path = posixpath.normpath(posixpath.join(folder, local_path(cell)))
                    if not path.startswith(below):
                        yield column, path
