"""``RowSet``: some rows of each shard, a bit a row, once for all processes that read them."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from functools import cached_property
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from shardstream.dataset.shared import SharedMemory

_PIECE = 4 << 20  # bytes that are hashed or packed at a time
_ONES = np.array([number.bit_count() for number in range(256)], np.uint8)


def packed(memory: SharedMemory) -> bytes:
    """The bits of a `RowSet`, for a pickle that outlives its process."""
    return zlib.compress(memory.bytes.data, 1)


def unpacked(data: bytes) -> SharedMemory:
    """The bits that `packed` packed."""
    bits = np.frombuffer(zlib.decompress(data), np.uint8)
    memory = SharedMemory(len(bits))
    memory.bytes[:] = bits
    return memory


class RowSet:
    """Rows of shards, none at first.

    The bits lie in anonymous memory, mapped by every process that a copy is handed to; pages without a row take none
    of it. Each shard begins at a byte, so the bits of the first shards are those of a data set that ends with them.

    Args:
        samples: Samples of each shard: integers (shards,).
        memory: The bits, where another process has made them.
    """

    def __init__(self, samples: NDArray[Any], memory: SharedMemory | None = None) -> None:
        stored = samples.astype(np.int64)
        self._ends = np.cumsum((stored + 7) >> 3)
        self._firsts = np.cumsum(stored) - stored
        self.memory = memory or SharedMemory(max(self._begin(len(samples)), 1))

    @classmethod
    def full(cls, samples: NDArray[Any]) -> RowSet:
        """All rows of these shards."""
        made = cls(samples)
        made.memory.bytes[:] = 255 if len(samples) and made._ends[-1] else 0
        short = np.flatnonzero(samples & 7)
        made.memory.bytes[made._ends[short] - 1] = (1 << (samples[short].astype(np.int64) & 7)) - 1
        return made

    @property
    def digest(self) -> str:
        """32 hexadecimal digits that tell sets of rows apart."""
        hasher = xxhash.xxh3_128()
        for start in range(0, len(self.memory.bytes), _PIECE):
            hasher.update(self.memory.bytes[start : start + _PIECE].data)
        return hasher.hexdigest()

    def __len__(self) -> int:
        pieces = range(0, len(self.memory.bytes), _PIECE)
        return sum(int(_ONES[self.memory.bytes[start : start + _PIECE]].sum(dtype=np.int64)) for start in pieces)

    @cached_property
    def _count_ends(self) -> NDArray[np.int64]:
        """How many rows there are up to the end of each shard; asked for when there are all."""
        counts = (_ONES[self.bits(shard)].sum(dtype=np.int64) for shard in range(len(self._ends)))
        return np.cumsum(np.fromiter(counts, np.int64))

    def _begin(self, shard: int) -> int:
        return int(self._ends[shard - 1]) if shard else 0

    def bits(self, shard: int) -> NDArray[np.uint8]:
        """The bits of a shard, 8 per byte, the first row in the lowest."""
        return self.memory.bytes[self._begin(shard) : self._begin(shard + 1)]

    def add(self, shard: int, rows: NDArray[np.int64]) -> None:
        """Add rows of a shard."""
        if len(rows):
            first = int(rows.min()) & ~7
            flags = np.zeros(int(rows.max()) - first + 1, np.bool_)
            flags[rows - first] = True
            bits = np.packbits(flags, bitorder="little")
            self.bits(shard)[first >> 3 :][: len(bits)] |= bits

    def has(self, shard: int, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether each of these rows of a shard is there: bool (len(rows),)."""
        bits = self.bits(shard)
        found: NDArray[np.bool_] = (bits[rows >> 3] >> (rows & 7).astype(np.uint8) & 1).astype(np.bool_)
        return found

    def any(self, shard: int) -> bool:
        """Whether a shard has any."""
        return bool(self.bits(shard).any())

    def rows(self, shard: int) -> NDArray[np.int64]:
        """The rows of a shard, in order: int64."""
        return np.flatnonzero(np.unpackbits(self.bits(shard), bitorder="little"))

    def numbers(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """The numbers, through all shards, of the rows at these places among all rows.

        Args:
            places: Integers in [0, len(self)), in any order.
        """
        ends = self._count_ends
        shards = np.searchsorted(ends, places, side="right")
        found = np.empty(len(places), np.int64)
        for shard in np.unique(shards).tolist():
            those = np.flatnonzero(shards == shard)
            before = int(ends[shard - 1]) if shard else 0
            found[those] = self._firsts[shard] + self.rows(shard)[places[those] - before]
        return found

    def carried(self, samples: NDArray[Any], runs: Iterable[tuple[int, int, int]]) -> RowSet:
        """The same rows, where shards have other numbers.

        Args:
            samples: Samples of each of the other shards.
            runs: Of shards that are in both: the first number here, the first there, how many.
        """
        made = RowSet(samples)
        for here, there, shards in runs:
            bits = self.memory.bytes[self._begin(here) : self._begin(here + shards)]
            at = made._begin(there)
            made.memory.bytes[at : at + len(bits)] = bits
        return made
