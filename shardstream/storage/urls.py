"""URLs and paths to stores."""

from __future__ import annotations

import os
import posixpath
from urllib.parse import unquote, urlsplit

from shardstream.errors import UsageError
from shardstream.storage.base import Store
from shardstream.storage.local import LocalStore


def open_store(url: str | os.PathLike[str]) -> Store:
    """The store rooted at a folder: a path, or a ``file://`` URL.

    Raises:
        UsageError: The scheme is not supported.

        >>> open_store("file:///data/out").url
        '/data/out'
    """
    text = os.fspath(url)
    if "://" not in text:
        return LocalStore(text)
    parts = urlsplit(text)
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return LocalStore(unquote(parts.path))
    # No query and no user information: those hold credentials.
    shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    raise UsageError(f"{parts.scheme}:// is not supported", url=shown, hint="use a local path or a file:// URL")


def open_object(url: str | os.PathLike[str]) -> tuple[Store, str]:
    """The store of the folder that holds an object, and the object's name in it."""
    folder, name = posixpath.split(os.fspath(url))
    return open_store(folder or "."), name
