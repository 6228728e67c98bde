"""The columns of an index while its shard is being written: compact arrays, no Python object a sample."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import FieldError
from shardstream.shards.fields import FieldType
from shardstream.shards.index import Codec, Column


@dataclass(slots=True)
class _Growing:
    type: FieldType
    codec: Codec
    offsets: array[int] = field(default_factory=lambda: array("Q"))
    lengths: array[int] = field(default_factory=lambda: array("Q"))
    raw_lengths: array[int] = field(default_factory=lambda: array("Q"))
    checksums: array[int] = field(default_factory=lambda: array("Q"))
    values: list[int | float | bool] | array[Any] = field(default_factory=list)
    valid: bytearray = field(default_factory=bytearray)

    def one_more(self) -> None:
        """Append a sample without a value."""
        if self.type.kind == "scalar":
            self.values.append(0)
        else:
            self.offsets.append(0)
            self.lengths.append(0)
            self.raw_lengths.append(0)
            self.checksums.append(0)
        self.valid.append(0)

    def grow(self, count: int) -> None:
        """Append ``count`` samples without a value."""
        if self.type.kind == "scalar":
            self.values.extend([0] * count)
        else:
            zeros = bytes(8 * count)
            for column in (self.offsets, self.lengths, self.raw_lengths, self.checksums):
                column.frombytes(zeros)
        self.valid.extend(bytes(count))


class IndexBuilder:
    """Collects the columns of one shard.

    Args:
        codecs: Codec of each field that is not stored plainly.
        checksums: Whether checksums are kept.
    """

    def __init__(self, *, codecs: dict[str, Codec], checksums: bool) -> None:
        self._codecs = codecs
        self._checksums = checksums
        self._columns: dict[str, _Growing] = {}
        self._key_ends = array("Q")
        self._key_blob = bytearray()

    @property
    def samples(self) -> int:
        """Samples begun so far."""
        return len(self._key_ends)

    def begin(self, key: str) -> None:
        """Begin the next sample; fields that are not set stay without a value."""
        self._key_blob += key.encode()
        self._key_ends.append(len(self._key_blob))
        for column in self._columns.values():
            column.one_more()

    def _column(self, name: str, kind: FieldType) -> _Growing:
        column = self._columns.get(name)
        if column is None:
            column = self._columns[name] = _Growing(kind, self._codecs.get(name, "none"), values=_scalar_array(kind))
            column.grow(self.samples)
        elif column.type is not kind and column.type != kind:
            raise FieldError(
                f"the field is {column.type}, not {kind}", field=name, hint="declare one type for all samples"
            )
        column.valid[-1] = 1
        return column

    def set_scalar(self, name: str, kind: FieldType, value: float) -> None:
        """Set a scalar of the current sample."""
        self._column(name, kind).values[-1] = value

    def set_bytes(
        self, name: str, kind: FieldType, *, offset: int, length: int, checksum: int, raw_length: int | None = None
    ) -> None:
        """Set where a payload or fixed array of the current sample lies. Dense fixed arrays pass ``offset=0``."""
        column = self._column(name, kind)
        column.offsets[-1] = offset
        column.lengths[-1] = length
        column.checksums[-1] = checksum
        column.raw_lengths[-1] = length if raw_length is None else raw_length

    def keys(self) -> tuple[NDArray[np.uint64], bytes]:
        """Ends of the keys (n,), and their blob."""
        return np.array(self._key_ends, np.uint64), bytes(self._key_blob)

    def columns(self, bases: dict[str, int]) -> list[Column]:
        """The finished columns, in order of name. ``bases`` holds the start of each dense fixed array."""
        return [self._finish(name, self._columns[name], bases.get(name)) for name in sorted(self._columns)]

    def _finish(self, name: str, column: _Growing, base: int | None) -> Column:
        valid = np.frombuffer(bytes(column.valid), np.uint8)
        bitmap = None if valid.all() else np.packbits(valid, bitorder="little")
        if column.type.kind == "scalar":
            return Column(name, column.type, valid=bitmap, values=np.array(column.values, column.type.dtype))
        payload = column.type.kind == "payload"
        return Column(
            name,
            column.type,
            codec=column.codec,
            valid=bitmap,
            offsets=None if base is not None else np.array(column.offsets, np.uint64),
            lengths=np.array(column.lengths, np.uint64) if payload else None,
            raw_lengths=np.array(column.raw_lengths, np.uint64) if column.codec != "none" else None,
            checksums=np.array(column.checksums, np.uint64) if self._checksums else None,
            base=base,
        )


def _scalar_array(kind: FieldType) -> array[Any] | list[int | float | bool]:
    if kind.dtype is None or kind.dtype.kind not in "iuf":
        return []
    return array({"i": "q", "u": "Q", "f": "d"}[kind.dtype.kind])
