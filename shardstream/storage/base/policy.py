"""When to try again, as arithmetic: no clock and no sleep in here."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from shardstream.errors import UsageError

FaultKind: TypeAlias = Literal["timeout", "connection", "throttled", "server error", "short body", "wrong range"]
"""What went wrong with one attempt, as statistics count it."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How patient transfers are. Times are seconds.

    Attributes:
        deadline: How long a request is tried before it is an error; large reads get longer, see `allowed`. The default
            is object_store's, longer than stores throttle or fail over, shorter than a job scheduler's patience.
        contact: The same for a store that this process has never reached: a wrong name or a closed port is no outage.
        stall: A read that gets no byte for this long is cut, and goes on over another connection. Healthy stores
            answer within 1 s; less than 5 s would cut reads from tiers that are merely slow.
        first: Bound of the pause after the first failure; it doubles with each further one that brought no byte.
        cap: Bound of any pause.
        slowest: Bytes a second below which a large read is given up as well.
        wrong: Attempts in a row that are answered with a wrong range: then it is not an accident.
    """

    deadline: float = 180.0
    contact: float = 30.0
    stall: float = 15.0
    first: float = 0.1
    cap: float = 15.0
    slowest: float = 64 * 1024
    wrong: int = 4

    @classmethod
    def of(cls, patience: object) -> RetryPolicy:
        """The usual one, or one whose requests are tried for so many seconds.

        Raises:
            UsageError: That is no such number.
        """
        if patience is None:
            return cls()
        deadline = seconds("patience", patience)
        return cls(deadline=deadline, contact=min(deadline, cls().contact))

    def allowed(self, length: int) -> float:
        """Seconds that a transfer of ``length`` bytes may take in all; a day beside the deadline at most."""
        return self.deadline + min(length / self.slowest, 86_400.0)

    def bound(self, failures: int) -> float:
        """The longest pause after so many failures in a row."""
        return min(self.cap, self.first * 2.0 ** min(failures - 1, 32))

    def pause(
        self,
        kind: FaultKind,
        failures: int,
        *,
        left: float,
        draw: float,
        asked: float | None = None,
    ) -> float | None:
        """Seconds to wait before the next attempt; ``None``: give up.

        Full jitter: any time up to the bound, so that many readers that failed together do not come back together.

        Args:
            kind: What the last attempt failed of.
            failures: Attempts in a row that failed without bringing a byte; at least 1.
            left: Seconds until the deadline.
            draw: A random number in [0, 1), see `draw`.
            asked: What the server asked us to wait (``Retry-After``).
        """
        if kind == "wrong range" and failures >= self.wrong:
            return None
        pause = draw * self.bound(failures)
        if asked is not None:
            # Not all at the very moment that it named.
            pause += asked
        return pause if pause < left else None


def seconds(name: str, value: Any) -> float:
    """A time in seconds, also from a command line.

    Raises:
        UsageError: It is none.
    """
    try:
        found = float(str(value).removesuffix("s"))
    except ValueError:
        raise UsageError(f"{name} must be a number of seconds") from None
    if not found > 0:
        raise UsageError(f"{name} must be more than 0 seconds, got {found:g}")
    return found


def draw() -> float:
    """A random number in [0, 1) that is independent of every seed: forked workers must not come back in step."""
    return int.from_bytes(os.urandom(6), "little") / 2**48
