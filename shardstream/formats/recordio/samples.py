"""What the records of RecordIO files hold: images with a header, as ``im2rec`` and insightface write them, or bytes.

The header is one label, or the number of labels that follow it, and two ids. Sets of faces have a record of no image
with id 0, whose two labels say which ids are records of identities: these are not samples either.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import FormatError
from shardstream.formats.scans.object_bytes import ObjectBytes
from shardstream.formats.scans.protobuf import Places, Spans, cut_out
from shardstream.formats.scans.rows import ScannedRows, common_type, numbered_keys, pieces, usable_key
from shardstream.formats.scans.whole_column import WholeColumn, image_types
from shardstream.shards.fields import FieldType

IMAGE_HEADER = 24
_HEADER = np.dtype([("flag", "<u4"), ("label", "<f4"), ("id", "<u8"), ("id2", "<u8")])
_HEAD = 8
_LABEL = 4
_LARGEST_ID = 2.0**62  # above it a float may be no int64
_EXACT = 2.0**24  # from it on a float32 stands for several integers: which of them was written, nothing tells


class RecordParts(NamedTuple):
    """Some records: where they begin and end, the bytes of their first parts, and whether they have others."""

    begin: Places
    end: Places
    length: Places
    split: NDArray[np.bool_]


class _Block(NamedTuple):
    """What is known of some records, all places in the object."""

    begin: Places
    end: Places
    split: NDArray[np.bool_]
    length: Places
    labels: Places  # how many follow the header
    label: NDArray[np.float32]  # the one of the header, or the first that follows
    second: NDArray[np.float32]  # the second that follows
    id: NDArray[np.uint64]

    def at(self, chosen: NDArray[Any]) -> _Block:
        return _Block(*(column[chosen] for column in self))

    @property
    def value(self) -> Places:
        """Where the bytes after header and labels begin."""
        return self.begin + _HEAD + IMAGE_HEADER + _LABEL * self.labels

    @property
    def filled(self) -> NDArray[np.bool_]:
        """Whether there are such bytes."""
        filled: NDArray[np.bool_] = self.split | (self.length > IMAGE_HEADER + _LABEL * self.labels)
        return filled


class ImageRecords:
    """The records of an object, added block by block; then its rows.

    Args:
        data: The object.
        format: The name that codecs begin with.

    Attributes:
        count: ImageRecords so far.
    """

    def __init__(self, data: ObjectBytes, format: str) -> None:
        self.count = 0
        self._data = data
        self._format = format
        self._blocks: list[_Block] = []
        self._plain = False  # whether records are bytes, since the first has no header
        self._starts: set[str | None] = set()

    def add(self, base: int, view: memoryview, parts: RecordParts) -> None:
        """The next records, in bytes that begin at ``base``.

        Raises:
            FormatError: One has no header, as the first has; those before it are added.
        """
        raw = np.frombuffer(view, np.uint8)
        found = _headers(raw, parts)
        good = parts.length >= IMAGE_HEADER + _LABEL * found.labels
        if self.count == 0:
            self._plain = not good[0]
        number = len(good) if self._plain or good.all() else int(np.argmin(good))
        kept = found.at(np.arange(number))
        if self._plain:
            values = Spans(kept.begin + _HEAD, kept.begin + _HEAD + kept.length)
        else:
            filled = np.flatnonzero(kept.filled)
            values = Spans(kept.value, kept.begin + _HEAD + kept.length).where(filled)
        rows = np.arange(self.count, self.count + number) if self._plain else self.count + filled
        self._starts |= image_types(raw, values, rows)
        self._blocks.append(kept._replace(begin=kept.begin + base, end=kept.end + base))
        self.count += number
        if number < len(good):
            at = base + int(parts.begin[number])
            raise self._data.damaged(f"record {self.count} has no header of an image, as those before it have", at)

    def rows(self, about: Mapping[str, Any], damage: FormatError | None) -> Iterator[ScannedRows]:
        """All samples, in pieces.

        Args:
            about: ``idx`` and ``lst``: path and size of these files, if they are there.
            damage: What follows the last of them.

        Raises:
            FormatError: One of these files is of another object, or malformed.
        """
        if not self.count:
            return
        columns = zip(*self._blocks, strict=True)
        whole = _Block(*(np.concatenate(column) for column in columns))
        if "idx" in about and damage is None:
            whole = self._indexed(whole, *about["idx"])
        if self._plain:
            samples, found = whole, [self._bytes(whole)]
        else:
            chosen, faces = _images(whole)
            samples = whole.at(chosen)
            found = self._columns(samples, faces)
        count = len(samples.begin)
        if damage is not None and not count:
            raise damage
        keys = self._keys(samples, about)
        for begin, end in pieces(count):
            named = keys[begin:end] if keys else numbered_keys(self._data.path, begin, end - begin)
            cut = [column.piece(begin, end) for column in found]
            yield ScannedRows(named, tuple(one for one in cut if one is not None), damage if end == count else None)

    # ------------------------------------------------------------------------------------------------------- fields

    def _bytes(self, records: _Block) -> WholeColumn:
        kind = common_type(self._starts, "bytes")
        rows = np.arange(len(records.begin))
        if records.split.any():
            return self._formed("record", kind, rows, records.begin, records.end, "record")
        return WholeColumn("record", kind, rows, records.begin + _HEAD, records.length)

    def _columns(self, samples: _Block, faces: bool) -> list[WholeColumn]:
        found = []
        filled = np.flatnonzero(samples.filled)
        some, kind = samples.at(filled), common_type(self._starts, "bytes")
        name = "jpg" if kind.is_image else "data"
        if some.split.any():
            found.append(self._formed(name, kind, filled, some.begin, some.end, "image"))
        elif len(filled):
            found.append(WholeColumn(name, kind, filled, some.value, some.begin + _HEAD + some.length - some.value))
        found += _label(samples, faces)
        several = np.flatnonzero(samples.labels)
        if len(several):
            found.append(self._labels(samples.at(several), several))
        return sorted(found, key=lambda column: column.name)

    def _labels(self, samples: _Block, rows: Places) -> WholeColumn:
        begin, number = samples.begin + _HEAD + IMAGE_HEADER, int(samples.labels[0])
        if bool((samples.labels == number).all()):
            return WholeColumn("labels", FieldType.parse(f"array:float32:{number}"), rows, begin)
        return self._formed("labels", FieldType.parse("array"), rows, begin, begin + _LABEL * samples.labels, "labels")

    def _formed(self, name: str, kind: FieldType, rows: Places, begin: Places, end: Places, form: str) -> WholeColumn:
        return WholeColumn(name, kind, rows, begin, end - begin, f"{self._format}.{form}")

    # ------------------------------------------------------------------------------------------------------ sidecars

    def _indexed(self, records: _Block, path: str, size: int) -> _Block:
        """The records with the ids of an ``.idx``, which has to name exactly these."""
        index = self._data.beside(path, size)
        try:
            lines = [line.split(b"\t") for line in bytes(index.get(0, size)).splitlines() if line.strip()]
            offsets = np.array([int(line[-1]) for line in lines], np.int64)
        except (ValueError, OverflowError) as error:
            raise index.damaged(f"a malformed .idx: {error}", 0, hint="write it again, or take it away") from error
        order = np.argsort(offsets, kind="stable")
        if not np.array_equal(offsets[order], records.begin):
            strange = np.setdiff1d(offsets, records.begin)
            what = (
                f"it names byte {strange[0]}, where no record begins"
                if len(strange)
                else f"it names {len(offsets)} records of {len(records.begin)}"
            )
            raise FormatError(
                f"{path} is not the index of {self._data.path}: {what}",
                url=index.url,
                hint="write it again, or take it away: it is not needed",
            )
        try:
            return records._replace(id=np.array([int(lines[row][0]) for row in order.tolist()], np.uint64))
        except (ValueError, OverflowError):
            return records  # its keys are not numbers

    def _keys(self, samples: _Block, about: Mapping[str, Any]) -> list[str] | None:
        """Paths of an ``.lst``, else the ids, where each is another; ``None`` where neither."""
        ids = samples.id.tolist()
        if self._plain and "idx" not in about:
            return None
        if len(set(ids)) < len(ids):
            return None
        if "lst" in about:
            paths = self._listed(*about["lst"])
            lacking = next((one for one in ids if one not in paths), None)
            if lacking is not None:
                raise FormatError(
                    f"{about['lst'][0]} is not the list of {self._data.path}: it has no line {lacking}",
                    url=self._data.url,
                    hint="take it away: then samples are called by their ids",
                )
            keys = [usable_key(paths[one]) for one in ids]
            return keys if all(keys) and len(set(keys)) == len(keys) else None
        prefix = numbered_keys(self._data.path, 0, 1)[0].rpartition("/")[0]
        return [f"{prefix}/{one:08d}" for one in ids]

    def _listed(self, path: str, size: int) -> dict[int, str]:
        """The paths of an ``.lst`` by id: they are keys, and never opened."""
        found = self._data.beside(path, size)
        paths = {}
        for number, line in enumerate(bytes(found.get(0, size)).splitlines(), 1):
            parts = line.split(b"\t")
            if not line.strip():
                continue
            try:
                paths[int(parts[0])] = parts[-1].strip().decode("utf-8", "surrogateescape")
            except ValueError as error:
                raise FormatError(
                    f"a malformed .lst: {error}", url=found.url, line=number, hint="write it again, or take it away"
                ) from error
        return paths


def _headers(raw: NDArray[np.uint8], parts: RecordParts) -> _Block:
    """The headers of records; zeros where there is no room for one."""
    count = len(parts.begin)
    headers = np.zeros(count, _HEADER)
    rows = np.flatnonzero(parts.length >= IMAGE_HEADER)
    headers[rows] = cut_out(raw, parts.begin[rows] + _HEAD, IMAGE_HEADER).view(_HEADER)[:, 0]
    number = headers["flag"].astype(np.int64)
    number[parts.length < IMAGE_HEADER] = 1  # so that no header is none
    label, second = headers["label"].copy(), np.zeros(count, np.float32)
    room = parts.length - IMAGE_HEADER
    for place, target in ((0, label), (1, second)):
        rows = np.flatnonzero((number > place) & (room >= _LABEL * (place + 1)))
        at = parts.begin[rows] + _HEAD + IMAGE_HEADER + _LABEL * place
        target[rows] = cut_out(raw, at, _LABEL).view("<f4")[:, 0]
    return _Block(parts.begin, parts.end, parts.split, parts.length, number, label, second, headers["id"].copy())


def _images(records: _Block) -> tuple[NDArray[np.bool_], bool]:
    """Which records are samples, and whether this is a set of faces: then its header and identities are none."""
    bare = ~records.filled & (records.labels == 2)
    header = np.flatnonzero(bare & (records.id == 0))
    if len(header) != 1 or not 1 <= records.label[header[0]] <= records.second[header[0]] < _LARGEST_ID:
        return np.ones(len(bare), np.bool_), False
    first, last = (_spanned(one[header[0]])[end] for end, one in enumerate((records.label, records.second)))
    kept = ~(bare & (records.id >= np.uint64(first)) & (records.id < np.uint64(last)))
    kept[header] = False
    return kept, True


def _spanned(number: np.float32) -> tuple[int, int]:
    """The least and the largest integer that a number in the file may have been."""
    if number < _EXACT:
        return int(number), int(number)
    return int(np.nextafter(number, np.float32(0))), int(np.nextafter(number, np.float32(np.inf)))


def _label(samples: _Block, faces: bool) -> list[WholeColumn]:
    """``cls``, if all labels are exact integers, else ``label``: of headers, of sets of faces always the first one."""
    rows = np.arange(len(samples.label)) if faces else np.flatnonzero(samples.labels == 0)
    if not len(rows):
        return []
    labels = samples.label[rows]
    if bool((np.abs(labels) < _EXACT).all() and (np.floor(labels) == labels).all()):
        return [WholeColumn("cls", FieldType.parse("int64"), rows, labels.astype(np.int64))]
    return [WholeColumn("label", FieldType.parse("float32"), rows, labels)]
