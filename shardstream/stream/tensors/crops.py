"""Crops of different sizes as one batch: one slab of pixels, and what is to be done to each."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from shardstream.decode.crops import Cut
from shardstream.errors import BatchError, UsageError
from shardstream.images.geometry import Size
from shardstream.stream.tensors.slabs import empty_slab


class Crops:
    """A batch of crops as they were decoded, to be resized on the device: what ``resize="device"`` makes.

    `shardstream.augment.resize_crops` makes uint8 (B, 3, h, w) of it, and `DevicePrefetcher` calls that. They have a
    length and an index, but are not a ``Sequence``: a plain ``DataLoader`` makes lists of those.

    Args:
        values: uint8 (pixels, 3), RGB: the crops, one row of pixels after the other, the crops in any order.
        offsets: int64 (B,): where in ``values`` each crop begins.
        shapes: int64 (B, 2): height and width of each. 0 × 0 where there is no image, which becomes black.
        flips: bool (B,): whether left and right are exchanged.
        size: (height, width) that all are resized to.

    Example:
        >>> crops = Crops(torch.zeros(6, 3, dtype=torch.uint8), *map(torch.tensor, ([0], [[2, 3]], [False])), (4, 4))
        >>> crops[0].shape
        torch.Size([2, 3, 3])
    """

    def __init__(
        self, values: torch.Tensor, offsets: torch.Tensor, shapes: torch.Tensor, flips: torch.Tensor, size: Size
    ) -> None:
        self.values = values
        self.offsets = offsets
        self.shapes = shapes
        self.flips = flips
        self.size = size

    def __len__(self) -> int:
        return len(self.offsets)

    def __getitem__(self, index: int) -> torch.Tensor:
        """Crop ``index``, neither resized nor flipped: a view (h, w, 3)."""
        i = range(len(self))[index]
        height, width = self.shapes[i].tolist()
        start = int(self.offsets[i])
        return self.values[start : start + height * width].view(height, width, 3)

    def __iter__(self) -> Iterator[torch.Tensor]:
        return (self[i] for i in range(len(self)))

    def to(self, device: torch.device | str | int, *, non_blocking: bool = False) -> Crops:
        """The same on another device: the pixels. What is known of each crop stays, since the host plans with it."""
        return self.mapped(lambda values: values.to(device, non_blocking=non_blocking))

    def mapped(self, function: Callable[[torch.Tensor], torch.Tensor]) -> Crops:
        """The same with ``function`` applied to its pixels. What is known of each crop stays with the host."""
        return Crops(function(self.values), self.offsets, self.shapes, self.flips, self.size)

    def pin_memory(self) -> Crops:
        """The same with its pixels in page-locked memory."""
        return self.mapped(torch.Tensor.pin_memory)

    def __repr__(self) -> str:
        height, width = self.size
        return f"Crops({len(self)} to {height} x {width}, {len(self.values)} pixels, {self.values.device})"


class CropSlabs:
    """Where the crops of an output are decoded to, batch after batch. How much they need is learned.

    Args:
        size: (height, width) that they are resized to.
    """

    def __init__(self, size: Size) -> None:
        self._size = size
        self._each = 2.0 * math.prod(size)  # pixels of a crop; photographs to 224 have 1.7 for each of the result

    def empty(self, count: int) -> CropSlab:
        """For a batch of ``count`` crops."""
        return CropSlab(math.ceil(count * self._each))

    def crops(self, slab: CropSlab, cuts: Sequence[Cut | None]) -> Crops:
        """What was decoded to a slab, or elsewhere where that was full."""
        starts = [0 if cut is None else slab.start(cut.pixels) for cut in cuts]
        if None not in starts:
            return _crops(slab.used, starts, cuts, self._size)  # type: ignore[arg-type]  # mypy does not follow `in`
        crops = gathered(cuts, self._size)
        self._each = max(self._each, 1.25 * len(crops.values) / len(cuts))
        return crops


class CropSlab:
    """Memory for the crops of one batch. From several threads.

    Args:
        capacity: Pixels.
    """

    def __init__(self, capacity: int) -> None:
        self._slab = empty_slab((capacity, 3), torch.uint8)
        self._pixels: NDArray[np.uint8] = self._slab.numpy()
        self._begin = self._slab.data_ptr()
        self._taken = 0
        self._lock = threading.Lock()

    def take(self, height: int, width: int) -> NDArray[np.uint8]:
        """Memory for a crop: uint8 (height, width, 3); not of the slab where that is full."""
        need = height * width
        with self._lock:
            start = self._taken
            if start + need > len(self._pixels):
                return np.empty((height, width, 3), np.uint8)
            self._taken = start + need
        return self._pixels[start : start + need].reshape(height, width, 3)

    def start(self, pixels: NDArray[np.uint8]) -> int | None:
        """The pixel of the slab at which an array begins that `take` gave; ``None`` where it lies elsewhere."""
        start = (pixels.ctypes.data - self._begin) // 3
        return start if 0 <= start < self._taken else None

    @property
    def used(self) -> torch.Tensor:
        """What was taken of it: uint8 (pixels, 3)."""
        return self._slab[: self._taken]


def gathered(cuts: Sequence[Cut | None], size: Size) -> Crops:
    """Crops that lie anywhere, copied to one slab."""
    ends = np.cumsum([0, *(0 if cut is None else math.prod(cut.pixels.shape[:2]) for cut in cuts)]).tolist()
    slab = empty_slab((ends[-1], 3), torch.uint8)
    pixels = slab.numpy()
    for cut, start, end in zip(cuts, ends, ends[1:], strict=False):
        if cut is not None:
            pixels[start:end] = cut.pixels.reshape(-1, 3)
    return _crops(slab, ends[:-1], cuts, size)


def _crops(values: torch.Tensor, starts: list[int], cuts: Sequence[Cut | None], size: Size) -> Crops:
    shapes = [(0, 0) if cut is None else cut.pixels.shape[:2] for cut in cuts]
    flips = [cut is not None and cut.flip for cut in cuts]
    offsets, shape = (torch.tensor(numbers, dtype=torch.int64) for numbers in (starts, shapes))
    return Crops(values, offsets, shape.reshape(-1, 2), torch.tensor(flips, dtype=torch.bool), size)


def collate_cuts(name: str, values: Sequence[object]) -> Crops:
    """What samples have of an output that the device resizes, as a batch.

    Raises:
        BatchError: Something else is among them, or crops that become images of another size.
    """
    cuts = [value for value in values if isinstance(value, Cut)]
    sizes = sorted({cut.size for cut in cuts})
    if len(cuts) < len(values):
        other = next(value for value in values if not isinstance(value, Cut))
        raise BatchError(
            f'crops with resize="device" and {type(other).__name__} cannot become one batch',
            field=name,
            hint="sources and transforms must agree. Missing images become black, but not with transform=: there use "
            'resize="worker"',
        )
    if len(sizes) > 1:
        raise BatchError(
            f"crops of one batch must be resized to one size, got {sizes[0]} and {sizes[1]}",
            field=name,
            hint=f"give {name!r} one size in all sources, such as RandomResizedCrop({sizes[0]}, resize='device')",
        )
    return gathered(cuts, sizes[0])


def refuse_samples(names: Sequence[str]) -> None:
    """Refuse to hand out single samples of outputs that the device resizes.

    Args:
        names: Of these outputs.

    Raises:
        UsageError: There are some.
    """
    if names:
        raise UsageError(
            f'fields[{names[0]!r}] has resize="device", which works on batches only',
            hint='set batch_size= on the data set or ss.Loader, and no collate_fn=; for samples use resize="worker"',
        )
