"""Train with Lightning, stopped in the middle of an epoch: the loader's state is part of its checkpoints.

    torchrun --nproc-per-node=2 examples/train_lightning.py run/

Data and checkpoints lie in run/. Start it again, with other ranks and --workers too: it goes on with the samples left.
"""

import argparse
import os
from pathlib import Path
from typing import Any

import lightning
import numpy as np
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn

import shardstream as ss

EPOCHS, BATCH, SIZE = 3, 16, 32  # BATCH: samples a step, of all ranks together
RANKS = int(os.environ.get("WORLD_SIZE", "1"))


def make(shards: Path) -> None:
    """Pack pictures of three classes; `shardstream pack photos/ out/` does it with class folders of yours."""
    rng = np.random.default_rng(0)
    with ss.ShardWriter(shards, fields={"jpg": "jpg", "cls": "int64"}, classes=["red", "green", "blue"]) as writer:
        for number in range(512):
            pixels = rng.integers(0, 90, (48 + number % 16, 64, 3), dtype=np.uint8)
            pixels[8:40, 16:48, number % 3] += 120
            writer.write({"__key__": f"{number}", "jpg": pixels, "cls": number % 3})


class Classifier(lightning.LightningModule):
    """A small network with its data."""

    def __init__(self, shards: Path, workers: int) -> None:
        super().__init__()
        self.shards, self.workers = shards, workers
        body = (nn.Conv2d(3, 32, 4, stride=4), nn.GroupNorm(8, 32), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.network = nn.Sequential(*body, nn.Linear(32, 3))

    def prepare_data(self) -> None:
        """Make the data set where there is none; one rank does it."""
        if not (self.shards / "dataset.json").exists():
            make(self.shards)

    def train_dataloader(self) -> ss.Loader:
        """Each rank reads its own part: nothing is to be added by Lightning."""
        fields = {"image": ss.decode.RandomResizedCrop(SIZE, scale=(0.3, 1), flip=True), "cls": None}
        ds = ss.ShardDataset(self.shards, fields=fields, shuffle=True)
        return ss.Loader(ds, batch_size=BATCH // RANKS, num_workers=self.workers)

    def training_step(self, batch: dict[str, Any], number: int) -> torch.Tensor:
        """The loss of a batch."""
        loss = nn.functional.cross_entropy(self.network(batch["image"] / 255), batch["cls"])
        self.log("loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Of all parameters."""
        return torch.optim.AdamW(self.parameters(), lr=2e-3)


def main() -> None:
    """Train, go on where a run before this one was stopped."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="for the data set and the checkpoints; a run in it goes on")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    last = args.folder / "checkpoints" / "last.ckpt"
    keep = ModelCheckpoint(last.parent, every_n_train_steps=10, save_last=True)
    shape: Any = {"devices": int(os.environ.get("LOCAL_WORLD_SIZE", "1")), "strategy": "ddp" if RANKS > 1 else "auto"}
    trainer = lightning.Trainer(max_epochs=EPOCHS, callbacks=[keep], default_root_dir=args.folder, **shape)
    trainer.fit(Classifier(args.folder / "shards", args.workers), ckpt_path=last if last.exists() else None)


if __name__ == "__main__":
    main()
