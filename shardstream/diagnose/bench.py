"""How fast a data set streams on this machine, and what keeps it from being faster."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from shardstream.diagnose.info import FieldInfo, Info, info
from shardstream.diagnose.processor import Gauge, Load
from shardstream.errors import UsageError
from shardstream.progress import OnProgress, ProgressEvent, ignore
from shardstream.shards.fields import FieldType
from shardstream.storage import Transport, locate

if TYPE_CHECKING:
    from shardstream.load.report import LoaderStats
    from shardstream.storage.cache import Cache

Limit: TypeAlias = Literal["step", "consumer", "processors", "workers", "store"]
"""What a run waits for most: the step it pretends to make, its own process, processors, workers, or bytes."""

_BUSY = 0.85  # of the time: whoever works so much is what the others wait for
_SELDOM = 0.1
_QUEUED = 0.25
_EVERY_S = 0.2


@dataclass(frozen=True, slots=True)
class BenchReport:
    """What `bench` measured, from the arrival of the first batch on.

    Attributes:
        url: The data set.
        samples: Samples received.
        batches: Batches received.
        epochs: How much of the data set that is.
        seconds: Time that it took.
        first_batch: Seconds from the first request to the first batch: starting workers included.
        bytes: Estimate of the stored bytes of these samples, from the manifest or the first shard.
        wait_share: Share of the time that the loop waited for data, in [0, 1].
        workers: Worker processes.
        worker_load: Share of the time that workers computed, or waited for a processor to do so: mean, in [0, 1].
        processors: Processors that this process and its workers kept busy, of `cores`.
        cores: Processors that this process may use.
        limit: What the run waited for most, see `Limit`.
        advice: The same in words, with what to do about it.
        transfers: What was read over a network, for the first batch too: requests, bytes, retries and so on, by name.
    """

    url: str
    samples: int
    batches: int
    epochs: float
    seconds: float
    first_batch: float
    bytes: int
    wait_share: float
    workers: int
    worker_load: float
    processors: float
    cores: int
    limit: Limit
    advice: str
    transfers: Mapping[str, int]

    @property
    def samples_per_second(self) -> float:
        """Samples a second."""
        return self.samples / self.seconds

    @property
    def bytes_per_second(self) -> float:
        """Stored bytes a second."""
        return self.bytes / self.seconds


def bench(
    url: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    transport: Transport = "auto",
    cache: str | os.PathLike[str] | Cache | None = None,
    seconds: float = 10.0,
    batches: int | None = None,
    batch_size: int = 128,
    workers: int | None = None,
    fields: list[str] | None = None,
    crop: int | None = None,
    shuffle: bool = True,
    step: float = 0.0,
    progress: OnProgress | None = None,
) -> BenchReport:
    """Stream a data set through `ss.Loader`, epoch after epoch, and say how fast it came and what was in the way.

    Args:
        url: Folder or URL of the data set.
        storage_options: Credentials and settings of the store by name. Default: those of the environment.
        transport: The library that speaks to the store: ``"auto"``, ``"obstore"`` or ``"fsspec"``.
        cache: A folder that keeps what was read, as of `ShardDataset`. Default: none.
        seconds: How long to measure, from the first batch on.
        batches: How many batches to measure instead.
        batch_size: Samples a batch.
        workers: Worker processes; 0 works in this process. Default: one a processor, but at most 8.
        fields: Stored fields to read. Default: all.
        crop: Decode images to random crops of this size, flipped at random, as training does. Default: bytes as they
            are stored, which shows what the store and the machine can deliver.
        shuffle: Whether to shuffle.
        step: Seconds that the loop sleeps after each batch, in place of a training step.
        progress: Called with a `ProgressEvent` a few times a second.

    Raises:
        NotFoundError: There is no data set.
        StorageError: The store cannot be read.
        UsageError: Fewer samples than a batch, or an argument that is not allowed.

    Example:
        >>> bench("out/", batches=3, batch_size=10, workers=0).samples
        30
    """
    _check(seconds, batches, step)
    import shardstream as ss  # with torch, which the command line loads for no other verb

    location = locate(url, storage_options=storage_options, transport=transport)
    about = info(location)
    specs = _specs(about.fields, fields, crop, ss.decode)
    dataset = ss.ShardDataset(
        url, fields=specs, shuffle=shuffle, cache=cache, storage_options=storage_options, transport=transport
    )
    if workers is None:
        workers = min(8, len(os.sched_getaffinity(0)))
    loader = ss.Loader(dataset, batch_size=batch_size, num_workers=workers)
    if not len(loader):
        raise UsageError(
            f"{about.samples} samples are less than a batch of {batch_size}", url=about.url, hint="use smaller batches"
        )
    progress = progress or ignore
    progress(ProgressEvent("start"))
    began = time.perf_counter()
    stream = _endless(loader)
    next(stream)
    first = time.perf_counter() - began
    early = dict(loader.stats.transfers)
    loader.stats.reset()
    gauge = Gauge()
    count, spent = _consume(stream, seconds, batches, step, loader.stats, progress)
    load = gauge.read(workers)
    stats = loader.stats
    waited = min(1.0, stats.wait_seconds / spent)
    limit, advice = judge(load, waited=waited, step=step, workers=workers, local=location.local)
    return BenchReport(
        url=about.url,
        samples=stats.samples,
        batches=count,
        epochs=stats.samples / about.samples,
        seconds=spent,
        first_batch=first,
        bytes=round(stats.samples * _stored_bytes(about, fields)),
        wait_share=waited,
        workers=workers,
        worker_load=load.workers,
        processors=load.processors,
        cores=load.cores,
        limit=limit,
        advice=advice,
        transfers=_sum(early, stats.transfers),
    )


def _check(seconds: float, batches: int | None, step: float) -> None:
    for name, value, least in (("seconds", seconds, 0), ("batches", batches, 0), ("step", step, -1)):
        if value is not None and not least < value < math.inf:
            raise UsageError(f"{name} must be a positive number, got {value!r}", hint="--seconds 10, --batches 100")


def _specs(
    stored: tuple[FieldInfo, ...], wanted: list[str] | None, crop: int | None, decode: ModuleType
) -> dict[str, Any]:
    """Images as crops where that is asked for; all else as it is stored."""
    specs: dict[str, Any] = dict.fromkeys(wanted or [field.name for field in stored])
    for field in stored:
        kind = FieldType.parse(field.type)
        if field.name not in specs or kind.kind != "payload":
            continue
        cropped = crop is not None and kind.is_image
        specs[field.name] = decode.RandomResizedCrop(crop, flip=True, optional=True) if cropped else "bytes"
    return specs


def _stored_bytes(about: Info, wanted: list[str] | None) -> float:
    """Mean stored bytes a sample of what is read."""
    if wanted is None:
        return about.bytes / max(about.samples, 1)
    means = {field.name: (field.mean_bytes or 0.0) * (field.present or 0.0) for field in about.fields}
    return sum(means.get(name, 0.0) for name in wanted)


def _sum(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in (*one, *other)}


def _endless(loader: Any) -> Iterator[Any]:
    while True:
        yield from loader


def _consume(
    stream: Iterator[Any],
    seconds: float,
    batches: int | None,
    step: float,
    stats: LoaderStats,
    progress: OnProgress,
) -> tuple[int, float]:
    """Take batches until the time or their number is reached; how many they were, and how long it took."""
    count = 0
    started = told = time.perf_counter()
    while True:
        next(stream)
        count += 1
        if step:
            time.sleep(step)
        now = time.perf_counter()
        if now - told >= _EVERY_S:
            told = now
            done, total, unit = (count, batches, "batches") if batches else (now - started, seconds, "seconds")
            progress(ProgressEvent("bench", done, total, unit, {"samples": stats.samples}))
        if count == batches or (batches is None and now - started >= seconds):
            return count, now - started


def judge(load: Load, *, waited: float, step: float, workers: int, local: bool) -> tuple[Limit, str]:
    """What a run waited for most, and what to do about it.

    Args:
        load: Who computed.
        waited: Share of the time that the loop waited for data.
        step: Seconds of the step that it pretended to make.
        workers: Worker processes.
        local: Whether the data set lies in a local folder.
    """
    if step and waited < _SELDOM:
        return "step", "data waits for the training step: no loader could make this faster"
    if load.processors > _BUSY * load.cores or load.queued > _QUEUED:
        return (
            "processors",
            f"all {load.cores} are busy, by this run or others: decode smaller crops, or fewer fields",
        )
    if not workers and load.here > _BUSY:
        return "consumer", "this process does all the work: use worker processes (--workers)"
    if workers and load.here > max(_BUSY, load.workers):
        return "consumer", "the process that receives the batches is busy all the time: use larger batches"
    if load.workers > _BUSY:
        return "workers", f"the {workers} workers are busy all the time: use more of them (--workers)"
    if not local:
        return "store", "workers wait for the store: use more of them, or a cache on a local disk (--cache)"
    if load.disk:
        return "store", "workers wait for the disk: what they read is not in the page cache"
    return "workers", "nothing is busy all the time: more workers overlap more (--workers)"
