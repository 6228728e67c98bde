"""Peers that decode in two worker processes: torchvision, WebDataset, MosaicML Streaming, LitData, Grain."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from bench.data import BATCH, WORKERS
from bench.peers import bare_streaming
from bench.race.epochs import one_thread, steady

SIZE, RESIZED = 224, 256


def recipe(work: str, decoder: str) -> Callable[[bytes], Tensor]:
    """JPEG bytes -> (3, 224, 224), as torchvision does it.

    Args:
        work: "crop" for RandomResizedCrop and flip, "center" for Resize and CenterCrop.
        decoder: "pillow" or "pillow-simd" for Pillow's images, "tensors" for torchvision's own decoder.
    """
    import PIL
    from PIL import features
    from torchvision.transforms import v2

    steps = {
        "crop": [v2.RandomResizedCrop(SIZE, antialias=True), v2.RandomHorizontalFlip()],
        "center": [v2.Resize(RESIZED, antialias=True), v2.CenterCrop(SIZE)],
    }[work]
    if decoder == "tensors":
        return partial(_through_tensors, v2.Compose(steps))
    if (decoder == "pillow-simd") != ("post" in PIL.__version__) or not features.check("libjpeg_turbo"):
        raise ValueError(f"this is Pillow {PIL.__version__}")
    return partial(_through_pillow, v2.Compose([*steps, v2.PILToTensor()]))


def _through_pillow(transform: Callable[[Any], Tensor], data: bytes) -> Tensor:
    from PIL import Image

    return transform(Image.open(io.BytesIO(data)).convert("RGB"))


def _through_tensors(transform: Callable[[Any], Tensor], data: bytes) -> Tensor:
    from torchvision.io import ImageReadMode, decode_image

    octets = torch.from_numpy(np.frombuffer(data, np.uint8))
    return transform(decode_image(octets, mode=ImageReadMode.RGB))


def with_torchvision(store: str, work: str, decoder: str, count: int, batch: int = BATCH) -> dict[str, Any]:
    """The example of torchvision's documentation, kept in uint8."""
    from torchvision.datasets import ImageFolder

    dataset = ImageFolder(store, recipe(work, decoder), loader=_read)
    return _by_loader(dataset, count, batch, shuffle=work == "crop")


def _read(path: str) -> bytes:
    return Path(path).read_bytes()


def _by_loader(dataset: Any, count: int, batch: int = BATCH, **arguments: Any) -> dict[str, Any]:
    """An epoch by torch's ``DataLoader``, or by that of ``arguments``."""
    make = arguments.pop("make", DataLoader)
    fixed = {"num_workers": WORKERS, "worker_init_fn": one_thread, "persistent_workers": True}
    return steady(make(dataset, **{"batch_size": batch, **fixed, **arguments}), count, batch=batch)


def with_webdataset(store: str, work: str, decoder: str, count: int) -> dict[str, Any]:
    """The pipeline of WebDataset's documentation, with batches made in the workers."""
    import webdataset

    urls = sorted(str(path) for path in Path(store).glob("*.tar"))
    dataset = webdataset.WebDataset(urls, shardshuffle=100 if work == "crop" else False, seed=1)
    if work == "crop":
        dataset = dataset.shuffle(1000)
    dataset = dataset.to_tuple("jpg", "cls").map_tuple(recipe(work, decoder), int).batched(BATCH, partial=False)
    return _by_loader(dataset, count, make=webdataset.WebLoader, batch_size=None)


def with_streaming(store: str, work: str, decoder: str, count: int) -> dict[str, Any]:
    """MosaicML Streaming, with the transform in ``__getitem__``."""
    bare_streaming()
    from streaming.base.dataset import StreamingDataset
    from streaming.base.util import clean_stale_shared_memory

    clean_stale_shared_memory()

    class Photographs(StreamingDataset):  # type: ignore[misc]
        def __getitem__(self, number: int) -> tuple[Tensor, int]:
            sample = super().__getitem__(number)
            return transform(sample["jpg"]), sample["cls"]

    transform = recipe(work, decoder)
    dataset = Photographs(local=store, shuffle=work == "crop", batch_size=BATCH, num_canonical_nodes=1)
    return _by_loader(dataset, count)


def with_litdata(store: str, work: str, decoder: str, count: int) -> dict[str, Any]:
    """LitData, with the transform in ``__getitem__``."""
    import litdata

    class Photographs(litdata.StreamingDataset):  # type: ignore[misc]
        def __getitem__(self, number: int) -> tuple[Tensor, int]:
            sample = super().__getitem__(number)
            return transform(sample["jpg"]), sample["cls"]

    transform = recipe(work, decoder)
    dataset = Photographs(store, shuffle=work == "crop")
    return _by_loader(dataset, count, make=litdata.StreamingDataLoader, drop_last=True)


def with_grain(store: str, work: str, decoder: str, count: int) -> dict[str, Any]:
    """Grain's data set of ArrayRecord files, with the transform in its worker processes."""
    transform = partial(_grain_sample, recipe(work, decoder))
    batches = grain_batches(store, transform, WORKERS, shuffle=work == "crop")
    return steady(((torch.from_numpy(pictures), labels) for pictures, labels in batches), count)


def _grain_sample(transform: Callable[[bytes], Tensor], record: bytes) -> tuple[Any, int]:
    one_thread()
    return transform(record[8:]).numpy(), int.from_bytes(record[:8], "little")


def grain_batches(
    store: str, transform: Callable[[bytes], Any], workers: int, *, shuffle: bool = True
) -> Iterable[Any]:
    """Batches of transformed records, made in this process or by workers, each reading ahead with one thread."""
    import grain

    dataset = grain.MapDataset.source(grain.sources.ArrayRecordDataSource([store]))
    if shuffle:
        dataset = dataset.shuffle(seed=0)
    reading = grain.ReadOptions(num_threads=1, prefetch_buffer_size=BATCH)
    batches = dataset.map(transform).to_iter_dataset(reading).batch(BATCH)
    if workers:
        batches = batches.mp_prefetch(grain.multiprocessing.MultiprocessingOptions(num_workers=workers))
    return batches  # type: ignore[no-any-return]
