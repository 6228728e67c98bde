"""The tar framing: an ordinary PAX tar in WebDataset naming, our index as its last member.

GNU tar, Python's ``tarfile``, the ``webdataset`` package and Hugging Face's builder read it unchanged: the index is
called ``__shardstream__/index``, which WebDataset skips for its ``__``, and all of them for its lack of an extension.
"""

from __future__ import annotations

import io
import tarfile
from typing import Any

from shardstream.shards.checksum import checksum
from shardstream.shards.codecs import npy_header
from shardstream.shards.fields import FieldType
from shardstream.shards.framing import IndexedFraming
from shardstream.shards.keys import escape_key
from shardstream.shards.layout import BLOCK
from shardstream.shards.writing import OneShard, ShardSummary

INDEX_MEMBER = "__shardstream__/index"
_END = bytes(2 * BLOCK)
# A ustar header of a file with mode 0644, no owner, no time; name, size and checksum are filled in.
_USTAR = bytearray(BLOCK)
_USTAR[100:124] = b"0000644\x000000000\x000000000\x00"
_USTAR[136:148] = b"00000000000\x00"
_USTAR[148:156] = b" " * 8
_USTAR[156:157] = b"0"
_USTAR[257:265] = b"ustar\x0000"
_USTAR[329:345] = b"0000000\x000000000\x00"
_USTAR_SUM = sum(_USTAR)
_NAME_BYTES = 100
_SIZE_LIMIT = 8**11


class TarFraming(IndexedFraming):
    """Reads tar shards of our own; the index tells where every member's data begins."""

    name = "tar"
    suffix = ".tar"
    end_bytes = len(_END)


class TarShard(OneShard):
    """Writes one tar shard."""

    framing = "tar"

    def _write_value(self, key: str, name: str, kind: FieldType, value: Any) -> None:
        prefix = b""
        if kind.kind == "scalar":
            self._index.set_scalar(name, kind, value)
            data: bytes | memoryview = _scalar_text(value)
        elif kind.kind == "fixed":
            assert kind.dtype is not None
            assert kind.shape is not None
            prefix, data = npy_header(kind.dtype, kind.shape), value.tobytes()
        else:
            data = value
        self._write(member_header(f"{escape_key(key)}.{name}", len(prefix) + len(data)))
        if kind.kind != "scalar":
            offset = self._out.tell() + len(prefix)
            self._index.set_bytes(name, kind, offset=offset, length=len(data), checksum=checksum(data))
        self._write(prefix)
        self._write(data)
        self._pad(BLOCK)

    def finish(self) -> ShardSummary:
        data = self._index_bytes({})
        self._write(member_header(INDEX_MEMBER, len(data)))
        self._write(data)
        self._write(_END)
        return self._summary(len(data))


def _scalar_text(value: float) -> bytes:
    # What WebDataset's own decoders expect of .cls and the like.
    return str(int(value)).encode() if isinstance(value, bool) else repr(value).encode()


def member_header(name: str, size: int) -> bytes:
    """The header of a member: plain ustar where that can say it, PAX records in front where not."""
    encoded = name.encode()
    if len(encoded) > _NAME_BYTES or size >= _SIZE_LIMIT or not name.isascii():
        return _pax_header(name, size)
    header = bytearray(_USTAR)
    header[: len(encoded)] = encoded
    header[124:136] = b"%011o\x00" % size
    total = _USTAR_SUM + sum(encoded) + sum(header[124:136])
    header[148:156] = b"%06o\x00 " % total
    return bytes(header)


def _pax_header(name: str, size: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.size = size
    info.mode = 0o644
    return info.tobuf(tarfile.PAX_FORMAT)


def list_members(data: memoryview) -> list[tuple[str, int, int]]:
    """(name, offset, size) of all members, read from the headers alone: what a tar says without our index."""
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
        return [(info.name, info.offset_data, info.size) for info in archive]
