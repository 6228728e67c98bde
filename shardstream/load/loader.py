"""``Loader``: torch's ``DataLoader`` with the right settings for a `ShardDataset`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import DataLoader

from shardstream.errors import UsageError
from shardstream.load.report import LoaderStats
from shardstream.stream import ShardDataset
from shardstream.stream.parcel import CollateParcel, Failure, Parcel, keep

# DataLoader arguments that are decided by the data set here, with what to use in their place.
_ELSEWHERE = {
    "shuffle": "ShardDataset(..., shuffle=True)",
    "sampler": "ShardDataset(..., shuffle=True); ranks and workers are found by themselves",
    "batch_sampler": "ShardDataset(..., batch_size=...)",
    "drop_last": 'ShardDataset(..., tail="drop"), or "pad" or "exact"',
}


class Loader(DataLoader[Any]):
    """Delivers the batches of a `ShardDataset`, made by worker processes.

    A ``DataLoader`` in all else: its arguments are forwarded. Batches are made in the workers, straight in shared
    memory; single samples travel in blocks. Iterating to the end advances the data set's epoch by one; after
    ``break``, the next iteration begins the same epoch again.

    Args:
        dataset: The data set.
        num_workers: Worker processes. Default 8; 0 works in this process.
        batch_size: Samples a batch; replaces that of the data set. Default: the data set's own.
        collate_fn: Called in the worker with the list of samples of a batch, in place of our own batching; with single
            samples, with each of them. Default: slabs, as `ShardDataset` describes.
        persistent_workers: Keep workers from epoch to epoch, so that there is no pause between them. Default: true
            where there are workers.
        **arguments: Of ``DataLoader``: ``prefetch_factor``, ``pin_memory``, ``multiprocessing_context``, ``timeout``,
            ``worker_init_fn``, ``generator``, ...

    Raises:
        UsageError: An argument that is the data set's to decide; says which of its arguments does.

    Example:
        >>> loader = ss.Loader(ds.to_tuple("jpg", "cls"), batch_size=64, num_workers=2)
        >>> sum(len(labels) for images, labels in loader)
        200
    """

    def __init__(
        self,
        dataset: ShardDataset,
        *,
        num_workers: int = 8,
        batch_size: int | None = None,
        collate_fn: Callable[[Any], Any] | None = None,
        persistent_workers: bool | None = None,
        **arguments: Any,
    ) -> None:
        if not isinstance(dataset, ShardDataset):
            raise UsageError(
                f"ss.Loader needs a ShardDataset, not {type(dataset).__name__}",
                hint="use torch's DataLoader for others",
            )
        for name in arguments:
            if name in _ELSEWHERE:
                raise UsageError(f"{name} is the data set's to decide", hint=f"use {_ELSEWHERE[name]}")
        size = dataset.batch_size if batch_size is None else batch_size
        single = size is None
        self.stats = LoaderStats()
        self._single = single
        self._current: object = None
        collate: Callable[[Any], Any] = CollateParcel(collate_fn, each=single) if collate_fn else keep
        super().__init__(
            dataset.replace(batch_size=size, deliver="lists" if collate_fn else "parcels"),
            batch_size=None,
            num_workers=num_workers,
            collate_fn=collate,
            persistent_workers=num_workers > 0 if persistent_workers is None else persistent_workers,
            **arguments,
        )

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]  # torch promises an object of its own there
        len(self._shards)  # raises here, and not in every worker, if there is no step to make
        epoch = self._shards.epoch
        self._current = token = object()
        return self._unpack(super().__iter__(), epoch, token)

    @property
    def _shards(self) -> ShardDataset:
        assert isinstance(self.dataset, ShardDataset)
        return self.dataset

    def _unpack(self, parcels: Iterator[Parcel | Failure], epoch: int, token: object) -> Iterator[Any]:
        stats = self.stats
        while True:
            asked = time.perf_counter()
            if self._current is not token:
                raise UsageError(
                    "this iterator ended when a newer one of the same loader began", hint="use a loader for each loop"
                )
            parcel = next(parcels, None)
            waited = time.perf_counter() - asked
            stats.wait_seconds += waited
            stats.seconds += waited
            if parcel is None:
                break
            if isinstance(parcel, Failure):
                raise parcel.raised()
            stats.add(parcel)
            for item in parcel.data if self._single else (parcel.data,):
                stats.batches += 1
                handed = time.perf_counter()
                yield item
                stats.seconds += time.perf_counter() - handed
        self._shards.finish_epoch(epoch)
