"""The bars of packing: which of ours has to be how many times as fast as whom."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from bench.harness import Row
from bench.report import MISSED

WORKERS = 2
TAR, WEBDATASET, STREAMING = "`tar cf`", "`webdataset.ShardWriter`", "`MDSWriter`"
LITDATA = f"LitData `optimize`, {WORKERS} workers"
IMG2DATASET = f"img2dataset, {WORKERS} processes"
KERNEL = "bare transcoder, {} process{}"
ONE_KERNEL, ALL_KERNELS = KERNEL.format(1, ""), KERNEL.format(WORKERS, "es")


def ours(workers: int, framing: str = "tar") -> str:
    """The name of a contender of ours."""
    return f"`shardstream pack`, {framing}, {workers} worker{'' if workers == 1 else 's'}"


@dataclass(frozen=True)
class Bar:
    """A bar, in the first figure.

    Attributes:
        ours: Name of ours.
        least: The ratio that it has to reach.
        other: To whom.
        times: What the other's speed is multiplied by.
    """

    ours: str
    least: float
    other: str
    times: int = 1


RAW = (
    Bar(ours(1), 0.7, TAR),
    Bar(ours(1), 3.0, WEBDATASET),
    Bar(ours(1), 3.0, STREAMING),
    Bar(ours(WORKERS), 1.5, LITDATA),
)
TRANSCODED = (
    Bar(ours(1), 0.85, ONE_KERNEL),
    Bar(ours(WORKERS), 0.85, ONE_KERNEL, times=WORKERS),
    Bar(ours(WORKERS), 1.8, ours(1)),
)
FETCHED = (Bar(ours(WORKERS), 2.0, IMG2DATASET),)


def findings(bars: Sequence[Bar], rows: Sequence[Row]) -> Iterator[str]:
    """A sentence a bar."""
    found = {row.contender.name: row for row in rows}
    for bar in bars:
        mine, other = found[bar.ours], found[bar.other]
        whom = bar.other if bar.times == 1 else f"{bar.times} × {bar.other}"
        if not mine.rounds or not other.rounds:
            yield f"Bar: {bar.least:g} × {whom}: not measured."
            continue
        figure = next(iter(mine.rounds[0]))
        ratios = sorted(ratio / bar.times for ratio in mine.ratios(figure, other))
        reached = median(ratios)
        verdict = "reached" if reached >= bar.least else MISSED
        spread = f"({ratios[0]:.2f}–{ratios[-1]:.2f})"
        yield f"Bar: {bar.least:g} × {whom}; {bar.ours} {reached:.2f} {spread}, {verdict}."
