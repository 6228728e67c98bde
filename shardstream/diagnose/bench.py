"""How fast a data set streams on this machine, and what keeps it from being faster."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, repeat
from types import ModuleType
from typing import TYPE_CHECKING, Any

from shardstream.dataset.image_field import matching_fields, virtual_image
from shardstream.dataset.opening import Opening
from shardstream.diagnose.info import Info, info
from shardstream.diagnose.processor import Gauge
from shardstream.errors import UsageError
from shardstream.options import SourceOptions, takes_flat
from shardstream.progress import OnProgress, ProgressEvent, ignore
from shardstream.shards.fields import IMAGE, FieldType
from shardstream.sizes import plural, size
from shardstream.storage.base.location import flat_transport
from shardstream.threads import Processors

if TYPE_CHECKING:
    from shardstream.load import Loader, LoaderStats

CROP = 224
"""Size of the crops that images are decoded to by default."""

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
        wait_share: Share of the time that the loop waited for data, in [0, 1]; without what workers take to begin.
        workers: Worker processes.
        worker_load: Share of the time that workers were at work, waiting for storage included: mean, in [0, 1].
        processors: Who kept the processors busy that this process may use.
        limit: What a step waited for, as `shardstream.load.Diagnosis` names it: ``bottleneck`` of ``loader.stats``.
        advice: The same in words, with what to do about it.
        transfers: What was read over a network, for the first batch too: requests, bytes, retries and so on, by name.
        crop: Size of the random crops that images were decoded to; ``None``: there are none, or as they are stored.
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
    processors: Processors
    limit: str
    advice: str
    transfers: Mapping[str, int]
    crop: int | None = None

    def __repr__(self) -> str:
        images = "" if self.crop is None else f", images as random crops of {self.crop}"
        return (
            f"BenchReport({self.url!r}: {self.samples_per_second:,.0f} samples/s,"
            f" {size(self.bytes_per_second)}/s of stored bytes{images};\n"
            f"  {plural(self.samples, 'sample')} in {self.seconds:,.1f} s by {plural(self.workers, 'worker')},"
            f" waited for data {self.wait_share:.0%} of the time;\n"
            f"  {self.advice})"
        )

    @property
    def samples_per_second(self) -> float:
        """Samples a second."""
        return self.samples / self.seconds

    @property
    def bytes_per_second(self) -> float:
        """Stored bytes a second."""
        return self.bytes / self.seconds


@takes_flat(flat_transport("url", "replicas"), None, reading=SourceOptions)
def bench(
    url: str | os.PathLike[str],
    *,
    seconds: float = 10.0,
    batches: int | None = None,
    workers: int | None = None,
    crop: int | None = CROP,
    step: float = 0.0,
    progress: OnProgress | None = None,
    **dataset: Any,
) -> BenchReport:
    """Stream a data set through `ss.Loader`, epoch after epoch, and say how fast it came and what was in the way.

    Args:
        url: Folder or URL of the data set.
        seconds: How long to measure, from the first batch on.
        batches: How many batches to measure instead.
        workers: Worker processes; 0 works in this process. Default: as many as `ss.Loader` begins by itself.
        crop: Decode images to random crops of this size, flipped at random, as training does. Default 224; ``None``:
            bytes as they are stored, which shows what the store and the machine can deliver.
        step: Seconds that the loop sleeps after each batch, in place of a training step.
        progress: Called with a `ProgressEvent` a few times a second.
        **dataset: Arguments of `ShardDataset`, with the same meaning: ``version`` of a data set that grew (default:
            the newest), ``cache``: a folder or `Cache` that keeps what was read (default: none), ``replicas``: other
            places that have its shards, ``storage_options``: credentials and settings of the store by name (default:
            those of the environment), and so on. ``fields`` are names of stored fields here (default: all);
            ``batch_size`` is 128 unless it is given, and ``shuffle`` is true. ``ahead`` has arguments of a
            `ss.DevicePrefetcher` that brings batches to a device, as ``{"device": "cuda"}`` or ``{"transform":
            augment}`` (default: the loop gets them as `ss.Loader` delivers them).

    Raises:
        NotFoundError: There is no data set.
        StorageError: The store cannot be read.
        UsageError: Fewer samples than a batch, or an argument or device that is not allowed.

    Example:
        >>> bench("out/", batches=3, batch_size=10, workers=0).samples
        30
    """
    _check(seconds, batches, step)
    from shardstream import decode  # with torch, which the command line loads for no other verb
    from shardstream.load import Loader
    from shardstream.stream import ShardDataset

    fields, ahead = dataset.pop("fields", None), dataset.pop("ahead", None)
    stream = ShardDataset(url, **{"batch_size": 128, "shuffle": True, **dataset})
    manifest = stream.manifest
    read = fields_to_read(url, manifest.fields, crop, dataset) if fields is None else fields
    stream = stream.replace(fields=specs_of(manifest.fields, read, crop, decode))
    size = manifest.bytes / max(manifest.samples, 1)
    if fields is not None:
        size = _mean_bytes(url, [name for one in fields for name in matching_fields(one, manifest.fields)], dataset)
    found = measured(
        Loader(stream, num_workers="auto" if workers is None else workers),
        seconds=seconds,
        batches=batches,
        step=step,
        ahead=ahead,
        progress=progress,
        mean_bytes=size,
    )
    return replace(found, crop=crop if stream.decodes_images else None)


def measured(
    loader: Loader,
    *,
    seconds: float,
    batches: int | None = None,
    step: float = 0.0,
    ahead: Mapping[str, Any] | None = None,
    progress: OnProgress | None = None,
    mean_bytes: float,
) -> BenchReport:
    """`bench` of a loader as it is.

    Args:
        loader: Over a `ShardDataset`, with a batch size.
        seconds: As of `bench`.
        batches: As of `bench`.
        step: As of `bench`.
        ahead: As ``dataset["ahead"]`` of `bench`.
        progress: As of `bench`.
        mean_bytes: Stored bytes of a sample.

    Raises:
        StorageError: The store cannot be read.
        UsageError: Fewer samples than a batch.
    """
    from shardstream.load import DevicePrefetcher  # with torch, which the command line loads for no other verb

    stream = loader.dataset
    if not len(loader):
        raise UsageError(
            f"{stream.samples} samples are less than a batch of {stream.batch_size}",
            url=stream.manifest.url,
            hint="use smaller batches",
        )
    tell, stats = ignore if progress is None else progress, loader.stats
    tell(ProgressEvent("start"))
    began = time.perf_counter()
    source: Iterable[Any] = loader if ahead is None else DevicePrefetcher(loader, **ahead)
    arriving = chain.from_iterable(repeat(source))  # epoch after epoch
    next(arriving)
    first = time.perf_counter() - began
    early = dict(stats.transfers)
    stats.reset()
    gauge = Gauge()
    spent = _consume(arriving, seconds, batches, step, stats, tell)
    processors = gauge.processors()
    found = stats.diagnosis(processors)
    return BenchReport(
        url=stream.manifest.url,
        samples=stats.samples,
        batches=stats.batches,
        epochs=stats.samples / stream.samples,
        seconds=spent,
        first_batch=first,
        bytes=round(stats.samples * mean_bytes),
        wait_share=found.waiting,
        workers=stats.workers,
        worker_load=found.worker_load,
        processors=processors,
        limit=found.bottleneck,
        advice=found.advice,
        transfers=_sum(early, stats.transfers),
    )


def _check(seconds: float, batches: int | None, step: float) -> None:
    for name, value, least in (("seconds", seconds, 0), ("batches", batches, 0), ("step", step, -1)):
        if value is not None and not least < value < math.inf:
            raise UsageError(f"{name} must be a positive number, got {value!r}", hint="--seconds 10, --batches 100")


def fields_to_read(
    url: str | os.PathLike[str], stored: Mapping[str, FieldType], crop: int | None, dataset: Mapping[str, Any]
) -> list[str]:
    """All stored fields; if crops are made and samples have one of several image fields, ``image`` in place of these.

    A batch of each of them would be mostly zeros, which no training loop asks for.
    """
    images = virtual_image(stored)
    if crop is None or len(images) < 2:
        return list(stored)
    present = {field.name: field.present or 0.0 for field in _described(url, dataset).fields}
    if sum(present[name] for name in images) > 1.001:  # some samples have two, such as an image and its mask
        return list(stored)
    return [IMAGE, *(name for name in stored if name not in images)]


def specs_of(
    stored: Mapping[str, FieldType], wanted: list[str], crop: int | None, decode: ModuleType
) -> dict[str, Any]:
    """Specs of fields: images as crops where that is asked for; all else as it is stored."""
    virtual = {IMAGE: FieldType.parse(IMAGE)} if virtual_image(stored) else {}
    specs: dict[str, Any] = dict.fromkeys(wanted)
    for name, kind in (virtual | dict(stored)).items():
        if name in specs and kind.kind == "payload":
            cropped = crop is not None and kind.is_image
            specs[name] = decode.RandomResizedCrop(crop, flip=True, optional=True) if cropped else "bytes"
    return specs


def _described(url: str | os.PathLike[str], dataset: Mapping[str, Any]) -> Info:
    return info(url, **{name: dataset[name] for name in Opening.__annotations__ if name in dataset})


def _mean_bytes(url: str | os.PathLike[str], wanted: list[str], dataset: Mapping[str, Any]) -> float:
    """Mean stored bytes a sample of what is read."""
    fields = _described(url, dataset).fields
    means = {field.name: (field.mean_bytes or 0.0) * (field.present or 0.0) for field in fields}
    return sum(means.get(name, 0.0) for name in wanted)


def _sum(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in (*one, *other)}


def _consume(
    arriving: Iterator[Any],
    seconds: float,
    batches: int | None,
    step: float,
    stats: LoaderStats,
    tell: OnProgress,
) -> float:
    """Take batches until the time or their number is reached; how long it took."""
    started = told = time.perf_counter()
    while True:
        next(arriving)
        if step:
            time.sleep(step)
        now = time.perf_counter()
        if now - told >= _EVERY_S:
            told = now
            done, total, unit = (stats.batches, batches, "batches") if batches else (now - started, seconds, "seconds")
            tell(ProgressEvent("bench", done, total, unit, {"samples": stats.samples}))
        if stats.batches == batches or (batches is None and now - started >= seconds):
            return now - started
