"""Blocks of HDF5 chunks: filters are undone in turn, and settings that lie are errors."""

from __future__ import annotations

import random
import zlib

import numpy as np
import pytest

from shardstream.errors import DecodeError
from shardstream.formats.blocks.hdf5_chunks import DEFLATE, FLETCHER32, SHUFFLE, SWAP, Chunk, ChunkLayout, chunked

VALUES = np.arange(6 * 5, dtype="<u4").reshape(6, 5)


def shuffled(data: bytes, item: int) -> bytes:
    return np.frombuffer(data, np.uint8).reshape(-1, item).T.tobytes()


def block() -> tuple[bytes, bytes]:
    """Rows of two by two chunks of 4 by 3 elements, the last of which was never written; and their setting."""
    layout = ChunkLayout(((SHUFFLE, 4), (DEFLATE, 0)), 4, (4, 3), (6, 5), np.uint32(7).tobytes())
    padded = np.zeros((8, 6), "<u4")
    padded[:6, :5] = VALUES
    data, chunks = b"", []
    for number, (row, column) in enumerate(((0, 0), (0, 3), (4, 0))):
        raw = padded[row : row + 4, column : column + 3].tobytes()
        stored = shuffled(raw, 4) if number == 1 else zlib.compress(shuffled(raw, 4))
        data += b"gap"
        chunks.append(Chunk(len(data), len(stored), 2 if number == 1 else 0))
        data += stored
    return data, layout.setting((*chunks, Chunk(0, 0)))


def test_chunks_are_put_together_with_what_was_never_written() -> None:
    data, setting = block()
    found = np.frombuffer(chunked(memoryview(data), VALUES.nbytes, setting), "<u4").reshape(6, 5)
    expected = VALUES.copy()
    expected[4:, 3:] = 7
    assert np.array_equal(found, expected)


def test_one_chunk_needs_no_places_and_bytes_are_turned() -> None:
    layout = ChunkLayout(((SWAP, 4),), 4, (6, 5), (6, 5))
    found = chunked(memoryview(VALUES.astype(">u4").tobytes()), VALUES.nbytes, layout.setting())
    assert bytes(found) == VALUES.tobytes()
    assert len(layout.setting()) < 12


def test_checksums_of_words_and_of_an_odd_byte() -> None:
    for data in (b"\0\1\0\2", b"\xff\xff" * 3, b"abc"):
        words = [int.from_bytes(data[at : at + 2].ljust(2, b"\0"), "big") for at in range(0, len(data), 2)]
        first = second = 0
        for word in words:
            first = (first + word) % 65535
            second = (second + first) % 65535
        stored = data + (second << 16 | first).to_bytes(4, "little")
        setting = ChunkLayout(((FLETCHER32, 0),), 1, (len(data),), (len(data),)).setting()
        assert bytes(chunked(memoryview(stored), len(data), setting)) == data
        with pytest.raises(DecodeError, match="differs from its checksum"):
            chunked(memoryview(b"\x02" + stored[1:]), len(data), setting)


@pytest.mark.parametrize("count", [2000, pytest.param(200_000, marks=pytest.mark.full)])
def test_settings_and_chunks_that_lie_are_errors(count: int) -> None:
    data, setting = block()
    choose = random.Random(1)
    for _ in range(count):
        changed = [bytearray(data), bytearray(setting)]
        for _ in range(choose.randint(1, 4)):
            one = choose.choice(changed)
            one[choose.randrange(len(one))] = choose.choice((0, 1, 0x7F, 0x80, 0xFF, choose.randrange(256)))
        size = choose.choice((VALUES.nbytes, VALUES.nbytes, 0, 1 << 20))
        try:
            found = chunked(memoryview(bytes(changed[0])), size, bytes(changed[1][: choose.choice((None, 9))]))
        except DecodeError:
            continue
        assert len(found) == size
