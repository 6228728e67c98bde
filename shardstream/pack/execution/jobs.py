"""Work in independent pieces, whatever they make: those of a pack run are `Task`, those of an export `ExportTask`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol, TypeVar, overload

from shardstream.pack.execution.isolated import end
from shardstream.pack.output.commits import Pending, naming
from shardstream.pack.output.stats import PackStats, Report
from shardstream.storage import Location, Store, open_store


class Result(Protocol):
    """What a task has done: its counts, and whether an earlier run had done it already."""

    @property
    def tally(self) -> PackStats:
        """What was counted."""

    @property
    def kept(self) -> bool:
        """Whether it had been done before."""


R = TypeVar("R", bound=Result, covariant=True)


class PackJob(Protocol[R]):
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


def run_job(job: PackJob[R]) -> R:
    """Do it whole, commit included; or find that it is done."""
    kept = job.finished()
    if kept is not None:
        return kept
    try:
        result, pending = job.write()
    finally:
        end()
    with naming(job.name):
        pending.commit()
    return result


J = TypeVar("J", bound=PackJob[Result])


class Jobs(Sequence[J]):
    """The pieces of a run, made when asked for.

    Attributes:
        lendable: Whether a worker process of this machine can make them by itself, from a pickle of this object and
            what it inherits, see `lending.Lent`.
    """

    lendable: bool = True

    @abstractmethod
    def name(self, number: int) -> str:
        """What one of them makes, without making it."""

    @abstractmethod
    def make(self, number: int) -> J:
        """One of them."""

    @overload
    def __getitem__(self, index: int) -> J: ...
    @overload
    def __getitem__(self, index: slice) -> list[J]: ...
    def __getitem__(self, index: int | slice) -> J | list[J]:
        numbers = range(len(self))[index]
        return self.make(numbers) if isinstance(numbers, int) else [self.make(number) for number in numbers]


@lru_cache(maxsize=4)
def store_at(place: Location) -> Store:
    """One store for all tasks of a run: its connections and tokens outlive a shard."""
    return open_store(place)
