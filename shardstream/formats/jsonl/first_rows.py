"""The first rows of an object, by which it is told whether it holds samples, or names files that do."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from shardstream.formats.blocks.compressed import plain_start
from shardstream.formats.contract import ObjectListing
from shardstream.pack.sources.lists.columns import FILE_NAMES
from shardstream.pack.sources.lists.json_rows import Row, rows_of
from shardstream.pack.sources.media import is_media, is_picture, suffix_of
from shardstream.shards.fields import type_of_extension
from shardstream.storage.base.store import ObjectMeta

_NAMED = re.compile(r"\.(jsonl|ndjson|json)(\.(gz|zst|zstd|bz2|xz))?$", re.IGNORECASE)
_SURELY = re.compile(r"\.(jsonl|ndjson)(\.\w+)?$", re.IGNORECASE)
_BESIDE = (".md", ".txt", ".yaml", ".yml", ".py", ".sha256", ".md5")  # what describes rows
# What others call their descriptions; `index.json` is that of a whole data set.
_DESCRIPTIONS = frozenset(("dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json", "info.json"))
_INDEX = "index.json"
_START = 1 << 20  # bytes that are looked at
_LONGEST_NAME = 1024  # letters of what may name a file
_URL_NAMES = frozenset(("url", "image_url"))  # which mostly tell where text comes from


def is_rows_name(name: str) -> bool:
    """Whether a file is called as one of rows.

    >>> is_rows_name("c4-train.00000-of-01024.json.gz"), is_rows_name("a.json.txt")
    (True, False)
    """
    return _NAMED.search(name) is not None


def rows_names(names: Iterable[str], *, named: bool, sure: bool = False) -> list[str]:
    """Those of some files that are called as ones of rows; none where there are others that may be the data.

    Args:
        names: Of all files of a place, or of those that a user named.
        named: Whether a user did.
        sure: Whether a user named the format, so that there may be any others.
    """
    found = []
    for name in names:
        base = name.lower().rpartition("/")[2]
        if base == _INDEX and not named:
            return []
        if base.endswith(_BESIDE) or (base in _DESCRIPTIONS and not named) or "." not in base:
            continue
        if not is_rows_name(base):
            if sure:
                continue
            return []
        found.append(name)
    return found


def first_rows(listing: ObjectListing, one: ObjectMeta) -> list[Row]:
    """The first rows of an object, as far as they are whole; none where it does not hold rows.

    One empty row stands for those of a ``.jsonl`` file that cannot be read: the scan says what is wrong with it.

    Raises:
        MissingExtraError: A package is not installed that it takes.
        StorageError: It cannot be read.
    """
    start = listing.start(one.path, _START)
    found = rows_of(plain_start(start, _START), whole=len(start) == one.size)
    if _SURELY.search(one.path):
        return found.rows or [{}]
    return found.rows if found.listed or len(found.rows) > 1 else []  # an object alone describes something


def names_files(rows: Sequence[Row]) -> bool:
    """Whether a column of these rows names files that are the samples, in half of them or more."""
    counts = Counter(name for row in rows for name, value in row.items() if _may_name_file(name, value))
    return any(2 * count >= len(rows) for count in counts.values())


def _may_name_file(column: str, value: object) -> bool:
    if not isinstance(value, str) or len(value) > _LONGEST_NAME or "\n" in value:
        return False
    suffix = suffix_of(value.partition("?")[0])
    if column.lower() in FILE_NAMES:
        return is_media(suffix) or (bool(suffix) and str(type_of_extension(suffix)) != "bytes")
    return is_picture(suffix) and (column.lower() in _URL_NAMES or not ("://" in value or " " in value))
