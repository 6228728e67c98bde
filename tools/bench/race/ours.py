"""shardstream as a contender."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from bench.data import BATCH, WORKERS, Corpus, list_of
from bench.race.corpora import SHAPES, Kind, small
from bench.race.epochs import one_thread, repeated, steady
from bench.race.processes import RESIZED, SIZE

JPEG: dict[str, Any] = {"addressable": "addressable", "kept": "keep"}  # by the names of our stores


def pack(corpus: Corpus, out: Path, jpeg: str) -> Path:
    """Fresh shards of photographs, by the code as it is now."""
    import shardstream as ss

    shutil.rmtree(out, ignore_errors=True)
    ss.pack(list_of(corpus.folder), out, shard_size="48MB", workers=WORKERS, images=ss.ImageOptions(jpeg=JPEG[jpeg]))
    return out


def write_small(out: Path, kind: Kind, count: int) -> Path:
    """Fresh record shards of small samples, of which it is said that all are of one shape."""
    import shardstream as ss

    shutil.rmtree(out, ignore_errors=True)
    shape, dtype = SHAPES[kind]
    fields = {"x": f"array:{dtype.name}:{','.join(map(str, shape))}"}
    with ss.ShardWriter(out, format="record", shard_size="32MB", fields=fields) as writer:
        for number in range(count):
            writer.write({"__key__": f"{number:08d}", "x": small(kind, number)})
    return out


def photographs(store: str, work: str, count: int, batch: int = BATCH, *, fast: bool = False) -> dict[str, Any]:
    """With the defaults.

    Args:
        store: The shards.
        work: "crop" for RandomResizedCrop and flip, "center" for Resize and CenterCrop.
        count: Photographs.
        batch: Size of the batches.
        fast: The fast DCT, and a resize that is not antialiased.
    """
    import shardstream as ss

    if work == "crop":
        crop: Any = ss.decode.RandomResizedCrop(SIZE, flip=True, fast=fast)
    else:
        crop = ss.decode.CenterCrop(SIZE, resize=RESIZED, fast=fast)
    dataset = ss.ShardDataset(store, fields={"jpg": crop, "cls": None}, shuffle=work == "crop", batch_size=batch)
    loader = ss.Loader(dataset.to_tuple("jpg", "cls"), num_workers=WORKERS, worker_init_fn=one_thread)
    return steady(loader, count, batch=batch)


def small_samples(store: str, count: int, workers: int) -> dict[str, Any]:
    """Small samples, shuffled, in this process or by workers."""
    import shardstream as ss

    dataset = ss.ShardDataset(store, fields=["x"], shuffle=True, batch_size=BATCH).to_tuple("x")
    loader = ss.Loader(dataset, num_workers=workers)
    return repeated(lambda: (batch for (batch,) in loader), count)
