"""Crops of different sizes to images of one size: antialiased bilinear, a whole batch at once.

All crops of a group, padded to the largest, take two batched matrix products (`shardstream.augment.products`).

On the CPU images come from the operator that workers resize with: the pixels are those of ``resize="worker"``, bit for
bit.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import torch

from shardstream.augment.products import multiplied, weights
from shardstream.errors import UsageError
from shardstream.images import resize
from shardstream.images.geometry import Geometry, whole
from shardstream.stream.tensors.crops import Crops
from shardstream.stream.tensors.nested import mapped

T = TypeVar("T")

_GROUP = 32  # crops of like size: padded, they are 1.5 times their own pixels; 128 crops of any size are 3 times theirs
_PIXELS = 1 << 23  # of a padded group, unless one crop alone has more: some 250 MB while it is worked on


def resized(batch: T, *, dtype: torch.dtype = torch.uint8) -> T:
    """A batch with all `Crops` in it resized, however nested in dicts, lists and tuples.

    A batch without any is returned itself, and is not copied.

    Args:
        batch: As from `Loader`, on any device.
        dtype: As of `resize_crops`.

        >>> fields = {"jpg": ss.decode.RandomResizedCrop(64, resize="device")}
        >>> resized(ss.ShardDataset("out/", fields=fields, batch_size=8).peek())["jpg"].shape
        torch.Size([8, 3, 64, 64])
    """
    found: list[Crops] = []
    mapped(batch, _same, own=_same, crops=found.append)
    if not found:
        return batch
    result: T = mapped(batch, _same, own=_same, crops=lambda crops: resize_crops(crops, dtype=dtype))
    return result


def _same(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


@torch.no_grad()
def resize_crops(crops: Crops, *, dtype: torch.dtype = torch.uint8) -> torch.Tensor:
    """Resize a batch of crops, and flip those that are to be flipped.

    The values are those of ``torch.nn.functional.interpolate(..., mode="bilinear", antialias=True)`` on each crop: of
    float images to 1e-4 of the range of values, of uint8 images to one grey level. Where products of float32 may be
    made in TF32 (``torch.set_float32_matmul_precision("high")``), floats too differ by up to a third of a grey level.

    On CUDA nothing waits for the device: the sizes are known to the host.

    Args:
        crops: On any device.
        dtype: Of the result: uint8, or a floating dtype for values in 0...1 that were never rounded to grey levels.

    Returns:
        (B, 3, h, w) on the device of the crops, in channels-last memory format. Black where there is no image.

    Raises:
        UsageError: The dtype is neither.

        >>> fields = {"jpg": ss.decode.RandomResizedCrop(64, resize="device")}
        >>> crops = ss.ShardDataset("out/", fields=fields, batch_size=8).peek()["jpg"].to("cpu")
        >>> resize_crops(crops, dtype=torch.bfloat16).shape
        torch.Size([8, 3, 64, 64])
    """
    if dtype != torch.uint8 and not dtype.is_floating_point:
        raise UsageError(f"dtype={dtype} holds no images", hint="use torch.uint8 or a floating dtype")
    if dtype == torch.uint8 and crops.values.device.type == "cpu":
        return _one_by_one(crops)
    return by_products(crops, dtype)


def _one_by_one(crops: Crops) -> torch.Tensor:
    out = np.zeros((len(crops), *crops.size, 3), np.uint8)
    for slot, crop, flip in zip(out, crops, crops.flips.tolist(), strict=True):
        if crop.numel():
            source = crop.shape[0], crop.shape[1]
            resize.render(crop.numpy(), Geometry(source, whole(source), crops.size, flip=flip), slot)
    return torch.from_numpy(out).permute(0, 3, 1, 2)


def by_products(crops: Crops, dtype: torch.dtype) -> torch.Tensor:
    """`resize_crops` by matrix products, on any device."""
    values = crops.values
    out = torch.zeros((len(crops), *crops.size, 3), dtype=dtype, device=values.device)
    longest = crops.shapes.amax(1)
    present = longest.argsort(stable=True)[int((longest == 0).sum()) :]  # of those sorts the one that pads least
    shapes = crops.shapes[present]
    known = torch.stack([present, crops.offsets[present], *shapes.unbind(1), crops.flips[present]])
    if values.is_cuda:
        known = known.pin_memory()
    known = known.to(values.device, non_blocking=True)
    begin = 0
    # Autocast would make the products in half precision.
    with torch.autocast(values.device.type, enabled=False):
        for end in _ends(shapes):
            tallest, widest = shapes[begin:end].amax(0).tolist()
            slots, offsets, heights, widths, flips = known[:, begin:end]
            pixels = _padded(values, offsets, heights, widths, tallest, widest)
            down = weights(heights, crops.size[0], tallest)
            across = weights(widths, crops.size[1], widest, flips=flips)
            group = multiplied(pixels, down, across)
            group = group.round_() if dtype == torch.uint8 else group.div_(255)
            out.index_copy_(0, slots, group.to(dtype))
            begin = end
    return out.permute(0, 3, 1, 2)


def _ends(shapes: torch.Tensor) -> list[int]:
    """Where groups of crops end, whose shapes are int64 (B, 2)."""
    count = len(shapes)
    if not count:
        return []
    each = max(1, min(_GROUP, _PIXELS // int(shapes.amax(0).prod())))
    return [*range(each, count, each), count]


def _padded(
    values: torch.Tensor,
    offsets: torch.Tensor,
    heights: torch.Tensor,
    widths: torch.Tensor,
    tallest: int,
    widest: int,
) -> torch.Tensor:
    """Crops (n,) as float32 (n, tallest, widest, 3); beyond their edges their last pixels are repeated."""
    rows = torch.arange(tallest, device=values.device)[None, :, None]
    columns = torch.arange(widest, device=values.device)[None, None, :]
    offsets, heights, widths = (one[:, None, None] for one in (offsets, heights, widths))
    pixel = offsets + torch.minimum(rows, heights - 1) * widths + torch.minimum(columns, widths - 1)
    return values.index_select(0, pixel.view(-1)).view(*pixel.shape, 3).float()
