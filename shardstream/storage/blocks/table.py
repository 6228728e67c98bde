"""``ObjectBlocks``: where the blocks of an object lie, stored and inflated."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from shardstream.storage.blocks.codecs import CODECS, LARGEST, PLAIN

COLUMNS = (("offsets", "<u8"), ("checksums", "<u8"), ("lengths", "<u4"), ("sizes", "<u4"), ("codecs", "<u4"))
"""Columns of a table of blocks in the order in which they are stored; 28 bytes a block."""
_LARGEST_STORED = (1 << 32) - 1


class BlockSpan(NamedTuple):
    """Bytes of a block: its number, and from which byte of it to which."""

    block: int
    begin: int
    end: int


class ObjectBlocks:
    """The blocks of one object: in the order of their inflated bytes, which follow one another.

    Args:
        stored: Bytes of the object as it is stored.
        columns: One array for each of `COLUMNS`, in this order: where each block is stored, `checksum_of` its inflated
            bytes (0: unknown), its stored and inflated bytes, and its codec.

    Attributes:
        stored: The same.
        columns: The same.
        size: Bytes of the inflated object.
    """

    def __init__(self, stored: int, *columns: NDArray[Any]) -> None:
        self.stored = stored
        self.columns = columns
        self.offsets, self.checksums, self.lengths, self.sizes, self.codecs = columns
        self.size = int(self.sizes.sum(dtype=np.int64))

    def __len__(self) -> int:
        return len(self.offsets)

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Where each block begins in the inflated object."""
        ends = np.cumsum(self.sizes, dtype=np.int64)
        return ends - self.sizes.astype(np.int64)

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

    def pack(self) -> bytes:
        """The columns as bytes."""
        return b"".join(
            np.ascontiguousarray(one, kind).tobytes() for one, (_, kind) in zip(self.columns, COLUMNS, strict=True)
        )

    @classmethod
    def unpack(cls, stored: int, data: bytes) -> Self:
        """The same of `pack`."""
        columns, at = [], 0
        count = len(data) // sum(np.dtype(kind).itemsize for _, kind in COLUMNS)
        for _, kind in COLUMNS:
            columns.append(np.frombuffer(data, kind, count, at))
            at += columns[-1].nbytes
        return cls(stored, *columns)


class BlockList:
    """Collects the blocks of an object, in the order of their inflated bytes."""

    def __init__(self) -> None:
        self._columns = (*(array("Q") for _ in COLUMNS),)

    def __len__(self) -> int:
        return len(self._columns[0])

    def add(self, codec: str, offset: int, length: int, size: int, checksum: int = 0) -> None:
        """The next block; a plain one of any size, which may become several.

        Raises:
            ValueError: It is larger than blocks may be.
        """
        if codec == "none":
            for begin in range(0, length, LARGEST):
                part = min(LARGEST, length - begin)
                self._add(offset + begin, 0, part, part, PLAIN)
        elif size > LARGEST or length > _LARGEST_STORED:
            raise ValueError(f"a block of {length} bytes that inflates to {size}; at most {LARGEST} are read")
        else:
            self._add(offset, checksum, length, size, CODECS[codec])

    def _add(self, *row: int) -> None:
        for column, value in zip(self._columns, row, strict=True):
            column.append(value)

    def of(self, stored: int) -> ObjectBlocks:
        """All of them, of an object of ``stored`` bytes."""
        columns = [np.array(one, kind) for one, (_, kind) in zip(self._columns, COLUMNS, strict=True)]
        return ObjectBlocks(stored, *columns)
