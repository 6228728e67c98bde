"""Folders of the local file system.

Reads are slices of read-only mappings: pages live in the kernel's cache, shared by all workers. A slice keeps its
mapping alive, so no buffer ever dangles; mappings of the most recent files are kept. Writes go to a temporary name in a
thread, are flushed to the disk, and are renamed.
"""

from __future__ import annotations

import errno
import math
import os
import stat
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from itertools import islice
from pathlib import Path

from shardstream.errors import ChangedError, NotFoundError, StorageError, UsageError
from shardstream.storage.base.address import absolute
from shardstream.storage.base.file_locks import try_lock
from shardstream.storage.base.store import FileState, ObjectMeta, ObjectWriter, Store, past_the_end
from shardstream.storage.local.links import refuse_planted_link
from shardstream.storage.local.mapped_files import Mapped, map_file
from shardstream.storage.local.output_files import TEMPORARY, check_regular, create_temporary, make_directories
from shardstream.storage.local.write_behind import WriteBehind
from shardstream.waits import watched

_PATIENCE_S = 4.0  # for what is still being written of a file that nobody wants any more
_RESOLUTION_NS = 1_000_000_000  # of the times of files; a few ms on most file systems
_AT_ONCE = 1024  # entries of a folder
_OPEN_MAPS = 1024  # address space only, see `mapping`; the kernel's limit is 65,530 a process


class LocalStore(Store):
    """The folder ``root``. It need not exist before the first write.

    A mapping, once made, stays: an object that another process replaces is seen as it was, consistently.
    """

    mapped = True

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(absolute(root))
        self.url = str(self.root)
        self._maps: OrderedDict[str, Mapped] = OrderedDict()

    def __reduce__(self) -> tuple[type[LocalStore], tuple[str]]:
        return LocalStore, (str(self.root),)

    def file_of(self, path: str) -> Path:
        """The file of an object. Names come from data sets too, and those may be hostile.

        Raises:
            UsageError: It would not lie below the root.
        """
        if path.startswith("/") or "\0" in path or ".." in path.split("/"):
            raise UsageError(f"{path!r} leads out of the store", url=self.url, hint="use paths below the store's root")
        return self.root / path

    @contextmanager
    def _waiting(self, path: str, what: str) -> Iterator[None]:
        """A call of the file system, which may hang: `watched`, and its errors told as ours, with the object's URL.

        Args:
            path: The object.
            what: What happens to its file, to stand behind "waiting for FILE": "to be opened".
        """
        try:
            with watched(lambda: f"{self.root / path} {what}"):
                yield
        except StorageError:
            raise
        except OSError as error:
            raise self._explain(error, path) from error

    def _explain(self, error: OSError, path: str) -> StorageError:
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            return NotFoundError("no such object", url=self.locate(path))
        return StorageError.of(error, url=self.locate(path))

    def _map(self, path: str) -> Mapped:
        # Single steps that are atomic: threads may share a store, and a lock would not survive a fork.
        mapped = self._maps.get(path)
        if mapped is None:
            with self._waiting(path, "to be opened"):
                mapped = self._maps[path] = map_file(self.file_of(path), self.url)
            if len(self._maps) > _OPEN_MAPS:
                with suppress(KeyError):
                    self._maps.popitem(last=False)
        else:
            with suppress(KeyError):
                self._maps.move_to_end(path)
        return mapped

    def touched(self, path: str) -> tuple[FileState, FileState] | None:
        mapped = self._maps.get(path)
        if mapped is None:
            return None
        try:
            with watched(lambda: f"{self.root / path} to be looked at"):
                # By its name: a mapping holds no descriptor, of which a process has too few.
                state = FileState.of(self.file_of(path).stat())
        except OSError:  # deleted or out of reach: the mapping still holds it
            return None
        if state == mapped.state or state[:2] != mapped.state[:2]:
            return None
        if state.size < len(mapped.data):
            raise ChangedError(
                f"the file was cut from {len(mapped.data)} to {state.size} bytes while it was in use",
                url=self.locate(path),
                hint="restore it from its source; replace files by renaming, never in place",
            )
        return mapped.state, state

    def accept(self, path: str, state: FileState) -> None:
        mapped = self._maps.get(path)
        # Whoever writes to the file right now may do so again within the resolution of its times.
        if mapped is not None and time.time_ns() - state.changed > _RESOLUTION_NS:
            self._maps[path] = mapped._replace(state=state)

    def get(self, path: str, offset: int = 0, length: int | None = None) -> memoryview:
        view = self._map(path).data
        end = len(view) if length is None else offset + length
        if not 0 <= offset <= end <= len(view):
            raise past_the_end(offset, length, len(view)).at(url=self.locate(path))
        return view[offset:end]

    def pieces(self, path: str, size: int) -> Iterator[bytes]:
        """All bytes of an object, so many at a time and not mapped: what is read once need not stay in memory.

        Raises:
            StorageError: There is no such object, or it cannot be read.
        """
        with self._waiting(path, "to be opened"):
            file = open(self.file_of(path), "rb", buffering=0)  # noqa: SIM115 - the next block closes it
        with file:
            with self._waiting(path, "to be opened"):
                refuse_planted_link(str(self.file_of(path)), os.fstat(file.fileno()), self.url)
            while True:
                with self._waiting(path, "to be read"):
                    piece = file.read(size)
                if not piece:
                    return
                yield piece

    def get_tail(self, path: str, length: int) -> tuple[memoryview, int]:
        mapped = self._map(path)
        self.touched(path)  # once for each index that is opened, beside which it costs nothing
        view = mapped.data
        return view[max(0, len(view) - length) :], len(view)

    def size(self, path: str) -> int:
        return self.meta(path).size

    def meta(self, path: str) -> ObjectMeta:
        with self._waiting(path, "to be looked at"):
            info = self.file_of(path).stat()
        if not stat.S_ISREG(info.st_mode):
            raise NotFoundError("no such object", url=self.locate(path))
        return ObjectMeta(path, info.st_size, info.st_mtime_ns)

    def list(self, prefix: str = "") -> Iterator[ObjectMeta]:
        return iter(sorted(self._metas(prefix)))

    def _metas(self, prefix: str) -> Iterator[ObjectMeta]:
        path = ""
        with watched(lambda: f"{self.root / path} to be looked at") as wait:  # one for all: there may be millions
            for path, entry in self._files(prefix):
                if _is_temporary(path):
                    continue
                wait.since = time.monotonic()
                try:
                    info = entry.stat()
                except (FileNotFoundError, NotADirectoryError):  # deleted meanwhile
                    continue
                except OSError as error:
                    raise self._explain(error, path) from error
                finally:
                    wait.since = math.inf
                if stat.S_ISREG(info.st_mode):
                    yield ObjectMeta(path, info.st_size, info.st_mtime_ns)

    def _files(self, prefix: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
        """Files whose path begins with ``prefix``, temporary ones too; folders that hold none are not looked into."""
        folders = [""]
        while folders:
            below = folders.pop()
            step, slash, _ = prefix[len(below) :].partition("/")
            try:
                for entry in entries_of(self.root / below):
                    name = entry.name
                    if not (name == step if slash else name.startswith(step)):
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(f"{below}{name}/")
                    elif not slash and not entry.is_dir():
                        yield below + name, entry
            except (FileNotFoundError, NotADirectoryError):  # there is none, or it was deleted meanwhile
                continue
            except OSError as error:
                raise self._explain(error, below) from error

    def create(self, path: str) -> ObjectWriter:
        target = self.file_of(path)
        with self._waiting(path, "to be begun"):
            make_directories(self.root, path)
            check_regular(target)
            return _LocalWriter(self, path, target)

    def delete(self, path: str) -> None:
        self.forget(path)
        with self._waiting(path, "to be removed"):
            self.file_of(path).unlink(missing_ok=True)

    def move(self, path: str, target: str) -> None:
        self.forget(path)
        self.forget(target)
        with self._waiting(path, "to be moved"):
            os.replace(self.file_of(path), self.file_of(target))
            _sync_folder(self.file_of(target).parent)

    def sweep(self) -> None:
        for path in (path for path, _ in self._files("") if _is_temporary(path)):
            left = self.root / path
            # What cannot be opened or locked is somebody else's, or being written now.
            with suppress(OSError), open(left, "rb+") as file:
                if try_lock(file.fileno()):
                    left.unlink(missing_ok=True)

    def forget(self, path: str) -> None:
        """Drop the mapping of an object that has been replaced."""
        self._maps.pop(path, None)


class _LocalWriter(ObjectWriter):
    def __init__(self, store: LocalStore, path: str, target: Path) -> None:
        self._store = store
        self._path = path
        self._target = target
        self._temporary, file = _create_locked(target)
        self._file: FileIO | None = file
        self._behind = WriteBehind(file)
        self._written = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert self._file is not None, "written after commit or discard"
        try:
            self._written += self._behind.write(data)
        except OSError as error:
            raise self._store._explain(error, self._path) from error

    def tell(self) -> int:
        return self._written

    def commit(self) -> None:
        assert self._file is not None, "committed twice"
        try:
            if failed := self._behind.wait():
                raise failed
            with watched(f"{self._target} to be flushed to the disk"):
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
        with watched(f"{self._temporary} to be removed"):
            self._temporary.unlink(missing_ok=True)
        if self._behind.abandon(_PATIENCE_S):
            with suppress(OSError):  # some file systems fail only here; the file is gone already
                file.close()


def _is_temporary(path: str) -> bool:
    return path.rpartition("/")[2].startswith(TEMPORARY)


def entries_of(folder: str | os.PathLike[str]) -> Iterator[os.DirEntry[str]]:
    """What is in a folder, as `os.scandir` gives it; a file system that hangs is told of."""
    what = f"the folder {folder} to be listed"
    with watched(what):
        entries = os.scandir(folder)
    with entries:
        while True:
            with watched(what):
                some = list(islice(entries, _AT_ONCE))
            if not some:
                return
            yield from some


def _create_locked(target: Path) -> tuple[Path, FileIO]:
    """A new temporary file beside ``target``, locked for as long as it is open, so that `sweep` spares it."""
    while True:
        path, file = create_temporary(target)
        with suppress(OSError):  # where there are no locks, `sweep` spares everything
            try_lock(file.fileno())
        if path.exists():
            return path, file
        file.close()  # swept between the two steps


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # file systems that cannot, and need not
            raise
    finally:
        os.close(handle)
