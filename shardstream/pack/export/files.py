"""Single files ``KEY.FIELD``, and a list of them that can be packed again: ``labels.tsv``."""

from __future__ import annotations

import errno
import io
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from shardstream.errors import StorageError, UsageError
from shardstream.pack.export.contract import CLASSES_NAME, FOLDER, STATE_NAME, Sample, Target
from shardstream.pack.export.names import extensions, file_stem, folds_names, one_name
from shardstream.shards.manifest import Manifest
from shardstream.storage import ObjectWriter, Store
from shardstream.storage.local.output_files import make_directories, write_file
from shardstream.threads import each
from shardstream.waits import watched

LIST_NAME = "labels.tsv"

_OURS = (LIST_NAME, STATE_NAME, CLASSES_NAME)
"""Names that no sample may have."""
_FOLDER_TOO = "a file of one key has the name of a folder of another key: give one of them another key"
_OF_KEYS = {
    errno.ENAMETOOLONG: "its key is too long for a file name here: export to='webdataset', say, or give it another key",
    errno.EEXIST: _FOLDER_TOO,
    errno.ENOTDIR: _FOLDER_TOO,
    errno.EISDIR: _FOLDER_TOO,
}
"""What to do where the system refuses what a key became."""
_AT_ONCE = 16  # files sent to a store
_PIECE = 8 << 20
_BREAKS = re.compile(r"[\t\r\n]")


class FilesTarget(Target):
    """A file of each value that is not a number. Numbers stand in the list, a column each, and so do keys."""

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(manifest)
        self._names = extensions(manifest.fields)
        self._escape_dots = any("." in extension for extension in self._names.values())
        images = [name for name in self._names if self.fields[name].is_image]
        first = (images or list(self._names) or [None])[0]  # type: ignore[list-item] # None: numbers only
        self._columns = [first, *(name for name in manifest.fields if name != first)] if first else [*manifest.fields]
        titles: dict[str | None, str] = {first: "path"} if first else {}
        if "cls" in self.fields and self.fields["cls"].kind == "scalar":
            titles["cls"] = "label"
        self._titles = ["key", *(titles.get(name, name) for name in self._columns)]

    def check(self, store: Store, keys: Callable[[], Iterator[str]]) -> None:
        root = store.file_of("")
        if root is None or not self._names or not folds_names(root):
            return
        if found := one_name(keys):
            raise UsageError(
                f"files of the keys {' and '.join(map(repr, found[:2]))} would have one name: the file system of this "
                "folder does not tell upper from lower case, or accents",
                url=store.url,
                hint="export to another file system, or into files that hold many samples: to='webdataset'",
            )

    def _file_name(self, stem: str, field: str) -> str:
        name = f"{stem}.{self._names[field]}"
        return f"%{ord(name[0]):02X}{name[1:]}" if name.casefold() in _OURS else name

    def object_name(self, shard: int) -> str:
        return f"{FOLDER}/{shard:06d}.tsv"

    def write(self, store: Store, out: ObjectWriter, samples: Iterator[Sequence[Sample]], *, again: bool) -> bytes:
        for part in samples:
            files, lines = [], []
            for sample in part:
                stem = file_stem(sample.key, escape_dots=self._escape_dots)
                cells = [_BREAKS.sub(" ", sample.key)]
                for name in self._columns:
                    value = sample.values.get(name)
                    if value is not None and name in self._names:
                        files.append((self._file_name(stem, name), _bytes_of(value)))
                        cells.append(files[-1][0])
                    else:
                        cells.append("" if value is None else str(int(value) if isinstance(value, bool) else value))
                lines.append("\t".join(cells) + "\n")
            put_all(store, files, again=again)
            out.write("".join(lines).encode())
        return b""

    def finish(self, store: Store) -> None:
        super().finish(store)
        with store.create(LIST_NAME) as out:
            out.write(("\t".join(self._titles) + "\n").encode())
            for shard in range(self.shards):
                name = self.object_name(shard)
                size = store.size(name)
                for offset in range(0, size, _PIECE):
                    out.write(store.get(name, offset, min(_PIECE, size - offset)))


def _bytes_of(value: Any) -> bytes | memoryview:
    if not isinstance(value, np.ndarray):
        return value  # type: ignore[no-any-return] # a payload is bytes
    out = io.BytesIO()
    np.save(out, value, allow_pickle=False)
    return out.getvalue()


def put_all(store: Store, files: Iterable[tuple[str, bytes | memoryview]], *, again: bool) -> None:
    """Write files, each of them whole or not at all.

    Args:
        store: Where.
        files: Name and content of each.
        again: Whether to look first which of them are there in their full size.

    Raises:
        StorageError: One cannot be written.
    """
    root = store.file_of("")
    if root is not None:
        _put_here(store, root, files, again=again)
        return

    def put(file: tuple[str, bytes | memoryview]) -> None:
        name, data = file
        if not (again and store.exists(name) and store.size(name) == len(data)):
            store.put(name, data)

    for _ in each(put, files, at_once=_AT_ONCE, what=f"a file to be sent to {store.url}"):
        pass


def _put_here(store: Store, root: Path, files: Iterable[tuple[str, bytes | memoryview]], *, again: bool) -> None:
    """Millions of small files: none is flushed to the disk by itself, which would take milliseconds each."""
    known: set[Path] = set()  # directories; files of consecutive samples are seldom in the same one
    name = ""
    try:
        for name, data in files:
            path = store.file_of(name)
            assert path is not None
            if again and os.path.isfile(path) and os.path.getsize(path) == len(data):
                continue
            if path.parent not in known:
                known.add(make_directories(root, name))
            with watched(f"{path} to be written"):
                write_file(path, data)
    except OSError as error:
        explained = StorageError.of(error, url=store.locate(name))
        explained.hint = _OF_KEYS.get(error.errno or 0, explained.hint)
        raise explained from error
