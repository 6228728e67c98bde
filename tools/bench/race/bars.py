"""The bars of the race: which of ours has to be how many times as fast as whom."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from bench.harness import Row
from bench.race import lines
from bench.race.lines import ADDRESSABLE, FAST, FFCV, KEPT, OURS, Line


@dataclass(frozen=True)
class Bar:
    """A bar.

    Attributes:
        ours: The line of ours, by name; of several that begin like this, the fastest.
        least: The ratio it has to reach.
        peers: Whom it is held against: each line of theirs. Empty: the fastest of all.
    """

    ours: str
    least: float
    peers: tuple[str, ...] = ()


CROP = (
    Bar(ADDRESSABLE, 2.0, (FFCV,)),
    Bar(ADDRESSABLE, 2.5, (lines.DALI,)),
    Bar(ADDRESSABLE, 3.0, (lines.WEBDATASET, lines.STREAMING, lines.LITDATA, lines.TORCHVISION)),
    Bar(FAST, 2.4, (FFCV,)),
    Bar(KEPT, 1.3, (FFCV,)),
    Bar(KEPT, 1.6, (lines.DALI,)),
)
LARGE = (Bar(ADDRESSABLE, 5.0, (lines.TORCHVISION,)),)
CENTER = (Bar(ADDRESSABLE, 1.5),)
SMALL = (Bar(OURS, 10.0),)
_RAW = f"{OURS}, {lines.BATCHES}"
RAW = (Bar(_RAW, 10.0, (lines.WEBDATASET, lines.STREAMING)), Bar(_RAW, 1.5, (lines.LITDATA, lines.FILES)))
RAW_WORKERS = (Bar(_RAW, 4.0), Bar(_RAW, 2.0, (lines.FILES,)))
SHARE = 0.90  # of the bare kernels
PRIVATE = 0.5  # of the memory of FFCV's and DALI's processes


@dataclass(frozen=True)
class Work:
    """One job that all contenders do.

    Attributes:
        name: For JSON.
        title: Of its table.
        unit: Of its speeds.
        lines: The contenders, ours first.
        bars: What ours have to reach.
    """

    name: str
    title: str
    unit: str
    lines: Sequence[Line]
    bars: tuple[Bar, ...]


@dataclass(frozen=True)
class Measured:
    """A line with what it reached."""

    line: Line
    row: Row

    @property
    def name(self) -> str:
        """The contender's."""
        return self.row.contender.name

    @property
    def speeds(self) -> list[float]:
        """Its speed in each round: empty where there is a problem."""
        return [] if self.row.problem else [next(iter(figures.values())) for figures in self.row.rounds]

    @property
    def speed(self) -> float:
        """The median; 0 where there is none."""
        return median(self.speeds) if self.speeds else 0.0

    @property
    def private(self) -> float:
        """The median of a worker's private memory, in bytes; 0 where there is none."""
        return 0.0 if self.row.problem else median(self.row.private)


def ratios(mine: Measured, other: Measured) -> list[float]:
    """Ours to another's speed, in each round."""
    return [a / b for a, b in zip(mine.speeds, other.speeds, strict=False)]


def fastest(measured: Sequence[Measured]) -> Measured | None:
    """The fastest of those that have a figure."""
    return max((one for one in measured if one.speeds), key=lambda one: one.speed, default=None)


def held_against(bar: Bar, measured: Sequence[Measured]) -> Iterator[tuple[str, str, float | None]]:
    """Whom a bar is held against.

    Yields:
        Name of ours, name of the other, and the median of the ratios; ``None`` where one was not measured.
    """
    mine = fastest([one for one in measured if one.name == bar.ours or bar.ours == one.line.peer])
    peers = [one for one in measured if one.line.peer != OURS]
    if not bar.peers:
        best = fastest(peers)
        others = [] if best is None else [best]
    else:
        others = [one for one in peers if one.line.peer in bar.peers]
    for other in others:
        found = [] if mine is None else ratios(mine, other)
        yield bar.ours if mine is None else mine.name, other.name, median(found) if found else None
