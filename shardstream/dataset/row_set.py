"""``RowSet``: some rows of each shard, a bit a row, once for all processes that read them."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from shardstream.dataset.shared import SharedMemory

_PIECE = 4 << 20  # bytes that are hashed or packed at a time


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
        self._ends = np.cumsum((samples.astype(np.int64) + 7) >> 3)
        self.memory = memory or SharedMemory(max(self._begin(len(samples)), 1))

    @property
    def digest(self) -> str:
        """32 hexadecimal digits that tell sets of rows apart."""
        hasher = xxhash.xxh3_128()
        for start in range(0, len(self.memory.bytes), _PIECE):
            hasher.update(self.memory.bytes[start : start + _PIECE].data)
        return hasher.hexdigest()

    def _begin(self, shard: int) -> int:
        return int(self._ends[shard - 1]) if shard else 0

    def _bits(self, shard: int) -> NDArray[np.uint8]:
        return self.memory.bytes[self._begin(shard) : self._begin(shard + 1)]

    def add(self, shard: int, rows: NDArray[np.int64]) -> None:
        """Add rows of a shard."""
        if len(rows):
            first = int(rows.min()) & ~7
            flags = np.zeros(int(rows.max()) - first + 1, np.bool_)
            flags[rows - first] = True
            bits = np.packbits(flags, bitorder="little")
            self._bits(shard)[first >> 3 :][: len(bits)] |= bits

    def has(self, shard: int, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether each of these rows of a shard is there: bool (len(rows),)."""
        bits = self._bits(shard)
        found: NDArray[np.bool_] = (bits[rows >> 3] >> (rows & 7).astype(np.uint8) & 1).astype(np.bool_)
        return found

    def any(self, shard: int) -> bool:
        """Whether a shard has any."""
        return bool(self._bits(shard).any())

    def rows(self, shard: int) -> NDArray[np.int64]:
        """The rows of a shard, in order: int64."""
        return np.flatnonzero(np.unpackbits(self._bits(shard), bitorder="little"))

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
