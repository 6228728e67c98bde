"""``PackageFormat``: formats of other libraries that are packed, and not streamed; how they are told."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from shardstream.errors import UnsupportedError
from shardstream.formats.isolated.host import Program

_PATIENCE_S = 900.0  # a part may lie on a slow disk
_ZARR = frozenset(("zarr.json", ".zarray", ".zgroup", ".zmetadata"))
_LANCE = re.compile(r"(.*/)?_versions/[0-9]+\.manifest")
_MARKS = (*_ZARR, ".manifest")
_RECORDS = re.compile(r"\.array_?record(-[0-9]+-of-[0-9]+)?$", re.IGNORECASE)
_RECORDS_NAMED = re.compile(r"\.array_?record(-[^/]*|[*}])*$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class PackageFormat:
    """A format that is read by its own package.

    Attributes:
        name: What users call it: ``--source-format NAME``.
        title: What messages call it.
        program: Reads it.
        files: Whether each of several files is read for itself, not a folder as a whole.
    """

    name: str
    title: str
    program: Program
    files: bool = False


def _program(module: str, title: str, extra: str) -> Program:
    return Program(f"{__package__}.{module}", title, extra, patience=_PATIENCE_S)


ZARR = PackageFormat("zarr", "Zarr", _program("zarr", "zarr", "zarr"))
LANCE = PackageFormat("lance", "Lance", _program("lance", "lance", "lance"))
RECORDS = PackageFormat("array-record", "ArrayRecord", _program("records", "array_record", "array-record"), files=True)
PACKAGES = {one.name: one for one in (ZARR, LANCE, RECORDS)}


def is_record_file(name: str) -> bool:
    """Whether a file is called like one of ArrayRecord.

    >>> is_record_file("a.array_record"), is_record_file("a.arrayrecord-00000-of-00004"), is_record_file("a.rec")
    (True, True, False)
    """
    return _RECORDS.search(name) is not None


def names_records(text: str) -> bool:
    """Whether a path, a list in braces or a glob is called like such files."""
    return _RECORDS_NAMED.search(text) is not None


def named_whole(name: str) -> str:
    """The name of a file with all of its extension at the end, so that keys tell files of one set apart.

    >>> named_whole("a.array_record-00001-of-00004")
    'a-00001-of-00004.array_record'
    """
    found = _RECORDS.search(name)
    return f"{name[: found.start()]}{found[1] or ''}.array_record" if found else name


def package_of(names: Iterable[str]) -> PackageFormat | None:
    """The format of a folder with files of these names, as paths in it; ``None`` if none of these."""
    for name in names:  # perhaps millions: most are dismissed at once
        if name.endswith(_MARKS):
            if name.rpartition("/")[2] in _ZARR:
                return ZARR
            if _LANCE.fullmatch(name):
                return LANCE
        elif "rec" in name.lower() and is_record_file(name):
            return RECORDS
    return None


def refuse_to_stream(url: str, names: Iterable[str], source: str | None) -> None:
    """Say of what is packed only that it is.

    Args:
        url: Where it lies.
        names: Of its objects.
        source: The format that the user named, if any.

    Raises:
        UnsupportedError: It is of such a format.
    """
    found = PACKAGES.get(source or "") if source else package_of(names)
    if found is not None:
        raise UnsupportedError(
            f"{found.title} is packed, and not streamed where it lies",
            url=url,
            hint=f"make shards of it: shardstream pack '{url}' DEST",
        )
