"""What was scanned so far, in a file: a run that was killed goes on, and what did not change is not scanned again.

After 8 bytes that say which version wrote it comes one record after another: 16 bytes (its length, its XXH3-64) and
msgpack. Only whole records count, so whoever writes may die at any byte. The pieces of an object come one after
another; a record without a piece says that it is complete.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgpack
import xxhash

from shardstream.errors import StorageError
from shardstream.formats.catalog.scan import Piece
from shardstream.formats.scans.rows import Loss, Remark

_MAGIC = b"SSJRNL5\n"  # another one when `Piece`, `ObjectState` or what scans find are others
_NAMED = {"lost": Loss, "remarks": Remark}  # what msgpack gives as plain lists
_HEAD = struct.Struct("<QQ")


class ObjectState(NamedTuple):
    """An object as it was scanned: what is different is scanned again."""

    path: str
    size: int
    version: int
    about: int
    wanted: int


class Journal:
    """The pieces of objects that were scanned, by what the objects were. For one process at a time, under a lock.

    Args:
        descriptor: Of the file, to read and write; it is closed with the journal.
    """

    def __init__(self, descriptor: int) -> None:
        self._file = os.fdopen(descriptor, "r+b")
        self._known: dict[ObjectState, list[tuple[int, int]]] = {}
        end = self._read()
        self._file.truncate(end)
        self._file.seek(end)
        if not end:
            self._file.write(_MAGIC)

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def __contains__(self, state: ObjectState) -> bool:
        return state in self._known

    def add(self, state: ObjectState, pieces: Iterable[Piece]) -> None:
        """Write down an object that was scanned.

        Raises:
            OSError: The disk is full.
        """
        places = [self._write(list(state), _entry(piece)) for piece in pieces]
        self._write(list(state), None)
        self._file.flush()
        self._known[state] = places

    def _write(self, state: list[Any], entry: dict[str, Any] | None) -> tuple[int, int]:
        body = msgpack.packb([state, entry])
        start = self._file.tell() + _HEAD.size
        self._file.write(_HEAD.pack(len(body), xxhash.xxh3_64_intdigest(body)) + body)
        return start, len(body)

    def pieces(self, state: ObjectState) -> Iterator[Piece]:
        """The pieces of an object that is known; KeyError."""
        for start, length in self._known[state]:
            body = os.pread(self._file.fileno(), length, start)
            if len(body) != length:
                raise StorageError("the journal of scans was cut while it was in use", hint="index it again")
            entry = msgpack.unpackb(body)[1]
            lost, remarks = (tuple(kind(*one) for one in entry[name]) for name, kind in _NAMED.items())
            yield Piece(**entry | {"lost": lost, "remarks": remarks})

    def _read(self) -> int:
        """Find what is in the file; where the last object ends that was written down whole."""
        size = os.fstat(self._file.fileno()).st_size
        if os.pread(self._file.fileno(), len(_MAGIC), 0) != _MAGIC:
            return 0
        at, coming = len(_MAGIC), list[tuple[int, int]]()
        end = at
        with mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            while at + _HEAD.size <= size:
                length, check = _HEAD.unpack_from(data, at)
                start = at + _HEAD.size
                body = data[start : start + length]
                if len(body) != length or xxhash.xxh3_64_intdigest(body) != check:
                    break
                found, entry = msgpack.unpackb(body)
                at = start + length
                if entry is None:
                    self._known[ObjectState(*found)] = coming
                    coming, end = [], at
                else:
                    coming.append((start, length))
        return end


def _entry(piece: Piece) -> dict[str, Any]:
    return {name: getattr(piece, name) for name in Piece.__slots__}
