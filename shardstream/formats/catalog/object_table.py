"""``ObjectTable``: the objects of a catalogue, their shards and their blocks; see ``docs/foreign.md``."""

from __future__ import annotations

import builtins
import itertools
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np
import xxhash
from numpy.typing import NDArray

from shardstream.errors import ChecksumError, FormatError
from shardstream.formats.blocks import ObjectBlocks
from shardstream.formats.blocks.codecs import CODECS
from shardstream.formats.blocks.codecs import LARGEST as LARGEST_BLOCK
from shardstream.formats.blocks.table import COLUMNS as BLOCK_COLUMNS
from shardstream.shards.layout import FORMAT_VERSION, checksum

# Magic, version, zero, objects, shards, names, checksum of the rest, blocks, settings of blocks.
_HEAD = struct.Struct("<8sIIQQQQQQ")
_MAGIC = b"SSOBJCT\n"
RESTORE = "make it anew: `shardstream index URL --beside`"
# Columns in the order in which they are stored: of objects, of shards; where there are blocks, of objects and blocks;
# where there are settings of these, of objects and settings.
_OF_OBJECTS = (("sizes", "<u8"), ("versions", "<u8"), ("checksums", "<u8"), ("abouts", "<u8"), ("name_ends", "<u8"))
_OF_SHARDS = (("index_ends", "<u8"), ("index_checksums", "<u8"), ("objects", "<u4"), ("samples", "<u4"))
_OF_BLOCKS = tuple((f"block_{name}", kind) for name, kind in BLOCK_COLUMNS)
_ENDS = (("block_ends", "<u8"),)
_ENDS_OF_SETTINGS = (("block_setting_ends", "<u8"),)
_OF_SETTINGS = (("setting_ends", "<u8"),)


@dataclass(frozen=True, slots=True, eq=False)
class ObjectTable:
    """The objects of a catalogue, its shards, and blocks of compressed objects. All arrays are read-only.

    There are m objects, n shards, b blocks and s settings of these.

    Attributes:
        sizes: uint64 (m,), bytes of each object, as it is stored.
        versions: uint64 (m,), see `ObjectMeta.version`.
        checksums: uint64 (m,), XXH3-64 of the object; 0 where nobody has read all of it.
        abouts: uint64 (m,), XXH3-64 of what the scan of each had to know from elsewhere.
        name_ends: uint64 (m,), where each name ends in ``names``.
        block_ends: uint64 (m,), the first block that is not of it; objects without blocks are read as they are stored.
        index_ends: uint64 (n,), where the index of each shard ends in the object of indexes.
        index_checksums: uint64 (n,), XXH3-64 of each index.
        objects: uint32 (n,), the object that each shard is of.
        samples: uint32 (n,).
        block_offsets: uint64 (b,), where each block begins in its object, as it is stored.
        block_checksums: uint64 (b,), `checksum_of` its inflated bytes; 0 where nobody has inflated it.
        block_lengths: uint32 (b,), bytes that it takes there.
        block_sizes: uint32 (b,), its bytes when it is inflated.
        block_codecs: uint32 (b,), the lowest 8 bits are a number of `storage.blocks.codecs.CODECS`, the others the
            number of a setting of the object, from 1; 0: none.
        block_setting_ends: uint64 (m,), the first setting that is not of the object.
        setting_ends: uint64 (s,), where each setting ends in ``settings``.
        names: The names below the root, in UTF-8, one after another.
        settings: What codecs have to know of blocks besides, one setting after another.
    """

    sizes: NDArray[np.uint64]
    versions: NDArray[np.uint64]
    checksums: NDArray[np.uint64]
    abouts: NDArray[np.uint64]
    name_ends: NDArray[np.uint64]
    block_ends: NDArray[np.uint64]
    index_ends: NDArray[np.uint64]
    index_checksums: NDArray[np.uint64]
    objects: NDArray[np.uint32]
    samples: NDArray[np.uint32]
    block_offsets: NDArray[np.uint64]
    block_checksums: NDArray[np.uint64]
    block_lengths: NDArray[np.uint32]
    block_sizes: NDArray[np.uint32]
    block_codecs: NDArray[np.uint32]
    block_setting_ends: NDArray[np.uint64]
    setting_ends: NDArray[np.uint64]
    names: memoryview
    settings: memoryview

    def pack(self) -> bytes:
        """The table as bytes; the header holds the checksum of the rest."""
        parts = [np.ascontiguousarray(getattr(self, name), kind).tobytes() for name, kind in self._columns]
        body = b"".join([*parts, self.names, self.settings])
        counts = len(self.sizes), len(self.samples), len(self.names)
        of_blocks = len(self.block_offsets), len(self.setting_ends)
        return _HEAD.pack(_MAGIC, FORMAT_VERSION, 0, *counts, checksum(body), *of_blocks) + body

    @classmethod
    def parse(cls, data: memoryview, *, url: str) -> Self:
        """The table in ``data``, as views of it; DataError where it is none."""
        if len(data) < _HEAD.size or bytes(data[:8]) != _MAGIC:
            raise FormatError("not a table of objects", url=url, hint=RESTORE)
        _, _, _, objects, shards, names, expected, blocks, settings = _HEAD.unpack_from(data)
        body = data[_HEAD.size :]
        if checksum(body) != expected:
            raise ChecksumError("the table of objects is damaged or truncated", url=url, hint=RESTORE)
        sections = _sections(objects, shards, blocks, settings)
        end = sum(count * np.dtype(kind).itemsize for kinds, count in sections for _, kind in kinds)
        if end + names > len(body):
            raise FormatError("the table of objects contradicts itself", url=url, hint=RESTORE)
        columns, at = {}, 0
        for kinds, count in sections:
            for name, kind in kinds:
                columns[name] = np.frombuffer(body, kind, count, at)
                at += columns[name].nbytes
        for name in ("block_ends", "block_setting_ends"):
            if len(columns[name]) != objects:
                columns[name] = np.zeros(objects, "<u8")
        found = cls(**columns, names=body[at : at + names], settings=body[at + names :])
        found._check(url)
        return found

    def _check(self, url: str) -> None:
        """What a checksum does not say: somebody may have written it so."""
        ends, indexes, objects = self.name_ends, self.index_ends, self.objects
        sound = (
            (int(ends[-1]) if len(ends) else 0) == len(self.names)
            and not np.any(ends[1:] <= ends[:-1])
            and not np.any(indexes[1:] <= indexes[:-1])
            and not np.any(objects[1:] < objects[:-1])
            and (not len(objects) or int(objects[-1]) < len(self.sizes))
            and self._blocks_are_sound()
        )
        if not sound:
            raise FormatError("the table of objects contradicts itself", url=url, hint=RESTORE)

    def __reduce__(self) -> tuple[Callable[[builtins.bytes], ObjectTable], tuple[builtins.bytes]]:
        return _unpacked, (self.pack(),)  # views have no pickle

    @property
    def _columns(self) -> tuple[tuple[str, str], ...]:
        counts = len(self.sizes), len(self.samples), len(self.block_offsets), len(self.setting_ends)
        return tuple(column for kinds, count in _sections(*counts) if count for column in kinds)

    def _blocks_are_sound(self) -> bool:
        if not (
            _end_at(self.block_ends, len(self.block_offsets))
            and _end_at(self.block_setting_ends, len(self.setting_ends))
            and _end_at(self.setting_ends, len(self.settings))
        ):
            return False
        counts = np.diff(self.block_ends, prepend=np.uint64(0)).astype(np.int64)
        stored = np.repeat(self.sizes, counts)
        settings = np.repeat(np.diff(self.block_setting_ends, prepend=np.uint64(0)), counts)
        lengths = self.block_lengths.astype(np.uint64)
        return not (
            np.any(lengths > stored)
            or np.any(self.block_offsets > stored - lengths)
            or np.any(self.block_sizes > LARGEST_BLOCK)
            or not np.isin(self.block_codecs & 255, list(CODECS.values())).all()
            or np.any(self.block_codecs >> 8 > settings)
        )

    def blocks_of(self, number: int) -> ObjectBlocks | None:
        """The blocks of an object; ``None`` for one that is not compressed."""
        begin, end = int(self.block_ends[number - 1]) if number else 0, int(self.block_ends[number])
        if begin == end:
            return None
        columns = (getattr(self, name)[begin:end] for name, _ in _OF_BLOCKS)
        return ObjectBlocks(int(self.sizes[number]), *columns, settings=self._settings_of(number))

    def _settings_of(self, number: int) -> list[builtins.bytes]:
        begin, end = int(self.block_setting_ends[number - 1]) if number else 0, int(self.block_setting_ends[number])
        start = int(self.setting_ends[begin - 1]) if begin else 0
        ends = [start, *self.setting_ends[begin:end].tolist()]
        return [bytes(self.settings[one:next]) for one, next in itertools.pairwise(ends)]

    def shown_sizes(self) -> NDArray[np.uint64]:
        """Bytes of each object as it is read: inflated, uint64 (m,)."""
        if not len(self.block_offsets):
            return self.sizes
        ends = self.block_ends.astype(np.int64)
        begins = np.concatenate([[0], ends[:-1]])
        sums = np.concatenate([[0], np.cumsum(self.block_sizes, dtype=np.uint64)]).astype(np.uint64)
        return np.where(ends > begins, sums[ends] - sums[begins], self.sizes)

    @property
    def identity(self) -> str:
        """Of what is stored, and in which order; not of when: 32 hexadecimal digits."""
        hasher = xxhash.xxh3_128()
        for name, kind in self._columns:
            if name not in ("versions", "abouts"):
                hasher.update(np.ascontiguousarray(getattr(self, name), kind).data)
        hasher.update(self.names)
        hasher.update(self.settings)
        return hasher.hexdigest()


def _sections(
    objects: int, shards: int, blocks: int, settings: int
) -> tuple[tuple[tuple[tuple[str, str], ...], int], ...]:
    """The columns of a table in order, with how many rows each has."""
    return (
        (_OF_OBJECTS, objects),
        (_OF_SHARDS, shards),
        (_ENDS, objects if blocks else 0),
        (_OF_BLOCKS, blocks),
        (_ENDS_OF_SETTINGS, objects if settings else 0),
        (_OF_SETTINGS, settings),
    )


def _end_at(ends: NDArray[np.uint64], end: int) -> bool:
    """Whether these never fall, and the last one is ``end``."""
    return (int(ends[-1]) if len(ends) else 0) == end and not np.any(ends[1:] < ends[:-1])


def _unpacked(data: builtins.bytes) -> ObjectTable:
    return ObjectTable.parse(memoryview(data), url="")
