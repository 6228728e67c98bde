"""Which settings stream a data set fastest on this machine, what each stage takes, and what other data would gain."""

from __future__ import annotations

import math
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shardstream.dataset.image_field import matching_fields
from shardstream.dataset.opening import Opening, open_dataset
from shardstream.diagnose.bench import CROP, BenchReport, fields_to_read, measured, specs_of
from shardstream.diagnose.stages import Stage, of_images, of_storage
from shardstream.errors import UsageError
from shardstream.images.jpeg.cutting import read as addressable
from shardstream.options import SourceOptions, takes_flat
from shardstream.pack.encode.images import ImageOptions
from shardstream.pack.options import PackOptions
from shardstream.pack.run import run_pack
from shardstream.pack.sources.stored import StoredSource
from shardstream.progress import OnProgress, ProgressEvent, ignore
from shardstream.sizes import size
from shardstream.storage.base.location import flat_transport
from shardstream.threads import cores

if TYPE_CHECKING:
    from shardstream.stream import ShardDataset

_ROUNDS = 3
_AHEAD = 2  # torch's own prefetch_factor
_ENOUGH = 0.95  # of the fastest: fewer workers and smaller batches are taken then
_OTHERS = 13  # measurements, at most, besides those of numbers of workers
_ROOM = 8  # times what is packed that has to be free on the disk


@dataclass(frozen=True, slots=True)
class Trial:
    """One setting of the loader.

    Attributes:
        workers: ``num_workers``.
        batch_size: ``batch_size``.
        prefetch_factor: Batches that each worker makes ahead; ``None`` without workers.
        samples_per_second: What came.
        limit: What a step waited for, as `shardstream.load.Diagnosis` names it.
    """

    workers: int
    batch_size: int
    prefetch_factor: int | None
    samples_per_second: float
    limit: str


@dataclass(frozen=True, slots=True)
class Change:
    """What another way to store or decode would gain, both measured in turns, in one process.

    Attributes:
        name: ``"addressable JPEG"``, ``"record"``, ``"cache"``, ``'resize="device"'``.
        before: Samples a second as it is; ``None``: not measured.
        after: Samples a second with it; of both, the median of three rounds.
        sure: Whether all rounds agree which of both is faster.
        note: What was compared, or why nothing was.
    """

    name: str
    before: float | None
    after: float | None
    note: str
    sure: bool = False

    @property
    def ratio(self) -> float | None:
        """How many times as fast it is."""
        return None if self.before is None or self.after is None else self.after / self.before


@dataclass(frozen=True, slots=True)
class SweepReport:
    """What `sweep` measured.

    Attributes:
        url: The data set.
        cores: Processors that this process may use.
        crop: Size of the random crops that images were decoded to; ``None``: there are none.
        samples: How many samples the stages and changes were measured with.
        stages: Each stage alone.
        trials: Settings of the loader, in the order in which they were tried.
        best: The fastest of them; of those that are within 5 % of it, the one with the fewest workers, then samples.
            Without workers, batches are made while the training loop waits: that is measured, and never the best.
        line: It as Python.
        changes: What other data would gain.
    """

    url: str
    cores: int
    crop: int | None
    samples: int
    stages: tuple[Stage, ...]
    trials: tuple[Trial, ...]
    best: Trial
    line: str
    changes: tuple[Change, ...]


@takes_flat(flat_transport("url", "replicas"), None, reading=SourceOptions)
def sweep(
    url: str | os.PathLike[str],
    *,
    crop: int | None = CROP,
    samples: int = 512,
    seconds: float = 1.0,
    progress: OnProgress | None = None,
    **dataset: Any,
) -> SweepReport:
    """Measure each stage alone, then all of them together with other settings, and what other data would gain.

    Takes about 30 times ``seconds``; it packs a few hundred samples into a temporary folder.

    Args:
        url: Folder or URL of the data set.
        crop: As of `bench`.
        samples: How many samples stages and changes are measured with.
        seconds: How long one setting is measured.
        progress: Called with a `ProgressEvent` for each measurement.
        **dataset: As of `bench`; ``batch_size`` is the one in the middle.

    Raises:
        NotFoundError: There is no data set.
        StorageError: It cannot be read.
        UsageError: An empty data set, or an argument that is not allowed.

    Example:
        >>> found = sweep("out/", samples=32, seconds=0.01)
        >>> found.line.startswith("loader = ss.Loader(")
        True
    """
    if samples < 1 or not seconds > 0:
        raise UsageError(f"samples={samples} and seconds={seconds} must be positive", hint="samples=512, seconds=1")
    return _Sweep(url, crop, samples, seconds, progress or ignore, dataset).run()


class _Sweep:
    """The measurements of one data set, one after another."""

    def __init__(
        self,
        url: str | os.PathLike[str],
        crop: int | None,
        samples: int,
        seconds: float,
        tell: OnProgress,
        dataset: dict[str, Any],
    ) -> None:
        from shardstream import decode  # with torch, which the command line loads for no other verb
        from shardstream.stream import ShardDataset

        fields = dataset.pop("fields", None)
        self.url, self.seconds, self.tell, self.done = url, seconds, tell, 0
        stream = ShardDataset(url, **{"batch_size": 128, "shuffle": True, **dataset})
        if not stream.samples:
            raise UsageError("the data set has no samples", url=stream.manifest.url, hint="pack some")
        stored = stream.manifest.fields
        self.specs = specs_of(
            stored, fields_to_read(url, stored, crop, dataset) if fields is None else fields, crop, decode
        )
        size = stream.batch_size or 128
        if not isinstance(size, int):
            raise UsageError(
                f"other batch sizes are tried around a number of samples, got {size}", hint="batch_size=128"
            )
        self.batch = min(size, stream.samples)
        self.stream = stream.replace(fields=self.specs, batch_size=self.batch)
        self.crop = crop if self.stream.decodes_images else None
        self.opening: dict[str, Any] = {name: dataset[name] for name in Opening.__annotations__ if name in dataset}
        self.opened = open_dataset(url, **self.opening)
        self.samples = min(samples, stream.samples)
        self.rate = 0.0

    def run(self) -> SweepReport:
        ids = np.unique(np.linspace(0, self.stream.samples - 1, self.samples).astype(np.int64))
        self._told("storage")
        stages, values = of_storage(self.opened, ids.tolist())
        images = [bytes(row[name]) for row in values for name in self._pictures() if name in row]
        self._told("decoding")
        stages += of_images(images, self.crop)
        trials = [self._trial(workers, self.batch, _AHEAD if workers else None) for workers in _worker_numbers(cores())]
        self.rate = trials[0].samples_per_second
        fastest = max(trials[1:], key=lambda trial: trial.samples_per_second)
        batches = {max(1, self.batch // 2), min(2 * self.batch, self.stream.samples)} - {self.batch}
        trials += [self._trial(fastest.workers, batch, fastest.prefetch_factor) for batch in sorted(batches)]
        trials.append(self._trial(fastest.workers, self.batch, 2 * _AHEAD))
        stages += self._stages_of_batches()
        best = _best(trials)
        return SweepReport(
            url=self.stream.manifest.url,
            cores=cores(),
            crop=self.crop,
            samples=len(ids),
            stages=tuple(stages),
            trials=tuple(trials),
            best=best,
            line=_line(best),
            changes=tuple(self._changes(images, values)),
        )

    def _pictures(self) -> list[str]:
        stored = self.stream.manifest.fields
        return [name for one in self.specs for name, kind in matching_fields(one, stored).items() if kind.is_image]

    def _told(self, what: str) -> None:
        total = len(_worker_numbers(cores())) + _OTHERS
        self.tell(ProgressEvent("sweep", self.done, total, "measurements", {"now": what}))
        self.done += 1

    def _run(
        self, stream: ShardDataset, workers: int, seconds: float, batches: int | None = None, **loading: Any
    ) -> BenchReport:
        from shardstream.load import Loader

        return measured(Loader(stream, num_workers=workers, **loading), seconds=seconds, batches=batches, mean_bytes=0)

    def _trial(self, workers: int, batch: int, prefetch: int | None) -> Trial:
        self._told(f"{workers} workers, batches of {batch}")
        loading = {} if prefetch is None else {"prefetch_factor": prefetch}
        found = self._run(self.stream.replace(batch_size=batch, tail="exact"), workers, self.seconds, **loading)
        return Trial(workers, batch, prefetch, found.samples_per_second, found.limit)

    def _stages_of_batches(self) -> list[Stage]:
        """Assembly, transport and copy, as a loader with one worker counts them."""
        import torch

        from shardstream.load import DevicePrefetcher, Loader

        self._told("assembly and transport")
        there = torch.cuda.is_available()
        loader = Loader(self.stream.replace(tail="exact"), num_workers=1)
        measured(loader, seconds=self.seconds, ahead={"device": "cuda"} if there else None, mean_bytes=0)
        stats = loader.stats

        def rate(seconds: float) -> float | None:
            return stats.samples / seconds if seconds else None

        copied = rate(max(stats.copy_seconds, stats.device_copy_seconds)) if there else None
        note = f"to {DevicePrefetcher(loader).device}" if there else "there is no CUDA device here"
        return [
            Stage("assembly", rate(stats.stages.get("assemble", 0.0)), f"batches of {self.batch}"),
            Stage("transport", rate(stats.transport_seconds), "from a worker to this process"),
            Stage("copy", copied, note),
        ]

    # ------------------------------------------------------------------------------------------- what would gain

    def _changes(self, images: list[bytes], values: list[dict[str, Any]]) -> list[Change]:
        mean = max(1.0, sum(len(value) for row in values for value in row.values() if _sized(value)) / len(values))
        part = self.stream.take(self.samples).replace(batch_size=min(self.batch, self.samples), tail="exact")
        changes = [self._device(part)]
        with tempfile.TemporaryDirectory(prefix="shardstream-sweep-") as folder:
            changes.append(self._cache(part, Path(folder) / "cache"))
            free = shutil.disk_usage(folder).free
            if free < _ROOM * mean * self.samples:
                why = f"{tempfile.gettempdir()} has only {size(free)} left"
                return [*changes, Change("addressable JPEG", None, None, why), Change("record", None, None, why)]
            kept = self._packed(
                Path(folder) / "kept", PackOptions(key="line", damaged="keep", images=ImageOptions(jpeg="keep"))
            )
            changes.append(self._record(kept, Path(folder) / "record"))
            changes.append(self._addressable(kept, Path(folder) / "addressable", images))
        return changes

    def _compared(self, name: str, before: ShardDataset, after: ShardDataset, note: str) -> Change:
        self._told(name)
        size = before.batch_size
        batch = size if isinstance(size, int) else 1
        batches = max(1, min(self.samples, round(self.rate * self.seconds)) // batch)
        pairs = [
            [self._run(stream, 0, math.inf, batches=batches).samples_per_second for stream in (before, after)]
            for _ in range(_ROUNDS)
        ]
        old, new = np.median(pairs, axis=0).tolist()
        faster = [second > first for first, second in pairs]
        return Change(name, old, new, note, sure=all(faster) or not any(faster))

    def _packed(self, folder: Path, options: PackOptions) -> ShardDataset:
        from shardstream.stream import ShardDataset

        self._told("packing")
        source = StoredSource(self.opened, key="line", take=self.samples)
        run_pack(source, folder, options, workers=0)
        settings: dict[str, Any] = {"batch_size": min(self.batch, self.samples), "shuffle": True, "tail": "exact"}
        return ShardDataset(folder, fields=self.specs, **settings)

    def _device(self, part: ShardDataset) -> Change:
        name = 'resize="device"'
        if self.crop is None:
            return Change(name, None, None, "no images are decoded")
        from shardstream import decode

        crop = decode.RandomResizedCrop(self.crop, flip=True, optional=True, resize="device")
        specs = self.specs | dict.fromkeys(self._pictures(), crop)
        note = "what one process delivers; the device then resizes"
        return self._compared(name, part, part.replace(fields=specs), note)

    def _cache(self, part: ShardDataset, folder: Path) -> Change:
        if not self.opened.over_network or self.opened.cached:
            return Change("cache", None, None, "the data are on this machine already")
        from shardstream.stream import ShardDataset

        settings: dict[str, Any] = {"batch_size": part.batch_size, "shuffle": True, "tail": "exact"}
        settings |= self.opening | {"cache": folder}
        cached = ShardDataset(self.url, fields=self.specs, **settings).take(self.samples)
        self._run(cached, 0, self.seconds)  # fills it
        return self._compared("cache", part, cached, "a cache that is filled, and none")

    def _record(self, kept: ShardDataset, folder: Path) -> Change:
        if self.opened.manifest.framing == "record":
            return Change("record", None, None, "they are record shards already")
        options = PackOptions(key="line", damaged="keep", images=ImageOptions(jpeg="keep"), format="record")
        return self._compared("record", kept, self._packed(folder, options), "the same samples packed as tar")

    def _addressable(self, kept: ShardDataset, folder: Path, images: list[bytes]) -> Change:
        name = "addressable JPEG"
        jpeg = [data for data in images if data[:2] == b"\xff\xd8"]
        if self.crop is None or not jpeg:
            return Change(name, None, None, "no JPEG is decoded")
        if addressable(jpeg[0]) is not None:
            return Change(name, None, None, "they are addressable already")
        packed = self._packed(folder, PackOptions(key="line", damaged="keep"))
        return self._compared(name, kept, packed, "the same samples packed with --jpeg keep")


def _sized(value: Any) -> bool:
    return isinstance(value, bytes | memoryview)


def _worker_numbers(there: int) -> list[int]:
    """0, 1, 2, 4, ... up to the processors."""
    return [0, *(1 << power for power in range(there.bit_length()) if 1 << power <= there)]


def _best(trials: list[Trial]) -> Trial:
    beside = [trial for trial in trials if trial.workers]
    enough = _ENOUGH * max(trial.samples_per_second for trial in beside)
    good = [trial for trial in beside if trial.samples_per_second >= enough]
    return min(good, key=lambda trial: (trial.workers, trial.batch_size, trial.prefetch_factor or 0))


def _line(best: Trial) -> str:
    ahead = "" if best.prefetch_factor == _AHEAD else f", prefetch_factor={best.prefetch_factor}"
    return f"loader = ss.Loader(ds, batch_size={best.batch_size}, num_workers={best.workers}{ahead})"
