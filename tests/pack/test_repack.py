"""Data sets packed again: what is stored stays as it is, unless it is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardstream as ss
from shardstream.errors import ChecksumError, DuplicateKeyError, FieldError, NotFoundError, SourceError, UsageError
from shardstream.pack.repack import repack
from shardstream.pack.run import pack
from shardstream.pack.writer import ShardWriter
from shardstream.shards.manifest import Manifest

from ..storage.places import S3Place
from .making import jpeg, photo_list, samples, tree

SMALL = "10kB"


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    """Every kind of field, some missing."""
    with ShardWriter(
        tmp_path / "in",
        format="record",
        shard_size=SMALL,
        fields={"small": "uint8", "fixed": "array:float32:3"},
        shards=ss.ShardOptions(zstd=["txt"]),
        classes=["a", "b"],
        meta={"by": "me"},
    ) as writer:
        for i in range(60):
            sample = {"__key__": f"c/{i:03d}.x", "jpg": jpeg(i), "cls": i % 2, "small": i, "score": i / 7, "ok": i > 3}
            sample |= {"fixed": np.full(3, i, np.float32), "emb": np.arange(i % 5), "txt": f"Ä {i}" * 20}
            sample |= {"json": {"i": i}, "extra": b"x" * i if i % 3 else None}
            writer.write(sample)
    return tmp_path / "in"


@pytest.mark.full
@pytest.mark.parametrize("workers", [0, 2])
def test_there_and_back(packed: Path, tmp_path: Path, workers: int) -> None:
    tar = repack(packed, tmp_path / "tar", format="tar", shard_size="90kB", shuffle=True, seed=3, workers=workers)
    before = Manifest.load(packed)
    assert (tar.framing, tar.classes, tar.meta, tar.fields) == ("tar", ("a", "b"), {"by": "me"}, before.fields)
    assert tar.shards < before.shards
    assert list(samples(tmp_path / "tar")) != list(samples(packed))
    numbers = [int(key[2:5]) for key in samples(tmp_path / "tar")]
    back = repack(
        tmp_path / "tar",
        tmp_path / "back",
        format="record",
        shards=ss.ShardOptions(zstd=["txt"]),
        shard_size=SMALL,
        workers=workers,
    )
    assert back.codecs == {"txt": "zstd"}
    assert [int(key[2:5]) for key in samples(tmp_path / "back")] == numbers
    one, two = ss.Reader(packed), ss.Reader(tmp_path / "back")
    by_key = {sample["__key__"]: sample for sample in two}
    for sample in one:
        other = by_key[sample["__key__"]]
        assert other.keys() == sample.keys()
        for name, value in sample.items():
            assert np.array_equal(value, other[name]), name


def test_the_same_bytes_as_a_first_packing(tmp_path: Path) -> None:
    """In stored order, shards of one size hold what they held."""
    pack(photo_list(tmp_path, 40), tmp_path / "one", shard_size="1MB", workers=0, images=ss.ImageOptions(jpeg="keep"))
    repack(tmp_path / "one", tmp_path / "two", shard_size="1MB", workers=0)
    (one,), (two,) = ((tmp_path / name).glob("*.tar") for name in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()


def test_defaults_are_those_of_the_data_set(packed: Path, tmp_path: Path) -> None:
    again = repack(packed, tmp_path / "out", workers=0)
    before = Manifest.load(packed)
    assert (again.framing, again.codecs) == ("record", {"txt": "zstd"})
    assert (again.meta, again.classes) == ({"by": "me"}, ("a", "b"))
    assert list(samples(tmp_path / "out")) == list(samples(packed))
    assert again.fields == before.fields


def test_a_part_of_it(packed: Path, tmp_path: Path) -> None:
    found = repack(packed, tmp_path / "out", fields=["cls", "txt"], take=7, key="line", workers=0)
    assert set(found.fields) == {"cls", "txt"}
    assert list(samples(tmp_path / "out")) == [f"{i:010d}" for i in range(1, 8)]
    with pytest.raises(FieldError, match="no field 'cl'"):
        repack(packed, tmp_path / "none", fields=["cl"])
    with pytest.raises(UsageError, match="take must be a positive integer, got 0"):
        repack(packed, tmp_path / "none", take=0)
    with pytest.raises(UsageError, match="key='cls'"):
        repack(packed, tmp_path / "none", key="cls")


def few(sample: dict[str, Any]) -> dict[str, Any] | None:
    assert isinstance(sample["txt"], str)
    assert sample["json"] == {"i": sample["small"]}
    assert isinstance(sample["emb"], np.ndarray)
    return {"txt": sample["txt"][:5], "cls": sample["cls"]} if sample["small"] % 10 == 0 else None


def test_a_transform_sees_values_and_filters(packed: Path, tmp_path: Path) -> None:
    found = repack(packed, tmp_path / "out", transform=few, workers=0)
    assert found.samples == 6
    assert {sample["txt"] for sample in ss.Reader(tmp_path / "out")} == {f"Ä {i}Ä {i}"[:5] for i in range(0, 60, 10)}


def test_keys_by_their_last_parts_are_compared(tmp_path: Path) -> None:
    with ShardWriter(tmp_path / "in") as writer:
        for i in range(4):
            writer.write({"__key__": f"{i}/{i % 3}", "cls": i})
    with pytest.raises(DuplicateKeyError, match=r"shard-000000\.tar#0 and shard-000000\.tar#3") as caught:
        repack(tmp_path / "in", tmp_path / "out", key="stem")
    assert caught.value.place["key"] == "0"


@pytest.mark.full
def test_from_store_to_store(s3: S3Place, packed: Path, tmp_path: Path) -> None:
    options = {"storage": ss.StorageOptions(options=s3.options, source=s3.options)}
    for name, data in tree(packed).items():
        s3.plant(f"in/{name}", data)
    repack(s3.url("in"), s3.url("out"), shard_size="20kB", shuffle=True, workers=2, **options)  # type: ignore[arg-type]
    repack(packed, tmp_path / "out", shard_size="20kB", shuffle=True, workers=0)
    expected = tree(tmp_path / "out")
    assert {name: s3.dig(f"out/{name}") for name in expected} == expected


def test_damage_is_found_on_the_way(packed: Path, tmp_path: Path) -> None:
    path = packed / Manifest.load(packed).shard_name(1)
    data = path.read_bytes()
    path.write_bytes(data.replace(jpeg(8)[:60], b"\0" * 60))
    assert path.read_bytes() != data
    with pytest.raises(ChecksumError) as caught:
        repack(packed, tmp_path / "out", workers=0)
    assert caught.value.place["shard"] == path.name
    assert not (tmp_path / "out" / "dataset.json").exists()


def test_a_data_set_that_is_replaced_meanwhile(packed: Path, tmp_path: Path) -> None:
    plan = ss.pack_plan(_source(packed), tmp_path / "out", images=ss.ImageOptions(jpeg="keep"))
    pack(photo_list(tmp_path, 10), packed, overwrite=True, workers=0)
    from shardstream.dataset import opened

    opened._opened.cache_clear()
    with pytest.raises(SourceError, match="changed while it was being packed"):
        plan.tasks[0].run()


def _source(url: Path) -> Any:
    from shardstream.dataset.opening import open_dataset
    from shardstream.pack.sources.stored import StoredSource

    return StoredSource(open_dataset(url))


def test_what_is_no_data_set(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no data set"):
        repack(tmp_path, tmp_path / "out")
