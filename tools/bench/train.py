"""Training pipeline: photographs to batches of random crops, against torchvision's ``ImageFolder`` and WebDataset."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bench.data import BATCH, WORKERS, Corpus
from bench.harness import Benchmark, Contender

WARM_UP, COOL_DOWN = 6, 4  # batches at both ends of an epoch that are not counted
SIZE = 224

TEXT = f"""\
Photographs to random resized crops of {SIZE} × {SIZE} pixels, antialiased, flipped at random, as uint8 batches of
{BATCH}, shuffled, made by {WORKERS} worker processes of one thread each. One epoch, of which the first {WARM_UP}
and last {COOL_DOWN} batches are not counted. All files are in the page cache. Every epoch is checked to hold
every photograph once, by label, with the same shape, type and mean brightness.
"""


def benchmark(corpus: Corpus, theirs: Path, ours: Path) -> Benchmark:
    """The benchmark."""
    count = {"count": corpus.count}
    contenders = [
        Contender(
            "`ImageFolder` + torchvision",
            "bench.train:with_torchvision",
            {"folder": str(corpus.folder)},
            needs="torchvision",
        ),
        Contender(
            "WebDataset + torchvision",
            "bench.train:with_webdataset",
            {"folder": str(theirs)},
            needs="webdataset",
        ),
        Contender("shardstream", "bench.train:with_shardstream", {"folder": str(ours)}, ours=True, bar=1.3),
    ]
    for contender in contenders:
        assert isinstance(contender.options, dict)
        contender.options.update(count)
    return Benchmark("train", "Training pipeline", TEXT, contenders)


def one_thread(_worker: int = 0) -> None:
    """Let the worker be the only thread."""
    torch.set_num_threads(1)


def crops() -> Callable[[Any], Tensor]:
    """Random crops as torchvision makes them."""
    from torchvision import transforms

    composed: Callable[[Any], Tensor] = transforms.Compose(
        [
            transforms.RandomResizedCrop(SIZE, antialias=True),
            transforms.RandomHorizontalFlip(),
            transforms.PILToTensor(),
        ]
    )
    return composed


def with_torchvision(folder: str, count: int) -> dict[str, Any]:
    """The example of torchvision's documentation, kept in uint8."""
    from torchvision.datasets import ImageFolder

    loader = torch.utils.data.DataLoader(
        ImageFolder(folder, crops()),
        BATCH,
        shuffle=True,
        num_workers=WORKERS,
        worker_init_fn=one_thread,
        persistent_workers=True,
        drop_last=True,
    )
    return steady(loader, count)


def with_webdataset(folder: str, count: int) -> dict[str, Any]:
    """The pipeline of WebDataset's documentation, with batches made in the workers."""
    import webdataset

    urls = sorted(str(path) for path in Path(folder).glob("*.tar"))
    dataset = (
        webdataset.WebDataset(urls, shardshuffle=100, seed=1)
        .shuffle(1000)
        .decode("pil")
        .to_tuple("jpg", "cls")
        .map_tuple(crops(), int)
        .batched(BATCH, partial=False)
    )
    loader = webdataset.WebLoader(
        dataset, batch_size=None, num_workers=WORKERS, worker_init_fn=one_thread, persistent_workers=True
    )
    return steady(loader, count)


def with_shardstream(folder: str, count: int) -> dict[str, Any]:
    """Ours, with its defaults."""
    import shardstream as ss

    crop = ss.decode.RandomResizedCrop(SIZE, flip=True)
    dataset = ss.ShardDataset(folder, fields={"jpg": crop, "cls": None}, shuffle=True, batch_size=BATCH)
    loader = ss.Loader(dataset.to_tuple("jpg", "cls"), num_workers=WORKERS, worker_init_fn=one_thread)
    return steady(loader, count)


def steady(loader: Iterable[Any], count: int) -> dict[str, Any]:
    """Images a second in the middle of an epoch, and what the epoch delivered."""
    one_thread()
    stamps: list[float] = []
    labels: list[int] = []
    shapes: set[str] = set()
    means: list[float] = []
    for pictures, numbers in loader:
        stamps.append(time.perf_counter())
        shapes.add(f"{tuple(pictures.shape)} {pictures.dtype}")
        labels += torch.as_tensor(numbers).tolist()
        means.append(pictures[:, :, ::16, ::16].float().mean().item())
    if len(labels) != count:
        raise ValueError(f"the epoch held {len(labels)} photographs of {count}")
    counted = stamps[WARM_UP - 1 : -COOL_DOWN]
    images = (len(counted) - 1) * BATCH
    delivered = {
        "photographs": len(labels),
        "labels": [labels.count(label) for label in range(max(labels) + 1)],
        "batches": sorted(shapes),
        "mean": sum(means) / len(means),
    }
    return {"figures": {"images/s": images / (counted[-1] - counted[0])}, "delivered": delivered}
