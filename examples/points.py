"""Classify clouds of points, of which each has another number: rows of different lengths side by side.

    python examples/points.py run/

Data and checkpoint lie in run/. Kill it and start it again, with other --workers too: it goes on with the samples left.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import nn

import shardstream as ss

EPOCHS, BATCH = 3, 16


def make(shards: Path) -> None:
    """Pack clouds of 100 to 400 points (x, y, z), on a sphere or in a cube."""
    rng = np.random.default_rng(0)
    with ss.ShardWriter(shards, fields={"points": "array", "cls": "int64"}, classes=["sphere", "cube"]) as writer:
        for number in range(512):
            points = rng.uniform(-1, 1, (int(rng.integers(100, 400)), 3)).astype(np.float32)
            if number % 2 == 0:
                points /= np.linalg.norm(points, axis=1, keepdims=True)
            writer.write({"__key__": f"{number}", "points": points, "cls": number % 2})


class PointNet(nn.Module):
    """The same layers for every point, then the largest of each cloud."""

    def __init__(self) -> None:
        super().__init__()
        self.each = nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 64))
        self.head = nn.Linear(64, 2)

    def forward(self, clouds: ss.Ragged) -> torch.Tensor:
        """Logits (B, 2). ``clouds.values`` are the points of all clouds, one after another: nothing is filled up."""
        each = self.each(clouds.values.reshape(-1, 3))
        logits: torch.Tensor = self.head(torch.segment_reduce(each, "max", lengths=clouds.lengths // 3))
        return logits


def main() -> None:
    """Make the data set where there is none, train, go on where a run before this one was stopped."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="for the data set and the checkpoint; a run in it goes on")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    shards, checkpoint = args.folder / "shards", args.folder / "checkpoint.pt"
    if not (shards / "dataset.json").exists():
        make(shards)
    ds = ss.ShardDataset(shards, fields={"points": None, "cls": None}, shuffle=True)
    loader = ss.Loader(ds, batch_size=BATCH, num_workers=args.workers)
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = PointNet().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    parts = (("model", model), ("optimizer", optimizer), ("loader", loader))
    if checkpoint.exists():
        saved = torch.load(checkpoint, map_location=device)
        for name, part in parts:
            part.load_state_dict(saved[name])
    while loader.epoch < EPOCHS:
        for step, batch in enumerate(ss.DevicePrefetcher(loader, device), 1):
            loss = nn.functional.cross_entropy(model(batch["points"]), batch["cls"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 10 == 0:
                torch.save({name: part.state_dict() for name, part in parts}, checkpoint.with_suffix(".part"))
                checkpoint.with_suffix(".part").replace(checkpoint)  # there is a whole one at any moment
                print(f"epoch {loader.epoch}  step {step}  loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
