"""When to try again: arithmetic only, nothing sleeps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardstream.storage import RetryPolicy
from shardstream.storage.base.policy import draw

POLICY = RetryPolicy()


def test_bounds_double_up_to_the_cap() -> None:
    assert [POLICY.bound(failures) for failures in range(1, 11)] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 15, 15]
    assert POLICY.bound(10_000) == 15


@given(st.integers(1, 100), st.floats(0, 1, exclude_max=True))
def test_the_jitter_is_full(failures: int, number: float) -> None:
    assert POLICY.pause("connection", failures, left=1e9, draw=0.0) == 0
    pause = POLICY.pause("connection", failures, left=1e9, draw=number)
    assert pause == pytest.approx(number * POLICY.bound(failures))


def test_what_the_server_asks_for_is_waited_and_a_little_more() -> None:
    assert POLICY.pause("throttled", 1, left=100, draw=0.5, asked=7) == pytest.approx(7.05)


def test_no_pause_reaches_past_the_deadline() -> None:
    assert POLICY.pause("server error", 20, left=7.0, draw=0.5) is None
    assert POLICY.pause("server error", 20, left=8.0, draw=0.5) == 7.5
    assert POLICY.pause("throttled", 1, left=100, draw=0, asked=100) is None
    assert POLICY.pause("timeout", 1, left=0, draw=0) is None


def test_a_wrong_range_again_and_again_is_no_accident() -> None:
    given_up = [POLICY.pause("wrong range", failures, left=1e9, draw=0) is None for failures in range(1, 6)]
    assert given_up == [False, False, False, True, True]


def test_large_reads_may_take_longer_but_not_for_ever() -> None:
    assert POLICY.allowed(0) == 180
    assert POLICY.allowed(64 << 20) == 180 + 1024
    assert POLICY.allowed(1 << 62) == 180 + 86_400


def test_draws_differ() -> None:
    drawn = [draw() for _ in range(100)]
    assert all(0 <= number < 1 for number in drawn)
    assert len(set(drawn)) == 100
