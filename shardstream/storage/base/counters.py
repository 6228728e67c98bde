"""What transfers did in this process, counted: how one sees that a store throttles, stalls or breaks connections.

``requests`` and ``bytes``
    Requests sent to stores, and bytes of bodies that came back, those of lost races included. Far more bytes than the
    data holds: ranges are joined over gaps too large, or connections break often.
``sent``
    Bytes of objects written.
``retries``, of which ``retries_timeout``, ``_connection``, ``_throttled``, ``_server``, ``_short``, ``_range``
    Attempts that failed and were made again. *timeout*: no answer, or no byte for the stall deadline: look at the
    network. *throttled* (429, 503): fewer workers, or names spread over more prefixes. *server*: other 5xx answers.
    *short*: a body ended early. *range*: an answer to another range than was asked, often a proxy or cache between.
``resumed``
    Retries that went on after the last byte received rather than from the start.
``hedged``, ``hedged_won``
    Reads that were slower than their peers and were asked a second time, and those where the second answer came first.
    Many, few of them won: the line is simply full.
``cache_hit_bytes``, ``cache_fetched_bytes``, ``cache_repaired``
    Bytes served from the block cache, bytes fetched into it, and damaged blocks that were fetched again.
``inflated_blocks``
    Blocks of compressed objects of other libraries that were inflated. Far more than there are: a larger ``prefetch``,
    or a cache, keeps them from being inflated again.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping

NAMES = (
    "requests",
    "bytes",
    "sent",
    "retries",
    "retries_timeout",
    "retries_connection",
    "retries_throttled",
    "retries_server",
    "retries_short",
    "retries_range",
    "resumed",
    "hedged",
    "hedged_won",
    "cache_hit_bytes",
    "cache_fetched_bytes",
    "cache_repaired",
    "inflated_blocks",
)


class Counters:
    """Totals by name, from zero at the start of each process; safe to use from several threads."""

    def __init__(self) -> None:
        self._totals = dict.fromkeys(NAMES, 0)
        self._lock = threading.Lock()

    def add(self, name: str, amount: int = 1) -> None:
        """Count ``amount`` more of ``name``; KeyError if there is no such counter."""
        with self._lock:
            self._totals[name] += amount

    def snapshot(self) -> dict[str, int]:
        """All totals at one moment."""
        with self._lock:
            return dict(self._totals)

    def since(self, earlier: Mapping[str, int]) -> dict[str, int]:
        """What was added after an earlier `snapshot`."""
        return {name: total - earlier.get(name, 0) for name, total in self.snapshot().items()}


_counters = Counters()


def counters() -> Counters:
    """The counters of this process."""
    return _counters


def _start_anew() -> None:
    # A lock that another thread held at the fork would stay locked for ever.
    _counters.__init__()  # type: ignore[misc]


os.register_at_fork(after_in_child=_start_anew)
