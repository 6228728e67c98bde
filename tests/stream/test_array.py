"""``ss.decode.Array``: stored numbers in a wider dtype; ``"pil"``: pictures for transforms that take Pillow's."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image as PilImage

import shardstream as ss
from shardstream.decode.dtypes import holds_all
from shardstream.errors import DecodeError, FieldError, UsageError
from shardstream.shards.fields import SCALAR_TYPES
from tests.grouped import grouped

from ..load.lending import is_lent
from .exact import near
from .making import labels, numbered, photograph, write_dataset

Array = ss.decode.Array
COUNT = 20
TYPES = {"tokens": "array:uint16:6", "n": "uint16", "flag": "bool", "score": "float64", "id": "int64"}


def tokens(number: int) -> np.ndarray[Any, Any]:
    return (np.arange(6) * 4099 + number).astype(np.uint16)


def row(number: int) -> np.ndarray[Any, Any]:
    return tokens(number)[: number % 4]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    makers: dict[str, Any] = {"tokens": tokens, "row": row, "n": lambda n: 65_535 - n, "flag": lambda n: n % 2 == 0}
    makers |= {"score": lambda n: n / 3, "jpg": photograph, "seg": lambda _: labels()}
    shards = numbered((12, 8), **makers)
    return write_dataset(tmp_path_factory.mktemp("arrays") / "d", shards, types=TYPES | {"seg": "png"})


def held(wide: np.dtype[Any], narrow: np.dtype[Any]) -> bool:
    """Whether every value of one dtype is one of the other, by what Python says of its bounds and their neighbours."""
    if narrow.kind == "b" or wide.kind == "b":
        return narrow.kind == "b"
    if wide.kind != "f":
        ours = np.iinfo(wide)
        return narrow.kind != "f" and all(ours.min <= value <= ours.max for value in near(narrow.name))
    if narrow.kind == "f":
        return wide.itemsize >= narrow.itemsize
    with np.errstate(over="ignore"):
        made = [wide.type(value).item() for value in near(narrow.name)]
    return made == near(narrow.name)


def test_a_dtype_holds_what_python_says_it_holds() -> None:
    for one, other in itertools.product(SCALAR_TYPES, repeat=2):
        assert holds_all(np.dtype(one), np.dtype(other)) == held(np.dtype(one), np.dtype(other)), (one, other)


SPECS = {"tokens": Array("int64"), "n": Array(np.int64), "flag": Array("float32"), "row": Array("int64"), "id": None}


def check(batch: Any) -> None:
    ids = batch["id"].tolist()
    assert batch["tokens"].dtype == torch.int64
    assert batch["tokens"].tolist() == [tokens(number).tolist() for number in ids]
    assert (batch["n"].dtype, batch["n"].tolist()) == (torch.int64, [65_535 - number for number in ids])
    assert (batch["flag"].dtype, batch["flag"].tolist()) == (torch.float32, [float(n % 2 == 0) for n in ids])
    assert isinstance(batch["row"], ss.Ragged)
    assert batch["row"].values.dtype == torch.int64
    assert [one.tolist() for one in batch["row"]] == [row(number).tolist() for number in ids]


def same(value: Any) -> Any:
    return value


@pytest.mark.parametrize("road", [{}, {"transform": same}, {"threads": 1}], ids=["columns", "transform", "one thread"])
@pytest.mark.parametrize("workers", [0, 2])
def test_numbers_come_in_the_wider_dtype(folder: Path, road: dict[str, Any], workers: int) -> None:
    dataset = ss.ShardDataset(folder, fields=SPECS, batch_size=5, shuffle=True, **grouped(road))
    seen = []
    for batch in ss.Loader(dataset, num_workers=workers):
        check(batch)
        seen += batch["id"].tolist()
    assert sorted(seen) == list(range(COUNT))


def test_the_cast_is_written_into_memory_of_the_batch(tmp_path: Path) -> None:
    shard = [{"__key__": f"k{n}", "x": np.full(1 << 14, n, np.uint16)} for n in range(16)]
    path = write_dataset(tmp_path / "d", [shard], types={"x": f"array:uint16:{1 << 14}"})
    for batch in ss.Loader(ss.ShardDataset(path, fields={"x": Array("int64")}, batch_size=8), num_workers=1):
        assert is_lent(batch["x"])
        assert (batch["x"].dtype, batch["x"].shape) == (torch.int64, (8, 1 << 14))


def test_views_tuples_samples_and_the_reader(folder: Path) -> None:
    dataset = ss.ShardDataset(folder, fields=SPECS, batch_size=4)
    view = dataset.take(6)
    assert [len(batch["id"]) for batch in view] == [4, 2]
    for batch in view:
        check(batch)
    ones, numbers = dataset.to_tuple("row", "tokens").peek()
    assert (ones.values.dtype, numbers.dtype) == (torch.int64, torch.int64)
    sample = ss.Reader(folder, fields=SPECS)[3]
    assert (sample["tokens"].dtype, sample["row"].dtype, sample["n"]) == (np.int64, np.int64, 65_532)
    assert sample["tokens"].tolist() == tokens(3).tolist()
    single = next(iter(ss.ShardDataset(folder, fields=SPECS)))
    assert single["tokens"].dtype == np.int64


def test_a_state_goes_on_in_the_same_dtype(folder: Path) -> None:
    def loader() -> Any:
        dataset = ss.ShardDataset(folder, fields=SPECS, batch_size=4, shuffle=True, tail="exact")
        return ss.Loader(dataset, num_workers=0)

    whole = [batch["id"].tolist() for batch in loader()]
    first = loader()
    head = [batch["id"].tolist() for _, batch in zip(range(2), first, strict=False)]
    second = loader()
    second.load_state_dict(first.state_dict())
    rest = []
    for batch in second:
        check(batch)
        rest.append(batch["id"].tolist())
    assert head + rest == whole


@pytest.mark.parametrize("by", ["samples", "batches"])
@pytest.mark.parametrize("transform", [None, same])
def test_sources_of_other_dtypes_meet_in_one(tmp_path: Path, folder: Path, by: Any, transform: Any) -> None:
    other = numbered((9,), tokens=lambda n: np.full(6, -n, np.int32), row=lambda n: np.full(n, -n, np.int8))
    write_dataset(tmp_path / "other", other, types={"tokens": "array:int32:6"})
    fields = {"tokens": Array("int64"), "row": Array("int64")}
    sources = {
        name: (ss.ShardDataset(path, fields=fields, transform=transform), 1)
        for name, path in (("one", folder), ("other", tmp_path / "other"))
    }
    mixture = ss.Mixture(sources, batch_size=4, by=by, epoch=64)
    seen = set()
    for batch in mixture:
        assert batch["tokens"].dtype == batch["row"].values.dtype == torch.int64
        seen |= set(batch["tokens"][:, 0].tolist())
    assert {-3, 3} <= seen


@pytest.mark.parametrize(
    ("name", "dtype"), [("score", "int64"), ("score", "float32"), ("id", "float64"), ("id", "int32"), ("n", "bool")]
)
def test_what_may_lose_something_is_an_error_at_the_start(folder: Path, name: str, dtype: str) -> None:
    with pytest.raises(FieldError, match=rf"{dtype} does not hold every value of {TYPES[name]} exactly") as caught:
        ss.ShardDataset(folder, fields={"x": Array(dtype, source=name)}, batch_size=4)
    assert caught.value.place["field"] == name
    assert "looks at each value" in str(caught.value)


def test_arrays_of_their_own_dtypes_are_looked_at_sample_by_sample(tmp_path: Path) -> None:
    shard = [{"__key__": f"k{n}", "x": np.ones(2, dtype)} for n, dtype in enumerate((np.uint8, np.float32))]
    dataset = ss.ShardDataset(
        write_dataset(tmp_path / "d", [shard]), fields={"x": Array("int32")}, batch_size=1, on_error="skip"
    )
    with pytest.raises(FieldError, match="int32 does not hold every value of float32") as caught:
        list(dataset)
    assert caught.value.place == {"shard": "shard-000000.tar", "sample": 1, "key": "k1", "field": "x"}
    write_dataset(tmp_path / "rows", [[{"__key__": "a", "row": np.ones(2, np.uint16)}]])
    with pytest.raises(FieldError, match=r'\{"row": np.int8\} in `fields` looks at each value'):
        ss.ShardDataset(tmp_path / "rows", fields={"row": Array("int8")}, batch_size=1).peek()
    with pytest.raises(FieldError, match="got a list"):
        ss.ShardDataset(tmp_path / "d", fields={"x": [np.ndarray.tolist, Array("int32")]}, batch_size=1).peek()


@pytest.mark.parametrize("wrong", [None, "int65", "complex64", "str", object, "float128"])
def test_other_dtypes_are_refused(wrong: Any) -> None:
    with pytest.raises(UsageError, match=r'write Array\("int64"\)'):
        Array(wrong)


def test_byte_order_is_that_of_the_machine() -> None:
    assert Array(">i8") == Array("int64")


@pytest.mark.parametrize("batch_size", [None, 4])
def test_a_field_that_samples_lack(tmp_path: Path, batch_size: int | None) -> None:
    shard = [{"__key__": f"k{n}"} | ({} if n == 2 else {"x": tokens(n), "n": n, "r": row(n)}) for n in range(4)]
    path = write_dataset(tmp_path / "d", [shard], types={"x": "array:uint16:6", "n": "uint16"})
    fields = {name: Array("int64", optional=True) for name in "xn"}
    found = list(ss.ShardDataset(path, fields=fields, batch_size=batch_size))
    if batch_size is None:
        assert [one["n"] for one in found] == [0, 1, None, 3]
        assert found[2]["x"] is None
        return
    (batch,) = found
    assert batch["x"].dtype == batch["n"].dtype == torch.int64
    assert (batch["n"].tolist(), batch["n.__valid__"].tolist()) == ([0, 1, 0, 3], [True, True, False, True])
    assert batch["x"].tolist() == [tokens(n).tolist() if n != 2 else [0] * 6 for n in range(4)]
    with pytest.raises((ss.errors.BatchError, DecodeError), match="'x'"):
        ss.ShardDataset(path, fields={"x": Array("int64")}, batch_size=4).peek()
    both = ss.ShardDataset(path, fields={"y": Array("int64", source="r;x", optional=True)}, batch_size=2).peek()["y"]
    assert [one.tolist() for one in both] == [row(0).tolist(), row(1).tolist()]


# ----------------------------------------------------------------------------------------------------------- pictures


class ToTensor:
    """As that of torchvision v1: a Pillow image to float32 (C, H, W) in 0...1, drawn from torch's global generator."""

    def __call__(self, image: PilImage.Image) -> torch.Tensor:
        assert isinstance(image, PilImage.Image)
        if torch.rand(1) < 0.5:
            image = image.transpose(PilImage.Transpose.FLIP_LEFT_RIGHT)
        image = image.resize((32, 24))
        return torch.from_numpy(np.asarray(image).transpose(2, 0, 1).copy()).float() / 255


def in_transform(sample: dict[str, Any]) -> dict[str, Any]:
    return sample | {"jpg": ToTensor()(sample["jpg"])}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("road", [{"fields": {"jpg": ["pil", ToTensor()], "id": None}}, {"transform": in_transform}])
def test_transforms_of_pillow_images_run_as_they_are(folder: Path, road: dict[str, Any], workers: int) -> None:
    options: dict[str, Any] = {"fields": {"jpg": "pil", "id": None}, "batch_size": 5, "shuffle": True} | road
    random.seed(1)
    loader = ss.Loader(ss.ShardDataset(folder, **grouped(options)), num_workers=workers)
    batches = list(loader)
    assert {batch["jpg"].shape for batch in batches} == {(5, 3, 24, 32)}
    assert {batch["jpg"].dtype for batch in batches} == {torch.float32}
    again = list(ss.Loader(ss.ShardDataset(folder, **grouped(options)), num_workers=2 - workers))
    for one, other in zip(batches, again, strict=True):
        assert torch.equal(one["jpg"], other["jpg"])


@pytest.mark.parametrize("workers", [0, 2])
def test_pictures_come_as_a_list_of_pillow_images(folder: Path, workers: int) -> None:
    fields: dict[str, Any] = {
        "jpg": "pil",
        "crop": [ss.decode.RandomResizedCrop((40, 30), source="jpg", flip=True), "pil"],
        "seg": [ss.decode.Mask(like="crop"), "pil"],
        "id": None,
    }
    pixels = ss.ShardDataset(folder, fields={"jpg": None, "id": None}, batch_size=1)
    expected = {int(batch["id"]): batch["jpg"][0].permute(1, 2, 0).numpy() for batch in pixels}
    for batch in ss.Loader(ss.ShardDataset(folder, fields=fields, batch_size=8), num_workers=workers):
        assert [image.size for image in batch["crop"]] == [(30, 40)] * len(batch["id"])
        assert [(image.size, image.mode) for image in batch["seg"]] == [((30, 40), "L")] * len(batch["id"])
        for image, number in zip(batch["jpg"], batch["id"].tolist(), strict=True):
            assert image.mode == "RGB"
            assert np.array_equal(np.asarray(image), expected[number])


def test_pil_stands_behind_pixels(folder: Path) -> None:
    wrong: Any
    for wrong, what in (
        ({"id": "pil"}, "Image cannot decode field 'id'"),
        ({"jpg": ["pil", ss.decode.Resize(8)]}, 'no decoder can follow "pil"'),
    ):
        with pytest.raises(FieldError, match=what):
            ss.ShardDataset(folder, fields=wrong, batch_size=2)
    with pytest.raises(UsageError, match=r'"pil" makes pictures of uint8 .* not of a value of type bytes'):
        ss.ShardDataset(folder, fields={"jpg": ["bytes", "pil"]}, batch_size=2).peek()
    with pytest.raises(UsageError, match=r"not of an array of float32 \[72, 96, 3\]"):
        ss.ShardDataset(folder, fields={"jpg": [np.float32, "pil"]}, batch_size=2).peek()


def test_others_may_be_like_a_picture_for_pillow(folder: Path) -> None:
    crop = ss.decode.RandomResizedCrop(16, source="jpg", exact=True)
    fields: dict[str, Any] = {"a": [crop, "pil"], "b": ss.decode.Image(source="jpg", like="a", exact=True)}
    for sample in ss.ShardDataset(folder, fields=fields):
        assert np.array_equal(np.asarray(sample["a"]), sample["b"])
