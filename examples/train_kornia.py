"""Augment whole batches with kornia, on the device that trains.

    python examples/train_kornia.py run/

Data and checkpoint lie in run/. Kill it and start it again, with other --workers too: it goes on with the samples left.
Kornia draws from torch's global generator: which samples are left is exact after a resume, how they look is drawn anew.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from kornia.augmentation import AugmentationSequential, RandomAffine, RandomPerspective
from torch import nn

import shardstream as ss

EPOCHS, BATCH, SIZE = 3, 16, 32


def make(shards: Path) -> None:
    """Pack pictures of three classes; `shardstream pack photos/ out/` does it with class folders of yours."""
    rng = np.random.default_rng(0)
    with ss.ShardWriter(shards, fields={"jpg": "jpg", "cls": "int64"}, classes=["red", "green", "blue"]) as writer:
        for number in range(512):
            pixels = rng.integers(0, 90, (48 + number % 16, 64, 3), dtype=np.uint8)
            pixels[8:40, 16:48, number % 3] += 120
            writer.write({"__key__": f"{number}", "jpg": pixels, "cls": number % 3})


def main() -> None:
    """Make the data set where there is none, train, go on where a run before this one was stopped."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="for the data set and the checkpoint; a run in it goes on")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    shards, checkpoint = args.folder / "shards", args.folder / "checkpoint.pt"
    if not (shards / "dataset.json").exists():
        make(shards)
    crop = ss.decode.RandomResizedCrop(SIZE, scale=(0.3, 1), flip=True)
    ds = ss.ShardDataset(shards, fields={"image": crop, "cls": None}, shuffle=True)
    loader = ss.Loader(ds, batch_size=BATCH, num_workers=args.workers)
    module = AugmentationSequential(RandomAffine(10.0), RandomPerspective(0.2))
    normalise = ss.augment.Kornia(module, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    body = (nn.Conv2d(3, 32, 4, stride=4), nn.GroupNorm(8, 32), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    model = nn.Sequential(*body, nn.Linear(32, len(ds.classes or ()))).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    parts = (("model", model), ("optimizer", optimizer), ("loader", loader))
    if checkpoint.exists():
        saved = torch.load(checkpoint, map_location=device)
        for name, part in parts:
            part.load_state_dict(saved[name])
    while loader.epoch < EPOCHS:
        for step, batch in enumerate(ss.DevicePrefetcher(loader, device, transform=normalise), 1):
            loss = nn.functional.cross_entropy(model(batch["image"]), batch["cls"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 10 == 0:
                torch.save({name: part.state_dict() for name, part in parts}, checkpoint.with_suffix(".part"))
                checkpoint.with_suffix(".part").replace(checkpoint)  # there is a whole one at any moment
                print(f"epoch {loader.epoch}  step {step}  loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
