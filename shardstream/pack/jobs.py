"""What workers ask of a task, whatever it makes: those of a pack run are `Task`, those of an export `ExportTask`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias, TypeVar

from shardstream.pack.commits import Pending
from shardstream.pack.tally import Tally
from shardstream.storage import Location

Report: TypeAlias = Callable[[Tally], None]
"""Called once a sample, or once for some of them, with what was added."""


class Result(Protocol):
    """What a task has done: its counts, and whether an earlier run had done it already."""

    @property
    def tally(self) -> Tally:
        """What was counted."""

    @property
    def kept(self) -> bool:
        """Whether it had been done before."""


R = TypeVar("R", bound=Result, covariant=True)


class Job(Protocol[R]):
    """One piece of work: picklable, independent of all others, harmless when done twice."""

    @property
    def name(self) -> str:
        """What is made, for messages."""

    @property
    def dest(self) -> Location:
        """Where it is made."""

    def finished(self) -> R | None:
        """What an earlier run has done, where that is whole."""

    def write(self, report: Report | None = None) -> tuple[R, Pending]:
        """Do it; the commit is left to the caller."""
