"""``RowsOutput``: the file of ``out=``, written shard by shard; a run that was killed goes on where it ended."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Self

from shardstream.dataset.selected.rows import Rows
from shardstream.dataset.selected.rows_file import RowsFile, ShardRecord, encode_head, parse
from shardstream.errors import StorageError, UsageError
from shardstream.storage.base.file_locks import try_lock
from shardstream.storage.local.output_files import open_to_extend

_NAMES = {
    "data": "data",
    "view": "view of the data",
    "fields": "fields",
    "decoding": "decoders",
    "predicate": "code of the predicate",
    "on_error": "on_error",
}


class RowsOutput:
    """A file that records are added to. A context manager.

    Args:
        path: The file; made if it is not there.
        head: What it begins with.

    Attributes:
        records: Those that an earlier run has written.

    Raises:
        UsageError: Rows of other data, fields or another predicate are in it, or another process writes it; it is a
            link, a FIFO or a device.
        DataError: It is damaged, or another kind of file.
        StorageError: It cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str], head: Mapping[str, Any]) -> None:
        self._path = os.fspath(path)
        if "://" in self._path:
            hint = "pass a path, then rows.save(url)"
            raise UsageError(f"out= must be a file of this machine, got {self._path!r}", hint=hint)
        try:
            self._file = open(open_to_extend(self._path), "a+b")  # noqa: SIM115 - `__exit__` closes it
        except OSError as error:
            raise StorageError.of(error, url=self._path) from error
        try:
            self.records = self._begin(head)
        except BaseException:
            self._file.close()
            raise

    def _begin(self, head: Mapping[str, Any]) -> list[ShardRecord]:
        alone = True
        with suppress(OSError):  # there are no locks here: nobody can tell
            alone = try_lock(self._file.fileno())
        if not alone:
            hint = "wait for it, or pass another out="
            raise UsageError("another process is writing the file", url=self._path, hint=hint)
        self._file.seek(0)
        data = self._file.read()
        if not data:
            self._write(encode_head(head))
            return []
        found = parse(data, self._path)
        _compare(found, head, self._path)
        self._file.truncate(found.length)
        return found.records

    def add(self, shard: int, record: ShardRecord) -> None:
        """Write the rows of the next shard."""
        self._write(record.encode(shard))

    def _write(self, data: bytes) -> None:
        try:
            self._file.write(data)
            self._file.flush()
        except OSError as error:
            raise StorageError.of(error, url=self._path) from error

    def rows(self) -> Rows:
        """All rows that are in it."""
        self._file.seek(0)
        return Rows.of_file(parse(self._file.read(), self._path), self._path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            os.fsync(self._file.fileno())
        self._file.close()


def _compare(found: RowsFile, head: Mapping[str, Any], path: str) -> None:
    """Refuse a file of another search; UsageError."""
    if "search" not in found.head:
        raise UsageError("out= names rows that were saved", url=path, hint=f"load them: ss.Rows.load({path!r})")
    before, now = ({"data": one["data"], **one["search"]} for one in (found.head, head))
    for name, what in _NAMES.items():
        there, here = _plain(before.get(name)), _plain(now[name])
        if there != here:
            raise UsageError(
                f"out= has rows that were found with another {what}: {there}, now it is {here}",
                url=path,
                hint=f"delete {path}, or pass another out=",
            )


def _plain(value: Any) -> Any:
    """As JSON gives it back."""
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value
