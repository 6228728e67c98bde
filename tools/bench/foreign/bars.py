"""The bars of data of other libraries."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from bench.foreign import scans
from bench.foreign.corpora import Kind
from bench.foreign.measured import Measured
from bench.report import MISSED

IN_PLACE = 0.9  # of what packed shards give
BLOCKS = 0.5  # the same of values that are compressed together
CACHED = 0.9  # of them in a second epoch with a cache
READERS = {
    "webdataset": 5.0,
    "streaming": 3.0,
    "tfrecord": 2.0,
    "lmdb": 1.5,
    "arrow": 3.0,
    "parquet": 3.0,
    "hdf5": 3.0,
    "zip": 1.5,
    "litdata": 1.5,
}
"""How many times as fast as the format's own reader."""
FILES = {"bytes": 0.95, "crop": 1.3}
"""How fast single files come in place, as a share of what ``ImageFolder`` gives."""
FAR = 0.8  # of what bare requests bring of them
PACKING = 0.8  # of packing the same samples from files
SCANS = {"webdataset": scans.MEMBERS, "lmdb": scans.INTO, "recordio": scans.INTO, "streaming": scans.INTO}
"""What a scan is held against; photographs only, but for tars."""
SCAN = 3.0
CATALOGUE = 64.0  # bytes a sample beside keys
START = 2.0  # seconds


def ratios(found: Measured, name: str, kind: Kind, figure: str) -> list[float]:
    """Ours to the format's own reader, in each round."""
    ours, theirs = found["ours", name, kind].values(figure), found["theirs", name, kind].values(figure)
    return [mine / other for mine, other in zip(ours, theirs, strict=False)]


def verdict(values: Sequence[float], limit: float, *, most: bool = False) -> str:
    """Whether the median is at least, or at most, what it has to be."""
    if not values:
        return "not measured"
    reached = median(values) <= limit if most else median(values) >= limit
    return "reached" if reached else MISSED
