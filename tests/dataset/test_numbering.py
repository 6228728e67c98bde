"""Numbers that run on through several things."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardstream.dataset.numbering import Numbering


@given(st.lists(st.integers(0, 5), max_size=8))
def test_every_number_lies_where_counting_finds_it(counts: list[int]) -> None:
    numbering = Numbering(np.array(counts, np.uint32))
    expected = [(thing, inside) for thing, count in enumerate(counts) for inside in range(count)]
    assert numbering.total == len(expected)
    assert [numbering.find(number) for number in range(len(expected))] == expected
    things, inside = numbering.find_all(np.arange(len(expected)))
    assert list(zip(things.tolist(), inside.tolist(), strict=True)) == expected
    assert [numbering.begin(thing) for thing in range(len(counts))] == [sum(counts[:i]) for i in range(len(counts))]


def test_many_samples_are_more_than_32_bits() -> None:
    numbering = Numbering(np.full(3, 1 << 31, np.uint32))
    assert numbering.find(5 << 30) == (2, 1 << 30)


@pytest.mark.parametrize("counts", [[], [0], [0, 0]])
def test_of_nothing(counts: list[int]) -> None:
    assert Numbering(counts).total == 0
