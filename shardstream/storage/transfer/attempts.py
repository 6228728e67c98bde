"""Requests that are no ranged reads, made again until they are answered; those have ``transfer``."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from shardstream.errors import StorageError
from shardstream.storage.base.counters import counters
from shardstream.storage.transfer.client import Fault, FaultKind
from shardstream.storage.transfer.latency import Pace
from shardstream.storage.transfer.retry import RetryPolicy, draw

T = TypeVar("T")

_COUNTED: dict[FaultKind, str] = {
    "timeout": "retries_timeout",
    "connection": "retries_connection",
    "throttled": "retries_throttled",
    "server error": "retries_server",
    "short body": "retries_short",
    "wrong range": "retries_range",
}
TROUBLE = "the store or the network is in trouble; what was retried, and why, stands in the statistics"
"""What to do about an error after many attempts."""


def count_retry(fault: Fault) -> None:
    """Count an attempt that failed and is made again."""
    counters().add("retries")
    counters().add(_COUNTED[fault.kind])


def told(fault: Fault) -> str:
    """What an attempt failed of, for the error."""
    return f"{fault} (asked to wait {fault.wait:g} s)" if fault.wait else str(fault)


async def attempt(
    ask: Callable[[], Awaitable[T]],
    *,
    what: str,
    where: str,
    policy: RetryPolicy,
    pace: Pace,
    limit: float | None = None,
) -> T:
    """The answer to a request that is no ranged read, with as many attempts as it takes.

    Args:
        ask: Makes one attempt.
        what: What it does, for errors: "asking for the size".
        where: The object's URL, for errors.
        policy: When to try again and when to give up.
        pace: Knows whether the store has ever answered.
        limit: Seconds one attempt may take; ``None``: a third of the stall deadline, and longer each time, for these
            are small, and asking again does no harm.

    Raises:
        NotFoundError, AccessError, ChangedError: At once.
        StorageError: Time is up, or the store refuses for good.
    """
    clock = asyncio.get_running_loop()
    began, failures = clock.time(), 0
    while True:
        counters().add("requests")
        may_take = min(2.0, 2.0**failures / 3) * policy.stall if limit is None else limit
        ends = began + (policy.deadline if pace.reached else min(policy.deadline, policy.contact))
        try:
            async with asyncio.timeout(min(may_take, max(0.0, ends - clock.time()))):
                answer = await ask()
        except (Fault, TimeoutError) as error:
            fault = error if isinstance(error, Fault) else Fault("timeout", f"no answer within {may_take:g} s")
            failures += 1
            pace.reached |= fault.kind not in ("timeout", "connection")
            left = ends - clock.time()
            pause = policy.pause(fault.kind, failures, left=left, draw=draw(), asked=fault.wait)
            if pause is None:
                spent = clock.time() - began
                times = "once" if failures == 1 else f"{failures} times"
                story = f"gave up {what} after {spent:.1f} s; tried {times}: {told(fault)}"
                raise StorageError(story, url=where, hint=TROUBLE) from None
            count_retry(fault)
            await asyncio.sleep(pause)
        except StorageError as error:
            pace.reached = True
            raise error.at(url=where) from None
        else:
            pace.reached = True
            return answer
