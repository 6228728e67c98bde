"""`ShardDataset` in one process: what it delivers, in what order, and how it refuses."""

from __future__ import annotations

import inspect
import pickle
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import shardstream as ss
from shardstream.storage.local.store import LocalStore
from shardstream.stream.iteration.settings import DecodeOptions, StreamOptions
from tests.grouped import grouped

from ..examples import at_most
from .making import labels, numbered, photograph, write_dataset


def ids_of(dataset: ss.ShardDataset) -> list[int]:
    out: list[int] = []
    for item in dataset:
        out += item["id"].tolist() if isinstance(item["id"], torch.Tensor) else [item["id"]]
    return out


def test_without_shuffling_samples_come_in_stored_order(ids: Path) -> None:
    assert ids_of(ss.ShardDataset(ids)) == list(range(1000))
    assert ids_of(ss.ShardDataset(ids, batch_size=64)) == list(range(1000))


@at_most(20)  # each reads five epochs; tests/order draws the many
@given(seed=st.integers(-(2**40), 2**70), batch=st.integers(5, 70), epoch=st.integers(0, 2**32 - 1))
def test_an_epoch_is_a_permutation_that_seed_and_epoch_decide(ids: Path, seed: int, batch: int, epoch: int) -> None:
    def run(seed: int, epoch: int) -> list[int]:
        dataset = ss.ShardDataset(ids, fields=["id"], shuffle=True, seed=seed, batch_size=batch, tail="exact")
        dataset.set_epoch(epoch)
        return ids_of(dataset)

    order = run(seed, epoch)
    assert sorted(order) == list(range(1000))
    assert order == run(seed, epoch)
    assert order != run(seed + 1, epoch)
    assert order != run(seed, (epoch + 1) % 2**32)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("batch_size", [None, 7, 128])
@pytest.mark.parametrize("tail", ["drop", "exact", "pad"])
@pytest.mark.parametrize("world", [1, 3])
def test_len_is_what_comes(ids: Path, shuffle: bool, batch_size: int | None, tail: Any, world: int) -> None:
    seen: list[int] = []
    lengths = set()
    for rank in range(world):
        dataset = ss.ShardDataset(
            ids, batch_size=batch_size, shuffle=shuffle, tail=tail, ranks=(rank, world), fields=["id"]
        )
        items = list(dataset)
        assert len(dataset) == len(items)
        lengths.add(len(items))
        for item in items:
            valid = item.get("__valid__", torch.ones(len(item["id"]), dtype=torch.bool) if batch_size else True)
            seen += item["id"][valid].tolist() if batch_size else [item["id"]] * bool(valid)
    assert len(seen) == len(set(seen))
    if tail == "drop":
        assert len(lengths) == 1
        assert 1000 - len(seen) < world * (batch_size or 1)
    else:
        assert sorted(seen) == list(range(1000))
        assert tail == "exact" or len(lengths) == 1


def test_the_default_tail_drops_only_when_shuffling(ids: Path) -> None:
    assert sum(len(batch["id"]) for batch in ss.ShardDataset(ids, batch_size=64)) == 1000
    assert sum(len(batch["id"]) for batch in ss.ShardDataset(ids, batch_size=64, shuffle=True)) == 960


def test_a_completed_iteration_advances_the_epoch_and_break_does_not(ids: Path) -> None:
    dataset = ss.ShardDataset(ids, shuffle=True, batch_size=100)
    first = ids_of(dataset)
    assert dataset.epoch == 1
    second = ids_of(dataset)
    assert first != second
    for _ in dataset:
        break
    assert dataset.epoch == 2
    third = ids_of(dataset)
    dataset.set_epoch(2)
    dataset.set_epoch(2)
    assert ids_of(dataset) == third
    dataset.set_epoch(0)
    assert ids_of(dataset) == first


def test_an_epoch_is_an_integer_in_range(ids: Path) -> None:
    dataset = ss.ShardDataset(ids)
    for epoch in (-1, 2**32, 1.0, True, "1"):
        with pytest.raises(ss.errors.UsageError, match="epoch"):
            dataset.set_epoch(epoch)  # type: ignore[arg-type]


def test_batches_are_slabs(photos: Path) -> None:
    fields = {"jpg": ss.decode.RandomResizedCrop(32, flip=True), "cls": None, "txt": None, "raw": None}
    fields["raw"] = [ss.decode.Image(source="jpg"), lambda image: image.shape]
    batch = next(iter(ss.ShardDataset(photos, fields=fields, batch_size=16, shuffle=True)))
    images = batch["jpg"]
    assert images.dtype == torch.uint8
    assert tuple(images.shape) == (16, 3, 32, 32)
    assert images.is_contiguous(memory_format=torch.channels_last)
    assert batch["cls"].dtype == torch.int64
    numbers = [int(key[1:]) for key in batch["__key__"]]
    assert batch["cls"].tolist() == [n % 7 for n in numbers]
    assert batch["txt"] == [f"caption {n}" for n in numbers]
    assert batch["raw"] == [(72, 96 if n % 2 else 80, 3) for n in numbers]
    assert "__valid__" not in batch


def test_samples_are_dicts_of_plain_values(photos: Path) -> None:
    sample = next(iter(ss.ShardDataset(photos)))
    assert sample["__key__"] == "k000000"
    assert sample["jpg"].shape == (72, 80, 3)
    assert sample["jpg"].dtype == np.uint8
    assert sample["cls"] == 0
    assert type(sample["cls"]) is int
    assert sample["txt"] == "caption 0"


def test_a_batch_holds_what_its_samples_hold(photos: Path) -> None:
    fields = {"jpg": ss.decode.RandomResizedCrop(40), "cls": None, "txt": None}
    one = ss.ShardDataset(
        photos, fields=fields, shuffle=True, seed=5, order=ss.OrderOptions(lanes=1, chunk=8, window=16), tail="exact"
    )
    many = one.replace(batch_size=8)
    samples = list(one)
    one.set_epoch(0)
    for batch in many:
        for i, key in enumerate(batch["__key__"]):
            sample = samples.pop(0)
            assert sample["__key__"] == key
            assert np.array_equal(sample["jpg"], batch["jpg"][i].permute(1, 2, 0).numpy())
            assert sample["cls"] == int(batch["cls"][i])
    assert not samples


@pytest.mark.parametrize("format", ["tar", "record"])
def test_every_field_type_makes_a_batch(tmp_path: Path, format: str) -> None:
    shards = numbered(
        [5, 4],
        flag=lambda n: n % 2 == 0,
        small=lambda n: np.int16(n),
        real=lambda n: n / 2,
        name=lambda n: f"n{n}",
        info=lambda n: {"n": n},
        bin=lambda n: bytes([n]) * n,
        grid=lambda n: np.full((2, 3), n, np.int32),
        wide=lambda n: np.full((n % 3, 2), n, np.float32),
        emb=lambda n: torch.full((3,), float(n), dtype=torch.bfloat16),
    )
    write_dataset(tmp_path, shards, format=format, types={"grid": "array:int32:2,3"})
    batch = next(iter(ss.ShardDataset(tmp_path, batch_size=9)))
    assert batch["flag"].tolist() == [n % 2 == 0 for n in range(9)]
    assert batch["flag"].dtype == torch.bool
    assert batch["small"].dtype == torch.int16
    assert batch["real"].dtype == torch.float64
    assert batch["name"] == [f"n{n}" for n in range(9)]
    assert batch["info"] == [{"n": n} for n in range(9)]
    assert [batch["bin"].tobytes(n) for n in range(9)] == [bytes([n]) * n for n in range(9)]
    assert batch["grid"].tolist() == [[[n] * 3] * 2 for n in range(9)]
    assert [row.tolist() for row in batch["wide"]] == [[[float(n)] * 2] * (n % 3) for n in range(9)]
    assert batch["emb"].dtype == torch.bfloat16
    assert batch["emb"][:, 0].tolist() == list(range(9))


def test_optional_values_are_none(tmp_path: Path) -> None:
    shards = numbered([3, 3])
    shards[0][1]["txt"] = "here"
    write_dataset(tmp_path, shards)
    assert [sample["txt"] for sample in ss.ShardDataset(tmp_path)] == [None, "here", None, None, None, None]
    assert next(iter(ss.ShardDataset(tmp_path, batch_size=6)))["txt"] == [None, "here", None, None, None, None]


def test_a_missing_number_in_a_batch_is_named(tmp_path: Path) -> None:
    shards = numbered([3])
    shards[0][2]["cls"] = 1
    write_dataset(tmp_path, shards)
    with pytest.raises(ss.errors.BatchError, match=r"cls.*key k000000"):
        next(iter(ss.ShardDataset(tmp_path, batch_size=3)))


def test_labels_touch_no_payload_byte(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touched: list[tuple[str, int]] = []
    get, tail = LocalStore.get, LocalStore.get_tail

    def counted_get(self: LocalStore, path: str, offset: int = 0, length: int | None = None) -> memoryview:
        view = get(self, path, offset, length)
        touched.append((path, len(view)))
        return view

    def counted_tail(self: LocalStore, path: str, length: int) -> tuple[memoryview, int]:
        view, size = tail(self, path, length)
        touched.append((path, len(view)))
        return view, size

    manifest = ss.Manifest.load(photos)
    dataset = ss.ShardDataset(photos, fields=["cls"], batch_size=10)
    monkeypatch.setattr(LocalStore, "get", counted_get)
    monkeypatch.setattr(LocalStore, "get_tail", counted_tail)
    assert sum(len(batch["cls"]) for batch in dataset) == 120
    assert {path for path, _ in touched} == {manifest.shard_name(i) for i in range(3)}
    assert len(touched) == 3
    # tar has two zero blocks behind the index
    assert all(length <= manifest.index_bytes + 1024 for _, length in touched)


def test_different_sizes_are_one_clear_error(photos: Path) -> None:
    with pytest.raises(ss.errors.BatchError, match="RandomResizedCrop") as caught:
        next(iter(ss.ShardDataset(photos, batch_size=8)))
    assert caught.value.place["field"] == "jpg"


def test_a_near_miss_is_named(photos: Path) -> None:
    with pytest.raises(ss.errors.FieldError, match="did you mean 'jpg'"):
        ss.ShardDataset(photos, fields=["jpeg"])
    with pytest.raises(ss.errors.FieldError, match="did you mean 'cls'"):
        ss.ShardDataset(photos).to_tuple("clss")


def test_a_batch_larger_than_the_data_set_is_refused_under_drop(photos: Path) -> None:
    dataset = ss.ShardDataset(photos, fields=["cls"], batch_size=64, shuffle=True, ranks=(0, 2))
    with pytest.raises(ss.errors.UsageError, match="120 samples"):
        len(dataset)
    with pytest.raises(ss.errors.UsageError, match="tail"):
        next(iter(dataset))
    assert len(dataset.replace(tail="pad")) == 1


def test_an_empty_data_set_has_no_steps(tmp_path: Path) -> None:
    dataset = ss.ShardDataset(write_dataset(tmp_path, []), batch_size=4, shuffle=True)
    assert len(dataset) == 0
    assert list(dataset) == []


@pytest.mark.parametrize(
    "arguments",
    [
        {"batch_size": 0},
        {"batch_size": True},
        {"tail": "last"},
        {"on_error": "ignore"},
        {"max_skips": -1},
        {"rank": 1},
        {"rank": 2, "world_size": 2},
        {"seed": 1.5},
        {"lanes": 0},
        {"transform": 3},
        {"batch_transform": 3},
    ],
)
def test_arguments_are_checked_by_name(ids: Path, arguments: dict[str, Any]) -> None:
    with pytest.raises(ss.errors.UsageError, match=next(iter(arguments))):
        ss.ShardDataset(ids, **grouped(arguments))


def test_no_data_set_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(ss.errors.NotFoundError, match="shardstream pack"):
        ss.ShardDataset(tmp_path)


def test_tuples_in_the_order_asked_for(photos: Path) -> None:
    dataset = ss.ShardDataset(photos, fields=["cls", "txt"], batch_size=4)
    labels, keys = next(iter(dataset.to_tuple("cls", "__key__")))
    assert labels.tolist() == [0, 1, 2, 3]
    assert keys == ["k000000", "k000001", "k000002", "k000003"]
    assert next(iter(ss.ShardDataset(photos).to_tuple("txt"))) == ("caption 0",)


def test_peek_moves_nothing_on(photos: Path) -> None:
    dataset = ss.ShardDataset(photos, fields=["id"], batch_size=4, shuffle=True)
    peeked = dataset.peek()["id"].tolist()
    assert peeked == next(iter(dataset))["id"].tolist()
    assert dataset.epoch == 0


def test_padding_is_marked(ids: Path) -> None:
    batches = list(ss.ShardDataset(ids, batch_size=300, tail="pad"))
    assert [int(batch["__valid__"].sum()) for batch in batches] == [300, 300, 300, 100]
    assert batches[3]["id"].tolist() == [*range(900, 1000), *range(700, 900)]


def test_a_pickle_is_small_and_checked(ids: Path, tmp_path: Path) -> None:
    dataset = ss.ShardDataset(ids, batch_size=10, shuffle=True, seed=3)
    data = pickle.dumps(dataset)
    assert len(data) < 65536
    assert ids_of(pickle.loads(data)) == ids_of(dataset)
    moving = write_dataset(tmp_path, numbered([10]))
    data = pickle.dumps(ss.ShardDataset(moving))
    write_dataset(tmp_path, numbered([11]))
    with pytest.raises(ss.errors.FormatError, match="replaced"):
        pickle.loads(data)


def test_a_lambda_that_cannot_be_pickled_is_named(ids: Path) -> None:
    for arguments in ({"transform": lambda sample: sample}, {"fields": {"id": lambda value: value}}):
        with pytest.raises(ss.errors.UsageError, match=f"`{next(iter(arguments))}` cannot be pickled"):
            pickle.dumps(ss.ShardDataset(ids, **grouped(arguments)))


def test_a_shard_of_another_data_set_is_noticed(tmp_path: Path) -> None:
    write_dataset(tmp_path / "a", numbered([5, 5]))
    write_dataset(tmp_path / "b", numbered([5, 6]))
    (tmp_path / "b" / "shard-000001.tar").rename(tmp_path / "a" / "shard-000001.tar")
    with pytest.raises(ss.errors.FormatError, match="6 samples, the manifest says 5"):
        list(ss.ShardDataset(tmp_path / "a"))


def test_the_reader_gives_random_access(photos: Path) -> None:
    reader = ss.Reader(photos)
    assert len(reader) == 120
    assert [reader[i]["__key__"] for i in (0, 49, 50, 119, -1)] == [
        "k000000", "k000049", "k000050", "k000119", "k000119"
    ]  # fmt: skip
    assert [sample["cls"] for sample in reader[10:13]] == [3, 4, 5]
    assert reader.get("k000077")["txt"] == "caption 77"
    with pytest.raises(IndexError):
        reader[120]
    with pytest.raises(KeyError):
        reader.get("nobody")


def test_the_stored_bytes_come_as_rows(photos: Path) -> None:
    batch = next(iter(ss.ShardDataset(photos, fields={"jpg": "bytes"}, batch_size=5)))
    assert [batch["jpg"].tobytes(i) for i in range(5)] == [photograph(i, 96 if i % 2 else 80) for i in range(5)]


def test_optional_slabs_have_a_mask_of_their_own(tmp_path: Path) -> None:
    shards = numbered([6], jpg=photograph)
    for sample in shards[0][::2]:
        sample["mask"] = labels()
    write_dataset(tmp_path, shards, types={"mask": "png"})
    fields = {
        "jpg": ss.decode.RandomResizedCrop(16),
        "mask": ss.decode.Mask(like="jpg", optional=True),
        "view": ss.decode.CenterCrop(16, resize=16, source="nothing", optional=True),
    }
    batch = next(iter(ss.ShardDataset(tmp_path, fields=fields, batch_size=6)))
    assert batch["mask.__valid__"].tolist() == [True, False] * 3
    assert not batch["view.__valid__"].any()
    assert not batch["mask"][1].any()
    with pytest.raises(ss.errors.DecodeError, match="optional=True"):
        list(ss.ShardDataset(tmp_path, fields={"mask": ss.decode.CenterCrop(16)}, batch_size=6))


def test_every_option_is_an_argument_with_the_same_default() -> None:
    options = {field.name: field.default for one in (StreamOptions, DecodeOptions) for field in fields(one)}
    of_dataset, of_mixture = (inspect.signature(one).parameters for one in (ss.ShardDataset, ss.Mixture))
    assert options.keys() - of_dataset.keys() == {"names", "delivered", "deliver"}
    assert of_mixture.keys() - options.keys() == {"sources", "schedule", "unit", "by", "epoch"}
    assert len(of_dataset) <= 27
    for parameters in (of_dataset, of_mixture):
        shared = (options.keys() & parameters.keys()) - {"order", "reads"}
        assert {name: parameters[name].default for name in shared} == {name: options[name] for name in shared}
