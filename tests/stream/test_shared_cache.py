"""Many processes, one cache, and a store that is counted, goes away and comes back."""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Iterator
from multiprocessing.synchronize import Barrier
from pathlib import Path

import numpy as np
import pytest

import shardstream as ss

from ..storage.faults import FaultProxy
from ..storage.places import WebPlace
from .making import numbered, write_dataset

RANKS = 8


def payload(number: int) -> bytes:
    return np.random.default_rng(number).bytes(50_000 + number * 37 % 9_000)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("local"), numbered([100] * 8, bin=payload), format="record")


@pytest.fixture
def proxy(web: WebPlace, folder: Path) -> Iterator[FaultProxy]:
    """In front of the web server, which has the data set."""
    for file in folder.iterdir():
        web.plant(file.name, file.read_bytes())
    with FaultProxy(web.endpoint.removeprefix("http://")) as found:
        yield found


def train(url: str, cache: Path, rank: int, epochs: int, seen: multiprocessing.SimpleQueue, end: Barrier) -> None:
    dataset = ss.ShardDataset(
        url,
        cache=cache,
        ranks=(rank, RANKS),
        batch_size=10,
        shuffle=True,
        tail="exact",
        reads=ss.ReadOptions(prefetch="4MB"),
    )
    for epoch in range(epochs):
        dataset.set_epoch(epoch)
        seen.put((epoch, [number for batch in dataset for number in batch["id"].tolist()]))
    end.wait(60)  # what it reads ahead for another epoch, others may be waiting for


def train_all(url: str, cache: Path, epochs: int) -> list[list[int]]:
    """What all ranks saw in each epoch, sorted."""
    context = multiprocessing.get_context("fork")
    seen, end = context.SimpleQueue(), context.Barrier(RANKS)
    processes = [context.Process(target=train, args=(url, cache, rank, epochs, seen, end)) for rank in range(RANKS)]
    for process in processes:
        process.start()
    found: list[list[int]] = [[] for _ in range(epochs)]
    for _ in range(RANKS * epochs):
        epoch, numbers = seen.get()
        found[epoch] += numbers
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    return [sorted(numbers) for numbers in found]


@pytest.mark.full
def test_eight_processes_start_cold_and_fetch_each_byte_once(proxy, web, folder, tmp_path) -> None:
    url = web.url().replace(web.endpoint, proxy.url)
    size = ss.Manifest.load(folder).bytes
    assert train_all(url, tmp_path / "cache", 2) == [list(range(800))] * 2
    # Eight manifests, and no more than a twentieth over the data; the second epoch included.
    assert proxy.body_bytes <= 1.05 * size + RANKS * 4096
    proxy.reset_counts()
    assert train_all(url, tmp_path / "cache", 1) == [list(range(800))]
    assert proxy.body_bytes <= RANKS * 4096


@pytest.mark.full
@pytest.mark.parametrize("cached", [False, True], ids=["streamed", "cached"])
def test_a_server_that_is_restarted_in_an_epoch_costs_time_only(cached, proxy, web, tmp_path) -> None:
    url = web.url().replace(web.endpoint, proxy.url)
    dataset = ss.ShardDataset(
        url,
        cache=tmp_path / "cache" if cached else None,
        batch_size=10,
        shuffle=True,
        tail="exact",
        reads=ss.ReadOptions(prefetch="2MB"),
    )
    proxy.add("bandwidth", bytes_per_second=4_000_000)  # or all may have come before the server goes
    batches = iter(dataset)
    seen = next(batches)["id"].tolist()
    proxy.clear()
    proxy.down()
    again = threading.Timer(1.0, proxy.up)
    again.start()
    begun = time.monotonic()
    seen += [number for batch in batches for number in batch["id"].tolist()]
    again.join()
    assert time.monotonic() - begun >= 1.0  # it really was away
    assert sorted(seen) == list(range(800))
    assert dataset._held[1]._counted["retries"] > 0
