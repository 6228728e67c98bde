"""``Coco``: pictures with boxes, labels and masks, as COCO's JSON files have them, also captions and keypoints."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import FormatError, UsageError
from shardstream.formats.contract import ObjectListing, Recognized, SourceFormat, SourceObject
from shardstream.formats.detection.annotations import (
    TEXTS,
    Annotations,
    BesideImages,
    Odd,
    integer,
)
from shardstream.formats.detection.json_stream import Element, JsonStream
from shardstream.formats.files.names import below, file_column, key_of, kind_of
from shardstream.formats.scans.names import tells_detection
from shardstream.formats.scans.object_bytes import ObjectBytes
from shardstream.formats.scans.rows import Loss, Remark, ScannedRows, pieces, usable_key
from shardstream.pack.sources.media import suffix_of
from shardstream.pack.sources.paths import common_folder
from shardstream.shards.fields import FieldType
from shardstream.shards.index import Column
from shardstream.storage import Store
from shardstream.storage.base.store import ObjectMeta
from shardstream.text import in_one_line, valid_unicode, without_credentials

_HEAD = 64 << 10
_FAR = 16 << 20  # bytes in which the first picture is looked for, before the folder is told by names alone
_MOST_FILES = 200  # of JSON, in a folder that may be one of COCO
_MOST_CATEGORIES = 1_000_000
_MOST_SUFFIXES = 100
_PANOPTIC = (
    "Of panoptic annotations the boxes, labels and ids of segments are read; the PNG files with their pixels are not."
)
_LVIS = (
    "add the file names, as paths below the directory of the images: "
    "for image in lvis['images']: image['file_name'] = '/'.join(image['coco_url'].split('/')[-2:])"
)
_LISTS = {
    "images": re.compile(rb'"images"\s*:\s*\[\s*\{[^\[]*"(file_name|coco_url)"'),
    "annotations": re.compile(rb'"annotations"\s*:\s*\[\s*\{[^{]*"(image_id|segments_info)"'),
}


class Coco(SourceFormat):
    """A JSON file that lists pictures, and what is seen on them."""

    name = "coco"
    title = "COCO"
    options: ClassVar[Mapping[str, str]] = {
        "annotations": "the JSON file with them, below the folder that is opened",
        "images": "the folder of the pictures, below the folder that is opened",
        "root": "the folder of the pictures, wherever it is",
    }
    window: ClassVar[int] = 4 << 20
    loose = True

    def recognize(self, listing: ObjectListing, options: Mapping[str, str]) -> Recognized | None:
        one = _annotations(listing, options)
        if one is None:
            return None
        data = self.open(listing.store, SourceObject(one.path, one.size))
        images = options.get("images", options.get("root"))
        folder = _folder_of(listing, data) if images is None else _given(listing.store, images)
        wanted = {text.partition(":")[0] for text in listing.chosen.values()}
        texts = [name for name, field in TEXTS.items() if not wanted or field in wanted]
        return Recognized((SourceObject(one.path, one.size, {"images": folder, "texts": texts}),))

    def scan(self, data: ObjectBytes, about: Mapping[str, Any]) -> Iterator[ScannedRows]:
        found = _File(data, about)
        found.read()
        yield from found.rows()


def _annotations(listing: ObjectListing, options: Mapping[str, str]) -> ObjectMeta | None:
    """The file that describes the pictures; ``None`` where there is none.

    Raises:
        UsageError: There are several, or not the one that is named.
    """
    given = options.get("annotations")
    if given is not None:
        path = _given(listing.store, given)
        if path not in listing:
            raise UsageError(f"annotations={given!r}: there is no such file", url=listing.url)
        return next(one for one in listing.everything if one.path == path)
    asked = [one for one in listing.ending(".json") if listing.named or tells_detection(one.path)]
    if not asked or len(asked) > _MOST_FILES or (listing.named and len(asked) < len(listing.objects)):
        return None
    found = [one for one in asked if _is_coco(listing, one.path)]
    if len(found) > 1:
        root = listing.store.url
        raise UsageError(
            f"there are several files of annotations here: {', '.join(one.path for one in found)}",
            url=listing.url,
            hint=f"open one of them: {' or '.join(f'{root}/{one.path}' for one in found[:3])}",
        )
    return found[0] if found else None


def _is_coco(listing: ObjectListing, path: str) -> bool:
    head = listing.start(path, _HEAD)
    return head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{" and any(one.search(head) for one in _LISTS.values())


def _given(store: Store, text: str) -> str:
    """A path that the user wrote, below the root; UsageError."""
    if text.strip("/.") == "" and not text.startswith("/"):
        return ""
    found = below(store.url, "", text)
    if found is None:
        raise UsageError(
            f"{text!r} does not lie below {store.url}", url=store.url, hint="open a folder that holds all, or a list"
        )
    return found


def _folder_of(listing: ObjectListing, data: ObjectBytes) -> str:
    """The folder that names of pictures are taken from: the first of the usual ones that has the first picture.

    Raises:
        FormatError: None has.
    """
    store, first = listing.store, _first_picture(data)
    folder, _, base = data.path.rpartition("/")
    above = folder.rpartition("/")[0] if folder.rpartition("/")[2].lower() == "annotations" else folder
    splits = re.findall(r"[A-Za-z]+[0-9]*", base.rpartition(".")[0])[::-1]
    names = [*(f"{top}{split}" for split in splits for top in ("", "images/")), "images", ""]
    places = [f"{above}/{name}".strip("/") for name in names] + ([folder] if folder != above else [])
    for place in places:
        path = None if first is None else below(store.url, place, first)
        if path is not None and (path in listing or store.exists(path)):
            return place
        if first is None and place and any(one.path.startswith(f"{place}/") for one in listing.objects):
            return place
    shown = "the pictures are" if first is None else f"the first picture, {in_one_line(valid_unicode(first[:80]))}, is"
    raise FormatError(
        f"{shown} in none of {', '.join(repr(f'{place}/' if place else './') for place in dict.fromkeys(places))}",
        url=data.url,
        hint="say where they are: SourceOptions(options={'root': 'FOLDER'}) (--format-option root=FOLDER)",
    )


def _first_picture(data: ObjectBytes) -> str | None:
    """The name of the first picture, if it comes soon."""
    stream = JsonStream(data)
    for name in stream.members():
        if name != "images":
            if stream.offset > _FAR:
                return None
            if name == "annotations" and data.size > _FAR:
                return None
            continue
        for one in stream.elements():
            return _file_name(data, one)
    return None


def _file_name(data: ObjectBytes, one: Element) -> str:
    found = one.value.get("file_name") if isinstance(one.value, dict) else None
    if found is None and isinstance(one.value, dict) and "coco_url" in one.value:
        raise data.unsupported("an image has a coco_url and no file_name, as in LVIS", one.offset, hint=_LVIS)
    if not isinstance(found, str) or not found:
        raise data.damaged("an image has no file_name", one.offset)
    try:
        found.encode()
    except UnicodeEncodeError as error:
        raise data.damaged("the file_name of an image is not Unicode", one.offset) from error
    return found


class _File:
    """What a file of annotations says.

    Args:
        data: The file.
        about: Of its `SourceObject`.
    """

    def __init__(self, data: ObjectBytes, about: Mapping[str, Any]) -> None:
        self._data = data
        self._folder = about["images"]
        self._root = data.url[: len(data.url) - len(data.path)].rstrip("/")
        self._annotations = Annotations(data, about["texts"])
        self._categories: dict[int, str] | None = None
        self._ids = array("q")
        self._names = bytearray()
        self._name_ends = array("q")
        self._common: str | None = None
        self._suffixes: set[str] = set()

    def read(self) -> None:
        """All of it, once.

        Raises:
            FormatError: It is damaged, or not what it seemed to be.
        """
        stream, seen = JsonStream(self._data), set[str]()
        for name in stream.members():
            if name not in ("images", "annotations", "categories"):
                continue
            if name in seen:
                raise stream.damaged(f"there are two lists of {name}", stream.offset)
            seen.add(name)
            if name == "categories":
                self._categories = {}
            take = {"images": self._image, "annotations": self._annotations.add, "categories": self._category}[name]
            for one in stream.elements(self._annotations.places if name == "annotations" else frozenset()):
                take(one)
        if "images" not in seen:
            raise self._data.damaged("there is no list of images", 0)

    def _image(self, one: Element) -> None:
        name = _file_name(self._data, one)
        self._ids.append(integer(self._data, one, "id"))
        path = below(self._root, self._folder, name)
        if path is None:
            shown = in_one_line(valid_unicode(without_credentials(name)[:80]))
            raise self._data.unsupported(
                f"file_name {shown!r} does not lie below {self._root}",
                one.offset,
                hint="open a folder that holds the pictures as well, or give root=",
            )
        self._suffixes.add(suffix_of(path))
        if len(self._suffixes) > _MOST_SUFFIXES:
            what = "the pictures have too many different suffixes"
            raise self._data.unsupported(what, one.offset, hint=f"at most {_MOST_SUFFIXES} are read: rename some")
        if self._common is None or not path.startswith(self._common):
            self._common = common_folder(path if self._common is None else self._common, path)
        self._names += path.encode()
        self._name_ends.append(len(self._names))

    def _category(self, one: Element) -> None:
        assert self._categories is not None
        value = one.value
        name = value.get("name") if isinstance(value, dict) else None
        if not isinstance(name, str):
            raise self._data.damaged("a category has no name", one.offset)
        number = integer(self._data, one, "id")
        if number in self._categories or len(self._categories) >= _MOST_CATEGORIES:
            raise self._data.damaged(f"two categories have the id {number}, or there are too many", one.offset)
        self._categories[number] = valid_unicode(name)

    def rows(self) -> Iterator[ScannedRows]:
        """Its samples; the last ones say what is lost: annotations of pictures that are not there."""
        ids = np.frombuffer(self._ids, np.int64)
        again = np.flatnonzero(np.diff(np.sort(ids)) == 0)
        if len(again):
            raise self._data.damaged(f"two images have the id {np.sort(ids)[again[0]]}", 0)
        numbers = None if self._categories is None else sorted(self._categories)
        broken = self._without(self._annotations.odd(numbers))
        ids = np.frombuffer(self._ids, np.int64)
        beside = self._annotations.beside(ids)
        classes: tuple[str, ...] | None = None
        if self._categories is not None and numbers is not None:
            beside.labelled(np.array(numbers, np.int64))
            classes = tuple(self._categories[number] for number in numbers) or None
        damage = self._lost(beside)
        for begin, end in pieces(len(ids)):
            columns = [*self._image_columns(ids, begin, end), *beside.rows(begin, end)]
            keys = [usable_key(key_of(path, len(self._common or ""))) for path in self._paths(begin, end)]
            last = damage if end == len(ids) else None
            remarks = (Remark(_PANOPTIC),) if self._annotations.panoptic and not begin else ()
            ordered = tuple(sorted(columns, key=lambda one: one.name))
            lost = () if begin else broken
            yield ScannedRows(keys, ordered, last, None if begin else classes, 0, lost, remarks)

    def _without(self, odd: Odd) -> tuple[Loss, ...]:
        """Leave out the images with annotations that cannot be read, and give what is lost so; FormatError if all."""
        if not odd.images:
            return tuple(odd.adrift)
        paths, ids = self._paths(0, len(self._ids)), self._ids
        self._ids, self._names, self._name_ends = array("q"), bytearray(), array("q")
        losses, left = list(odd.adrift), dict(odd.images)
        for image, path in zip(ids, paths, strict=True):
            if image in left:
                offset, what = left.pop(image)
                losses.append(Loss(f"{in_one_line(path)}: {what} (offset {offset})", 1))
            else:
                self._ids.append(image)
                self._names += path.encode()
                self._name_ends.append(len(self._names))
        losses += [Loss(f"{what} (offset {offset})", 0) for offset, what in left.values()]
        if not self._ids:
            offset, what = min(odd.images.values())
            raise self._data.damaged(f"{what}, and no image is without such an annotation", offset)
        return tuple(losses)

    def _paths(self, begin: int, end: int) -> list[str]:
        start, out = self._name_ends[begin - 1] if begin else 0, []
        for stop in self._name_ends[begin:end]:
            out.append(self._names[start:stop].decode())
            start = stop
        return out

    def _image_columns(self, ids: NDArray[np.int64], begin: int, end: int) -> Sequence[Column]:
        kind = kind_of(self._suffixes, url=self._data.url)
        paths = self._paths(begin, end)
        return [
            file_column(kind.field, kind.type, paths),
            Column("image_id", FieldType.parse("int64"), values=ids[begin:end]),
        ]

    def _lost(self, beside: BesideImages) -> FormatError | None:
        if not len(beside.lost):
            return None
        first = int(beside.lost[0])
        image = self._annotations.columns["image"][first]
        many = f"{len(beside.lost):,} annotations are" if len(beside.lost) > 1 else "an annotation is"
        return self._annotations.error(f"{many} of images that the file does not list, such as image {image}", first)
