"""TFRecord files: records of ``tf.train.Example`` or ``SequenceExample``, or of bytes.

A record is its length, a checksum of the length, its bytes, and a checksum of these: records are found by hopping, and
values by reading the messages. What a feature becomes is decided from all samples of an object (``example_columns``).

https://www.tensorflow.org/tutorials/load_data/tfrecord
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import FormatError, UsageError
from shardstream.formats.blocks.codecs import CODECS, inflated_start
from shardstream.formats.blocks.found_blocks import FoundBlocks, one_block
from shardstream.formats.blocks.gzip_parts import gzip_blocks
from shardstream.formats.contract import Form, ObjectListing, Recognized, SourceFormat, SourceObject
from shardstream.formats.scans.object_bytes import ObjectBytes
from shardstream.formats.scans.protobuf import Bytes, Malformed, Places, Spans, cut_out
from shardstream.formats.scans.rows import PIECE, ScannedRows
from shardstream.formats.tfrecord import crc32c, examples
from shardstream.formats.tfrecord.columns import LABEL, ExampleBlock, Samples
from shardstream.formats.tfrecord.tfds import DescribedFeatures, described

_NAMED = re.compile(r"\.(tfrecords?|tfrec)([-_.]|$)", re.IGNORECASE)
_SHARDED = re.compile(r"-[0-9]{5,}-of-[0-9]{5,}$")
_BESIDE = re.compile(r"\.(idx|index|json|txt|csv|md|sha256|md5)$", re.IGNORECASE)  # tfrecord2idx, descriptions, sums
_LENGTH = struct.Struct("<Q")
_HEAD, _FOOT = 12, 4
_BLOCK = 16 << 20  # bytes of one read, and of the records that are then looked at together
_VIEW = 256 << 20  # the same, where the object is mapped
_SPARE = 64 << 10  # bytes that what is compressed may take more than when it is inflated
_LARGEST_FIRST = 64 << 20  # bytes of a first record that is looked at before anything is scanned
_COUNTED_FROM_ONE = {"image/class/synset", "image/class/text"}  # what the writers of ImageNet's labels put beside them


class TFRecord(SourceFormat):
    """Files of TensorFlow."""

    name: ClassVar[str] = "tfrecord"
    title: ClassVar[str] = "TFRecord"
    options: ClassVar[Mapping[str, str]] = {
        "verify": "crc: compare the checksums of all records, which reads everything",
        "lists": "names of features, with commas between them, that are lists though all samples of a file may have "
        "one value, or equally many",
        "first_label": f"the number of the first class in {LABEL}: 1 as in ImageNet's files, or 0",
    }
    unites: ClassVar[str] = "where it is a list in one of them, say so: --format-option lists={}"
    window: ClassVar[int] = _BLOCK
    forms: ClassVar[Mapping[str, Form]] = {
        "bytes": examples.bytes_form,
        "floats": examples.floats_form,
        "frames": examples.frames_form,
        "ints": examples.ints_form,
    }

    def recognize(self, listing: ObjectListing, options: Mapping[str, str]) -> Recognized | None:
        named = [one for one in listing.ending("") if _NAMED.search(one.path) and not _BESIDE.search(one.path)]
        sure = bool(named)
        named = named or [one for one in listing.ending("") if _SHARDED.search(one.path)]
        first = next((one for one in named if one.size), None)
        if first is None or not (_begins(listing, first.path) or sure):
            return None
        names = _first_features(listing, first.path)
        about: dict[str, Any] = _of_options(options)
        if LABEL in names and _COUNTED_FROM_ONE & names:
            about.setdefault("first_label", 1)
        notes: tuple[str, ...] = ()
        if LABEL in names and about.get("first_label"):
            notes = (f"{LABEL} counts from 1, so cls is one less; option first_label=0 keeps it as it is",)
        found = described(listing, {one.path.rpartition("/")[0] for one in named})
        objects = tuple(
            SourceObject(one.path, one.size, _merged(about, found[one.path.rpartition("/")[0]])) for one in named
        )
        classes = {one.classes for one in found.values()}
        return Recognized(objects, classes.pop() if len(classes) == 1 else None, notes)

    def blocks(self, data: ObjectBytes, about: Mapping[str, Any]) -> FoundBlocks | None:
        codec = _codec_of(data.get(0, min(_HEAD, data.size)))
        if codec is None:
            return None
        return gzip_blocks(data) if codec == "gzip" else one_block(data, codec)

    def scan(self, data: ObjectBytes, about: Mapping[str, Any]) -> Iterator[ScannedRows]:
        samples, damage = Samples(data, self.name, about), None
        try:
            for block in _blocks(data, compare=about.get("verify") == "crc"):
                samples.add(block)
        except FormatError as error:
            if not samples.count:
                raise
            damage = error
        yield from samples.rows(damage)

    def checksums(self, one: SourceObject) -> str:
        return "CRC-32C of records"

    def differences(self, data: ObjectBytes, about: Mapping[str, Any]) -> Iterator[FormatError]:
        try:
            for _ in _blocks(data, compare=True):
                pass
        except FormatError as error:
            yield error


def _of_options(options: Mapping[str, str]) -> dict[str, Any]:
    about: dict[str, Any] = {}
    for name, value in options.items():
        if name == "lists":
            about[name] = sorted({one.strip() for one in value.split(",")} - {""})
        elif name == "first_label" and value in ("0", "1"):
            about[name] = int(value)
        elif name == "verify" and value == "crc":
            about[name] = value
        else:
            choices = {"first_label": "0 or 1", "verify": "crc"}.get(name)
            raise UsageError(f"{value!r} is not a {name} of TFRecord files", hint=f"give {choices}")
    return about


def _merged(about: Mapping[str, Any], found: DescribedFeatures) -> dict[str, Any]:
    """What the scan has to know: of options and of the description beside the files."""
    lists = sorted({*about.get("lists", ()), *found.lists})
    said = {"lists": lists, "text": sorted(found.text), "label": found.label}
    return {**about, **{name: value for name, value in said.items() if value}}


def _begins(listing: ObjectListing, path: str) -> bool:
    """Whether an object begins as a TFRecord file, whatever its name.

    Raises:
        FormatError: It is named as one, and is not.
    """
    start = _start(listing, path, _HEAD)
    if _begins_record(start):
        return True
    if not _NAMED.search(path):
        return False
    raise FormatError(
        "this is not a TFRecord file: the checksum of its first record's length is wrong",
        url=listing.store.locate(path),
        offset=0,
        hint="fetch or write the file again",
    )


def _begins_record(start: bytes | memoryview) -> bool:
    return len(start) == _HEAD and bool(_good_heads(np.frombuffer(start, np.uint8)[None])[0])


def _codec_of(start: bytes | memoryview) -> str | None:
    """How a file of these first bytes is compressed; ``None``: not at all."""
    if _begins_record(start[:_HEAD]):
        return None
    if start[:2] == b"\x1f\x8b":
        return "gzip"
    return "zlib" if start[:1] == b"\x78" and int.from_bytes(start[:2], "big") % 31 == 0 else None


def _start(listing: ObjectListing, path: str, length: int) -> bytes:
    """The first bytes of an object, inflated."""
    codec = _codec_of(listing.start(path, _HEAD))
    if codec is None:
        return listing.start(path, length)
    stored = listing.start(path, length + (length >> 6) + _SPARE)
    return inflated_start(CODECS[codec], memoryview(stored), length)


def _first_features(listing: ObjectListing, path: str) -> set[str]:
    """The names of the features of the first sample; none where it is not an Example, or is not whole."""
    length = int.from_bytes(_start(listing, path, 8), "little")
    if length > _LARGEST_FIRST:
        return set()
    start = _start(listing, path, _HEAD + length)
    if len(start) < _HEAD + length:
        return set()
    raw = np.frombuffer(start, np.uint8)
    try:
        found = examples.features(raw, Spans(np.array([_HEAD]), np.array([_HEAD + length])))
    except Malformed:
        return set()
    return {one.name for one in found}


def _blocks(data: ObjectBytes, *, compare: bool) -> Iterator[ExampleBlock]:
    """All records, `PIECE` at a time, fewer where these do not lie in one read or view, but one at least.

    Raises:
        FormatError: The object ends inside of a record, or a checksum is wrong; the records before were given.
    """
    at, count = 0, 0
    while at < data.size:
        view = data.get(at, min(_VIEW if data.mapped else _BLOCK, data.size - at))
        heads, error = _hop(data, view, at)
        if not len(heads) and error is None:
            view = data.get(at, _HEAD + _FOOT + int.from_bytes(view[:8], "little"))
            heads, error = _hop(data, view, at)
        raw = np.frombuffer(view, np.uint8)
        lengths = _numbers(raw, heads, 8)
        records = Spans(heads + _HEAD, heads + _HEAD + lengths)
        if compare and (wrong := _first_wrong(view, raw, records)) is not None:
            error = data.damaged(f"the bytes of record {count + wrong} are not those that were written", at)
            records = records.where(np.arange(wrong))
        if len(records.begin):
            yield ExampleBlock(at, raw, records)
        if error is not None:
            raise error
        count += len(heads)
        at += int(records.end[-1]) + _FOOT


def _hop(data: ObjectBytes, view: memoryview, base: int) -> tuple[Places, FormatError | None]:
    """Where whole records begin in some bytes of an object, and what is wrong after them."""
    heads: list[int] = []
    at, length, size, left = 0, 0, len(view), data.size - base
    length_at = _LENGTH.unpack_from
    while at + _HEAD <= size and len(heads) < PIECE:
        (length,) = length_at(view, at)
        if length > size - at - _HEAD - _FOOT:
            break
        heads.append(at)
        at, length = at + _HEAD + _FOOT + length, 0
    begins = np.array(heads, np.int64)
    done = at == left or len(heads) == PIECE
    # Of a record that is not whole here, the length is believed only if its checksum is right.
    looked = begins if done or at + _HEAD > size else np.append(begins, at)
    good = _good_heads(cut_out(np.frombuffer(view, np.uint8), looked, _HEAD))
    if not good.all():
        bad = int(np.argmin(good))
        return begins[:bad], data.damaged("the checksum of a record's length is wrong", base + int(looked[bad]))
    if not done and at + _HEAD + _FOOT + length > left:
        return begins, data.damaged(f"the object ends inside of a record, {left - at} bytes after its begin", base + at)
    return begins, None


def _good_heads(heads: Bytes) -> NDArray[np.bool_]:
    """Whether the checksums of lengths are right: bool (n,) of uint8 (n, 12)."""
    stored = np.ascontiguousarray(heads[:, 8:]).view("<u4")[:, 0]
    good: NDArray[np.bool_] = crc32c.masked(crc32c.of_eights(heads[:, :8])) == stored
    return good


def _numbers(raw: Bytes, at: Places, width: int) -> Places:
    """The integers of some bytes each at these places."""
    numbers = cut_out(raw, at, width).view(f"<u{width}")[:, 0]
    return numbers.astype(np.int64)


def _first_wrong(view: memoryview, raw: Bytes, records: Spans) -> int | None:
    """The first record whose checksum is wrong."""
    stored = _numbers(raw, records.end, _FOOT)
    for row, (begin, end) in enumerate(zip(records.begin.tolist(), records.end.tolist(), strict=True)):
        found = np.array([crc32c.crc32c(view[begin:end])], np.uint32)
        if int(crc32c.masked(found)[0]) != stored[row]:
            return row
    return None
