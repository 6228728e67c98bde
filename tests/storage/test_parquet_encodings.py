"""Numbers of Parquet, written here bit by bit as its specification says, are read as what they were."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardstream.errors import DecodeError
from shardstream.formats.blocks.parquet.encodings import differences, hybrid, unpacked

from ..examples import at_most


def bits(numbers: list[int], width: int) -> bytes:
    """Numbers one after another, the lowest bits first."""
    return sum(one << width * place for place, one in enumerate(numbers)).to_bytes(
        -(-width * len(numbers) // 8), "little"
    )


def varint(number: int) -> bytes:
    rest = number >> 7
    return bytes([number & 127 | 128]) + varint(rest) if rest else bytes([number])


def zigzag(number: int) -> bytes:
    return varint(number << 1 if number >= 0 else (-number << 1) - 1)


@pytest.mark.parametrize("width", range(65))
def test_bits(width: int) -> None:
    numbers = [(0x9E3779B97F4A7C15 * (i + 1) >> 3) % (1 << width) for i in range(21)]
    for count in (0, 1, 7, 8, 9, 21):
        found = unpacked(memoryview(bits(numbers[:count], width)), width, count)
        assert found.tolist() == numbers[:count]
        assert found.dtype.itemsize == next(size for size in (1, 2, 4, 8) if width <= 8 * size)
    if width:
        with pytest.raises(DecodeError, match=f"9 numbers of {width} bits are not in"):
            unpacked(memoryview(bits(numbers[:9], width))[:-1], width, 9)


@given(st.data(), st.integers(0, 32))
@at_most(100)
def test_runs(data: st.DataObject, width: int) -> None:
    written, numbers = b"", list[int]()
    value = st.integers(0, (1 << width) - 1)
    for _ in range(data.draw(st.integers(0, 6))):
        if data.draw(st.booleans()):
            some = data.draw(st.lists(value, min_size=8, max_size=40).map(lambda one: one[: len(one) // 8 * 8]))
            written += varint(len(some) // 8 << 1 | 1) + bits(some, width)
        else:
            some = [data.draw(value)] * data.draw(st.integers(1, 300))
            written += varint(len(some) << 1) + some[0].to_bytes(-(-width // 8), "little")
        numbers += some
    count = data.draw(st.integers(0, len(numbers)))  # what fills up the last run is left
    assert hybrid(memoryview(written), width, count).tolist() == numbers[:count]
    with pytest.raises(DecodeError):
        hybrid(memoryview(written), width, len(numbers) + 1)


@given(st.data(), st.sampled_from([(8, 1), (32, 4), (128, 4)]), st.sampled_from([32, 64]))
@at_most(100)
def test_differences(data: st.DataObject, shape: tuple[int, int], size: int) -> None:
    most = data.draw(st.sampled_from([0, 1, 100, (1 << size - 1) - 1]))
    numbers = data.draw(st.lists(st.integers(-most, most), min_size=1, max_size=300))
    written = b"".join(map(varint, [*shape, len(numbers)])) + zigzag(numbers[0])
    steps = np.diff(np.array(numbers, np.int64)).tolist()  # those of 64 bits wrap around
    for begin in range(0, len(steps), shape[0]):
        block = steps[begin : begin + shape[0]]
        least = min(block)
        runs = [block[at : at + shape[0] // shape[1]] for at in range(0, shape[0], shape[0] // shape[1])]
        above = [[(one - least) % (1 << 64) for one in run] for run in runs]
        widths = [max((one.bit_length() for one in run), default=0) for run in above]
        written += zigzag(least) + bytes(widths)
        for run, width in zip(above, widths, strict=True):
            written += bits(run + [0] * (shape[0] // shape[1] - len(run)), width) if run else b""
    found, end = differences(memoryview(written + b"behind"), len(numbers), size)
    assert found.tolist() == numbers
    assert end == len(written)
    for cut in {0, 3, len(written) // 2, len(written) - 1}:
        with suppress(DecodeError):  # or what was cut off is what fills up the last run
            assert differences(memoryview(written[:cut]), len(numbers), size)[0].tolist() == numbers
