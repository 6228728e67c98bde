"""Compares crops of addressable photographs with those of full decodes; see ``tools/drills/crops``."""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import simplejpeg

from shardstream.images import backends
from shardstream.images.geometry import Box
from shardstream.images.header import probe
from shardstream.images.jpeg.transcode import make_addressable, restore
from shardstream.images.region import ImageFile

SAMPLINGS = ("as it is", "444", "422", "420", "440", "411", "grey")
CROPS = 8


def encoded(data: bytes, sampling: str, rng: random.Random) -> bytes:
    """The photograph with this sampling, some columns narrower, so that last segments are of all widths."""
    if sampling == "as it is":
        return data
    colours = "GRAY" if sampling == "grey" else "RGB"
    pixels = simplejpeg.decode_jpeg(data, colours)
    pixels = np.ascontiguousarray(pixels[:, : pixels.shape[1] - rng.randrange(64)])
    return bytes(simplejpeg.encode_jpeg(pixels, 90, colours, "Gray" if sampling == "grey" else sampling))


def boxes(height: int, width: int, rng: random.Random) -> Iterator[Box]:
    """Rectangles of any place and size, and slim ones at both edges."""
    for _ in range(CROPS - 2):
        high, wide = rng.randint(1, height), rng.randint(1, width)
        yield Box(rng.randint(0, height - high), rng.randint(0, width - wide), high, wide)
    for right in (False, True):
        high, wide = rng.randint(1, height), rng.randint(1, min(4, width))
        yield Box(rng.randint(0, height - high), width - wide if right else 0, high, wide)


def compare(data: bytes, rng: random.Random) -> Counter[str]:
    """What was found in one file."""
    made = make_addressable(data)
    found = Counter({made.kind: 1, "bytes": len(data), "bytes now": len(made.data)})
    found["not restored"] = int(restore(made.data) != data)
    info, file = probe(data), ImageFile(made.data)
    for scale in (1, 2, 4, 8):
        whole = backends.decode_scaled(data, info, scale=scale)
        for box in boxes(whole.shape[0], whole.shape[1], rng):
            region = file.decode(box, scale=scale)
            at = box._replace(top=box.top - region.origin[0], left=box.left - region.origin[1])
            found["crops"] += 1
            found["crops that differ"] += int(not np.array_equal(region.pixels[at.slices()], whole[box.slices()]))
    return found


def main(folder: str) -> int:
    """Compare all photographs of a folder, in each kind of sampling."""
    files = sorted(Path(folder).rglob("*.jpg"))
    rng = random.Random(0)
    bad = 0
    for sampling in SAMPLINGS:
        found: Counter[str] = Counter()
        for file in files:
            found.update(compare(encoded(file.read_bytes(), sampling, rng), rng))
        growth = found.pop("bytes now") / found.pop("bytes") - 1
        bad += found["not restored"] + found["crops that differ"]
        print(
            f"{sampling:>8}: {growth:+.2%} bytes, " + ", ".join(f"{n:,} {what}" for what, n in found.items()),
            flush=True,
        )
    print("all equal" if not bad else f"{bad} differ")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
