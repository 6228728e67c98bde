"""The record framing: payloads back to back, fixed-size arrays as dense columns, the index as footer."""

from __future__ import annotations

import struct
import tempfile
from typing import IO, Any

from shardstream.shards.checksum import checksum
from shardstream.shards.fields import FieldType
from shardstream.shards.framing import IndexedFraming
from shardstream.shards.layout import ALIGNMENT, FORMAT_VERSION
from shardstream.shards.writing import OneShard, ShardSummary, compressor
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
        self._zstd = zstd
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
            data = compressor().compress(value) if name in self._zstd else value
            place = {"offset": self._out.tell(), "length": len(data), "checksum": checksum(data)}
            self._index.set_bytes(name, kind, raw_length=raw_length, **place)
            self._write(data)

    def _spool(self, name: str, kind: FieldType) -> IO[bytes]:
        spool = self._spools.get(name)
        if spool is None:
            spool = self._spools[name] = tempfile.SpooledTemporaryFile(max_size=_SPOOL)  # noqa: SIM115 - closed in finish
        missing = (self.samples - 1) * kind.width - spool.tell()
        spool.write(bytes(missing))
        return spool

    def finish(self) -> ShardSummary:
        bases = {}
        for name in sorted(self._spools):
            self._pad(ALIGNMENT)
            bases[name] = self._out.tell()
            self._copy(name)
        self._pad(ALIGNMENT)
        data = self._index_bytes(bases)
        self._write(data)
        return self._summary(len(data))

    def _copy(self, name: str) -> None:
        width = self._fields[name].width
        with self._spools.pop(name) as spool:
            spool.write(bytes(self.samples * width - spool.tell()))
            spool.seek(0)
            while part := spool.read(_COPY):
                self._write(part)
