"""Segment pictures: the mask gets the crop and the flip of its picture.

    python examples/segmentation.py run/

Data and checkpoint lie in run/. Kill it and start it again, with other --workers too: it goes on with the samples left.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import nn

import shardstream as ss

EPOCHS, BATCH, SIZE = 3, 16, 48


def make(shards: Path) -> None:
    """Pack pictures with their masks: 0 where there is nothing, 1 and 2 for the two kinds of things."""
    rng = np.random.default_rng(0)
    with ss.ShardWriter(shards, fields={"jpg": "jpg", "png": "png"}) as writer:
        for number in range(512):
            picture = Image.fromarray(rng.integers(0, 90, (64, 80, 3), dtype=np.uint8))
            mask = Image.new("L", picture.size)
            for kind, (shape, colour) in enumerate((("ellipse", "orange"), ("rectangle", "teal")), 1):
                x, y = int(rng.integers(50)), int(rng.integers(40))
                for canvas, fill in ((picture, colour), (mask, kind)):
                    getattr(ImageDraw.Draw(canvas), shape)((x, y, x + 22, y + 18), fill=fill)
            writer.write({"__key__": f"{number}", "jpg": picture, "png": mask})


def main() -> None:
    """Make the data set where there is none, train, go on where a run before this one was stopped."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="for the data set and the checkpoint; a run in it goes on")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    shards, checkpoint = args.folder / "shards", args.folder / "checkpoint.pt"
    if not (shards / "dataset.json").exists():
        make(shards)
    crop = ss.decode.RandomResizedCrop(SIZE, scale=(0.5, 1), flip=True)
    fields = {"jpg": crop, "mask": ss.decode.Mask(source="png", like="jpg", dtype="int64")}
    loader = ss.Loader(ss.ShardDataset(shards, fields=fields, shuffle=True), batch_size=BATCH, num_workers=args.workers)
    augment = ss.augment.ImageBatch((0.5, 0.5, 0.5), (0.25, 0.25, 0.25))
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    body = (nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU())
    model = nn.Sequential(*body, nn.Conv2d(32, 3, 1)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    parts = (("model", model), ("optimizer", optimizer), ("loader", loader))
    if checkpoint.exists():
        saved = torch.load(checkpoint, map_location=device)
        for name, part in parts:
            part.load_state_dict(saved[name])
    while loader.epoch < EPOCHS:
        for step, batch in enumerate(ss.DevicePrefetcher(loader, device, transform=augment), 1):
            loss = nn.functional.cross_entropy(model(batch["jpg"]), batch["mask"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 10 == 0:
                torch.save({name: part.state_dict() for name, part in parts}, checkpoint.with_suffix(".part"))
                checkpoint.with_suffix(".part").replace(checkpoint)  # there is a whole one at any moment
                print(f"epoch {loader.epoch}  step {step}  loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
