"""Operations one after another, with as few passes over memory as their kinds allow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np
import torch

from shardstream.augment.draws import Draws
from shardstream.augment.mixing import Mix, store
from shardstream.augment.normalize import normalize_, to_unit
from shardstream.augment.operation import Floats, Operation, carry_out, plan, upload

_BLOCK = 4 << 20  # bytes of float32 images that the CPU works on at a time: they stay in its cache from step to step


class Chain:
    """Crop, flip, operations on colours, normalisation, erasing, mixture: any of them, in this order.

    Args:
        crop: What moves pixels and may change the size.
        flip: What moves pixels inside a row.
        colors: What changes values in 0..1.
        erase: What comes after the normalisation.
        mix: What mixes a sample with the one before it.
        numbers: What `normalize.constants` gave.
        dtype: Of the result.
    """

    def __init__(
        self,
        *,
        crop: Operation | None,
        flip: Operation | None,
        colors: Sequence[Operation],
        erase: Operation | None,
        mix: Mix | None,
        numbers: Floats,
        dtype: torch.dtype,
    ) -> None:
        self.operations = (crop, flip, *colors, erase)
        self.mix = mix
        self._numbers = numbers
        self._dtype = dtype
        # By channels, values of a row lie side by side, and most steps cost half; a mere crop does not pay for the way.
        self._planar = flip is not None or bool(colors) or mix is not None

    def run(self, images: torch.Tensor, draws: Draws) -> tuple[torch.Tensor, torch.Tensor]:
        """The result (B, 3, H, W), channels last, and what was drawn for the mixture, (6, B) on the device."""
        size = images.shape[2], images.shape[3]
        pixels, drawn = size[0] * size[1], []
        for operation in self.operations:
            drawn.append(None if operation is None else operation.draw(draws, size))
            size = size if operation is None else operation.output(size)
            pixels = max(pixels, size[0] * size[1])
        mixing = np.empty((6, 0), np.float32) if self.mix is None else self.mix.draw(draws, size)
        step = max(1, _BLOCK // (12 * pixels) if images.device.type == "cpu" else len(images))
        blocks = [slice(start, start + step) for start in range(0, len(images), step)]
        plans = [
            [
                plan(operation, found, block) if operation is not None and found is not None else []
                for operation, found in zip(self.operations, drawn, strict=True)
            ]
            for block in blocks
        ]
        arrays = [array for one in plans for planned in one for array in planned]
        numbers, mixes, *rest = upload([self._numbers, mixing, *arrays], images.device)
        shape = (len(images), 3, *size)
        out = torch.empty(shape, dtype=self._dtype, device=images.device, memory_format=torch.channels_last)
        parts = iter(rest)
        given = [[list(islice(parts, len(planned))) for planned in one] for one in plans]
        ready = (
            (block, self._block(images[block], planned, numbers, out[block]))
            for block, planned in zip(blocks, given, strict=True)
        )
        if self.mix is not None:
            _mixed(self.mix, ready, mixes, out)
        else:
            for block, done in ready:
                if done.data_ptr() != out[block].data_ptr():
                    store(done, out[block])
        return out, mixes

    def _block(
        self, images: torch.Tensor, planned: Sequence[Sequence[torch.Tensor]], numbers: torch.Tensor, out: torch.Tensor
    ) -> torch.Tensor:
        """Some of the images up to the mixture: float32; written to ``out`` at once where that is what is wanted."""
        (crop, flip, *colors, erase), (for_crop, for_flip, *for_colors, for_erase) = self.operations, planned
        if crop is not None:
            images = carry_out(crop, images, for_crop)
        ordered = images.contiguous(memory_format=torch.contiguous_format if self._planar else torch.channels_last)
        if flip is not None:
            ordered = carry_out(flip, ordered.clone() if ordered is images else ordered, for_flip)
        at_once = self.mix is None and not self._planar and out.dtype == torch.float32
        images = to_unit(ordered, numbers, out if at_once else None)
        for operation, given in zip(colors, for_colors, strict=True):
            assert operation is not None
            images = carry_out(operation, images, given)
        images = normalize_(images, numbers)
        return images if erase is None else carry_out(erase, images, for_erase)


def _mixed(mix: Mix, ready: Iterator[tuple[slice, torch.Tensor]], mixes: torch.Tensor, out: torch.Tensor) -> None:
    """Write mixtures of neighbours across all blocks; the first sample waits for the last."""
    first = last = None
    for block, images in ready:
        start, stop = block.start, block.start + len(images)
        if last is not None:
            mix.images(images[:1], last, mixes[:, start : start + 1], out=out[start : start + 1])
        mix.images(images[1:], images[:-1], mixes[:, start + 1 : stop], out=out[start + 1 : stop])
        first, last = images[:1] if first is None else first, images[-1:]
    if first is not None and last is not None:
        mix.images(first, last, mixes[:, :1], out=out[:1])
