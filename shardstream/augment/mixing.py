"""Mixup and cutmix, and the soft labels that they need."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from shardstream.augment.draws import Draws, RandomStream
from shardstream.augment.operation import Floats, each, inside
from shardstream.errors import UsageError
from shardstream.images.geometry import Size

# Rows of what is drawn: the share that a sample keeps of its own pixels outside of the box, the box where it shows its
# neighbour, and the share of its own label.
_KEPT, _BOX, _LABEL = 0, slice(1, 5), 5


class Mix:
    """Each sample mixed with the one before it in the batch, the first with the last, as torchvision v2 pairs them.

    Torchvision draws one λ for a batch, this one a λ for every sample, from Beta(α, α). Where both are given, every
    sample draws one of the two with equal probability.

    Args:
        mixup: α of mixup: λ·x + (1 - λ)·neighbour, of images and labels; 0: none.
        cutmix: α of cutmix: a rectangle of 1 - λ of the area shows the neighbour; the label's share is the area that is
            left after clipping at the edges. 0: none.

    Raises:
        UsageError: A negative α.
    """

    def __init__(self, mixup: float = 0, cutmix: float = 0) -> None:
        for name, alpha in (("mixup", mixup), ("cutmix", cutmix)):
            if not 0 <= alpha < float("inf"):
                raise UsageError(
                    f"{name} must be a finite number of at least 0, got {alpha!r}", hint="an alpha of Beta; 0: off"
                )
        self.mixup = mixup
        self.cutmix = cutmix

    def draw(self, draws: Draws, size: Size) -> Floats:
        """Draw for images of (height, width) ``size``: (6, B)."""
        which, first, second, down, across = draws.uniform(RandomStream.MIX, 5)
        cut = which < (0.5 if self.mixup else 1) if self.cutmix else np.zeros(draws.count, np.bool_)
        kept = np.where(cut, 1.0, symmetric_beta(first, second, self.mixup) if self.mixup else 1.0)
        box = np.zeros((4, draws.count))
        if self.cutmix:
            reach = 0.5 * np.sqrt(1 - symmetric_beta(first, second, self.cutmix))
            for axis, place in enumerate((down, across)):
                middle, half = np.floor(place * size[axis]), np.floor(reach * size[axis])
                box[axis] = np.where(cut, np.maximum(middle - half, 0), 0)
                box[axis + 2] = np.where(cut, np.minimum(middle + half, size[axis]), 0)
        shown = (box[2] - box[0]) * (box[3] - box[1]) / (size[0] * size[1])
        return np.concatenate([[kept], box, [kept - shown]]).astype(np.float32)

    def images(self, images: torch.Tensor, before: torch.Tensor, numbers: torch.Tensor, *, out: torch.Tensor) -> None:
        """Write the mixture of images with those before them, both (n, 3, H, W) float32, to ``out``."""
        weight = each(numbers[_KEPT])
        if self.cutmix:
            weight = weight * ~inside(numbers[_BOX], (images.shape[2], images.shape[3]))
        mixed = before.mul(1 - weight).addcmul_(images, weight)
        store(mixed, out)

    def labels(self, soft: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        """Soft labels (B, classes) of the mixtures."""
        share = numbers[_LABEL][:, None]
        return soft.roll(1, 0).mul_(1 - share).addcmul_(soft, share)


def store(images: torch.Tensor, out: torch.Tensor) -> None:
    """Copy to a tensor of another dtype and other strides; on the CPU two plain steps take half the time of one."""
    out.copy_(images if images.is_cuda else images.to(out.dtype))


def symmetric_beta(first: NDArray[np.float64], second: NDArray[np.float64], alpha: float) -> NDArray[np.float64]:
    """Beta(α, α), from two uniform numbers in [0, 1) each, for any α above 0.

    Exact and without rejection: 1/2 + T / (2·sqrt(2α + T²)) where T is Student's t of 2α degrees of freedom, which
    Bailey's polar method makes of two uniform numbers (Math. Comp. 62, 1994; Devroye, WSC 1996).
    """
    cosine = np.cos(2 * np.pi * second)
    with np.errstate(over="ignore", divide="ignore"):  # infinite for small α: then one side is all there is
        spread = np.expm1(-np.log1p(-first) / alpha) * cosine**2
        share: NDArray[np.float64] = 0.5 + 0.5 * np.sign(cosine) / np.sqrt(1 + 1 / spread)
    return share


def soft_labels(labels: torch.Tensor, classes: int | None, smoothing: float) -> torch.Tensor:
    """Labels as float32 (B, classes): 1 - smoothing on the class, smoothing spread over all of them evenly.

    Args:
        labels: Integers (B,), or already soft: floating point (B, classes).
        classes: How many there are.
        smoothing: As ``label_smoothing`` of ``torch.nn.CrossEntropyLoss``.

    Raises:
        UsageError: The number of classes is not known, or (on the CPU) a label is none of them.
    """
    if labels.dim() == 2 and labels.is_floating_point():
        return labels.float().mul(1 - smoothing).add_(smoothing / labels.shape[1])
    if classes is None:
        raise UsageError("soft labels need the number of classes", hint="give classes=, as in ImageBatch(classes=1000)")
    # Looked at on the CPU only: on a device it would wait for everything before it.
    if labels.device.type == "cpu" and len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        raise UsageError(
            f"labels from {int(labels.min())} to {int(labels.max())} with classes={classes}",
            hint="labels count from 0, and are less than the number of classes",
        )
    soft = torch.full((len(labels), classes), smoothing / classes, device=labels.device, dtype=torch.float32)
    return soft.scatter_(1, labels.long()[:, None], 1 - smoothing + smoothing / classes)
