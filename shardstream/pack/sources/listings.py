"""All files below a folder or URL that are data by their names, in the order of their paths as bytes.

The order is the same for a local folder and for a bucket that holds a copy of it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import NamedTuple

from shardstream.errors import AccessError, NotFoundError, SourceError
from shardstream.names.globs import Glob, glob_pattern
from shardstream.names.missing import instead_of
from shardstream.names.strays import Strays, find_stray
from shardstream.pack.sources.media import is_media, suffix_of
from shardstream.pack.sources.paths import join
from shardstream.storage import Location, Store, open_store
from shardstream.storage.base.sorting import SortedNames
from shardstream.storage.local.links import refuse_planted_link
from shardstream.storage.local.store import entries_of


class Entry(NamedTuple):
    """A file.

    Attributes:
        path: Relative to the folder, with ``/``; bytes that are not UTF-8 as surrogates.
        size: Its bytes, where the listing gives them.
    """

    path: str
    size: int | None


class FileListing(NamedTuple):
    """What is to be listed.

    Attributes:
        root: The folder or URL.
        pattern: Which of its files; ``None`` for all.
    """

    root: Location
    pattern: str | None = None

    @property
    def url(self) -> str:
        """What it is, for messages."""
        return self.root.url if self.pattern is None else join(self.root.url, self.pattern)

    def entries(self, strays: Strays | None = None) -> Iterator[Entry]:
        """The files.

        Args:
            strays: Counts those that are not data by their names; see `find_stray`. Default: they are logged.

        Raises:
            SourceError: The folder is not there, or cannot be read.
            StorageError: The store cannot list them.
        """
        counted = Strays() if strays is None else strays
        if self.pattern is None:
            yield from self._below(_StraysBelow(self.root, counted))
        else:
            pattern = Glob(self.pattern, counted)
            yield from (entry for entry in self._below(lambda path: False) if pattern.matches(entry.path))
        if strays is None:
            counted.log(self.url)

    def _below(self, stray: Callable[[str], bool]) -> Iterator[Entry]:
        return _walk(self.root.url, "", stray) if self.root.local else _listed(open_store(self.root), stray)

    def takes(self, name: str) -> bool:
        """Whether a file of this name may be among them."""
        return glob_pattern((self.pattern or "**").rpartition("/")[2]).fullmatch(name) is not None

    def folders(self) -> list[str]:
        """The folders of a local folder, also empty ones."""
        if not self.root.local or self.pattern is not None:
            return []
        stray = _StraysBelow(self.root, Strays())  # which are counted with the files
        return [name for name, inside in _scan(self.root.url) if inside and not stray(f"{name}/")]


class _StraysBelow:
    """Whether a path below a folder is not data; counts what is not.

    Args:
        root: The folder.
        strays: Counts it.
    """

    def __init__(self, root: Location, strays: Strays) -> None:
        self._root, self._strays = root, strays
        self._classes: dict[str, bool] = {}  # folders at the top whose names begin with `_`

    def __call__(self, path: str) -> bool:
        folder, inside, _ = path.partition("/")
        stray = folder if inside and self._is_no_class(folder) else find_stray(path.rstrip("/"))
        if stray is not None:
            self._strays.add(stray)
        return stray is not None

    def _is_no_class(self, folder: str) -> bool:
        if not folder.startswith("_"):
            return False
        if folder not in self._classes:
            self._classes[folder] = find_stray(folder) is None and self._has_media(folder)
        return not self._classes[folder]

    def _has_media(self, folder: str) -> bool:
        if self._root.local:
            found = _walk(self._root.url, folder, lambda path: find_stray(path.rstrip("/")) is not None)
            return any(is_media(suffix_of(entry.path)) for entry in found)
        paths = (one.path for one in open_store(self._root).list(f"{folder}/"))
        return any(is_media(suffix_of(path)) and find_stray(path) is None for path in paths)


def _walk(root: str, folder: str, stray: Callable[[str], bool]) -> Iterator[Entry]:
    """Links to folders are followed in the root only: deeper ones may go round in circles.

    Args:
        root: The folder that is listed.
        folder: One below it; empty for itself.
        stray: Whether a path is left out, with all that is below it.
    """
    found = _scan(os.path.join(root, folder), follow=not folder)
    with SortedNames() as names:
        names.add((os.fsencode(f"{name}/" if inside else name), 0) for name, inside in found)
        for encoded, _ in names:
            name = os.fsdecode(encoded)
            path = f"{folder}/{name}" if folder else name
            if stray(path):
                continue
            if name.endswith("/"):
                yield from _walk(root, path[:-1], stray)
            else:
                yield Entry(path, None)


def _scan(folder: str, *, follow: bool = True) -> Iterator[tuple[str, bool]]:
    """What is in a folder: the name of each, and whether it is a folder."""
    try:
        for entry in entries_of(folder):
            inside = entry.is_dir(follow_symlinks=follow)
            if inside and entry.is_symlink():
                refuse_planted_link(entry.path, entry.stat())
            yield entry.name, inside
    except FileNotFoundError as error:
        raise SourceError("there is no such folder", url=folder, hint=instead_of(folder)) from error
    except AccessError as error:
        raise SourceError(error.what, hint=error.hint, **error.place) from error
    except OSError as error:
        raise SourceError(
            f"the folder cannot be read: {error.strerror}", url=folder, hint=instead_of(folder)
        ) from error


def _listed(store: Store, stray: Callable[[str], bool]) -> Iterator[Entry]:
    """Objects whose name ends with a slash are how some tools mark folders."""
    try:
        for path, size, _ in store.list():
            if not path.endswith("/") and "//" not in path and not stray(path):
                yield Entry(path, size)
    except NotFoundError as error:
        raise SourceError(error.what, url=store.url, hint="write the URL of a folder that holds objects") from error


def grouped(entries: Iterator[Entry], stem: Callable[[str], str]) -> Iterator[tuple[str, list[Entry]]]:
    """Files that share a stem, together; those that are nothing but a stem stay alone.

    Files of one stem need not follow one another: ``a.d/`` stands between ``a.c`` and ``a.e``.

    Args:
        entries: In the order of their paths.
        stem: The stem of a path.
    """
    pending: list[tuple[str, list[Entry]]] = []  # each stem begins with the one before it, and a dot
    for entry in entries:
        while pending and not entry.path.startswith(f"{pending[-1][0]}."):
            yield pending.pop()
        here = stem(entry.path)
        if here == entry.path:
            yield here, [entry]
        elif pending and pending[-1][0] == here:
            pending[-1][1].append(entry)
        else:
            pending.append((here, [entry]))
    yield from reversed(pending)
