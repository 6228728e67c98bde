"""Single files in place, beside those who open each; and packing other formats, beside packing the files."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from torch.utils.data import DataLoader

from bench.data import BATCH, WORKERS
from bench.foreign import pairs
from bench.foreign.corpora import Kind
from bench.foreign.stores import FIELD
from bench.race.epochs import one_thread
from bench.race.processes import recipe
from bench.race.raw import joined
from bench.stream.bare import get
from bench.stream.records import send
from bench.stream.servers import BUCKET, options, s3, slowed

LATENCY = 0.05  # seconds of each request
AT_ONCE = 128  # requests of a process
EPOCHS = 3  # after one that is not counted
PACKED, FROM_FILES = "packed/s", "from files/s"
PREFIX = "photographs/"


def beside(folder: str, work: str, turns: int = pairs.TURNS) -> dict[str, Any]:
    """A folder of class folders, beside torchvision's ``ImageFolder``, both with new workers each epoch.

    Args:
        folder: The folder.
        work: "bytes", or "crop" for random crops.
        turns: How often each runs, after a turn that is not counted.
    """
    from torchvision.datasets import ImageFolder

    dataset = ImageFolder(folder, recipe("crop", "pillow") if work == "crop" else None, loader=_read)
    fixed: dict[str, Any] = {"batch_size": BATCH, "num_workers": WORKERS, "worker_init_fn": one_thread}
    fixed |= {"shuffle": True, "drop_last": True, "collate_fn": None if work == "crop" else joined}
    theirs = DataLoader(dataset, **fixed)
    one_thread()
    return pairs.alternating([pairs.loader(folder, ["jpg", "cls"], work), theirs], turns)


def _read(path: str) -> bytes:
    return Path(path).read_bytes()


@contextmanager
def far(folder: Path) -> Iterator[str]:
    """A store with the files of a folder, each of whose answers takes `LATENCY`; gives its endpoint."""
    with s3() as url, slowed(url, LATENCY) as slow:
        send(folder, url, PREFIX.rstrip("/"), at_once=AT_ONCE)
        yield slow.url


def streamed(endpoint: str, count: int) -> dict[str, Any]:
    """Their bytes, shuffled, in whole batches, of epochs after the first."""
    import shardstream as ss

    url, access = f"s3://{BUCKET}/{PREFIX}", options(endpoint)
    fields = {"jpg": "bytes", "cls": None}
    dataset = ss.ShardDataset(url, storage_options=access, fields=fields, shuffle=True, batch_size=BATCH, tail="exact")
    loader = ss.Loader(dataset.to_tuple("jpg", "cls"), num_workers=WORKERS, persistent_workers=True)
    seconds = []
    for _ in range(1 + EPOCHS):
        begun = time.perf_counter()
        found = sum(len(labels) for _, labels in loader)
        seconds.append(time.perf_counter() - begun)
        if found != count:
            raise ValueError(f"{found} samples were delivered of {count}")
    return {"figures": {"records/s": count / median(seconds[1:])}, "delivered": {}}


def bare(endpoint: str, count: int) -> dict[str, Any]:
    """The same by requests of obstore alone, which drop what comes."""
    return get(endpoint, 8 << 20, AT_ONCE, count, PREFIX, ".jpg")


def packing(place: str, files: str, kind: Kind, out: str) -> dict[str, Any]:
    """Samples a second of packing with one worker, of a format and of the same samples as files, in turns."""
    import shardstream as ss

    fields = {FIELD[kind]: "path:file", "cls": "label"}
    both: dict[str, Any] = {
        PACKED: lambda: ss.pack(place, out, images=ss.ImageOptions(jpeg="keep"), workers=1),
        FROM_FILES: lambda: ss.pack(
            f"{files}/list.tsv", out, fields=fields, images=ss.ImageOptions(jpeg="keep"), workers=1
        ),
    }
    speeds: dict[str, list[float]] = {which: [] for which in both}
    counts = set()
    for turn in range(4):
        for which in list(both)[:: 1 if turn % 2 else -1]:
            shutil.rmtree(out, ignore_errors=True)
            begun = time.perf_counter()
            report = both[which]()
            counts.add(report.samples)
            if turn:
                speeds[which].append(report.samples / (time.perf_counter() - begun))
    shutil.rmtree(out, ignore_errors=True)
    if len(counts) > 1:
        raise ValueError(f"the samples packed are {counts}")
    ratio = median(ours / theirs for ours, theirs in zip(speeds[PACKED], speeds[FROM_FILES], strict=True))
    figures = {which: median(found) for which, found in speeds.items()}
    return {"figures": {**figures, pairs.RATIO: ratio}, "delivered": {"samples": counts.pop()}}
