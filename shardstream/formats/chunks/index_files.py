"""``index.json`` of other libraries: read strictly, with the names and numbers in it checked."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any, NoReturn

from shardstream.errors import FormatError, UnsupportedError, UsageError
from shardstream.formats.contract import ObjectListing, SourceObject

INDEX = "index.json"
_LARGEST = 1 << 53  # of numbers in JSON that every program reads alike


def json_object(text: bytes | str) -> dict[str, Any] | None:
    """The object in a JSON text; ``None`` where it is anything else, or nested too deep."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def shown(value: Any) -> str:
    """A value of a JSON file for a message: short, and whatever it is."""
    return f"{value!r:.200}" if value is None or isinstance(value, str | int | float) else f"a {type(value).__name__}"


def sized_object(
    listing: ObjectListing, path: str, size: int | None, about: Mapping[str, Any], *, what: str
) -> SourceObject:
    """An object that an ``index.json`` lists, of ``size`` bytes where it says that.

    Raises:
        FormatError: It is not here, or of another size.
    """
    url = listing.store.locate(path)
    if path not in listing:
        hint = "fetch the whole data set, or give the folder that its names start from"
        raise FormatError(f"{INDEX} lists a {what} that is not here", url=url, hint=hint)
    found = listing.size(path)
    if size not in (None, found):
        said = f"it has {found} bytes, and {INDEX} says {size}"
        raise FormatError(said, url=url, hint=f"fetch or write the {what} again")
    return SourceObject(path, found, about)


def folders_with_index(listing: ObjectListing, container: re.Pattern[str], known: Set[str] = frozenset()) -> list[str]:
    """Folders below the root that are data sets by themselves: with an ``index.json``, and containers in or below.

    Args:
        listing: What there is.
        container: What names of containers, without their folder, look like.
        known: Containers that belong to the data set at the root.

    Returns:
        The topmost ones, in order of path.
    """
    indexed = {one.path.rpartition("/")[0] for one in listing.objects if one.path.endswith(f"/{INDEX}")}
    found = set()
    for one in listing.objects:
        folder, _, base = one.path.rpartition("/")
        if indexed and one.path not in known and container.fullmatch(base):
            found.update([one for one in _prefixes(folder) if one in indexed][:1])
    return sorted(found)


def _prefixes(folder: str) -> Iterator[str]:
    parts = folder.split("/")
    for count in range(1, len(parts) + 1):
        yield "/".join(parts[:count])


def without_index(listing: ObjectListing, container: re.Pattern[str], title: str) -> None:
    """Refuse containers that no ``index.json`` at the root describes.

    Raises:
        UsageError: Folders of the root are data sets by themselves, such as splits; lists their URLs.
        FormatError: There is no index.json at all.
    """
    folders = folders_with_index(listing, container)
    if folders:
        urls = ", ".join(listing.store.locate(folder) for folder in folders[:20])
        more = f" and {len(folders) - 20} more" if len(folders) > 20 else ""
        raise UsageError(
            f"there is no {title} data set here, but in folders: {len(folders)}",
            url=listing.url,
            hint=f"give the URL of one: {urls}{more}",
        )
    lone = next((one.path for one in listing.objects if container.fullmatch(one.path.rpartition("/")[2])), None)
    if lone is not None:
        raise FormatError(
            f"{title} data without their {INDEX}",
            url=listing.store.locate(lone),
            hint=f"give the folder that has {INDEX}, and let the library finish writing it",
        )


def notes_on_others(listing: ObjectListing, container: re.Pattern[str], known: Set[str]) -> tuple[str, ...]:
    """A sentence for each data set in a folder of its own, which is not part of the one at the root."""
    folders = folders_with_index(listing, container, known)
    return tuple(f"{listing.store.locate(one)} is another data set, which is left out" for one in folders)


class IndexEntry:
    """An object of an ``index.json``: its values, checked.

    Args:
        found: The object.
        what: What it is, for messages: ``"shard 3"``.
        url: Of the index.json.

    Attributes:
        url: Of the index.json.
    """

    def __init__(self, found: object, what: str, url: str) -> None:
        self._what = what
        self.url = url
        if not isinstance(found, dict):
            self.refuse(f"{what} is not a JSON object")
        self._found: Mapping[str, Any] = found

    def get(self, key: str) -> Any:
        """The value of a key; ``None`` if there is none."""
        return self._found.get(key)

    def entry(self, key: str) -> IndexEntry:
        """The object of a key."""
        return IndexEntry(self.get(key), f"{key} of {self._what}", self.url)

    def count(self, key: str) -> int:
        """A number from 0 on."""
        value = self.get(key)
        if type(value) is not int or not 0 <= value < _LARGEST:
            self.refuse(f"{key} of {self._what} is {shown(value)}, not a number from 0 on")
        return value

    def texts(self, key: str) -> list[str]:
        """A list of texts."""
        value = self.get(key)
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            self.refuse(f"{key} of {self._what} is not a list of texts")
        return value

    def path(self, key: str) -> str:
        """The name of an object below the root: no absolute ones, none with ``..`` or backslashes."""
        value = self.get(key)
        if not isinstance(value, str) or not is_below(value):
            self.refuse(
                f"{key} of {self._what} is {shown(value)}, which is not a path below the folder of {INDEX}",
                hint="paths are relative, with '/', without '..'; correct the file if you trust it",
            )
        return value

    def refuse(self, what: str, *, hint: str = "write the data set again, or correct the file") -> NoReturn:
        """Raise the error for what is wrong with this index.json."""
        raise FormatError(what, url=self.url, hint=hint)

    def refuse_unsupported(self, what: str, *, hint: str) -> NoReturn:
        """Raise the error for what is valid, and is not read."""
        raise UnsupportedError(what, url=self.url, hint=hint)


def is_below(path: str) -> bool:
    """Whether a name found in a file joins safely below a root."""
    return not any(one in path for one in "\\\0") and all(part not in ("", ".", "..") for part in path.split("/"))


def check_names(names: Sequence[str], url: str) -> None:
    """Refuse an index that lists an object twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise FormatError(
                f"{name!r} is listed twice", url=url, hint="correct the file, or write the data set again"
            )
        seen.add(name)
