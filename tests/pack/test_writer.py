from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from shardstream import ShardOptions
from shardstream.errors import (
    DestinationError,
    DuplicateKeyError,
    FieldError,
    ShardStreamError,
    StorageError,
    UsageError,
)
from shardstream.images.header import probe
from shardstream.pack.sources.values import encode
from shardstream.pack.writer import ShardWriter
from shardstream.shards.key_table import key_table_name
from shardstream.shards.manifest import Manifest

from .making import jpeg, samples, tree


def write(dest: Path, count: int = 20, **options: Any) -> Manifest:
    with ShardWriter(dest, **options) as writer:
        for i in range(count):
            writer.write({"__key__": f"k/{i}", "jpg": jpeg(i), "cls": i})
        assert writer.samples == count
    return Manifest.load(dest)


def write_all(dest: Path, samples: Iterable[dict[str, Any]], error: Exception | None = None, **options: Any) -> None:
    with ShardWriter(dest, **options) as writer:
        for sample in samples:
            writer.write(sample)
        if error is not None:
            raise error


@pytest.mark.parametrize("format", ["tar", "record"])
def test_samples_lie_as_they_came(tmp_path: Path, format: Any) -> None:
    manifest = write(tmp_path, format=format, shard_size=4000, classes=["a"], meta={"x": 1})
    assert manifest.shards > 2
    assert samples(tmp_path) == {f"k/{i}": {"jpg": jpeg(i), "cls": i} for i in range(20)}
    assert list(samples(tmp_path)) == [f"k/{i}" for i in range(20)]
    assert (manifest.seed, manifest.plan, manifest.classes, manifest.meta) == (None, None, ("a",), {"x": 1})
    assert manifest.shard_name(1).startswith("shard-000001.")
    assert manifest.table.sizes.max() < 4000 + 8000


def test_the_same_samples_give_the_same_bytes(tmp_path: Path) -> None:
    write(tmp_path / "a", shard_size=4000)
    write(tmp_path / "b", shard_size=4000)
    assert tree(tmp_path / "a") == tree(tmp_path / "b")


def test_every_kind_of_value(tmp_path: Path) -> None:
    fields = {"i8": "int8", "fix": "array:float32:2", "obj": "msgpack"}
    with ShardWriter(tmp_path, format="record", fields=fields, shards=ShardOptions(zstd=["txt"])) as writer:
        writer.write(
            {
                "__key__": "a",
                "txt": "é" * 100,
                "meta": {"k": [1]},
                "f": 1.5,
                "yes": True,
                "i8": -3,
                "fix": np.ones(2, np.float32),
                "obj": {"b": b"1"},
                "arr": np.arange(4),
                "ten": torch.ones(2, dtype=torch.bfloat16),
                "raw": b"\0",
                "none": None,
            }
        )
    manifest = Manifest.load(tmp_path)
    assert {name: kind.name for name, kind in manifest.fields.items()} == {
        "txt": "str",
        "meta": "json",
        "f": "float64",
        "yes": "bool",
        "i8": "int8",
        "fix": "array:float32:2",
        "obj": "msgpack",
        "arr": "array",
        "ten": "tensor",
        "raw": "bytes",
    }
    assert manifest.codecs == {"txt": "zstd"}
    assert samples(tmp_path)["a"]["txt"] == ("é" * 100).encode()


def test_pixels_are_encoded(tmp_path: Path) -> None:
    pixels = np.arange(300, dtype=np.uint8).reshape(10, 10, 3)
    with ShardWriter(tmp_path) as writer:
        writer.write({"__key__": "a", "jpg": pixels, "seg.png": pixels[..., 0]})
        writer.write({"__key__": "b", "jpg": Image.fromarray(pixels), "seg.png": jpeg(1)})
    found = samples(tmp_path)
    assert Manifest.load(tmp_path).fields["seg.png"].name == "png"
    assert probe(found["a"]["jpg"])[:3] == ("jpg", 10, 10)  # type: ignore[arg-type]
    assert probe(found["a"]["seg.png"]).channels == 1  # type: ignore[arg-type]
    assert found["a"]["jpg"] == found["b"]["jpg"]
    with pytest.raises(FieldError, match="cannot be encoded"), ShardWriter(tmp_path / "x") as writer:
        writer.write({"__key__": "a", "jpg": np.ones((4, 4, 3), np.float32)})


def test_fields_may_be_missing(tmp_path: Path) -> None:
    with ShardWriter(tmp_path) as writer:
        writer.write({"__key__": "a", "cls": 1})
        writer.write({"__key__": "b", "txt": "x"})
    assert samples(tmp_path) == {"a": {"cls": 1}, "b": {"txt": b"x"}}


def test_an_exception_in_the_block_leaves_nothing(tmp_path: Path) -> None:
    photographs = [{"__key__": str(i), "jpg": jpeg(i)} for i in range(20)]
    with pytest.raises(ZeroDivisionError):
        write_all(tmp_path / "out", photographs, ZeroDivisionError(), shard_size=2000)
    assert not tree(tmp_path / "out")


def test_a_sample_that_is_refused_can_be_left_out(tmp_path: Path) -> None:
    with ShardWriter(tmp_path) as writer:
        writer.write({"__key__": "a", "cls": 1})
        with pytest.raises(FieldError, match="expected int64") as caught:
            writer.write({"__key__": "b", "txt": "x", "cls": "one"})
        assert caught.value.place == {"key": "b", "field": "cls"}
        with pytest.raises(FieldError, match="field name"):
            writer.write({"__key__": "b", "a b": 1})
        with pytest.raises(UsageError, match="__key__"):
            writer.write({"cls": 1})
        with pytest.raises(UsageError, match="key"):
            writer.write({"__key__": "/b", "cls": 1})
        writer.write({"__key__": "c", "cls": 2})
    assert list(samples(tmp_path)) == ["a", "c"]


def test_a_type_holds_across_shards(tmp_path: Path) -> None:
    with pytest.raises(FieldError, match="expected int64"):
        write_all(tmp_path, [{"__key__": "a", "cls": 1}, {"__key__": "b", "cls": 1.5}], shard_size=1)


def test_a_key_twice_in_a_shard(tmp_path: Path) -> None:
    with ShardWriter(tmp_path) as writer:
        writer.write({"__key__": "a", "cls": 1})
        writer.write({"__key__": "b", "cls": 1})
        with pytest.raises(DuplicateKeyError, match=r"sample 1 of shard-000000\.tar has the same key") as caught:
            writer.write({"__key__": "b", "cls": 2})
        assert caught.value.place == {"shard": "shard-000000.tar", "sample": 2, "key": "b"}
    assert samples(tmp_path) == {"a": {"cls": 1}, "b": {"cls": 1}}


@pytest.mark.parametrize("format", ["tar", "record"])
def test_a_key_of_an_earlier_shard(tmp_path: Path, format: Any) -> None:
    values = [{"__key__": f"{15 if i == 88 else i}", "raw": bytes(4000)} for i in range(200)]
    with pytest.raises(DuplicateKeyError, match=r"sample \d of shard-000002\..* has the same key") as caught:
        write_all(tmp_path, values, format=format, shard_size="25kB")
    assert caught.value.place["key"] == "15"
    assert not tree(tmp_path)


def test_a_failure_while_writing_cannot_be_overlooked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise StorageError("disk full")

    with pytest.raises(ShardStreamError, match="cannot be completed"), ShardWriter(tmp_path) as writer:  # noqa: PT012
        writer.write({"__key__": "a", "cls": 1})
        monkeypatch.setattr("shardstream.shards.tar.TarShard._write", fail)
        with pytest.raises(StorageError):
            writer.write({"__key__": "b", "cls": 1})
        monkeypatch.undo()
    assert not tree(tmp_path)


def test_outside_of_the_block(tmp_path: Path) -> None:
    writer = ShardWriter(tmp_path)
    with pytest.raises(UsageError, match="with"):
        writer.write({"__key__": "a", "cls": 1})
    with pytest.raises(UsageError, match="no sample"), writer:
        pass
    assert not tree(tmp_path)


def test_overwriting(tmp_path: Path) -> None:
    write(tmp_path, 30, shard_size=3000)
    with pytest.raises(DestinationError, match="30 samples"):
        ShardWriter(tmp_path)
    before = tree(tmp_path)
    with pytest.raises(ZeroDivisionError):
        write_all(tmp_path, [{"__key__": "a", "cls": 1}], ZeroDivisionError(), overwrite=True)
    assert tree(tmp_path) == before
    for name in ("shard-r1-000000.tar", "shard-000000.tar"):
        new = write(tmp_path, 3, overwrite=True)
        assert set(tree(tmp_path)) == {name, "dataset.json", new.table_name, key_table_name(new.fingerprint)}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "zip"}, "zip"),
        ({"shard_size": "x"}, "shard_size"),
        ({"fields": {"a": "images"}}, "images"),
        ({"fields": {"a b": "int"}}, "field name"),
        ({"shards": ShardOptions(zstd=["cls"]), "format": "record", "fields": {"cls": "int"}}, "compressed"),
        ({"shards": ShardOptions(zstd=["txt"])}, "tar"),
        ({"meta": {"a": {1}}}, "meta"),
        ({"classes": [1]}, "classes"),
    ],
    ids=str,
)
def test_bad_arguments(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ShardWriter(tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_equal_values_of_different_types_keep_their_types() -> None:
    found = [encode("x", value) for value in (0, False, 0.0, "", b"", 1, True, 1.0)]
    assert [kind.name for kind, _ in found] == ["int64", "bool", "float64", "str", "bytes", "int64", "bool", "float64"]
    assert [type(value) for _, value in found[-3:]] == [int, bool, float]
    assert [encode(name, b"1")[0].name for name in ("jpg", "a.txt", "JPG", "x")] == ["jpg", "str", "jpg", "bytes"]
    for value in (b"", 1, "x", np.zeros(2)):
        with pytest.raises(FieldError, match="field name"):
            encode("__x", value)
