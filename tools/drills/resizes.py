"""Compares crops that are resized a batch at once with those that torch resizes; see ``tools/drills/resizes``."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.nn.functional as functional

import shardstream as ss
from shardstream.augment.resize import by_products
from shardstream.decode import CenterCrop, compile_fields
from shardstream.decode.context import SampleContext
from shardstream.shards.fields import FieldType

SIZE = 224
EPOCHS = 2
BATCH = 128


def batches(folder: str) -> Iterator[ss.Crops]:
    """Random crops of all photographs of a folder, each time others."""
    with tempfile.TemporaryDirectory() as out:
        ss.pack(folder, out, shard_size="48MB")
        crop = ss.decode.RandomResizedCrop(SIZE, flip=True, resize="device")
        dataset = ss.ShardDataset(out, fields={"jpg": crop}, batch_size=BATCH, shuffle=True, tail="exact")
        for epoch in range(EPOCHS):
            dataset.set_epoch(epoch)
            for batch in dataset:
                yield batch["jpg"]


def by_torch(crops: ss.Crops, dtype: torch.dtype) -> torch.Tensor:
    """One by one, as float32 (B, 3, h, w) in 0...255."""
    images = []
    for crop, flip in zip(crops, crops.flips.tolist(), strict=True):
        planes = crop.permute(2, 0, 1)[None].contiguous().to(dtype)
        image = functional.interpolate(planes, crops.size, mode="bilinear", antialias=True)[0].float()
        images.append(image.flip(2) if flip else image)
    return torch.stack(images)


def reduced(folder: str) -> Iterator[str]:
    """How far pixels decoded at a reduced scale are from ``exact=True``, and what each costs; a line a size."""
    torch.set_num_threads(1)  # as in a worker
    files = [memoryview(path.read_bytes()) for path in sorted(Path(folder).rglob("*.jpg"))]
    jpg = FieldType.parse("jpg")
    for size in (32, 64, 112, 160, SIZE):
        specs = {
            "exact": CenterCrop(size, resize=size * 8 // 7, exact=True),
            "reduced": CenterCrop(size, resize=size * 8 // 7),
        }
        makers = {name: compile_fields({"jpg": spec}, {"jpg": jpg}).outputs[0] for name, spec in specs.items()}
        means, worst, seconds = [], 0, dict.fromkeys(specs, 0.0)
        for number, data in enumerate(files):
            made = {}
            for name, maker in makers.items():
                context = SampleContext("", "", number, number, 0, 0)
                began = time.thread_time()
                made[name] = maker.value(jpg, data, context).astype(int)
                seconds[name] += time.thread_time() - began
            apart = abs(made["exact"] - made["reduced"])
            means.append(apart.mean())
            worst = max(worst, int(apart.max()))
        each = ", ".join(f"{name} {spent / len(files) * 1e3:.2f} ms" for name, spent in seconds.items())
        yield (
            f"to {size}: mean over photographs {sum(means) / len(means):.2f} grey levels ({min(means):.2f} to "
            f"{max(means):.2f}), worst pixel {worst}; {each} of processor"
        )


def main(folder: str) -> int:
    """Compare random crops of all photographs of a folder."""
    devices = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
    apart = {f"{device}, {kind}": 0.0 for device in devices for kind in ("float", "uint8")}
    changed, compared = 0, 0
    for crops in batches(folder):
        exact, rounded = by_torch(crops, torch.float32), by_torch(crops, torch.uint8)
        compared += len(crops)
        changed += int((ss.augment.resize_crops(crops).float() != rounded).any((1, 2, 3)).sum())
        for device in devices:
            there = crops.to(device)
            floats, greys = (by_products(there, dtype).cpu() for dtype in (torch.float32, torch.uint8))
            for kind, difference in (("float", floats * 255 - exact), ("uint8", greys.float() - rounded)):
                name = f"{device}, {kind}"
                apart[name] = max(apart[name], float(difference.abs().max()))
    for name, most in apart.items():
        print(f"{name}: {compared:,} crops, at most {most:.2g} grey levels apart")
    for line in reduced(folder):
        print(line)
    print(f"one by one on the CPU: {changed:,} of {compared:,} differ from torch's")
    return int(changed > 0 or any(most > (1 if "uint8" in name else 255e-4) for name, most in apart.items()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
