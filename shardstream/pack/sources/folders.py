"""Folders of class folders, as torchvision's ``ImageFolder`` reads them, flat folders, and files that match a pattern.

Local, or below a URL. The label is the number of the class folder in sorting order; a flat folder is a data set without
labels. Names that are not data are left out, and so are files that lie beside class folders, with a note. Where there
are images, other files are rejected: a stray text file is not a sample. A folder without any image is packed file
by file, whatever they are. With ``SourceOptions(group="stem")`` files that share the part of their name before
its first dot are one sample, as in WebDataset.

Paths lie in a temporary file; what is held is eight bytes a sample, and eight more while keys are compared.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Any, Protocol

import msgpack
import numpy as np
import xxhash

from shardstream.errors import SourceError, UsageError
from shardstream.images.formats import BY_SUFFIX, refused_suffix
from shardstream.names.splits import refuse_splits
from shardstream.names.strays import Strays
from shardstream.options import Group
from shardstream.pack.sources.base import (
    LABEL,
    FieldOfExtension,
    File,
    Item,
    LabelFile,
    Reject,
    SourceReading,
    field_of_extension,
)
from shardstream.pack.sources.duplicates import check_unique
from shardstream.pack.sources.keys import check_mode, key_of_name
from shardstream.pack.sources.listings import Entry, FileListing, grouped
from shardstream.pack.sources.lists.columns import Wanted
from shardstream.pack.sources.lists.labels import Classes, not_listed, unknown_class
from shardstream.pack.sources.lists.spool import Records, RecordSource, Spool
from shardstream.pack.sources.paths import join
from shardstream.shards.fields import FieldType
from shardstream.shards.heads import MANIFEST_NAME
from shardstream.text import valid_unicode

_CLS = f".{LABEL}"
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class FileReader:
    """How a record of a listing becomes a sample. A record holds a stem, the ends of its files, and their bytes in all.

    Attributes:
        root: The folder or URL.
        keys: ``"path"``, ``"auto"``, ``"stem"`` or ``"line"``.
        images: Whether samples without an image are rejected.
        labels: Numbers of classes by name; ``None`` without such labels. What lies in other folders is rejected.
        cls_files: Whether a sample's file ``.cls`` is its label.
    """

    root: str
    keys: str
    images: bool
    labels: Mapping[str, int] | None = None
    cls_files: bool = False

    def key(self, stem: str, number: int) -> str:
        """The key of a sample, without what would be its extension."""
        return valid_unicode(key_of_name(self.keys, stem, number))

    def key_of(self, raw: bytes, number: int) -> str | None:
        """The key of a record's sample; ``None`` if it is rejected."""
        packed, ends, _ = msgpack.unpackb(raw, use_list=False)
        stem, fields = os.fsdecode(packed), _fields_of(ends, self.images, self.cls_files)
        return None if self._reason(stem, fields) else self.key(stem, number)

    def item(self, raw: bytes, number: int, begin: int = 0) -> Item | Reject:
        """The sample of a record; its number counts from 1."""
        packed, ends, size = msgpack.unpackb(raw, use_list=False)
        stem, fields = os.fsdecode(packed), _fields_of(ends, self.images, self.cls_files)
        reason = self._reason(stem, fields)
        if reason is not None:
            return Reject(number, valid_unicode(stem + fields.at), reason)
        values: dict[str, Any] = {
            name: (LabelFile if name == LABEL else File)(join(self.root, stem + end))
            for name, end in fields.ends.items()
        }
        if self.labels is not None:
            values[LABEL] = self.labels[_folder(stem)]
        return Item(number, stem + fields.at, self.key(stem, number), values, size)

    def _reason(self, stem: str, fields: _Fields) -> str | None:
        """Why a sample cannot be packed, if it cannot."""
        if fields.reason is None and self.labels is not None and _folder(stem) not in self.labels:
            return not_listed("folder", _folder(stem))
        return fields.reason


@dataclass(frozen=True, slots=True)
class _Fields:
    """What the files of a sample become.

    Attributes:
        ends: The end of a file's path, by field.
        at: The end of the first file, or of the one that cannot be packed.
        reason: Why it cannot.
    """

    ends: Mapping[str, str]
    at: str
    reason: str | None = None


@lru_cache(maxsize=1024)
def _fields_of(packed_ends: tuple[bytes, ...], images: bool, cls_files: bool) -> _Fields:
    """The fields of a sample by the ends of its files' paths: of those there are few."""
    ends = [os.fsdecode(end) for end in packed_ends]
    if images and not any(map(_is_image, ends)):
        return _Fields({}, ends[0], _why_not(ends))
    fields: dict[str, str] = {}
    for end in ends:
        is_label = cls_files and end.lower() == _CLS
        found = FieldOfExtension(LABEL) if is_label else field_of_extension(end[1:])
        if found.field is None:
            return _Fields({}, end, found.reason)
        if found.field in fields:
            return _Fields({}, end, f"two of its files would be the field {found.field!r}")
        fields[found.field] = end
    return _Fields(fields, ends[0])


@dataclass(slots=True)
class _Found:
    """What a listing has shown so far."""

    inside: Spool = field(default_factory=Spool)
    beside: Spool = field(default_factory=Spool)
    folders: set[str] = field(default_factory=set)
    images: tuple[bool, bool] = (False, False)
    cls_files: bool = False
    examples: list[str] = field(default_factory=list)
    pictures: int = 0
    containers: int = 0
    shown: list[str] = field(default_factory=list)  # some of these


class Containers(Protocol):
    """Tells which files hold many samples each, so that they are never packed as if each were a sample."""

    def is_container(self, name: str) -> bool:
        """Whether a file is called like one."""
        ...

    def holds_containers(self, url: str, examples: Sequence[str], count: int) -> SourceError:
        """The error for a directory that has more of them than images.

        Args:
            url: The directory.
            examples: Some of their names.
            count: Their number.
        """
        ...


class FolderSource(RecordSource[FileReader]):
    """All files below a folder or URL, or those that match a pattern, in the order of their paths.

    Args:
        listing: What to list.
        containers: Tells which files hold many samples each.
        wanted: Its keys: ``"path"`` (relative to the folder), ``"stem"``, ``"line"`` (the number in sorting order, from
            1), or ``"auto"`` (as ``"path"``, equal ones numbered). Labels ``"name"`` are taken from the class folders
            also where files were chosen by a pattern, or where samples have files ``.cls``, which are the labels
            otherwise. Class folders are looked up in its classes. Default: the folders, in sorting order.
        reading: Whether samples are single files or share a stem, and whether several splits are refused.

    Raises:
        SourceError: It cannot be read, holds no file, or is a packed data set.
        SplitsError: There are several splits.
        DuplicateKeyError: Two files with one key.
        UsageError: The key is a column, or a folder is none of the classes that are given.
    """

    def __init__(
        self,
        listing: FileListing,
        containers: Containers,
        wanted: Wanted,
        reading: SourceReading,
    ) -> None:
        key, group, classes = wanted.key, reading.group, wanted.classes
        labels = wanted.labels if wanted.said else None
        check_mode(key, "a folder has no columns")
        if labels == "int":
            raise UsageError("labels='int' is for lists", hint="class folders are numbered in sorting order")
        root = listing.root.url
        self.url = listing.url
        self.root = root if listing.root.local and listing.takes(MANIFEST_NAME) else None
        flat = listing.pattern is not None and labels != "name"
        found, strays = _Found(folders=set(listing.folders())), Strays()
        listed = () if classes is None else classes.names
        try:
            if reading.split_names:
                refuse_splits(root, found.folders.difference(listed))  # before millions of files are listed
            self._list(listing.entries(strays), found, group, containers, flat=flat)
            if reading.split_names:
                refuse_splits(root, found.folders.difference(listed))
            if found.containers > found.pictures:
                raise containers.holds_containers(root, found.shown, found.containers)
            self._records, images, names = self._choose(found, flat=flat)
            cls_files = found.cls_files and labels != "name"
            self.notes = (*self.notes, *strays.notes)
        finally:
            found.inside.close()
            found.beside.close()
        if not len(self._records):
            raise SourceError(
                "there are no files" if listing.pattern is None else "no file matches the pattern",
                url=self.url,
                hint=". ".join(("pass a folder of class folders, or a list", *strays.notes)),
            )
        self._group = group
        numbers = None
        if cls_files:
            self.types = {LABEL: FieldType.parse("int64")}
        elif names is not None:
            known = Classes(tuple(sorted(names))) if classes is None else classes
            numbers, self.classes = known.numbers, known.names
            self._check_folders(names, known)
        self._reader = FileReader(root, key, images, numbers, cls_files)
        if key != "line":
            hint = "key='auto' numbers equal keys, SourceOptions(group='stem') makes files of one name one sample; or "
            hint += "remove one of them, or choose other keys: key='path', key='stem' or key='line'"
            self.numbering = check_unique(
                self._keys, len(self), named=self._path, url=self.url, hint=hint, number=key == "auto"
            )

    def _list(
        self, listed: Iterator[Entry], found: _Found, group: Group, containers: Containers, *, flat: bool
    ) -> None:
        samples = (
            grouped(listed, _stem)
            if group == "stem"
            else ((os.path.splitext(entry.path)[0], [entry]) for entry in listed)
        )
        for stem, entries in samples:
            inside = "/" in stem and not flat
            if not inside and any(entry.path == MANIFEST_NAME for entry in entries):
                raise SourceError(
                    "this folder holds a packed data set",
                    url=self.url,
                    hint="pack the files that it was made from, or use `shardstream repack` (ss.repack)",
                )
            if inside:
                found.folders.add(_folder(stem))
            elif len(found.examples) <= _SHOWN:
                found.examples += [valid_unicode(entry.path) for entry in entries]
            found.cls_files |= group == "stem" and any(entry.path[-4:].lower() == _CLS for entry in entries)
            image = any(_is_image(entry.path) for entry in entries)
            found.pictures += image
            if not image:
                self._count_containers(found, entries, containers)
            found.images = found.images[0] or (image and inside), found.images[1] or (image and not inside)
            (found.inside if inside else found.beside).add(_record(stem, entries))

    @staticmethod
    def _count_containers(found: _Found, entries: list[Entry], containers: Containers) -> None:
        for entry in entries:
            if containers.is_container(entry.path):
                found.containers += 1
                if len(found.shown) <= _SHOWN:
                    found.shown.append(valid_unicode(entry.path))

    def _choose(self, found: _Found, *, flat: bool) -> tuple[Records, bool, set[str] | None]:
        """The samples, whether there are images among them, and the names of class folders."""
        if not found.folders or flat:
            if any("/" in path for path in found.examples) and not found.cls_files:
                self.notes = ("Packed without labels; labels='name' (--labels name) takes them from the folders.",)
            return found.beside.finish(self.url), found.images[1], None
        if len(found.beside):
            shown = ", ".join(found.examples[:_SHOWN]) + (", ..." if len(found.examples) > _SHOWN else "")
            self.notes = (f"Left out, as they lie beside the class folders: {len(found.beside)} files ({shown}).",)
        return found.inside.finish(self.url), found.images[0], {valid_unicode(name) for name in found.folders}

    def _check_folders(self, names: set[str], classes: Classes) -> None:
        other = sorted(names - classes.numbers.keys())
        if other and classes.unknown == "error":
            raise unknown_class("folder", other[0], classes.names, url=self.url)

    def _keys(self) -> Iterator[str]:
        """The keys of all samples; of those that are rejected, what no other has: no path holds two slashes."""
        for first, data, starts in self._records.blocks():
            for number, (start, end) in enumerate(pairwise([*starts.tolist(), len(data)]), first):
                key = self._reader.key_of(data[start:end], number + 1)
                yield f"//{number}" if key is None else key

    def _path(self, number: int) -> str:
        (item,) = self.part(np.array([number]))
        return valid_unicode(item.path)

    @property
    def fingerprint(self) -> str:
        hasher = xxhash.xxh3_128(repr(("folder", self._group, self.classes)).encode())
        for _, data, _ in self._records.blocks():
            hasher.update(data)
        return hasher.hexdigest()


def _record(stem: str, entries: list[Entry]) -> bytes:
    sizes = [entry.size for entry in entries if entry.size is not None]
    ends = [os.fsencode(entry.path[len(stem) :]) for entry in entries]
    packed: bytes = msgpack.packb((os.fsencode(stem), ends, sum(sizes) if sizes else None))
    return packed


def _folder(stem: str) -> str:
    """The class folder that a sample lies in."""
    return valid_unicode(stem.partition("/")[0])


def _stem(path: str) -> str:
    """A path up to the first dot of its name."""
    dot = path.find(".", path.rfind("/") + 1)
    return path if dot < 0 else path[:dot]


def _is_image(path: str) -> bool:
    return path.rpartition(".")[2].lower() in BY_SUFFIX


def _why_not(ends: Sequence[str]) -> str:
    """Why a sample without a picture is rejected."""
    never = (refused_suffix(end.rpartition(".")[2].lower()) for end in ends)
    return next(filter(None, never), "it is not a picture, in a folder of pictures")
