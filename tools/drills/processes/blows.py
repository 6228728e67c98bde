"""What is done to processes of a run, whether they end, and what came of it."""

from __future__ import annotations

import os
import random
import resource
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from tests.processes import marked

LONGEST_S = 60
"""How long anything may take before it counts as hanging."""

Blow: TypeAlias = Callable[[int, random.Random], None]


def killed(pid: int, _: random.Random) -> None:
    """SIGKILL."""
    os.kill(pid, signal.SIGKILL)


def terminated(pid: int, _: random.Random) -> None:
    """SIGTERM."""
    os.kill(pid, signal.SIGTERM)


def stopped(pid: int, draws: random.Random) -> None:
    """SIGSTOP, and SIGCONT up to two seconds later."""
    os.kill(pid, signal.SIGSTOP)
    time.sleep(draws.uniform(0.1, 2.0))
    os.kill(pid, signal.SIGCONT)


def starved(pid: int, draws: random.Random) -> None:
    """No memory beyond what it has, but for some tens of megabytes at most."""
    with suppress(ValueError):
        used = int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()
        _, most = resource.prlimit(pid, resource.RLIMIT_AS)
        resource.prlimit(pid, resource.RLIMIT_AS, (used + draws.randrange(48 << 20), most))


BLOWS: tuple[Blow, ...] = (killed, terminated, stopped, starved)


def strike(pid: int, blow: Blow, draws: random.Random) -> bool:
    """Do it; whether the process was still there."""
    try:
        blow(pid, draws)
    except (ProcessLookupError, FileNotFoundError):
        return False
    return True


def end(pids: Sequence[int], how: signal.Signals = signal.SIGKILL) -> None:
    """A signal for all of them."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, how)


def gone(mark: str) -> bool:
    """Whether all processes of a run end by themselves, soon; they are ended else."""
    deadline = time.monotonic() + LONGEST_S / 2
    while left := marked(mark):
        if time.monotonic() > deadline:
            end(left)
            return False
        time.sleep(0.02)
    return True


@dataclass
class Tally:
    """What happened.

    Attributes:
        rounds: By what was done to whom, how often.
        ends: How often runs ended how.
        problems: What must not be, each in a sentence.
    """

    rounds: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def told(self) -> str:
        """In some lines."""
        parts = [
            f"{sum(self.rounds.values())} rounds",
            *(f"  {count:4} {what}" for what, count in sorted(self.rounds.items())),
            "that ended",
            *(f"  {count:4} {how}" for how, count in sorted(self.ends.items())),
            f"{len(self.problems)} problems",
            *(f"  {one}" for one in self.problems[:40]),
        ]
        return "\n".join(parts)
