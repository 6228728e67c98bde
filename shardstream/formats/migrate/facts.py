"""``Facts``: what code for a data set has to name, found out once."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from shardstream.dataset.dataset_rows import DatasetRows
from shardstream.dataset.opened import OpenedDataset
from shardstream.errors import DataError
from shardstream.formats.catalog.catalog import Catalogue
from shardstream.formats.migrate.columns import own_columns
from shardstream.formats.migrate.writing import variable
from shardstream.formats.scans.rows import START, image_type
from shardstream.names.braces import without_braces
from shardstream.options import SourceOptions
from shardstream.shards.fields import IMAGE, FieldType, ValuesType
from shardstream.storage import PathOrUrl, locate

_LABELS = ("cls", "label", "labels", "target", "class", "class_id", "category", "fine_label", "y")
_TEXTS = ("txt", "text", "caption", "content", "sentence")
_PICTURES = ("image", "img", "jpg", "png", "picture", "pil", "0")
_DETECTION = ("coco", "yolo")
_TOKENS = ("tokens", "input_ids", "ids")
_LOCAL_INDEXES, _REMOTE_INDEXES = 4096, 64  # that are read for labels
_LOOKED_AT = 32  # samples, for their first bytes
_MOST_CLASSES = 1 << 20
_MOST_NAMES = 100_000  # in braces
_DESCRIBING = ("cls.csv", "state.json")
_LINE = 4096
LISTS = (".tsv", ".csv", ".txt", ".lst")
"""What lists of files end with."""
_RUNS = re.compile(r"([0-9]+)")


@dataclass(frozen=True, slots=True)
class Facts:
    """What code for a data set has to name.

    Attributes:
        url: The data set, as it was typed, without what the URL held of secrets.
        folder: The folder or place that names of objects are below, as it was typed.
        local: Whether it is on this machine.
        source: Name of the format.
        reading: How it is read.
        names: The objects in order, below the folder.
        fields: All fields.
        damaged: Whether some values of a field of images are no images.
        picture: The field of pictures, if any.
        label: The field of the class of a sample, if any.
        chosen: The fields that a batch has in the code, the picture first.
        columns: What the library calls fields, where it is something else.
        encodings: How it encodes columns, where it says so.
        first_key: The key of the first sample.
        first_file: Where values are files: that of the first sample's picture, below the folder.
        first_line: Of a list of files, its first line.
        beside: Which files that describe others lie beside the data.
        classes: How many classes there are, if anything says it.
        named: Whether their names are known; else the largest label says how many there are.
        crop: Side of random crops.
        batch_size: Samples a batch.
        workers: Worker processes.
    """

    url: str
    folder: str
    local: bool
    source: str
    reading: SourceOptions
    names: tuple[str, ...]
    fields: Mapping[str, FieldType]
    damaged: bool
    picture: str | None
    label: str | None
    chosen: tuple[str, ...]
    columns: Mapping[str, str]
    encodings: Mapping[str, str]
    first_key: str
    first_file: str
    first_line: str
    beside: frozenset[str]
    classes: int | None
    named: bool
    crop: int
    batch_size: int
    workers: int

    def column(self, field: str) -> str:
        """What the library calls a field."""
        return self.columns.get(field, field)

    def path(self, name: str = "") -> str:
        """An object of the data set, as a path or URL."""
        return f"{self.folder}/{name}" if name else self.folder

    @property
    def variables(self) -> list[str]:
        """A name for the values of each chosen field in a batch."""
        told = {self.picture: "images", self.label: "labels"}
        texts = [name for name in self.chosen if self.fields[name].name == "str"]
        told |= dict.fromkeys(texts, "texts") if len(texts) == 1 else {}
        return [told.get(name) or variable(name) for name in self.chosen]

    @property
    def boxes(self) -> bool:
        """Whether a batch has boxes that follow the picture."""
        return self.source in _DETECTION and {self.picture, "boxes"} <= set(self.chosen)

    @property
    def pattern(self) -> str | None:
        """The names of all objects with their numbers in braces; ``None`` where they are not called so."""
        return in_braces(self.names)


def gather(
    url: PathOrUrl,
    dataset: OpenedDataset,
    *,
    reading: SourceOptions,
    crop: int,
    batch_size: int,
    workers: int,
) -> Facts:
    """The facts of an opened data set of another library.

    Args:
        url: As a user typed it.
        dataset: The same, opened.
        reading: How it is read.
        crop: Side of random crops.
        batch_size: Samples a batch.
        workers: Worker processes.

    Raises:
        StorageError, DataError: It cannot be read.
    """
    manifest = dataset.manifest
    assert isinstance(manifest, Catalogue)
    shown = shown_url(url)
    files = bool(dataset.address.selection.names)
    folder = (shown.rpartition("/")[0] or ("/" if shown.startswith("/") else ".")) if files else shown.rstrip("/")
    fields = _with_images(dataset)
    source, label = manifest.reading.source, _label(fields)
    picture = _picture(fields)
    names = tuple(object_names(manifest))
    own = own_columns(dataset, names[0], picture, label)
    return Facts(
        url=shown,
        folder=folder or "/",
        local=dataset.location.local,
        source=source,
        reading=reading,
        names=names,
        fields=fields,
        damaged=picture is not None and fields[picture].is_image != manifest.fields[picture].is_image,
        picture=picture,
        label=label,
        chosen=_chosen(source, fields, picture, label),
        columns=own.names,
        encodings=own.encodings,
        first_key=str(dataset.open(0).index.keys[0]),
        first_file=_first_file(dataset, picture),
        first_line=_first_line(dataset, names[0]) if names[0].lower().endswith(LISTS) else "",
        beside=frozenset(name for name in _DESCRIBING if not files and dataset.store.exists(name)),
        classes=_count_classes(dataset, label),
        named=manifest.classes is not None,
        crop=crop,
        batch_size=batch_size,
        workers=workers,
    )


def shown_url(url: PathOrUrl) -> str:
    """What code may call a place: as it was typed, but without what the URL held of secrets."""
    location = locate(url)
    return os.fspath(url) if location.local and isinstance(url, str | os.PathLike) else location.url


def object_names(manifest: Catalogue) -> Iterator[str]:
    """The objects of a catalogue below its root, in order."""
    start = 0
    for end in manifest.objects.name_ends.tolist():
        yield str(manifest.objects.names[start:end], "utf-8")
        start = end


def in_braces(names: tuple[str, ...]) -> str | None:
    """Names that count up, as one name with the numbers in braces; ``None`` where they do not.

    >>> in_braces(("train-008.tar", "train-009.tar", "train-010.tar"))
    'train-{008..010}.tar'
    """
    if not names or any("{" in name for name in (names[0], names[-1])):
        return None
    first, last = _RUNS.split(names[0]), _RUNS.split(names[-1])  # what is odd are digits
    differing = [i for i, (one, other) in enumerate(zip(first, last, strict=False)) if one != other]
    if len(names) == 1:
        return names[0]
    if len(first) != len(last) or len(differing) != 1 or not differing[0] % 2:
        return None
    (run,) = differing
    if int(last[run]) - int(first[run]) != len(names) - 1:
        return None
    pattern = "".join([*first[:run], f"{{{first[run]}..{last[run]}}}", *first[run + 1 :]])
    return pattern if len(names) <= _MOST_NAMES and tuple(without_braces(pattern)) == names else None


def _with_images(dataset: OpenedDataset) -> Mapping[str, FieldType]:
    """The fields; one of bytes is one of images if most of its values are: the others are damaged."""
    fields = dict(dataset.manifest.fields)
    names = [name for name, kind in fields.items() if kind.name == "bytes"]
    if not names or any(kind.is_image for kind in fields.values()):
        return fields
    numbers = np.unique(np.linspace(0, dataset.manifest.samples - 1, _LOOKED_AT).astype(np.int64))
    with suppress(DataError):
        batch = DatasetRows(dataset).read_ids(numbers, present=True, fields=names)
        samples = [batch.values(row) for row in range(len(numbers))]
        for name in names:
            images = [image_type(one[name][:START]) is not None for one in samples if one.get(name) is not None]
            if 2 * sum(images) > len(images):
                fields[name] = FieldType.parse(IMAGE)
    return fields


def _label(fields: Mapping[str, FieldType]) -> str | None:
    numbers = [name for name, kind in fields.items() if kind.kind == "scalar" and kind.dtype.kind in "iu"]  # type: ignore[union-attr] # scalars have one
    return next((name for name in _LABELS if name in numbers), None)


def _picture(fields: Mapping[str, FieldType]) -> str | None:
    files = [name for name, kind in fields.items() if kind.is_image]
    arrays = [name for name, kind in fields.items() if _is_pixels(name, kind)]
    found = [*files, *arrays]
    return next((name for name in _PICTURES if name in found), found[0] if found else None)


def _is_pixels(name: str, kind: FieldType) -> bool:
    if kind.kind == "fixed":
        return kind.dtype == np.uint8 and len(kind.shape or ()) == 3 and (kind.shape or ())[-1] in (1, 3)
    return kind.name == "array" and name in _PICTURES


def _chosen(source: str, fields: Mapping[str, FieldType], picture: str | None, label: str | None) -> tuple[str, ...]:
    """What a training loop most likely takes: never nothing."""
    texts = [name for name, kind in fields.items() if kind.name == "str"]
    text = next((name for name in _TEXTS if name in texts), texts[0] if texts else None)
    tokens = [name for name, kind in fields.items() if isinstance(kind, ValuesType)]
    row = next((name for name in _TOKENS if name in fields), tokens[0] if tokens else None)
    if source in _DETECTION and picture is not None and "boxes" in fields:
        return tuple(name for name in (picture, "boxes", "labels") if name in fields)
    first = picture or row or text
    if first is not None:
        second = label or (text if picture is not None else None)
        return (first,) if second in (None, first) else (first, second)
    plain = [name for name, kind in fields.items() if kind.kind != "payload"]
    return tuple(plain or fields)


def _first_file(dataset: OpenedDataset, picture: str | None) -> str:
    """The first picture, where pictures are files of their own; else nothing."""
    column = dataset.open(0).index.columns.get(picture or "")
    if column is None or column.names is None or column.name_ends is None:
        return ""
    end = next((int(one) for one in column.name_ends if one), 0)
    return column.names[:end].tobytes().decode()


def _first_line(dataset: OpenedDataset, name: str) -> str:
    start = bytes(dataset.store.get(name, 0, min(dataset.store.size(name), _LINE)))
    return start.decode("utf-8", "replace").partition("\n")[0].rstrip("\r")


def _count_classes(dataset: OpenedDataset, label: str | None) -> int | None:
    """How many classes there are: of names, else by the largest label, where not too many indexes say it."""
    if dataset.manifest.classes is not None:
        return len(dataset.manifest.classes)
    most = _LOCAL_INDEXES if dataset.location.local else _REMOTE_INDEXES
    if label is None or dataset.manifest.shards > most:
        return None
    largest = -1
    for number in range(dataset.manifest.shards):
        column = dataset.open(number).index.columns.get(label)
        if column is not None and column.values is not None and len(column.values):
            if int(column.values.min()) < 0:
                return None
            largest = max(largest, int(column.values.max()))
    return largest + 1 if 0 <= largest < _MOST_CLASSES else None
