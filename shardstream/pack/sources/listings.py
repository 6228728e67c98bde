"""All files below a folder or URL, in the order of their paths as bytes; what is hidden is left out.

The order is the same for a local folder and for a bucket that holds a copy of it.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from shardstream.errors import NotFoundError, SourceError
from shardstream.pack.sources.missing import instead_of
from shardstream.pack.sources.paths import join
from shardstream.storage import Location, Store, open_store
from shardstream.storage.base.sorting import SortedNames
from shardstream.storage.local.store import entries_of

_MAGIC = re.compile(r"[*?[]")


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

    def entries(self) -> Iterator[Entry]:
        """The files.

        Raises:
            SourceError: The folder is not there, or cannot be read.
            StorageError: The store cannot list them.
        """
        matches = glob_pattern(self.pattern or "**").fullmatch
        found = _walk(self.root.url, "") if self.root.local else _listed(open_store(self.root))
        return (entry for entry in found if matches(entry.path))

    def takes(self, name: str) -> bool:
        """Whether a file of this name may be among them."""
        return glob_pattern((self.pattern or "**").rpartition("/")[2]).fullmatch(name) is not None

    def folders(self) -> list[str]:
        """The folders of a local folder, also empty ones."""
        if not self.root.local or self.pattern is not None:
            return []
        return [name for name, inside in _scan(self.root.url) if inside]


def split_glob(text: str) -> tuple[str, str] | None:
    """The folder before the first component of a path or URL that is a pattern, and the pattern; else ``None``.

    >>> split_glob("s3://bucket/data/*/a*.jpg")
    ('s3://bucket/data', '*/a*.jpg')
    """
    start = text.find("://") + 3 if "://" in text else 0
    found = _MAGIC.search(text, start)
    if found is None:
        return None
    cut = text.rfind("/", start, found.start()) + 1
    return (text[: max(cut - 1, 1)] if cut else "."), text[cut:]


def glob_pattern(pattern: str) -> re.Pattern[str]:
    """A shell's pattern: ``*`` and ``?`` stay inside of a folder, ``**`` goes through any number of them.

    >>> bool(glob_pattern("**/*.jpg").fullmatch("a/b/1.jpg")), bool(glob_pattern("*.jpg").fullmatch("a/1.jpg"))
    (True, False)
    """
    found, at = "", 0
    while at < len(pattern):
        rest = pattern[at:]
        one = re.match(r"\*\*/|\*\*$|\*|\?|\[!?\]?[^]/]*\]", rest)
        text = one[0] if one else rest[0]
        if text == "**/":
            found += r"(?:[^/]+/)*"
        elif text == "**":
            found += r".*"
        elif text.startswith("["):
            found += f"(?!/){fnmatch.translate(text)[4:-3]}"
        else:
            found += {"*": "[^/]*", "?": "[^/]"}.get(text) or re.escape(text)
        at += len(text)
    return re.compile(found, re.DOTALL)


def _walk(root: str, folder: str) -> Iterator[Entry]:
    """Links to folders are followed in the root only: deeper ones may go round in circles."""
    found = _scan(os.path.join(root, folder), follow=not folder)
    with SortedNames() as names:
        names.add((os.fsencode(f"{name}/" if inside else name), 0) for name, inside in found)
        for encoded, _ in names:
            name = os.fsdecode(encoded)
            path = f"{folder}/{name}" if folder else name
            if name.endswith("/"):
                yield from _walk(root, path[:-1])
            else:
                yield Entry(path, None)


def _scan(folder: str, *, follow: bool = True) -> Iterator[tuple[str, bool]]:
    """What is in a folder, hidden things left out: the name of each, and whether it is a folder."""
    try:
        for entry in entries_of(folder):
            if not entry.name.startswith("."):
                yield entry.name, entry.is_dir(follow_symlinks=follow)
    except FileNotFoundError as error:
        raise SourceError("there is no such folder", url=folder, hint=instead_of(folder)) from error
    except OSError as error:
        raise SourceError(
            f"the folder cannot be read: {error.strerror}", url=folder, hint=instead_of(folder)
        ) from error


def _listed(store: Store) -> Iterator[Entry]:
    """Objects whose name ends with a slash are how some tools mark folders."""
    try:
        for path, size, _ in store.list():
            if not path.endswith("/") and "//" not in path and "/." not in path and not path.startswith("."):
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
