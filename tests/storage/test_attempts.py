"""Requests that are not ranged reads: when they are made again, and when that ends."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from shardstream.errors import AccessError, StorageError
from shardstream.storage import RetryPolicy, counters
from shardstream.storage.transfer.client import Fault
from shardstream.storage.transfer.loop import run
from shardstream.storage.transfer.retry import Pace, attempt

SOON = RetryPolicy(first=0.001, cap=0.001, deadline=30, contact=30)


@pytest.fixture
def counted():
    before = counters().snapshot()
    return lambda: {name: count for name, count in counters().since(before).items() if count}


def ask(*answers, policy=SOON, limit=None):
    rest = list(answers)

    async def one():
        answer = rest.pop(0)
        if answer is None:
            await asyncio.Event().wait()
        if isinstance(answer, BaseException):
            raise answer
        return answer

    pace = Pace()
    ask = partial(attempt, one, what="listing", where="s3://b", policy=policy, pace=pace, limit=limit)
    return run(ask, wait=60, what="the test")


def test_other_requests_are_tried_again_too(counted) -> None:
    assert ask(Fault("throttled", "503"), None, Fault("connection", "reset"), 5, limit=0.05) == 5
    expected = {"requests": 4, "retries": 3, "retries_throttled": 1, "retries_timeout": 1, "retries_connection": 1}
    assert counted() == expected


def test_other_requests_end_by_deadline_and_by_refusal() -> None:
    with pytest.raises(AccessError) as caught:
        ask(AccessError("no"))
    assert caught.value.place == {"url": "s3://b"}
    short = RetryPolicy(deadline=0.1, contact=0.1, first=0.001, cap=0.001)
    with pytest.raises(StorageError, match=r"gave up listing after .* s; tried \d+ times: 503") as gone:
        ask(*[Fault("server error", "503")] * 100_000, policy=short)
    assert gone.value.place == {"url": "s3://b"}
    with pytest.raises(StorageError, match="no answer within"):
        ask(*[None] * 1000, policy=short, limit=0.01)


def test_a_store_that_asks_to_wait_was_reached() -> None:
    policy = RetryPolicy(contact=0.05, deadline=3600, first=0.001, cap=0.001)
    assert ask(Fault("throttled", "status 429", wait=0.1), 5, policy=policy, limit=30) == 5


def test_a_wait_longer_than_the_deadline_is_told_at_once() -> None:
    with pytest.raises(StorageError, match=r"tried once: status 429 \(asked to wait 600 s\)"):
        ask(Fault("throttled", "status 429", wait=600))
