"""``Yolo``: pictures with a file of labels each, told by ``data.yaml`` or by folders ``images`` and ``labels``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from shardstream.errors import FormatError
from shardstream.faults import FaultKind, fault_kind
from shardstream.formats.contract import ObjectListing, Recognized, SourceFormat, SourceObject
from shardstream.formats.detection.yolo_labels import BadLabels, KeyPoints, Objects, read_labels
from shardstream.formats.detection.yolo_set import found_set
from shardstream.formats.files.names import file_column, key_of, kind_of
from shardstream.formats.scans.held import boxes_column, lists_column, numbers_column
from shardstream.formats.scans.object_bytes import FETCH_AGAIN, ObjectBytes
from shardstream.formats.scans.rows import PIECE, Loss, Remark, ScannedRows, merged, usable_key
from shardstream.pack.sources.media import suffix_of
from shardstream.pack.sources.paths import common_folder
from shardstream.placeholders import find_placeholder
from shardstream.shards.fields import FieldType
from shardstream.sizes import plural
from shardstream.storage import Request, Store, fetch
from shardstream.storage.base.store import ObjectMeta

_LARGEST = 16 << 20  # of a file of labels
_TOGETHER = 256  # files of labels that are read at once
_NO_LABELS = (
    "No label file belongs to any of {values:image}, so none has objects. The labels of an image are where the last "
    "'images' of its path is 'labels', or beside it. The first image is {first}."
)
_UNUSED = "Without an image: {files:label file}, such as {first}."
_CUT = (
    "Outside of their image, whose sides are 1 (are these pixels?): {values:object} in {files:label file}, such as "
    "{first}. They are cut at the edges of the image, or left out if nothing remains, and so are images without a "
    "remaining object."
)
_STRAYS = "With key points outside of their image: {values:object} in {files:label file}, such as {first}."
_NOTHING = Objects([], [], [], [])


class Yolo(SourceFormat):
    """A file of labels a picture."""

    name = "yolo"
    title = "YOLO"
    options: ClassVar[Mapping[str, str]] = {
        "split": "which pictures: train, val or test, as data.yaml or the folders are called",
        "boxes": "'cxcywh' (default): centre, width and height, as they stand; 'xyxy': corners; parts of the picture",
    }
    loose = True

    def recognize(self, listing: ObjectListing, options: Mapping[str, str]) -> Recognized | None:
        found = found_set(listing, options)
        if found is None:
            return None
        pictures = found.pictures
        # Where all names lie: as with folders of pictures, a key is the name without what all share.
        paths = [one.path for one in pictures]
        common = len(common_folder(min(paths), max(paths)))
        kind = kind_of({suffix_of(path) for path in paths}, url=listing.url)
        about = {
            "type": str(kind.type),
            "common": common,
            "classes": None if found.classes is None else len(found.classes),
            "points": list(found.points),
            "boxes": options.get("boxes", "cxcywh"),
        }
        labels = [found.labels.of(path) for path in paths]
        none = sum(one is None for one in labels)
        notes = (f"Without a file of labels, and so without objects: {plural(none, 'picture')}.",) if none else ()
        remarks = []
        if none == len(paths):
            remarks.append(Remark(_NO_LABELS, none, first=paths[0]))
        if unused := found.labels.unused(found.lists):
            remarks.append(Remark(_UNUSED, files=len(unused), first=unused[0]))
        objects = (
            _run(pictures[at : at + PIECE], labels[at : at + PIECE], about if at else {**about, "remarks": remarks})
            for at in range(0, len(pictures), PIECE)
        )
        return Recognized(tuple(objects), found.classes, notes)

    def open(self, store: Store, one: SourceObject) -> ObjectBytes:
        return _Labels(store, one.path)

    def scan(self, data: ObjectBytes, about: Mapping[str, Any]) -> Iterator[ScannedRows]:
        assert isinstance(data, _Labels)
        kept, broken = list[tuple[Sequence[Any], Objects]](), list[Loss]()
        remarks = [Remark(*one) for one in about.get("remarks", ())]
        points = KeyPoints(*about["points"])
        for (path, size, _), labels, found in zip(
            about["files"], about["labels"], data.all(about["labels"]), strict=True
        ):
            try:
                objects = read_labels(found, classes=about["classes"], points=points) if found else _NOTHING
            except BadLabels as error:
                url = data.wrong(labels[0], "").place["url"]
                placeholder = find_placeholder(found)
                what = error if placeholder is None else placeholder.what
                kind: FaultKind = "damaged" if placeholder is None else fault_kind(placeholder)
                broken.append(Loss(f"labels cannot be read: {url}: {what}", 1, kind=kind))
                continue
            if objects.cut:
                remarks.append(Remark(_CUT, objects.cut, 1, labels[0]))
            if objects.strays:
                remarks.append(Remark(_STRAYS, objects.strays, 1, labels[0]))
            if objects.labels or not objects.cut:
                kept.append(((path, size), objects))
        rows = _rows([one for one, _ in kept], [objects for _, objects in kept], about)
        yield replace(rows, broken=tuple(broken), remarks=tuple(merged(remarks)))


def _run(files: Sequence[ObjectMeta], labels: Sequence[ObjectMeta | None], about: Mapping[str, Any]) -> SourceObject:
    """Some pictures as what stands for an object: called as the first of them, and as large as all."""
    known = {
        "files": [[one.path, one.size, one.version] for one in files],
        "labels": [None if one is None else [one.path, one.size, one.version] for one in labels],
    }
    return SourceObject(files[0].path, sum(one.size for one in files), {**about, **known})


class _Labels(ObjectBytes):
    """The files of labels of a run of pictures, which are not read themselves."""

    def __init__(self, store: Store, path: str) -> None:
        self.path, self.url, self.size = path, store.locate(path), 0
        self._store = store

    def all(self, files: Sequence[Sequence[Any] | None]) -> Iterator[bytes]:
        """What is in each of these files; nothing where there is none.

        Raises:
            FormatError: One is not as long as it was, or too long.
            StorageError: It cannot be read.
        """
        for begin in range(0, len(files), _TOGETHER):
            some = files[begin : begin + _TOGETHER]
            wanted = [Request(one[0], 0, one[1]) for one in some if one is not None and 0 < one[1] <= _LARGEST]
            buffers = fetch(self._store, lambda wanted=wanted: wanted)  # type: ignore[misc] # bound at once
            for one in some:
                if one is None or not one[1]:
                    yield b""
                    continue
                if one[1] > _LARGEST:
                    raise self.wrong(one[0], f"{one[1]} bytes are too many for the labels of a picture")
                yield bytes(buffers.view(one[0], 0, one[1]))

    def wrong(self, path: str, what: str) -> FormatError:
        """The error for a file of labels."""
        return FormatError(what, url=self._store.locate(path), hint=FETCH_AGAIN)


def _rows(files: Sequence[Sequence[Any]], found: Sequence[Objects], about: Mapping[str, Any]) -> ScannedRows:
    paths = [path for path, _ in files]
    kind = FieldType.parse(about["type"])
    ends = np.cumsum([len(one.labels) for one in found], dtype=np.int64)
    boxes = np.array([number for one in found for number in one.boxes], np.float64).reshape(-1, 4)
    if about["boxes"] == "xyxy":
        half = boxes[:, 2:] / 2
        boxes = np.concatenate((boxes[:, :2] - half, boxes[:, :2] + half), 1)
    labels = np.array([label for one in found for label in one.labels], np.int64)
    columns = [
        boxes_column("boxes", boxes.astype(np.float32), ends),
        file_column(str(kind), kind, paths, [size for _, size in files]),
        numbers_column("labels", labels, ends),
    ]
    for name, values in (
        ("keypoints", [one for objects in found for one in objects.points]),
        ("polygons", [one for objects in found for one in objects.polygons]),
    ):
        if any(value is not None for value in values):
            texts = [json.dumps(value, separators=(",", ":")).encode() for value in values]
            columns.append(lists_column(name, texts, ends))
    keys = [usable_key(key_of(path, about["common"])) for path in paths]
    return ScannedRows(keys, tuple(sorted(columns, key=lambda one: one.name)))
