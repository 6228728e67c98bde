"""Tell sounds apart: of recordings of all lengths a window each, another one in every epoch.

    python examples/audio.py run/

Data and checkpoint lie in run/. Kill it and start it again, with other --workers too: it goes on with the samples left.
"""

import argparse
import io
import wave
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

import shardstream as ss

EPOCHS, BATCH, RATE = 3, 16, 4000


def make(folder: Path) -> None:
    """Pack class folders of recordings, one second long and more; put your own there."""
    rng = np.random.default_rng(0)
    for number in range(512):
        seconds = np.arange(RATE + rng.integers(RATE)) / RATE
        sound = np.sin(2 * np.pi * (300, 900)[number % 2] * seconds) + rng.normal(size=len(seconds))
        path = folder / "sounds" / ("low", "high")[number % 2] / f"{number}.wav"
        path.parent.mkdir(parents=True, exist_ok=True)
        with wave.open(str(path), "wb") as file:
            file.setparams((1, 2, RATE, 0, "NONE", "none"))
            file.writeframes((sound * 6000).clip(-32768, 32767).astype("<i2").tobytes())
    ss.pack(folder / "sounds", folder / "shards", workers=0)


def window(data: bytes, rng: np.random.Generator) -> NDArray[np.float32]:
    """A second of a recording; ``rng`` is the sample's own, the same after a resume. soundfile reads other formats."""
    with wave.open(io.BytesIO(data)) as file:
        sound = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    start = rng.integers(len(sound) - RATE + 1)
    return sound[start : start + RATE].astype(np.float32) / np.float32(32768)


def main() -> None:
    """Make the data set where there is none, train, go on where a run before this one was stopped."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="for the data set and the checkpoint; a run in it goes on")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    shards, checkpoint = args.folder / "shards", args.folder / "checkpoint.pt"
    if not (shards / "dataset.json").exists():
        make(args.folder)
    fields = {"sound": ss.decode.Call(window, source="wav"), "cls": None}
    ds = ss.ShardDataset(shards, fields=fields, shuffle=True)
    loader = ss.Loader(ds, batch_size=BATCH, num_workers=args.workers)
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    body = (nn.Conv1d(1, 32, 64, stride=16), nn.ReLU(), nn.Conv1d(32, 32, 8, stride=4), nn.ReLU())
    model = nn.Sequential(*body, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(32, len(ds.classes or ()))).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    parts = (("model", model), ("optimizer", optimizer), ("loader", loader))
    if checkpoint.exists():
        saved = torch.load(checkpoint, map_location=device)
        for name, part in parts:
            part.load_state_dict(saved[name])
    while loader.epoch < EPOCHS:
        for step, batch in enumerate(ss.DevicePrefetcher(loader, device), 1):
            loss = nn.functional.cross_entropy(model(batch["sound"][:, None]), batch["cls"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 10 == 0:
                torch.save({name: part.state_dict() for name, part in parts}, checkpoint.with_suffix(".part"))
                checkpoint.with_suffix(".part").replace(checkpoint)  # there is a whole one at any moment
                print(f"epoch {loader.epoch}  step {step}  loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
