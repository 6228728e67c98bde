"""The augmentation of a batch of images as one module."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from shardstream.augment.batch import Name, Parts
from shardstream.augment.blur import GaussianBlur
from shardstream.augment.chain import Chain
from shardstream.augment.color import ColorJitter, RandomGrayscale, jitter
from shardstream.augment.draws import Draws, Positions
from shardstream.augment.erasing import RandomErasing
from shardstream.augment.geometric import RandomCrop, RandomHorizontalFlip
from shardstream.augment.mixing import Mix, soft_labels
from shardstream.augment.normalize import constants
from shardstream.augment.operation import Operation, checked_images, checked_share
from shardstream.errors import UsageError
from shardstream.images.geometry import Size


class ImageBatch(nn.Module):
    """A batch of uint8 images to what a network takes, augmented on the device that it is on.

    The order is crop, flip, colour jitter, grayscale, blur, normalisation, erasing, mixup or cutmix: that of
    torchvision's recipes. Every operation is torchvision v2's, but with **numbers of its own for every sample**, where
    torchvision draws one for the whole batch. An operation given as an object has all of its arguments; a number is
    its short form. Nothing is ever written to the batch that comes in.

    Args:
        mean: Of each channel, for values in 0..1, as of torchvision's ``Normalize``.
        std: Standard deviation of each channel, likewise.
        flip: `RandomHorizontalFlip`, its probability, or ``True`` for 0.5.
        crop: `RandomCrop`, or its size.
        color_jitter: `ColorJitter`; one number for brightness, contrast and saturation, no hue (timm's convention); or
            three or four numbers, hue the fourth.
        grayscale: `RandomGrayscale`, or its probability.
        blur: `GaussianBlur`, or its probability.
        erase: `RandomErasing`, or its probability.
        mixup: α of mixup: λ of each sample comes from Beta(α, α). With ``cutmix``, each sample draws one of the two.
        cutmix: α of cutmix.
        label_smoothing: As of ``torch.nn.CrossEntropyLoss``.
        classes: How many there are. ``None``: what `for_classes` is told, as `DevicePrefetcher` does where the data set
            knows; needed for mixup, cutmix and label smoothing only.
        dtype: Of the images that come out. Arithmetic is in float32 until the end.
        image: Name of the images in a dict, or place in a tuple. ``None``: the only 4-D uint8 tensor of three channels
            in a dict (of floating point, in 0..1, where there is none); the first part of a tuple.
        label: Likewise of the labels. ``None``: the only 1-D integer tensor in a dict whose name does not begin with
            ``__``; the second part of a tuple.

    Returns (when called with a batch):
        The batch in the same structure: images (B, 3, H, W) of ``dtype``, channels last in memory; labels float32 (B,
        classes) where mixup, cutmix or label smoothing ask for that, else as they are. ``key=`` is an integer that
        decides all random numbers, the same on every device; without it one is drawn from torch's global CPU generator.
        ``positions=`` (`Positions`) decides them in its stead, so that a sample's do not depend on its batch; but which
        sample it is mixed with does. `DevicePrefetcher` gives both, from seed and epoch.

    Raises:
        UsageError: An argument outside of its range; when called, a batch in which images or labels are not found, or
            labels to be softened without a number of classes.

    ``eval()`` changes nothing: evaluation has an ``ImageBatch(mean, std)`` of its own.

        >>> augment = ImageBatch((0.485, 0.456, 0.406), (0.229, 0.224, 0.225), flip=True, mixup=0.2, classes=10)
        >>> images, labels = augment((torch.zeros(8, 3, 32, 32, dtype=torch.uint8), torch.arange(8)), key=1)
        >>> images.dtype, labels.shape
        (torch.float32, torch.Size([8, 10]))
    """

    def __init__(
        self,
        mean: Sequence[float],
        std: Sequence[float],
        *,
        flip: bool | float | RandomHorizontalFlip = False,
        crop: int | Size | Operation | None = None,
        color_jitter: float | Sequence[float] | ColorJitter | None = None,
        grayscale: float | RandomGrayscale = 0,
        blur: float | GaussianBlur = 0,
        erase: float | RandomErasing = 0,
        mixup: float = 0,
        cutmix: float = 0,
        label_smoothing: float = 0,
        classes: int | None = None,
        dtype: torch.dtype = torch.float32,
        image: Name | None = None,
        label: Name | None = None,
    ) -> None:
        super().__init__()
        if not dtype.is_floating_point:
            raise UsageError(
                f"dtype={dtype} has no room for normalised values", hint="torch.float32, bfloat16, float16"
            )
        if classes is not None and classes < 1:
            raise UsageError(
                f"classes must be at least 1, got {classes!r}", hint="give the labels' largest value plus 1"
            )
        self.label_smoothing = checked_share("label_smoothing", label_smoothing)
        self.classes = classes
        self.image = image
        self.label = label
        mix = Mix(mixup, cutmix)
        found = (
            None if color_jitter is None else jitter(color_jitter),
            _operation(RandomGrayscale, grayscale),
            _operation(GaussianBlur, blur),
        )
        self._chain = Chain(
            crop=RandomCrop(crop) if isinstance(crop, int | tuple) else crop,
            flip=_operation(RandomHorizontalFlip, 0.5 if flip is True else flip),
            colors=[operation for operation in found if operation is not None],
            erase=_operation(RandomErasing, erase),
            mix=mix if mixup or cutmix else None,
            numbers=constants(mean, std),
            dtype=dtype,
        )

    def for_classes(self, count: int) -> None:
        """Take ``count`` as the number of classes, unless one was given."""
        self.classes = count if self.classes is None else self.classes

    @torch.no_grad()
    def forward(self, batch: Any, *, key: int | None = None, positions: Positions | None = None) -> Any:
        """See `ImageBatch`."""
        parts = Parts(batch, self.image, self.label)
        images = checked_images(parts.images, "the image of the batch")
        mix = self._chain.mix
        # Before the work, so that what is wrong with labels is said at once.
        soft = soft_labels(parts.labels, self.classes, self.label_smoothing) if mix or self.label_smoothing else None
        done, mixes = self._chain.run(images, Draws(key, len(images), positions))
        if mix is not None and soft is not None:
            soft = mix.labels(soft, mixes)
        return parts.replaced(done, soft)

    def extra_repr(self) -> str:
        """The operations, in their order."""
        mix = self._chain.mix
        told = [repr(operation) for operation in self._chain.operations if operation is not None]
        return ", ".join([*told, f"mixup={mix.mixup}, cutmix={mix.cutmix}"] if mix else told)


def _operation(kind: Callable[[float], Operation], value: float | Operation) -> Operation | None:
    """The operation that a probability is the short form of; ``None`` for 0."""
    if isinstance(value, Operation):
        return value
    return kind(value) if value else None
