"""``ObjectBlocks``: where the blocks of an object lie, stored and inflated."""

from __future__ import annotations

import itertools
import struct
from array import array
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from shardstream.formats.blocks.codecs import CODECS, LARGEST, PLAIN
from shardstream.formats.blocks.hdf5_chunks import chunk_bytes

COLUMNS = (("offsets", "<u8"), ("checksums", "<u8"), ("lengths", "<u4"), ("sizes", "<u4"), ("codecs", "<u4"))
"""Columns of a table of blocks in the order in which they are stored; 28 bytes a block.

The lowest 8 bits of ``codecs`` are the number of the codec, the others that of a setting of the object, from 1; 0: of
none.
"""
_HEAD = struct.Struct("<QQ")  # of a packed table: blocks, settings
_MOST_SETTINGS = (1 << 24) - 1
_LARGEST_STORED = (1 << 32) - 1


class BlockSpan(NamedTuple):
    """Bytes of a block: its number, and from which byte of it to which."""

    block: int
    begin: int
    end: int


class StoredBlock(NamedTuple):
    """A block as it is stored: where, how it is made into how many bytes, and `checksum_of` these (0: unknown)."""

    offset: int
    checksum: int
    length: int
    size: int
    codec: int
    setting: bytes


class ObjectBlocks:
    """The blocks of one object: in the order of their inflated bytes, which follow one another.

    Args:
        stored: Bytes of the object as it is stored.
        columns: One array for each of `COLUMNS`, in this order: where each block is stored, `checksum_of` its inflated
            bytes (0: unknown), its stored and inflated bytes, and its codec.
        settings: What codecs have to know besides, each once.

    Attributes:
        stored: The same.
        columns: The same.
        settings: The same.
        size: Bytes of the inflated object.
    """

    def __init__(self, stored: int, *columns: NDArray[Any], settings: Sequence[bytes] = ()) -> None:
        self.stored = stored
        self.columns = columns
        self.settings = settings
        self.offsets, self.checksums, self.lengths, self.sizes, self.codecs = columns
        self.size = int(self.sizes.sum(dtype=np.int64))

    def __len__(self) -> int:
        return len(self.offsets)

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Where each block begins in the inflated object."""
        ends = np.cumsum(self.sizes, dtype=np.int64)
        return ends - self.sizes.astype(np.int64)

    @cached_property
    def largest(self) -> int:
        """Inflated bytes of the largest block that is not stored as it is."""
        return int(self.sizes.max(initial=0, where=self.codecs != PLAIN))

    def lie_in(
        self, offsets: NDArray[np.int64], lengths: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
        """In which block each range of inflated bytes begins, at which byte of it, and whether it lies in it."""
        if not len(self):
            return np.zeros_like(offsets), offsets, np.zeros(len(offsets), np.bool_)
        blocks = np.searchsorted(self.starts, offsets, side="right") - 1
        begins = offsets - self.starts[blocks]
        return blocks, begins, (offsets >= 0) & (lengths > 0) & (begins + lengths <= self.sizes[blocks])

    def largest_of(self, offsets: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """Inflated bytes of the largest block that each range of inflated bytes touches; 0 for those that are plain."""
        if not len(self):
            return np.zeros(len(offsets), np.int64)
        first = np.maximum(np.searchsorted(self.starts, offsets, side="right") - 1, 0)
        last = np.maximum(np.searchsorted(self.starts, offsets + lengths, side="left"), first + 1)
        largest = self.at_once[first]
        for row in np.flatnonzero(last - first > 1).tolist():
            largest[row] = self.at_once[first[row] : last[row]].max()
        return np.where(lengths > 0, largest, 0)

    @cached_property
    def at_once(self) -> NDArray[np.int64]:
        """What inflating each block takes at once: its own bytes, or those of a chunk that reaches beyond it."""
        sizes = np.where(self.codecs == PLAIN, 0, self.sizes).astype(np.int64)
        for number in np.flatnonzero((self.codecs & 255) == CODECS["hdf5"]).tolist():
            (block,) = self.stored_blocks([number])
            sizes[number] = max(sizes[number], chunk_bytes(block.setting))
        return sizes

    def spans(self, offset: int, length: int) -> Iterator[BlockSpan]:
        """What of which blocks inflated bytes ``[offset, offset + length)`` are, in order."""
        end = offset + length
        first = int(np.searchsorted(self.starts, offset, side="right")) - 1 if length else 0
        last = int(np.searchsorted(self.starts, end, side="left")) if length else 0
        rows = zip(self.starts[first:last].tolist(), self.sizes[first:last].tolist(), strict=True)
        for block, (start, size) in enumerate(rows, first):
            begin, stop = max(offset - start, 0), min(end - start, size)
            if begin < stop:
                yield BlockSpan(block, begin, stop)

    def plain(self, block: int) -> bool:
        """Whether a block is stored as it is."""
        return int(self.codecs[block]) == PLAIN

    def stored_blocks(self, numbers: Sequence[int]) -> Iterator[StoredBlock]:
        """Some blocks by their numbers."""
        settings = (b"", *self.settings) if self.settings else None
        columns = [column[numbers].tolist() for column in self.columns]
        for offset, checksum, length, size, codec in zip(*columns, strict=True):
            setting = b"" if settings is None else settings[codec >> 8]
            yield StoredBlock(offset, checksum, length, size, codec & 255, setting)

    def pack(self) -> bytes:
        """All of it as bytes."""
        columns = (np.ascontiguousarray(one, kind) for one, (_, kind) in zip(self.columns, COLUMNS, strict=True))
        lengths = np.array([len(one) for one in self.settings], "<u8")
        head = _HEAD.pack(len(self), len(self.settings))
        return b"".join([head, *(one.tobytes() for one in columns), lengths.tobytes(), *self.settings])

    @classmethod
    def unpack(cls, stored: int, data: bytes) -> Self:
        """The same of `pack`."""
        columns, at = [], _HEAD.size
        count, settings = _HEAD.unpack_from(data)
        for _, kind in COLUMNS:
            columns.append(np.frombuffer(data, kind, count, at))
            at += columns[-1].nbytes
        ends = np.cumsum(np.frombuffer(data, "<u8", settings, at), dtype=np.int64) + at + 8 * settings
        begins = [at + 8 * settings, *ends.tolist()]
        return cls(stored, *columns, settings=[data[begin:end] for begin, end in itertools.pairwise(begins)])


class BlockList:
    """Collects the blocks of an object, in the order of their inflated bytes."""

    def __init__(self) -> None:
        self._columns = (*(array("Q") for _ in COLUMNS),)
        self._settings: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._columns[0])

    def add(self, codec: str, offset: int, length: int, size: int, checksum: int = 0, setting: bytes = b"") -> None:
        """The next block; a plain one of any size, which may become several.

        Args:
            codec: Name of its codec.
            offset: Where it is stored.
            length: Bytes that it takes there.
            size: Bytes that it inflates to.
            checksum: `checksum_of` these; 0: unknown.
            setting: What the codec has to know besides.

        Raises:
            ValueError: It is larger than blocks may be, or the object has too many different settings.
        """
        if codec == "none":
            for begin in range(0, length, LARGEST):
                part = min(LARGEST, length - begin)
                self._add(offset + begin, 0, part, part, PLAIN)
        elif size > LARGEST or length > _LARGEST_STORED:
            raise ValueError(f"a block of {length} bytes that inflates to {size}; at most {LARGEST} are read")
        else:
            self._add(offset, checksum, length, size, CODECS[codec] | self._number(setting) << 8)

    def _number(self, setting: bytes) -> int:
        if not setting:
            return 0
        number = self._settings.setdefault(setting, len(self._settings) + 1)
        if number > _MOST_SETTINGS:
            raise ValueError(f"more than {_MOST_SETTINGS:,} blocks with a setting of their own")
        return number

    def _add(self, *row: int) -> None:
        for column, value in zip(self._columns, row, strict=True):
            column.append(value)

    def of(self, stored: int) -> ObjectBlocks:
        """All of them, of an object of ``stored`` bytes."""
        columns = [np.array(one, kind) for one, (_, kind) in zip(self._columns, COLUMNS, strict=True)]
        return ObjectBlocks(stored, *columns, settings=list(self._settings))
