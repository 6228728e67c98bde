"""Modules of kornia on batches of uint8 images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from shardstream import extras
from shardstream.augment.batch import Name, Parts
from shardstream.augment.mixing import store
from shardstream.augment.normalize import constants, normalize_, to_unit
from shardstream.augment.operation import checked_images, upload
from shardstream.errors import UsageError


class Kornia(nn.Module):
    """A module of kornia between uint8 batches and a network: float32 in 0..1, the module, normalisation, cast.

    Kornia's augmentations draw for every sample, on the CPU or on the batch's device as the module says, from **torch's
    global generator**: unlike ours, they are not decided by a key, so a run that resumes draws others.

    Args:
        module: From float32 images (B, 3, H, W) in 0..1 to such images; as ``kornia.augmentation.RandomAffine(10)`` or
            an ``AugmentationSequential`` of several.
        mean: As of `ImageBatch`; ``None``: no normalisation.
        std: Likewise; both or none.
        dtype: Of the images that come out.
        image: As of `ImageBatch`.

    Returns (when called with a batch):
        The batch in the same structure; images of ``dtype``, channels last in memory.

    Raises:
        MissingExtraError: Kornia is not installed.
        UsageError: One of ``mean`` and ``std`` without the other; when called, a batch in which images are not found.

        >>> from kornia.augmentation import RandomAffine
        >>> augment = Kornia(RandomAffine(10.0), (0.5, 0.5, 0.5), (0.5, 0.5, 0.5), dtype=torch.bfloat16)
        >>> augment(torch.zeros(8, 3, 32, 32, dtype=torch.uint8)).dtype
        torch.bfloat16
    """

    def __init__(
        self,
        module: nn.Module,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        *,
        dtype: torch.dtype = torch.float32,
        image: Name | None = None,
    ) -> None:
        super().__init__()
        extras.require("kornia", extra="kornia", purpose="for ss.augment.Kornia")
        if (mean is None) != (std is None):
            raise UsageError("mean= and std= go together", hint="give both, or neither for images in 0..1")
        self.module = module
        self.dtype = dtype
        self.image = image
        self._normalizes = mean is not None
        self._numbers = constants(mean or (0, 0, 0), std or (1, 1, 1))

    @torch.no_grad()
    def forward(self, batch: Any) -> Any:
        """See `Kornia`."""
        parts = Parts(batch, self.image, None)
        images = checked_images(parts.images, "the image of the batch")
        (numbers,) = upload([self._numbers], images.device)
        # By channels, as kornia's own code expects; channels last would be copied at its first step.
        images = self.module(to_unit(images.contiguous(), numbers))
        if self._normalizes:
            images = normalize_(images.to(torch.float32, copy=True, memory_format=torch.contiguous_format), numbers)
        out = torch.empty(images.shape, dtype=self.dtype, device=images.device, memory_format=torch.channels_last)
        store(images, out)
        return parts.replaced(out)
