"""Globs: patterns of paths as shells write them. Their wildcards leave out what is not data."""

from __future__ import annotations

import fnmatch
import glob
import re

from shardstream.names.strays import STRAY, STRAY_IN_TABLES, Strays

WILDCARDS = frozenset("*?[")
_MAGIC = re.compile(r"[*?[]")
_TABLES = re.compile(r"\.(parquet|pq|parq|jsonl|ndjson)(\.\w+)?$", re.IGNORECASE)


def split_glob(text: str) -> tuple[str, str] | None:
    """The folder before the first component of a path or URL that is a pattern, and the pattern; else ``None``.

    >>> split_glob("s3://bucket/data/*/a*.jpg")
    ('s3://bucket/data', '*/a*.jpg')
    """
    start = text.find("://") + 3 if "://" in text else 0
    found = _MAGIC.search(text, start)
    if found is None:
        return None
    cut = text.rfind("/", start, found.start()) + 1
    return (text[: max(cut - 1, 1)] if cut else "."), text[cut:]


def glob_pattern(pattern: str, *, strays: bool = False) -> re.Pattern[str]:
    """A shell's pattern: ``*`` and ``?`` stay inside of a folder, ``**`` goes through any number of them.

    Args:
        pattern: Of a path with ``/``.
        strays: Whether a part that begins with a wildcard matches names that are not data, too; see `find_stray`. A
            part that begins with what the name begins with spells it out, and always does.

    >>> bool(glob_pattern("**/*.jpg").fullmatch("a/b/1.jpg")), bool(glob_pattern("*.jpg").fullmatch("a/1.jpg"))
    (True, False)
    >>> bool(glob_pattern("*/*.jpg").fullmatch(".a/1.jpg")), bool(glob_pattern(".*/*.jpg").fullmatch(".a/1.jpg"))
    (False, True)
    """
    data = "" if strays else f"(?!{STRAY_IN_TABLES if _TABLES.search(pattern) else STRAY})"
    found, at = "", 0
    while at < len(pattern):
        rest = pattern[at:]
        one = re.match(r"\*\*/|\*\*$|\*|\?|\[!?\]?[^]/]*\]", rest)
        text = one[0] if one else rest[0]
        if one and (not at or pattern[at - 1] == "/") and text != "**/":
            found += data
        if text == "**/":
            found += rf"(?:{data}[^/]+/)*"
        elif text == "**":
            found += rf"[^/]*(?:/{data}[^/]*)*"
        elif text.startswith("["):
            found += f"(?!/){fnmatch.translate(text)[4:-3]}"
        else:
            found += {"*": "[^/]*", "?": "[^/]"}.get(text) or re.escape(text)
        at += len(text)
    return re.compile(found, re.DOTALL)


class Glob:
    """A pattern, and what it leaves out.

    Args:
        pattern: See `glob_pattern`.
        left_out: Counts names that a wildcard would match, were they data.
    """

    def __init__(self, pattern: str, left_out: Strays) -> None:
        self._data, self._all = glob_pattern(pattern), glob_pattern(pattern, strays=True)
        self._left_out = left_out

    def matches(self, path: str) -> bool:
        """Whether the pattern names this path."""
        if self._data.fullmatch(path):
            return True
        if self._all.fullmatch(path):
            self._left_out.add(path)
        return False


def local_matches(pattern: str) -> list[str]:
    """The files and folders of this machine that a pattern matches, in order of their names."""
    strays = Strays()
    data, everything = glob_pattern(pattern), glob_pattern(pattern, strays=True)
    found = []
    for path in sorted(glob.glob(pattern)):
        # Python may write a path in another way than the pattern, as with `//`: such a path is kept.
        if data.fullmatch(path) or not everything.fullmatch(path):
            found.append(path)
        else:
            strays.add(path)
    strays.log(pattern)
    return found
