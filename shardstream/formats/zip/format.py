"""Zip files: each member is a value, those of one name without extension a sample.

Members that are stored as they are lie in the zip. Those that are deflated are a block each: the object is shown with
their inflated bytes behind those of the zip, in the order in which they lie there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from shardstream.errors import ChangedError, FormatError, UsageError
from shardstream.formats.blocks import BlockList
from shardstream.formats.blocks.found_blocks import FoundBlocks
from shardstream.formats.contract import ObjectListing, Recognized, SourceFormat, SourceObject
from shardstream.formats.scans.names import accompanies
from shardstream.formats.scans.object_bytes import ObjectBytes
from shardstream.formats.scans.rows import RowBuilder, ScannedRows, common_type, image_type, pieces, usable_key
from shardstream.formats.zip.directory import (
    CHECKSUMS,
    Directory,
    check_deflated,
    located,
    read_directory,
    wrong_members,
)
from shardstream.names.splits import splits
from shardstream.names.strays import Strays, find_stray
from shardstream.shards.field_names import usable_field
from shardstream.shards.fields import type_of_extension
from shardstream.storage.base.store import ObjectMeta

_LABEL = "cls"
_LARGEST_LABEL = 20  # digits of an int64, and its sign
_IMAGE_NAMES = ("jpg", "jpeg", "png", "webp")
_OURS = re.compile(r"\.(zip|z[0-9]{2})$", re.IGNORECASE)  # .z01: parts of a zip, which are refused by name


class Zip(SourceFormat):
    """``*.zip``: members of one folder and one base name up to its first dot are a sample, wherever they lie."""

    name: ClassVar[str] = "zip"
    title: ClassVar[str] = "zip files"
    options: ClassVar[Mapping[str, str]] = {
        "labels": "'folder': the folder that an image lies in is its class, and becomes its label cls",
        "folder": "read only what lies below this folder of the zip files, such as train",
    }

    def recognize(self, listing: ObjectListing, options: Mapping[str, str]) -> Recognized | None:
        zips = listing.only(".zip", beside=lambda path: accompanies(path) or _OURS.search(path) is not None)
        if not zips:
            return None
        first = listing.first_that(zips, lambda start: start.startswith((b"PK\3\4", b"PK\5\6", b"PK\7\x08", b"PK00")))
        if first is None:
            return None
        folder = usable_key(options.get("folder", ""))
        common: dict[str, Any] = {"folder": folder} if folder else {}
        lists = [one.path for one in listing.ending(".csv", ".tsv", ".json")]
        notes = tuple(f"{path} is not read" for path in lists[:5])
        if options.get("labels") is None:
            data = ObjectBytes(listing.store, first.path, first.size)
            notes += _unused_classes(_chosen(data, read_directory(data), folder))
            return Recognized(_objects(zips, common), notes=notes)
        if options["labels"] != "folder":
            raise UsageError(
                f"labels={options['labels']!r}: labels of zip files come from folders", hint="labels=folder"
            )
        found: set[str] = set()
        for one in zips:
            data = ObjectBytes(listing.store, one.path, one.size)
            found.update(_classes(data, _chosen(data, read_directory(data), folder)))
        classes = tuple(sorted(found))
        common["classes"] = list(classes)
        return Recognized(_objects(zips, common), classes, notes)

    def blocks(self, data: ObjectBytes, about: Mapping[str, Any]) -> FoundBlocks | None:
        directory = read_directory(data)
        chosen = {one.number for one in _chosen(data, directory, about.get("folder", ""))}
        if not any(directory.members[number].deflated for number in chosen):
            return None
        blocks = BlockList()
        blocks.add("none", 0, data.size, data.size)
        for number, begin in located(data, directory):
            member = directory.members[number]
            if number in chosen and member.deflated:
                blocks.add("deflate", begin, member.stored, member.size, member.crc)
        return FoundBlocks(blocks.of(data.size))

    def scan(self, data: ObjectBytes, about: Mapping[str, Any]) -> Iterator[ScannedRows]:
        zipped = data.first(about.get("bytes", data.size))
        directory = read_directory(zipped)
        strays = Strays()
        chosen = _chosen(zipped, directory, about.get("folder", ""), strays)
        strays.log(data.url)
        values = _values(data, zipped, directory, chosen)
        classes = about.get("classes")
        labels = None if classes is None else {name: label for label, name in enumerate(classes)}
        if labels is not None and not values.only_images():
            raise data.unsupported("labels=folder is for zip files of images alone", 0, hint="leave the option out")
        samples: dict[str, list[_Chosen]] = {}
        for one in chosen:
            samples.setdefault(one.key, []).append(one)
        yield from _rows(data, samples, values, labels)

    def checksums(self, one: SourceObject) -> str:
        return CHECKSUMS

    def differences(self, data: ObjectBytes, about: Mapping[str, Any]) -> Iterator[FormatError]:
        return wrong_members(data.first(about.get("bytes", data.size)))


def _objects(zips: Sequence[ObjectMeta], common: Mapping[str, Any]) -> tuple[SourceObject, ...]:
    """The zips, each with its bytes: scanned, it may be shown with more."""
    return tuple(SourceObject(one.path, one.size, {**common, "bytes": one.size}) for one in zips)


class _Chosen(NamedTuple):
    """A member that is a value: its number in the directory, the sample's key, and the field."""

    number: int
    key: str
    field: str


@dataclass(slots=True)
class _Values:
    """What is known of the values: where they begin, by number; what images each field has; numbers in ``cls``."""

    begins: dict[int, tuple[int, int]] = field(default_factory=dict)
    images: dict[str, set[str | None]] = field(default_factory=dict)
    labels: dict[int, int | None] = field(default_factory=dict)

    def only_images(self) -> bool:
        return all(None not in found for found in self.images.values())

    def kinds(self) -> dict[str, str]:
        """The type of each field, the same in all rows of the zip; ``int64``: it is a number in the index."""
        kinds = {
            name: str(common_type(found, str(type_of_extension(name.rpartition(".")[2]))))
            for name, found in self.images.items()
        }
        if self.labels and None not in self.labels.values():
            kinds[_LABEL] = "int64"
        return kinds


def _chosen(data: ObjectBytes, directory: Directory, folder: str, strays: Strays | None = None) -> list[_Chosen]:
    """The members that are values; those that are not data by their names are counted."""
    chosen, others = [], 0
    for number, member in enumerate(directory.members):
        if member.name.endswith("/"):
            continue
        stray = find_stray(member.name.removeprefix(f"{folder}/"))
        if stray is not None:
            if strays is not None:
                strays.add(stray)
            continue
        path, _, base = member.name.rpartition("/")
        stem, _, extension = base.partition(".")
        key = usable_key(f"{path}/{stem}")
        if folder and not key.startswith(f"{folder}/"):
            continue
        others += 1
        if extension and key:
            check_deflated(data, member)
            chosen.append(_Chosen(number, key, usable_field(extension.lower())))
    if others and not chosen:
        raise data.unsupported(f"none of its {others} members has an extension to name a field by", 0, hint="pack it")
    if folder and directory.members and not chosen:
        raise data.unsupported(f"it has nothing below {folder!r}", 0, hint="look at the option folder=")
    if not folder:
        _refuse_splits(data, {one.key.rpartition("/")[0] for one in chosen})
    return chosen


def _refuse_splits(data: ObjectBytes, folders: Iterable[str]) -> None:
    """Training and held-out data are never mixed: the folders that differ first must not be named like them."""
    parts = [folder.split("/") for folder in folders]
    depth = 0
    while parts and all(len(one) > depth and one[depth] == parts[0][depth] for one in parts):
        depth += 1
    found = splits(one[depth] for one in parts if len(one) > depth)
    if found:
        above = "/".join(parts[0][:depth])
        choices = [f"{above}/{name}".strip("/") for name in found]
        raise data.unsupported(
            f"it holds several splits: {', '.join(choices)}", 0, hint=f"choose one with the option folder={choices[0]}"
        )


def _unused_classes(chosen: Sequence[_Chosen]) -> tuple[str, ...]:
    images = all("/" in one.key and one.field.rpartition(".")[2] in _IMAGE_NAMES for one in chosen)
    if not chosen or not images:
        return ()
    return ("names of folders are not read as classes; the option labels=folder does that",)


def _classes(data: ObjectBytes, chosen: Sequence[_Chosen]) -> set[str]:
    """The folders that images lie in, all as deep."""
    if len({one.key.count("/") for one in chosen}) > 1 or any("/" not in one.key for one in chosen):
        raise data.unsupported(
            "its members do not all lie in class folders of one depth",
            0,
            hint="leave out labels=folder, or choose a part with folder=",
        )
    return {_class_of(one.key) for one in chosen}


def _class_of(key: str) -> str:
    return key.rpartition("/")[0].rpartition("/")[2]


def _values(data: ObjectBytes, zipped: ObjectBytes, directory: Directory, chosen: Sequence[_Chosen]) -> _Values:
    """One pass over the zip, in the order of its bytes: local headers, and the first bytes of each value."""
    fields = {one.number: one.field for one in chosen}
    found, inflated = _Values(), zipped.size
    for number, stored in located(zipped, directory):
        name = fields.get(number)
        if name is None:
            continue
        size, begin = directory.members[number].size, stored
        if directory.members[number].deflated:
            begin, inflated = inflated, inflated + size
        start = bytes(data.get(begin, min(size, _LARGEST_LABEL)))
        found.begins[number] = begin, size
        found.images.setdefault(name, set()).add(image_type(start))
        if name == _LABEL:
            found.labels[number] = _number(start) if size <= _LARGEST_LABEL else None
    return found


def _number(text: bytes) -> int | None:
    text = text.strip()
    if not re.fullmatch(rb"[+-]?[0-9]{1,19}", text):
        return None
    value = int(text)
    return value if -(1 << 63) <= value < 1 << 63 else None


def _rows(
    data: ObjectBytes,
    samples: Mapping[str, Sequence[_Chosen]],
    values: _Values,
    labels: Mapping[str, int] | None,
) -> Iterator[ScannedRows]:
    kinds, keys = values.kinds(), list(samples)
    rows = RowBuilder(data)
    for begin, end in pieces(len(keys)):
        for key in keys[begin:end]:
            rows.begin(key)
            if labels is not None:
                rows.number(_LABEL, _label(data, labels, key))
            for one in samples[key]:
                if kinds[one.field] == "int64":
                    number = values.labels[one.number]
                    assert number is not None
                    rows.number(one.field, number)
                else:
                    rows.value(one.field, *values.begins[one.number], kinds[one.field])
        yield rows.take()


def _label(data: ObjectBytes, labels: Mapping[str, int], key: str) -> int:
    try:
        return labels[_class_of(key)]
    except KeyError:
        raise ChangedError(
            f"{key!r} lies in a folder that was not a class when the zip was listed",
            url=data.url,
            hint="index it again",
        ) from None
