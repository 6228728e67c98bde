"""``Gain``: how much faster a data set streams when it is packed, measured on a part of it."""

from __future__ import annotations

import logging
import shutil
import statistics
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shardstream.dataset.dataset_rows import DatasetRows
from shardstream.dataset.opened import OpenedDataset
from shardstream.diagnose.bench import measured, specs_of
from shardstream.formats.migrate.facts import Facts
from shardstream.pack.options import PackOptions
from shardstream.pack.run import run_pack
from shardstream.pack.sources.stored import StoredSource
from shardstream.progress import OnProgress
from shardstream.sizes import size
from shardstream.storage import PathOrUrl

if TYPE_CHECKING:
    from shardstream.stream import ShardDataset

_ROUNDS = 3
_PROBE, _PACKED, _LEG = 0.1, 0.3, 0.1  # of the time: what comes first, what is packed, each of 2 * `_ROUNDS`
_LOOKED_AT = 32  # samples, for their size
_MOST_SAMPLES = 50_000
_FEWEST_BATCHES = 2
_ROOM = 3  # times what is packed that has to be free on the disk


@dataclass(frozen=True, slots=True)
class Gain:
    """What was measured, in place and packed in turns, all of it in memory.

    Attributes:
        samples: Samples of the data set that were packed and read, the first ones.
        in_place: Samples a second where they lie, a number each round.
        packed: The same of shards of ours.
        bytes: Bytes of these shards.
        pack_seconds: What packing them took.
        crop: Side of the random crops that pictures were decoded to; ``None``: values as they are stored.
        workers: Worker processes.
    """

    samples: int
    in_place: tuple[float, ...]
    packed: tuple[float, ...]
    bytes: int
    pack_seconds: float
    crop: int | None
    workers: int

    @property
    def ratios(self) -> tuple[float, ...]:
        """How many times as fast packed samples came, each round."""
        return tuple(after / before for before, after in zip(self.in_place, self.packed, strict=True))

    @property
    def ratio(self) -> float:
        """The median of `ratios`."""
        return statistics.median(self.ratios)

    @property
    def sure(self) -> bool:
        """Whether all rounds agree which of both is faster."""
        return min(self.ratios) > 1 or max(self.ratios) < 1


def _mean_bytes(dataset: OpenedDataset) -> float:
    """Bytes of the values of a sample, of some that are read: what is compressed or listed says nothing of them."""
    count = dataset.manifest.samples
    numbers = np.unique(np.linspace(0, count - 1, _LOOKED_AT).astype(np.int64))
    batch = DatasetRows(dataset).read_ids(numbers)
    values = [value for row in range(len(numbers)) for value in batch.values(row).values()]
    return max(1.0, sum(_bytes_of(value) for value in values) / len(numbers))


def _bytes_of(value: Any) -> int:
    return len(value) if isinstance(value, bytes | memoryview) else int(getattr(value, "nbytes", 8))


@contextmanager
def _silenced_skips() -> Iterator[None]:
    """Log no damaged samples: the same few are read again and again."""
    logger = logging.getLogger("shardstream.stream.iteration.settings")
    logger.disabled = True
    try:
        yield
    finally:
        logger.disabled = False


def gain(
    url: PathOrUrl,
    dataset: OpenedDataset,
    facts: Facts,
    *,
    opening: Mapping[str, Any],
    seconds: float,
    disk: int,
    progress: OnProgress | None,
) -> Gain | str:
    """Pack the first samples of a data set into a temporary folder, and read both in turns.

    Args:
        url: As a user typed it.
        dataset: The same, opened.
        facts: What its code names.
        opening: Arguments of `ShardDataset`.
        seconds: How long all of it may take, about.
        disk: How many bytes may be written.
        progress: As of `bench`.

    Returns:
        What was found; or in a sentence why nothing can be measured.

    Raises:
        ShardStreamError: The data cannot be read, or packed.
    """
    from shardstream import decode  # with torch, which the command line loads for no other verb
    from shardstream.load import Loader
    from shardstream.stream import ShardDataset

    if not facts.local:
        return "the data are not on this machine: a part packed here would be compared with the network"
    manifest = dataset.manifest
    mean = _mean_bytes(dataset)
    most = min(manifest.samples, int(disk / mean), _MOST_SAMPLES)
    batch = min(facts.batch_size, most // _FEWEST_BATCHES)
    if batch < 1:
        return f"a sample has {size(mean)}, and {size(disk)} may be written"
    room = shutil.disk_usage(tempfile.gettempdir()).free
    if room < _ROOM * most * mean:
        return f"{tempfile.gettempdir()} has only {size(room)} left"
    specs = specs_of(manifest.fields, list(facts.chosen), None, decode)
    if facts.picture is not None:
        specs[facts.picture] = decode.RandomResizedCrop(facts.crop, flip=True, optional=True)

    def speed(stream: ShardDataset, share: float) -> float:
        loader = Loader(stream, num_workers=facts.workers)
        with _silenced_skips():
            found = measured(loader, seconds=seconds * share, progress=progress, mean_bytes=mean)
        return found.samples_per_second

    reading: Any = {"batch_size": batch, "shuffle": True, "fields": specs, "on_error": "skip", "max_skips": None}
    whole = ShardDataset(url, **reading, **opening)
    rate = speed(whole.take(most), _PROBE)
    count = max(_FEWEST_BATCHES * batch, min(most, int(rate * seconds * _PACKED)))
    here = whole.take(count)
    with tempfile.TemporaryDirectory(prefix="shardstream-migrate-") as folder:
        report = run_pack(
            StoredSource(dataset, key="line", take=count),
            Path(folder) / "packed",
            PackOptions(key="line", damaged="keep"),
            workers=facts.workers,
            progress=progress,
        )
        there = ShardDataset(Path(folder) / "packed", **reading)
        pairs = [(speed(here, _LEG), speed(there, _LEG)) for _ in range(_ROUNDS)]
    crop = None if facts.picture is None else facts.crop
    before, after = zip(*pairs, strict=True)
    return Gain(count, before, after, report.manifest.bytes, report.seconds, crop, facts.workers)
