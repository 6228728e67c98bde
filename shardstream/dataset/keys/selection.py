"""From ``where=`` and ``exclude_keys=``, as users write them, to rows of an opened data set."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence

from shardstream.dataset.conditions import Filter, Keys, Where
from shardstream.dataset.keys.keyed_rows import rows_of_keys
from shardstream.dataset.lists.compressed import LONGEST, too_long
from shardstream.dataset.lists.list_file import open_list
from shardstream.dataset.opened import OpenedDataset
from shardstream.dataset.selected.row_set import RowSet
from shardstream.dataset.source import DatasetSource
from shardstream.errors import SourceError, UsageError
from shardstream.storage import locate

_PIECE = 1 << 20  # bytes of a file of keys


def narrowed(source: DatasetSource, where: Where) -> DatasetSource:
    """Those of the samples of a source that a ``where=`` asks for.

    Raises:
        UsageError: It is not of the right form, or asks for what is not there; `DatasetSource.filtered` has the others.
        SourceError: A file of keys cannot be read.
    """
    wanted = Filter.of(where)
    return source.filtered(wanted, _listed(source, wanted))


def rows_where(source: DatasetSource, where: Where) -> RowSet:
    """The stored rows of a source that a ``where=`` asks for; raises as `narrowed`."""
    wanted = Filter.of(where)
    return source.choose(wanted, _listed(source, wanted))[0]


def _listed(source: DatasetSource, wanted: Filter) -> list[RowSet]:
    """The rows that it lists, by keys or themselves."""
    keyed = [keyed_rows(source.datasets, keys, "where=", verify=source.verify) for keys in wanted.keys]
    return [*keyed, *(rows.of(source.datasets) for rows in wanted.rows)]


def keyed_rows(datasets: Sequence[OpenedDataset], keys: Keys, what: str, *, verify: bool) -> RowSet:
    """The rows of all samples of some keys.

    Args:
        datasets: The data sets.
        keys: A list, or a file.
        what: The argument that they are given by, for messages.
        verify: Compare checksums of indexes.

    Raises:
        UsageError: It is neither, or a key is of no sample.
        SourceError: The file cannot be read.
        DataError, StorageError: A key table or an index cannot be read.
    """
    given: object = keys
    if isinstance(keys, str | os.PathLike):
        return rows_of_keys(datasets, _lines(keys), what=what, verify=verify)
    if isinstance(given, bytes) or not isinstance(given, Collection):
        hint = 'for example ["a/1", "a/2"], or the path of a file that has one a line'
        raise UsageError(f"{what} must list keys, got {keys!r}", hint=hint)
    return rows_of_keys(datasets, keys, what=what, verify=verify)


def _lines(path: str | os.PathLike[str]) -> Iterator[str]:
    """The keys of a file, one a line; blank lines are left out."""
    try:
        file = open_list(locate(path))
    except SourceError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        hint = 'a path names a file that has one key a line; keys by themselves are a list: ["a/1"]'
        raise SourceError(error.what, hint=hint, **error.place) from error
    rest, line = b"", 0
    for start in range(0, file.size, _PIECE):
        *lines, rest = (rest + file.read(start, min(start + _PIECE, file.size))).split(b"\n")
        for raw in lines:
            line += 1
            yield from _key(raw, file.url, line)
        if len(rest) > LONGEST:
            raise too_long(file.url, line=line + 1)
    yield from _key(rest, file.url, line + 1)


def _key(raw: bytes, url: str, line: int) -> Iterator[str]:
    try:
        key = raw.removesuffix(b"\r").decode("utf-8-sig" if line == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise SourceError(f"a key is not UTF-8: {error}", url=url, line=line, hint="save the list as UTF-8") from error
    if key.strip():
        yield key
