"""Small data sets of any fields."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import shardstream as ss
from shardstream.errors import DestinationError, FieldError, UsageError
from shardstream.shards.fields import FieldType
from shardstream.testing import MemoryStore, make_dataset

FIELDS = {
    "jpg": "jpg",
    "mask": "png",
    "web": "webp",
    "cls": "int32",
    "id": "uint8",
    "ok": "bool",
    "half": "float16",
    "emb": "array:float32:2,3",
    "bits": "array:bool:5",
    "codes": "array:int8:4",
    "txt": "str",
    "raw": "bytes",
    "box": "json",
    "pack": "msgpack",
    "any": "array",
    "tensor": "tensor",
    "even": lambda number: None if number % 2 else number,
}


def test_every_type_of_field_can_be_made_and_read(tmp_path) -> None:
    assert make_dataset(tmp_path / "made", samples=30, shards=3, fields=FIELDS, classes=7) == tmp_path / "made"
    manifest = ss.Manifest.load(tmp_path / "made")
    assert (manifest.samples, manifest.shards, manifest.classes) == (30, 3, None)
    declared = {name: FieldType.parse(kind) for name, kind in FIELDS.items() if isinstance(kind, str)}
    assert manifest.fields == declared | {"even": FieldType.parse("int64")}
    reader = ss.Reader(tmp_path / "made")
    for number in range(30):
        sample = reader[number]
        assert sample["__key__"] == f"{number:06d}"
        assert (sample["cls"], sample["id"]) == (number % 7, number)
        assert sample["even"] == (None if number % 2 else number)
        assert sample["box"] == sample["pack"] | {"words": sample["box"]["words"]}
        assert sample["emb"].shape == (2, 3)
        assert sample["txt"]
        assert isinstance(sample["tensor"], torch.Tensor)
        assert 48 <= sample["jpg"].shape[0] <= 72
        assert 64 <= sample["jpg"].shape[1] <= 96


def test_it_is_the_same_each_time_and_another_with_another_seed(tmp_path) -> None:
    for name, seed in (("one", 0), ("two", 0), ("three", 1)):
        make_dataset(tmp_path / name, fields=FIELDS, samples=10, seed=seed)
    one, two, three = (ss.Manifest.load(tmp_path / name).fingerprint for name in ("one", "two", "three"))
    assert one == two != three


def test_samples_are_unlike_and_classes_have_names(tmp_path) -> None:
    names = ["cat", "dog", "é"]
    make_dataset(tmp_path / "made", samples=20, classes=names, format="record")
    assert ss.Manifest.load(tmp_path / "made").classes == tuple(names)
    reader = ss.Reader(tmp_path / "made")
    assert {int(reader[number]["cls"]) for number in range(20)} == {0, 1, 2}
    assert len({reader[number]["jpg"].tobytes() for number in range(20)}) == 20


@pytest.mark.parametrize(("samples", "shards"), [(0, 1), (1, 1), (3, 5), (10, 3)])
def test_samples_are_divided_among_shards(tmp_path, samples, shards) -> None:
    make_dataset(tmp_path / "made", samples=samples, shards=shards, fields={"id": "int64"})
    counts = ss.Manifest.load(tmp_path / "made").table.samples.tolist()
    assert (len(counts), sum(counts)) == (shards, samples)
    assert max(counts) - min(counts) <= 1


def test_it_trains(tmp_path) -> None:
    make_dataset(tmp_path / "made", samples=64)
    fields = {"jpg": ss.decode.RandomResizedCrop(32), "cls": None}
    ds = ss.ShardDataset(tmp_path / "made", fields=fields, batch_size=8, shuffle=True)
    seen = np.concatenate([batch["cls"].numpy() for batch in ds])
    assert np.bincount(seen).tolist() == [7, 7, 7, 7, 6, 6, 6, 6, 6, 6]


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"samples": -1}, UsageError, "samples must be at least 0, got -1"),
        ({"shards": 0}, UsageError, "shards must be at least 1, got 0"),
        ({"classes": 0}, UsageError, "at least one class"),
        ({"fields": {"a": "images"}}, FieldError, "unknown field type 'images'"),
        ({"fields": {"__a": "int8"}}, FieldError, "cannot be a field name"),
        ({"fields": {"a": lambda number: object()}}, FieldError, "has no field type"),
    ],
)
def test_what_cannot_be_made_is_refused(tmp_path, arguments, error, said) -> None:
    with pytest.raises(error, match=said):
        make_dataset(tmp_path / "made", **arguments)


def test_a_data_set_that_is_there_stays(tmp_path) -> None:
    make_dataset(tmp_path, samples=3)
    with pytest.raises(DestinationError, match="there is a data set already"):
        make_dataset(tmp_path, samples=4)
    assert ss.Manifest.load(tmp_path).samples == 3


def test_into_a_store() -> None:
    store = MemoryStore()
    assert make_dataset(store, samples=9, fields={"id": "int64"}) is store
    assert ss.Manifest.read(store).samples == 9


def test_pictures_of_any_format_are_made(tmp_path) -> None:
    make_dataset(tmp_path, fields={"photo": "image"}, samples=2, image_size=(8, 9))
    assert str(ss.Manifest.load(tmp_path).fields["photo"]) == "image"
    height, width, channels = ss.Reader(tmp_path)[0]["photo"].shape
    assert (height >= 8, width >= 9, channels) == (True, True, 3)
