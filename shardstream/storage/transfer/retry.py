"""When a request is made again: attempts at those that are not ranged reads, and what reads have taken lately.

A ranged read goes on where it stopped, see ``fetch``.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeVar

from shardstream.errors import StorageError
from shardstream.storage.base.awaited import AwaitedRequest
from shardstream.storage.base.counters import counters
from shardstream.storage.base.policy import FaultKind, RetryPolicy, draw
from shardstream.storage.transfer.client import Fault

T = TypeVar("T")

SMALL_CHUNK = 256 << 10
_CHUNK = 4 << 20
_TELLING = 128 << 10  # bodies shorter than this say little about bytes a second
_KEPT = 64
_QUANTILE = 0.9
_ENOUGH = 8  # reads before their quantile means anything
_REFRESH = 8  # reads between two looks at the quantile

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


class Recent:
    """A high quantile of the last values; ``None`` until there are enough."""

    def __init__(self) -> None:
        self._values: deque[float] = deque(maxlen=_KEPT)
        self._new = 0
        self.high: float | None = None

    def add(self, value: float) -> None:
        """Take one more value."""
        self._values.append(value)
        self._new += 1
        if len(self._values) >= _ENOUGH and (self.high is None or self._new >= _REFRESH):
            self._new = 0
            self.high = sorted(self._values)[int(_QUANTILE * (len(self._values) - 1))]


class Pace:
    """What the reads of one store took in this process.

    A read is asked a second time when a step of it takes longer than ``patience`` times what nine in ten of its peers
    took, and longer than ``least``. At most one read in ten, and one more, is asked twice at a time: where
    everything is slow, asking more makes it slower.

    Attributes:
        reached: Whether the store has ever answered.
        reading: Reads under way.
        hedging: Second attempts under way.
    """

    patience = 4.0
    least = 0.3
    unknown = 1.0  # seconds for a step, before the pace is known

    def __init__(self) -> None:
        self._answers = Recent()
        self._bytes = Recent()
        self.reached = False
        self.reading = 0
        self.hedging = 0

    def answered(self, seconds: float) -> None:
        """A read's answer began after so long."""
        self.reached = True
        self._answers.add(seconds)

    def received(self, length: int, seconds: float) -> None:
        """A body of ``length`` bytes came in so long, counted from its answer."""
        if length >= _TELLING:
            self._bytes.add(seconds / length)

    def chunk(self) -> int:
        """How many bytes to take at a time: about half a second's, so that a slow line shows that it moves."""
        if not self._bytes.high:
            return _CHUNK
        return int(min(_CHUNK, max(SMALL_CHUNK, 0.5 / self._bytes.high)))

    def limit(self, length: int) -> float:
        """Seconds that a step (the answer, and ``length`` bytes of it) may take before it counts as slow."""
        answer = self._answers.high
        if answer is None:
            return self.unknown
        return max(self.least, self.patience * (answer + length * (self._bytes.high or 0.0)))

    def may_hedge(self) -> bool:
        """Whether one more second attempt keeps within the bound."""
        return self.hedging < 1 + self.reading // 10


def count_retry(fault: Fault) -> None:
    """Count an attempt that failed and is made again."""
    counters().add("retries")
    counters().add(_COUNTED[fault.kind])


def tried(what: str, spent: float, times: int) -> str:
    """What was tried in vain, in so many seconds, for the error."""
    return f"gave up {what} after {spent:.1f} s; tried {'once' if times == 1 else f'{times} times'}"


async def attempt(
    ask: Callable[[], Awaitable[T]],
    *,
    what: str,
    where: str,
    policy: RetryPolicy,
    pace: Pace,
    limit: float | None = None,
) -> T:
    """The answer to a request that is not a ranged read, with as many attempts as it takes.

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
    with AwaitedRequest(where) as asked:
        return await _attempts(ask, asked, what=what, policy=policy, pace=pace, limit=limit)


async def _attempts(
    ask: Callable[[], Awaitable[T]],
    asked: AwaitedRequest,
    *,
    what: str,
    policy: RetryPolicy,
    pace: Pace,
    limit: float | None,
) -> T:
    clock, where = asyncio.get_running_loop(), asked.url
    began, failures = clock.time(), 0

    def left() -> float:
        return began + (policy.deadline if pace.reached else min(policy.deadline, policy.contact)) - clock.time()

    while True:
        counters().add("requests")
        asked.attempts += 1
        may_take = min(2.0, 2.0**failures / 3) * policy.stall if limit is None else limit
        try:
            async with asyncio.timeout(min(may_take, max(0.0, left()))):
                answer = await ask()
        except (Fault, TimeoutError) as error:
            fault = error if isinstance(error, Fault) else Fault("timeout", f"no answer within {may_take:g} s")
            failures += 1
            pace.reached |= fault.kind not in ("timeout", "connection")
            pause = policy.pause(fault.kind, failures, left=left(), draw=draw(), asked=fault.wait)
            if pause is None:
                story = tried(what, clock.time() - began, failures)
                raise StorageError(f"{story}: {fault}", url=where, hint=TROUBLE) from None
            count_retry(fault)
            await asyncio.sleep(pause)
        except StorageError as error:
            pace.reached = True
            raise error.at(url=where) from None
        else:
            pace.reached = True
            return answer
