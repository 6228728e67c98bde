"""How fast a store has answered lately, to tell a read that is slow from one that is usual. No clock in here."""

from __future__ import annotations

from collections import deque

_KEPT = 64
_QUANTILE = 0.9
_ENOUGH = 8  # reads before their quantile means anything
_REFRESH = 8  # reads between two looks at the quantile


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


SMALL_CHUNK = 256 << 10
_CHUNK = 4 << 20
_TELLING = 128 << 10  # bodies shorter than this say little about bytes a second
