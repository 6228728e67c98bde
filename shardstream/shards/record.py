"""The record framing: payloads back to back, fixed-size arrays as dense columns, the index as footer."""

from __future__ import annotations

import struct
import tempfile
from typing import IO, Any

from shardstream.shards.compression import compress
from shardstream.shards.fields import FieldType
from shardstream.shards.indexed import IndexedFraming
from shardstream.shards.layout import ALIGNMENT, FORMAT_VERSION, checksum
from shardstream.shards.writing import OneShard, ShardSummary
from shardstream.storage import ObjectWriter

MAGIC = b"SSRECORD"
_HEADER = struct.Struct("<8sII")
_SPOOL = 32 << 20
_COPY = 1 << 20


class RecordFraming(IndexedFraming):
    """Reads record shards."""

    name = "record"
    suffix = ".rec"


class RecordShard(OneShard):
    """Writes one record shard. Fixed-size arrays wait in spooled temporary files, since their column comes last."""

    framing = "record"

    def __init__(self, out: ObjectWriter, *, zstd: frozenset[str] = frozenset(), checksums: bool = True) -> None:
        super().__init__(out, zstd=zstd, checksums=checksums)
        self._spools: dict[str, IO[bytes]] = {}
        self._write(_HEADER.pack(MAGIC, FORMAT_VERSION, 0))

    @property
    def size(self) -> int:
        return self._out.tell() + sum(spool.tell() for spool in self._spools.values())

    def _write_value(self, key: str, name: str, kind: FieldType, value: Any) -> None:
        if kind.kind == "scalar":
            self._index.set_scalar(name, kind, value)
        elif kind.kind == "fixed":
            data = value.tobytes()
            self._index.set_bytes(name, kind, offset=0, length=len(data), checksum=checksum(data))
            self._spool(name, kind).write(data)
        else:
            raw_length = len(value)
            data = compress(value) if name in self._zstd else value
            place = {"offset": self._out.tell(), "length": len(data), "checksum": checksum(data)}
            self._index.set_bytes(name, kind, raw_length=raw_length, **place)
            self._write(data)

    def _spool(self, name: str, kind: FieldType) -> IO[bytes]:
        spool = self._spools.get(name)
        if spool is None:
            spool = self._spools[name] = tempfile.SpooledTemporaryFile(max_size=_SPOOL)  # noqa: SIM115 - closed in finish
        _write_zeros(spool, (self.samples - 1) * kind.width - spool.tell())
        return spool

    def finish(self) -> ShardSummary:
        bases = {}
        for name in sorted(self._spools):
            self._pad(ALIGNMENT)
            bases[name] = self._out.tell()
            self._copy(name)
        self._pad(ALIGNMENT)
        data = self._index_bytes(end=self._out.tell(), bases=bases)
        self._write(data)
        return self._summary(len(data))

    def _copy(self, name: str) -> None:
        with self._spools.pop(name) as spool:
            _write_zeros(spool, self.samples * self._fields[name].width - spool.tell())
            spool.seek(0)
            while part := spool.read(_COPY):
                self._write(part)

    def close(self) -> None:
        for spool in self._spools.values():
            spool.close()
        self._spools.clear()


def _write_zeros(spool: IO[bytes], count: int) -> None:
    """Step by step: a wide field that first appears late in a shard leaves gigabytes of them."""
    for start in range(0, count, _COPY):
        spool.write(bytes(min(_COPY, count - start)))
