"""Compares crops of addressable photographs with those of full decodes; see ``tools/drills/crops``."""

from __future__ import annotations

import random
import sys
from collections import Counter
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


def encoded(data: bytes, sampling: str) -> bytes:
    """The photograph with this sampling."""
    if sampling == "as it is":
        return data
    if sampling == "grey":
        return bytes(simplejpeg.encode_jpeg(simplejpeg.decode_jpeg(data, "GRAY"), 90, "GRAY", "Gray"))
    return bytes(simplejpeg.encode_jpeg(simplejpeg.decode_jpeg(data, "RGB"), 90, "RGB", sampling))


def compare(data: bytes, rng: random.Random) -> Counter[str]:
    """What was found in one file."""
    made = make_addressable(data)
    found = Counter({made.kind: 1, "bytes": len(data), "bytes now": len(made.data)})
    found["not restored"] = int(restore(made.data) != data)
    info, file = probe(data), ImageFile(made.data)
    for scale in (1, 2, 4, 8):
        whole = backends.decode_scaled(data, info, scale=scale)
        for _ in range(CROPS):
            height, width = rng.randint(1, whole.shape[0]), rng.randint(1, whole.shape[1])
            box = Box(rng.randint(0, whole.shape[0] - height), rng.randint(0, whole.shape[1] - width), height, width)
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
            found.update(compare(encoded(file.read_bytes(), sampling), rng))
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
