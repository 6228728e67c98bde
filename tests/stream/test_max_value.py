"""Values that a few bytes announce: beyond ``max_value`` an error with shard and field, never all of the memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardstream as ss
from shardstream.diagnose import verify, view
from shardstream.errors import BatchError, DecodeError, ShardStreamError, UsageError
from shardstream.pack.export import export
from shardstream.pack.repack import repack
from shardstream.shards.fields import FieldType
from shardstream.shards.index import Column
from shardstream.shards.layout import checksum, pack_index
from shardstream.shards.manifest import Manifest
from shardstream.shards.record import MAGIC
from shardstream.shards.writing import ShardSummary
from shardstream.storage import counters, open_store

from ..storage.places import Place

WIDE = np.arange(3000, dtype=np.uint8)


def written(folder: Path, **fields: Any) -> Path:
    """Eight samples with one value of 3,000 bytes, which only the first has, and a label."""
    zstd = [name for name in fields if name == "packed"]
    types = {"fixed": "array:uint8:3000"} if "fixed" in fields else {}
    with ss.ShardWriter(folder, format="record", zstd=zstd, fields=types) as writer:
        for i in range(8):
            writer.write({"__key__": f"k{i}", "cls": i} | (fields if i == 0 or "whole" in folder.name else {}))
    return folder


def forged(folder: Path, width: int, *, lacking: bool = False) -> Path:
    """Two shards of 8 samples, each of a KB; no sample has the array of ``width`` bytes. One shard lacks its column."""
    kind, store = FieldType.parse(f"array:uint8:{width}"), open_store(folder)
    keys, summaries = np.arange(1, 9, dtype=np.uint64), []
    for number in range(2):
        columns = [Column("cls", FieldType.parse("int64"), values=np.arange(8, dtype="<i8"))]
        fields = {"cls": columns[0].type, "x": kind}
        if number == 0 or not lacking:
            columns.append(Column("x", kind, valid=np.zeros(1, np.uint8), offsets=np.zeros(8, np.uint64)))
        data = MAGIC + bytes(56)
        data += pack_index("record", (keys, b"abcdefgh"), columns, end=len(data))
        store.put(f"shard-{number:06d}.rec", data)
        summaries.append(ShardSummary(8, len(data), checksum(data), 1024, fields))
    Manifest.of(summaries, "shard-{:06d}.rec", framing="record").save(store)
    assert sum(path.stat().st_size for path in folder.iterdir()) < 8192
    return folder


def readers(url: Path, **options: Any) -> dict[str, Any]:
    """Every way to read one field of the first sample or batch."""
    return {
        "reader": lambda: ss.Reader(url, **options)[0],
        "by key": lambda: ss.Reader(url, **options).get(ss.Reader(url)._rows.index(0).keys[0]),
        "samples": lambda: next(iter(ss.ShardDataset(url, **options))),
        "batches": lambda: next(iter(ss.ShardDataset(url, batch_size=4, **options))),
        "loader": lambda: next(iter(ss.Loader(ss.ShardDataset(url, batch_size=4, **options), num_workers=0))),
        "replaced": lambda: next(iter(ss.ShardDataset(url, fields=["cls"], batch_size=4).replace(**options))),
        "mixture": lambda: next(iter(ss.Mixture({"a": ss.ShardDataset(url, **options)}, batch_size=8))),
    }


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize(
    ("name", "value"), [("packed", bytes(3000)), ("fixed", WIDE), ("array", WIDE.reshape(3, 1000)), ("array", WIDE)]
)
def test_a_value_beyond_the_limit_names_shard_and_field(tmp_path: Path, name: str, value: Any, whole: bool) -> None:
    url = written(tmp_path / ("whole" if whole else "part"), **{name: value})
    size = 3000 if name != "array" else len(value.tobytes()) + 128
    for how, read in readers(url, fields=[name], max_value=size - 1).items():
        with pytest.raises(DecodeError, match=f"{size} bytes, and max_value is {size - 1}") as caught:
            read()
        assert (caught.value.place["field"], caught.value.place["shard"]) == (name, "shard-000000.rec"), how
        assert "max_value" in str(caught.value.hint)
    for read in readers(url, fields=["cls"], max_value=1).values():
        read()
    assert bytes(np.asarray(ss.Reader(url, max_value=size)[0][name])) == bytes(value)
    (problem, *rest) = verify(url, max_value=size - 1).problems
    assert (problem.check, problem.field, problem.sample, problem.key) == ("value", name, 0, "k0")
    assert len(rest) == (7 if whole and name != "fixed" else 0)
    assert verify(url, max_value=size).ok


def test_no_other_place_is_asked_for_what_the_caller_will_not_have(
    tmp_path: Path, s3: Place, caplog: pytest.LogCaptureFixture
) -> None:
    url = written(tmp_path / "part", packed=bytes(3000), array=WIDE)
    for file in url.iterdir():
        s3.plant(file.name, file.read_bytes())
    before = counters().snapshot()
    for name, size in (("packed", 3000), ("array", 3128)):
        for near in (s3.url(), str(url)):
            places = {"replicas": [near], "cache": tmp_path / "cache", "storage_options": s3.options}
            dataset = ss.ShardDataset(s3.url(), fields=[name], max_value=size - 1, **places)
            for _ in range(2):
                with pytest.raises(DecodeError, match=f"{size} bytes, and max_value is {size - 1}"):
                    next(iter(dataset))
    assert "instead" not in caplog.text
    assert counters().since(before)["cache_repaired"] == 0


@pytest.mark.parametrize("lacking", [False, True])
def test_absent_arrays_of_two_gigabytes_are_refused(tmp_path: Path, lacking: bool) -> None:
    url = forged(tmp_path / "forged", (1 << 31) - 1, lacking=lacking)
    for number, shard in ((0, "shard-000000.rec"), (15, "shard-000001.rec")):
        with pytest.raises(DecodeError, match="2147483647 bytes, and max_value is 1073741824") as caught:
            ss.Reader(url)[number]
        assert (caught.value.place["field"], caught.value.place["shard"]) == ("x", shard)
    for how in ("samples", "batches", "loader", "mixture"):
        with pytest.raises(DecodeError, match="max_value"):
            readers(url)[how]()
    assert [problem.field for problem in verify(url).problems] == ["x"] * (1 if lacking else 2)
    assert next(iter(ss.ShardDataset(url, fields=["cls"], batch_size=16)))["cls"].tolist() == [*range(8)] * 2


def test_a_batch_that_memory_does_not_hold_is_an_error_with_the_field(tmp_path: Path) -> None:
    url = forged(tmp_path / "forged", 1 << 30)
    with pytest.raises(BatchError) as caught:
        next(iter(ss.ShardDataset(url, batch_size=16, epoch_size=1 << 16)))
    assert caught.value.place["field"] == "x"


def test_arrays_that_some_samples_lack_stay_with_those_that_have_them(tmp_path: Path) -> None:
    with ss.ShardWriter(tmp_path, format="record", fields={"x": "array:uint8:3"}) as writer:
        for i in range(80):
            writer.write({"__key__": f"{i}", "cls": i} | ({"x": np.full(3, i, np.uint8)} if i % 3 else {}))
    for sample in ss.ShardDataset(tmp_path):
        assert (sample["x"] is None) == (sample["cls"] % 3 == 0)
        assert sample["x"] is None or sample["x"].tolist() == [sample["cls"]] * 3


def test_samples_that_are_too_large_are_skipped_like_damaged_ones(tmp_path: Path) -> None:
    url = written(tmp_path / "part", packed=bytes(3000))
    dataset = ss.ShardDataset(url, fields={"packed": "bytes", "cls": None}, max_value="1kB", on_error="skip")
    assert [sample["cls"] for sample in dataset] == [*range(1, 8)]


@pytest.mark.parametrize("wrong", [0, -1, "much", 1.5, None, True])
def test_what_is_no_size(tmp_path: Path, wrong: Any) -> None:
    url = written(tmp_path / "part", fixed=WIDE)
    for make in (
        lambda: ss.ShardDataset(url, max_value=wrong),
        lambda: ss.ShardDataset(url).replace(max_value=wrong),
        lambda: ss.Reader(url, max_value=wrong),
        lambda: verify(url, max_value=wrong),
    ):
        with pytest.raises(UsageError, match="max_value must be a size"):
            make()


def test_what_was_stored_as_it_is_has_no_limit(tmp_path: Path) -> None:
    url = written(tmp_path / "whole", plain=bytes(3000), txt="x" * 3000)
    assert len(ss.Reader(url, max_value=1)[0]["plain"]) == 3000
    assert verify(url, max_value=1).ok


def test_whoever_else_reads_has_the_limit_too(tmp_path: Path) -> None:
    url = forged(tmp_path / "forged", (1 << 31) - 1)
    with pytest.raises(ShardStreamError, match="max_value"):
        repack(url, tmp_path / "again", workers=0)
    with pytest.raises(ShardStreamError, match="max_value"):
        export(url, tmp_path / "files", to="files", workers=0)
    assert view(url, [0]).samples[0].key == "a"
