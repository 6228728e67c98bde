"""Thrift's compact protocol, as the footer and the page headers of Parquet files are written: fields by their numbers.

Callers say which fields they want; all others are passed over. What is announced is compared with the bytes that there
are before anything is made of it.

https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, TypeAlias

from shardstream.errors import DecodeError

Wanted: TypeAlias = Mapping[int, Any]
"""Fields of a struct by number: ``None`` for a number, text or list of these; what is wanted of a struct; ``[wanted]``
for a list of structs."""
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 11, 12
_INTEGERS = (4, 5, 6)
_DEEPEST = 24
_LONGEST = 10  # bytes of a number
_HINT = "fetch or write the file again"


class CutOff(DecodeError):
    """The bytes end within a struct."""


class Thrift:
    """Reads structs from bytes, one after another.

    Args:
        data: The bytes.
        at: Where the first begins.

    Attributes:
        at: Where the next one begins.
    """

    def __init__(self, data: bytes, at: int = 0) -> None:
        self._data = data
        self.at = at

    def struct(self, wanted: Wanted, depth: int = 0) -> dict[int, Any]:
        """The fields of a struct that are wanted, and that it has.

        Raises:
            CutOff: The bytes end before it does.
            DecodeError: They are no struct, or a wanted field is of another type.
        """
        if depth > _DEEPEST:
            raise _wrong("structs within structs, too deep", self.at)
        found: dict[int, Any] = {}
        number = 0
        while kind := self._byte():
            delta, kind = kind >> 4, kind & 15
            number = number + delta if delta else self._signed()
            if number in wanted:
                found[number] = self._value(kind, wanted[number], depth)
            else:
                self._skip(kind, depth)
        return found

    # ------------------------------------------------------------------------------------------------------- values

    def _value(self, kind: int, wanted: Any, depth: int) -> Any:
        if (kind == _STRUCT) != isinstance(wanted, Mapping) or (isinstance(wanted, list) and kind != _LIST):
            raise _wrong(f"a field of type {kind} where another type belongs", self.at)
        if kind == _STRUCT:
            return self.struct(wanted, depth + 1)
        if kind in (_TRUE, _FALSE):
            return kind == _TRUE
        if kind in _INTEGERS:
            return self._signed()
        if kind == _BYTE:
            return int.from_bytes(self._bytes(1), signed=True)
        if kind == _BINARY:
            return self._bytes(self._unsigned())
        if kind == _DOUBLE:
            return struct.unpack("<d", self._bytes(8))[0]
        if kind != _LIST:
            raise _wrong(f"a field of type {kind} where another type belongs", self.at)
        element, count = self._list_head()
        if wanted is not None:
            if element != _STRUCT:
                raise _wrong("a list whose elements are not structs", self.at)
            return [self.struct(wanted[0], depth + 1) for _ in range(count)]
        if element in (_STRUCT, _LIST, _SET, _MAP):
            raise _wrong("a list of lists or structs where one of numbers or texts belongs", self.at)
        return [self._byte() == _TRUE if element <= _FALSE else self._value(element, None, depth) for _ in range(count)]

    def _list_head(self) -> tuple[int, int]:
        head = self._byte()
        element, count = head & 15, head >> 4
        if count == 15:
            count = self._unsigned()
        if count > len(self._data) - self.at:  # each takes a byte at least
            raise CutOff(f"a list of {count} elements in {len(self._data) - self.at} bytes", hint=_HINT)
        return element, count

    def _skip(self, kind: int, depth: int) -> None:
        if kind in _INTEGERS:
            self._unsigned()
        elif kind == _BINARY:
            self._pass(self._unsigned())
        elif kind == _BYTE:
            self._pass(1)
        elif kind == _DOUBLE:
            self._pass(8)
        elif kind == _STRUCT:
            self.struct({}, depth + 1)
        elif kind in (_LIST, _SET):
            self._skip_elements(depth)
        elif kind == _MAP:
            self._skip_map(depth)
        elif kind not in (_TRUE, _FALSE):
            raise _wrong(f"a field of type {kind}, which there is not", self.at)

    def _skip_elements(self, depth: int) -> None:
        if depth > _DEEPEST:
            raise _wrong("lists within lists, too deep", self.at)
        element, count = self._list_head()
        for _ in range(count):
            if element in (_TRUE, _FALSE):
                self._pass(1)
            else:
                self._skip(element, depth + 1)

    def _skip_map(self, depth: int) -> None:
        if depth > _DEEPEST:
            raise _wrong("maps within maps, too deep", self.at)
        count = self._unsigned()
        if count > len(self._data) - self.at:
            raise CutOff(f"a map of {count} entries in {len(self._data) - self.at} bytes", hint=_HINT)
        kinds = self._byte() if count else 0
        for _ in range(count):
            for kind in (kinds >> 4, kinds & 15):
                if kind in (_TRUE, _FALSE):
                    self._pass(1)
                else:
                    self._skip(kind, depth + 1)

    # -------------------------------------------------------------------------------------------------------- bytes

    def _byte(self) -> int:
        at = self.at
        if at >= len(self._data):
            raise CutOff("the bytes end within a struct", hint=_HINT)
        self.at = at + 1
        return self._data[at]

    def _pass(self, count: int) -> None:
        if count > len(self._data) - self.at:
            raise CutOff(f"{count} bytes where {len(self._data) - self.at} are left", hint=_HINT)
        self.at += count

    def _bytes(self, count: int) -> bytes:
        begin = self.at
        self._pass(count)
        return self._data[begin : self.at]

    def _unsigned(self) -> int:
        value = 0
        for place in range(_LONGEST):
            byte = self._byte()
            value |= (byte & 127) << 7 * place
            if byte < 128:
                return value
        raise _wrong(f"a number of more than {_LONGEST} bytes", self.at)

    def _signed(self) -> int:
        value = self._unsigned()
        return (value >> 1) ^ -(value & 1)


def _wrong(what: str, at: int) -> DecodeError:
    return DecodeError(f"{what} (byte {at})", hint=_HINT)
