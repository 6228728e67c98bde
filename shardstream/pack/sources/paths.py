"""Paths of a list: in the local file system, and URLs; pure text."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from shardstream.errors import UsageError
from shardstream.storage.base.address import parse
from shardstream.text import without_password

_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*)://")


def scheme_of(path: str) -> str | None:
    """The scheme of a URL; ``None`` for a path."""
    found = _SCHEME.match(path)
    return None if found is None else found[1].lower()


def local_path(path: str) -> str:
    """The path that a ``file://`` URL names; a path as it is. UsageError for a URL that names another host."""
    return parse(path).prefix if scheme_of(path) == "file" else path


def join(folder: str, path: str) -> str:
    """A path of a list, taken from the list's own folder or URL; absolute paths and URLs stay."""
    if path.startswith("/") or ("://" in path and scheme_of(path) is not None):
        return path
    return f"{folder.rstrip('/')}/{path}" if scheme_of(folder) else os.path.join(folder, path)


def extension_of(path: str) -> str:
    """The extension of a path or URL, without its dot."""
    return os.path.splitext(without_host(path) if "://" in path else path)[1][1:]


def without_scheme(url: str) -> str:
    """Host (or bucket) and path of a URL, without its user: keys are made of them. A path stays as it is."""
    scheme = scheme_of(url)
    if scheme is None:
        return url
    rest = without_password(url)[len(scheme) + 3 :]
    # In object stores a question mark is a letter like others.
    return re.split("[?#]", rest, maxsplit=1)[0] if scheme in ("http", "https") else rest


def without_host(url: str) -> str:
    """The path of a URL; a path stays as it is."""
    rest = without_scheme(url)
    return rest if rest is url else rest.partition("/")[2]


def common_folder(first: str, last: str) -> str:
    """What all normal paths between ``first`` and ``last`` in sorting order begin with, up to a ``/``.

    >>> common_folder("a/b/1.jpg", "a/c/2.jpg")
    'a/'
    """
    same = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    return first[: first.rfind("/", 0, same) + 1]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the files of a list that is not local have to lie, since whoever wrote it may not be trusted.

    Attributes:
        url: Scheme, and bucket or host.
    """

    url: str

    @classmethod
    def of(cls, folder: str) -> Origin | None:
        """The origin of a list in this folder; ``None`` for a local one, which may name anything."""
        address = parse(folder)
        if address.kind == "local":
            return None
        return cls(f"{address.scheme}://{folder.partition('://')[2].partition('/')[0]}")

    def holds(self, path: str) -> bool:
        """Whether a path or URL lies below it.

        >>> Origin("s3://data").holds("s3://data-of-others/x.jpg"), Origin("s3://data").holds("/etc/passwd")
        (False, False)
        """
        if path.startswith(f"{self.url}/"):  # nothing that follows a bucket or host changes it
            return True
        if scheme_of(path) is None:
            return False
        try:
            return parse(path).origin == parse(self.url).origin
        except UsageError:
            return False
