"""Annotations of COCO in whatever order they stand: fifty bytes each are held, then they are put beside pictures."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import FormatError
from shardstream.shards.foreign.formats.detection.json_stream import Element
from shardstream.shards.foreign.held import boxes_column, lists_column, numbers_column
from shardstream.shards.foreign.object_bytes import ObjectBytes
from shardstream.shards.foreign.text_spool import TextSpool
from shardstream.shards.index import Column

TEXTS = {"segmentation": "masks", "caption": "captions", "keypoints": "keypoints"}
"""Members of annotations that are kept as the JSON that they are, and the fields that they become."""
MOST_ID = 1 << 63
_LARGEST = 1e38  # so that no sum of two is more than a float32 holds


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
        self._boxes = array("f")
        self._labels = array("q")
        self._crowds = array("B")
        self._areas = array("f")
        self._segments = array("q")
        self._texts = {name: TextSpool(data) for name in texts}

    def __len__(self) -> int:
        return len(self._images)

    def add(self, one: Element) -> None:
        """Take one into account; FormatError where it is none."""
        value = one.value
        if not isinstance(value, dict):
            raise self._data.damaged("an annotation is not an object", one.offset)
        if "segments_info" not in value:
            self._add(one)
            return
        segments = value["segments_info"]
        if not isinstance(segments, list) or not all(isinstance(segment, dict) for segment in segments):
            raise self._data.damaged("segments_info of an annotation is not a list of objects", one.offset)
        for segment in segments:
            part = Element(one.offset, {**segment, "image_id": value.get("image_id")}, {})
            self._segments.append(integer(self._data, part, "id"))
            self._add(part)

    def _add(self, one: Element) -> None:
        value = one.value
        count = len(self._images)
        self._images.append(integer(self._data, one, "image_id"))
        self._offsets.append(one.offset)
        if "category_id" in value:
            self._labels.append(integer(self._data, one, "category_id"))
        if "bbox" in value:
            x, y, width, height = self._numbers(one, "bbox", 4)
            self._boxes.extend((x, y, x + width, y + height))
            area = value.get("area", width * height)
            self._areas.append(self._number(one, "area", area))
            crowd = value.get("iscrowd", 0)
            if crowd not in (0, 1):
                raise self._data.damaged(f"iscrowd of an annotation is {crowd!r:.40}", one.offset)
            self._crowds.append(crowd)
        lengths = len(self._boxes) // 4, len(self._labels), len(self._segments)
        if any(length not in (0, count + 1) for length in lengths):
            raise self._data.damaged(
                "some annotations have a bbox, category_id or segments_info, and this one differs", one.offset
            )
        for name, texts in self._texts.items():
            place = one.places.get(name)
            texts.add(*((0, 0) if place is None else (place[0], place[1] - place[0])))

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
        """The annotations of each of these images, by their ids.

        Raises:
            FormatError: An annotation says a category, and others none.
        """
        return BesideImages(self, images)

    @property
    def columns(self) -> dict[str, NDArray[Any]]:
        """What is known of each, in the order of the file; only what all have."""
        found: dict[str, NDArray[Any]] = {"image": np.frombuffer(self._images, np.int64)}
        found["offset"] = np.frombuffer(self._offsets, np.int64)
        if len(self._labels):
            found["label"] = np.frombuffer(self._labels, np.int64)
        if len(self._boxes):
            found["box"] = np.frombuffer(self._boxes, np.float32).reshape(-1, 4)
            found["crowd"] = np.frombuffer(self._crowds, np.uint8)
            found["area"] = np.frombuffer(self._areas, np.float32)
        if len(self._segments):
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
    def panoptic(self) -> bool:
        """Whether they are segments, whose pixels are in files of their own."""
        return len(self._segments) > 0

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
        self.lost = np.flatnonzero(~there)
        rows[~there] = len(images)
        self._order = np.argsort(rows, kind="stable")
        self._ends = np.cumsum(np.bincount(rows, minlength=len(images) + 1))[: len(images)]

    def labelled(self, categories: NDArray[np.int64]) -> None:
        """Replace ids of categories by their numbers among these, which are sorted; FormatError."""
        labels = self._found.get("label")
        if labels is None:
            return
        numbers = np.minimum(np.searchsorted(categories, labels), max(len(categories) - 1, 0))
        wrong = np.flatnonzero(categories[numbers] != labels) if len(categories) else np.arange(len(labels))
        if len(wrong):
            first = int(wrong[0])
            raise self._of.error(f"an annotation is of category {labels[first]}, which is not in the file", first)
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
