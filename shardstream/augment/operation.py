"""What an operation on a batch of images is, and how it is carried out on those samples that it touches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from shardstream.augment.draws import Draws, Positions, RandomStream
from shardstream.errors import UsageError
from shardstream.images.geometry import Size

Floats = NDArray[np.float32]


class Drawn(NamedTuple):
    """What was drawn for a batch of B samples.

    Attributes:
        touched: Which samples the operation is for: bool (B,).
        numbers: With which parameters: float32 (parameters, B).
    """

    touched: NDArray[np.bool_]
    numbers: Floats


class Operation(ABC):
    """One random operation on a batch of images, with numbers of its own for every sample.

    Numbers are drawn on the CPU, from the key alone, and reach the device together as one small tensor: which samples
    are touched is known here, so the device never has to be waited for, and every device does the same.

    Called by itself with (B, 3, H, W) images, uint8 or floating point in 0..1, it returns new ones: of the same dtype
    where pixels are only moved, else float32 in 0..1.

    Example:
        >>> jitter = ss.augment.ColorJitter(0.4)
        >>> jitter(torch.zeros(8, 3, 32, 32, dtype=torch.uint8), key=7).shape, isinstance(jitter, ss.augment.Operation)
        (torch.Size([8, 3, 32, 32]), True)
    """

    stream: ClassVar[RandomStream]
    moves_only: ClassVar[bool] = False

    @abstractmethod
    def draw(self, draws: Draws, size: Size) -> Drawn:
        """Draw for images of (height, width) ``size``."""

    @abstractmethod
    def apply(self, images: torch.Tensor, *arrays: torch.Tensor) -> torch.Tensor:
        """Do it to every one of the images, with what `arrays` gave for them.

        Images are the caller's own and may be overwritten; operations that only move pixels leave them as they are.
        """

    def arrays(self, numbers: Floats) -> tuple[Floats, ...]:
        """What `apply` needs, from the numbers of the touched samples; what decides sizes is decided here."""
        return (numbers,)

    def output(self, size: Size) -> Size:
        """(height, width) of the result."""
        return size

    def __call__(
        self, images: torch.Tensor, *, key: int | None = None, positions: Positions | None = None
    ) -> torch.Tensor:
        """Draw with ``key`` (``None``: from torch's global CPU generator) and return the result as new images.

        ``positions`` in its stead, see `ImageBatch`.
        """
        checked_images(images, "images")
        drawn = self.draw(Draws(key, len(images), positions), (images.shape[2], images.shape[3]))
        if self.moves_only:
            if not len(images):
                return images.new_empty((0, 3, *self.output((images.shape[2], images.shape[3]))))
            images = images.clone()
        else:
            images = images.div(255.0) if images.dtype == torch.uint8 else images.to(torch.float32, copy=True)
        return carry_out(self, images, upload(plan(self, drawn, slice(None)), images.device))


@dataclass(frozen=True)
class Sometimes(Operation):
    """An operation on some of the images that needs no number but its probability.

    Args:
        p: Probability.

    Raises:
        UsageError: ``p`` is not a probability.
    """

    p: float = 0.5

    def __post_init__(self) -> None:
        checked_share("p", self.p)

    def draw(self, draws: Draws, size: Size) -> Drawn:
        return Drawn(draws.uniform(self.stream, 1)[0] < self.p, np.empty((0, draws.count), np.float32))


def plan(operation: Operation, drawn: Drawn, block: slice) -> list[Floats]:
    """What has to reach the device for the samples of a block: the places that are touched, then `arrays`."""
    places = np.flatnonzero(drawn.touched[block])
    return [places.astype(np.float32), *operation.arrays(drawn.numbers[:, block][:, places])]


def carry_out(operation: Operation, images: torch.Tensor, planned: Sequence[torch.Tensor]) -> torch.Tensor:
    """Apply an operation to the samples that it touches; images are the caller's own."""
    places, *arrays = planned
    if not len(places):
        return images
    if len(places) == len(images):
        return operation.apply(images, *arrays)
    index = places.long()
    return images.index_copy_(0, index, operation.apply(images.index_select(0, index), *arrays))


def upload(arrays: Sequence[Floats], device: torch.device) -> list[torch.Tensor]:
    """All arrays on the device, by one copy that nobody waits for. Places below 2**24 are exact in float32."""
    flat = torch.from_numpy(np.concatenate([array.ravel() for array in arrays], dtype=np.float32))
    if device.type == "cuda":
        flat = flat.pin_memory()
    parts = flat.to(device, non_blocking=True).split([array.size for array in arrays])
    return [part.view(array.shape) for part, array in zip(parts, arrays, strict=True)]


def each(numbers: torch.Tensor) -> torch.Tensor:
    """One number a sample, (n,), to be combined with (n, 3, H, W)."""
    return numbers.view(-1, 1, 1, 1)


def inside(boxes: torch.Tensor, size: Size) -> torch.Tensor:
    """Which pixels lie in each sample's box (top, left, bottom, right; (4, n)): bool (n, 1, height, width)."""
    top, left, bottom, right = (each(edge) for edge in boxes.unbind(0))
    rows = torch.arange(size[0], device=boxes.device).view(1, 1, -1, 1)
    columns = torch.arange(size[1], device=boxes.device)
    return ((rows >= top) & (rows < bottom)) & ((columns >= left) & (columns < right))


def checked_images(images: Any, what: str) -> torch.Tensor:
    """The same.

    Raises:
        UsageError: They are no (B, 3, H, W) images of uint8 or of a floating type.
    """
    told = f"{images.dtype} {tuple(images.shape)}" if isinstance(images, torch.Tensor) else type(images).__name__
    if isinstance(images, torch.Tensor):
        pixels = images.dtype == torch.uint8 or images.is_floating_point()
        if pixels and images.dim() == 4 and images.shape[1] == 3:
            return images
    raise UsageError(
        f"{what} is {told}, no batch of images",
        hint='images are uint8 or floating point in 0..1, of shape (B, 3, H, W), as decoders with layout="CHW" give',
    )


def checked_range(name: str, value: Any, low: float, high: float, *, above: bool = False) -> tuple[float, float]:
    """The same.

    Raises:
        UsageError: It is not two numbers, the smaller first, in [low, high]; or, if ``above``, the first is ``low``.
    """
    if not (isinstance(value, tuple) and len(value) == 2 and low <= value[0] <= value[1] <= high):
        raise UsageError(f"{name} must be two numbers in [{low:g}, {high:g}], the smaller first, got {value!r}")
    if above and value[0] == low:
        raise UsageError(f"{name}={value!r} must begin above {low:g}", hint=f"give numbers greater than {low:g}")
    return value[0], value[1]


def checked_share(name: str, value: Any) -> float:
    """The same.

    Raises:
        UsageError: It is not a number in [0, 1].
    """
    if not isinstance(value, int | float) or not 0 <= value <= 1:
        raise UsageError(f"{name} must be a number in [0, 1], got {value!r}")
    return float(value)
