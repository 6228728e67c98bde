"""RecordIO files of MXNet: ``.rec``, with ``.idx`` and ``.lst`` beside them or not.

A record is a magic number, a word of flag and length, its bytes, and zeros up to a multiple of 4. Where its bytes hold
the magic number at a multiple of 4, the writer leaves it out and begins another part there: so the magic number stands
at beginnings of parts only. What the records hold: ``samples``.

https://mxnet.apache.org/versions/1.9.1/api/faq/recordio
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np

from shardstream.errors import FormatError
from shardstream.formats.contract import (
    LARGEST_SIDECAR,
    Form,
    ObjectListing,
    Recognized,
    SourceFormat,
    SourceObject,
)
from shardstream.formats.recordio.samples import IMAGE_HEADER, ImageRecords, RecordParts
from shardstream.formats.scans.object_bytes import ObjectBytes
from shardstream.formats.scans.rows import PIECE, ScannedRows
from shardstream.shards.arrays import npy_bytes

MAGIC = 0xCED7230A
_MAGIC = struct.pack("<I", MAGIC)
_HEAD = struct.Struct("<II")
_LENGTH_BITS = 29
_WHOLE, _FIRST, _MIDDLE, _LAST = range(4)
_CUT, _ODD = -1, -2  # a part that is not whole, and one that does not begin with the magic number
_BLOCK = 16 << 20  # bytes of one read, and of the records that are then looked at together


def _beside(listing: ObjectListing, path: str) -> dict[str, Any]:
    """The files of a ``.rec`` that have its name, with their sizes.

    Raises:
        FormatError: One is too large to be such a file.
    """
    about = {}
    for kind in ("idx", "lst"):
        other = f"{path[:-4]}.{kind}"
        if other not in listing:
            continue
        if (size := listing.size(other)) > LARGEST_SIDECAR:
            raise FormatError(
                f"{size} bytes are too many for the .{kind} of a RecordIO file",
                url=listing.store.locate(other),
                hint="look at it: it is not what its name says",
            )
        about[kind] = [other, size]
    return about


def _blocks(data: ObjectBytes) -> Iterator[tuple[int, memoryview, RecordParts]]:
    """All records, `PIECE` at a time; where the object is not mapped, no more than lie in one read, but one at least.

    Raises:
        FormatError: The object ends inside of a record, or one does not begin where it should; those before were given.
    """
    at, length = 0, _BLOCK
    while at < data.size:
        left = data.size - at
        view = data.get(at, left if data.mapped else min(length, left))
        parts, end, what = _hop(view, whole=len(view) == left)
        if len(parts.begin):
            yield at, view, parts
        if what is not None:
            raise data.damaged(what, at + end)
        length = _BLOCK if len(parts.begin) else 2 * len(view)
        at += end


def _hop(view: memoryview, *, whole: bool) -> tuple[RecordParts, int, str | None]:
    """The whole records in some bytes, where they end, and what is wrong there if anything is.

    Args:
        view: Bytes from the beginning of a record on.
        whole: Whether the object ends with them.
    """
    begins, ends, lengths, split = list[int](), list[int](), list[int](), list[bool]()
    at, what = 0, None
    while at < len(view) and len(begins) < PIECE:
        part, length, end = _part(view, at)
        chained = part == _FIRST
        if chained:
            part, end = _chained(view, end)
        if part != (_LAST if chained else _WHOLE):
            if part != _CUT:
                what = "no record begins here" if part == _ODD else f"a part of a record ({part}) in the wrong place"
            elif whole:
                what = f"the object ends inside of a record, {len(view) - at} bytes after its begin"
            break
        begins.append(at)
        ends.append(end)
        lengths.append(length)
        split.append(chained)
        at = end
    places = [np.array(one, np.int64) for one in (begins, ends, lengths)]
    return RecordParts(places[0], places[1], places[2], np.array(split, np.bool_)), at, what


def _part(view: memoryview, at: int) -> tuple[int, int, int]:
    """What part of a record begins at a place, the length of its bytes, and where the next one begins."""
    if at + _HEAD.size > len(view):
        return _CUT, 0, at
    magic, word = _HEAD.unpack_from(view, at)
    length = word & ((1 << _LENGTH_BITS) - 1)
    end = at + _HEAD.size + (length + 3 & ~3)
    if magic != MAGIC:
        return _ODD, 0, at
    return (word >> _LENGTH_BITS if end <= len(view) else _CUT), length, end


def _chained(view: memoryview, at: int) -> tuple[int, int]:
    """The kind and the end of the last of the parts that follow a first one."""
    part = _MIDDLE
    while part == _MIDDLE:
        part, _, at = _part(view, at)
    return part, at


def _joined(data: memoryview) -> bytes:
    """The bytes of a record, of all its parts."""
    found, at, part = list[memoryview](), 0, _FIRST
    while part in (_FIRST, _MIDDLE):
        begin = at + _HEAD.size
        part, length, at = _part(data, at)
        if part not in (_WHOLE, _FIRST, _MIDDLE, _LAST):
            break
        found.append(data[begin : begin + length])
    if at != len(data) or part not in (_WHOLE, _LAST):
        raise ValueError("parts that make no record")
    return _MAGIC.join(found)


def _record_form(data: memoryview, _text: str) -> bytes:
    """The bytes of a record."""
    return _joined(data)


def _image_form(data: memoryview, _text: str) -> bytes:
    """The image of a record, which follows header and labels."""
    record = _joined(data)
    if len(record) < IMAGE_HEADER:
        raise ValueError("a record without the header of an image")
    return record[IMAGE_HEADER + 4 * int.from_bytes(record[:4], "little") :]


def _labels_form(data: memoryview, _text: str) -> bytes:
    """The NPY file of labels."""
    return npy_bytes(np.frombuffer(data, "<f4"))


class RecordIO(SourceFormat):
    """Files of MXNet."""

    name: ClassVar[str] = "recordio"
    title: ClassVar[str] = "MXNet RecordIO"
    window: ClassVar[int] = _BLOCK
    forms: ClassVar[Mapping[str, Form]] = {"image": _image_form, "labels": _labels_form, "record": _record_form}

    def recognize(self, listing: ObjectListing, options: Mapping[str, str]) -> Recognized | None:
        named = listing.ending(".rec")
        if listing.first_that(named, lambda start: start.startswith(_MAGIC)) is None:
            return None
        return Recognized(tuple(SourceObject(one.path, one.size, _beside(listing, one.path)) for one in named))

    def scan(self, data: ObjectBytes, about: Mapping[str, Any]) -> Iterator[ScannedRows]:
        records, damage = ImageRecords(data, self.name), None
        try:
            for base, view, parts in _blocks(data):
                records.add(base, view, parts)
        except FormatError as error:
            if not records.count:
                raise
            damage = error
        yield from records.rows(about, damage)
