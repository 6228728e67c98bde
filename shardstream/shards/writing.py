"""What writers of both framings share: one shard, from samples to its summary."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

from numpy.typing import NDArray

from shardstream.errors import FieldError
from shardstream.extras import require
from shardstream.shards import layout
from shardstream.shards.builder import IndexBuilder
from shardstream.shards.checksum import Hasher
from shardstream.shards.fields import FieldType, to_bytes, to_fixed, to_scalar
from shardstream.shards.index import Codec
from shardstream.shards.keys import check_key
from shardstream.storage import ObjectWriter

Encoded: TypeAlias = "bytes | memoryview | int | float | bool | NDArray[Any]"
EncodedSample: TypeAlias = Mapping[str, tuple[FieldType, Encoded]]


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
    encoders = {"scalar": to_scalar, "fixed": to_fixed, "payload": to_bytes}
    try:
        return encoders[kind.kind](kind, value)
    except FieldError as error:
        raise error.at(field=name) from error.__cause__


class OneShard(ABC):
    """Writes one shard into an object that is being written. Bytes depend on the samples alone.

    Args:
        out: The object. The caller commits it after `finish`, or discards it.
        zstd: Payload fields to compress one by one.
        checksums: Whether the index holds a checksum of each value.
    """

    framing: str

    def __init__(self, out: ObjectWriter, *, zstd: frozenset[str] = frozenset(), checksums: bool = True) -> None:
        self._out = out
        self._hasher = Hasher()
        codecs: dict[str, Codec] = dict.fromkeys(zstd, "zstd")
        self._index = IndexBuilder(codecs=codecs, checksums=checksums)
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
        """Append a sample.

        Raises:
            UsageError: A key that cannot be one.
            FieldError: A field that has another type in this shard.
        """
        self._index.begin(check_key(key))
        for name in sorted(sample):
            kind, value = sample[name]
            self._fields.setdefault(name, kind)
            self._write_value(key, name, kind, value)

    @abstractmethod
    def _write_value(self, key: str, name: str, kind: FieldType, value: Any) -> None: ...

    @abstractmethod
    def finish(self) -> ShardSummary:
        """Append the index; what is written is a whole shard now."""

    def _write(self, data: bytes | bytearray | memoryview) -> None:
        self._out.write(data)
        self._hasher.update(data)

    def _pad(self, multiple: int) -> None:
        self._write(bytes(layout.padding(self._out.tell(), multiple)))

    def _index_bytes(self, bases: dict[str, int]) -> bytes:
        return layout.pack_index(self.framing, self._index.keys(), self._index.columns(bases))

    def _summary(self, index_bytes: int) -> ShardSummary:
        return ShardSummary(
            self.samples, self.size, self._hasher.intdigest(), index_bytes, dict(sorted(self._fields.items()))
        )


@lru_cache(maxsize=1)
def compressor() -> Any:
    """The zstd compressor: level 3, the library's own default, with the content size in the frame."""
    zstandard = require("zstandard", extra="zstd", purpose="to compress fields")
    return zstandard.ZstdCompressor(level=3, write_content_size=True)
