#!/usr/bin/env python3
"""Draw 32 augmented images of a packed dataset with their labels, as training gets them.

    python tools/contact_sheet.py SHARDS OUT.png [--what "crops of 20 photographs"] [--size 160] [--seed 0]

Eight by four images, cropped and flipped as in examples/train.py, with class names beneath (keys if there are no
classes). They are chosen from the first shuffled batches: of each class the images with the most to see, and none that
looks like another. The same dataset and seed give the same picture. Needs the extras `images` and `pillow`.
"""

from __future__ import annotations

import argparse
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

import shardstream as ss

COLUMNS, ROWS = 8, 4
CANDIDATES = 40  # for each tile: in the demo 64 of each class, enough for its dullest photographs
GRID = 32  # composition is judged at 32 x 32, where texture and noise are gone
GAP, MARGIN, CAPTION, TITLE = 12, 28, 26, 44  # pixels
PAPER, INK, PALE = "#faf9f6", "#26251f", "#8a877c"


def font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """Pillow's own font: no file of the system is needed."""
    return ImageFont.load_default(size)


def shortened(text: str, width: int, draw: ImageDraw.ImageDraw, size: int) -> str:
    """``text``, cut where it would be wider than ``width`` pixels."""
    if draw.textlength(text, font(size)) <= width:
        return text
    while text and draw.textlength(f"{text}…", font(size)) > width:
        text = text[:-1]
    return f"{text}…"


def sheet(images: NDArray[np.uint8], captions: list[str], title: str, note: str) -> Image.Image:
    """The sheet. ``images`` are uint8 (B, H, W, 3), as many as ``captions``."""
    size = images.shape[1]
    rows = -(-len(captions) // COLUMNS)
    width = 2 * MARGIN + COLUMNS * size + (COLUMNS - 1) * GAP
    height = 2 * MARGIN + TITLE + rows * (size + CAPTION) + (rows - 1) * GAP
    page = Image.new("RGB", (width, height), PAPER)
    draw = ImageDraw.Draw(page)
    draw.text((MARGIN, MARGIN - 4), title, INK, font(22))
    draw.text((width - MARGIN, MARGIN + 2), note, PALE, font(15), anchor="ra")

    corners = Image.new("L", (size, size), 0)
    ImageDraw.Draw(corners).rounded_rectangle((0, 0, size - 1, size - 1), 8, 255)
    for i, caption in enumerate(captions):
        x = MARGIN + (i % COLUMNS) * (size + GAP)
        y = MARGIN + TITLE + (i // COLUMNS) * (size + CAPTION + GAP)
        page.paste(Image.fromarray(images[i]), (x, y), corners)
        text = shortened(caption, size, draw, 15)
        draw.text((x + size / 2, y + size + 5), text, INK, font(15), anchor="ma")
    return page


def grids(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Images (B, H, W, 3) as float32 (B, GRID, GRID, 3) of 0 to 1, each cell a mean."""
    cells = images.shape[1] // GRID
    cut = images[:, : cells * GRID, : cells * GRID].reshape(len(images), GRID, cells, GRID, cells, 3)
    return np.asarray(cut.mean((2, 4)) / 255, np.float32)


def choose(images: NDArray[np.uint8], labels: list[str], count: int) -> list[int]:
    """Numbers of ``count`` images with much to see that differ: one of each class, then a second one, ..."""
    small = grids(images)
    edges = np.abs(np.diff(small, axis=1))[:, :, :-1].sum(-1) + np.abs(np.diff(small, axis=2))[:, :-1].sum(-1)
    # The root, so that one bright corner does not count as an image full of things; and light with dark.
    value = np.sqrt(edges).mean((1, 2)) * np.sqrt(small.std((1, 2)).mean(1))
    distance = np.full(len(images), 1.0)
    classes = np.array(labels)
    times = dict.fromkeys(labels, 0)
    chosen: list[int] = []
    while len(chosen) < min(count, len(images)):
        fewest = min(times.values())
        open_classes = [label for label, number in times.items() if number == fewest]
        rest = np.where(np.isin(classes, open_classes), value * distance, -1)
        rest[chosen] = -1
        if rest.max() < 0:  # a class has no more images
            times = {label: number for label, number in times.items() if label not in open_classes}
            continue
        best = int(rest.argmax())
        chosen.append(best)
        times[labels[best]] += 1
        for other in (small[best], small[best][:, ::-1]):  # its mirror image is nothing new
            distance = np.minimum(distance, np.abs(small - other).mean((1, 2, 3)))
    return chosen


def main() -> None:
    """Draw the sheet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("out", type=Path)
    parser.add_argument("--what", default="images", help="what the samples are, for the title (default %(default)s)")
    parser.add_argument("--size", type=int, default=160, help="width and height of a tile, in pixels")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    manifest = ss.Manifest.load(args.url)
    tiles = COLUMNS * ROWS
    # Large crops: a tile shows what its class is.
    crop = ss.decode.RandomResizedCrop(args.size, scale=(0.5, 1), flip=True)
    labels = {"cls": None} if "cls" in manifest.fields else {}
    dataset = ss.ShardDataset(
        args.url,
        fields={"image": crop, **labels},
        shuffle=True,
        seed=args.seed,
        batch_size=min(tiles, manifest.samples),
    )
    batches = list(islice(dataset, CANDIDATES))
    images = np.concatenate([batch["image"].permute(0, 2, 3, 1).numpy() for batch in batches])
    captions = [key.rpartition("/")[2] for batch in batches for key in batch["__key__"]]
    if labels and manifest.classes:
        numbers = [number for batch in batches for number in batch["cls"].tolist()]
        captions = [manifest.classes[number].replace("-", " ").replace("_", " ") for number in numbers]
    chosen = choose(images, captions, tiles)
    page = sheet(
        images[chosen],
        [captions[i] for i in chosen],
        f"{len(chosen)} of {manifest.samples:,} {args.what}",
        f"RandomResizedCrop({args.size}, scale=(0.5, 1), flip=True)",
    )
    args.out.parent.mkdir(parents=True, exist_ok=True)
    page.save(args.out)
    print(f"{args.out} shows {len(chosen)} of the images, cropped and flipped at random")


if __name__ == "__main__":
    main()
