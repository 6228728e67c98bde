"""Lists of files whose names are those of another directory than the list's own."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import replace

from shardstream.dataset.formats import Rooted, Selection
from shardstream.dataset.opening import common_parts, split_query
from shardstream.errors import NotFoundError, UsageError
from shardstream.formats.files.elsewhere import place_of_files
from shardstream.formats.files.lists import is_list
from shardstream.formats.scans.object_bytes import ObjectBytes
from shardstream.pack.sources.lists.mpdataset import CLASSES_OF_MPDATASET, LIST_OF_MPDATASET
from shardstream.storage import Location, PathOrUrl, locate, open_store
from shardstream.storage.base.address import absolute


def rooted(place: PathOrUrl, names: tuple[str, ...], options: Mapping[str, str] | None) -> Rooted:
    """The same below a folder that also holds the ``root`` of the options, which names in a list are taken from.

    The root is then one of that folder; a user writes it as a path or URL, or as it lies from the folder of the list.

    >>> rooted("/lists", ("train.csv",), {"root": "../images/a"})
    Rooted(place='/', names=('lists/train.csv',), options={'root': 'images/a'})

    Raises:
        UsageError: It lies in another store.
    """
    if not options or "root" not in options or not isinstance(place, str | os.PathLike):
        return Rooted(place, names, options)
    base, query = split_query(os.fspath(place))
    remote = "://" in base
    folder = (base if remote else absolute(base)).rstrip("/").split("/")
    names = names or (LIST_OF_MPDATASET,)  # of a folder that is no list itself
    text = options["root"]
    if remote:
        host, path = folder[:3], folder[3:]
        parts = text.rstrip("/").split("/") if "://" in text else [*host, *_normal([*path, text])]
    else:
        parts = os.path.normpath(os.path.join("/".join(folder) or "/", text)).rstrip("/").split("/")
    common = common_parts(folder, parts)
    if len(common) < (3 if remote else 1):
        raise UsageError(
            f"root={text!r} lies in another store", url=locate(base).url, hint="give one of the same store"
        )
    below = "/".join(folder[len(common) :])
    moved = tuple(f"{below}/{name}" if below else name for name in names)
    return Rooted(("/".join(common) or "/") + query, moved, {**options, "root": "/".join(parts[len(common) :]) or "."})


def with_files(location: Location, selection: Selection) -> tuple[Location, Selection]:
    """The same place, or for a list whose files are elsewhere the directory that holds them too.

    A root that a user gives is where all files have to be. Only lists of this machine may name files outside of their
    own directory.
    """
    names = selection.names or (LIST_OF_MPDATASET,)
    if not location.local or len(names) != 1 or not is_list(names[0]) or "root" in dict(selection.options or ()):
        return location, selection
    store, path = open_store(location), names[0]
    try:
        if not selection.names and not store.exists(CLASSES_OF_MPDATASET):
            return location, selection
        data = ObjectBytes(store, path, store.size(path))
    except (NotFoundError, UsageError):  # told by whoever opens it
        return location, selection
    list_folder = posixpath.dirname(store.locate(path)) or "/"
    place = place_of_files(data, list_folder)
    if place is None:
        return location, selection
    place = "/".join(common_parts(place.rstrip("/").split("/"), location.url.rstrip("/").split("/"))) or "/"
    moved = os.path.relpath(store.locate(path), place)
    return locate(place), replace(selection, names=(moved,))


def _normal(parts: Sequence[str]) -> list[str]:
    """The parts of the path of a URL, without ``..``."""
    return [part for part in posixpath.normpath(f"/{'/'.join(parts)}").split("/") if part]
