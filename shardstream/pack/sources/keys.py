"""Keys of samples from paths, line numbers and columns."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from shardstream.errors import UsageError
from shardstream.pack.sources.lists.records import Broken
from shardstream.pack.sources.paths import join, without_scheme
from shardstream.shards.index import check_key
from shardstream.text import valid_unicode

MODES = ("path", "stem", "line", "auto")


def check_mode(key: str, what: str, *, hint: str = "use 'path', 'auto', 'stem' or 'line'") -> None:
    """Refuse a ``key`` that would be a column of a source that has none; UsageError.

    Args:
        key: The argument of `pack`.
        what: Why it cannot be: ``"a folder has no columns"``.
        hint: What to do.
    """
    if key not in MODES:
        raise UsageError(f"key={key!r}: {what}", hint=hint)


def key_of_name(mode: str, name: str, line: int) -> str:
    """The key of a sample that has a name without an extension; its number counts from 1."""
    if mode == "line":
        return f"{line:010d}"
    return name.rpartition("/")[2] if mode == "stem" else name


@dataclass(frozen=True, slots=True)
class KeyRule:
    """How a sample gets its key. Names that are not UTF-8 are escaped as `valid_unicode` does; dots stay.

    Attributes:
        mode: ``"path"`` (relative to ``common``, without extension), ``"stem"`` (file name without extension),
            ``"line"`` (line number, ten digits) or ``"column"``.
        base: Folder or URL that relative paths are taken from; empty if all paths of the list are relative, or none.
        common: The part that all paths have in common, with its last ``/``.
        number: Whether equal keys are numbered, not refused.
    """

    mode: str
    base: str = ""
    common: str = ""
    number: bool = field(default=False, repr=False)  # no part of what a key is before

    def key(self, line: int, path: str, column: str | None = None) -> str:
        """The key of a sample; ``column`` is the text of the column that was chosen.

        Raises:
            Broken: The text cannot be a key.
        """
        if self.mode == "line":
            return f"{line:010d}"
        if self.mode == "column":
            return _checked(valid_unicode(column or ""))
        name = self.normal(path)
        name = os.path.basename(name) if self.mode == "stem" else name[len(self.common) :].lstrip("/")
        stem = os.path.splitext(name)[0]
        return stem if stem.isascii() else _checked(valid_unicode(stem))

    def normal(self, path: str) -> str:
        """The path without ``.``, double slashes and the like; of URLs host (or bucket) and path."""
        path = join(self.base, path) if self.base else path
        return os.path.normpath(without_scheme(path) if "://" in path else path)


def _checked(key: str) -> str:
    try:
        return check_key(key)
    except UsageError as error:
        raise Broken(f"no key: {error.what}") from None
