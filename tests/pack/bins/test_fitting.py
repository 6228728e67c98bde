"""Which document lies where in bins."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardstream.pack.bins.fitting import best_fit


def fullness(lengths: np.ndarray, places: np.ndarray, size: int) -> float:
    """Of all bins but the emptiest, which goes on into the next window."""
    filled = np.sort(np.bincount(places // size, lengths))[1:]
    return float(filled.sum() / (len(filled) * size))


@given(st.data(), st.sampled_from([1, 2, 7, 16, 64]), st.sampled_from([1, 2, 4, 8]))
def test_documents_lie_whole_in_the_least_part_that_holds_them(data: st.DataObject, least: int, parts: int) -> None:
    size = least * parts
    given_lengths = data.draw(st.lists(st.integers(1, size), max_size=60))
    lengths = np.array(given_lengths, np.int64)
    places = best_fit(lengths, size, least)
    taken = np.concatenate([np.arange(0), *(np.arange(p, p + n) for p, n in zip(places, lengths, strict=True))])
    assert len(np.unique(taken)) == lengths.sum(), "documents lie upon each other"
    bins = places // size
    assert sorted(set(bins.tolist())) == list(range(int(bins.max(initial=-1)) + 1)), "a bin is empty"
    part = size
    while part >= least:
        fits = lengths <= part
        assert (places[fits] // part == (places + lengths - 1)[fits] // part).all()
        part //= 2


@given(st.lists(st.integers(1, 100), min_size=1, max_size=200))
def test_bins_that_stay_whole_are_as_few_as_best_fit_makes_them(lengths: list[int]) -> None:
    places = best_fit(np.array(lengths), 100, 100)
    bins = int(places.max()) // 100 + 1
    least = -(-sum(lengths) // 100)
    assert bins <= 11 / 9 * least + 4 or bins <= sum(length > 50 for length in lengths) + least  # Johnson's bound


def test_what_is_left_over_is_filled_from_the_longest_on() -> None:
    assert best_fit(np.array([5, 2, 3, 8, 1]), 8, 8).tolist() == [8, 16, 13, 0, 18]
    assert best_fit(np.array([3, 2, 2, 1]), 8, 4).tolist() == [0, 4, 6, 3]


@pytest.mark.one_in(5)
@pytest.mark.parametrize("median", [60, 490, 2000])
@pytest.mark.parametrize("size", [2048, 8192])
def test_a_window_is_full_to_a_thousandth(size: int, median: int) -> None:
    lengths = np.exp(np.random.default_rng(0).normal(np.log(median), 1.2, 700_000)).astype(np.int64) + 1
    tokens = max(4096 * size, 32 << 20)
    rests = lengths % size
    rests = rests[: np.searchsorted(np.cumsum(rests), tokens)]
    rests = rests[rests > 0]
    for least in (size, size // 4):
        assert fullness(rests, best_fit(rests, size, least), size) > 0.999
