"""The head of a data set, ``dataset.json``, without its table; and the heads of the versions before it.

A data set that grows keeps its old versions readable, each by a head and a table of its own. Growing only appends: the
shards of an old version are the first ones of every newer version, under the same names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self, TypeVar

from shardstream.errors import DataError, FormatError, NotFoundError, UsageError
from shardstream.shards.layout import check_version

T = TypeVar("T")

MANIFEST_NAME = "dataset.json"
OLD_MANIFEST_NAME = re.compile(r"dataset-v[1-9][0-9]*\.json")
TABLE_NAME = re.compile(r"shards-[0-9a-f]{16}\.table")


def parse_head(head: memoryview, read: Callable[[dict[str, Any]], T], *, url: str) -> T:
    """What ``read`` makes of the JSON object in the bytes of ``dataset.json``.

    Raises:
        VersionError: A newer version of shardstream wrote it.
        FormatError: It is damaged; whatever ``read`` raises over it, too.
    """
    place = f"{url}/{MANIFEST_NAME}"
    try:
        parsed = json.loads(str(head, "utf-8"))
        if not isinstance(parsed, dict) or parsed.get("format") != "shardstream":
            raise FormatError(
                "this is no manifest of shardstream", url=place, hint="pass the folder of a packed data set"
            )
        check_version(parsed["format_version"], url=place)
        # No writer takes what is no JSON or no UTF-8 (NaN, half of a surrogate pair), nor could any verb print it.
        json.dumps(parsed, ensure_ascii=False, allow_nan=False).encode()
        return read(parsed)
    except DataError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FormatError(
            f"the manifest is malformed: {error!r}", url=place, hint="restore it from its source"
        ) from error


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
        if any(type(number) is not int or number < 0 for number in found[:3]) or type(found.fingerprint) is not str:
            raise TypeError(f"no version: {entry!r}")
        if not TABLE_NAME.fullmatch(found.table):
            raise ValueError(f"no table is called {found.table!r}")
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


def no_data_set(url: str, error: NotFoundError) -> NotFoundError:
    """The error for a place without ``dataset.json``; what the store says of it stays, where that says more."""
    if "bucket" in error.what or "container" in error.what:
        return error
    hint = "make one with `shardstream pack`; a run that was cut short has none"
    return NotFoundError("there is no data set here", url=url, hint=hint)
