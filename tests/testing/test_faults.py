"""What a reader of ours makes of each fault: the table of `shardstream.testing.faults`, line by line."""

from __future__ import annotations

import re
from typing import get_args

import pytest

import shardstream as ss
from shardstream.errors import AccessError, ChangedError, ChecksumError, FormatError, NotFoundError, StorageError
from shardstream.testing import MemoryStore, faults, make_dataset

SAMPLES = 24
SECOND = "shard-000001.tar"
BYTES = [*range(SAMPLES)]


@pytest.fixture
def store() -> MemoryStore:
    made = MemoryStore(patience=1.0, stall=0.3)
    return make_dataset(made, samples=SAMPLES, fields={"id": "int64", "raw": "bytes"})


def read(store: MemoryStore, **arguments) -> list[int]:
    """The ids of an epoch, without those that were skipped."""
    ids = []
    for batch in ss.ShardDataset(store, batch_size=4, **arguments):
        ids += batch["id"][batch["__valid__"]].tolist() if "__valid__" in batch else batch["id"].tolist()
    return ids


def within(store: MemoryStore, number: int) -> int:
    """Where a byte of a sample's ``raw`` lies in the second shard."""
    data = store.dig(SECOND)
    assert data is not None
    return data.index(ss.Reader(store)[number]["raw"]) + 3


@pytest.mark.parametrize(("fault", "error"), [("missing", NotFoundError), ("denied", AccessError)])
@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_what_is_missing_or_denied_is_an_error_at_once(store, fault, error, on_error) -> None:
    store.fail(fault, SECOND)
    with pytest.raises(error) as caught:
        read(store, on_error=on_error)
    assert caught.value.place["url"] == store.locate(SECOND)


@pytest.mark.parametrize(("fault", "after"), [("busy", 0), ("reset", 0), ("reset", 10), ("stall", 0), ("stall", 10)])
def test_what_passes_costs_nothing_but_time(store, fault, after) -> None:
    store.fail(fault, "shard-*", times=2, after=after)
    assert read(store) == BYTES
    assert store.hits(fault) == 2


@pytest.mark.one_in(3)
@pytest.mark.parametrize("fault", ["busy", "reset", "stall"])
def test_what_does_not_pass_is_a_storage_error_that_tells_what_was_tried(store, fault) -> None:
    store.fail(fault, SECOND)
    with pytest.raises(StorageError, match=r"gave up .* tried \d+ times") as caught:
        read(store, on_error="skip")
    assert caught.value.place["url"] == store.locate(SECOND)


def test_slow_answers_come(store) -> None:
    store.fail("slow", seconds=0.05)
    assert read(store) == BYTES
    assert store.hits("slow")


def test_a_truncated_shard_has_no_index(store) -> None:
    store.fail("truncated", SECOND, after=3000)
    with pytest.raises(FormatError, match="does not end with an index") as caught:
        read(store)
    assert caught.value.place["shard"] == SECOND


def test_a_shard_that_is_truncated_later_is_not_served(store) -> None:
    reader = ss.Reader(store)
    assert reader[SAMPLES - 1]["id"] == SAMPLES - 1  # the index has been read
    store.fail("truncated", SECOND, after=3000)
    with pytest.raises(StorageError) as caught:
        reader[SAMPLES - 2]
    assert caught.value.place["url"] == store.locate(SECOND)


def test_a_damaged_byte_is_found_with_its_place(store) -> None:
    store.fail("damaged byte", SECOND, after=(at := within(store, 20)))
    with pytest.raises(ChecksumError) as caught:
        read(store)
    place = caught.value.place
    assert (place["shard"], place["key"], place["field"], place["sample"]) == (SECOND, "000020", "raw", 8)
    assert place["offset"] == at - 3


def test_a_damaged_sample_can_be_skipped(store) -> None:
    store.fail("damaged byte", SECOND, after=within(store, 20))
    assert read(store, on_error="skip", tail="exact") == [number for number in BYTES if number != 20]


def test_the_same_bytes_written_anew_are_taken_once(store) -> None:
    reader = ss.Reader(store)
    assert reader[20]["id"] == 20
    store.fail("changed", SECOND, times=1)
    assert reader[21]["id"] == 21
    assert store.hits("changed") == 1
    store.fail("changed", SECOND)
    with pytest.raises(ChangedError):
        reader[22]


def test_other_bytes_under_the_name_are_not_served(store) -> None:
    reader = ss.Reader(store)
    assert reader[20]["id"] == 20
    other = make_dataset(MemoryStore(), samples=SAMPLES, fields={"id": "int64", "raw": "bytes"}, seed=1)
    store.plant(SECOND, other.dig(SECOND))
    with pytest.raises((ChecksumError, StorageError)):
        reader[21]


def test_the_table_has_every_fault() -> None:
    assert set(re.findall(r'^``"([a-z ]+)"``', faults.__doc__ or "", re.MULTILINE)) == set(get_args(faults.FaultName))


def test_damage_on_the_way_into_a_cache_is_fetched_again(store, tmp_path) -> None:
    store.fail("damaged byte", SECOND, times=1, after=within(store, 20))
    assert read(store, cache=tmp_path) == BYTES
    assert store.hits("damaged byte") == 1


# ------------------------------------------------------------------------------------------------- as users train


@pytest.mark.one_in(2)
@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_worker_processes_read_it(store, context) -> None:
    store.fail("reset", "shard-*", times=2)
    loader = ss.Loader(ss.ShardDataset(store, batch_size=4), num_workers=2, multiprocessing_context=context)
    assert [number for batch in loader for number in batch["id"].tolist()] == BYTES


def test_it_can_be_packed_into() -> None:
    made = MemoryStore()
    manifest = ss.pack([{"__key__": f"k{number}", "id": number} for number in BYTES], made)
    assert manifest.samples == SAMPLES
    assert sorted(ss.Reader(made)[number]["id"] for number in BYTES) == BYTES


def test_a_write_that_is_denied_is_an_error() -> None:
    made = MemoryStore()
    made.fail("denied", "shard-*")
    with pytest.raises(AccessError):
        make_dataset(made, samples=SAMPLES, fields={"id": "int64"})
    assert made.dig("dataset.json") is None
