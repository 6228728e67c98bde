"""What the processes of a run hold while it goes on, and whether that grows."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from statistics import mode
from typing import NamedTuple

import numpy as np

from drills.processes.blows import gone
from tests.processes import marked

GROWTH = 0.05
"""Of the mean, that a line through the values may rise from its beginning to its end."""
SHORTEST = 240
"""Seconds of a run of which it is asked whether it grows."""
MOST_OF_POOL = 200
"""Threads of obstore's in one process: more than requests that are under way at once have answers."""
_FLOORS = {"private": 8 << 20, "threads": 2.0, "descriptors": 8.0}  # growth that is none, whatever the mean


class Held(NamedTuple):
    """What the processes of a run held at a time.

    Attributes:
        seconds: Since the run began.
        processes: How many.
        private: Bytes of memory that each of them has alone, together.
        threads: Of all of them, but for the next.
        pool: Threads of obstore's: as many as answers wait for Python's lock, until they had nothing to do for 10 s.
        descriptors: Files and sockets that are open.
    """

    seconds: float
    processes: int
    private: int
    threads: int
    pool: int
    descriptors: int


class Watch(threading.Thread):
    """Looks every so often; a context manager.

    Args:
        mark: Of the run.
        every: Seconds.

    Attributes:
        held: What was seen.
    """

    def __init__(self, mark: str, every: float) -> None:
        super().__init__(daemon=True)
        self.held: list[Held] = []
        self._mark, self._every = mark, every
        self._done = threading.Event()

    def __enter__(self) -> Watch:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self.join()

    def run(self) -> None:
        """Until the end of the ``with`` block."""
        begun = time.monotonic()
        while not self._done.wait(self._every):
            pids = marked(self._mark)
            seen = [one for one in map(_look, pids) if one is not None]
            if seen:
                columns = map(sum, zip(*seen, strict=True))
                self.held.append(Held(time.monotonic() - begun, len(seen), *columns))

    def usual(self) -> list[Held]:
        """What was seen when there were as many processes as mostly."""
        return usual(self.held)

    def problems(self, path: Path) -> list[str]:
        """What is wrong at the end of the run, which is waited for: processes are left, or what they held grew.

        Args:
            path: Takes a line of JSON for each look.
        """
        path.write_text("".join(json.dumps(one._asdict()) + "\n" for one in self.held))
        left = [] if gone(self._mark) else ["processes outlive the run"]
        crowds = [one for one in self.held if one.pool > MOST_OF_POOL * one.processes]
        left += [f"obstore has {crowds[0].pool} threads in {crowds[0].processes} processes"] if crowds else []
        return left + growing(self.usual())


def _look(pid: int) -> tuple[int, int, int, int] | None:
    with suppress(OSError):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        private = sum(int(line.split()[1]) for line in lines if line.startswith(("Private_Clean", "Private_Dirty")))
        names = [Path(f"/proc/{pid}/task/{one}/comm").read_text() for one in os.listdir(f"/proc/{pid}/task")]
        pool = sum(name.startswith("tokio") for name in names)
        return private << 10, len(names) - pool, pool, len(os.listdir(f"/proc/{pid}/fd"))
    return None


def usual(held: Sequence[Held]) -> list[Held]:
    """What was seen when there were as many processes as mostly."""
    most = mode(one.processes for one in held)
    return [one for one in held if one.processes == most]


def settled(held: Sequence[Held]) -> list[Held]:
    """What was seen after the first quarter of the time, in which caches fill."""
    return [one for one in held if one.seconds >= held[-1].seconds / 4]


def growing(held: Sequence[Held]) -> list[str]:
    """What grows, in a sentence each: a straight line through the values rises by more than `GROWTH` of their mean.

    Of a run of less than `SHORTEST` nothing can be said.

    Args:
        held: What was seen, of a run whose processes were always as many; what was before it `settled` is left out.
    """
    if not held or held[-1].seconds < SHORTEST:
        return []
    held = settled(held)
    seconds = np.array([one.seconds for one in held])
    found = []
    for what, floor in _FLOORS.items():
        values = np.array([getattr(one, what) for one in held], np.float64)
        slope, _ = np.polyfit(seconds, values, 1)
        growth, mean = slope * (seconds[-1] - seconds[0]), values.mean()
        if growth > max(floor, GROWTH * mean):
            found.append(f"{what}: {growth:,.0f} more at the end, of {mean:,.0f} in the mean")
    return found
