"""Megatron's indexed data sets: tokens in a ``.bin``, and where each document lies in the ``.idx`` beside it.

An index is a head (magic, version, code of the dtype, sequences n, marks m), then n lengths in tokens (int32), n
offsets in bytes (int64), and m marks (int64): the numbers of the sequences at which documents begin, and n at last.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import FormatError, UnsupportedError
from shardstream.formats.contract import ObjectListing, Recognized, SourceFormat, SourceObject
from shardstream.formats.scans.object_bytes import FETCH_AGAIN, ObjectBytes
from shardstream.formats.scans.rows import ScannedRows, numbered_keys, pieces
from shardstream.formats.tokens.windows import LENGTH, TOKENS, window_length, windows
from shardstream.shards.fields import FieldType
from shardstream.shards.index import Column

MAGIC = b"MMIDIDX\0\0"
_LEGACY = b"TNTIDX\0\0"
_HEAD = struct.Struct("<9sQBQQ")
_DTYPES = {
    1: "uint8",
    2: "int8",
    3: "int16",
    4: "int32",
    5: "int64",
    6: "float64",
    7: "float32",
    8: "uint16",
}
_RUN = 1 << 18  # sequences that are looked at together


class Megatron(SourceFormat):
    """Pairs of ``.idx`` and ``.bin``: each document is a sample, or each window of so many tokens."""

    name: ClassVar[str] = "megatron"
    title: ClassVar[str] = "a Megatron data set (.idx and .bin)"
    options: ClassVar[Mapping[str, str]] = {"length": LENGTH}

    def recognize(self, listing: ObjectListing, options: Mapping[str, str]) -> Recognized | None:
        starts = {one.path: listing.start(one.path, _HEAD.size) for one in listing.ending(".idx")}
        if not any(start.startswith((MAGIC, _LEGACY)) for start in starts.values()):
            return None
        length = window_length(options)
        objects, dtypes = [], {}
        for path, start in starts.items():
            url, size = listing.store.locate(path), listing.size(path)
            binary = f"{path[:-4]}.bin"
            if binary not in listing:
                raise FormatError(
                    f"there is no {binary!r} beside it, which should hold the tokens", url=url, hint="copy both files"
                )
            dtypes[_head(start, size, url).dtype] = path
            about = {"index": path, "index_size": size} | ({} if length is None else {"length": length})
            objects.append(SourceObject(binary, listing.size(binary), about))
        if len(dtypes) > 1:
            (one, path), (other, second) = list(dtypes.items())[:2]
            raise FormatError(
                f"{path} is of {one}, and {second} of {other}", url=listing.url, hint="give them as two data sets"
            )
        for binary in (one.path for one in listing.ending(".bin")):
            if f"{binary[:-4]}.idx" not in listing:
                raise FormatError(
                    "there is no index (.idx) beside it", url=listing.store.locate(binary), hint="copy both files"
                )
        if length is not None:
            FieldType.parse(f"array:{next(iter(dtypes))}:{length + 1}")
        return Recognized(tuple(objects))

    def scan(self, data: ObjectBytes, about: Mapping[str, Any]) -> Iterator[ScannedRows]:
        data.refuse_placeholder()
        index = _Index.of(data, about["index"], about["index_size"])
        if "length" not in about:
            yield from _documents(data, index)
            return
        _check_dense(data, index)
        yield from windows(data, index.head.dtype, about["length"])


@dataclass(frozen=True, slots=True)
class _Head:
    """Of an index: the dtype, and how many sequences and marks of documents it has."""

    dtype: str
    sequences: int
    marks: int


@dataclass(frozen=True, slots=True)
class _Index:
    """An index; each of its tables is read on, through a window of its own where it is not mapped."""

    head: _Head
    lengths: ObjectBytes
    places: ObjectBytes
    marks: ObjectBytes

    @staticmethod
    def of(data: ObjectBytes, path: str, size: int) -> _Index:
        tables = [data.beside(path, size) for _ in range(3)]
        head = _head(bytes(tables[0].get(0, min(size, _HEAD.size))), size, tables[0].url)
        return _Index(head, *tables)

    @property
    def width(self) -> int:
        return np.dtype(self.head.dtype).itemsize

    def sequences(self, data: ObjectBytes, begin: int, end: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Offset and bytes of sequences, all inside of the object."""
        at = _HEAD.size + 4 * begin
        lengths = self.lengths.array("<i4", end - begin, at).astype(np.int64) * self.width
        at = _HEAD.size + 4 * self.head.sequences + 8 * begin
        places = self.places.array("<i8", end - begin, at)
        wrong = (lengths < 0) | (places < 0) | (places > data.size) | (lengths > data.size - places.clip(0, data.size))
        if wrong.any():
            row = int(wrong.argmax())
            raise self.places.damaged(
                f"sequence {begin + row} should be {lengths[row]} bytes from {places[row]} on, and the .bin has "
                f"{data.size}",
                at + 8 * row,
                hint="the two files are not of one data set, or were cut off: fetch both again",
            )
        return places, lengths

    def documents(self, begin: int, end: int) -> NDArray[np.int64]:
        """The numbers of the sequences at which documents ``[begin, end)`` begin, and at which the last one ends."""
        at = _HEAD.size + 12 * self.head.sequences + 8 * begin
        marks = self.marks.array("<i8", end - begin + 1, at)
        last = end + 1 == self.head.marks
        wrong = (begin == 0 and marks[0]) or (last and marks[-1] != self.head.sequences)
        if wrong or marks[0] < 0 or marks[-1] > self.head.sequences or np.any(marks[1:] < marks[:-1]):
            raise self.marks.damaged(
                f"the marks of documents do not rise from 0 to {self.head.sequences}, the number of sequences",
                at,
            )
        return marks


def _head(start: bytes, size: int, url: str) -> _Head:
    def refused(what: str, hint: str) -> UnsupportedError:
        return UnsupportedError(what, url=url, offset=0, hint=hint)

    def damaged(what: str) -> FormatError:
        return FormatError(what, url=url, offset=0, hint=FETCH_AGAIN)

    if start.startswith(_LEGACY):
        raise refused("an index of the older kind (TNTIDX)", "write the data again with --dataset-impl mmap")
    if not start.startswith(MAGIC) or len(start) < _HEAD.size:
        raise damaged("this is not an index of a Megatron data set, or one that was cut off")
    _, version, code, sequences, marks = _HEAD.unpack(start)
    if version != 1:
        raise refused(f"an index of version {version}; version 1 can be read", "write the data with Megatron Core")
    if code not in _DTYPES:
        raise refused(
            f"tokens of an unknown dtype (code {code}); codes are 1 to 8", "write the data with Megatron Core"
        )
    expected = _HEAD.size + 12 * sequences + 8 * marks
    if sequences and size == expected + sequences:
        raise refused("a data set of several modes (multimodal), which cannot be read", "write its text alone")
    if size != expected or (sequences and not marks):
        raise damaged(f"{sequences} sequences and {marks} marks of documents are {expected} bytes, and it has {size}")
    return _Head(_DTYPES[code], sequences, marks)


def _documents(data: ObjectBytes, index: _Index) -> Iterator[ScannedRows]:
    kind = FieldType.parse(f"values:{index.head.dtype}")
    for begin, end in pieces(index.head.marks - 1):
        marks = index.documents(begin, end)
        first = int(marks[0])
        places, lengths = index.sequences(data, first, int(marks[-1]))
        starts, ends = marks[:-1] - first, marks[1:] - first
        _check_adjacent(index, first, places, lengths, starts)
        total = np.concatenate([[0], np.cumsum(lengths)])
        offsets = np.append(places, 0)[starts]  # a document of no sequences may stand at the end
        column = Column(
            TOKENS,
            kind,
            offsets=np.where(starts < ends, offsets, 0).astype(np.uint64),
            lengths=(total[ends] - total[starts]).astype(np.uint64),
        )
        yield ScannedRows(numbered_keys(data.path, begin, end - begin), (column,))


def _check_adjacent(
    index: _Index, first: int, places: NDArray[np.int64], lengths: NDArray[np.int64], starts: NDArray[np.int64]
) -> None:
    """The sequences of a document must follow each other in the object."""
    gap = np.append(False, places[1:] != places[:-1] + lengths[:-1])[: len(places)]
    gap[starts[starts < len(gap)]] = False
    if gap.any():
        raise index.places.damaged(
            f"sequence {first + int(gap.argmax())} does not follow the one before it, which is of the same document",
            _HEAD.size + 4 * index.head.sequences + 8 * (first + int(gap.argmax())),
        )


def _check_dense(data: ObjectBytes, index: _Index) -> None:
    """Windows are over documents that fill the object, one after another in the order of the index."""
    reached = 0
    for begin in range(0, index.head.sequences, _RUN):
        end = min(begin + _RUN, index.head.sequences)
        places, lengths = index.sequences(data, begin, end)
        expected = np.append(reached, places[:-1] + lengths[:-1])
        if np.any(places != expected):
            row = int((places != expected).argmax())
            raise index.places.unsupported(
                f"sequence {begin + row} does not follow the one before it, so there is no stream to cut windows from",
                _HEAD.size + 4 * index.head.sequences + 8 * (begin + row),
                hint="leave out the option length",
            )
        reached = int(places[-1] + lengths[-1])
    if reached != data.size:
        raise data.damaged(f"the index speaks of {reached} bytes, and it has {data.size}", reached)
