"""Random words against an implementation of Philox in Python integers, and golden values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardstream import rng
from shardstream.rng import Domain

M64 = 2**64 - 1


def philox(counter: list[int], key: list[int]) -> list[int]:
    """Philox4x64-10 of Salmon et al., SC 2011."""
    (c0, c1, c2, c3), (k0, k1) = counter, key
    for _ in range(10):
        p0, p1 = 0xD2E7470EE14C6C93 * c0, 0xCA5A826395121157 * c2
        c0, c1, c2, c3 = (p1 >> 64) ^ c1 ^ k0, p1 & M64, (p0 >> 64) ^ c3 ^ k1, p0 & M64
        k0, k1 = (k0 + 0x9E3779B97F4A7C15) & M64, (k1 + 0xBB67AE8584CAA73B) & M64
    return [c0, c1, c2, c3]


def test_philox_here_gives_the_published_answer():
    assert philox([0] * 4, [0] * 2) == [0x16554D9ECA36314C, 0xDB20FE9D672D0FDC, 0xD7E772CEE186176B, 0x7E68B68AEC7BA23B]


@given(
    st.integers(0, 30), st.integers(0, M64), st.sampled_from(Domain), st.integers(0, 2**32 - 1),
    st.integers(0, M64), st.integers(0, M64),
)  # fmt: skip
def test_words_are_philox_of_this_key_and_counter(count, seed, domain, epoch, a, b):
    key = [seed, int(domain) << 32 | epoch]
    blocks = [philox([n + 1, a, b, 0], key) for n in range(-(-count // 4))]  # numpy counts up before it draws
    expected = [word for block in blocks for word in block][:count]
    assert rng.words(count, seed=seed, domain=domain, epoch=epoch, a=a, b=b).tolist() == expected


@given(st.integers(0, 30), st.integers(0, 2**66 - 64))
def test_words_can_be_passed_over(count, skip):
    key = [7, int(Domain.BATCH) << 32 | 3]
    blocks = [philox([n + 1, 5, 6, 0], key) for n in range(skip // 4, (skip + count) // 4 + 1)]
    expected = [word for block in blocks for word in block][skip % 4 :][:count]
    assert rng.words(count, seed=7, domain=Domain.BATCH, epoch=3, a=5, b=6, skip=skip).tolist() == expected


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ({"seed": 0, "domain": Domain.SHARDS}, ["68f2a1cb1907a6f3", "a56c242db0a03161", "f54610f42f089295"]),
        (
            {"seed": 2**64 - 1, "domain": Domain.WINDOW, "epoch": 2**32 - 1, "a": 3, "b": 5},
            ["811ee5976365c3e5", "69e367020fb331f9", "45ec65d9a81437f6"],
        ),
        (
            {"seed": 1, "domain": Domain.AUGMENT, "epoch": 2, "a": 10**10},
            ["79c5b746c15be0fb", "24e369cdb20848e4", "574bf997d14b080e"],
        ),
    ],
)
def test_golden_words(key, expected):
    assert [f"{word:016x}" for word in rng.words(3, **key).tolist()] == expected


@pytest.mark.parametrize(
    ("n", "expected"),
    [
        (0, []),
        (1, [0]),
        (2, [1, 0]),
        (5, [3, 1, 4, 2, 0]),
        (16, [6, 3, 14, 5, 1, 15, 9, 13, 4, 11, 10, 7, 2, 0, 12, 8]),
        (17, [6, 3, 14, 5, 1, 15, 9, 13, 4, 11, 16, 10, 7, 2, 0, 12, 8]),
    ],
)
def test_golden_permutations(n, expected):
    assert rng.permutation(rng.words(n, seed=12, domain=Domain.WINDOW, epoch=1)).tolist() == expected


@given(st.integers(0, 300), st.integers(0, 2**64 - 1))
def test_permutations_hold_every_integer_once(n, seed):
    permutation = rng.permutation(rng.words(n, seed=seed, domain=Domain.WINDOW))
    assert permutation.dtype == np.int64
    assert sorted(permutation.tolist()) == list(range(n))


def test_rows_of_words_are_permutations_of_their_own():
    raw = np.stack([rng.words(240, seed=12, domain=Domain.MIXTURE, a=lane) for lane in range(5)])
    assert rng.permutation(raw).tolist() == [rng.permutation(row).tolist() for row in raw]


def test_permutations_leave_their_words_alone_and_break_ties_by_position():
    words = np.zeros(5, np.uint64)
    assert rng.permutation(words).tolist() == [0, 1, 2, 3, 4]
    assert not words.any()


def test_no_two_purposes_share_words():
    keys = [{"domain": domain, "epoch": e, "a": a, "b": b, "seed": seed}
            for domain in Domain for e in (0, 1) for a in (0, 1) for b in (0, 1) for seed in (0, 1)]  # fmt: skip
    words = np.concatenate([rng.words(50, **key) for key in keys])
    assert len(np.unique(words)) == len(words)


def test_values_of_domains_never_change():
    assert {domain.name: domain.value for domain in Domain} == {
        "SHARDS": 1, "PIECES": 2, "WINDOW": 3, "WINDOW_START": 4, "MIXTURE": 5, "AUGMENT": 6, "PACK": 7, "TRANSFORM": 8,
        "SOURCE": 9, "BATCH": 10, "DEAL": 11, "TURN": 12,
        "DRAWS": 13, "LOOK": 14, "BINS": 15, "SCHEDULE": 16,
    }  # fmt: skip


def test_seeds_are_taken_modulo_two_to_the_64():
    negative = rng.words(4, seed=-1, domain=Domain.SHARDS)
    assert np.array_equal(negative, rng.words(4, seed=2**64 - 1, domain=Domain.SHARDS))


@pytest.mark.parametrize("epoch", [-1, 2**32])
def test_epochs_out_of_range(epoch):
    with pytest.raises(ValueError, match=str(epoch)):
        rng.words(1, seed=0, domain=Domain.SHARDS, epoch=epoch)


def test_unit_and_below_cover_their_ranges():
    words = np.array([0, 2**63, M64], np.uint64)
    assert rng.unit(words).tolist() == [0.0, 0.5, 1 - 2**-53]
    assert rng.below(words, 10).tolist() == [0, 5, 9]
    assert rng.below(words, 2**32 - 1).tolist() == [0, 2**31 - 1, 2**32 - 2]
