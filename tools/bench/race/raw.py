"""Photographs as bytes, nothing decoded: what the streaming itself costs, for us and the peers."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from bench.data import BATCH
from bench.harness import cpu_of_tree
from bench.peers import bare_streaming
from bench.race.epochs import LONG_ENOUGH, one_thread
from bench.race.stores import photographs


def with_shardstream(
    store: str, workers: int, *, batched: bool, verify: bool, names: Sequence[str] = ("jpg", "cls")
) -> dict[str, Any]:
    """Tuples of bytes and label; batches of them are `shardstream.Ragged`."""
    import shardstream as ss

    size = BATCH if batched else None
    fields = {names[0]: "bytes", names[1]: None}
    dataset = ss.ShardDataset(
        store, fields=fields, shuffle=True, batch_size=size, tail="exact", reads=ss.ReadOptions(verify=verify)
    )
    loader = ss.Loader(dataset.to_tuple(*names), num_workers=workers)
    return timed(lambda: map(_ragged, loader) if batched else map(_sample, loader))


def with_webdataset(store: str, workers: int, field: str = "jpg") -> dict[str, Any]:
    """Tuples of bytes."""
    import webdataset

    urls = sorted(str(path) for path in Path(store).glob("*.tar"))
    dataset = webdataset.WebDataset(urls, shardshuffle=100, seed=1).shuffle(1000).to_tuple(field, "cls")
    if not workers:
        return timed(lambda: map(_sample, dataset))
    dataset = dataset.batched(BATCH, partial=True, collation_fn=joined)
    return by_loader(dataset, workers, make=webdataset.WebLoader, batch_size=None, collate_fn=None)


def with_streaming(store: str, workers: int, field: str = "jpg") -> dict[str, Any]:
    """MosaicML Streaming."""
    bare_streaming()
    from streaming.base.dataset import StreamingDataset
    from streaming.base.util import clean_stale_shared_memory

    clean_stale_shared_memory()
    dataset = StreamingDataset(local=store, shuffle=True, batch_size=BATCH, num_canonical_nodes=1)
    return by_loader(dataset, workers, field) if workers else timed(lambda: map(_sample, map(_values, dataset)))


def with_litdata(store: str, workers: int, field: str = "jpg") -> dict[str, Any]:
    """LitData."""
    import litdata

    dataset = litdata.StreamingDataset(store, shuffle=True)
    if workers:
        return by_loader(dataset, workers, field, make=litdata.StreamingDataLoader)
    return timed(lambda: map(_sample, map(_values, dataset)))


def with_lance(store: str) -> dict[str, Any]:
    """Lance's rows by their numbers, as many at a time as there are in a batch."""
    import lance

    table = lance.dataset(store)

    def epoch() -> Iterator[tuple[int, int, int]]:
        numbers = random.sample(range(table.count_rows()), table.count_rows())
        for first in range(0, len(numbers), BATCH):
            rows = table.take(numbers[first : first + BATCH], columns=["jpg", "cls"])
            payloads = rows["jpg"].combine_chunks()
            values = torch.frombuffer(payloads.buffers()[2], dtype=torch.uint8)
            yield len(rows), len(values), int(rows["cls"].to_numpy().sum())

    return timed(epoch)


def with_files(store: str, workers: int) -> dict[str, Any]:
    """The files themselves, from their folder."""
    files = Files(photographs(store))
    return by_loader(files, workers, shuffle=True) if workers else timed(lambda: map(_sample, files.shuffled()))


class Files(torch.utils.data.Dataset[tuple[bytes, int]]):
    """Files with their labels."""

    def __init__(self, entries: Sequence[tuple[Path, int]]) -> None:
        self.entries = [(str(path), label) for path, label in entries]

    def __len__(self) -> int:
        return len(self.entries)

    def __getitem__(self, number: int) -> tuple[bytes, int]:
        path, label = self.entries[number]
        with open(path, "rb") as file:
            return file.read(), label

    def shuffled(self) -> Iterator[tuple[bytes, int]]:
        """All of them, in another order each time."""
        return (self[number] for number in random.sample(range(len(self)), len(self)))


def by_loader(
    dataset: Any, workers: int, field: str = "jpg", make: Any = DataLoader, **arguments: Any
) -> dict[str, Any]:
    """Epochs of a peer's data set: of pairs of bytes and label, or of dictionaries with ``field`` and ``cls``."""
    collate = partial(joined, field=field)
    fixed = {"batch_size": BATCH, "collate_fn": collate, "worker_init_fn": one_thread, "persistent_workers": True}
    loader = make(dataset, num_workers=workers, **{**fixed, **arguments})
    return timed(partial(map, _tensors, loader))


def _values(sample: dict[str, Any], field: str = "jpg") -> tuple[Any, Any]:
    return sample[field], sample["cls"]


def joined(samples: list[Any], field: str = "jpg") -> tuple[Tensor, Tensor, Tensor]:
    """The peers' batches: one tensor of bytes with offsets, which shared memory brings from the worker.

    Lists of bytes, which their own batching makes, would be copied through a pipe.
    """
    payloads, labels = zip(*(_values(one, field) if isinstance(one, dict) else one for one in samples), strict=True)
    offsets = torch.tensor([0, *map(len, payloads)]).cumsum(0)
    values = torch.frombuffer(bytearray().join(payloads), dtype=torch.uint8)
    return values, offsets, torch.tensor([int(label) for label in labels])


def _sample(sample: tuple[Any, Any]) -> tuple[int, int, int]:
    """Samples, bytes and the sum of labels of one sample."""
    return 1, len(sample[0]), int(sample[1])


def _tensors(batch: tuple[Tensor, Tensor, Tensor]) -> tuple[int, int, int]:
    """The same of a peer's batch."""
    return len(batch[2]), len(batch[0]), int(batch[2].sum())


def _ragged(batch: tuple[Any, Any]) -> tuple[int, int, int]:
    """The same of a batch of ours, whose labels may be text."""
    octets, labels = batch
    total = int(labels.sum()) if isinstance(labels, Tensor) else sum(map(int, labels))
    return len(labels), len(octets.values), total


def timed(epoch: Callable[[], Iterable[tuple[int, int, int]]]) -> dict[str, Any]:
    """Samples a second over whole epochs, of as many as take long enough, after one that is not counted."""
    one_thread()
    seconds, used, number, counted = 0.0, 0.0, 0, 0
    while seconds < LONG_ENOUGH:
        samples = octets = labels = 0
        busy, start = cpu_of_tree(), time.perf_counter()
        for more, length, label in epoch():
            samples += more
            octets += length
            labels += label
        if number:
            seconds += time.perf_counter() - start
            used += cpu_of_tree() - busy
            counted += samples
        number += 1
    delivered = {"photographs": samples, "bytes": octets, "labels": labels}
    figures = {"samples/s": counted / seconds, "samples/CPU s": counted / max(used, 0.01)}
    return {"figures": figures, "delivered": delivered}
