"""What people write for one data set or several: a folder, a list of folders, a glob, or a list in braces."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator, Sequence

from shardstream.braces import without_braces
from shardstream.errors import NotFoundError, UsageError
from shardstream.shards.heads import MANIFEST_NAME
from shardstream.storage import PathOrUrl, locate


def find_paths(url: PathOrUrl | Sequence[PathOrUrl]) -> list[PathOrUrl]:
    """The folders that ``url`` names, in order: of a list its own, of braces as written, of a glob sorted by name.

    Braces are ``{a,b}`` or ``{000..011}``, as many as wanted. A glob matches folders that hold a data set. A folder
    that exists is taken by its name, whatever characters are in it; a store is taken as it is.

    Raises:
        UsageError: An empty list, braces that cannot be read, or a glob in a URL.
        NotFoundError: A glob that matches no data set.

        >>> find_paths("data/part-{08..10}")
        ['data/part-08', 'data/part-09', 'data/part-10']
    """
    if isinstance(url, str) or not isinstance(url, Iterable):
        return list(_expand(url))
    places = [place for one in url for place in _expand(one)]
    if not places:
        raise UsageError("an empty list names no data set", hint="pass at least one folder")
    return places


def _expand(url: PathOrUrl) -> Iterator[PathOrUrl]:
    if not isinstance(url, str | os.PathLike):
        yield url
        return
    text = os.fspath(url)
    if "://" not in text and os.path.exists(text):
        yield text
        return
    for place in without_braces(text):
        if "://" in place:
            _refuse_glob(place)
            yield place
        elif not any(character in place for character in "*?[") or os.path.exists(place):
            yield place
        else:
            yield from _matching(place)


def _refuse_glob(url: str) -> None:
    shown = locate(url).url  # without the query, which may be a key, and may have any character
    if "*" in shown or "[" in shown.partition("://")[2].partition("/")[2]:
        raise UsageError("a glob needs a local path", url=shown, hint="list the data sets, or use braces")


def _matching(pattern: str) -> list[str]:
    found = sorted(path for path in glob.glob(pattern) if os.path.exists(os.path.join(path, MANIFEST_NAME)))
    if not found:
        raise NotFoundError(
            "no data set matches", url=pattern, hint=f"a data set is a folder with a {MANIFEST_NAME}, as pack makes it"
        )
    return found
