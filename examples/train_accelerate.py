"""Train with Accelerate, which hands the loader on as it is, and saves its state with the model's.

    accelerate launch --num_processes=2 examples/train_accelerate.py run/

Data and checkpoints lie in run/. Start it again, with other ranks and --workers too: it goes on with the samples left.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator
from torch import nn

import shardstream as ss

EPOCHS, BATCH, SIZE = 3, 16, 32  # BATCH: samples a step, of all ranks together


def make(shards: Path) -> None:
    """Pack pictures of three classes; `shardstream pack photos/ out/` does it with class folders of yours."""
    rng = np.random.default_rng(0)
    with ss.ShardWriter(shards, fields={"jpg": "jpg", "cls": "int64"}, classes=["red", "green", "blue"]) as writer:
        for number in range(512):
            pixels = rng.integers(0, 90, (48 + number % 16, 64, 3), dtype=np.uint8)
            pixels[8:40, 16:48, number % 3] += 120
            writer.write({"__key__": f"{number}", "jpg": pixels, "cls": number % 3})


def main() -> None:
    """Train, go on where a run before this one was stopped."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="for the data set and the checkpoints; a run in it goes on")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    accelerator = Accelerator(cpu=not torch.cuda.is_available())
    shards, unfinished = args.folder / "shards", args.folder / "unfinished"
    with accelerator.main_process_first():
        if not (shards / "dataset.json").exists():
            make(shards)
    fields = {"image": ss.decode.RandomResizedCrop(SIZE, scale=(0.3, 1), flip=True), "cls": None}
    ds = ss.ShardDataset(shards, fields=fields, shuffle=True)
    torch.manual_seed(0)
    body = (nn.Conv2d(3, 32, 4, stride=4), nn.GroupNorm(8, 32), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    model = nn.Sequential(*body, nn.Linear(32, len(ds.classes or ())))
    optimizer, step = torch.optim.AdamW(model.parameters(), lr=2e-3), 0
    loader = ss.Loader(ds, batch_size=BATCH // accelerator.num_processes, num_workers=args.workers)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for checkpoint in sorted(args.folder.glob("step-*"))[-1:]:  # the last one
        accelerator.load_state(str(checkpoint))
        step = int(checkpoint.name.removeprefix("step-"))
    while loader.epoch < EPOCHS:
        for batch in ss.DevicePrefetcher(loader, accelerator.device):
            loss = nn.functional.cross_entropy(model(batch["image"] / 255), batch["cls"])
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            if (step := step + 1) % 10 == 0:
                accelerator.save_state(str(unfinished))
                accelerator.wait_for_everyone()
                if accelerator.is_main_process:
                    unfinished.rename(args.folder / f"step-{step:06}")  # a whole one
                accelerator.print(f"epoch {loader.epoch}  step {step}  loss {loss.item():.3f}")
    accelerator.end_training()


if __name__ == "__main__":
    main()
