"""Train on texts packed into blocks of one length: a block is a sample, so that a run resumes at any block.

    python examples/text_packing.py run/

Data and checkpoint lie in run/. Kill it and start it again, with other --workers too: it goes on with the samples left.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

import shardstream as ss

EPOCHS, BATCH, LENGTH, END = 3, 16, 64, 256


def blocks() -> Iterator[NDArray[np.uint16]]:
    """One text after another, each with its end, cut into blocks of ``LENGTH`` and the token after."""
    left = np.zeros(0, np.uint16)
    for path in sorted(Path(argparse.__file__).parent.glob("*.py"))[:40]:  # here: Python's own modules
        tokens = [*path.read_bytes()[:3000], END]  # bytes; yours come from a tokenizer
        left = np.concatenate([left, np.array(tokens, np.uint16)])
        whole = (len(left) - 1) // LENGTH
        yield from (left[number * LENGTH : (number + 1) * LENGTH + 1] for number in range(whole))
        left = left[whole * LENGTH :]


def make(shards: Path) -> None:
    """Write the blocks: all have one shape, so a batch of them is read at once."""
    with ss.ShardWriter(shards, fields={"tokens": f"array:uint16:{LENGTH + 1}"}, format="record") as writer:
        for number, block in zip(range(512), blocks(), strict=False):  # here 512 of them
            writer.write({"__key__": f"{number}", "tokens": block})


def main() -> None:
    """Make the data set where there is none, train, go on where a run before this one was stopped."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="for the data set and the checkpoint; a run in it goes on")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    shards, checkpoint = args.folder / "shards", args.folder / "checkpoint.pt"
    if not (shards / "dataset.json").exists():
        make(shards)
    ds = ss.ShardDataset(shards, fields={"tokens": ss.decode.Array("int64")}, shuffle=True)
    loader = ss.Loader(ds, batch_size=BATCH, num_workers=args.workers)
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0, batch_first=True)
    model = nn.ModuleDict({"embed": nn.Embedding(257, 64), "layer": layer, "head": nn.Linear(64, 257)}).to(device)
    places = nn.functional.one_hot(torch.arange(LENGTH, device=device), 64).float()
    mask = nn.Transformer.generate_square_subsequent_mask(LENGTH).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    parts = (("model", model), ("optimizer", optimizer), ("loader", loader))
    if checkpoint.exists():
        saved = torch.load(checkpoint, map_location=device)
        for name, part in parts:
            part.load_state_dict(saved[name])
    while loader.epoch < EPOCHS:
        for step, batch in enumerate(ss.DevicePrefetcher(loader, device), 1):
            tokens = batch["tokens"]
            hidden = model["layer"](model["embed"](tokens[:, :-1]) + places, src_mask=mask, is_causal=True)
            loss = nn.functional.cross_entropy(model["head"](hidden).flatten(0, 1), tokens[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 10 == 0:
                torch.save({name: part.state_dict() for name, part in parts}, checkpoint.with_suffix(".part"))
                checkpoint.with_suffix(".part").replace(checkpoint)  # there is a whole one at any moment
                print(f"epoch {loader.epoch}  step {step}  loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
