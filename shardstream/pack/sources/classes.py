"""``classes=``: the list that says which number a class has, given as such, in a file, or by another data set."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from shardstream.dataset.lists.list_file import open_list
from shardstream.dataset.opened import DatasetAddress
from shardstream.errors import NotFoundError, SourceError, UsageError
from shardstream.shards.heads import MANIFEST_NAME
from shardstream.storage import Location, PathOrUrl, is_place, open_store

ClassesArgument: TypeAlias = Sequence[str] | PathOrUrl
"""Names of classes, or where they are: a text or JSON file, or a data set."""

_HINT = "classes= (--classes) takes a list of names, a text or JSON file of them, or a packed data set"
_FILE_HINT = 'one name a line, as UTF-8; or JSON: ["cat", "dog"], or {"cat": 0, "dog": 1}'


def check_classes(classes: object) -> None:
    """Refuse ``classes`` that are neither names nor a place; UsageError."""
    named = isinstance(classes, Sequence) and all(isinstance(name, str) for name in classes)
    if classes == "" or not (classes is None or named or is_place(classes)):
        raise UsageError(
            "classes must be a list of names, label i being classes[i], or a place that has them",
            hint='classes=["cat", "dog"], classes="names.txt" or classes="train/"',
        )


def place_of(classes: ClassesArgument | None) -> list[PathOrUrl]:
    """Where the names of classes lie; nothing if they are given themselves, or not at all."""
    return [classes] if is_place(classes) else []


def names_of(classes: ClassesArgument | None, read: Sequence[Location]) -> tuple[str, ...] | None:
    """The names of the classes, if there are any.

    Args:
        classes: As given.
        read: The last of these is `place_of` it.

    Raises:
        UsageError: There is none, or it names no classes.
        StorageError: It cannot be read.
    """
    if not place_of(classes):
        return None if classes is None else tuple(classes)  # type: ignore[arg-type] # what is not a place is a list of names
    return _read(read[-1])


def _read(location: Location) -> tuple[str, ...]:
    try:
        if _is_dataset(location):
            return _of_dataset(location)
        file = open_list(location)
        text = file.read(0, file.size).decode("utf-8-sig")
    except NotFoundError as error:
        raise UsageError("there is neither a file nor a data set", url=location.url, hint=_HINT) from error
    except SourceError as error:
        raise UsageError(f"classes: {error.what}", hint=_HINT, **error.place) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"classes must be UTF-8: {error}", url=location.url, hint=_FILE_HINT) from error
    names = _of_json(text, location.url) if location.url.lower().endswith(".json") else _of_lines(text)
    if not names:
        raise UsageError("the file names no class", url=location.url, hint=_FILE_HINT)
    return names


def _is_dataset(location: Location) -> bool:
    if location.local:
        return os.path.isdir(location.url)
    return location.store is not None or open_store(location).exists(MANIFEST_NAME)


def _of_dataset(location: Location) -> tuple[str, ...]:
    unpacked = UsageError(
        "classes: there is no packed data set in this folder", url=location.url, hint=f"pack it first; {_HINT}"
    )
    try:
        manifest = DatasetAddress(location).open().manifest
    except NotFoundError as error:
        raise unpacked from error
    if manifest.external is not None and manifest.external.loose:  # whose classes may be others tomorrow
        raise unpacked
    names = manifest.classes
    if names is None:
        raise UsageError("the data set has no names of classes", url=location.url, hint=_HINT)
    return names


def _of_lines(text: str) -> tuple[str, ...]:
    return tuple(map(str.strip, text.splitlines()))


def _of_json(text: str, url: str) -> tuple[str, ...]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"classes: malformed JSON: {error}", url=url, hint=_FILE_HINT) from error
    if isinstance(found, Mapping) and all(type(number) is int for number in found.values()):
        numbers = sorted(found, key=lambda name: found[name])
        if [found[name] for name in numbers] == list(range(len(numbers))):
            return tuple(numbers)
        raise UsageError(
            "the numbers of the classes are not 0, 1, 2, ..., each once", url=url, hint="give every class a number"
        )
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        raise UsageError("this JSON is not a list of names", url=url, hint=_FILE_HINT)
    return tuple(found)
