"""Damaged samples: raised with their place, or skipped, counted and marked."""

from __future__ import annotations

from pathlib import Path

import pytest

import shardstream as ss
from shardstream.shards.framings import framing_of
from shardstream.storage import open_store

from .making import numbered, photograph, write_dataset

DAMAGED = 4


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """12 photographs in one shard; a byte of number 4 is flipped."""
    write_dataset(tmp_path, numbered([12], jpg=photograph))
    store = open_store(tmp_path)
    column = framing_of("tar").scan(store, "shard-000000.tar").columns["jpg"]
    assert column.offsets is not None
    shard = tmp_path / "shard-000000.tar"
    data = bytearray(shard.read_bytes())
    data[int(column.offsets[DAMAGED]) + 100] ^= 1
    shard.write_bytes(data)
    return tmp_path


def test_a_flipped_byte_is_named_exactly(damaged: Path) -> None:
    with pytest.raises(ss.errors.ChecksumError) as caught:
        list(ss.ShardDataset(damaged))
    place = caught.value.place
    assert (place["sample"], place["key"], place["field"]) == (DAMAGED, "k000004", "jpg")
    assert str(place["url"]) == str(damaged)
    assert str(place["shard"]).endswith("shard-000000.tar")
    assert isinstance(place["offset"], int)


def test_verify_can_be_turned_off(damaged: Path) -> None:
    assert len(list(ss.ShardDataset(damaged, fields={"jpg": "bytes"}, reads=ss.ReadOptions(verify=False)))) == 12


def test_a_skipped_sample_leaves_its_batch_or_is_replaced(damaged: Path) -> None:
    fields = {"jpg": ss.decode.CenterCrop(32, resize=40), "id": None}
    dataset = ss.ShardDataset(damaged, fields=fields, batch_size=12, on_error="skip")
    batch, full = (next(iter(one)) for one in (dataset, dataset.replace(dropped="repeat")))
    assert full["__valid__"].tolist() == [n != DAMAGED for n in range(12)]
    assert full["id"].tolist() == [0 if n == DAMAGED else n for n in range(12)]
    assert full["__key__"][DAMAGED] == "k000000"
    assert (full["jpg"][DAMAGED] == full["jpg"][0]).all()
    assert batch["id"].tolist() == [n for n in range(12) if n != DAMAGED]
    assert batch["__key__"] == [f"k{n:06d}" for n in batch["id"]]
    assert (batch["jpg"] == full["jpg"][full["__valid__"]]).all()
    assert "__valid__" not in batch


def test_single_samples_are_left_out(damaged: Path) -> None:
    keys = [sample["__key__"] for sample in ss.ShardDataset(damaged, on_error="skip")]
    assert keys == [f"k{n:06d}" for n in range(12) if n != DAMAGED]


def test_undecodable_payloads_are_skipped_like_damaged_ones(tmp_path: Path) -> None:
    write_dataset(tmp_path, numbered([6], jpg=lambda n: b"no image" if n == 2 else photograph(n)))
    fields = {"jpg": ss.decode.CenterCrop(32, resize=40), "id": None}
    with pytest.raises(ss.errors.DecodeError, match="k000002"):
        list(ss.ShardDataset(tmp_path, fields=fields, batch_size=6))
    batch = next(iter(ss.ShardDataset(tmp_path, fields=fields, batch_size=6, on_error="skip")))
    assert batch["id"].tolist() == [0, 1, 3, 4, 5]


def test_too_many_skips_raise(damaged: Path) -> None:
    with pytest.raises(ss.errors.TooManySkipsError, match="max_skips is 0"):
        list(ss.ShardDataset(damaged, on_error="skip", max_skips=0))


def test_a_batch_of_damaged_samples_only_raises(damaged: Path) -> None:
    dataset = ss.ShardDataset(damaged, fields={"jpg": "bytes"}, on_error="skip", batch_size=1)
    with pytest.raises(ss.errors.BatchError, match="none of the 1"):
        list(dataset)


def test_a_missing_shard_is_no_fault_of_data(tmp_path: Path) -> None:
    write_dataset(tmp_path, numbered([5, 5]))
    (tmp_path / "shard-000001.tar").unlink()
    with pytest.raises(ss.errors.NotFoundError, match="shard-000001"):
        list(ss.ShardDataset(tmp_path, on_error="skip"))


def test_the_loader_counts_and_lists_skips(damaged: Path) -> None:
    loader = ss.Loader(ss.ShardDataset(damaged, on_error="skip", fields={"jpg": "bytes"}), batch_size=6, num_workers=1)
    assert sum(len(batch["jpg"]) for batch in loader) == 11
    assert (loader.stats.samples, loader.stats.skipped, loader.stats.filtered) == (11, 1, 0)
    assert "k000004" in loader.stats.skipped_places[0]
