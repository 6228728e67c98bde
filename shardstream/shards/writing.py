"""What writers of both framings share: one shard, from samples to its summary.

The columns of its index are compact arrays while it is being written: no Python object a sample.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import FieldError
from shardstream.shards import layout
from shardstream.shards.arrays import check_unmasked
from shardstream.shards.field_names import check_field_name
from shardstream.shards.fields import Encoded, FieldType
from shardstream.shards.index import Codec, Column, bitmap_of, check_key
from shardstream.storage import ObjectWriter

EncodedSample: TypeAlias = Mapping[str, tuple[FieldType, Encoded]]


class _Growing:
    """A column while its shard is being written."""

    def __init__(self, kind: FieldType, codec: Codec) -> None:
        self.type = kind
        self.codec = codec
        self.valid = bytearray()
        self.arrays: dict[str, array[Any]] = {role: array(_code(kind, role)) for role in kind.roles}

    def one_more(self) -> None:
        """Append a sample without a value."""
        for values in self.arrays.values():
            values.append(0)
        self.valid.append(0)

    def grow(self, count: int) -> None:
        """Append ``count`` samples without a value."""
        for values in self.arrays.values():
            values.frombytes(bytes(values.itemsize * count))
        self.valid.extend(bytes(count))


def _code(kind: FieldType, role: str) -> str:
    """Of the array that collects the numbers of a role: as wide as they can be."""
    return "Q" if kind.dtype is None or role != "values" else {"b": "B", "i": "q", "u": "Q", "f": "d"}[kind.dtype.kind]


class IndexBuilder:
    """Collects the columns of one shard.

    Args:
        zstd: Fields that are compressed.
        checksums: Whether checksums are kept.
    """

    def __init__(self, *, zstd: Collection[str], checksums: bool) -> None:
        self._zstd = zstd
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
            column = self._columns[name] = _Growing(kind, "zstd" if name in self._zstd else "none")
            column.grow(self.samples)
        column.valid[-1] = 1
        return column

    def set_scalar(self, name: str, kind: FieldType, value: float) -> None:
        """Set a scalar of the current sample."""
        self._column(name, kind).arrays["values"][-1] = value

    def set_bytes(
        self, name: str, kind: FieldType, *, offset: int, length: int, checksum: int, raw_length: int | None = None
    ) -> None:
        """Set where a payload or fixed array of the current sample lies. Dense fixed arrays pass ``offset=0``."""
        arrays = self._column(name, kind).arrays
        arrays["offsets"][-1] = offset
        arrays["checksums"][-1] = checksum
        if "lengths" in arrays:
            arrays["lengths"][-1] = length
            arrays["raw_lengths"][-1] = length if raw_length is None else raw_length

    def keys(self) -> tuple[NDArray[np.uint64], bytes]:
        """Ends of the keys (n,), and their blob."""
        return np.array(self._key_ends, np.uint64), bytes(self._key_blob)

    def columns(self, bases: dict[str, int]) -> list[Column]:
        """The finished columns, in order of name. ``bases`` holds the start of each dense fixed array."""
        return [self._finish(name, self._columns[name], bases.get(name)) for name in sorted(self._columns)]

    def _finish(self, name: str, column: _Growing, base: int | None) -> Column:
        valid = np.frombuffer(bytes(column.valid), np.uint8)
        bitmap = bitmap_of(valid)
        kept = {"offsets": base is None, "raw_lengths": column.codec != "none", "checksums": self._checksums}
        arrays = {
            role: np.array(values, column.type.dtype if role == "values" else np.uint64)
            for role, values in column.arrays.items()
            if kept.get(role, True)
        }
        return Column(name, column.type, codec=column.codec, valid=bitmap, base=base, **arrays)


@dataclass(frozen=True, slots=True)
class ShardSummary:
    """What the manifest keeps of a finished shard.

    Attributes:
        samples: Number of samples.
        bytes: Size of the object.
        checksum: XXH3-64 of the object.
        index_bytes: Bytes at the end of the object that hold the index.
        fields: Field types by name.
    """

    samples: int
    bytes: int
    checksum: int
    index_bytes: int
    fields: dict[str, FieldType]


def encode_value(name: str, kind: FieldType, value: object) -> Encoded:
    """A value as a shard writer takes it.

    Raises:
        FieldError: It does not fit the type; names the field.
    """
    try:
        check_unmasked(value)
        return kind.encode(value)
    except FieldError as error:
        raise error.at(field=name) from error.__cause__


class OneShard(ABC):
    """Writes one shard into an object that is being written. Bytes depend on the samples alone.

    Args:
        out: The object. The caller commits it after `finish`, or discards it and calls `close`.
        zstd: Payload fields to compress one by one. Their bytes depend on the version of the zstd library too.
        checksums: Whether the index holds a checksum of each value.

    Raises:
        UsageError: This framing does not compress.
    """

    framing: str

    def __init__(self, out: ObjectWriter, *, zstd: frozenset[str] = frozenset(), checksums: bool = True) -> None:
        self._out = out
        self._hasher = layout.Hasher()
        self._index = IndexBuilder(zstd=zstd, checksums=checksums)
        self._zstd = zstd
        self._fields: dict[str, FieldType] = {}

    @property
    def samples(self) -> int:
        """Samples written so far."""
        return self._index.samples

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self._out.tell()

    def write(self, key: str, sample: EncodedSample) -> None:
        """Append a sample: its fields in order of name. One that is refused leaves the shard as it was.

        Args:
            key: Its key.
            sample: Type and encoded value (`encode_value`) of each field that it has.

        Raises:
            UsageError: A key that cannot be one.
            FieldError: A field that has another type in this shard, or a name or codec that cannot be.
        """
        check_key(key)
        names = sorted(sample)
        for name in names:
            known = self._fields.get(name)
            if known is None:
                self._check_new(name, sample[name][0])
            elif known is not sample[name][0] and known != sample[name][0]:
                raise FieldError(
                    f"the field is {known}, not {sample[name][0]}",
                    key=key,
                    field=name,
                    hint="declare one type for all samples",
                )
        self._index.begin(key)
        for name in names:
            kind, value = sample[name]
            if self._fields.setdefault(name, kind).is_image and not kind.is_image:
                self._fields[name] = kind  # bytes, not all of which are known to be image files
            self._write_value(key, name, kind, value)

    def _check_new(self, name: str, kind: FieldType) -> None:
        check_field_name(name)
        if name in self._zstd and kind.kind != "payload":
            raise FieldError(
                f"a field of type {kind} cannot be compressed",
                field=name,
                hint="compress bytes, str, json, msgpack, array or tensor",
            )
        for other in self._fields:
            if other.lower() == name.lower():
                raise FieldError(
                    f"the fields {other!r} and {name!r} differ by case only",
                    field=name,
                    hint="rename one: some file systems take both for one extension",
                )

    @abstractmethod
    def _write_value(self, key: str, name: str, kind: FieldType, value: Any) -> None: ...

    @abstractmethod
    def finish(self) -> ShardSummary:
        """Append the index; what is written is a whole shard now."""

    def close(self) -> None:  # noqa: B027 - most framings hold nothing
        """Free what an unfinished shard holds besides its object. Does nothing after `finish`."""

    def _write(self, data: bytes | bytearray | memoryview) -> None:
        self._out.write(data)
        self._hasher.update(data)

    def _pad(self, multiple: int) -> None:
        if missing := layout.padding(self._out.tell(), multiple):
            self._write(bytes(missing))

    def _index_bytes(self, *, end: int, bases: dict[str, int]) -> bytes:
        return layout.pack_index(self.framing, self._index.keys(), self._index.columns(bases), end=end)

    def _summary(self, index_bytes: int) -> ShardSummary:
        return ShardSummary(
            self.samples, self.size, self._hasher.intdigest(), index_bytes, dict(sorted(self._fields.items()))
        )
