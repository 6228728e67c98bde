"""Reading ahead: the same batches as from a disk, few requests, each byte about once, never more than the budget."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import shardstream as ss
from shardstream.dataset import indexes as opened
from shardstream.dataset.read_ahead import ReadAhead
from shardstream.errors import ChecksumError, StorageError
from shardstream.storage.base.held import address_of
from shardstream.storage.base.memory import ObjectParts
from shardstream.storage.transfer import readahead
from shardstream.stream.batching.samples import StepDecoding
from tests.grouped import grouped

from .far import FarStore, from_afar
from .making import numbered, write_dataset


def payload(number: int) -> bytes:
    return np.random.default_rng(number).bytes(200 + number * 37 % 300)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    shards = numbered([130, 1, 0, 77, 200, 92], bin=payload, vec=lambda n: np.arange(n, n + 4, dtype=np.float32))
    types = {"vec": "array:float32:4"}
    return write_dataset(tmp_path_factory.mktemp("far"), shards, format="record", types=types)


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Path:
    shards = numbered([50, 1, 0, 30, 70, 25], bin=payload, vec=lambda n: np.arange(n, n + 4, dtype=np.float32))
    types = {"vec": "array:float32:4"}
    return write_dataset(tmp_path_factory.mktemp("small"), shards, format="record", types=types)


def flat(batches) -> list:
    return [
        (batch["__key__"], batch["id"].tolist(), [bytes(one.numpy()) for one in batch["bin"]], batch["vec"].tolist())
        for batch in batches
    ]


@pytest.mark.full
@settings(max_examples=30)
@given(
    seed=st.integers(0, 3),
    batch_size=st.sampled_from([5, 32]),
    lanes=st.sampled_from([None, 1, 5]),
    window=st.sampled_from([None, 1, 9, 50]),
    chunk=st.sampled_from([None, 1, 3]),
    shuffle=st.booleans(),
    prefetch=st.sampled_from([1, 3000, 60_000, None]),
    epochs=st.integers(1, 2),
)
def test_batches_are_those_from_a_disk_whatever_the_budget(
    small, seed, batch_size, lanes, window, chunk, shuffle, prefetch, epochs
) -> None:
    shape = {"batch_size": batch_size, "shuffle": shuffle, "seed": seed, "tail": "exact", "lanes": lanes}
    shape |= {"window": window, "chunk": chunk}
    near = ss.ShardDataset(small, **grouped(shape))
    far, _ = from_afar(small, **shape, prefetch=prefetch)
    for _ in range(epochs):
        assert flat(far) == flat(near)


def test_an_epoch_is_whole_however_few_indexes_stay_open(tmp_path, monkeypatch) -> None:
    """All steps need the same shards, whose indexes push each other out while they are on their way again."""
    monkeypatch.setattr(opened, "OPEN_INDEXES", 1)
    folder = write_dataset(tmp_path, numbered([75] * 4, bin=payload))
    shape = {"batch_size": 4, "shuffle": True, "tail": "exact", "lanes": 4, "window": 4}
    dataset, store = from_afar(folder, prefetch=3000, fields=["id", "bin"], **shape)
    store.delay = 0.01
    assert sorted(number for batch in dataset for number in batch["id"].tolist()) == list(range(300))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("prefetch", [2_000, 20_000, 10**8], ids=["tight", "some", "ample"])
def test_the_budget_holds_but_for_the_step_that_is_needed(folder, prefetch) -> None:
    shape = {"batch_size": 8, "shuffle": True, "fields": ["bin"]}
    nothing_ahead, alone = from_afar(folder, prefetch=1, **shape)
    dataset, store = from_afar(folder, prefetch=prefetch, **shape)
    for epoch in range(4):
        for _ in nothing_ahead:
            pass
        for _ in dataset:
            store.settle()
            assert store.bytes_held <= max(prefetch, 13_000)
        store.settle()
        # What is read for the next epoch: a budget that is miscounted would be used less and less, or exceeded.
        assert store.bytes_held >= min(prefetch / 2, dataset.manifest.bytes)
        if not epoch:  # from now on, no indexes
            alone.most_held = store.most_held = 0
    assert alone.most_held <= 13_000  # the largest step, with what lies between its samples
    assert store.most_held <= max(prefetch, alone.most_held)
    before = len(store.requests)
    dataset.set_epoch(9)  # nobody foresaw that: all is given up
    next(iter(dataset))
    store.settle()
    assert min(store.held) >= before


def test_whole_windows_cost_each_byte_about_once_in_few_requests(folder) -> None:
    dataset, store = from_afar(folder, batch_size=8, shuffle=True, prefetch="10MB", fields=["bin"], tail="exact")
    dataset = dataset.replace(order=ss.OrderOptions(lanes=4, window=50))
    seen = sum(len(batch["bin"]) for batch in dataset)
    assert seen == 500
    size = dataset.manifest.bytes
    # One epoch, and what was read ahead of the next one.
    assert store.bytes <= 2.2 * size
    assert len(store.requests) < 100
    assert store.most > 2


def test_nothing_is_held_of_windows_that_are_over(folder) -> None:
    # One window a lane, which begins at the same place in every epoch; and samples that fill no batch.
    shape = {"batch_size": 8, "shuffle": True, "fields": ["bin"], "lanes": 3, "window": 200}
    dataset, store = from_afar(folder, prefetch="10MB", **shape)
    most = []
    for _ in range(6):
        most.append(0)
        for _ in dataset:
            store.settle()
            most[-1] = max(most[-1], store.bytes_held)
    assert max(most[3:]) <= max(most[:3])
    assert max(most) <= 2.2 * dataset.manifest.bytes


def test_a_step_that_meets_a_window_twice_reads_it_once(tmp_path, monkeypatch) -> None:
    """Epochs of another size go through small shards several times, and a step may lie on both sides of a turn."""
    folder = write_dataset(tmp_path, numbered([12, 3], bin=payload), format="record")
    admit = ReadAhead._admit

    def watched(ahead: ReadAhead, planned: Any) -> None:
        assert len(planned.new) == len({id(unit) for unit in planned.new})
        admit(ahead, planned)
        assert ahead._held == sum(unit.bytes for unit in ahead._units.values() if unit.asked)

    monkeypatch.setattr(ReadAhead, "_admit", watched)
    for seed in range(6):
        shape = {"batch_size": 8, "shuffle": True, "seed": seed, "lanes": 1, "window": 4}
        dataset, _ = from_afar(folder, **shape, prefetch="10MB", fields=["bin"], epoch_size=80)
        assert sum(len(batch["bin"]) for batch in dataset) == 80


def test_a_first_batch_takes_its_own_samples_only(tmp_path) -> None:
    big = numbered([40], bin=lambda n: np.random.default_rng(n).bytes(90_000 + n))
    folder = write_dataset(tmp_path / "big", big, format="record")
    dataset, store = from_afar(folder, batch_size=4, shuffle=True, prefetch="50MB", lanes=2)
    first, _ = islice(dataset, 2)
    index, *reads = store.requests
    assert index[2] < 20_000
    lengths = [length for _, _, length in reads]
    windows = next(number for number, length in enumerate(lengths) if length > 500_000)
    assert windows <= 4
    assert sum(lengths[:windows]) < sum(len(one) for one in first["bin"]) + 4 * 4096


def test_scalars_need_no_bytes_but_the_indexes(folder) -> None:
    dataset, store = from_afar(folder, batch_size=32, shuffle=True, fields=["id"])
    assert sorted(torch.cat([batch["id"] for batch in dataset]).tolist())[:3] == [0, 1, 2]
    assert len({path for path, _, _ in store.requests}) == len(store.requests) <= 6


def test_the_next_epoch_is_on_its_way_before_this_one_ends(folder) -> None:
    dataset, store = from_afar(folder, batch_size=32, shuffle=True, prefetch="10MB", fields=["bin"])
    for _ in dataset:
        pass
    store.settle()
    before = len(store.requests)
    batches = iter(dataset)
    store.gone = {f"shard-{number:06d}.rec" for number in range(6)}
    assert next(batches)
    store.settle()
    store.gone = set()
    assert len(list(batches)) == len(dataset) - 1
    assert len(store.requests) <= 2 * before


def test_the_next_epoch_waits_until_all_of_this_one_has_come(folder, monkeypatch) -> None:
    dataset, store = from_afar(folder, batch_size=8, shuffle=True, prefetch="10MB", fields=["bin"])
    store.delay = 0.05
    admit, on_the_way, before = ReadAhead._admit, list[int](), list[int]()

    def watched(ahead: ReadAhead, planned: Any) -> None:
        if planned.begins and planned.coming.key != ahead._running:
            on_the_way.append(store.on_the_way)
            before.append(store.bytes)
        admit(ahead, planned)

    monkeypatch.setattr(readahead, "REQUESTS", 12)
    monkeypatch.setattr(ReadAhead, "_admit", watched)
    assert len(list(dataset)) == len(dataset)
    assert on_the_way == [0]
    store.settle()
    assert store.bytes - before[0] > dataset.manifest.bytes / 10  # and begins before anybody asks for it


@pytest.mark.parametrize("loader", [False, True])
def test_a_loop_that_never_asks_for_one_more_batch_loses_nothing_of_it(folder, loader) -> None:
    read = []
    for asks in (1, 0):
        dataset, store = from_afar(folder, batch_size=32, shuffle=True, prefetch="10MB", fields=["bin"])
        batches = ss.Loader(dataset, num_workers=0) if loader else dataset
        iterators = []  # all are kept, as if the loop had not ended
        for _ in range(3):
            iterators.append(iter(batches))
            assert len(list(islice(iterators[-1], len(dataset) + asks))) == len(dataset)
        store.settle()
        read.append(sorted(store.requests))
    assert read[0] == read[1]


def test_the_same_epoch_again_after_a_break_begins_anew(folder) -> None:
    dataset, _ = from_afar(folder, batch_size=8, shuffle=True, prefetch=20_000)
    once = flat(islice(dataset, 5))
    assert flat(islice(dataset, 9))[:5] == once


@pytest.mark.parametrize("stop", [1, 7, 30])
def test_a_state_is_resumed_with_other_batches(folder, stop) -> None:
    near = ss.ShardDataset(folder, batch_size=8, shuffle=True, tail="exact")
    batches = iter(near)
    for _ in range(stop):
        next(batches)
    state = near.state_dict()
    far, _ = from_afar(folder, batch_size=5, shuffle=True, tail="exact", prefetch=30_000)
    far.load_state_dict(state)
    rest = [number for batch in far for number in batch["id"].tolist()]
    assert rest == [number for batch in batches for number in batch["id"].tolist()]


def test_bytes_that_were_spoilt_on_the_way_are_read_again(folder) -> None:
    dataset, store = from_afar(folder, batch_size=8, shuffle=True, tail="exact")
    store.damage = {f"shard-{number:06d}.rec" for number in range(6)}
    assert flat(dataset) == flat(ss.ShardDataset(folder, batch_size=8, shuffle=True, tail="exact"))
    assert len(store.damage) <= 1  # the empty shard


def test_damage_that_stays_names_the_sample(tmp_path) -> None:
    folder = write_dataset(tmp_path / "ds", numbered([40], bin=payload), format="record")
    data = bytearray((folder / "shard-000000.rec").read_bytes())
    data[len(data) // 4] ^= 1
    (folder / "shard-000000.rec").write_bytes(data)
    dataset, _ = from_afar(folder, batch_size=8, shuffle=True)
    with pytest.raises(ChecksumError) as caught:
        list(dataset)
    assert {"shard", "sample", "key", "offset"} <= set(caught.value.place)
    skipping, _ = from_afar(folder, batch_size=8, shuffle=True, on_error="skip", tail="exact")
    assert sum(len(batch["id"]) for batch in skipping) == 39


def test_a_shard_that_cannot_be_read_is_an_error_when_its_turn_comes(folder) -> None:
    dataset, store = from_afar(folder, batch_size=8, tail="exact", prefetch="10MB")
    store.gone = {"shard-000004.rec"}
    seen: list[int] = []
    with pytest.raises(StorageError, match="the line is cut"):
        seen.extend(number for batch in dataset for number in batch["id"].tolist())
    assert seen == list(range(208))


def test_a_mixture_reads_all_its_sources_ahead(folder, tmp_path) -> None:
    other = write_dataset(tmp_path / "other", numbered([60, 60], bin=payload))
    arguments = {"batch_size": 16, "seed": 3, "epoch": 700}

    def mixture(far: bool) -> ss.Mixture:
        parts = [
            from_afar(one, fields=["bin", "id"])[0] if far else ss.ShardDataset(one, fields=["bin", "id"])
            for one in (folder, other)
        ]
        return ss.Mixture({"a": (parts[0], 0.7), "b": (parts[1], 0.3)}, **grouped(arguments))

    def ids(mix: ss.Mixture) -> list[int]:
        return [number for _ in range(2) for batch in mix for number in batch["id"].tolist()]

    assert ids(mixture(far=True)) == ids(mixture(far=False))


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_read_ahead_and_say_what_they_read(folder, workers) -> None:
    dataset, _ = from_afar(folder, batch_size=8, shuffle=True, tail="exact")
    loader = ss.Loader(dataset, num_workers=workers, multiprocessing_context="fork")
    near = ss.ShardDataset(folder, batch_size=8, shuffle=True, tail="exact")
    for _ in range(2):
        assert flat(loader) == flat(near)
    assert set(loader.stats.transfers) >= {"requests", "bytes", "retries"}


# ------------------------------------------------------------------------------------------------------------- copies


class NotingStore(FarStore):
    """Notes where what it delivered lies, and keeps it, so that nothing else comes to lie there."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, pieces=1)
        self.delivered: list[memoryview] = []

    async def read(self, path: str, offset: int, length: int | None, *, size: int | None = None) -> list[memoryview]:
        pieces = await super().read(path, offset, length, size=size)
        self.delivered += pieces
        return pieces

    def delivers(self, value: memoryview) -> bool:
        """Whether a value lies in what was delivered."""
        begin = address_of(value)
        places = [(address_of(one), len(one)) for one in self.delivered]
        return any(start <= begin and begin + len(value) <= start + size for start, size in places)


def test_what_a_store_delivers_is_what_decoders_are_given(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, seen = NotingStore(folder), []
    stored = StepDecoding._stored

    def noted(self: StepDecoding, output: Any, slot: int) -> Any:
        found = stored(self, output, slot)
        assert found is not None
        seen.append(store.delivers(found[1]))
        return found

    monkeypatch.setattr(StepDecoding, "_stored", noted)
    for _ in ss.ShardDataset(store, fields={"bin": ["bytes", len]}, batch_size=16, shuffle=True, tail="exact"):
        pass
    assert len(seen) == 500
    assert all(seen)


def test_from_what_a_store_delivers_to_a_batch_is_one_copy(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, copied = NotingStore(folder), []
    views = ObjectParts.views
    checked = np.zeros(1, np.int64)

    def noted(self: ObjectParts, *ranges: Any) -> Any:
        found = views(self, *ranges)
        assert found is not None
        assert all(store.delivers(one) for one in found if one is not None and len(one))
        checked[0] += len(found)
        return found

    copy = ObjectParts.copy

    def into(self: ObjectParts, objects: Any, begins: Any, ends: Any, out: Any, starts: Any) -> Any:
        copied.append(address_of(out))
        return copy(self, objects, begins, ends, out, starts)

    monkeypatch.setattr(ObjectParts, "views", noted)
    monkeypatch.setattr(ObjectParts, "copy", into)
    dataset = ss.ShardDataset(store, fields={"bin": "bytes"}, batch_size=16, shuffle=True, tail="exact")
    batches = [batch["bin"].values.data_ptr() for batch in dataset]
    assert batches == copied  # what was copied to is the batch
    assert checked[0] == 500
