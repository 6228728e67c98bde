"""Weights as integers: exact where that is short, within one percent otherwise."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardstream.errors import UsageError
from shardstream.order import quotas_of

from ..examples import thorough


@pytest.mark.parametrize(
    ("weights", "quotas"),
    [
        ([1], (1,)),
        ([0.123456789], (1,)),
        ([0.7, 0.3], (7, 3)),
        ([0.1, 0.2, 0.7], (1, 2, 7)),
        ([5, 5, 5], (1, 1, 1)),
        ([1, 1023], (1, 1023)),
        (["1/3", "2/3"], (1, 2)),
        ([Fraction(1, 7), "6/7"], (1, 6)),
        ([1e-30, 3e-30], (1, 3)),
        ([1_281_167, 500_000], (184, 72)),  # 256 is enough
        ([1, 1024], (1, 1023)),  # 1,025 is too long a block, 1,024 off by a tenth of a percent
        ([1.5, 1024], (3, 2045)),  # in 1,024 it would be 1 or 2
        ([39.6474, 5.5991, 2.389, 41.9525, 22.2056], (363, 51, 22, 384, 204)),  # 512 would be off by more than 1 %
        ([1000.5, 1000.5, 1000], (86, 85, 85)),  # of equal remainders the first gets what is over
    ],
)
def test_quotas(weights, quotas):
    assert quotas_of(weights) == quotas


@thorough
@given(st.lists(st.one_of(st.integers(1, 50), st.floats(1, 50)), min_size=1, max_size=8))
def test_shares_are_exact_or_within_one_percent(weights):
    exact = [Fraction(str(weight)) for weight in weights]
    shares = [weight / sum(exact) for weight in exact]
    quotas = quotas_of(weights)
    total = sum(quotas)
    if math.lcm(*(share.denominator for share in shares)) <= 1024:
        assert [Fraction(quota, total) for quota in quotas] == shares
        assert math.gcd(*quotas) == 1
    else:
        assert total in (256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536)
        assert all(
            abs(Fraction(quota, total) / share - 1) <= Fraction(1, 100)
            for quota, share in zip(quotas, shares, strict=True)
        )


@thorough
@given(st.lists(st.integers(1, 50), min_size=1, max_size=8), st.integers(1, 10**9))
def test_the_unit_does_not_matter(weights, unit):
    assert quotas_of(weights) == quotas_of([weight * unit for weight in weights])


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([], "at least one"),
        ([1, 0], "got 0 for source 1"),
        ([-0.5, 1.5], "got -0.5 for source 0"),
        ([1, float("nan")], "source 1 must be a finite number, got nan"),
        ([1, float("inf")], "source 1 must be a finite number, got inf"),
        (["many", 1], "source 0 must be a finite number, got 'many'"),
        (["1/0", 1], "source 0 must be a finite number, got '1/0'"),
        ([1, 10**6], "source 0 is 1e-06 of all"),
    ],
)
def test_weights_that_cannot_work(weights, message):
    with pytest.raises(UsageError, match=message):
        quotas_of(weights)
