"""`exclude_keys=`: samples that were found to be bad keep their positions, and nobody else's changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

import shardstream as ss
from shardstream.errors import BatchError
from shardstream.testing import MemoryStore
from shardstream.testing.dataset import write_shards
from tests.grouped import grouped

from .making import numbered, photograph, square, write_dataset
from .resuming import ORDER, ids_of

SIZES = [130, 1, 0, 70, 59]
TOTAL = sum(SIZES)
SHARES = {"train": 0.8, "val": 0.2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("exclude"), numbered(SIZES, cls=lambda n: n % 7))


def keys_of(numbers: Any) -> list[str]:
    return [f"k{n:06d}" for n in numbers]


def slots(dataset: Any, without: Any = ()) -> list[list[int | None]]:
    """The ids of each batch, but for those in ``without``; ``None`` where a slot has no sample of its own."""
    return [
        [n if valid else None for n, valid in zip(ids_of(batch), _valid(batch), strict=True) if n not in without]
        for batch in dataset
    ]


def _valid(batch: Any) -> list[bool]:
    return batch["__valid__"].tolist() if "__valid__" in batch else [True] * len(batch["id"])


@pytest.mark.parametrize("transform", [None, square])
def test_a_slot_is_that_of_a_damaged_sample(folder: Path, transform: Any) -> None:
    dataset = ss.ShardDataset(folder, batch_size=8, exclude_keys=keys_of([0, 3]), transform=transform)
    full = next(iter(dataset.replace(dropped="repeat")))
    assert full["__valid__"].tolist() == [False, True, True, False, True, True, True, True]
    for batch, expected in ((next(iter(dataset)), [1, 2, 4, 5, 6, 7]), (full, [1, 1, 2, 1, 4, 5, 6, 7])):
        assert batch["id"].tolist() == [n**2 if transform else n for n in expected]
        assert batch["__key__"] == keys_of(expected)
    first = list(ss.ShardDataset(folder, exclude_keys=keys_of(range(2, 60)), fields=["id"]))[:4]
    assert [sample["id"] for sample in first] == [0, 1, 60, 61]


@pytest.mark.full
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_all_others_keep_their_positions(folder: Path, data: st.DataObject) -> None:
    bad = data.draw(st.sets(st.integers(0, TOTAL - 1), max_size=40))
    shape: dict[str, Any] = {
        "fields": ["id"],
        "batch_size": data.draw(st.integers(3, 40)),
        "shuffle": data.draw(st.booleans()),
        "seed": data.draw(st.integers(0, 9)),
        "tail": data.draw(st.sampled_from(["drop", "exact", "pad"])),
        "split": data.draw(st.sampled_from([None, ("train", SHARES)])),
        "where": data.draw(st.sampled_from([None, {"cls": [0, 1, 2, 3, 5]}, {"id": (">", 20)}])),
    }
    world_size = data.draw(st.integers(1, 3))
    for rank in range(world_size):
        sound = ss.ShardDataset(folder, ranks=(rank, world_size), **shape)
        ours = ss.ShardDataset(folder, ranks=(rank, world_size), exclude_keys=keys_of(bad), **shape)
        assert (len(ours), ours.fingerprint) == (len(sound), sound.fingerprint)
        batches = list(sound)
        if any(bad.issuperset(ids_of(batch)) for batch in batches):
            with pytest.raises(BatchError, match=r"none of the \d+ samples(.|\n)*left out by exclude_keys"):
                slots(ours)
        else:
            assert slots(ours) == slots(batches, without=bad)
            again = ss.ShardDataset(
                folder, ranks=(rank, world_size), exclude_keys=keys_of(bad), dropped="repeat", **shape
            )
            assert slots(again) == [[None if n in bad else n for n in batch] for batch in slots(batches)]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_state_goes_on_with_another_list(folder: Path, workers: int) -> None:
    def loader(*bad: int) -> ss.Loader:
        dataset = ss.ShardDataset(folder, fields=["id"], batch_size=16, exclude_keys=keys_of(bad), **ORDER)
        return ss.Loader(dataset, num_workers=workers)

    whole = slots(loader())
    first = loader(*range(20, 60))
    begun = [batch for _, batch in zip(range(4), first, strict=False)]
    again = loader(*range(100, 150))
    again.load_state_dict(first.state_dict())
    found = slots(begun) + slots(again)
    stops = (set(range(20, 60)), set(range(100, 150)))
    assert found == [[n for n in batch if n not in stops[i >= 4]] for i, batch in enumerate(whole)]
    assert again.stats.skipped == sum(n in stops[1] for batch in whole[4:] for n in batch)
    assert all("left out by exclude_keys" in place for place in again.stats.skipped_places)


def test_single_samples_are_left_out_also_of_a_plain_dataloader(folder: Path) -> None:
    expected = [n for n in range(TOTAL) if not 30 < n < 90]
    dataset = ss.ShardDataset(folder, fields=["id"], exclude_keys=keys_of(range(31, 90)))
    assert ids_of(list(dataset)) == expected
    plain = DataLoader(dataset, batch_size=None, num_workers=2, multiprocessing_context="fork")
    assert sorted(ids_of(list(plain))) == expected


def test_a_mixture_keeps_its_positions(folder: Path) -> None:
    def mixture(*bad: int) -> ss.Mixture:
        one = ss.ShardDataset(folder, fields=["id"], exclude_keys=keys_of(bad) if bad else None)
        return ss.Mixture({"one": (one, 2), "two": (ss.ShardDataset(folder, fields=["id"]), 1)}, batch_size=24, seed=2)

    def seen(one: ss.Mixture) -> list[tuple[int, int] | None]:
        return [
            (int(source), n) if valid else None
            for batch in one
            for n, source, valid in zip(ids_of(batch), batch["__source__"], _valid(batch), strict=True)
        ]

    gone = ((0, 5), (0, 6), (0, 7))
    assert seen(mixture(5, 6, 7)) == [pair for pair in seen(mixture()) if pair not in gone]
    repeating = mixture(5, 6, 7).replace(dropped="repeat")
    assert seen(repeating) == [None if pair in gone else pair for pair in seen(mixture())]


def test_what_is_excluded_is_not_read(tmp_path: Path) -> None:
    write_dataset(tmp_path, numbered([6], jpg=lambda n: b"no image" if n == 2 else photograph(n)))
    dataset = ss.ShardDataset(tmp_path, batch_size=6, fields={"jpg": ss.decode.CenterCrop(32), "id": None})
    with pytest.raises(ss.errors.DecodeError, match="k000002"):
        next(iter(dataset))
    without = ss.ShardDataset(
        tmp_path, batch_size=6, fields={"jpg": ss.decode.CenterCrop(32), "id": None}, exclude_keys=["k000002"]
    )
    assert next(iter(without))["id"].tolist() == [0, 1, 3, 4, 5]


def test_data_behind_a_network_is_read_alike() -> None:
    store = MemoryStore()
    write_shards(store, numbered(SIZES, cls=lambda n: n % 7, blob=lambda n: bytes([n % 256]) * 50), format="record")
    options: dict[str, Any] = {"exclude_keys": keys_of(range(40, 45)), "where": {"id": lambda n: n % 3 > 0}}
    dataset = ss.ShardDataset(store, fields=["id", "blob"], batch_size=12, **grouped(options), **ORDER)
    sound = ss.ShardDataset(store, fields=["id", "blob"], batch_size=12, where={"id": lambda n: n % 3 != 0}, **ORDER)
    assert slots(dataset) == slots(sound, without=range(40, 45))


def test_others_may_be_damaged(tmp_path: Path) -> None:
    write_dataset(tmp_path, numbered([9], blob=lambda n: bytes([n]) * 4000), format="record")
    shard = next(tmp_path.glob("shard-*"))
    data = bytearray(shard.read_bytes())
    data[data.index(bytes([4]) * 4000) + 50] ^= 1
    shard.write_bytes(data)
    options: dict[str, Any] = {"exclude_keys": keys_of([0, 7]), "batch_size": 9, "on_error": "skip", "max_skips": 1}
    batch = next(iter(ss.ShardDataset(tmp_path, **grouped(options))))
    assert batch["id"].tolist() == [1, 2, 3, 5, 6, 8]
