"""Train on a Ray cluster: each of Ray's workers is a rank that reads its own part of the data set.

    python examples/ray_train.py run/ --ranks 2

Data and checkpoints lie in run/, which all nodes see. Start it again, with other --ranks too: it goes on where it was.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import ray.train
import torch
from ray.train.torch import TorchTrainer, prepare_model
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


def train(config: dict[str, Any]) -> None:
    """What each rank does; the data set finds rank and ranks by itself."""
    fields = {"image": ss.decode.RandomResizedCrop(SIZE, scale=(0.3, 1), flip=True), "cls": None}
    ds = ss.ShardDataset(config["shards"], fields=fields, shuffle=True)
    loader = ss.Loader(ds, batch_size=BATCH // config["ranks"], num_workers=config["workers"])
    torch.manual_seed(0)
    body = (nn.Conv2d(3, 32, 4, stride=4), nn.GroupNorm(8, 32), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    network = nn.Sequential(*body, nn.Linear(32, 3))
    model = prepare_model(network)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    parts = (("model", network), ("optimizer", optimizer), ("loader", loader))
    if found := ray.train.get_checkpoint():
        with found.as_directory() as folder:
            saved = torch.load(Path(folder, "checkpoint.pt"), map_location="cpu")
        for name, part in parts:
            part.load_state_dict(saved[name])
    while loader.epoch < EPOCHS:
        for step, batch in enumerate(ss.DevicePrefetcher(loader, ray.train.torch.get_device()), 1):
            loss = nn.functional.cross_entropy(model(batch["image"] / 255), batch["cls"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 10 == 0:
                with tempfile.TemporaryDirectory() as folder:
                    torch.save({name: part.state_dict() for name, part in parts}, Path(folder, "checkpoint.pt"))
                    whole = ray.train.Checkpoint(folder) if ray.train.get_context().get_world_rank() == 0 else None
                    ray.train.report({"loss": loss.item(), "epoch": loader.epoch}, checkpoint=whole)


def main() -> None:
    """Make the data set where there is none, train, go on where a run before this one was stopped."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="for the data set and the checkpoints; a run in it goes on")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    shards = args.folder.resolve() / "shards"
    if not (shards / "dataset.json").exists():
        make(shards)
    scale = ray.train.ScalingConfig(num_workers=args.ranks, use_gpu=torch.cuda.is_available())
    run = ray.train.RunConfig(storage_path=str(shards.parent), name="checkpoints")  # the same name: it goes on
    config = vars(args) | {"shards": str(shards)}
    print(TorchTrainer(train, train_loop_config=config, scaling_config=scale, run_config=run).fit().metrics)


if __name__ == "__main__":
    main()
