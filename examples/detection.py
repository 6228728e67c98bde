"""Find things in pictures: boxes follow the crop, and go where it does not show them.

    python examples/detection.py run/

Data and checkpoint lie in run/. Kill it and start it again, with other --workers too: it goes on with the samples left.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import Tensor, nn

import shardstream as ss

EPOCHS, BATCH, SIZE, CELL = 3, 16, 64, 8
CROP = ss.decode.RandomResizedCrop(SIZE, scale=(0.5, 1), flip=True)


def make(shards: Path) -> None:
    """Pack pictures with boxes, (x0, y0, x1, y1) in pixels; `ss.pack` reads COCO, YOLO and JSON lines."""
    rng = np.random.default_rng(0)
    with ss.ShardWriter(shards, fields={"jpg": "jpg", "boxes": "array", "labels": "array"}) as writer:
        for number in range(512):
            picture = Image.fromarray(rng.integers(0, 90, (72, 96, 3), dtype=np.uint8))
            corners, labels = rng.integers(0, 52, (number % 4, 2)), rng.integers(0, 2, number % 4)
            boxes = np.hstack([corners, corners + 18]).astype(np.float32)
            for box, label in zip(boxes, labels, strict=True):
                ImageDraw.Draw(picture).rectangle(tuple(box), fill=("orange", "teal")[label])
            writer.write({"__key__": f"{number}", "jpg": picture, "boxes": boxes, "labels": labels})


def targets(boxes: ss.Ragged, labels: ss.Ragged, cells: Tensor) -> tuple[Tensor, Tensor]:
    """For each cell of the model's output the class (2: nothing), and the box of what has its middle there."""
    kinds, where = torch.full_like(cells[:, 0], 2, dtype=torch.int64), torch.zeros_like(cells[:, :4])
    for number, box in enumerate(boxes):
        x, y = ((box[:, :2] + box[:, 2:]) / 2 / CELL).long().clamp(0, SIZE // CELL - 1).T
        kinds[number, y, x], where[number, :, y, x] = labels[number], box.T / SIZE
    return kinds, where


def main() -> None:
    """Make the data set where there is none, train, go on where a run before this one was stopped."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="for the data set and the checkpoint; a run in it goes on")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    shards, checkpoint = args.folder / "shards", args.folder / "checkpoint.pt"
    if not (shards / "dataset.json").exists():
        make(shards)
    fields = {"jpg": CROP, "boxes": ss.decode.Boxes(like="jpg"), "labels": ss.decode.PerBox(like="boxes")}
    loader = ss.Loader(ss.ShardDataset(shards, fields=fields, shuffle=True), batch_size=BATCH, num_workers=args.workers)
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = nn.Sequential(nn.Conv2d(3, 64, CELL, stride=CELL), nn.ReLU(), nn.Conv2d(64, 7, 3, padding=1)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    parts = (("model", model), ("optimizer", optimizer), ("loader", loader))
    if checkpoint.exists():
        saved = torch.load(checkpoint, map_location=device)
        for name, part in parts:
            part.load_state_dict(saved[name])
    while loader.epoch < EPOCHS:
        for step, batch in enumerate(ss.DevicePrefetcher(loader, device), 1):
            out = model(batch["jpg"] / 255)
            kinds, where = targets(batch["boxes"], batch["labels"], out)
            off = (out[:, :4] - where).abs() * (kinds != 2)[:, None]
            loss = nn.functional.cross_entropy(out[:, 4:], kinds) + off.mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 10 == 0:
                torch.save({name: part.state_dict() for name, part in parts}, checkpoint.with_suffix(".part"))
                checkpoint.with_suffix(".part").replace(checkpoint)  # there is a whole one at any moment
                print(f"epoch {loader.epoch}  step {step}  loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
