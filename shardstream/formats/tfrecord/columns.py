"""What the features of Examples become: fields of our types, decided from all samples of an object.

A list of one value and a list of several are written alike, so no sample alone says what a feature is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import FormatError
from shardstream.formats.scans.object_bytes import ObjectBytes
from shardstream.formats.scans.protobuf import Bytes, Places, Spans, cut_out
from shardstream.formats.scans.rows import ScannedRows, common_type, numbered_keys, pieces, usable_key
from shardstream.formats.scans.whole_column import WholeColumn, image_types
from shardstream.formats.tfrecord import examples
from shardstream.formats.tfrecord.examples import BYTES, FLOATS, INTS, Feature, Lists
from shardstream.shards.field_names import usable_field
from shardstream.shards.fields import FieldType, type_of_extension

LABEL = "image/class/label"
RECORD = "record"
_KEYS = ("__key__", "key", "image/filename", "file_name")
_IMAGE = "image/encoded"
_OBJECTS = "image/object/"  # one value an object of the picture, however many there are
_TEXT = {
    "file_name",
    "filename",
    "image/class/synset",
    "image/class/text",
    "image/colorspace",
    "image/filename",
    "image/format",
    "image/key/sha256",
    "image/source_id",
}
_NUMBERS = {FLOATS: "float32", INTS: "int64"}
_KINDS = {BYTES: "bytes", **_NUMBERS}


class ExampleBlock(NamedTuple):
    """Some records of an object.

    Attributes:
        base: Where the bytes begin in the object.
        raw: The bytes.
        records: The records, as indices into the bytes.
    """

    base: int
    raw: Bytes
    records: Spans


@dataclass(slots=True)
class _Gathered:
    """The values of one feature so far, all places in the object."""

    features: list[Feature] = field(default_factory=list)
    starts: set[str | None] = field(default_factory=set)  # of images, among the values that were looked at
    texts: list[bytes] = field(default_factory=list)  # where they may be keys
    floats: list[NDArray[np.float32]] = field(default_factory=list)  # first values

    def look(self, raw: Bytes, feature: Feature, row: int) -> None:
        """Read what is needed of a block's values while it is at hand; ``row`` samples are before it."""
        kind, span, count, first = feature.lists
        chosen = np.flatnonzero((kind == BYTES) & (count == 1))
        if feature.name in _KEYS:
            begins, ends = first[chosen].tolist(), span.end[chosen].tolist()
            view = raw.data
            self.texts += [bytes(view[begin:end]) for begin, end in zip(begins, ends, strict=True)]
        self.starts |= image_types(raw, Spans(first[chosen], span.end[chosen]), feature.rows[chosen] + row)
        if (floats := np.flatnonzero((kind == FLOATS) & (count > 0))).size:
            values = np.zeros(len(kind), np.float32)
            values[floats] = cut_out(raw, first[floats], 4).view("<f4")[:, 0]
            self.floats.append(values)
        else:
            self.floats.append(np.zeros(len(kind), np.float32))

    def joined(self) -> Feature:
        """All of them."""
        parts = [(one.rows, one.least, *one.lists.span, one.lists.kind, *one.lists[2:]) for one in self.features]
        rows, least, begin, end, kind, count, first = [np.concatenate(part) for part in zip(*parts, strict=True)]
        one = self.features[0]
        return Feature(one.name, one.framed, rows, Lists(kind, Spans(begin, end), count, first), least)


@dataclass(slots=True)
class _Records:
    """Where records lie, for those that are not Examples."""

    begins: list[Places] = field(default_factory=list)
    ends: list[Places] = field(default_factory=list)
    starts: set[str | None] = field(default_factory=set)

    def add(self, block: ExampleBlock, records: Spans, row: int) -> None:
        self.begins.append(records.begin + block.base)
        self.ends.append(records.end + block.base)
        self.starts |= image_types(block.raw, records, np.arange(row, row + len(records.begin)))

    def column(self) -> WholeColumn:
        begins = np.concatenate(self.begins)
        kind = common_type(self.starts, "bytes")
        return WholeColumn(RECORD, kind, np.arange(len(begins)), begins, np.concatenate(self.ends) - begins)


class Samples:
    """The samples of an object, added block by block; then its rows.

    Args:
        data: The object.
        format: The name that codecs begin with.
        about: ``lists``, names of features that are lists even where all have one value; ``text``, names of those that
            are UTF-8; ``label``, the name of the class label; ``first_label``, the label of class 0.

    Attributes:
        count: Samples so far.
    """

    def __init__(self, data: ObjectBytes, format: str, about: Mapping[str, Any]) -> None:
        self.count = 0
        self._data = data
        self._format = format
        self._lists = frozenset(about.get("lists", ()))
        self._text = _TEXT.union(about.get("text", ()))
        self._labels = [name for name in (about.get("label"), LABEL, "label") if name]
        self._first_label = about.get("first_label", 0)
        self._features: dict[tuple[bool, str], _Gathered] = {}
        self._records = _Records()
        self._plain = False  # whether records are bytes, since the first is not an Example

    def add(self, block: ExampleBlock) -> None:
        """The next records.

        Raises:
            FormatError: One is not an Example, as the first is; those before it are added.
        """
        good, bad = len(block.records.begin), None
        if not self._plain:
            good, features, bad = examples.whole(block.raw, block.records)
            self._plain = bad is not None and good == self.count == 0
            names = self._features.keys() | {(one.framed, one.name) for one in features}
            if len(names) > examples.MOST_FEATURES:
                what = f"samples have more than {examples.MOST_FEATURES} features"
                raise self._data.unsupported(what, block.base, hint="write them with fewer features")
            for feature in features:
                self._add(block, feature)
        if self._plain:
            good = len(block.records.begin)
        self._records.add(block, block.records.where(np.arange(good)), self.count)
        self.count += good
        if bad is not None and not self._plain:
            raise self._data.damaged(
                f"record {self.count} is not a tf.train.Example, as those before it are: {bad}", block.base + bad.at
            )

    def _add(self, block: ExampleBlock, feature: Feature) -> None:
        known = self._features.setdefault((feature.framed, feature.name), _Gathered())
        kind, span, count, first = feature.lists
        if not feature.framed:
            known.look(block.raw, feature, self.count)
            first = np.where(kind == INTS, first, first + block.base)
        moved = Lists(kind, Spans(span.begin + block.base, span.end + block.base), count, first)
        known.features.append(Feature(feature.name, feature.framed, feature.rows + self.count, moved, feature.least))

    def rows(self, damage: FormatError | None) -> Iterator[ScannedRows]:
        """All samples, in pieces.

        Raises:
            FormatError: A feature has values of two types, or two features have the same name here.
        """
        keys = self._keys()
        columns = self._columns()
        for begin, end in pieces(self.count):
            found = [column.piece(begin, end) for column in columns]
            named = keys[begin:end] if keys else numbered_keys(self._data.path, begin, end - begin)
            kept = tuple(column for column in found if column is not None)
            yield ScannedRows(named, kept, damage if end == self.count else None)

    def _keys(self) -> list[str] | None:
        for name in _KEYS:
            known = self._features.get((False, name))
            if known is None or len(known.texts) != self.count:
                continue
            keys = _usable_keys(known.texts)
            if all(keys) and len(set(keys)) == self.count:
                return keys
        return None

    def _columns(self) -> list[WholeColumn]:
        columns: dict[str, WholeColumn] = {}
        for (framed, name), known in sorted(self._features.items()):
            feature = known.joined()
            self._check(feature)
            made = self._frames(feature) if framed else self._values(feature, known)
            if made is None or name == "__key__":
                continue
            if made.name in columns:
                what = f"feature {name!r} and another are both called {made.name!r} here"
                raise self._data.unsupported(what, 0, hint="write the records again, with one of them renamed")
            columns[made.name] = made
        for name in self._labels:
            if "cls" not in columns and (label := columns.get(usable_field(name))) and label.kind.name == "int64":
                del columns[label.name]
                first = self._first_label if name == LABEL else 0
                columns["cls"] = label._replace(name="cls", values=label.values - first)
        picture = columns.get(usable_field(_IMAGE))
        if "jpg" not in columns and picture is not None and picture.lengths is not None and picture.codec == "none":
            columns["jpg"] = columns.pop(picture.name)._replace(name="jpg")
        if not columns and self.count:
            columns[RECORD] = self._records.column()
        return [column for _, column in sorted(columns.items())]

    def _check(self, feature: Feature) -> None:
        kinds, begins = feature.lists.kind, feature.lists.span.begin
        said = np.flatnonzero(kinds)
        if len(said) and (other := said[kinds[said] != kinds[said[0]]]).size:
            one, two = _KINDS[int(kinds[said[0]])], _KINDS[int(kinds[other[0]])]
            raise self._data.unsupported(
                f"feature {feature.name!r} has values of two types, {one} and {two}",
                int(begins[other[0]]),
                hint="write the file again with one type for each feature",
            )

    def _values(self, feature: Feature, known: _Gathered) -> WholeColumn | None:
        name, field_name = feature.name, usable_field(feature.name)
        said = feature.lists.kind > 0
        if not said.any():
            return None
        rows, lists = feature.rows[said], feature.lists.at(said)
        kind, most = int(lists.kind[0]), int(lists.counts.max())
        several = name in self._lists or name.startswith(_OBJECTS)
        if kind == BYTES and most <= 1 and not several:
            has = lists.counts == 1
            otherwise = "str" if name in self._text else type_of_extension(field_name.rpartition(".")[2]).name
            values = lists.first[has]
            kept = common_type(known.starts, otherwise)
            return WholeColumn(field_name, kept, rows[has], values, lists.span.end[has] - values)
        equal = bool((lists.counts == most).all()) and not several
        if kind != BYTES and equal and most == 1:
            numbers = lists.first if kind == INTS else np.concatenate(known.floats)[said]
            return WholeColumn(field_name, FieldType.parse(_NUMBERS[kind]), rows, numbers)
        if kind == FLOATS and equal and most > 1 and bool((lists.first > lists.span.begin + 1).all()):
            return WholeColumn(field_name, FieldType.parse(f"array:float32:{most}"), rows, lists.first)
        form = {BYTES: "bytes", FLOATS: "floats", INTS: "ints"}[kind]
        return self._formed(field_name, "msgpack" if kind == BYTES else "array", rows, lists.span, form)

    def _frames(self, feature: Feature) -> WholeColumn | None:
        lists, said = feature.lists, feature.lists.kind > 0
        if not said.any():
            return None
        some = lists.span.begin < lists.span.end
        least, most = feature.least[some], lists.counts[some]
        rank = 1 if bool((least == 1).all() and (most == 1).all()) else 2 if bool((least == most).all()) else 0
        kind = int(lists.kind[said][0])
        stored = "msgpack" if kind == BYTES or rank == 0 else "array"
        form = f"frames:{_KINDS[kind]}:{1 if rank == 1 else 0 if kind == BYTES else rank}"
        return self._formed(usable_field(feature.name), stored, feature.rows, lists.span, form)

    def _formed(self, name: str, kind: str, rows: Places, span: Spans, form: str) -> WholeColumn:
        codec = f"{self._format}.{form}"
        return WholeColumn(name, FieldType.parse(kind), rows, span.begin, span.end - span.begin, codec)


def _usable_keys(texts: list[bytes]) -> list[str]:
    """`usable_key` of each."""
    joined = b"\n".join(texts)
    if joined.isascii() and b"/" not in joined and joined.count(b"\n") == len(texts) - 1:
        return joined.decode().split("\n")  # as almost always, and several times faster
    return [usable_key(text.decode("utf-8", "surrogateescape")) for text in texts]
