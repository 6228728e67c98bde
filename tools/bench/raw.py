"""Reading photographs as bytes, without decoding: what the streaming itself costs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from bench.data import BATCH, WORKERS
from bench.harness import Benchmark, Contender

EPOCHS = 2  # the first one, with its opening of files and starting of workers, is not counted

TEXT = f"""\
Photographs as bytes with their labels, shuffled, nothing decoded: in one process sample by sample and as batches of
{BATCH}, and as batches made by {WORKERS} worker processes. The second epoch is counted, all of it. Files are in the
page cache. The length of every value is added up and compared. For information: no bar is set here.
"""


def benchmark(theirs: Path, ours: Path) -> Benchmark:
    """The benchmark."""
    contenders = [
        Contender(
            f"{name}, {how}",
            f"bench.raw:with_{function}",
            {"folder": str(folder), "batched": batched, "workers": workers},
            needs=needs,
            ours=needs is None,
        )
        for how, batched, workers in (
            ("samples, in process", False, 0),
            ("batches, in process", True, 0),
            (f"batches, {WORKERS} workers", True, WORKERS),
        )
        for name, function, folder, needs in (
            ("WebDataset", "webdataset", theirs, "webdataset"),
            ("shardstream", "shardstream", ours, None),
        )
    ]
    return Benchmark("raw", "Bytes only", TEXT, contenders)


def with_webdataset(folder: str, *, batched: bool, workers: int) -> dict[str, Any]:
    """Tuples of bytes; batches are lists of them."""
    import webdataset

    urls = sorted(str(path) for path in Path(folder).glob("*.tar"))
    dataset = webdataset.WebDataset(urls, shardshuffle=100, seed=1).shuffle(1000).to_tuple("jpg", "cls")
    if batched:
        dataset = dataset.batched(BATCH, partial=True, collation_fn=columns)
    loader = dataset
    if workers:
        loader = webdataset.WebLoader(dataset, batch_size=None, num_workers=workers, persistent_workers=True)
    return timed(loader, batched=batched)


def columns(samples: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """A batch as it is: WebDataset's own collation would need numbers."""
    return list(zip(*samples, strict=True))


def with_shardstream(folder: str, *, batched: bool, workers: int) -> dict[str, Any]:
    """Tuples of bytes; batches of them are `shardstream.Ragged`."""
    import shardstream as ss

    dataset = ss.ShardDataset(
        folder, fields={"jpg": "bytes", "cls": None}, shuffle=True, batch_size=BATCH if batched else None, tail="exact"
    ).to_tuple("jpg", "cls")
    return timed(ss.Loader(dataset, num_workers=workers) if workers else dataset, batched=batched)


def timed(loader: Iterable[Any], *, batched: bool) -> dict[str, Any]:
    """Samples a second in the last epoch, and what it delivered."""
    for _ in range(EPOCHS):
        samples = octets = total = 0
        start = time.perf_counter()
        for payload, label in unbatched(loader) if batched else loader:
            samples += 1
            octets += len(payload)
            total += int(label)
        seconds = time.perf_counter() - start
    return {
        "figures": {"samples/s": samples / seconds, "MB/s": octets / 1e6 / seconds},
        "delivered": {"photographs": samples, "bytes": octets, "labels": total},
    }


def unbatched(loader: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    """The samples of batches."""
    for payloads, labels in loader:
        numbers = labels.tolist() if hasattr(labels, "tolist") else labels
        yield from zip(payloads, numbers, strict=True)
