"""Which pictures a data set of YOLO has: by its ``data.yaml``, or by its folders."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from shardstream.errors import FormatError, UsageError, did_you_mean
from shardstream.formats.contract import ObjectListing
from shardstream.formats.detection.yolo_labels import KeyPoints
from shardstream.formats.files.names import below
from shardstream.formats.scans.yaml_files import LARGEST, read_yaml
from shardstream.names.splits import splits
from shardstream.names.strays import find_stray
from shardstream.pack.sources.media import is_picture, suffix_of
from shardstream.storage.base.store import ObjectMeta
from shardstream.text import in_one_line, valid_unicode

_SPLITS = ("train", "val", "test")
_YAML = (".yaml", ".yml")
# What a file has to say for it to be one of YOLO, before it is asked whether YAML can be read here.
_LOOKS = tuple(
    re.compile(rb"^['\"]?(%s)['\"]?[ \t]*:" % names, re.MULTILINE)
    for names in (b"names|nc", b"train|val|validation|test")
)
_LINES = re.compile(rb"\s*[0-9]+([ \t]+-?[0-9.eE+-]+){4,}[ \t]*(\r?\n|\Z)")  # labels begin with such a line
_HEAD = 4096
_CLASSES = ("classes.txt", "labels/classes.txt", "obj.names")
_MOST_CLASSES = 1_000_000
_MOST_NUMBERS = 3000  # of key points
_DESCRIBES = re.compile(
    r"(classes|names|labels|train|valid(ation)?|val|test|notes|read.?me.*|licen[cs]e|requirements)\.txt", re.IGNORECASE
)
_IMAGES, _LABELS = "/images/", "/labels/"


class FoundSet(NamedTuple):
    """A data set of YOLO.

    Attributes:
        pictures: Its pictures, in their order.
        labels: Their files of labels.
        classes: Names of the classes; ``None`` where nothing says them.
        points: The key points of each object.
        lists: Files of text that list images.
    """

    pictures: Sequence[ObjectMeta]
    labels: LabelFiles
    classes: tuple[str, ...] | None
    points: KeyPoints = KeyPoints()
    lists: frozenset[str] = frozenset()


def label_stems(path: str) -> Iterator[str]:
    """Where the labels of an image may be, without suffix, the best place first.

    >>> list(label_stems("images/a/images/1.jpg"))
    ['images/a/labels/1', 'labels/a/images/1', 'images/a/images/1']
    """
    stem = f"/{os.path.splitext(path)[0]}"
    end = len(stem)
    while (at := stem.rfind(_IMAGES, 0, end)) >= 0:
        yield f"{stem[:at]}{_LABELS}{stem[at + len(_IMAGES) :]}"[1:]
        end = at + len(_IMAGES) - 1
    yield stem[1:]


class LabelFiles:
    """The files of labels of a listing, whose suffix may be in any case.

    Args:
        objects: All objects.
    """

    def __init__(self, objects: Sequence[ObjectMeta]) -> None:
        self._files = {os.path.splitext(one.path)[0]: one for one in objects if suffix_of(one.path) == "txt"}
        self._pictures = [one.path for one in objects if is_picture(suffix_of(one.path))]

    def of(self, path: str) -> ObjectMeta | None:
        """The file of labels of an image; ``None`` if there is none."""
        return next((self._files[stem] for stem in label_stems(path) if stem in self._files), None)

    def unused(self, lists: Collection[str]) -> list[str]:
        """Files in directories of labels, or beside images, that are of no image, but for these lists."""
        used = {one.path for path in self._pictures if (one := self.of(path)) is not None}
        folders = {path.rpartition("/")[0] for path in self._pictures}
        return [
            one.path
            for one in self._files.values()
            if one.path not in used
            and one.path not in lists
            and not _DESCRIBES.match(one.path.rpartition("/")[2])
            and ("labels" in one.path.lower().split("/")[:-1] or one.path.rpartition("/")[0] in folders)
        ]


def found_set(listing: ObjectListing, options: Mapping[str, str]) -> FoundSet | None:
    """The data set of a listing; ``None`` where it is none of YOLO.

    Raises:
        FormatError: It is one whose files are not where they should be, or that cannot be read.
        UsageError: There are several splits, or not the one that is asked for.
    """
    if options.get("boxes", "cxcywh") not in ("cxcywh", "xyxy"):
        raise UsageError(f"boxes={options['boxes']!r}: there are 'cxcywh' and 'xyxy'", url=listing.url)
    named = [one for one in listing.ending(*_YAML) if listing.named or "/" not in one.path]
    if listing.named and (len(named) != 1 or len(listing.objects) != 1):
        return None
    found = [(one.path, read) for one in named if (read := _read(listing, one)) is not None]
    if len(found) > 1:
        names = ", ".join(path for path, _ in found)
        root = listing.store.url
        raise UsageError(
            f"there are several files that describe a data set of YOLO: {names}",
            url=listing.url,
            hint=f"open one of them: {' or '.join(f'{root}/{path}' for path, _ in found[:3])}",
        )
    if not found:
        return None if listing.named else _by_folders(listing, options)
    if listing.named:
        listing.widen()
    return _Described(listing, *found[0]).found(options)


def _read(listing: ObjectListing, one: ObjectMeta) -> Mapping[str, Any] | None:
    """What a YAML file says, if it describes a data set of YOLO."""
    if one.size > LARGEST:
        return None
    text = listing.read(one.path)
    return read_yaml(text, listing.store.locate(one.path)) if all(look.search(text) for look in _LOOKS) else None


def _by_folders(listing: ObjectListing, options: Mapping[str, str]) -> FoundSet | None:
    """Folders ``images`` and ``labels``, with a folder a split in them or not."""
    pictures = [one for one in listing.objects if one.path.startswith("images/") and is_picture(suffix_of(one.path))]
    if not pictures:
        return None
    labels = LabelFiles(listing.objects)
    first = next((found for one in pictures if (found := labels.of(one.path)) is not None), None)
    if first is None or (first.path.startswith("images/") and not _LINES.match(listing.start(first.path, _HEAD))):
        return None
    folders = sorted({one.path.split("/")[1] for one in pictures if one.path.count("/") > 1})
    split = options.get("split")
    if split is not None:
        if split not in folders:
            raise _no_split(listing, split, folders)
        pictures = [one for one in pictures if one.path.startswith(f"images/{split}/")]
    elif several := splits(folders):
        raise _several(listing, several)
    return FoundSet(_in_order(pictures), labels, _listed_classes(listing))


def _in_order(pictures: Sequence[ObjectMeta]) -> Sequence[ObjectMeta]:
    return sorted(pictures, key=lambda one: os.fsencode(one.path))


def _listed_classes(listing: ObjectListing) -> tuple[str, ...] | None:
    for path in _CLASSES:
        if path in listing and listing.size(path) < LARGEST:
            lines = listing.read(path).decode("utf-8", "replace").splitlines()
            return tuple(line.strip() for line in lines if line.strip()) or None
    return None


def _several(listing: ObjectListing, names: Sequence[str]) -> UsageError:
    return UsageError(
        f"there are several splits here: {', '.join(names)}",
        url=listing.url,
        hint=f"say which: SourceOptions(options={{'split': '{names[0]}'}}) (--format-option split={names[0]})",
    )


def _no_split(listing: ObjectListing, split: str, names: Sequence[str]) -> UsageError:
    there = ", ".join(names) or "none"
    return UsageError(
        f"split={split!r}: there is no such split",
        url=listing.url,
        hint=f"{did_you_mean(split, names)}there are {there}",
    )


@dataclass
class _Described:
    """A data set that a YAML file describes."""

    listing: ObjectListing
    path: str
    said: Mapping[str, Any]

    def __post_init__(self) -> None:
        self.files = {one.path: one for one in self.listing.everything}
        self.root = self.listing.store.url.rstrip("/")
        self.folder = self.path.rpartition("/")[0]
        self.pictures = [one for one in self.listing.everything if is_picture(suffix_of(one.path))]

    def found(self, options: Mapping[str, str]) -> FoundSet:
        """Its pictures, of one split."""
        if not self.said.get("val"):  # which some call validation
            self.said = {**self.said, "val": self.said.get("validation")}
        there = [name for name in _SPLITS if self.said.get(name)]
        split = options.get("split")
        if split is None and len(there) > 1:
            there = [name for name in there if self._places(name)] or there
            if len(there) > 1:
                raise _several(self.listing, there)
        if split is not None and split not in there:
            raise _no_split(self.listing, split, there)
        if not there:
            raise self._wrong("it names no pictures: train, val and test are empty")
        name = split or there[0]
        places = self._places(name)
        if not places:
            shown = in_one_line(valid_unicode(", ".join(self._texts(name))[:120]))
            raise self._wrong(
                f"{name} is {shown!r}, and nothing of that lies below {self.root}",
                "open the folder that holds the pictures, or correct the file: paths are taken from its own folder",
            )
        pictures = [one for place in places for one in self._in(place)]
        if not pictures:
            raise self._wrong(f"there is no picture in {', '.join(places)}")
        lists = frozenset(place for name in _SPLITS for place in self._places(name))
        return FoundSet(pictures, LabelFiles(self.listing.objects), self._classes(), self._points(), lists)

    def _wrong(self, what: str, hint: str = "correct the file") -> FormatError:
        return FormatError(what, url=self.listing.store.locate(self.path), hint=hint)

    def _texts(self, name: str) -> list[str]:
        found = self.said.get(name) or []
        texts = found if isinstance(found, list) else [found]
        if not all(isinstance(one, str) for one in texts):
            raise self._wrong(f"{name!r} is not a path, or a list of paths")
        return texts

    def _places(self, name: str) -> list[str]:
        """Folders and lists of a split, those that are there."""
        return [place for text in self._texts(name) if (place := self._place(text)) is not None]

    def _place(self, text: str) -> str | None:
        """What a path means: the first of its meanings that lies below the root, and is there."""
        for one in self._meanings(text.rstrip("/") or "."):
            if one in self.files or any(picture.path.startswith(f"{one}/" if one else "") for picture in self.pictures):
                return one
        return None

    def _meanings(self, text: str, folder: str | None = None) -> list[str]:
        base, *_ = self._texts("path") or [""]
        above = text
        while above.startswith("../"):
            above = above[3:]
        pairs = [(folder, text), (f"{self.folder}/{base}".strip("/"), text), (self.folder, text), (self.folder, above)]
        found = []
        for where, path in pairs:
            if where is None or where.startswith(("/", "..")) or "://" in where:
                continue
            one = "" if (where, path) == ("", ".") else below(self.root, where, path)
            if one is not None:
                found.append(one)
        return found

    def _in(self, place: str) -> Sequence[ObjectMeta]:
        """The pictures of a folder, or of a list of them."""
        if place in self.files and suffix_of(place) == "txt":
            return self._of_list(place)
        prefix = f"{place}/" if place else ""
        below = [one for one in self.pictures if one.path.startswith(prefix)]
        return _in_order([one for one in below if find_stray(one.path[len(prefix) :]) is None])

    def _of_list(self, path: str) -> Sequence[ObjectMeta]:
        out = []
        folder = path.rpartition("/")[0]
        for number, line in enumerate(self.listing.read(path).decode("utf-8", "surrogateescape").splitlines(), 1):
            text = line.strip()
            if not text:
                continue
            found = next((self.files[one] for one in self._meanings(text, folder) if one in self.files), None)
            if found is None:
                raise FormatError(
                    f"{in_one_line(valid_unicode(text[:80]))!r} is not there, or not below {self.root}",
                    url=self.listing.store.locate(path),
                    line=number,
                    hint="open the folder that holds the pictures as well, or correct the list",
                )
            out.append(found)
        return out

    def _classes(self) -> tuple[str, ...] | None:
        names = self.said.get("names") or []
        listed = names if isinstance(names, list) else [names]
        pairs = list(names.items() if isinstance(names, dict) else enumerate(listed))
        if not all(isinstance(name, str) for _, name in pairs):
            raise self._wrong("'names' is not a list of names, or a map of numbers to names")
        if not all(str(number).isdecimal() and int(number) < _MOST_CLASSES for number, _ in pairs):
            raise self._wrong("'names' has keys that are not numbers of classes")
        numbered = {int(number): name for number, name in pairs}
        return tuple(numbered.get(one, f"class {one}") for one in range(max(numbered, default=-1) + 1)) or None

    def _points(self) -> KeyPoints:
        shape = self.said.get("kpt_shape")
        if shape is None:
            return KeyPoints()
        is_shape = isinstance(shape, list) and len(shape) == 2 and all(isinstance(one, str) for one in shape)
        if not is_shape or not all(one.isdecimal() and len(one) < 5 for one in shape):
            raise self._wrong("'kpt_shape' is not two numbers")
        return KeyPoints(min(int(shape[0]) * int(shape[1]), _MOST_NUMBERS), int(shape[1]))
