"""What a msgpack object says, with places: plain values, and numpy arrays as the package msgpack-numpy writes them.

Places are what the package msgpack does not give. Extension types are refused.

https://github.com/msgpack/msgpack/blob/master/spec.md
"""

from __future__ import annotations

import struct
from typing import Any

from shardstream.formats.lmdb.values import (
    MAX_NESTING,
    Blob,
    EndsEarly,
    Found,
    Nested,
    NotUnderstood,
    StoredArray,
    array_of,
    dtype_of,
    scalar_of,
)

_CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}
_NUMBERS = {
    code: struct.Struct(form)
    for code, form in zip((0xCA, 0xCB, *range(0xCC, 0xD4)), (">f", ">d", *(f">{c}" for c in "BHIQbhiq")), strict=True)
}
_SIZED = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4, 0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4}  # bytes of a size
_MOST = 1 << 26


def read_packed(data: memoryview) -> Found:
    """What a msgpack object says; what lists and dicts hold that lie inside of another is one object each.

    Raises:
        NotUnderstood: It is damaged, goes on after its end, or holds extension types.
    """
    reader = _Reader(data)
    return reader.whole(reader.value(0))


def read_packed_names(data: memoryview) -> Any:
    """A list of bytes or text, all as bytes, or a number; raises as `read_packed`."""
    reader = _Reader(data)
    found = reader.whole(reader.value(0))
    if isinstance(found, list):
        return [one.read(data) if isinstance(one, Blob) else one for one in found]
    return found


class _Reader:
    """Reads one object after another.

    Args:
        data: What holds them.
    """

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._pos = 0
        self._left = _MOST

    def whole(self, found: Found) -> Found:
        """What was read, if nothing follows it."""
        if self._pos != len(self._data):
            raise EndsEarly("a msgpack object that ends before its value does", self._pos)
        return found

    def value(self, depth: int) -> Found:
        """The next object. One that lies in another is a `Nested` where it is neither plain nor an array."""
        at = self._pos
        code = self._size(1)
        self._left -= 1
        if depth > MAX_NESTING or self._left < 0:
            raise NotUnderstood("a msgpack object that is too deep, or of too many parts", at)
        if code < 0x80 or code >= 0xE0:
            return code if code < 0x80 else code - 0x100
        if code < 0xC0:
            return self._sized(code, at, depth)
        if code in _CONSTANTS:
            return _CONSTANTS[code]
        if code in _NUMBERS:
            form = _NUMBERS[code]
            number: int | float = form.unpack_from(self._data, self._take(form.size))[0]
            return number
        if code not in _SIZED:
            raise NotUnderstood("a msgpack object with an extension type", at)
        return self._sized(code, at, depth)

    def _sized(self, code: int, at: int, depth: int) -> Found:
        short = code & (0x1F if code >= 0xA0 else 0x0F)
        length = short if code < 0xC0 else self._size(_SIZED[code])
        if code >= 0xDE or code < 0x90:
            return self._map(length, at, depth)
        if code >= 0xDC or code < 0xA0:
            return self._list(length, at, depth)
        return Blob(self._take(length), length, "bytes" if 0xC4 <= code <= 0xC6 else "text")

    def _list(self, length: int, at: int, depth: int) -> Found:
        self._check(length, at)
        if depth:
            for _ in range(length):
                self.value(depth + 1)
            return Nested(at, self._pos - at)
        return [self.value(depth + 1) for _ in range(length)]

    def _map(self, length: int, at: int, depth: int) -> Found:
        self._check(2 * length, at)
        found: dict[str, Any] = {}
        for _ in range(length):
            start = self._pos
            key = self.value(depth + 1)
            if isinstance(key, Blob):
                name = key.text(self._data)
            elif type(key) is int:
                name = str(key)
            else:
                raise NotUnderstood("a key that is neither text nor an integer", start)
            found[name] = self._shape() if name == "shape" and "nd" in found else self.value(depth + 1)
        if "nd" in found:
            return self._numpy(found, at)
        return Nested(at, self._pos - at) if depth else found

    def _shape(self) -> Found:
        """The shape of an array: a list of a few numbers."""
        at = self._pos
        code = self._size(1)
        length = code - 0x90 if 0x90 <= code < 0xA0 else self._size(2) if code == 0xDC else MAX_NESTING + 1
        if length > MAX_NESTING:
            raise NotUnderstood("a numpy array whose shape is none", at)
        return [self.value(MAX_NESTING) for _ in range(length)]

    def _numpy(self, found: dict[str, Any], at: int) -> Found:
        """An array or number of numpy."""
        kind, raw = found.get("type"), found.get("data")
        if not isinstance(kind, Blob) or not isinstance(raw, Blob):
            raise NotUnderstood("a numpy array of records or objects", at)
        code = kind.text(self._data)
        dtype = dtype_of(code[1:], code[:1], at)
        raw = Blob(raw.offset, raw.length, "bytes")
        if found["nd"] is True:
            array: StoredArray = array_of(dtype, found.get("shape"), raw, self._data, False)
            return array
        return scalar_of(dtype, raw, self._data)

    def _check(self, parts: int, at: int) -> None:
        if parts > len(self._data) - self._pos:
            raise EndsEarly(f"{parts} parts in a msgpack object that has not so many bytes", at)

    def _take(self, length: int) -> int:
        begin = self._pos
        if length > len(self._data) - begin:
            raise EndsEarly(f"{length} bytes in a msgpack object that has not so many left", begin)
        self._pos = begin + length
        return begin

    def _size(self, width: int) -> int:
        begin = self._take(width)
        return int.from_bytes(self._data[begin : begin + width], "big")
