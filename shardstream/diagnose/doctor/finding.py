"""``Finding``: what one check found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Level: TypeAlias = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found. ``str()`` of it is a line or two for people.

    Attributes:
        check: What was looked at, such as ``"/dev/shm"``.
        level: ``"ok"``; ``"warn"`` for what makes training slow or risky; ``"fail"`` for what stops it.
        fact: What is the case.
        fix: What to type or write; empty where all is well.

        >>> print(Finding("open files", "warn", "256 at most", "ulimit -n 4096"))
        warn  open files    256 at most
              fix: ulimit -n 4096
    """

    check: str
    level: Level
    fact: str
    fix: str = ""

    def __str__(self) -> str:
        line = f"{self.level:<6}{self.check:<14}{self.fact}"
        return f"{line}\n      fix: {self.fix}" if self.fix else line
