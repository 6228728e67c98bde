"""What is measured at scale, the bars, and the table in ``docs/benchmarks/order.md``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.data import BATCH, WORKERS
from bench.harness import Contender, measure_alone
from bench.report import MISSED, Outcome, circumstances, markdown, provenance
from bench.scale import data
from bench.scale.arithmetic import RANKS
from bench.scale.arithmetic import WORKERS as CLUSTER_WORKERS

NODES = RANKS // 8
Rounds = Mapping[str, Sequence[Mapping[str, float]]]
"""Figures of every round, by contender."""


@dataclass(frozen=True)
class Line:
    """A line of the table.

    Attributes:
        what: The first cell.
        values: Figures of all contenders -> this line's value in each round.
        unit: Of the values.
        digits: After the point.
        bar: What the median must not pass; ``None`` where it is for information.
    """

    what: str
    values: Callable[[Rounds], list[float]]
    unit: str
    digits: int = 0
    bar: float | None = None


def contenders(manifests: Mapping[int, Path], records: Path, small: Path) -> list[Contender]:
    """The processes that run in each round."""
    most = data.SHARDS * data.SHARD_SAMPLES
    made = [
        Contender("set-up", "bench.scale.arithmetic:set_up", {"samples": most, "groups": 1}),
        Contender("set-up, groups", "bench.scale.arithmetic:set_up", {"samples": most, "groups": NODES}),
        Contender("middle", "bench.scale.arithmetic:from_the_middle", {"samples": most}),
    ]
    for size, folder in manifests.items():
        for groups in (1, NODES):
            options = {"folder": str(folder), "groups": groups}
            made.append(Contender(f"memory {size} {groups}", "bench.scale.arithmetic:memory", options))
        for method in ("fork", "spawn"):
            options = {"folder": str(folder), "method": method}
            made.append(Contender(f"memory {size} {method}", "bench.scale.pipeline:worker_memory", options))
    for workers in (0, WORKERS):
        options = {"folder": str(records), "workers": workers}
        made.append(Contender(f"share {workers}", "bench.scale.pipeline:order_share", options))
    made += [
        Contender("share fine", "bench.scale.pipeline:order_share", {"folder": str(records), "workers": 0, "chunk": 1}),
        Contender("start", "bench.scale.pipeline:start_of_loader", {"folder": str(records)}),
        Contender("start empty", "bench.scale.pipeline:start_of_empty"),
        Contender("gap", "bench.scale.pipeline:gap", {"folder": str(records)}),
    ]
    late = data.SMALL_SAMPLES * 9 // 10 // BATCH * BATCH
    made.append(Contender("resume", "bench.scale.pipeline:resume", {"folder": str(small), "position": late}))
    return made


def lines() -> list[Line]:
    """The table."""
    return [
        Line("set-up of an epoch", _of("set-up", "s"), "s", 3, 0.2),
        Line(f"set-up, {NODES} affinity groups", _of("set-up, groups", "s"), "s", 3, 0.2),
        Line("memory: manifest, order, 200 batches", _more("bytes", 1), "MB", 1, 30),
        Line(f"memory, {NODES} affinity groups", _more("bytes", NODES), "MB", 1, 30),
        Line("memory, forked worker of a `DataLoader`", _more("bytes", "fork"), "MB", 1, 30),
        Line("memory, spawned worker", _more("bytes", "spawn"), "MB", 1, 30),
        Line("Python objects, for a million shards", _more("objects", 1), "", 0, data.SHARDS // 100),
        Line("first batch, from the middle of the epoch", _of("middle", "first ms"), "ms", 2, 20),
        Line("first batch and set-up", _of("middle", "set-up ms", "first ms"), "ms", 1),
        Line("next batches: median", _of("middle", "median ms"), "ms", 3, 0.5),
        Line("next batches: 99th percentile", _of("middle", "p99 ms"), "ms", 3),
        Line("next batches: longest of 2,000", _of("middle", "max ms"), "ms", 3),
        Line("order's share of raw records, in process", _of("share 0", "%"), "%", 2, 3),
        Line("raw records, in process", _of("share 0", "MB/s"), "MB/s"),
        Line("raw records with `OrderOptions(chunk=1)`, in process", _of("share fine", "MB/s"), "MB/s"),
        Line(f"order's share of raw records, {WORKERS} workers", _of(f"share {WORKERS}", "%"), "%", 2, 3),
        Line(f"raw records, {WORKERS} workers", _of(f"share {WORKERS}", "MB/s"), "MB/s"),
        Line("start to the first raw batch, over the empty one", _over("start", "start empty"), "s", 3, 0.5),
        Line("start of an empty `IterableDataset`", _of("start empty", "s"), "s", 3),
        Line("resume at 90 % to the first batch", _of("resume", "resumed s"), "s", 3),
        Line("resume, as a ratio to a fresh start", _ratio("resume", "resumed s", "fresh s"), "×", 2, 1.1),
        Line("last batch of an epoch to the first of the next", _of("gap", "gap ms"), "ms", 1),
        Line("last to first, the longest", _of("gap", "largest ms"), "ms", 1),
        Line("usual time between batches", _of("gap", "usual ms"), "ms", 1),
    ]


def run(document: Path, rounds: int) -> Outcome:
    """Make the data, run all contenders ``rounds`` times, and give the section."""
    many = data.SHARDS * data.SHARD_SAMPLES
    manifests = {size: data.manifest_only(size) for size in (many, data.FEW)}
    where = circumstances()
    print(f"making data: {data.RECORDS:,} records, {data.SMALL_SAMPLES:,} small samples", flush=True)
    figures, busy = measure_alone(contenders(manifests, data.records(), data.small_samples()), rounds)
    rows = [_row(line, line.values(figures)) for line in lines()]
    missed = any(MISSED in cell for row in rows for cell in row)
    origin = provenance(where, f"tools/bench/run order --rounds {rounds}", busy, f"{rounds} rounds")
    return Outcome(
        "order", document, f"{TEXT}\n{markdown([HEADS, *rows])}\n{origin}", missed, {**where, "rounds": figures}
    )


def _row(line: Line, values: list[float]) -> list[str]:
    middle, low, high = median(values), min(values), max(values)
    number = f"{{:,.{line.digits}f}}"
    unit = f" {line.unit}" if line.unit else ""
    spread = f"{number.format(low)}–{number.format(high)}"
    bar = "" if line.bar is None else f"{line.bar:,g}{unit}"
    verdict = "" if line.bar is None else "reached" if middle <= line.bar else MISSED
    return [line.what, f"{number.format(middle)}{unit}", spread, bar, verdict]


def _of(contender: str, *figures: str) -> Callable[[Rounds], list[float]]:
    """A figure of a contender, or the sum of several."""
    return lambda rounds: [sum(one[figure] for figure in figures) for one in rounds[contender]]


def _more(figure: str, kind: int | str) -> Callable[[Rounds], list[float]]:
    """What the large data set adds to that of the small one; bytes as MB."""
    large, few = f"memory {data.SHARDS * data.SHARD_SAMPLES} {kind}", f"memory {data.FEW} {kind}"
    unit = 1e6 if figure == "bytes" else 1

    def values(rounds: Rounds) -> list[float]:
        pairs = zip(rounds[large], rounds[few], strict=True)
        return [(one[figure] - other[figure]) / unit for one, other in pairs]

    return values


def _over(contender: str, other: str) -> Callable[[Rounds], list[float]]:
    """Seconds beyond those of another, round by round."""
    return lambda rounds: [one["s"] - base["s"] for one, base in zip(rounds[contender], rounds[other], strict=True)]


def _ratio(contender: str, figure: str, other: str) -> Callable[[Rounds], list[float]]:
    """A figure of a contender as a ratio to another of its figures."""
    return lambda rounds: [one[figure] / one[other] for one in rounds[contender]]


HEADS = ["what", "median", "smallest–largest", "bar", ""]
TEXT = f"""\
# What the order costs

An epoch of 10¹⁰ samples in {data.SHARDS:,} shards of {data.SHARD_BYTES // 10**6} MB, {RANKS} ranks of {CLUSTER_WORKERS}
workers, batches of {BATCH}; the order alone, no byte is read. *Memory* is `Private_Dirty` of
`/proc/self/smaps_rollup`, less that of a data set of {data.FEW:,} samples in a process of its own; *objects* are blocks
of Python's allocator. Some 12 MB are held, 12 bytes a shard; what is more with groups the C library keeps of
arrays that were freed, for the next ones. The workers are real ones; their first read fails, since of these data sets
only the manifests exist.

*Raw records* are {data.RECORDS:,} samples of {data.RECORD_BYTES // 1000} KB in record shards in the page cache, read
as bytes with checksums verified. The order's share is the processor time of all that decides which samples a batch
holds (set-up, positions, shards and rows) in that of the process, or of the process and its workers. *Start* begins
after the imports and ends with the first batch; the empty data set ends without one. *Resume* reads
{data.SMALL_SAMPLES:,} samples of {data.SMALL_BYTES} bytes in {data.SMALL_SHARDS:,} shards; its state is that after one
batch, with the position set to 90 % of the epoch; loaders that resume and that start afresh take turns. The last three
lines are of persistent workers and a loop that does nothing else. Loaders have {WORKERS} workers. Lines without a bar
are for information.
"""
