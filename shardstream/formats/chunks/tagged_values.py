"""LitData's own binary form of lists and dictionaries (its leaves called ``json``), as JSON.

A value begins with a tag of one byte; lengths are uint32, numbers little-endian, texts UTF-8 behind their length. What
begins with another byte than a tag is JSON text, as older versions wrote it.
"""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np

_LAST_TAG = 0x20
_DEPTH = 64
_NONE, _TEXT, _INTEGER, _FLOAT, _BOOL = range(0x10, 0x15)


def json_of_tagged(stored: memoryview, _: str) -> bytes:
    """The value as JSON text; ValueError where it is none."""
    if len(stored) and stored[0] > _LAST_TAG:
        return bytes(stored)
    reader = _Reader(stored)
    value = reader.value(0)
    reader.check_end()
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


class _Reader:
    """Values one after another; no length is believed before it is compared with what is left."""

    def __init__(self, stored: memoryview) -> None:
        self._stored = stored
        self._at = 0

    def check_end(self) -> None:
        if self._at != len(self._stored):
            raise ValueError(f"{len(self._stored) - self._at} bytes follow the value")

    def value(self, depth: int) -> Any:
        """The value of a tag."""
        if depth > _DEPTH:
            raise ValueError(f"it is nested more than {_DEPTH} deep")
        tag = self._take(1)[0]
        if tag == 5:
            return {self._text(): self.value(depth + 1) for _ in range(self._count(5))}
        if tag == 6:
            return self._records()
        if tag < 5:
            return self._list(tag)
        if tag < 12:
            return self._single((_TEXT, _INTEGER, _FLOAT, _BOOL, _NONE)[tag - 7])
        raise ValueError(f"there is no tag {tag}")

    def _take(self, size: int) -> memoryview:
        begin, self._at = self._at, self._at + size
        if self._at > len(self._stored):
            raise ValueError(f"{size} bytes are missing at {begin}")
        return self._stored[begin : self._at]

    def _count(self, least: int) -> int:
        """A number of elements that have so many bytes at least."""
        (count,) = struct.unpack("<I", self._take(4))
        if count * least > len(self._stored) - self._at:
            raise ValueError(f"{count} elements are more than there are")
        return int(count)

    def _text(self) -> str:
        return str(self._take(self._count(1)), "utf-8")

    def _list(self, tag: int) -> Any:
        if tag == 0:
            return json.loads(self._text())
        if tag == 1:
            return [self._text() for _ in range(self._count(4))]
        if tag == 4:
            return [one != 0 for one in self._take(self._count(1))]
        return np.frombuffer(self._take(8 * self._count(8)), "<i8" if tag == 2 else "<f8").tolist()

    def _single(self, tag: int) -> Any:
        if tag == _NONE:
            return None
        if tag == _TEXT:
            return self._text()
        if tag == _BOOL:
            return self._take(1)[0] != 0
        return struct.unpack("<q" if tag == _INTEGER else "<d", self._take(8))[0]

    def _records(self) -> list[dict[str, Any]]:
        """Dictionaries of the same keys."""
        count = self._count(1)
        keys = [self._text() for _ in range(self._count(4))]
        if count * len(keys) > len(self._stored) - self._at or not keys:
            raise ValueError(f"{count} records of {len(keys)} keys are more than there are")
        return [{key: self._field() for key in keys} for _ in range(count)]

    def _field(self) -> Any:
        tag = self._take(1)[0]
        if not _NONE <= tag <= _BOOL:
            raise ValueError(f"there is no tag {tag} in records")
        return self._single(tag)
