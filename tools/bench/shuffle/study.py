"""What is compared, and what each order reaches."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from statistics import mean

import numpy as np

from bench.shuffle import orders
from bench.shuffle.measures import (
    Floats,
    Integers,
    batches_of,
    class_entropy,
    co_batch_ratio,
    displacement,
    distance_from_full_shuffle,
    kendall_tau,
)
from bench.shuffle.settings import BATCH, WORKERS, Setting
from shardstream.order import OrderParameters

EPOCHS = 6
SUCCESSIVE = 8  # batches that are looked at together
SIZES = (55_000, 110_000, 1_000_000, 4_000_000)
LARGE, SMALL = 128_000, 10_000
WHOLE = 4_000_000  # Streaming's default block of samples on one node: more than either data set has

FULL, OURS, FINE, WDS, PY1E, PY1BR = (
    "full shuffle",
    "shardstream",
    "shardstream, chunk 1",
    "WebDataset",
    "py1e",
    "py1br",
)


@dataclass(frozen=True)
class Shuffler:
    """One way to order a data set.

    Attributes:
        name: As in the table.
        setting: The data set.
        held: Samples that it shuffles among at a time.
        run: Number of epochs -> their orders.
        kind: One of the names above for what the plots show and ours is compared with, else empty.
        needs: Package without which it is left out.
    """

    name: str
    setting: Setting
    held: int
    run: Callable[[int], Iterator[Integers]]
    kind: str = ""
    needs: str | None = None


@dataclass(frozen=True)
class Reached:
    """What an order reaches, as means over the epochs.

    Attributes:
        shuffler: Which.
        sorted_bits: Class entropy of a batch, data sorted by class.
        shuffled_bits: The same after the write-time shuffle.
        successive_bits: Class entropy of `SUCCESSIVE` batches together, data sorted by class.
        co_batch: Co-batch ratio between successive epochs.
        tau: Largest absolute value of Kendall's tau between successive epochs.
        distance: Of the displacements from those of a full shuffle.
        shares: The displacements of all epochs.
        first: The first epoch.
    """

    shuffler: Shuffler
    sorted_bits: float
    shuffled_bits: float
    successive_bits: float
    co_batch: float
    tau: float
    distance: float
    shares: Floats
    first: Integers


def shufflers() -> list[Shuffler]:
    """All that is compared, data set by data set; a full shuffle first in each."""
    first, *larger = (Setting(LARGE, size) for size in SIZES)
    small = Setting(SMALL, SIZES[0])
    found = [*_at_equal_memory(first), *_other_shapes(first), *_whole_blocks(first)]
    for setting in larger:
        found += [*_at_equal_memory(setting), _wide_window(setting)]
    return [*found, *_at_equal_memory(small), _small_shards(small), *_whole_blocks(small)]


def _at_equal_memory(setting: Setting) -> Iterator[Shuffler]:
    """A full shuffle, ours, and peers that shuffle among as many samples as ours has in its open windows."""
    yield Shuffler(FULL, setting, setting.samples, partial(orders.full_shuffle, setting), FULL)
    parameters = setting.parameters()
    yield _ours(f"**{OURS}**", setting, parameters, OURS)
    yield _ours(f"**{OURS}**, `OrderOptions(chunk=1)`", setting, replace(parameters, chunk=1), FINE)
    held = setting.open_samples(parameters)
    yield _webdataset(setting, held // WORKERS, WDS)
    for algorithm in (PY1E, PY1BR):
        yield _streaming(setting, algorithm, held, algorithm)


def _other_shapes(setting: Setting) -> Iterator[Shuffler]:
    """Ours on several ranks, and designs with few lanes or small buffers."""
    yield _ours(f"**{OURS}**, 8 ranks", setting, setting.parameters(ranks=8))
    name = f'**{OURS}**, 8 ranks on 4 nodes, `OrderOptions(affinity="node")`'
    yield _ours(name, setting, setting.parameters(ranks=8, nodes=4))
    usual = OrderParameters(lanes=WORKERS, chunk=BATCH, window=1024)
    yield _ours(f"**{OURS}**, `lanes={WORKERS}, chunk={BATCH}, window=1024`", setting, usual)
    yield _webdataset(setting, 1000)


def _wide_window(setting: Setting) -> Shuffler:
    """Ours with windows that small samples would have."""
    return _ours(f"**{OURS}**, `OrderOptions(window=64)`", setting, replace(setting.parameters(), window=64))


def _small_shards(setting: Setting) -> Shuffler:
    """Ours, on a data set that was packed in smaller shards."""
    one = _ours(f"**{OURS}**, shards of 32 MB", replace(setting, shard_bytes=32_000_000), setting.parameters())
    return replace(one, setting=setting)


def _whole_blocks(setting: Setting) -> Iterator[Shuffler]:
    """Streaming with its default block, which holds the whole data set."""
    for algorithm in (PY1E, PY1BR):
        yield _streaming(setting, algorithm, WHOLE)


def _ours(name: str, setting: Setting, parameters: OrderParameters, kind: str = "") -> Shuffler:
    run = partial(orders.shardstream, setting, parameters=parameters)
    return Shuffler(name, setting, setting.open_samples(parameters), run, kind)


def _webdataset(setting: Setting, buffer: int, kind: str = "") -> Shuffler:
    name = f"{WDS}, {WORKERS} buffers of {buffer:,}"
    run = partial(orders.webdataset, setting, buffer=buffer)
    return Shuffler(name, setting, WORKERS * buffer, run, kind, "webdataset")


def _streaming(setting: Setting, algorithm: str, block: int, kind: str = "") -> Shuffler:
    name = f"Streaming `{algorithm}`, blocks of {block:,}"
    run = partial(orders.streaming, setting, algorithm=algorithm, block=block)
    return Shuffler(name, setting, min(block, setting.samples), run, kind, "streaming")


def measure(shuffler: Shuffler, epochs: int = EPOCHS) -> Reached | None:
    """What a shuffler reaches; ``None`` if its package is missing.

    Raises:
        ValueError: It loses or repeats samples, which would make it incomparable.
    """
    if shuffler.needs is not None and importlib.util.find_spec(shuffler.needs) is None:
        return None
    setting = shuffler.setting
    run = list(shuffler.run(epochs))
    for order in run:
        if not np.array_equal(np.sort(order), np.arange(setting.samples)):
            raise ValueError(f"{shuffler.name} does not deliver every sample once")

    def bits(labels: Integers, batch: int = BATCH) -> float:
        return mean(class_entropy(batches_of(order, batch), labels) for order in run)

    shares = np.concatenate([displacement(order) for order in run])
    return Reached(
        shuffler,
        sorted_bits=bits(setting.sorted_labels),
        shuffled_bits=bits(setting.shuffled_labels),
        successive_bits=bits(setting.sorted_labels, SUCCESSIVE * BATCH),
        co_batch=mean(co_batch_ratio(one, other, BATCH) for one, other in pairwise(run)),
        tau=max(abs(kendall_tau(one, other)) for one, other in pairwise(run)),
        distance=mean(distance_from_full_shuffle(displacement(order)) for order in run),
        shares=shares,
        first=run[0],
    )
