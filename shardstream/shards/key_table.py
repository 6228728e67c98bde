"""The key table of a data set: which sample has a key, by two ranged reads. ``docs/format.md`` specifies the bytes.

It holds a 64-bit hash and a number of every sample, sorted by hash and cut into blocks, and at its end a directory with
the last hash and the checksum of each block: short enough to be read together with the trailer, by one request. Keys
are not in it: whoever finds a number compares the key in the index of the sample's shard, so equal hashes do no harm.

The documents of a data set of bins have a table of the same kind: a number, of a bin, for each piece of a document.

A data set that grows gets a table of its new samples alone, which names the version whose table has those before.
"""

from __future__ import annotations

import os
import re
import struct
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import xxhash
from numpy.typing import NDArray

from shardstream.errors import ChecksumError, FormatError
from shardstream.shards.index import Keys, ShardIndex
from shardstream.shards.layout import FORMAT_VERSION, check_version, checksum
from shardstream.storage.base.sorting import no_room

TableName: TypeAlias = Literal["keys", "documents"]
"""What tables are of: samples, or documents in bins; their names begin with it."""
TABLE_NAMES: tuple[TableName, ...] = get_args(TableName)
KEY_TABLE_NAME = re.compile(rf"(?:{'|'.join(TABLE_NAMES)})-[0-9a-f]{{32}}\.table")
TAIL_BYTES = 64 << 10
"""Bytes from the end of a table that surely hold its directory and trailer."""
TRAILER = struct.Struct("<8sIIQQQ16s16sQ")
_MAGIC = b"SSKEYST\n"
_CHECKSUM_BYTES = 8
_ENTRY_BYTES = 16  # of the directory
_NOTHING = bytes(16)
_LEAST_BLOCK = 4096  # entries: 48 KiB
_MOST_BLOCKS = (TAIL_BYTES - TRAILER.size) // _ENTRY_BYTES
_HELD_BYTES = 4 << 20  # of blocks that were read
_RUN = 1 << 19  # entries sorted in memory at a time: some 30 MB
_AT_ONCE = 1 << 16  # keys, whose hashes are Python's numbers for a moment
_HINT = "remove it: keys are then found without it, or by a table that is made anew"

# XXH3-64 of a key's UTF-8.
key_hash = xxhash.xxh3_64_intdigest

ReadRange: TypeAlias = "Callable[[int, int], tuple[memoryview, bool]]"
"""Gives bytes [offset, offset + length) of an object, and whether they stay as they are, see `settled`."""
Entries: TypeAlias = "tuple[NDArray[np.uint64], NDArray[np.unsignedinteger[Any]]]"
"""Hashes and sample numbers, each (n,)."""
Scan: TypeAlias = "Callable[[int], ShardIndex]"
"""Reads the index of a shard, by its number."""


def key_table_name(fingerprint: str, of: TableName = "keys") -> str:
    """Object name of a table of a version of a data set.

    Args:
        fingerprint: Of the version, 32 hexadecimal digits.
        of: What it lists.
    """
    return f"{of}-{fingerprint}.table"


def key_table_names(fingerprint: str) -> list[str]:
    """The names of all tables of a version of a data set, whether it has them or not."""
    return [key_table_name(fingerprint, of) for of in TABLE_NAMES]


def hash_of(key: str) -> int:
    """The hash of a key."""
    return key_hash(key.encode("utf-8", "surrogatepass"))


def is_key_table(tail: memoryview) -> bool:
    """Whether the object that ends like this is a table of ours, whatever is in it."""
    return bytes(tail[-TRAILER.size :][:8]) == _MAGIC


def hashes_of(keys: Keys) -> NDArray[np.uint64]:
    """The hash of each key of a shard."""
    ends, blob = keys.parts
    found = np.empty(len(ends), np.uint64)
    start = 0
    for first in range(0, len(ends), _AT_ONCE):
        stops = ends[first : first + _AT_ONCE].tolist()
        spans = zip([start, *stops], stops, strict=False)
        found[first : first + len(stops)] = [key_hash(blob[begin:stop]) for begin, stop in spans]
        start = stops[-1]
    return found


class Covers(NamedTuple):
    """Which samples a table is about; or which pieces of documents, in the order in which they lie in bins.

    Attributes:
        start: Number of the first one.
        stop: Number after the last one.
        fingerprint: Of the version of the data set that has ``stop`` of them, 32 hexadecimal digits.
        below: Of the version whose table has those before ``start``; empty where there are none.
    """

    start: int
    stop: int
    fingerprint: str
    below: str = ""


class KeyTable:
    """An open table. Made by `KeyTable.parse`.

    Args:
        covers: Which samples it is about.
        numbers: Which samples it may lead to.
        width: Bytes of a sample number, 4 or 8.
        block: Entries of a block.
        directory: Last hash and checksum of each block, uint64 (n, 2).
        read: Gives ranges of the object.
        url: The object, for messages.
    """

    def __init__(
        self,
        covers: Covers,
        numbers: range,
        width: int,
        block: int,
        directory: NDArray[np.uint64],
        read: ReadRange,
        url: str,
    ) -> None:
        self.covers = covers
        self._numbers = numbers
        self._width = width
        self._block = block
        self._lasts, self._checksums = directory[:, 0].copy(), directory[:, 1].copy()
        self._read = read
        self._url = url
        self._held: OrderedDict[int, Entries] = OrderedDict()
        self._most_held = max(1, _HELD_BYTES // (block * (8 + width)))

    @classmethod
    def parse(cls, tail: memoryview, size: int, read: ReadRange, *, url: str, numbers: range | None = None) -> KeyTable:
        """The table of an object.

        Args:
            tail: Its last `TAIL_BYTES` bytes, or all of them.
            size: Its size.
            read: Gives ranges of it.
            url: The object, for messages.
            numbers: Which samples it may lead to. Default: those that it is about.

        Raises:
            VersionError: A newer version wrote it.
            ChecksumError: It is not what was written.
            FormatError: It is not such a table, or truncated.
        """
        if len(tail) < TRAILER.size or not is_key_table(tail):
            raise FormatError("not a key table, or a truncated one", url=url, hint=_HINT)
        _, version, width, start, stop, block, own, below, expected = TRAILER.unpack(tail[-TRAILER.size :])
        check_version(version, url=url)
        count = stop - start
        blocks = -(-count // block) if block else 0
        length = blocks * _ENTRY_BYTES + TRAILER.size
        sound = width in (4, 8) and count >= 0 and block > 0 and length <= len(tail)
        if not sound or size != count * (8 + width) + length:
            raise FormatError("the key table contradicts itself, or is truncated", url=url, hint=_HINT)
        if checksum(tail[-length:-_CHECKSUM_BYTES]) != expected:
            raise ChecksumError("the key table is damaged", url=url, hint=_HINT)
        directory = np.frombuffer(tail[-length : -TRAILER.size], "<u8").reshape(blocks, 2)
        covers = Covers(start, stop, own.hex(), "" if below == _NOTHING else below.hex())
        return cls(covers, range(start, stop) if numbers is None else numbers, width, block, directory, read, url)

    def numbers(self, key: str) -> Iterator[int]:
        """The samples whose keys have the hash of this one, in order; one range is read before the first of them.

        Raises:
            ChecksumError, FormatError: The table is damaged there.
            StorageError: It cannot be read.
        """
        wanted = np.uint64(hash_of(key))
        for number in range(int(np.searchsorted(self._lasts, wanted)), len(self._lasts)):
            hashes, numbers = self._entries(number)
            stop = int(np.searchsorted(hashes, wanted, side="right"))
            yield from numbers[int(np.searchsorted(hashes, wanted)) : stop].tolist()
            if stop < len(hashes):
                return

    def entries(self) -> Iterator[Entries]:
        """All of it, block by block. Raises as `numbers`."""
        return map(self._entries, range(len(self._lasts)))

    def _entries(self, number: int) -> Entries:
        held = self._held.get(number)
        if held is not None:
            self._held.move_to_end(number)
            return held
        begin = number * self._block
        count = min(self._block, self.covers.stop - self.covers.start - begin)
        offset = begin * (8 + self._width)
        data, stays = self._read(offset, count * (8 + self._width))
        hashes = np.frombuffer(data, "<u8", count)
        numbers: NDArray[np.unsignedinteger[Any]] = np.frombuffer(data, f"<u{self._width}", count, 8 * count)
        if checksum(data) != int(self._checksums[number]) or hashes[-1] != self._lasts[number]:
            raise ChecksumError("the key table is damaged", url=self._url, offset=offset, hint=_HINT)
        if int(numbers.min()) < self._numbers.start or int(numbers.max()) >= self._numbers.stop:
            raise FormatError("the key table names samples that it is not about", url=self._url, hint=_HINT)
        if stays:  # others are compared whenever they are used
            self._held[number] = hashes, numbers
            if len(self._held) > self._most_held:
                self._held.popitem(last=False)
        return hashes, numbers


class SortedKeys:
    """Collects hashes with sample numbers, and gives them back in order, any number of them in bounded memory.

    Sorted runs lie in a temporary file, which goes with the block (``with``). Hashes are spread evenly, so those
    between two values that lie a share of the whole range apart are about as many as a run.

    Args:
        covers: What the table will be about; as many samples are added.
        run: Entries held in memory.
    """

    def __init__(self, covers: Covers, run: int | None = None) -> None:
        run = run or _RUN
        count = covers.stop - covers.start
        self.covers = covers
        self.width = _width(covers.stop)
        self._hashes = np.empty(min(count, run), "<u8")
        self._numbers = np.empty(min(count, run), f"<u{self.width}")
        self._filled = 0
        parts = max(1, -(-count // run))
        self._bounds = np.array([(part << 64) // parts for part in range(1, parts)], np.uint64)
        self._runs: list[tuple[int, list[int]]] = []  # where each begins in the file, and how it is cut into parts
        self._file = tempfile.TemporaryFile(prefix="shardstream-") if parts > 1 else None  # noqa: SIM115

    def __enter__(self) -> SortedKeys:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    @property
    def lacks(self) -> int:
        """How many are still to be added."""
        return self.covers.stop - self.covers.start - self._spilled - self._filled

    @property
    def _spilled(self) -> int:
        return sum(cuts[-1] for _, cuts in self._runs)

    def add(self, hashes: NDArray[np.uint64], numbers: NDArray[Any]) -> None:
        """Add some. Of equal hashes the smaller number comes first.

        Raises:
            StorageError: The disk is full.
        """
        while len(hashes):
            if self._filled == len(self._hashes):
                self._spill()
            some = min(len(hashes), len(self._hashes) - self._filled)
            stop = self._filled + some
            self._hashes[self._filled : stop] = hashes[:some]
            self._numbers[self._filled : stop] = numbers[:some]
            self._filled, hashes, numbers = stop, hashes[some:], numbers[some:]

    def _sorted(self) -> Entries:
        hashes, numbers = self._hashes[: self._filled], self._numbers[: self._filled]
        order = np.argsort(hashes, kind="stable")
        return hashes[order], numbers[order]

    def _spill(self) -> None:
        assert self._file is not None, "more keys than were announced"
        hashes, numbers = self._sorted()
        cuts = [0, *np.searchsorted(hashes, self._bounds).tolist(), len(hashes)]
        self._runs.append((self._file.tell(), cuts))
        try:
            self._file.write(hashes.data)
            self._file.write(numbers.data)
            self._file.flush()
        except OSError as error:
            raise no_room(error) from error
        self._filled = 0

    def parts(self) -> Iterator[Entries]:
        """All that was added, in order, so many at a time, whenever it is asked for. Nothing is added after that."""
        assert not self.lacks
        if not self._runs:
            yield self._sorted()
            return
        if self._filled:
            self._spill()
        self._hashes = self._numbers = np.empty(0, np.uint64)
        for part in range(len(self._bounds) + 1):
            runs = [self._stored(begin, cuts, part) for begin, cuts in self._runs]
            hashes = np.concatenate([one for one, _ in runs])
            numbers = np.concatenate([one for _, one in runs])
            order = np.argsort(hashes, kind="stable")
            yield hashes[order], numbers[order]

    def _stored(self, begin: int, cuts: list[int], part: int) -> Entries:
        assert self._file is not None
        first, count = cuts[part], cuts[part + 1] - cuts[part]
        hashes = os.pread(self._file.fileno(), 8 * count, begin + 8 * first)
        numbers = os.pread(self._file.fileno(), self.width * count, begin + 8 * cuts[-1] + self.width * first)
        return np.frombuffer(hashes, "<u8"), np.frombuffer(numbers, f"<u{self.width}")


def table_bytes(keys: SortedKeys) -> Iterator[bytes]:
    """The bytes of a table, in pieces. The same keys give the same bytes."""
    covers = keys.covers
    block = _block(covers.stop - covers.start)
    directory: list[int] = []
    for hashes, numbers in _blocks(keys, block):
        data = hashes.tobytes() + numbers.tobytes()
        directory += int(hashes[-1]), checksum(data)
        yield data
    own, below = (bytes.fromhex(one) if one else _NOTHING for one in (covers.fingerprint, covers.below))
    head = TRAILER.pack(_MAGIC, FORMAT_VERSION, keys.width, covers.start, covers.stop, block, own, below, 0)
    tail = np.array(directory, "<u8").tobytes() + head[:-_CHECKSUM_BYTES]
    yield tail + checksum(tail).to_bytes(_CHECKSUM_BYTES, "little")


def table_size(samples: int) -> int:
    """Bytes of the table of a whole data set."""
    blocks = -(-samples // _block(samples))
    return samples * (8 + _width(samples)) + blocks * _ENTRY_BYTES + TRAILER.size


def _width(stop: int) -> int:
    return 4 if stop <= 1 << 32 else 8


def _block(samples: int) -> int:
    block = _LEAST_BLOCK
    while samples > block * _MOST_BLOCKS:
        block *= 2
    return block


def _blocks(keys: SortedKeys, block: int) -> Iterator[Entries]:
    hashes, numbers = np.empty(0, "<u8"), np.empty(0, f"<u{keys.width}")
    for more, theirs in keys.parts():
        hashes, numbers = np.concatenate((hashes, more)), np.concatenate((numbers, theirs))
        whole = len(hashes) // block * block
        for start in range(0, whole, block):
            yield hashes[start : start + block], numbers[start : start + block]
        hashes, numbers = hashes[whole:], numbers[whole:]
    if len(hashes):
        yield hashes, numbers
