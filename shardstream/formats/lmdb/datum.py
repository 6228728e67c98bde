"""Caffe's ``Datum``: a message of protobuf with an image, encoded or as planes, and a label.

https://github.com/BVLC/caffe/blob/master/src/caffe/proto/caffe.proto
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, islice

import numpy as np

from shardstream.formats.lmdb.files import HEAD, KeyNames
from shardstream.formats.lmdb.pages import Entries
from shardstream.formats.lmdb.values import NotUnderstood
from shardstream.formats.scans.object_bytes import ObjectBytes
from shardstream.formats.scans.rows import PIECE, RowBuilder, ScannedRows, image_type
from shardstream.shards.arrays import npy_bytes

_CHANNELS, _HEIGHT, _WIDTH, _DATA, _LABEL, _FLOATS, _ENCODED = range(1, 8)
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_LARGEST_SIDE = 1 << 24


@dataclass(slots=True)
class Datum:
    """What a message says.

    Attributes:
        numbers: Its integers, by number of the field.
        data: Where its bytes lie in it: offset and length.
        floats: Where its floats lie, runs of them: offset, count, and bytes from one to the next.
    """

    numbers: dict[int, int] = field(default_factory=dict)
    data: tuple[int, int] | None = None
    floats: list[tuple[int, int, int]] = field(default_factory=list)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width."""
        return self.numbers.get(_CHANNELS, 0), self.numbers.get(_HEIGHT, 0), self.numbers.get(_WIDTH, 0)

    @property
    def label(self) -> int | None:
        """Its label, if it has one."""
        found = self.numbers.get(_LABEL)
        return found if found is None or found < 1 << 63 else found - (1 << 64)

    @property
    def encoded(self) -> bool:
        """Whether its bytes are an image file."""
        return bool(self.numbers.get(_ENCODED))


def read_datum(data: memoryview) -> Datum:
    """What a message says.

    Raises:
        NotUnderstood: It is not a ``Datum``, or damaged.
    """
    found, pos = Datum(), 0
    while pos < len(data):
        at = pos
        tag, pos = _varint(data, pos)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT and number in (_CHANNELS, _HEIGHT, _WIDTH, _LABEL, _ENCODED):
            found.numbers[number], pos = _varint(data, pos)
            continue
        if wire == _FIXED32 and number == _FLOATS and pos == at + 1:
            count = _run(data, at)
            found.floats.append((pos, count, 5))
            pos = at + 5 * count
            continue
        if wire != _BYTES or number not in (_DATA, _FLOATS):
            raise NotUnderstood(f"field {number} of wire type {wire}, which a Datum has not", at)
        length, pos = _varint(data, pos)
        if length > len(data) - pos:
            raise NotUnderstood(f"a Datum that has no {length} bytes", at)
        if number == _DATA:
            found.data = (pos, length)
        elif length % 4 == 0:
            found.floats.append((pos, length // 4, 4))
        pos += length
    _check(found)
    return found


def datum_array(stored: memoryview, _: str) -> bytes:
    """A form: planes as an NPY file; bytes in order of height, width and channel, three channels from BGR to RGB."""
    found = read_datum(stored)
    if found.encoded:
        raise ValueError("it is an image file")
    if found.floats or found.data is None:
        runs = [np.ndarray((count,), "<f4", stored, offset, (step,)) for offset, count, step in found.floats]
        return npy_bytes(np.concatenate(runs).reshape(found.shape))
    offset, length = found.data
    planes = np.frombuffer(stored[offset : offset + length], np.uint8).reshape(found.shape)
    return npy_bytes((planes[::-1] if len(planes) == 3 else planes).transpose(1, 2, 0))


def scan_datums(data: ObjectBytes, entries: Iterator[Entries], names: KeyNames) -> Iterator[ScannedRows]:
    """Image files as ``jpg`` or what they are, planes as ``image``, floats as ``data``, and labels as ``cls``."""
    rows, messages = RowBuilder(data), _messages(data, entries)
    head = list(islice(messages, HEAD))
    files = {_kind(data, offset, found) for _, offset, _, found in head if found.encoded}
    name = kind = files.pop() if len(files) == 1 else "bytes" if "bytes" in files else "image"
    name = {"bytes": "bin", "image": "jpg"}.get(name, name)
    for key, offset, length, found in chain(head, messages):
        rows.begin(*names.of([key], offset))
        if found.encoded and found.data is not None:
            rows.value(name, offset + found.data[0], found.data[1], kind)
        else:
            rows.value("data" if found.floats else "image", offset, length, "array", "lmdb.datum")
        if found.label is not None:
            rows.number("cls", found.label)
        if len(rows) == PIECE:
            yield rows.take()
    if len(rows):
        yield rows.take()


def _messages(data: ObjectBytes, entries: Iterator[Entries]) -> Iterator[tuple[bytes, int, int, Datum]]:
    for some in entries:
        for key, offset, length in zip(some.keys, some.offsets.tolist(), some.lengths.tolist(), strict=True):
            try:
                yield key, offset, length, read_datum(data.get(offset, length))
            except NotUnderstood as error:
                raise data.damaged(f"{error}, in the value of key {key[:80]!r}", offset + error.at) from None


def _kind(data: ObjectBytes, offset: int, found: Datum) -> str:
    assert found.data is not None
    return image_type(data.get(offset + found.data[0], min(found.data[1], 12))) or "bytes"


def _check(found: Datum) -> None:
    """An image file with a mark, or bytes or floats as many as the shape says."""
    if found.data is not None and found.encoded:
        return
    channels, height, width = found.shape
    if max(found.shape) > _LARGEST_SIDE:
        raise NotUnderstood(f"a Datum of shape {found.shape}", 0)
    size = channels * height * width
    whole = found.data is not None and found.data[1] == size and not found.floats
    floats = not (found.data and found.data[1]) and sum(count for _, count, _ in found.floats) == size
    if not size or not (whole or floats):
        raise NotUnderstood(f"a Datum whose bytes are not of its shape {found.shape}", 0)


def _run(data: memoryview, at: int) -> int:
    """How many floats follow each other from here on, each with its tag, as protobuf 2 writes them."""
    count = (len(data) - at) // 5
    same = np.frombuffer(data[at : at + 5 * count], np.uint8)[::5] == data[at]
    if not count:
        raise NotUnderstood("a Datum that is cut off in a float", at)
    return count if same.all() else int(np.argmin(same))


def _varint(data: memoryview, pos: int) -> tuple[int, int]:
    found = shift = 0
    while True:
        if pos >= len(data) or shift > 63:
            raise NotUnderstood("a Datum that is damaged or cut off", pos)
        byte = data[pos]
        pos += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return found & (1 << 64) - 1, pos
        shift += 7
