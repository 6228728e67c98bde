"""Match pictures and captions, as CLIP does: a picture, a text and a JSON object in each sample.

    python examples/captions.py run/

Data and checkpoint lie in run/. Kill it and start it again, with other --workers too: it goes on with the samples left.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import nn

import shardstream as ss

EPOCHS, BATCH, SIZE, WORDS = 3, 16, 32, 12
COLOURS, SHAPES = ("red", "green", "blue", "white"), ("rectangle", "ellipse")


def make(shards: Path) -> None:
    """Pack pictures with captions, and what is known of each."""
    rng = np.random.default_rng(0)
    with ss.ShardWriter(shards, fields={"jpg": "jpg", "txt": "str", "json": "json"}) as writer:
        for number in range(512):
            colour, shape, size = COLOURS[number % 4], SHAPES[number // 4 % 2], int(rng.integers(16, 40))
            picture = Image.new("RGB", (48, 48))
            getattr(ImageDraw.Draw(picture), shape)((4, 4, 4 + size, 4 + size), fill=colour)
            text, known = f"a {('small', 'large')[size > 28]} {colour} {shape}", {"similarity": 0.3 + number % 2 / 10}
            writer.write({"__key__": f"{number}", "jpg": picture, "txt": text, "json": known})


def tokenize(text: str) -> list[int]:
    """A number of each word, not 0; yours is a tokenizer's ``encode``."""
    return [1 + sum(map(ord, word)) % 99 for word in text.split()]


def main() -> None:
    """Make the data set where there is none, train, go on where a run before this one was stopped."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="for the data set and the checkpoint; a run in it goes on")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    shards, checkpoint = args.folder / "shards", args.folder / "checkpoint.pt"
    if not (shards / "dataset.json").exists():
        make(shards)
    tokens = ss.decode.Text(tokenize, source="txt", pad_to=WORDS)
    fields = {"jpg": ss.decode.RandomResizedCrop(SIZE, scale=(0.6, 1)), "tokens": tokens, "json": None}
    loader = ss.Loader(ss.ShardDataset(shards, fields=fields, shuffle=True), batch_size=BATCH, num_workers=args.workers)
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    image = nn.Sequential(nn.Conv2d(3, 32, 8, stride=8), nn.ReLU(), nn.Flatten(), nn.Linear(32 * (SIZE // 8) ** 2, 32))
    model = nn.ModuleDict({"image": image, "text": nn.EmbeddingBag(100, 32, padding_idx=0)}).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    parts = (("model", model), ("optimizer", optimizer), ("loader", loader))
    if checkpoint.exists():
        saved = torch.load(checkpoint, map_location=device)
        for name, part in parts:
            part.load_state_dict(saved[name])
    while loader.epoch < EPOCHS:
        for step, batch in enumerate(ss.DevicePrefetcher(loader, device), 1):
            same = (batch["tokens"][:, None] == batch["tokens"]).all(-1).float()  # equal captions match, too
            weight = torch.tensor([known["similarity"] for known in batch["json"]], device=device)
            images, texts = model["image"](batch["jpg"] / 255), model["text"](batch["tokens"])
            alike = 10 * nn.functional.normalize(images) @ nn.functional.normalize(texts).T
            loss = weight @ nn.functional.cross_entropy(alike, same / same.sum(1), reduction="none") / weight.sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 10 == 0:
                torch.save({name: part.state_dict() for name, part in parts}, checkpoint.with_suffix(".part"))
                checkpoint.with_suffix(".part").replace(checkpoint)  # there is a whole one at any moment
                print(f"epoch {loader.epoch}  step {step}  loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
