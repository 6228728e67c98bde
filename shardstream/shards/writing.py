"""What writers of both framings share: one shard, from samples to its summary."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from numpy.typing import NDArray

from shardstream.errors import FieldError
from shardstream.shards import layout
from shardstream.shards.builder import IndexBuilder
from shardstream.shards.checksum import Hasher
from shardstream.shards.fields import FieldKind, FieldType, check_field_name, to_bytes, to_fixed, to_scalar
from shardstream.shards.index import Codec
from shardstream.shards.keys import check_key
from shardstream.storage import ObjectWriter

Encoded: TypeAlias = "bytes | memoryview | int | float | bool | NDArray[Any]"
EncodedSample: TypeAlias = Mapping[str, tuple[FieldType, Encoded]]
_ENCODERS: dict[FieldKind, Callable[[FieldType, object], Encoded]] = {
    "scalar": to_scalar,
    "fixed": to_fixed,
    "payload": to_bytes,
}


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
        return _ENCODERS[kind.kind](kind, value)
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
        self._hasher = Hasher()
        codecs: dict[str, Codec] = dict.fromkeys(zstd, "zstd")
        self._index = IndexBuilder(codecs=codecs, checksums=checksums)
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
            self._fields.setdefault(name, kind)
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
                    hint="rename one: extensions of files are no case apart",
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
