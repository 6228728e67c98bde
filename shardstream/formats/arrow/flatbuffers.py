"""Flatbuffers, as far as Arrow's metadata needs them: every offset is compared with the buffer before it is followed.

https://flatbuffers.dev/internals/
"""

from __future__ import annotations

import struct

_OFFSET = struct.Struct("<I")
_MOST = 1 << 16
"""Tables that one buffer may have us read: several places may refer to one, and so on, without end."""


class Inconsistent(ValueError):
    """Bytes that contradict themselves, or refer to what is not there."""


class UnknownKind(Exception):
    """Bytes that are valid, and of a kind that is not read."""


class Flat:
    """A buffer, and how much of it was read."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._left = _MOST

    def root(self) -> FlatTable:
        """The table that the buffer begins with."""
        return self.table(self.offset(0))

    def table(self, at: int) -> FlatTable:
        """The table at a place."""
        self._left -= 1
        if self._left < 0:
            raise UnknownKind(f"its metadata has more than {_MOST} tables, such as columns")
        return FlatTable(self, at)

    def number(self, form: struct.Struct, at: int) -> int:
        """A number at a place."""
        if at < 0 or at + form.size > len(self.data):
            raise Inconsistent(f"the metadata refers to byte {at} of {len(self.data)}")
        found: int = form.unpack_from(self.data, at)[0]
        return found

    def offset(self, at: int) -> int:
        """The place that an offset refers to; it is always behind the offset."""
        return at + self.number(_OFFSET, at)


_FORMS = {text: struct.Struct(f"<{text}") for text in "bBhHiIqQ"}


class FlatTable:
    """A table of a flatbuffer; fields are told by their numbers.

    Args:
        flat: The buffer.
        at: Where the table lies.

    Raises:
        Inconsistent: It is not inside of the buffer; so do all methods for what they read.
    """

    def __init__(self, flat: Flat, at: int) -> None:
        self._flat = flat
        self._at = at
        self._fields = at - flat.number(_FORMS["i"], at)
        self._size = flat.number(_FORMS["H"], self._fields)

    def _place(self, field: int) -> int | None:
        slot = 4 + 2 * field
        if slot + 2 > self._size:
            return None
        found = self._flat.number(_FORMS["H"], self._fields + slot)
        return self._at + found if found else None

    def number(self, field: int, form: str = "i", default: int = 0) -> int:
        """A number; ``form`` as of `struct`."""
        at = self._place(field)
        return default if at is None else self._flat.number(_FORMS[form], at)

    def table(self, field: int) -> FlatTable | None:
        """A table; ``None`` where there is none."""
        at = self._place(field)
        return None if at is None else self._flat.table(self._flat.offset(at))

    def _vector(self, field: int, width: int) -> tuple[int, int]:
        at = self._place(field)
        if at is None:
            return 0, 0
        begin = self._flat.offset(at)
        count = self._flat.number(_FORMS["I"], begin)
        if begin + 4 + count * width > len(self._flat.data):
            raise Inconsistent(f"{count} elements that the metadata announces are not in it")
        return begin + 4, count

    def text(self, field: int) -> str:
        """A text; empty where there is none."""
        begin, count = self._vector(field, 1)
        return self._flat.data[begin : begin + count].decode("utf-8", "replace")

    def tables(self, field: int) -> list[FlatTable]:
        """A list of tables."""
        begin, count = self._vector(field, 4)
        return [self._flat.table(self._flat.offset(at)) for at in range(begin, begin + 4 * count, 4)]

    def structs(self, field: int, form: str) -> list[tuple[int, ...]]:
        """A list of structs, each of these numbers."""
        width = struct.calcsize(f"<{form}")
        begin, count = self._vector(field, width)
        return list(struct.iter_unpack(f"<{form}", self._flat.data[begin : begin + count * width]))
