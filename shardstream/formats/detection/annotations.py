"""Annotations of COCO in whatever order they stand: fifty bytes each are held, then they are put beside pictures."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import FormatError
from shardstream.formats.detection.json_stream import Element
from shardstream.formats.scans.held import boxes_column, lists_column, numbers_column
from shardstream.formats.scans.object_bytes import ObjectBytes
from shardstream.formats.scans.rows import Loss
from shardstream.formats.scans.text_spool import TextSpool
from shardstream.shards.index import Column

TEXTS = {"segmentation": "masks", "caption": "captions", "keypoints": "keypoints"}
"""Members of annotations that are kept as the JSON that they are, and the fields that they become."""
MOST_ID = 1 << 63
_BOX, _LABEL, _SEGMENT = 1, 2, 4
_LARGEST = 1e38  # so that no sum of two is more than a float32 holds


@dataclass(slots=True)
class _Known:
    """What an annotation says, and which members it has."""

    members: int = 0
    box: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    label: int = 0
    crowd: int = 0
    area: float = 0.0
    segment: int = 0


class Odd(NamedTuple):
    """Annotations that cannot be read.

    Attributes:
        images: By the id of their image, where the first of them begins, and why.
        adrift: Those that name no image.
    """

    images: Mapping[int, tuple[int, str]]
    adrift: Sequence[Loss]


class Annotations:
    """The annotations of a file.

    Args:
        data: The file.
        texts: Which of `TEXTS` are wanted.
    """

    def __init__(self, data: ObjectBytes, texts: Sequence[str]) -> None:
        self._data = data
        self.places = frozenset(texts)
        self._images = array("q")
        self._offsets = array("q")
        self._members = array("B")  # of `_Known`, as bits; those that differ from most are odd
        self._boxes = array("f")
        self._labels = array("q")
        self._crowds = array("B")
        self._areas = array("f")
        self._segments = array("q")
        self._texts = {name: TextSpool(data) for name in texts}
        self._odd: dict[int, tuple[int, str]] = {}
        self._adrift: list[Loss] = []

    def __len__(self) -> int:
        return len(self._images)

    def add(self, one: Element) -> None:
        """Take one into account. What cannot be read of it is kept for `odd`."""
        value = one.value
        try:
            if not isinstance(value, dict):
                raise self._data.damaged("an annotation is not an object", one.offset)
            image = integer(self._data, one, "image_id")
        except FormatError as error:
            self._adrift = self._adrift or [Loss(f"{error.what} (offset {one.offset})", 0)]
            return
        segments = value.get("segments_info", [value])
        if not isinstance(segments, list) or not all(isinstance(segment, dict) for segment in segments):
            self._is_odd(image, one.offset, "segments_info of an annotation is not a list of objects")
            return
        for segment in segments:
            try:
                known = self._read(Element(one.offset, segment, {}), segment=segment is not value)
            except FormatError as error:
                self._is_odd(image, one.offset, error.what)
                continue
            self._images.append(image)
            self._offsets.append(one.offset)
            self._members.append(known.members)
            self._boxes.extend(known.box)
            self._labels.append(known.label)
            self._crowds.append(known.crowd)
            self._areas.append(known.area)
            self._segments.append(known.segment)
            for name, texts in self._texts.items():
                place = one.places.get(name)
                texts.add(*((0, 0) if place is None else (place[0], place[1] - place[0])))

    def _read(self, one: Element, *, segment: bool) -> _Known:
        """What an annotation says; FormatError where it cannot be read."""
        value, known = one.value, _Known()
        if segment:
            known.members |= _SEGMENT
            known.segment = integer(self._data, one, "id")
        if "category_id" in value:
            known.members |= _LABEL
            known.label = integer(self._data, one, "category_id")
        if "bbox" in value:
            known.members |= _BOX
            x, y, width, height = self._numbers(one, "bbox", 4)
            known.box = (x, y, x + width, y + height)
            area = value.get("area")
            known.area = width * height if area is None else self._number(one, "area", area)
            crowd = value.get("iscrowd", 0)
            if crowd not in (0, 1):
                raise self._data.damaged(f"iscrowd of an annotation is {crowd!r:.40}", one.offset)
            known.crowd = crowd
        return known

    def _is_odd(self, image: int, offset: int, what: str) -> None:
        self._odd.setdefault(image, (offset, what))

    def odd(self, categories: Sequence[int] | None) -> Odd:
        """What cannot be read, by image: a sample with some of its annotations would be a wrong one.

        Args:
            categories: Ids of the categories, in order; ``None`` if the file has no list of them.

        Raises:
            FormatError: No annotation is of a category of the file.
        """
        members = np.frombuffer(self._members, np.uint8)
        if len(members):
            most = int(np.bincount(members).argmax())
            for number in np.flatnonzero(members != most).tolist():
                what = "some annotations have a bbox, category_id or segments_info, and this one differs"
                self._is_odd(self._images[number], self._offsets[number], what)
            if most & _LABEL and categories is not None:
                self._check_labels(np.array(categories, np.int64), members == most)
        return Odd(self._odd, self._adrift)

    def _check_labels(self, categories: NDArray[np.int64], usual: NDArray[np.bool_]) -> None:
        labels = np.frombuffer(self._labels, np.int64)
        unknown = np.flatnonzero(usual & ~np.isin(labels, categories)).tolist()
        for number in unknown:
            what = f"an annotation is of category {labels[number]}, which is not in the file"
            if len(unknown) == len(labels):
                raise self.error(what, number)
            self._is_odd(self._images[number], self._offsets[number], what)

    def _numbers(self, one: Element, name: str, count: int) -> list[float]:
        found = one.value[name]
        if not isinstance(found, list) or len(found) != count:
            raise self._data.damaged(f"{name} of an annotation is not {count} numbers", one.offset)
        return [self._number(one, name, number) for number in found]

    def _number(self, one: Element, name: str, value: Any) -> float:
        if type(value) not in (int, float) or not abs(value) <= _LARGEST:
            raise self._data.damaged(f"{name} of an annotation holds {value!r:.40}, not a number", one.offset)
        return float(value)

    def beside(self, images: NDArray[np.int64]) -> BesideImages:
        """The annotations of each of these images, by their ids."""
        return BesideImages(self, images)

    @property
    def columns(self) -> dict[str, NDArray[Any]]:
        """What is known of each, in the order of the file; only what most have."""
        found: dict[str, NDArray[Any]] = {"image": np.frombuffer(self._images, np.int64)}
        found["offset"] = np.frombuffer(self._offsets, np.int64)
        most = int(np.bincount(self._members).argmax()) if len(self._members) else 0
        if most & _LABEL:
            found["label"] = np.frombuffer(self._labels, np.int64)
        if most & _BOX:
            found["box"] = np.frombuffer(self._boxes, np.float32).reshape(-1, 4)
            found["crowd"] = np.frombuffer(self._crowds, np.uint8)
            found["area"] = np.frombuffer(self._areas, np.float32)
        if most & _SEGMENT:
            found["segment"] = np.frombuffer(self._segments, np.int64)
        return found

    def text(self, name: str, number: int) -> bytes:
        """A member of an annotation as JSON; null where it has none."""
        found = self._texts[name].get(number) or b"null"
        if not found.isascii():
            try:
                found.decode()
            except UnicodeDecodeError as error:
                raise self.error(f"{name} of an annotation is not UTF-8", number) from error
        return found

    @property
    def odd_images(self) -> Collection[int]:
        """The images of which `odd` told something."""
        return self._odd.keys()

    @property
    def panoptic(self) -> bool:
        """Whether they are segments, whose pixels are in files of their own."""
        return "segment" in self.columns

    @property
    def texts(self) -> list[str]:
        """The members that are kept as JSON, of those that any annotation has."""
        return [name for name, found in self._texts.items() if found.any]

    def error(self, what: str, number: int) -> FormatError:
        """The error for an annotation."""
        return self._data.damaged(what, self._offsets[number])


class BesideImages:
    """The annotations of a file by pictures.

    Attributes:
        lost: Numbers of annotations whose picture is not in the file.
    """

    def __init__(self, of: Annotations, images: NDArray[np.int64]) -> None:
        self._of = of
        self._found = of.columns
        order = np.argsort(images, kind="stable")
        wanted = self._found["image"]
        places = np.searchsorted(images[order], wanted)
        there = np.zeros(len(wanted), np.bool_)
        inside = places < len(images)
        rows = np.full(len(wanted), len(images), np.int64)
        rows[inside] = order[places[inside]]
        there[inside] = images[rows[inside]] == wanted[inside]
        self.lost = np.flatnonzero(~there & ~np.isin(wanted, list(of.odd_images)))
        rows[~there] = len(images)
        self._order = np.argsort(rows, kind="stable")
        self._ends = np.cumsum(np.bincount(rows, minlength=len(images) + 1))[: len(images)]

    def labelled(self, categories: NDArray[np.int64]) -> None:
        """Replace ids of categories by their numbers among these, which are sorted."""
        labels = self._found.get("label")
        if labels is None:
            return
        # Those of odd annotations, which may be of no category, are of no image here.
        numbers = np.minimum(np.searchsorted(categories, labels), max(len(categories) - 1, 0))
        self._found["label"] = numbers

    def rows(self, begin: int, end: int) -> list[Column]:
        """The fields of the pictures from one to another."""
        start = int(self._ends[begin - 1]) if begin else 0
        chosen = self._order[start : int(self._ends[end - 1])]
        ends = self._ends[begin:end] - start
        columns, found = [], self._found
        if "box" in found:
            columns.append(boxes_column("boxes", found["box"][chosen], ends))
            columns.append(numbers_column("iscrowd", found["crowd"][chosen], ends))
            columns.append(numbers_column("areas", found["area"][chosen], ends))
        if "label" in found:
            columns.append(numbers_column("labels", found["label"][chosen], ends))
        if "segment" in found:
            columns.append(numbers_column("segment_ids", found["segment"][chosen], ends))
        for name in self._of.texts:
            texts = [self._of.text(name, number) for number in chosen.tolist()]
            columns.append(lists_column(TEXTS[name], texts, ends))
        return columns


def integer(data: ObjectBytes, one: Element, name: str) -> int:
    """A member of an object that is a 64-bit integer; FormatError."""
    value = one.value.get(name)
    if type(value) is not int or not -MOST_ID <= value < MOST_ID:
        raise data.damaged(f"{name} is {value!r:.40}, not an integer", one.offset)
    return value
