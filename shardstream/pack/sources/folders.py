"""Folders of class folders, as torchvision's ``ImageFolder`` reads them; a flat folder is a data set without labels.

The label is the number of the class folder in sorting order. Names that begin with a dot are left out, and so are files
that lie beside class folders, with a note. Where there are images, other files are rejected: a stray text file is no
sample. A folder without any image is packed file by file, whatever they are. Links to class folders are followed,
deeper links to folders are not: they may go round in circles.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import xxhash
from numpy.typing import NDArray

from shardstream.errors import DuplicateKeyError, SourceError, UsageError
from shardstream.pack.duplicates import key_hash, repeated
from shardstream.pack.sources.base import Item, Part, Reject, Source, file_item, printable
from shardstream.pack.sources.keys import MODES, KeyRule
from shardstream.shards.fields import type_of_extension
from shardstream.shards.manifest import MANIFEST_NAME

_SHOWN = 3


@dataclass(frozen=True, slots=True)
class FolderPart(Part):
    """Some files of a folder: relative paths in one blob, with where each ends, and labels (-1 for none)."""

    root: str
    keys: KeyRule
    numbers: NDArray[np.int64]
    paths: tuple[bytes, ...]
    labels: NDArray[np.int64]
    images: bool

    def __iter__(self) -> Iterator[Item | Reject]:
        for number, encoded, label in zip(self.numbers.tolist(), self.paths, self.labels.tolist(), strict=True):
            path = os.fsdecode(encoded)
            if self.images and not _is_image(path):
                yield Reject(number + 1, printable(path), "it is no jpg, png or webp file, in a folder of images")
                continue
            key = self.keys.key(number + 1, path)
            yield file_item(number + 1, path, key, folder=self.root, label=None if label < 0 else label)


class FolderSource(Source):
    """All files below a folder, in sorting order; if some are images, the others are rejected.

    Paths are held as one blob of bytes.

    Args:
        path: The folder.
        key: ``"path"`` (relative to the folder), ``"stem"`` or ``"line"`` (the number in sorting order, from 1).

    Raises:
        SourceError: It cannot be read, holds no file, or is a packed data set.
        DuplicateKeyError: Two files with one key.
        UsageError: ``key`` names a column.
    """

    def __init__(self, path: str, *, key: str = "path") -> None:
        if key not in MODES:
            raise UsageError(f"key={key!r}: a folder has no columns", hint="use 'path', 'stem' or 'line'")
        self.url = path
        self.root = self._root = os.path.abspath(path)
        if os.path.exists(os.path.join(path, MANIFEST_NAME)):
            raise SourceError(
                "this folder holds a packed data set",
                url=path,
                hint="pack the files that it was made from, or use `shardstream repack` (ss.repack)",
            )
        self._keys = KeyRule(key)
        self._images = False
        self._blob, self._ends = bytearray(), array("Q")
        self._class_ends: list[int] = []
        self._list()
        if not self._ends:
            raise SourceError("the folder holds no files", url=path, hint="pass a folder of class folders, or a list")
        if key != "line":
            self._find_duplicates()

    def _list(self) -> None:
        folders, files = _entries(self._root)
        if not folders:
            self._add("", files)
            return
        self.classes = tuple(printable(name) for name in folders)
        for name in folders:
            self._walk(name)
            self._class_ends.append(len(self._ends))
        if files:
            shown = ", ".join(map(printable, files[:_SHOWN])) + (", ..." if len(files) > _SHOWN else "")
            self.notes = (f"Left out, as they lie beside the class folders: {len(files)} files ({shown}).",)

    def _walk(self, folder: str) -> None:
        folders, files = _entries(os.path.join(self._root, folder), follow=False)
        self._add(folder, files)
        for name in folders:
            self._walk(os.path.join(folder, name))

    def _add(self, folder: str, files: list[str]) -> None:
        for name in files:
            self._blob += os.fsencode(os.path.join(folder, name))
            self._ends.append(len(self._blob))
            self._images = self._images or _is_image(name)

    def _path(self, number: int) -> bytes:
        return bytes(self._blob[self._ends[number - 1] if number else 0 : self._ends[number]])

    def _key(self, number: int) -> str:
        path = os.fsdecode(self._path(number))
        if self._images and not _is_image(path):
            return f"/{path}"  # it will be rejected, and is in nobody's way: no key begins with a slash
        return self._keys.key(number + 1, path)

    def _find_duplicates(self) -> None:
        hashes = np.fromiter((key_hash(self._key(i).encode()) for i in range(len(self))), np.uint64, len(self))
        suspects = repeated(hashes)
        if not suspects:
            return
        first: dict[str, int] = {}
        for number in range(len(self)):
            key = self._key(number)
            if key_hash(key.encode()) in suspects and first.setdefault(key, number) != number:
                one, two = (printable(os.fsdecode(self._path(i))) for i in (first[key], number))
                raise DuplicateKeyError(
                    f"{one} and {two} have the same key",
                    url=self.url,
                    key=key,
                    hint="remove one of them, or choose other keys: --key path, stem or line",
                )

    def __len__(self) -> int:
        return len(self._ends)

    def part(self, numbers: NDArray[np.int64]) -> FolderPart:
        paths = tuple(self._path(number) for number in numbers.tolist())
        labels = np.full(len(numbers), -1)
        if self.classes is not None:
            labels = np.searchsorted(np.array(self._class_ends), numbers, side="right")
        return FolderPart(self._root, self._keys, numbers, paths, labels, self._images)

    @property
    def fingerprint(self) -> str:
        hasher = xxhash.xxh3_128(b"folder\n")
        for part in (self._blob, self._ends, array("Q", self._class_ends)):
            hasher.update(memoryview(part).cast("B"))
        return hasher.hexdigest()


def _is_image(path: str) -> bool:
    return type_of_extension(os.path.splitext(path)[1][1:]).is_image


def _entries(folder: str, *, follow: bool = True) -> tuple[list[str], list[str]]:
    """Names of the folders and of the other entries in a folder, each sorted; hidden ones left out."""
    folders: list[str] = []
    files: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                (folders if entry.is_dir(follow_symlinks=follow) else files).append(entry.name)
    except OSError as error:
        raise SourceError(
            f"the folder cannot be read: {error.strerror}", url=folder, hint="check its rights"
        ) from error
    return sorted(folders), sorted(files)
