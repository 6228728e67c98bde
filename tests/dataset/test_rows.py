"""Rows of one data set by number, and shard by shard: near, far, and where something is damaged."""

from __future__ import annotations

import gc
import pickle
import shutil
import subprocess
import sys
import weakref
from pathlib import Path

import numpy as np
import pytest

from shardstream.dataset import dataset_rows
from shardstream.dataset.dataset_rows import DatasetRows
from shardstream.dataset.opened import OpenedDataset
from shardstream.dataset.opening import open_dataset
from shardstream.errors import ChecksumError, DataError, FieldError, UsageError

from ..storage.places import Place
from ..stream.making import numbered, write_dataset

SIZES = [30, 1, 20, 40]
TOTAL = sum(SIZES)


def payload(number: int) -> bytes:
    return np.random.default_rng(number).bytes(500 + number)


@pytest.fixture(scope="module", params=["tar", "record"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    shards = numbered(SIZES, bin=payload, vec=lambda n: np.full(3, n, np.float32))
    for number, sample in enumerate(sample for shard in shards for sample in shard):
        if number % 3 == 0:
            sample["txt"] = f"text {number}"
    return write_dataset(
        tmp_path_factory.mktemp("rows") / request.param, shards, format=request.param, types={"vec": "array:float32:3"}
    )


def upload(folder: Path, place: Place) -> None:
    for file in sorted(folder.iterdir()):
        place.plant(file.name, file.read_bytes())


def damage(folder: Path, number: int) -> None:
    """Change a byte of the value of this sample, wherever it lies."""
    for file in folder.glob("shard-*"):
        data = bytearray(file.read_bytes())
        at = data.find(payload(number))
        if at >= 0:
            data[at + 7] ^= 1
            file.write_bytes(data)
            return
    raise AssertionError(number)


def check(rows: DatasetRows, ids: list[int]) -> None:
    batch = rows.read_ids(ids)
    numbers = [number % TOTAL for number in ids]
    assert batch.keys == [f"k{number:06d}" for number in numbers]
    starts = np.cumsum([0, *SIZES])
    assert [int(starts[int(name[6:12])]) + row for name, row in zip(batch.shards, batch.rows, strict=True)] == numbers
    for i, number in enumerate(numbers):
        values = batch.values(i)
        assert bytes(values.pop("bin")) == payload(number)
        assert values.pop("vec").tolist() == [number] * 3
        assert bytes(values.pop("txt", b"")).decode() == (f"text {number}" if number % 3 == 0 else "")
        assert values == {"id": number}


IDS = [0, 90, 30, 31, 29, 29, -1, -91, 55]


def test_by_number_in_any_order(folder: Path) -> None:
    dataset = open_dataset(folder)
    check(DatasetRows(dataset), IDS)
    assert DatasetRows(dataset, ["id"]).read_ids(IDS).columns["id"].data.tolist() == [n % TOTAL for n in IDS]
    assert list(DatasetRows(dataset, ["id"]).read_ids([4]).columns) == ["id"]


@pytest.mark.parametrize("number", [91, -92])
def test_a_number_that_is_none(folder: Path, number: int) -> None:
    with pytest.raises(UsageError, match=f"there is no sample {number}"):
        DatasetRows(open_dataset(folder)).read_ids([0, number])


def test_rows_outlive_what_read_them(folder: Path) -> None:
    """Their keys are found when they are asked for, in memory that nobody else may hold any more."""
    rows = DatasetRows(open_dataset(folder), ["id"])
    batch, memory = rows.read_ids([3, 40]), weakref.ref(rows.index(0).keys)
    del rows
    gc.collect()
    assert memory() is not None
    assert batch.keys == ["k000003", "k000040"]
    del batch
    gc.collect()
    assert memory() is None


def test_a_field_that_is_none(folder: Path) -> None:
    with pytest.raises(FieldError, match="nothing"):
        DatasetRows(open_dataset(folder), ["nothing"])


def test_far_away_everything_comes_side_by_side(folder: Path, s3: Place, tmp_path: Path) -> None:
    upload(folder, s3)
    for cache in (None, tmp_path / "cache", tmp_path / "cache"):
        check(DatasetRows(open_dataset(s3.url(), storage_options=s3.options, cache=cache)), IDS)


def whole(rows: DatasetRows, shards: list[int]) -> list[tuple[str, bytes]]:
    found = []
    for batch in rows.read_shards(shards):
        assert len(set(batch.shards)) == 1
        found += [(key, bytes(batch.value("bin", i))) for i, key in enumerate(batch.keys)]
    return found


@pytest.mark.parametrize("at_once", [1, 3000, 16 << 20])
def test_shard_by_shard(folder: Path, s3: Place, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset_rows, "_PART", at_once)
    upload(folder, s3)
    expected = [(f"k{number:06d}", payload(number)) for number in (*range(51, 91), *range(31))]
    assert whole(DatasetRows(open_dataset(folder)), [3, 0, 1]) == expected
    assert whole(DatasetRows(open_dataset(s3.url(), storage_options=s3.options)), [3, 0, 1]) == expected


def test_whoever_stops_in_the_middle_leaves_nothing_behind(folder: Path, s3: Place) -> None:
    upload(folder, s3)
    rows = DatasetRows(open_dataset(s3.url(), storage_options=s3.options))
    batches = rows.read_shards(range(4))
    next(batches)
    batches.close()
    check(rows, IDS)


def test_damage_is_named(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "damaged")
    damage(tmp_path / "damaged", 33)
    rows = DatasetRows(open_dataset(tmp_path / "damaged"))
    check(rows, [32, 34])
    with pytest.raises(ChecksumError, match="k000033"):
        rows.read_ids([32, 33])
    with pytest.raises(ChecksumError, match="k000033"):
        list(rows.read_shards([2]))
    unchecked = DatasetRows(open_dataset(tmp_path / "damaged"), verify=False)
    assert bytes(unchecked.read_ids([33]).value("bin", 0)) != payload(33)


def test_where_a_replica_is_damaged_the_next_place_is_read(
    folder: Path, s3: Place, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    upload(folder, s3)
    near = tmp_path / "near"
    shutil.copytree(folder, near)
    damage(near, 33)
    rows = DatasetRows(open_dataset(s3.url(), replicas=[near], storage_options=s3.options))
    assert rows.dataset.shard(2).store.url == str(near)
    check(rows, [32, 33, 34, 5])
    assert "is read from s3://" in caplog.text
    assert len(whole(rows, [0, 1, 2, 3])) == TOTAL
    (near / rows.dataset.manifest.shard_name(0)).write_bytes(b"\0" * rows.dataset.shard(0).size)
    check(DatasetRows(rows.dataset), IDS)


def test_what_is_damaged_everywhere_is_an_error(folder: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        shutil.copytree(folder, tmp_path / name)
        damage(tmp_path / name, 33)
    rows = DatasetRows(open_dataset(tmp_path / "one", replicas=[tmp_path / "two"]))
    with pytest.raises(DataError, match="k000033"):
        rows.read_ids([33])


def test_an_address_opens_the_same_anywhere(folder: Path, tmp_path: Path) -> None:
    dataset = open_dataset(folder, replicas=[tmp_path], cache=tmp_path / "cache")
    address = pickle.loads(pickle.dumps(dataset.address))
    assert address == dataset.address
    assert address.opened() is address.opened()
    assert address.open().manifest.fingerprint == dataset.manifest.fingerprint
    assert isinstance(pickle.loads(pickle.dumps(dataset)), OpenedDataset)


def test_options_that_no_place_can_use_are_named(folder: Path, tmp_path: Path, s3: Place) -> None:
    with pytest.raises(UsageError, match="storage_options: 'endpoint', 'region'"):
        open_dataset(folder, storage_options={"endpoint": "x", "region": "y"})
    upload(folder, s3)
    check(DatasetRows(open_dataset(folder, replicas=[s3.url()], storage_options=s3.options)), IDS)


def test_no_torch() -> None:
    code = "import sys, shardstream.dataset.dataset_rows, shardstream.dataset.opening; print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "False\n"
