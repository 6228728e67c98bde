"""Huffman tables: how a file writes them, how codes are looked up, and a table for given frequencies.

Source: ITU-T T.81, annexes C and K.2.
"""

from __future__ import annotations

import heapq
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

FAST = 9
"""Bits of a code that one look into a table resolves."""
_LONGEST = 16


class Table(NamedTuple):
    """A Huffman table as a file holds it.

    Attributes:
        counts: How many codes there are of 1, 2, ... 16 bits: 16 bytes.
        values: Their values, in the order of the codes.
    """

    counts: bytes
    values: bytes

    def codes(self) -> dict[int, tuple[int, int]]:
        """Code and number of bits for each value.

        Raises:
            ValueError: There are more codes of a length than it has room for, or two of one value.
        """
        found: dict[int, tuple[int, int]] = {}
        code = at = 0
        for length, count in enumerate(self.counts, 1):
            for value in self.values[at : at + count]:
                if value in found:
                    raise ValueError("two codes of one value")
                found[value] = code, length
                code += 1
            if code > 1 << length:
                raise ValueError("more codes than there can be")
            at += count
            code <<= 1
        return found


class CodeTable(NamedTuple):
    """Tables as `kernels` writes by them, (number of the table, value).

    Attributes:
        codes: The code of each value.
        bits: How long it is; 0 where there is none.
    """

    codes: NDArray[np.int64]
    bits: NDArray[np.int64]


class Lookup(NamedTuple):
    """Tables as `kernels` looks codes up, by number of the table.

    Attributes:
        fast: By the first 9 bits: 256 · (length of the code + bits that follow it) + its value, 0 for longer ones. As
            many bits follow as the last four of the value say.
        most: By length, the largest code; -1 where there is none.
        first: By length, what to add to a code to find its value in ``values``.
        values: The values.
    """

    fast: NDArray[np.int32]
    most: NDArray[np.int64]
    first: NDArray[np.int64]
    values: NDArray[np.uint8]


@lru_cache(maxsize=64)  # most files have the tables of the standard's annex K
def lookup(tables: tuple[Table, ...]) -> Lookup:
    """Tables, ready to be looked up; not to be written to.

    Raises:
        ValueError: One is not a Huffman table.
    """
    fast = np.zeros((len(tables), 1 << FAST), np.int32)
    most = np.full((len(tables), _LONGEST + 1), -1, np.int64)
    first = np.zeros((len(tables), _LONGEST + 1), np.int64)
    values = np.zeros((len(tables), 256), np.uint8)
    for number, table in enumerate(tables):
        values[number, : len(table.values)] = np.frombuffer(table.values, np.uint8)
        code = at = 0
        for length, count in enumerate(table.counts, 1):
            if code + count > 1 << length:
                raise ValueError("more codes than there can be")
            if count:
                most[number, length] = code + count - 1
                first[number, length] = at - code
            if length <= FAST:
                width = 1 << (FAST - length)
                found = values[number, at : at + count].astype(np.int32)
                entries = 256 * (length + (found & 15)) + found
                fast[number, code * width : (code + count) * width] = np.repeat(entries, width)
            code, at = (code + count) << 1, at + count
    return Lookup(fast, most, first, values)


@lru_cache(maxsize=64)
def encoding(tables: tuple[Table, ...], values: int) -> CodeTable:
    """The codes of the first so many values; not to be written to.

    Raises:
        ValueError: One is not a Huffman table.
    """
    codes, bits = np.zeros((2, len(tables), values), np.int64)
    for number, table in enumerate(tables):
        for value, (code, length) in table.codes().items():
            if value < values:
                codes[number, value], bits[number, value] = code, length
    return CodeTable(codes, bits)


def optimal(frequencies: dict[int, int]) -> Table:
    """The shortest table for values of these frequencies, with no code of all ones, which the format forbids.

    At most 16 values, so that no code is longer than 16 bits.
    """
    # The value 256 stands for the code of all ones: the least frequent, so one of the longest.
    heap: list[tuple[int, tuple[int, ...]]] = [(0, (256,))]
    heap += [(frequency, (value,)) for value, frequency in frequencies.items()]
    heapq.heapify(heap)
    lengths = dict.fromkeys([*frequencies, 256], 0)
    while len(heap) > 1:
        one, other = heapq.heappop(heap), heapq.heappop(heap)
        for value in one[1] + other[1]:
            lengths[value] += 1
        heapq.heappush(heap, (one[0] + other[0], one[1] + other[1]))
    order = sorted(lengths, key=lambda value: (lengths[value], value))
    order.remove(256)
    counts = [0] * _LONGEST
    for value in order:
        counts[lengths[value] - 1] += 1
    return Table(bytes(counts), bytes(order))
