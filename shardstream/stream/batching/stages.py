"""Where the time of a parcel goes."""

from __future__ import annotations

import time
from typing import Literal, TypeAlias

Stage: TypeAlias = Literal["read", "decode", "transform", "assemble"]


class StageClock:
    """Laps of one thread's work: the time since the last one goes to a stage.

    ``read`` is waiting for storage, with checksums and decompression; ``decode`` the decoders and callables of
    ``fields``; ``transform`` the callables for samples and batches; ``assemble`` all else that makes a batch.

        >>> clock = StageClock()
        >>> clock.lap("read")
        >>> list(clock.taken())
        ['read']
    """

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def begin(self) -> None:
        """What was since the last lap goes nowhere."""
        self._last = time.perf_counter()

    def lap(self, stage: Stage) -> None:
        """A stage ends here."""
        now = time.perf_counter()
        self._seconds[stage] = self._seconds.get(stage, 0.0) + now - self._last
        self._last = now

    def taken(self) -> dict[str, float]:
        """Seconds by stage since this was asked last."""
        seconds, self._seconds = self._seconds, {}
        return seconds
