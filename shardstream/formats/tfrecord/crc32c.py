"""CRC-32C (Castagnoli), as TFRecord files hold it: many short runs of bytes at once, or one long run, with numpy alone.

A CRC without its constants is linear: that of a run is the exclusive or of those of its words, each moved over the
bytes that follow it. So all words of a run are looked up at once, and halves are joined until one is left.

https://www.rfc-editor.org/rfc/rfc3720#appendix-B.4
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Words: TypeAlias = NDArray[np.uint32]

_POLYNOMIAL = 0x82F63B78  # bits reversed
_ONES = 0xFFFFFFFF
_WORD = 8
_MASK = 0xA282EAD8


def crc32c(data: bytes | memoryview) -> int:
    """The checksum of a run of bytes: by the package google-crc32c where it is installed.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    native = _native()
    return by_numpy(data) if native is None else native(bytes(data))


def by_numpy(data: bytes | memoryview) -> int:
    """The same without any package, some tens of times slower."""
    lacking = -len(data) % _WORD
    padded = np.zeros(lacking + len(data), np.uint8)  # zeros in front change nothing
    padded[lacking:] = np.frombuffer(data, np.uint8)
    words, step = _of_words(padded.reshape(-1, _WORD)), 3
    while len(words) > 1:
        if len(words) % 2:
            words = np.concatenate([np.zeros(1, np.uint32), words])
        words = _moved(words[0::2], step) ^ words[1::2]
        step += 1
    bare = int(words[0]) if len(words) else 0
    return bare ^ _constant(len(data)) ^ _ONES


def of_eights(rows: NDArray[np.uint8]) -> Words:
    """The checksums of runs of 8 bytes: uint32 (n,) of uint8 (n, 8)."""
    return _of_words(rows) ^ np.uint32(_constant(_WORD) ^ _ONES)


def masked(crc: Words) -> Words:
    """What TFRecord files hold in the place of a checksum."""
    return (crc >> np.uint32(15) | crc << np.uint32(17)) + np.uint32(_MASK)


def _of_words(rows: NDArray[np.uint8]) -> Words:
    """Of words, without the constants."""
    tables = _word_tables()
    found: Words = tables[0][rows[:, 0]]
    for place in range(1, _WORD):
        found ^= tables[place][rows[:, place]]
    return found


def _constant(length: int) -> int:
    """What the register's first value becomes after this many bytes."""
    value, step = np.array([_ONES], np.uint32), 0
    while length >> step:
        if length >> step & 1:
            value = _moved(value, step)
        step += 1
    return int(value[0])


def _moved(values: Words, step: int) -> Words:
    """The checksums when ``2 ** step`` zero bytes follow."""
    tables = _move_tables(step)
    found: Words = tables[0][values & np.uint32(255)]
    for place in range(1, 4):
        found ^= tables[place][values >> np.uint32(8 * place) & np.uint32(255)]
    return found


@cache
def _native() -> Callable[[bytes], int] | None:
    try:
        module = importlib.import_module("google_crc32c")
    except ImportError:
        return None
    value: Callable[[bytes], int] = module.value
    return value if module.implementation == "c" else None


@cache
def _byte_table() -> Words:
    values = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        values = np.where(values & 1, values >> 1 ^ np.uint32(_POLYNOMIAL), values >> 1).astype(np.uint32)
    return values


@cache
def _move_tables(step: int) -> Words:
    """What each byte of a checksum becomes when ``2 ** step`` zero bytes follow: (4, 256)."""
    places = np.arange(256, dtype=np.uint32)[None] << (8 * np.arange(4, dtype=np.uint32))[:, None]
    if step == 0:
        shifted: Words = places >> np.uint32(8) ^ _byte_table()[places & np.uint32(255)]
        return shifted
    return _moved(_moved(places, step - 1), step - 1)


@cache
def _word_tables() -> Words:
    """The checksum of a byte at each place of a word: (8, 256)."""
    tables = [_byte_table()]
    for _ in range(_WORD - 1):
        tables.append(_moved(tables[-1], 0))
    return np.stack(tables[::-1])
