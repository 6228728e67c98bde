"""What is read by its own package: Zarr, Lance and ArrayRecord, parts of it side by side, each in order."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import xxhash

from shardstream.errors import FormatError, SourceError, UnsupportedError
from shardstream.faults import fault_kind
from shardstream.formats.packages.columns import values_of
from shardstream.formats.packages.known import (
    PACKAGES,
    RECORDS,
    PackageFormat,
    is_record_file,
    named_whole,
    names_records,
    package_of,
)
from shardstream.formats.scans.names import accompanies
from shardstream.formats.scans.rows import image_type, numbered_keys, told_count
from shardstream.formats.sources.containers import named_files
from shardstream.formats.sources.foreign_items import ForeignPart, chosen_fields
from shardstream.names.strays import find_stray
from shardstream.pack.sources.base import Item, Reject, SourcePart, StreamSource
from shardstream.pack.sources.declared import parse_type
from shardstream.pack.sources.keys import check_mode
from shardstream.pack.sources.lists.columns import Wanted
from shardstream.shards.field_names import usable_field
from shardstream.shards.fields import FieldType
from shardstream.storage import Location
from shardstream.storage.base.address import absolute
from shardstream.text import valid_unicode

_SHOWN = 3


@dataclass(frozen=True, slots=True)
class PackagePart(SourcePart):
    """Some samples of a data set that a package reads, in order.

    Attributes:
        format: Which package.
        path: The file or folder.
        name: What keys begin with.
        begin: Number of the first sample.
        request: What the package is asked.
        names: Fields by the name of their column there.
    """

    format: str
    path: str
    name: str
    begin: int
    request: Mapping[str, Any]
    names: Mapping[str, str]

    def __iter__(self) -> Iterator[Item | Reject]:
        number = self.begin
        try:
            for rows, columns in PACKAGES[self.format].program.ask(self.request, self.path):
                fields = {self.names[name]: values_of(column) for name, column in columns.items()}
                for row, key in enumerate(numbered_keys(self.name, number, rows)):
                    values = {name: found[row] for name, found in fields.items() if found[row] is not None}
                    yield Item(number + row + 1, valid_unicode(self.path), key, values)
                number += rows
        except FormatError as error:
            what = f"it cannot be read from here on: {error.what}; {told_count(None)}"
            yield Reject(number + 1, valid_unicode(self.path), what, None, fault_kind(error))


class PackageSource(StreamSource):
    """A folder or files that a package reads.

    Args:
        url: What they are called together, for messages.
        format: Which package.
        paths: The folder, or the files.
        wanted: What the user says of keys, fields and classes.

    Raises:
        FormatError: The package does not read them.
        MissingExtraError: It is not installed.
        UsageError, FieldError: What the user says does not go with them.
    """

    def __init__(self, url: str, format: PackageFormat, paths: Sequence[str], wanted: Wanted) -> None:
        check_mode(wanted.key, f"{format.title} has no columns of keys")
        self.url, self.key = url, wanted.key
        streams: list[SourcePart] = []
        types: dict[str, FieldType] = {}
        fields: dict[str, None] = {}
        # What is called like a type may be a column, which only the data tell.
        choosing = any(rule.declared is None for rule in wanted.fields)
        wishes = {one for rule in wanted.fields for one in (rule.column, rule.name)} if choosing else set()
        hasher = xxhash.xxh3_128(f"{format.name} {[(one.name, one.text) for one in wanted.fields]}".encode())
        for path in paths:
            hasher.update(_weighed(path))
            request = {"do": "describe", "path": path, "size": os.path.getsize(path)}
            request |= {"fields": None, "chosen": bool(wishes)}
            (told,) = format.program.ask(request, path, lambda name: usable_field(name) in wishes)
            names = _names(told, path)
            types |= {names[column]: parse_type(kind) for column, kind in told["fields"] if kind}
            fields |= dict.fromkeys(names.values())
            start = named_whole(os.path.basename(path.rstrip("/")))
            for part in told["parts"]:
                asked = request | {"do": "read", "part": part, "fields": [*names]}
                streams.append(PackagePart(format.name, path, start, part[0], asked, names))
        chosen, declared = chosen_fields(wanted.fields, {name: types.get(name) for name in fields}, url, wanted.key)
        if chosen:
            plain = [(one.name, one.columns[0]) for one in chosen if one.type is None]
            types = {name: types[column] for name, column in plain if column in types}
        self.types, self.declared = types, declared
        if chosen or wanted.classes is not None:
            streams = [ForeignPart(one, chosen, wanted.classes, url=url) for one in streams]
        self.streams = streams
        self._fingerprint = hasher.hexdigest()

    @property
    def fingerprint(self) -> str:
        return self._fingerprint


def _names(told: Mapping[str, Any], path: str) -> dict[str, str]:
    """Fields by the names of their columns. Records that begin as images are called like these."""
    if "starts" in told:
        kinds = {image_type(start) for start in told["starts"]}
        return {"record": (kinds.pop() if len(kinds) == 1 else None) or "bin"}
    names = {column: usable_field(column) for column, _ in told["fields"]}
    taken: dict[str, str] = {}
    for column, name in names.items():
        other = taken.setdefault(name, column)
        if other != column:
            raise UnsupportedError(
                f"{other!r} and {column!r} become the field {name!r} both", url=path, hint="rename one of them"
            )
    return names


def _weighed(path: str) -> bytes:
    """Names and sizes of all files of a path, which tell whether it is the same again."""
    if os.path.isfile(path):
        return f"{os.path.basename(path)} {os.path.getsize(path)}\n".encode(errors="surrogateescape")
    hasher = xxhash.xxh3_128()
    for folder, folders, files in os.walk(path):
        folders.sort()
        for name in sorted(files):
            place = os.path.join(folder, name)
            hasher.update(os.fsencode(f"{os.path.relpath(place, path)} {os.lstat(place).st_size}\n"))
    return hasher.digest()


def open_package(text: str, wanted: Wanted, name: str | None, at: Callable[[str], Location]) -> PackageSource | None:
    """The source at a path or URL that a package reads; ``None`` where it is none.

    Args:
        text: What the user wrote.
        wanted: What the user says of keys, fields and classes.
        name: The format that the user named, if any.
        at: Gives the place of a path or URL.

    Raises:
        SourceError: It is not there, or not on this machine.
        FormatError, MissingExtraError, UsageError, FieldError: As of `PackageSource`.
    """
    if name is not None and name not in PACKAGES:
        return None
    folder = text.rstrip("/")
    if not names_records(folder) and not os.path.isdir(text):
        if "://" in text and (name is not None or folder.endswith((".zarr", ".lance"))):
            raise _remote(text)
        if name is None:
            return None
    if os.path.isdir(text):
        found = package_of(_few_names(text))
        format = PACKAGES[name] if name is not None else found
        if format is None:
            _refuse_several(text)
            return None
        if not format.files:
            return PackageSource(absolute(text), format, [absolute(text)], wanted)
        return PackageSource(absolute(text), format, _record_files(text), wanted)
    root, names = named_files(text, at)
    if not root.local:
        raise _remote(text)
    format = PACKAGES[name] if name is not None else RECORDS
    return PackageSource(text, format, [os.path.join(root.url, one) for one in names], wanted)


def _refuse_several(folder: str) -> None:
    """Refuse a folder of data sets of Zarr or Lance; SourceError."""
    found = sorted(name for name in os.listdir(folder) if name.endswith((".zarr", ".lance")))
    if found:
        shown = ", ".join(found[:_SHOWN]) + (", ..." if len(found) > _SHOWN else "")
        raise SourceError(f"each of these is a data set: {shown}", url=folder, hint="pack one of them")


def _remote(text: str) -> SourceError:
    return SourceError(
        "it is read by a package of its own, from a local disk only", url=text, hint="copy it here first"
    )


def _few_names(folder: str) -> list[str]:
    """Names by which a folder is told: its own, and those of the versions of Lance."""
    names = os.listdir(folder)
    if "_versions" in names and os.path.isdir(os.path.join(folder, "_versions")):
        names += [f"_versions/{name}" for name in os.listdir(os.path.join(folder, "_versions"))]
    return names


def _record_files(folder: str) -> list[str]:
    """The files of ArrayRecord in a folder, in order; all others only accompany them."""
    names = sorted(name for name in os.listdir(folder) if find_stray(name) is None)
    others = [name for name in names if not is_record_file(name) and not accompanies(name)]
    if others:
        raise SourceError(
            f"other files lie beside those of ArrayRecord: {others[0]!r}",
            url=folder,
            hint="name the files: *.array_record",
        )
    return [os.path.join(folder, name) for name in names if is_record_file(name)]
