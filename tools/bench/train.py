"""Training pipeline: photographs to batches of random crops, against torchvision's ``ImageFolder`` and WebDataset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.data import BATCH, WORKERS, Corpus
from bench.harness import Benchmark, Contender
from bench.race.epochs import COOL_DOWN, WARM_UP
from bench.race.processes import SIZE

TEXT = f"""\
Photographs to random resized crops of {SIZE} × {SIZE} pixels, antialiased, flipped at random, as uint8 batches of
{BATCH}, shuffled, made by {WORKERS} worker processes of one thread each. One epoch, of which the first {WARM_UP}
and last {COOL_DOWN} batches are not counted. All files are in the page cache. Every epoch is checked to hold
every photograph once, by label, with the same shape, type and mean brightness. The peers decode with Pillow; in their
best configurations, and with more of them beside, they stand in [the race](#the-race).
"""


def benchmark(corpus: Corpus, theirs: Path, ours: Path) -> Benchmark:
    """The benchmark."""
    told: dict[str, Any] = {"work": "crop", "count": corpus.count}
    pillow, processes = {**told, "decoder": "pillow"}, "bench.race.processes"
    contenders = [
        Contender(
            "`ImageFolder` + torchvision",
            f"{processes}:with_torchvision",
            {**pillow, "store": str(corpus.folder)},
            needs="torchvision",
        ),
        Contender(
            "WebDataset + torchvision",
            f"{processes}:with_webdataset",
            {**pillow, "store": str(theirs)},
            needs="webdataset",
        ),
        Contender("shardstream", "bench.race.ours:photographs", {**told, "store": str(ours)}, ours=True, bar=1.3),
    ]
    return Benchmark("train", "Training pipeline", TEXT, contenders)
