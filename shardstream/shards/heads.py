"""The head of a data set, ``dataset.json``, without its table; and the heads of the versions before it.

A head holds a checksum of itself, so that nothing in it changes unnoticed: class names and ``meta`` least of all, in
which no byte of a shard has a part.

A data set that grows keeps its old versions readable, each by a head and a table of its own. Growing only appends: the
shards of an old version are the first ones of every newer version, under the same names.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self, TypeVar

import xxhash

from shardstream.errors import ChecksumError, DataError, FormatError, NotFoundError, UsageError, did_you_mean
from shardstream.shards.layout import check_version

T = TypeVar("T")

MANIFEST_NAME = "dataset.json"
OLD_MANIFEST_NAME = re.compile(r"dataset-v[1-9][0-9]*\.json")
TABLE_NAME = re.compile(r"shards-[0-9a-f]{16}\.table")
FINGERPRINT = re.compile(r"[0-9a-f]{32}")
_CHECKSUM = "checksum"
_SHOWN = 4
_NO_DATA_SET = "there is no data set here"
_NO_PLACE = f"{_NO_DATA_SET}: no such file or folder"
_NO_FORMAT = "no format is recognised here"


def parse_head(
    head: memoryview,
    read: Callable[[dict[str, Any]], T],
    *,
    url: str,
    name: str = MANIFEST_NAME,
    compare: bool = True,
    format: str = "shardstream",
) -> T:
    """What ``read`` makes of the JSON object in the bytes of ``dataset.json``.

    Args:
        head: The bytes.
        read: Gets the object.
        url: Where the data set lies.
        name: Of the head: that of an old version is another file.
        compare: Compare its checksum, if it has one.
        format: What it says that it is.

    Raises:
        VersionError: A newer version of shardstream wrote it.
        ChecksumError: It is not what was written.
        FormatError: It is damaged; whatever ``read`` raises over it, too.
    """
    place = f"{url}/{name}"
    try:
        found = json.loads(str(head, "utf-8"))
        if not isinstance(found, dict) or found.get("format") != format:
            raise FormatError("not a manifest of shardstream", url=place, hint="pass the folder of a packed data set")
        check_version(found["format_version"], url=place)
        # No writer takes what is not JSON or not UTF-8 (NaN, half of a surrogate pair), nor could any verb print it.
        json.dumps(found, ensure_ascii=False, allow_nan=False).encode()
        if compare and _CHECKSUM in found and found[_CHECKSUM] != _checksum(found):
            raise ChecksumError(
                f"{name} differs from what was written",
                url=place,
                hint="restore it from its source; if you have edited class names or meta by hand, run "
                f"`shardstream verify --reseal {url}`",
            )
        return read(found)
    except DataError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FormatError(
            f"the manifest is malformed: {error!r}", url=place, hint="restore it from its source"
        ) from error


def seal(head: Mapping[str, Any]) -> bytes:
    """The bytes of a head, with the checksum of what is in it.

    Raises:
        TypeError, ValueError, RecursionError: It is not JSON.
    """
    body = {name: value for name, value in head.items() if name != _CHECKSUM}
    as_read = json.loads(json.dumps(body, allow_nan=False))  # such as text for a number that is the key of an entry
    sealed = body | {_CHECKSUM: _checksum(as_read)}
    return json.dumps(sealed, indent=2, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def resealed(head: memoryview, *, url: str, name: str = MANIFEST_NAME) -> bytes | None:
    """The same head with the checksum of what is in it now; ``None`` if it has that already.

    Raises:
        VersionError, FormatError: It is none, see `parse_head`.
    """

    def anew(found: dict[str, Any]) -> bytes | None:
        return None if found.get(_CHECKSUM) == _checksum(found) else seal(found)

    return parse_head(head, anew, url=url, name=name, compare=False)


def _checksum(head: Mapping[str, Any]) -> str:
    """Of all entries but itself, as canonical JSON: the form that the fingerprint is made of, too."""
    body = {name: value for name, value in head.items() if name != _CHECKSUM}
    return xxhash.xxh3_128_hexdigest(json.dumps(body, sort_keys=True, allow_nan=False).encode())


class OldVersion(NamedTuple):
    """What the manifest of a data set says of a version that it had before.

    Attributes:
        version: Its number.
        samples: Samples it has.
        shards: Shards it has: the first ones of the data set.
        table: Object name of its table.
        fingerprint: Identity of what it stores.
    """

    version: int
    samples: int
    shards: int
    table: str
    fingerprint: str

    @property
    def head(self) -> str:
        """Object name of what was ``dataset.json`` then."""
        return f"dataset-v{self.version}.json"

    @classmethod
    def parse(cls, entry: Any) -> Self:
        """The version in an entry of ``history``; ValueError, TypeError or KeyError where it is none."""
        found = cls(**{name: entry[name] for name in cls._fields})
        if any(type(number) is not int or number < 0 for number in found[:3]):
            raise TypeError(f"not a version: {entry!r}")
        if not TABLE_NAME.fullmatch(found.table):  # files are called after both of these
            raise ValueError(f"no table is called {found.table!r}")
        if not FINGERPRINT.fullmatch(found.fingerprint):
            raise ValueError(f"not a fingerprint: {found.fingerprint!r}")
        return found


def parse_history(head: Mapping[str, Any]) -> tuple[OldVersion, ...]:
    """The versions that a head says are still readable, oldest first; ValueError, TypeError or KeyError: none."""
    found = tuple(OldVersion.parse(entry) for entry in head.get("history", ()))
    numbers = [one.version for one in found]
    if numbers != sorted(set(numbers)) or (numbers and not 1 <= numbers[0] <= numbers[-1] < head["version"]):
        raise ValueError(f"versions {numbers} before version {head['version']}")
    return found


def old_version(head: memoryview, version: int | None, *, url: str) -> OldVersion | None:
    """Of the data set that ``head`` (a ``dataset.json``) describes, this version; ``None`` if that is the newest.

    Raises:
        UsageError: There is no such version; names those there are.
        FormatError: The head is damaged.
    """
    if version is None:
        return None
    newest, history = parse_head(head, lambda found: (found["version"], parse_history(found)), url=url)
    old = next((one for one in history if one.version == version), None)
    if old is None and version != newest:
        there = [*(one.version for one in history), newest]
        hint = f"leave version out, or take {'one of ' if history else ''}{_listed(there)}"
        raise UsageError(f"there is no version {version!r} of this data set", url=url, hint=hint)
    return old


def _listed(numbers: Sequence[int]) -> str:
    """Numbers of versions, for messages."""
    return str(numbers[0]) if len(numbers) == 1 else f"{', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"


def no_data_set(url: str, error: NotFoundError, *, notes: Sequence[str] = ()) -> NotFoundError:
    """The error for a place without ``dataset.json``; what the store says of it stays, where that says more.

    Args:
        url: The place.
        error: What the store says.
        notes: Sentences for the hint, such as on what was left out.
    """
    if "bucket" in error.what or "container" in error.what:
        return error
    folder = url.removesuffix(f"/{MANIFEST_NAME}")
    if "://" not in folder and not os.path.lexists(folder):
        above, _, name = os.path.abspath(folder).rpartition("/")
        beside = os.listdir(above) if os.path.isdir(above) else []
        return NotFoundError(
            _NO_PLACE,
            url=url,
            hint=f"{did_you_mean(name, beside)}look at the path, or make one there with `shardstream pack`",
        )
    return NotFoundError(_NO_DATA_SET, url=url, hint=". ".join((_what_is_there(folder), *notes)))


def _what_is_there(folder: str) -> str:
    """What lies in place of a data set, and what to do about it."""
    if "://" in folder or not os.path.isdir(folder):
        return "make one with `shardstream pack`; a run that was cut short has none"
    names = sorted(os.listdir(folder))
    if not names:
        return "the folder is empty: give another one, or make a data set there with `shardstream pack`"
    if ".pack" in names:  # receipts of finished shards
        return "a run of `shardstream pack` was cut short there: the same command again goes on with it"
    inside = [name for name in names if os.path.exists(os.path.join(folder, name, MANIFEST_NAME))]
    if inside:
        return f"a data set is in a folder of it: {', '.join(inside[:_SHOWN])}; give the path of that"
    shown = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else "")
    return f"the folder holds {shown}, of no format that is known (docs/foreign.md); `shardstream pack` makes data sets"


def is_no_data_set(error: NotFoundError) -> bool:
    """Whether it is an error of `no_data_set` or `no_format`: the place is there, and can be asked."""
    return error.what in (_NO_PLACE, _NO_DATA_SET, _NO_FORMAT)


def no_format(url: str, *, ours: str | None = None) -> NotFoundError:
    """The error for files that no format takes for its own; ``ours``: the data set of ours that they lie in."""
    hint = "docs/foreign.md lists the formats that are known; reading=SourceOptions(format=...) names one"
    if ours is not None:
        hint = f"they lie in a data set of shardstream: give that, {ours}"
    return NotFoundError(_NO_FORMAT, url=url, hint=hint)
