"""Orders of epochs, as stored positions in the order of consumption: ours, a full shuffle, and the peers' own code."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import cache
from itertools import islice
from types import SimpleNamespace
from typing import Any

import numpy as np

from bench.peers import bare_streaming
from bench.shuffle.measures import Integers
from bench.shuffle.settings import BATCH, WORKERS, Setting
from shardstream import rng
from shardstream.order import EpochOrder, OrderParameters

SEED = 9176  # the default of MosaicML Streaming, here for all


def full_shuffle(setting: Setting, epochs: int) -> Iterator[Integers]:
    """A permutation of all samples, the yardstick."""
    for epoch in range(epochs):
        yield rng.permutation(rng.words(setting.samples, seed=SEED, domain=rng.Domain.TRANSFORM, epoch=epoch))


def shardstream(setting: Setting, epochs: int, parameters: OrderParameters) -> Iterator[Integers]:
    """Ours. The batches of all ranks follow one another: step after step, rank after rank."""
    starts = np.cumsum(setting.counts) - setting.counts
    for epoch in range(epochs):
        order = EpochOrder(setting.counts, seed=SEED, epoch=epoch, parameters=parameters)
        shard, row = order.locate(np.arange(setting.samples))
        yield starts[shard] + row


def webdataset(setting: Setting, epochs: int, buffer: int) -> Iterator[Integers]:
    """WebDataset's shuffle of shards and its buffer, over integers, as its workers run them.

    Both are its ``detshuffle``: the plain shuffle of shards repeats one order in every epoch if it has a seed.
    """
    import webdataset as wds

    ends = np.cumsum(setting.counts)
    shards = [range(int(end - count), int(end)) for end, count in zip(ends, setting.counts, strict=True)]

    def expand(source: Any) -> Iterator[int]:
        for shard in source:
            yield from shard

    pipelines = [
        wds.DataPipeline(
            lambda number=number: islice(iter(shards), number, None, WORKERS),  # what its split_by_worker does
            wds.detshuffle(100, seed=SEED + 1000 * number),
            expand,
            wds.detshuffle(buffer, seed=SEED + 1000 * number),
        )
        for number in range(WORKERS)
    ]
    for _ in range(epochs):
        yield np.fromiter(_in_turn([iter(pipeline) for pipeline in pipelines]), np.int64)


def _in_turn(workers: list[Iterator[int]]) -> Iterator[int]:
    """Batches of workers as a DataLoader takes them: in turn, without those that have ended."""
    while workers:
        for worker in list(workers):
            batch = list(islice(worker, BATCH))
            yield from batch
            if len(batch) < BATCH:
                workers.remove(worker)


def streaming(setting: Setting, epochs: int, algorithm: str, block: int) -> Iterator[Integers]:
    """MosaicML Streaming: its ``generate_work`` on one node with one rank."""
    generate_work, world_of = _streaming_functions()
    everything = np.arange(setting.samples)
    dataset = SimpleNamespace(
        num_canonical_nodes=1,  # its default: the number of nodes
        resample_streams=lambda epoch: (setting.counts, everything),
        batch_size=BATCH,
        partition_algo="relaxed",
        epoch_size=setting.samples,
        initial_physical_nodes=None,
        shuffle=True,
        shuffle_algo=algorithm,
        shuffle_seed=SEED,
        shuffle_block_size=block,
    )
    world = world_of(num_nodes=1, ranks_per_node=1, workers_per_rank=WORKERS, worker=0)
    for epoch in range(epochs):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # blocks that are smaller than shards are among what is compared
            work = generate_work("random", dataset, world, epoch, 0)
        order = work.transpose(3, 2, 0, 1, 4).ravel()
        yield order[order >= 0]  # -1 fills up the last batches


@cache
def _streaming_functions() -> tuple[Any, Any]:
    """``generate_work`` and ``World``."""
    bare_streaming()
    from streaming.base.batching import generate_work
    from streaming.base.world import World

    return generate_work, World
