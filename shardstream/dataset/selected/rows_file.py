"""The bytes of a file of rows: a head, then a record for each shard, each with a checksum of its own.

====================  ===================================================================
magic                 8 bytes
version, head length  two uint32
head                  JSON: ``data``, fingerprint and number of shards of each dataset; ``shards``;
                      ``search``, what `find_rows` was asked for, while it writes the file itself
checksum              XXH3-64 of all before it
records               one per shard: samples (uint32), kind (uint8), bits, XXH3-64 of the shard's number and these
====================  ===================================================================

A record's bits say which samples were chosen, 8 per byte, the first sample in the lowest bit. By kind: 0, the predicate
was called for all samples of the shard; 1, for none, and there are no bits; 2, for those in a second set of bits, which
follows as its length (uint32) and its bytes, compressed by zlib. All numbers are little-endian.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import xxhash

from shardstream.errors import ChecksumError, FormatError, VersionError

_MAGIC = b"SSROWS\r\n"
_VERSION = 1
_BEGIN = struct.Struct("<8sII")
_RECORD = struct.Struct("<IB")
_ALL, _NONE, _SOME = range(3)
_HINT = "delete it, and find the rows again"


@dataclass(frozen=True, slots=True)
class ShardRecord:
    """The rows of one shard.

    Attributes:
        samples: How many samples the shard has.
        chosen: A bit per sample: whether it was chosen.
        asked: A bit per sample: whether the predicate was called for it; ``None``: for all.
    """

    samples: int
    chosen: bytes
    asked: bytes | None

    def encode(self, shard: int) -> bytes:
        """The bytes of the record of this shard."""
        if self.asked is None:
            body = _RECORD.pack(self.samples, _ALL) + self.chosen
        elif not any(self.asked):
            body = _RECORD.pack(self.samples, _NONE)
        else:
            asked = zlib.compress(self.asked, 1)
            body = _RECORD.pack(self.samples, _SOME) + self.chosen + struct.pack("<I", len(asked)) + asked
        return body + _checksum(shard, body)


@dataclass(frozen=True, slots=True)
class RowsFile:
    """What a file holds.

    Attributes:
        head: Its head.
        records: Those of its first shards that are there whole.
        length: Bytes up to the end of these.
    """

    head: dict[str, Any]
    records: list[ShardRecord]
    length: int

    @property
    def complete(self) -> bool:
        """Whether all shards are there."""
        return bool(len(self.records) == self.head["shards"])


def encode_head(head: Mapping[str, Any]) -> bytes:
    """The bytes that a file begins with."""
    text = json.dumps(head, sort_keys=True).encode()
    begin = _BEGIN.pack(_MAGIC, _VERSION, len(text)) + text
    return begin + _checksum(0, begin)


def parse(data: bytes, url: str) -> RowsFile:
    """What the bytes of a file hold; the last record may be cut short.

    Raises:
        FormatError: It is no such file, or its head is cut short.
        VersionError: A newer version of shardstream wrote it.
        ChecksumError: It is damaged.
    """
    if len(data) < _BEGIN.size or not data.startswith(_MAGIC):
        raise FormatError("not a file of rows, or one that is cut short", url=url, hint=_HINT)
    _, version, length = _BEGIN.unpack_from(data)
    end = _BEGIN.size + length
    if version > _VERSION:
        what = f"the file of rows has version {version}, this shardstream reads up to {_VERSION}"
        raise VersionError(what, url=url, hint="read it with the version of shardstream that wrote it")
    if end + 8 > len(data):
        raise FormatError("the file of rows is cut short", url=url, hint=_HINT)
    if data[end : end + 8] != _checksum(0, data[:end]):
        raise ChecksumError("the file of rows is damaged", url=url, offset=0, hint=_HINT)
    head = json.loads(data[_BEGIN.size : end])
    records, at = list[ShardRecord](), end + 8
    while len(records) < head["shards"]:
        size = _size_at(data, at)
        if size is None or at + size + 8 > len(data):
            break
        body = data[at : at + size]
        if data[at + size : at + size + 8] != _checksum(len(records), body):
            raise ChecksumError("the file of rows is damaged", url=url, offset=at, hint=_HINT)
        records.append(_decoded(body))
        at += size + 8
    if len(records) == head["shards"] and at < len(data):
        raise FormatError("the file of rows has more bytes than rows", url=url, offset=at, hint=_HINT)
    return RowsFile(head, records, at)


def _checksum(shard: int, body: bytes) -> bytes:
    return xxhash.xxh3_64_intdigest(body, seed=shard).to_bytes(8, "little")


def _size_at(data: bytes, at: int) -> int | None:
    """Bytes of the record that begins there, without its checksum; ``None`` if too few are left to know."""
    if at + _RECORD.size > len(data):
        return None
    samples, kind = _RECORD.unpack_from(data, at)
    size = _RECORD.size + (0 if kind == _NONE else (samples + 7) // 8)
    if kind != _SOME:
        return size
    if at + size + 4 > len(data):
        return None
    return size + 4 + int.from_bytes(data[at + size : at + size + 4], "little")


def _decoded(body: bytes) -> ShardRecord:
    samples, kind = _RECORD.unpack_from(body)
    width = (samples + 7) // 8
    if kind == _NONE:
        return ShardRecord(samples, bytes(width), bytes(width))
    chosen = body[_RECORD.size : _RECORD.size + width]
    asked = zlib.decompress(body[_RECORD.size + width + 4 :]) if kind == _SOME else None
    return ShardRecord(samples, chosen, asked)
