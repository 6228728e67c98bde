"""Train on a table: many columns as one array, in batches of 65,536 rows.

    python examples/tabular.py run/

Data and checkpoint lie in run/. Kill it and start it again, with other --workers too: it goes on with the samples left.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import nn

import shardstream as ss

EPOCHS, BATCH, ROWS, COLUMNS = 2, 65_536, 32 * 65_536, 16


def make(folder: Path) -> None:
    """Write the columns as one array, (rows, columns), and what is to be told of each row; both are read in place."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, COLUMNS)).astype(np.float32)
    y = (np.sin(x[:, 0]) + x[:, 1] * x[:, 2] > 0).astype(np.float32)
    np.savez(folder / "table.npz", x=x, y=y, row=np.arange(ROWS))


def main() -> None:
    """Make the data set where there is none, train, go on where a run before this one was stopped."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="for the data set and the checkpoint; a run in it goes on")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    table, checkpoint = args.folder / "table.npz", args.folder / "checkpoint.pt"
    if not table.exists():
        make(args.folder)
    ds = ss.ShardDataset(table, fields=["x", "y", "row"], shuffle=True)
    loader = ss.Loader(ds, batch_size=BATCH, num_workers=args.workers)
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = nn.Sequential(nn.Linear(COLUMNS, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-2)
    parts = (("model", model), ("optimizer", optimizer), ("loader", loader))
    if checkpoint.exists():
        saved = torch.load(checkpoint, map_location=device)
        for name, part in parts:
            part.load_state_dict(saved[name])
    while loader.epoch < EPOCHS:
        for step, batch in enumerate(ss.DevicePrefetcher(loader, device), 1):
            loss = nn.functional.binary_cross_entropy_with_logits(model(batch["x"])[:, 0], batch["y"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 10 == 0:
                torch.save({name: part.state_dict() for name, part in parts}, checkpoint.with_suffix(".part"))
                checkpoint.with_suffix(".part").replace(checkpoint)  # there is a whole one at any moment
                print(f"epoch {loader.epoch}  step {step}  loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
