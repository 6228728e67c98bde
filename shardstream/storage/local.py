"""Folders of the local file system.

Reads are slices of a read-only ``mmap``: pages live in the kernel's cache, shared by all workers. A slice keeps its
mapping alive, so no buffer ever dangles; mappings of the most recent files are kept open. Writes go to a temporary
name, are flushed to the disk, and are renamed.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import secrets
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from shardstream.errors import NotFoundError, StorageError
from shardstream.storage.base import ObjectMeta, ObjectWriter, Store

_TEMPORARY = (
    ".shardstream-"  # names with this prefix are objects that are being written, or were when their writer died
)
_OPEN_MAPS = 320  # each holds a file descriptor, and 1024 is the usual limit
_WRITE_BUFFER = 1 << 20


class LocalStore(Store):
    """The folder ``root``. It need not exist before the first write."""

    mapped = True

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(os.path.abspath(root))
        self.url = str(self.root)
        self._maps: OrderedDict[str, memoryview] = OrderedDict()

    def __reduce__(self) -> tuple[type[LocalStore], tuple[str]]:
        return LocalStore, (str(self.root),)

    def _map(self, path: str) -> memoryview:
        view = self._maps.get(path)
        if view is None:
            view = self._maps[path] = self._open(path)
            if len(self._maps) > _OPEN_MAPS:
                self._maps.popitem(last=False)
        else:
            self._maps.move_to_end(path)
        return view

    def _open(self, path: str) -> memoryview:
        try:
            with open(self.root / path, "rb") as file:
                if os.fstat(file.fileno()).st_size == 0:  # an empty file cannot be mapped
                    return memoryview(b"")
                return memoryview(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
        except OSError as error:
            raise self._explain(error, path) from error

    def _explain(self, error: OSError, path: str) -> StorageError:
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            return NotFoundError("no such object", url=self.locate(path))
        return StorageError(f"{error.strerror or error}", url=self.locate(path))

    def get(self, path: str, offset: int = 0, length: int | None = None) -> memoryview:
        view = self._map(path)
        end = len(view) if length is None else offset + length
        if not 0 <= offset <= end <= len(view):
            raise StorageError(
                f"bytes [{offset}, {end}) reach past the end of an object of {len(view)} bytes",
                url=self.locate(path),
                offset=offset,
                hint="it is truncated, or was replaced while in use: `shardstream verify` finds out",
            )
        return view[offset:end]

    def get_tail(self, path: str, length: int) -> tuple[memoryview, int]:
        view = self._map(path)
        return view[max(0, len(view) - length) :], len(view)

    def size(self, path: str) -> int:
        try:
            return (self.root / path).stat().st_size
        except OSError as error:
            raise self._explain(error, path) from error

    def exists(self, path: str) -> bool:
        return (self.root / path).is_file()

    def list(self, prefix: str = "") -> Iterator[ObjectMeta]:
        found = []
        for folder, _, names in os.walk(self.root):
            for name in names:
                path = os.path.relpath(os.path.join(folder, name), self.root)
                if path.startswith(prefix) and not name.startswith(_TEMPORARY):
                    found.append(path)
        return (ObjectMeta(path, self.size(path)) for path in sorted(found))

    def create(self, path: str) -> ObjectWriter:
        target = self.root / path
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            return _LocalWriter(self, path, target)
        except OSError as error:
            raise self._explain(error, path) from error

    def delete(self, path: str) -> None:
        self._maps.pop(path, None)
        try:
            (self.root / path).unlink(missing_ok=True)
        except OSError as error:
            raise self._explain(error, path) from error

    def sweep(self) -> None:
        for left in sorted(self.root.rglob(f"{_TEMPORARY}*")):
            try:
                with open(left, "rb+") as file:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # a living writer holds this lock
                    left.unlink(missing_ok=True)
            except (BlockingIOError, FileNotFoundError):
                continue

    def forget(self, path: str) -> None:
        """Drop the mapping of an object that has been replaced."""
        self._maps.pop(path, None)


class _LocalWriter(ObjectWriter):
    def __init__(self, store: LocalStore, path: str, target: Path) -> None:
        self._store = store
        self._path = path
        self._target = target
        self._temporary = target.with_name(f"{_TEMPORARY}{secrets.token_hex(8)}")
        self._file: BinaryIO | None = open(self._temporary, "xb", buffering=_WRITE_BUFFER)  # noqa: SIM115 - closed in commit or discard
        fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._written = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert self._file is not None, "written after commit or discard"
        try:
            self._file.write(data)
        except OSError as error:
            raise self._store._explain(error, self._path) from error
        self._written += len(data)

    def tell(self) -> int:
        return self._written

    def commit(self) -> None:
        assert self._file is not None, "committed twice"
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
            os.replace(self._temporary, self._target)
            self._file.close()
            self._file = None
            _sync_folder(self._target.parent)
        except OSError as error:
            self.discard()
            raise self._store._explain(error, self._path) from error
        self._store.forget(self._path)

    def discard(self) -> None:
        if self._file is None:
            return
        file, self._file = self._file, None
        self._temporary.unlink(missing_ok=True)
        try:
            file.close()
        except OSError:  # closing flushes, which may fail again on a full disk; the file is gone already
            return


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
