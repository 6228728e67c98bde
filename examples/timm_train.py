"""Train a model of timm with its optimizers and schedules; the batches are ours.

    python examples/timm_train.py run/

Data and checkpoint lie in run/. Kill it and start it again, with other --workers too: it goes on with the samples left.
"""

import argparse
from pathlib import Path

import numpy as np
import timm
import torch
from timm.loss import LabelSmoothingCrossEntropy
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler

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
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = timm.create_model("test_resnet", num_classes=len(ds.classes or ())).to(device)
    mean, std = model.pretrained_cfg["mean"], model.pretrained_cfg["std"]
    augment = ss.augment.ImageBatch(mean, std, color_jitter=0.4, erase=0.25)  # timm's, for every sample of its own
    optimizer = create_optimizer_v2(model, "adamw", lr=2e-3, weight_decay=0.01)
    schedule = CosineLRScheduler(optimizer, t_initial=EPOCHS * len(loader), warmup_t=10, t_in_epochs=False)
    criterion, done = LabelSmoothingCrossEntropy(0.1), 0
    parts = (("model", model), ("optimizer", optimizer), ("schedule", schedule), ("loader", loader))
    if checkpoint.exists():
        saved = torch.load(checkpoint, map_location=device)
        done = saved["step"]
        for name, part in parts:
            part.load_state_dict(saved[name])
    while loader.epoch < EPOCHS:
        for batch in ss.DevicePrefetcher(loader, device, transform=augment):
            loss = criterion(model(batch["image"]), batch["cls"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            done += 1
            schedule.step_update(done)
            if done % 10 == 0:
                states = {name: part.state_dict() for name, part in parts}
                torch.save(states | {"step": done}, checkpoint.with_suffix(".part"))
                checkpoint.with_suffix(".part").replace(checkpoint)  # there is a whole one at any moment
                print(f"epoch {loader.epoch}  step {done}  loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
