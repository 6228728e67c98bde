"""What was scanned so far, in a file: a run that was killed goes on, and what did not change is not scanned again.

A record is 16 bytes (its length, its XXH3-64) and a msgpack map. Only whole records count, so whoever writes may die at
any byte. The pieces of an object come one after another; a record without ``index`` says that it is complete.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import msgpack
import xxhash

from shardstream.dataset.foreign.scan import Piece
from shardstream.errors import ShardStreamError, StorageError
from shardstream.storage.base.sorting import no_room

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
        self._file.seek(0)
        self._file.truncate(self._read())
        self._file.seek(0, os.SEEK_END)

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def __contains__(self, state: ObjectState) -> bool:
        return state in self._known

    def add(self, state: ObjectState, pieces: Iterable[Piece]) -> None:
        """Write down an object that is scanned, piece by piece; nothing of it where that fails.

        Raises:
            StorageError: The disk is full.
        """
        begin = self._file.tell()
        try:
            places = [self._write(list(state), _entry(piece)) for piece in pieces]
            self._write(list(state), None)
            self._file.flush()
        except BaseException as error:
            with suppress(OSError):
                self._file.seek(begin)
                self._file.truncate()
            if isinstance(error, OSError) and not isinstance(error, ShardStreamError):
                raise no_room(error) from error
            raise
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
            yield Piece(**msgpack.unpackb(body)[1])

    def _read(self) -> int:
        """Find what is in the file; where the last object that is complete ends."""
        size = os.fstat(self._file.fileno()).st_size
        if not size:
            return 0
        at, whole, coming, of = 0, 0, list[tuple[int, int]](), None
        with mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            while at + _HEAD.size <= size:
                length, check = _HEAD.unpack_from(data, at)
                start = at + _HEAD.size
                body = data[start : start + length]
                if len(body) != length or xxhash.xxh3_64_intdigest(body) != check:
                    break
                found, entry = msgpack.unpackb(body)
                state = ObjectState(*found)
                if state != of:
                    coming, of = [], state
                if entry is None:
                    self._known[state], of = coming, None
                else:
                    coming.append((start, length))
                at = start + length
                if entry is None:
                    whole = at
        return whole


def _entry(piece: Piece) -> dict[str, Any]:
    return {name: getattr(piece, name) for name in Piece.__slots__}
