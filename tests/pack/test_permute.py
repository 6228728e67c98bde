from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardstream.pack.plan.permute import Permutation


@given(st.integers(0, 3000), st.integers(0, 2**64 - 1))
def test_it_is_a_bijection(n: int, seed: int) -> None:
    out = Permutation(n, seed=seed)(np.arange(n, dtype=np.int64))
    assert out.dtype == np.int64
    assert np.array_equal(np.sort(out), np.arange(n))


@given(st.integers(1, 1 << 62), st.integers(0, 2**64 - 1), st.data())
def test_any_position_of_any_size_stays_inside_and_stands_alone(n: int, seed: int, data: st.DataObject) -> None:
    positions = np.array(data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=20, unique=True)), np.int64)
    shuffle = Permutation(n, seed=seed)
    out = shuffle(positions)
    assert out.min() >= 0
    assert out.max() < n
    assert len(set(out.tolist())) == len(positions)
    assert [int(shuffle(positions[i : i + 1])[0]) for i in range(len(positions))] == out.tolist()


def test_golden_values_never_change() -> None:
    assert Permutation(10, seed=0)(np.arange(10)).tolist() == GOLDEN_10
    assert Permutation(10**10, seed=7)(np.array([0, 1, 10**10 - 1])).tolist() == GOLDEN_BIG


GOLDEN_10 = [9, 8, 7, 2, 6, 0, 3, 1, 5, 4]
GOLDEN_BIG = [2842064290, 6172379035, 1735514162]


def test_seeds_and_streams_have_nothing_in_common() -> None:
    n = 100_000
    positions = np.arange(n, dtype=np.int64)
    orders = [Permutation(n, seed=s, stream=t)(positions) for s, t in ((0, 0), (1, 0), (0, 1))]
    for i in range(3):
        for j in range(i):
            assert np.count_nonzero(orders[i] == orders[j]) < 12  # one is expected


def test_neighbours_are_scattered() -> None:
    """Samples that lie together in the source land in all shards alike: the counts are those of a fair draw."""
    n, shards = 100_000, 100
    order = Permutation(n, seed=3)(np.arange(n, dtype=np.int64))
    for run in range(10):
        where = np.flatnonzero((order >= run * n // 10) & (order < (run + 1) * n // 10))
        counts = np.bincount(where * shards // n, minlength=shards)
        chi = float(((counts - n / 10 / shards) ** 2 / (n / 10 / shards)).sum())
        assert chi < 160  # 99 degrees of freedom: 1 in 10,000 is above


def test_small_permutations_are_all_reached() -> None:
    seen = {tuple(Permutation(4, seed=seed)(np.arange(4)).tolist()) for seed in range(600)}
    assert len(seen) == 24


def test_more_than_it_can_count_is_refused() -> None:
    with pytest.raises(ValueError, match="n must be"):
        Permutation((1 << 62) + 1, seed=0)
