"""Equal keys, found in eight bytes a key: 64-bit hashes are sorted, and only what repeats is looked at as a string.

They are refused, or numbered: of equal keys the first in the order of the source stays, the others get ``-2``, ``-3``
and so on behind them. Where that would make a key that is there already, all get one more dash. So keys depend on the
source alone, and whatever part of it a worker reads, it knows them from four bytes a sample.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import count as counting
from itertools import islice
from typing import NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from shardstream.errors import DuplicateKeyError

# XXH3-64 of a key's UTF-8.
key_hash = xxhash.xxh3_64_intdigest

_RUN = 12_000_000  # 96 MB
_BATCH = 1 << 16
_SUSPECTS = 100_000  # hashes that repeat and are looked at: among so many, some are of equal keys


class Hashed(NamedTuple):
    """The keys of some samples: their numbers in the source, and hashes."""

    numbers: NDArray[np.int64]
    hashes: NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class KeyNumbers:
    """How equal keys are told apart.

    Attributes:
        ordinals: uint32 (n), which of the samples with its key each is, from 1; 0 where no other has its key.
        separator: What stands between a key and its number.
    """

    ordinals: NDArray[np.uint32]
    separator: str

    def suffix(self, number: int) -> str:
        """What follows the key of a sample."""
        ordinal = int(self.ordinals[number])
        return f"{self.separator}{ordinal}" if ordinal > 1 else ""


def repeated(hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The values that occur more than once, each once, in order. Sorts ``hashes`` in place, so nothing is copied."""
    hashes.sort()
    return np.unique(hashes[1:][hashes[1:] == hashes[:-1]])


class HashRuns:
    """Any number of hashes in bounded memory: sorted runs of some 100 MB, all but the last in a temporary file.

    Args:
        expected: How many there will be at most, so that fewer take less memory.
        run: How many are held in memory; default: 12 million.
    """

    def __init__(self, expected: int, run: int | None = None) -> None:
        run = run or _RUN
        self._run = np.empty(min(expected, run), np.uint64)
        self._filled = 0
        self._spilled: list[int] = []  # ends of the runs in the file, in hashes
        self._file = tempfile.TemporaryFile(prefix="shardstream-") if expected > run else None  # noqa: SIM115

    def add(self, hashes: NDArray[np.uint64]) -> None:
        """Add some."""
        while len(hashes):
            if self._filled == len(self._run):
                self._spill()
            taken = min(len(hashes), len(self._run) - self._filled)
            self._run[self._filled : self._filled + taken] = hashes[:taken]
            self._filled += taken
            hashes = hashes[taken:]

    def _spill(self) -> None:
        assert self._file is not None, "more hashes than were expected"
        self._run.sort()
        self._file.write(self._run.data)
        self._spilled.append((self._spilled or [0])[-1] + len(self._run))
        self._filled = 0

    def repeated(self) -> NDArray[np.uint64]:
        """The values that occur more than once, each once, in order. Ends the collection."""
        if not self._spilled:
            return repeated(self._run[: self._filled])
        if self._filled:
            self._run = self._run[: self._filled]
            self._spill()
        found = [repeated(part) for part in self._parts()]
        return np.concatenate(found)

    def _parts(self) -> Iterator[NDArray[np.uint64]]:
        """All hashes between two values that lie about a run apart, whatever run they are in."""
        assert self._file is not None
        self._file.flush()
        self._run = np.empty(0, np.uint64)
        everything = np.memmap(self._file, np.uint64, "r")
        runs = np.split(everything, self._spilled[:-1])
        count = len(runs)
        bounds = [np.uint64((i << 64) // count) for i in range(1, count)]
        cuts = [[0, *np.searchsorted(run, bounds).tolist(), len(run)] for run in runs]
        for i in range(count):
            yield np.concatenate([run[cut[i] : cut[i + 1]] for run, cut in zip(runs, cuts, strict=True)])

    def close(self) -> None:
        """Let go of the temporary file."""
        if self._file is not None:
            self._file.close()


def check_unique(
    keys: Callable[[], Iterable[str]],
    count: int,
    *,
    named: Callable[[int], str],
    url: str,
    hint: str,
    number: bool = False,
) -> KeyNumbers | None:
    """Refuse samples of which two have one key, or number them.

    Args:
        keys: Gives all keys in order, each time it is called.
        count: How many there are at most.
        named: What messages call the sample of a number.
        url: Where they lie, for messages.
        hint: What to do.
        number: Whether equal keys are numbered.

    Returns:
        How equal keys are told apart, if there are any.

    Raises:
        DuplicateKeyError: Names the first two.
    """

    def hashed(numbering: KeyNumbers | None) -> Iterator[Hashed]:
        return _hashed(keys(), numbering)

    suspects = repeated_of(hashed(None), count)
    if number:
        return number_repeats(hashed, suspects, count)
    first: dict[str, int] = {}
    suspected = set(suspects[:_SUSPECTS].tolist())
    for at, key in enumerate(keys()) if suspected else ():
        if key_hash(key.encode()) in suspected and first.setdefault(key, at) != at:
            raise DuplicateKeyError(
                f"{named(first[key])} and {named(at)} have the same key", url=url, key=key, hint=hint
            )
    return None


def _hashed(keys: Iterable[str], numbering: KeyNumbers | None) -> Iterator[Hashed]:
    numbered = enumerate(keys)
    texts = (key if numbering is None else key + numbering.suffix(number) for number, key in numbered)
    hashes, start = (key_hash(text.encode()) for text in texts), 0
    while len(batch := np.fromiter(islice(hashes, _BATCH), np.uint64)):
        yield Hashed(np.arange(start, start + len(batch)), batch)
        start += len(batch)


def repeated_of(parts: Iterable[Hashed], count: int) -> NDArray[np.uint64]:
    """The hashes that occur more than once, each once, in order; of ``count`` samples at most."""
    with closing(HashRuns(count)) as runs:
        for part in parts:
            runs.add(part.hashes)
        return runs.repeated()


def number_repeats(
    hashed: Callable[[KeyNumbers | None], Iterable[Hashed]], repeats: NDArray[np.uint64], count: int
) -> KeyNumbers | None:
    """Number the samples whose keys repeat, in the order of the source.

    Two keys that only share a hash count as equal, which harms nobody.

    Args:
        hashed: Gives the hashes of all keys in order, some at a time; those of numbered keys, if told how.
        repeats: The hashes that occur more than once, in order.
        count: How many samples there are.
    """
    if not len(repeats):
        return None
    ordinals, seen = np.zeros(count, np.uint32), np.zeros(len(repeats), np.uint32)
    for part in hashed(None):
        in_order = np.argsort(part.numbers)
        numbers, hashes = part.numbers[in_order], part.hashes[in_order]
        place = np.minimum(np.searchsorted(repeats, hashes), len(repeats) - 1)
        found = np.flatnonzero(repeats[place] == hashes)
        found = found[np.argsort(place[found], kind="stable")]  # equal keys together, each in order
        groups, starts, sizes = np.unique(place[found], return_index=True, return_counts=True)
        before = np.repeat(seen[groups].astype(np.int64) - starts, sizes)
        ordinals[numbers[found]] = before + np.arange(1, len(found) + 1)
        seen[groups] += sizes.astype(np.uint32)
    for dashes in counting(1):
        numbering = KeyNumbers(ordinals, "-" * dashes)
        if not len(repeated_of(hashed(numbering), count)):
            break
    return numbering


class SeenHashes:
    """The hashes of all keys so far, a batch at a time.

    Sorted runs of which each is at least twice as long as the next: n hashes cost 8n bytes and are copied log n times
    in all, and a batch is looked up by bisection in log n runs.
    """

    def __init__(self) -> None:
        self._runs: list[NDArray[np.uint64]] = []

    def add(self, hashes: Iterable[int]) -> frozenset[int]:
        """Add a batch; returns those of its values that an earlier batch, or the batch itself, has already."""
        batch = np.array(sorted(hashes), np.uint64)
        known = [batch[1:][batch[1:] == batch[:-1]]]
        for run in self._runs:
            at = np.searchsorted(run, batch)
            at[at == len(run)] = 0
            known.append(batch[run[at] == batch])
        if len(batch):
            self._runs.append(batch)
        while len(self._runs) > 1 and len(self._runs[-2]) < 2 * len(self._runs[-1]):
            merged = np.concatenate((self._runs.pop(), self._runs.pop()))
            merged.sort()
            self._runs.append(merged)
        return frozenset(np.concatenate(known).tolist())
