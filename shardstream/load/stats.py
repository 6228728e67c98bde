"""What a loader delivered, how long its consumer waited for it, and where the time went.

What that means, and what to do about it, is said by `shardstream.load.diagnosis`.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from shardstream.load.device.device_copy import Times
from shardstream.load.diagnosis import IN_WORKERS, TITLES, Diagnosis, diagnosed, percent
from shardstream.load.prefetch_thread import Sent
from shardstream.load.rank_stats import RankStats, RankTable, ranks_in
from shardstream.load.tracing import SentSpan, received
from shardstream.sizes import plural
from shardstream.stream.ipc.worker_batch import WorkerBatch
from shardstream.threads import Processors

_LISTED = 1000
_COUNTER = "_total"


@dataclass(slots=True)
class LoaderStats:
    """Counters over the life of a `Loader`, or since `reset`. `report` says what they mean.

    A high `wait_share` says that training waits for data: add workers, or make decoding cheaper. A low one says
    that data waits for training, and no loader could be faster.

    Attributes:
        workers: Worker processes; 0 for none.
        batches: Batches delivered; samples, where the loader has no batch size.
        samples: Samples delivered, without padding and dropped ones.
        wait_seconds: Time that the loop spent waiting for data.
        seconds: Time between the first request and the last: waiting, and what the loop did with the data.
        start_seconds: Of ``wait_seconds``, what the first batch of each iteration took: workers that begin.
        waits: How long each of the last 1,000 other steps waited, in seconds.
        stages: Time that workers spent on these data, all of them together, by stage: ``read`` (storage, checksums),
            ``decode`` (decoders and callables of ``fields``), ``transform`` (callables for samples and batches),
            ``assemble`` (what else makes a batch).
        transport_seconds: Time that it took to receive them from worker processes, without waiting.
        copy_seconds: Of a `DevicePrefetcher`: time that its thread took to put batches into page-locked memory and
            to have them copied.
        transform_seconds: The same of the transform. On a device, which works by itself, the time to start it.
        device_copy_seconds: Time that the device took to copy.
        device_transform_seconds: Time that the device took for the transform.
        late: Batches that the loop received while the device was still at them, so that its kernels waited.
        alone: Tensors that travelled to the device one by one, each with a copy of its own that the thread waits for:
            sparse, quantised, nested ones, those with gradients, and those of objects with a ``to`` of their own.
        pinned_bytes: Page-locked memory that a `DevicePrefetcher` holds.
        filtered: Samples that a ``transform`` or `map` left out: it returned ``None``.
        skipped: Samples that were left out as damaged (``on_error="skip"``), or by ``exclude_keys``.
        skipped_places: Where the first 1,000 of them lie, and why.
        sources: Of a mixture: samples delivered from each source, by name; without padding and dropped ones.
        transfers: What the workers read over a network: requests, bytes, retries by reason, hedged reads, bytes that
            the cache served and fetched; see ``docs/storage.md``. Empty for local data.
        images: Whether pictures are decoded.
        addressable: Whether their JPEG files are addressable already, as far as they can be.
        rank: This rank, as of the last iteration; its place is kept by `reset`.
        world_size: Of how many.
    """

    workers: int = 0
    batches: int = 0
    samples: int = 0
    wait_seconds: float = 0.0
    seconds: float = 0.0
    start_seconds: float = 0.0
    waits: deque[float] = field(default_factory=lambda: deque(maxlen=_LISTED), repr=False)
    stages: dict[str, float] = field(default_factory=dict)
    transport_seconds: float = 0.0
    copy_seconds: float = 0.0
    transform_seconds: float = 0.0
    device_copy_seconds: float = 0.0
    device_transform_seconds: float = 0.0
    late: int = 0
    alone: int = 0
    pinned_bytes: int = 0
    filtered: int = 0
    skipped: int = 0
    skipped_places: list[str] = field(default_factory=list)
    sources: dict[str, int] = field(default_factory=dict)
    transfers: dict[str, int] = field(default_factory=dict)
    images: bool = False
    addressable: bool = False
    rank: int = 0
    world_size: int = 1

    def __repr__(self) -> str:
        of = f"rank {self.rank} of {self.world_size}, " * (self.world_size > 1) + plural(self.workers, "worker")
        if not self.batches:
            return f"LoaderStats({of}: nothing was delivered yet)"
        counts = {"filtered": self.filtered, "skipped": self.skipped}
        dropped = "".join(f", {count:,} {name}" for name, count in counts.items() if count)
        return (
            f"LoaderStats({of}: {plural(self.batches, 'batch', 'batches')}, {plural(self.samples, 'sample')}{dropped}"
            f" in {self.seconds:,.1f} s ({self.samples_per_second:,.0f} samples/s),"
            f" waited for data {percent(self.wait_share)} of the time; report() says why)"
        )

    @property
    def wait_share(self) -> float:
        """Share of the time that was waiting, in [0, 1]; 0 before anything was delivered."""
        return self.wait_seconds / self.seconds if self.seconds else 0.0

    @property
    def samples_per_second(self) -> float:
        """Samples delivered a second; 0 before anything was delivered."""
        return self.samples / self.seconds if self.seconds else 0.0

    @property
    def worker_seconds(self) -> float:
        """Time that workers spent on these data, all of them together."""
        return sum(self.stages.values())

    @property
    def running_seconds(self) -> float:
        """``seconds`` without those of workers who begin, where that is long enough to say something."""
        return self.seconds - self.start_seconds if self.waits else self.seconds

    def as_dict(self) -> dict[str, float]:
        """All numbers in a flat dict that is JSON-able, under names that stay: see ``docs/watching.md``.

        Names that end in ``_total`` are counters, which only grow until `reset`; all others are gauges, of this moment.
        Units stand in the names: ``_seconds_total``, ``_bytes_total``, ``_ms_``.

        >>> loader = ss.Loader(ss.ShardDataset("out/", batch_size=10, fields=["cls"]), num_workers=0)
        >>> batches = len(list(loader))
        >>> loader.stats.as_dict()["batches_total"] == batches
        True
        """
        waits = sorted(1e3 * wait for wait in self.waits) or [0.0]
        gauges: dict[str, float] = {
            "rank": self.rank,
            "world_size": self.world_size,
            "workers": self.workers,
            "pinned_bytes": self.pinned_bytes,
            "wait_ms_median": median(waits),
            "wait_ms_p99": waits[-1 - len(waits) // 100],
            "wait_ms_max": waits[-1],
        }
        counters: dict[str, float] = {
            "batches": self.batches,
            "samples": self.samples,
            "filtered_samples": self.filtered,
            "skipped_samples": self.skipped,
            "late_batches": self.late,
            "alone_tensors": self.alone,
            "seconds": self.seconds,
            "wait_seconds": self.wait_seconds,
            "start_seconds": self.start_seconds,
            **{f"worker_{stage}_seconds": self.stages.get(stage, 0.0) for stage in IN_WORKERS},
            "transport_seconds": self.transport_seconds,
            "copy_seconds": self.copy_seconds,
            "transform_seconds": self.transform_seconds,
            "device_copy_seconds": self.device_copy_seconds,
            "device_transform_seconds": self.device_transform_seconds,
            **{f"transfer_{name}": count for name, count in self.transfers.items()},
            **{f"source_{name}_samples": count for name, count in self.sources.items()},
        }
        return gauges | {f"{name}_total": value for name, value in counters.items()}

    def since(self, snapshot: Mapping[str, float]) -> dict[str, float]:
        """The rates of an interval, flat and JSON-able: a curve of them is not an average since the start.

        Time is the loop's, as in `wait_share`: pauses between two iterations do not count.

        Args:
            snapshot: What `as_dict` gave where the interval began. After a `reset` it began there; an empty one is the
                whole life.

        Returns:
            ``interval_seconds``; for each counter ``X_total`` of `as_dict` its ``X_per_second``; for each
            ``X_seconds_total`` the ``X_share`` of the interval, in [0, 1]; those of workers are shares of all workers.
            0 where no time has passed.

        >>> loader = ss.Loader(ss.ShardDataset("out/", batch_size=10, fields=["cls"]), num_workers=0)
        >>> before = loader.stats.as_dict()
        >>> batches = list(loader)
        >>> 0 <= loader.stats.since(before)["wait_share"] <= 1
        True
        """
        now = {name: value for name, value in self.as_dict().items() if name.endswith(_COUNTER)}
        if any(value < snapshot.get(name, 0) for name, value in now.items()):
            snapshot = {}
        grown = {name.removesuffix(_COUNTER): value - snapshot.get(name, 0) for name, value in now.items()}
        interval = grown.pop("seconds")
        rates: dict[str, float] = {"interval_seconds": interval}
        for name, value in grown.items():
            rate = value / interval if interval else 0.0
            if not name.endswith("_seconds"):
                rates[f"{name}_per_second"] = rate
                continue
            if name.startswith("worker_"):
                rate /= max(self.workers, 1)
            rates[f"{name.removesuffix('_seconds')}_share"] = min(1.0, rate)
        return rates

    def of_rank(self) -> RankStats:
        """These numbers with who they are of, as they travel between ranks and lie in a ``stats_file``."""
        return RankStats.of(self.as_dict(), bottleneck=self.diagnosis().bottleneck)

    def merged(self, others: Iterable[LoaderStats | str | os.PathLike[str]] | str | os.PathLike[str]) -> RankTable:
        """The numbers of several ranks side by side; `shardstream.gather_stats` asks them, this waits for nobody.

        Args:
            others: Of each other rank its `LoaderStats` or a file that ``Loader(stats_file=)`` writes; or one pattern
                of such files, ``"run/stats-*.json"``. Of a rank that comes twice, the later numbers count. These
                themselves take part once a batch was delivered.

        Returns:
            A `RankTable`; printed, it is a line a rank, and one that names the rank that the others wait for.

        Raises:
            UsageError: No such file, or one of something else.

        >>> from shardstream.load import LoaderStats
        >>> print(LoaderStats(batches=2, samples=64, seconds=1.0).merged([]).total()["samples_total"])
        64
        """
        rows = [self.of_rank()] if self.batches else []
        for other in [others] if isinstance(others, str | os.PathLike) else others:
            rows += [other.of_rank()] if isinstance(other, LoaderStats) else ranks_in(other)
        return RankTable.of(rows)

    def diagnosis(self, processors: Processors | None = None) -> Diagnosis:
        """What a step waits for, and what to do about it.

        Args:
            processors: Who kept the processors busy meanwhile, where that was measured, as `bench` does.
        """
        return diagnosed(self, processors)

    def report(self) -> str:
        """Where the time of a step went, in a few lines, with one sentence of advice at last.

        >>> loader = ss.Loader(ss.ShardDataset("out/", batch_size=10, fields=["cls"]), num_workers=0)
        >>> for batch in loader:
        ...     pass
        >>> loader.stats.report().splitlines()[0].startswith("20 steps")
        True
        """
        found = self.diagnosis()
        if not found.busy:
            return found.advice
        step, waits = self.running_seconds / self.batches, sorted(1e3 * wait for wait in self.waits) or [0.0]
        lines = [
            f"{self.batches:,} steps of {1e3 * step:,.1f} ms; waited for data {percent(found.waiting)} of the time, "
            f"and {self.start_seconds:.1f} s for first batches",
            f"a step waited {median(waits):,.1f} ms (median), {waits[-1 - len(waits) // 100]:,.1f} (1 in 100), "
            f"{waits[-1]:,.1f} (worst of the last {len(waits):,})",
        ]
        for name, value in found.busy.items():
            shared = self.workers and name in IN_WORKERS.values()
            how = f"{value:.2f} of {self.workers} workers" if shared else percent(value)
            lines.append(f"  {TITLES[name]:28}{how}")
        if self.filtered or self.skipped:
            lines.append(f"  samples dropped: {self.filtered:,} filtered (None), {self.skipped:,} damaged or excluded")
        if self.alone:
            each = self.alone / self.batches
            lines.append(f"  {each:,.1f} tensors a batch travelled one by one, not in its one copy")
        if self.late:
            lines.append(f"  {self.late:,} batches reached the loop before the device had done with them")
        return "\n".join([*lines, found.advice])

    def add(self, counted: Sequence[WorkerBatch], asked: float = 0.0, sent: Sequence[SentSpan] = ()) -> None:
        """Count batches of workers.

        Args:
            counted: The batches.
            asked: When the loop asked for them, by ``time.perf_counter``, where a trace may want to know.
            sent: What else was done with them in this process, for the same.
        """
        for one in counted:
            if one.spans is not None:
                received(one.spans, asked, sent)
            self.samples += one.samples
            self.transport_seconds += one.transport
            self.filtered += one.filtered
            if one.skipped:
                self.skipped += len(one.skipped)
                self.skipped_places += one.skipped[: _LISTED - len(self.skipped_places)]
            pairs: Any = ((self.stages, one.stages),)
            if one.sources or one.transfers:
                pairs = (*pairs, (self.sources, one.sources), (self.transfers, one.transfers))
            for totals, more in pairs:
                for name, count in more.items():
                    totals[name] = totals.get(name, 0) + count

    def waited(self, seconds: float, *, first: bool = False) -> None:
        """Count a step: the time that the loop spent waiting for it.

        Args:
            seconds: How long.
            first: Whether it is the first of an iteration.
        """
        self.wait_seconds += seconds
        self.seconds += seconds
        self.batches += 1
        if first:
            self.start_seconds += seconds
        else:
            self.waits.append(seconds)

    def ended(self, seconds: float) -> None:
        """Count the time that the loop waited to learn that there is no more."""
        self.wait_seconds += seconds
        self.seconds += seconds

    def sent(self, sent: Sent, times: Sequence[Times], asked: float) -> None:
        """Count a batch of a `DevicePrefetcher`, and what became known of the device's time.

        Args:
            sent: The batch.
            times: Of the device.
            asked: When the loop asked for it, by ``time.perf_counter``.
        """
        self.add(sent.item.counted, asked, sent.spans)
        self.copy_seconds += sent.sending
        self.transform_seconds += sent.transforming
        self.late += sent.late
        self.alone += sent.ticket.alone
        for one in times:
            self.device_copy_seconds += one.copy
            self.device_transform_seconds += one.transform

    def reset(self) -> None:
        """Begin anew."""
        kept = {name: getattr(self, name) for name in ("rank", "world_size", "images", "addressable")}
        self.__init__(self.workers, **kept)  # type: ignore[misc]  # a dataclass
