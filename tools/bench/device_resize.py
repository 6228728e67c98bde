"""What workers gain where the device resizes: batches of crops as they were decoded, against resized ones."""

from __future__ import annotations

import multiprocessing as mp
import os
from pathlib import Path
from typing import Any

from bench.data import BATCH, WORKERS, Corpus
from bench.harness import Benchmark, Contender
from bench.race.epochs import COOL_DOWN, WARM_UP, one_thread
from bench.race.processes import SIZE

TEXT = f"""\
Photographs to random crops for {SIZE} × {SIZE} pixels, flipped at random, in batches of {BATCH}, shuffled, made by
{WORKERS} worker processes of one thread each; from addressable shards and from files as they were. Workers either
resize, antialiased, or leave that to the device: then a batch is `ss.Crops`, and what the device does is not part of
the figure, for here is none. Images for each second of processor time that the workers took, since that is what they
save; of one epoch without its first {WARM_UP} and last {COOL_DOWN} batches. All files are in the page cache. It is
checked that every epoch holds every photograph once, by label, and that a batch, resized, has the same pixels.
"""


def benchmark(corpus: Corpus, stores: dict[str, Path]) -> Benchmark:
    """The benchmark, on shards by what was made of the JPEG files in them."""
    told = {"stores": {name: str(store) for name, store in stores.items()}, "count": corpus.count}
    contenders = [
        Contender(f'`resize="{where}"`', "bench.device_resize:measured", {**told, "where": where}, ours=True)
        for where in ("worker", "device")
    ]
    return Benchmark("device-resize", "Resize on the device: what workers gain", TEXT, contenders)


def measured(stores: dict[str, str], where: Any, count: int) -> dict[str, Any]:
    """Images a second of the workers' processor time, of each of the stores, and what the epochs delivered.

    Args:
        stores: The shards.
        where: Who resizes.
        count: Photographs that an epoch has to hold.
    """
    one_thread()
    figures, delivered = {}, {}
    for name, store in stores.items():
        figures[f"{name}, images per CPU second"], delivered[name] = _epoch(store, where, count)
    return {"figures": figures, "delivered": delivered}


def _epoch(store: str, where: Any, count: int) -> tuple[float, list[int]]:
    """Images a CPU second, how many there were of each label, and the sum of the first batch's pixels, resized."""
    import shardstream as ss

    crop = ss.decode.RandomResizedCrop(SIZE, flip=True, resize=where)
    dataset = ss.ShardDataset(store, fields={"jpg": crop, "cls": None}, shuffle=True, batch_size=BATCH)
    loader = ss.Loader(dataset.to_tuple("jpg", "cls"), num_workers=WORKERS, worker_init_fn=one_thread)
    labels: list[int] = []
    stamps: list[float] = []
    total = 0
    for pictures, numbers in loader:
        if not labels:
            total = int(ss.augment.resized(pictures).sum())
        labels += numbers.tolist()
        if len(labels) in (WARM_UP * BATCH, count - COOL_DOWN * BATCH):
            stamps.append(_processor_time())
    if len(labels) != count:
        raise ValueError(f"the epoch held {len(labels)} photographs of {count}")
    images = count - (WARM_UP + COOL_DOWN) * BATCH
    return images / (stamps[1] - stamps[0]), [*(labels.count(label) for label in range(max(labels) + 1)), total]


def _processor_time() -> float:
    """Seconds of processor time that the worker processes have taken."""
    ticks = 0
    for worker in mp.active_children():
        fields = Path(f"/proc/{worker.pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")
