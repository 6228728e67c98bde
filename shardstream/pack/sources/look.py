"""Some of the names in a directory, by which it is recognized before all of it is listed."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from shardstream.errors import NotFoundError
from shardstream.names.strays import find_stray
from shardstream.storage import Location, open_store
from shardstream.storage.local.store import entries_of

_LOOKED_AT = 2048  # names of a directory, before it is known whether it may be a dataset of another library
_OF_ONE = 256  # names of each directory in it


class Look(NamedTuple):
    """Some of the names in a directory.

    Attributes:
        names: Names of files, relative to the directory.
        whole: Whether these are all.
    """

    names: Sequence[str]
    whole: bool


def look_into(folder: Location) -> Look:
    """List a bounded number of names of a directory, local or in a store: a few of ten million images.

    Raises:
        StorageError: It cannot be read.
    """
    if folder.local:
        return _look_into_local(folder.url)
    try:
        data = (one.path for one in open_store(folder).list() if find_stray(one.path) is None)
        found = list(islice(data, _LOOKED_AT + 1))
    except NotFoundError:
        return Look((), whole=True)  # whoever lists it says so
    return Look(found[:_LOOKED_AT], whole=len(found) <= _LOOKED_AT)


def _look_into_local(root: str) -> Look:
    names: list[str] = []
    folders, whole = deque([""]), True
    while folders and len(names) < _LOOKED_AT:
        folder = folders.popleft()
        most = _OF_ONE if folder else _LOOKED_AT
        try:
            entries = entries_of(os.path.join(root, folder))
            found = list(islice((entry for entry in entries if find_stray(entry.name) is None), most + 1))
        except OSError:
            continue  # the same
        whole &= len(found) <= most
        for entry in found[:most]:
            path = f"{folder}/{entry.name}" if folder else entry.name
            inside = entry.is_dir(follow_symlinks=not folder)
            (folders if inside else names).append(path)
    return Look(names, whole and not folders)
