"""The tar framing: an ordinary PAX tar in WebDataset naming, our index as its last member.

GNU tar, Python's ``tarfile``, the ``webdataset`` package and Hugging Face's builder read it unchanged: the index is
called ``__shardstream__/index``, which WebDataset skips for its ``__``, and all of them for its lack of an extension.
"""

from __future__ import annotations

import tarfile
from functools import lru_cache
from typing import Any

from shardstream.errors import FormatError, UsageError
from shardstream.shards.arrays import npy_header
from shardstream.shards.fields import FieldType
from shardstream.shards.index import escape_key
from shardstream.shards.indexed import IndexedFraming
from shardstream.shards.layout import BLOCK, checksum, padding
from shardstream.shards.writing import OneShard, ShardSummary
from shardstream.storage import ObjectWriter
from shardstream.storage.base.ranged import RangedFile

INDEX_MEMBER = "__shardstream__/index"
_END = bytes(2 * BLOCK)
_PAX_MEMBER = b"././@PaxHeader"
# A ustar header of a file with mode 0644, no owner, no time; name, size, type and checksum are filled in.
_USTAR = bytearray(BLOCK)
_USTAR[100:124] = b"0000644\x000000000\x000000000\x00"
_USTAR[136:148] = b"00000000000\x00"
_USTAR[148:156] = b" " * 8
_USTAR[257:265] = b"ustar\x0000"
_USTAR[329:345] = b"0000000\x000000000\x00"
_USTAR_SUM = sum(_USTAR)
_NAME_BYTES = 100
_SIZE_LIMIT = 8**11  # what 11 octal digits hold: 8 GiB


class TarFraming(IndexedFraming):
    """Reads tar shards of our own; the index tells where every member's data begins."""

    name = "tar"
    suffix = ".tar"
    end_bytes = len(_END)


class TarShard(OneShard):
    """Writes one tar shard."""

    framing = "tar"

    def __init__(self, out: ObjectWriter, *, zstd: frozenset[str] = frozenset(), checksums: bool = True) -> None:
        if zstd:
            raise UsageError(
                f"members of a tar are stored as they are, but {', '.join(sorted(zstd))} should be compressed",
                hint="use format='record', or no compression",
            )
        super().__init__(out, checksums=checksums)

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
        size = len(prefix) + len(data)
        header = member_header(f"{escape_key(key)}.{name}", size)
        if kind.kind != "scalar":
            offset = self._out.tell() + len(header) + len(prefix)
            self._index.set_bytes(name, kind, offset=offset, length=len(data), checksum=checksum(data))
        end = bytes(padding(size, BLOCK))
        if len(data) <= BLOCK:  # one call costs more than copying it
            self._write(b"".join((header, prefix, data, end)))
        else:
            self._write(header + prefix)
            self._write(data)
            self._write(end)

    def finish(self) -> ShardSummary:
        data = self._index_bytes(end=self._out.tell() + BLOCK, bases={})  # it begins after its member's header
        self._write(member_header(INDEX_MEMBER, len(data)))
        self._write(data)
        self.end()
        return self._summary(len(data))

    def end(self) -> None:
        """End the tar; without `finish` before, it is one of other programs, without an index."""
        self._write(_END)


def _scalar_text(value: float) -> bytes:
    # What WebDataset's own decoders expect of .cls and the like.
    return str(int(value)).encode() if isinstance(value, bool) else repr(value).encode()


def member_header(name: str, size: int) -> bytes:
    """The header of a member: one ustar block where that can say it, a PAX header in front where not.

    https://pubs.opengroup.org/onlinepubs/9699919799/utilities/pax.html
    """
    encoded = name.encode()
    records = b""
    if len(encoded) > _NAME_BYTES or not name.isascii():
        records += _pax_record(b"path", encoded)
    if size >= _SIZE_LIMIT:
        records += _pax_record(b"size", b"%d" % size)
    if not records:
        return _ustar(encoded, size, b"0")
    pax = _ustar(_PAX_MEMBER, len(records), b"x") + records + bytes(padding(len(records), BLOCK))
    # For programs that know no PAX: the name as far as it goes.
    return pax + _ustar(name.encode("ascii", "replace")[:_NAME_BYTES], size if size < _SIZE_LIMIT else 0, b"0")


def _ustar(name: bytes, size: int, kind: bytes) -> bytes:
    header = bytearray(_USTAR)
    header[: len(name)] = name
    header[124:136], digits = _octal(size)
    header[156:157] = kind
    total = _USTAR_SUM + sum(name) + digits + kind[0]
    header[148:156] = b"%06o\x00 " % total
    return bytes(header)


@lru_cache(maxsize=1024)
def _octal(size: int) -> tuple[bytes, int]:
    """A size as it stands in a header, and the sum of those bytes: labels have few sizes."""
    text = b"%011o\x00" % size
    return text, sum(text)


def _pax_record(keyword: bytes, value: bytes) -> bytes:
    """A record: its own length in decimal digits, which count too, space, keyword, ``=``, value, newline."""
    rest = len(keyword) + len(value) + 3
    length = rest + len(str(rest))
    length = rest + len(str(length))  # the digits may have become one more
    return b"%d %s=%s\n" % (length, keyword, value)


def list_members(data: memoryview) -> list[tuple[str, int, int]]:
    """(name, offset, size) of all members, read from the headers alone: what a tar says without our index.

    Raises:
        FormatError: It is not a tar.
    """
    try:
        found: list[tuple[str, int, int]] = []
        file = RangedFile(len(data), lambda at, length: data[at : at + length])
        with tarfile.open(fileobj=file, mode="r:") as archive:
            for info in archive:
                if info.size < 0 or (found and info.offset_data <= found[-1][1]):
                    raise ValueError("its members do not follow one another")  # tarfile itself may go round for ever
                found.append((info.name, info.offset_data, info.size))
            return found
    except (tarfile.TarError, ValueError, OverflowError, MemoryError, RecursionError) as error:
        raise FormatError(f"not a tar file: {error}", hint="fetch or write the shard again") from error
