"""The shards of a data set: one row each in a table of 20 bytes a row, and names by pattern."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import ChecksumError, FormatError, UsageError
from shardstream.shards.layout import FORMAT_VERSION, Hasher, check_version, checksum
from shardstream.shards.writing import ShardSummary
from shardstream.sizes import plural

_TABLE = struct.Struct("<8sIIQQ32x")
_TABLE_MAGIC = b"SSTABLE\n"
_ROW_BYTES = 20
# One number in decimal, zero-padded or not, in a name that is not a path out of the data set.
_PATTERN = re.compile(r"[^{}/\\\0]+(/[^{}/\\\0]+)*")
_NUMBER = re.compile(r"\{:(0[1-9][0-9]?)?d\}")
_RESTORE = "restore the data set's files from their source"


@dataclass(frozen=True, slots=True)
class NamedShards:
    """A run of shards that are named alike: ``pattern.format(i)`` for i below ``count``.

    Attributes:
        pattern: A relative path with one number in it, as ``{:d}`` or, zero-padded, ``{:06d}``.
        count: Number of shards.

    Raises:
        UsageError: No such pattern, or no such count.
    """

    pattern: str
    count: int

    def __post_init__(self) -> None:
        name, numbers = _NUMBER.subn("0", self.pattern)
        if numbers != 1 or not _PATTERN.fullmatch(name) or {".", ".."} & set(name.split("/")):
            raise UsageError(
                f"{self.pattern!r} cannot name shards", hint="use a relative path with one number: shard-{:06d}.tar"
            )
        if type(self.count) is not int or self.count < 0:
            raise UsageError(f"the number of shards must be an integer of at least 0, got {self.count!r}")

    def number_of(self, name: str) -> int | None:
        """The number of the shard of this name; ``None`` if it is not of this run."""
        begin, end = _NUMBER.search(self.pattern).span()  # type: ignore[union-attr] # checked above
        digits = name[begin : len(name) - (len(self.pattern) - end)]
        if not digits.isascii() or not digits.isdecimal() or int(digits) >= self.count:
            return None
        return int(digits) if self.pattern.format(int(digits)) == name else None


@dataclass(frozen=True, slots=True, eq=False)
class ShardTable:
    """A row a shard. All arrays are of length n = shards and read-only.

    Attributes:
        samples: uint32.
        sizes: uint64, bytes of the object.
        checksums: uint64, XXH3-64 of the object.
    """

    samples: NDArray[np.uint32]
    sizes: NDArray[np.uint64]
    checksums: NDArray[np.uint64]

    @classmethod
    def of(cls, summaries: Sequence[ShardSummary]) -> Self:
        """The table of finished shards."""
        return cls(
            np.array([one.samples for one in summaries], "<u4"),
            np.array([one.bytes for one in summaries], "<u8"),
            np.array([one.checksum for one in summaries], "<u8"),
        )

    def equals(self, other: ShardTable) -> bool:
        """Whether both describe the same shards, byte for byte as far as checksums tell."""
        return all(np.array_equal(one, same) for one, same in zip(self.columns, other.columns, strict=True))

    def __repr__(self) -> str:
        samples = plural(int(self.samples.sum(dtype=np.int64)), "sample")
        return f"ShardTable({plural(len(self.samples), 'shard')}, {samples})"

    @property
    def columns(self) -> tuple[NDArray[Any], ...]:
        """All three, in the order of the arguments."""
        return self.samples, self.sizes, self.checksums

    def pack(self) -> bytes:
        """The table as bytes; the header holds the checksum of the rows."""
        return b"".join(map(bytes, self._parts()))

    @property
    def checksum(self) -> int:
        """XXH3-64 of the table's bytes, which are not put together for it."""
        return _hash(self._parts())

    def _parts(self) -> list[memoryview]:
        columns = (self.sizes, "<u8"), (self.checksums, "<u8"), (self.samples, "<u4")
        rows = [np.ascontiguousarray(part, dtype).data.cast("B") for part, dtype in columns if len(part)]
        head = _TABLE.pack(_TABLE_MAGIC, FORMAT_VERSION, 0, len(self.samples), _hash(rows))
        return [memoryview(head), *rows]

    @classmethod
    def parse(cls, data: memoryview, *, url: str) -> Self:
        """The table in ``data``, as views of it; DataError where it is none."""
        if len(data) < _TABLE.size or bytes(data[:8]) != _TABLE_MAGIC:
            raise FormatError("not a table of shards", url=url, hint=_RESTORE)
        _, version, _, count, expected = _TABLE.unpack_from(data)
        check_version(version, url=url)
        rows = data[_TABLE.size :]
        if len(rows) != count * _ROW_BYTES or checksum(rows) != expected:
            raise ChecksumError("the table of shards is damaged or truncated", url=url, hint=_RESTORE)
        return cls(
            np.frombuffer(rows, "<u4", count, 16 * count),
            np.frombuffer(rows, "<u8", count),
            np.frombuffer(rows, "<u8", count, 8 * count),
        )


def _hash(parts: Sequence[memoryview]) -> int:
    hasher = Hasher()
    for part in parts:
        hasher.update(part)
    return hasher.intdigest()
