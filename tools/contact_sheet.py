#!/usr/bin/env python3
"""Draw one augmented batch of a packed data set, with its labels, as training gets it.

    python tools/contact_sheet.py SHARDS OUT.png [--size 160] [--seed 0]

Eight by four samples of the first shuffled batch, cropped and flipped as in examples/train.py, class names beneath
(keys where there are no classes). Needs the extras `images` and `pillow`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

import shardstream as ss

COLUMNS, ROWS = 8, 4
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


def main() -> None:
    """Draw the first batch of a data set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("out", type=Path)
    parser.add_argument("--size", type=int, default=160, help="width and height of a tile, in pixels")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    manifest = ss.Manifest.load(args.url)
    crop = ss.decode.RandomResizedCrop(args.size, flip=True, source="jpg;png;webp")
    labels = {"cls": None} if "cls" in manifest.fields else {}
    dataset = ss.ShardDataset(
        args.url,
        fields={"jpg": crop, **labels},
        shuffle=True,
        seed=args.seed,
        batch_size=min(COLUMNS * ROWS, manifest.samples),
    )
    batch = dataset.peek()
    captions = [key.rpartition("/")[2] for key in batch["__key__"]]
    if labels and manifest.classes:
        captions = [manifest.classes[label].replace("-", " ").replace("_", " ") for label in batch["cls"].tolist()]
    page = sheet(
        batch["jpg"].permute(0, 2, 3, 1).numpy(),
        captions,
        f"one augmented batch: {len(captions)} of {manifest.samples:,} photographs",
        f"RandomResizedCrop({args.size}, flip=True)",
    )
    args.out.parent.mkdir(parents=True, exist_ok=True)
    page.save(args.out)
    print(f"{args.out}: {page.width} × {page.height} pixels")


if __name__ == "__main__":
    main()
