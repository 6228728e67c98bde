"""What training gets of a sample, epoch after epoch: by order arithmetic, without training.

Where a sample comes in an epoch is found by going through the order of that epoch, of which nothing is read. Only its
own pixels are decoded then, or, where a ``batch_transform`` looks at whole batches, the batch that it is in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardstream.dataset.indexes import OpenShards
from shardstream.dataset.numbering import Numbering
from shardstream.dataset.opened import OpenedDataset
from shardstream.dataset.source import DatasetSource
from shardstream.dataset.step import Step
from shardstream.diagnose.overview import spread_numbers
from shardstream.diagnose.shown import Thumbnail, pixels_thumbnail
from shardstream.errors import ShardStreamError, UsageError
from shardstream.images.geometry import Geometry
from shardstream.order import BLOCK
from shardstream.stream.base import Stream
from shardstream.stream.batching.pipeline import StepPipeline
from shardstream.stream.iteration.epoch_run import EpochRun
from shardstream.stream.showing import Scale, as_pixels, scale_of

_AT_ONCE = 1 << 18  # positions of an epoch that are looked at together
_BYTES = 12_000  # of a thumbnail
_SIDE = 224

Box = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class Draw:
    """A sample as training gets it once.

    Attributes:
        epoch: In which epoch.
        step: Of which batch of its rank, counted from the beginning of the epoch.
        rank: On which rank.
        position: Its place in the order of the epoch.
        value: The image as the loader delivers it; ``None`` where it delivers none.
        text: What it is in words, or why there is none.
        thumbnail: The image as it can be seen; floats in one of the fixed ranges of `Scale`.
        crop: (left, top, right, bottom) of what decoders cut out, as shares of the image as it is stored, also where
            they turn it upright; ``None`` for nothing.
        flipped: Whether decoders exchanged left and right.
    """

    epoch: int
    step: int
    rank: int
    position: int
    value: Any
    text: str
    thumbnail: Thumbnail | None
    crop: Box | None
    flipped: bool


class TrainingView:
    """What training gets of one data set, by number of sample and by step.

    Args:
        stream: A `ShardDataset` as training has it: fields, transforms, batch size, seed, rank.
        num_workers: Of the loader.

    Raises:
        UsageError: It is of several data sets, or of samples drawn by weight.

    Example:
        >>> training = TrainingView(ds, num_workers=8)
        >>> number = training.numbers_of(epoch=0, step=0)[0]
        >>> [draw.epoch for draw in training.draws([number], range(3))[number]]
        [0, 1, 2]
    """

    def __init__(self, stream: Stream, *, num_workers: int) -> None:
        self._stream = stream
        self._workers = num_workers
        _, pipeline = self._looked_into(0)
        parts = pipeline.content.parts
        self._source: DatasetSource = parts[0].source
        if len(parts) > 1 or len(self._source.datasets) > 1 or self._source.draws is not None:
            raise UsageError(
                "draws are of one data set whose samples come once an epoch",
                hint="view each of the data sets by itself, and without weights=",
            )
        self._shards = OpenShards([self._source])
        self.dataset: OpenedDataset = self._source.datasets[0]

    def _looked_into(self, epoch: int) -> tuple[EpochRun, StepPipeline]:
        return self._stream.looked_into(epoch, self._workers)

    def numbers_of(self, *, epoch: int, step: int) -> list[int]:
        """The samples of one batch of this rank, by number in stored order, slot by slot; padding among them.

        Raises:
            UsageError: There is no such step.
        """
        run, _ = self._looked_into(epoch)
        if not 0 <= step < run.steps:
            raise UsageError(
                f"there is no step {step} in epoch {epoch}",
                url=self.dataset.url,
                hint=f"this rank has {run.steps:,} steps, numbered from 0, in batches of {run.batch_size or BLOCK}",
            )
        return self._numbers(run.step(step))

    def spread(self, count: int, seed: int) -> list[int]:
        """Samples of the view by number in stored order: one at random from each of so many equal stretches of it.

        Raises:
            UsageError: The view has none.
        """
        chosen = spread_numbers(self._source.samples, count, seed)
        if not len(chosen):
            raise UsageError("no sample is trained on", url=self.dataset.url, hint="where=, split= left all out")
        shards, rows = Numbering(self._source.counts).find_all(chosen)
        return self._numbers(Step(0, chosen, shards, rows, None))

    @property
    def is_part(self) -> bool:
        """Whether some samples of the data set are left out."""
        return self._source.samples < self.dataset.manifest.samples

    def _numbers(self, step: Step) -> list[int]:
        begin = self.dataset.numbering.begin
        found = []
        for shard, row in zip(step.shards.tolist(), step.rows.tolist(), strict=True):
            stored = self._shards.open(0, shard).stored_rows(np.array([row]))
            found.append(begin(self._source.dataset_of(shard)[1]) + int(stored[0]))
        return found

    def draws(self, numbers: Sequence[int], epochs: range) -> dict[int, list[Draw]]:
        """The draws of these samples in these epochs, by number; fewer where an epoch leaves a sample out.

        Raises:
            UsageError: A sample is not part of what is trained on.
            StorageError: The store cannot be read. What is damaged, or fails in a transform, is said by the draw.
        """
        wanted = {self._of_view(number): number for number in numbers}
        found: dict[int, list[Draw]] = {number: [] for number in numbers}
        for epoch in epochs:
            run, pipeline = self._looked_into(epoch)
            batches: dict[tuple[int, int], Any] = {}
            for place, position in self._positions(run, set(wanted)):
                found[wanted[place]].append(self._draw(run, pipeline, place, position, batches))
        return found

    def _of_view(self, number: int) -> tuple[int, int]:
        """Shard and row in the view of a sample by its number."""
        shards, rows = self.dataset.locate([number])
        shard, row = int(shards[0]), int(rows[0])
        opened = self._shards.open(0, shard)
        if isinstance(opened.rows, int):
            if row >= opened.rows and row - opened.rows < int(self._source.counts[shard]):
                return shard, row - opened.rows
        else:
            rows_of_view = np.arange(int(self._source.counts[shard]))
            at = np.flatnonzero(opened.stored_rows(rows_of_view) == row)
            if len(at):
                return shard, int(at[0])
        raise UsageError(f"sample {number} is not trained on", url=self.dataset.url, hint="where=, split= left it out")

    def _positions(self, run: EpochRun, wanted: set[tuple[int, int]]) -> Iterator[tuple[tuple[int, int], int]]:
        """Where these samples, shard and row, come in an epoch."""
        left = set(wanted)
        batch = run.rank.world_size * (run.batch_size or BLOCK)
        end = min(run.samples, run.steps * batch)  # the tail may be left out
        for start in range(0, end, _AT_ONCE):
            positions = np.arange(start, min(start + _AT_ONCE, end))
            shards, rows = run.locate(positions)
            maybe = np.isin(shards, [shard for shard, _ in left]) & np.isin(rows, [row for _, row in left])
            for at in np.flatnonzero(maybe).tolist():
                place = int(shards[at]), int(rows[at])
                if place in left:
                    left.remove(place)
                    yield place, int(positions[at])
            if not left:
                return

    def _draw(
        self,
        run: EpochRun,
        pipeline: StepPipeline,
        place: tuple[int, int],
        position: int,
        batches: dict[tuple[int, int], Any],
    ) -> Draw:
        batch = run.batch_size or BLOCK
        row, inside = divmod(position - run.start, run.rank.world_size * batch)
        rank, slot = divmod(inside, batch)
        epoch = run.resume_point.epoch
        alone = Step(epoch, np.array([position]), np.array([place[0]]), np.array([place[1]]), None)
        value: Any = None
        text, crop, flipped, small = "", None, False, None
        try:
            if pipeline.looks_at_batches:
                key = (rank, row)
                if key not in batches:
                    batches[key] = pipeline.only(self._step_of(epoch, rank, row), lists=False).data
                value, scale = _image_of(batches[key], slot)
            else:
                lists = run.batch_size is None
                data = pipeline.only(alone, lists=lists).data
                value, scale = _image_of(data[0], None) if lists else _image_of(data, 0)
            text, small = _seen(value, scale)
            crop, flipped = _crop_of(pipeline.geometry(alone))
        except ShardStreamError as error:
            text = str(error)
        return Draw(epoch, row, rank, position, value, text, small, crop, flipped)

    def _step_of(self, epoch: int, rank: int, number: int) -> Step:
        """A whole step of any rank."""
        run, _ = self._looked_into(epoch)
        if rank != run.rank.rank:
            other = self._stream.replace(ranks=(rank, run.rank.world_size))
            run, _ = other.looked_into(epoch, self._workers)
        return run.step(number)


def _image_of(data: Any, slot: int | None) -> tuple[Any, Scale | None]:
    """The first output of a batch, or of a sample, that is an image, and its scale; ``None`` where there is none."""
    values = data.values() if isinstance(data, dict) else data if isinstance(data, tuple | list) else [data]
    for value in values:
        try:
            one = value if slot is None else value[slot]
        except (TypeError, IndexError, KeyError):
            continue
        if as_pixels(one) is not None:
            return one, scale_of(value)
    return None, None


def _seen(value: Any, scale: Scale | None) -> tuple[str, Thumbnail | None]:
    pixels: NDArray[np.uint8] | None = as_pixels(value, scale)
    if pixels is None:
        return "no image is delivered", None
    shape = " x ".join(map(str, value.shape))
    text = f"{str(value.dtype).removeprefix('torch.')} {shape}, {float(value.min()):.4g} to {float(value.max()):.4g}"
    return text, pixels_thumbnail(np.ascontiguousarray(pixels), _BYTES, _SIDE)


def _crop_of(geometry: dict[str, Geometry]) -> tuple[Box | None, bool]:
    """What is cut out of the first image, as shares of it."""
    for one in geometry.values():
        height, width = one.source
        box = one.box
        right, below = box.left + box.width, box.top + box.height
        return (box.left / width, box.top / height, right / width, below / height), one.flip
    return None, False
