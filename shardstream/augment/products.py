"""Antialiased bilinear resizing as two batched matrix products.

Such a resize is linear and goes first down, then across: it is the product of the picture with one matrix of weights on
either side. A row of weights is a triangle around the centre of its output pixel, as wide as the picture is larger than
the result, cut off at the edges of the picture and scaled to a sum of one; a flip exchanges the rows.
"""

from __future__ import annotations

import torch


def weights(
    lengths: torch.Tensor,
    size: int,
    longest: int,
    *,
    begins: torch.Tensor | None = None,
    flips: torch.Tensor | None = None,
) -> torch.Tensor:
    """What each of ``longest`` pixels adds to each of ``size`` pixels of the result: float32 (n, size, longest).

    Args:
        lengths: int64 (n,): how many pixels are resized.
        size: Pixels of the result.
        longest: Pixels that there are.
        begins: int64 (n,): the first that is resized. Default: the first there is.
        flips: int64 (n,): 1 where the result comes in reverse order.
    """
    lengths = lengths[:, None, None]
    number = torch.arange(size, device=lengths.device)[None, :, None]
    if flips is not None:
        number = torch.where(flips[:, None, None] == 1, size - 1 - number, number)
    ratio = lengths / size
    centre = torch.arange(longest, device=lengths.device)[None, None, :] + 0.5
    if begins is not None:
        centre = centre - begins[:, None, None]
    far = (centre - (number + 0.5) * ratio).abs_().div_(ratio.clamp(min=1))
    found = far.neg_().add_(1).clamp_(min=0).masked_fill_((centre > lengths) | (centre < 0), 0)
    return found.div_(found.sum(2, keepdim=True))


def multiplied(pixels: torch.Tensor, down: torch.Tensor, across: torch.Tensor) -> torch.Tensor:
    """Pixels (n, H, W, 3) through weights (n, h, H) and (n, w, W): (n, h, w, 3), of any strides.

    Both products take what there is as it lies, the first by its transpose, so that nothing is copied between.
    """
    n, height, width, _ = pixels.shape
    tall = torch.bmm(pixels.view(n, height, width * 3).transpose(1, 2), down.transpose(1, 2))  # (n, W 3, h)
    flat = torch.bmm(across, tall.view(n, width, 3 * down.shape[1]))  # (n, w, 3 h)
    return flat.view(n, across.shape[1], 3, down.shape[1]).permute(0, 3, 1, 2)
