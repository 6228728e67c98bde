"""Users' callables: what they get, what they may return, and where their random numbers come from."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import shardstream as ss

CROP = {"jpg": ss.decode.RandomResizedCrop(24), "cls": None}


def test_a_transform_sees_the_sample_and_its_result_is_batched(photos: Path) -> None:
    def transform(sample: dict[str, Any]) -> dict[str, Any]:
        image = torch.from_numpy(sample["jpg"]).permute(2, 0, 1).float()
        return {"image": image, "twice": sample["cls"] * 2, "key": sample["__key__"]}

    batch = next(iter(ss.ShardDataset(photos, fields=CROP, batch_size=5, transform=transform)))
    assert tuple(batch["image"].shape) == (5, 3, 24, 24)
    assert batch["image"].dtype == torch.float32
    assert batch["twice"].tolist() == [0, 2, 4, 6, 8]
    assert batch["key"] == [f"k{i:06d}" for i in range(5)]


def test_untouched_outputs_are_the_same_with_a_transform(photos: Path) -> None:
    plain = next(iter(ss.ShardDataset(photos, fields=CROP, batch_size=5)))
    through = next(iter(ss.ShardDataset(photos, fields=CROP, batch_size=5, transform=lambda sample: sample)))
    assert torch.equal(plain["jpg"], through["jpg"])
    assert through["jpg"].is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(plain["cls"], through["cls"])


def test_what_follows_bytes_in_a_list_is_applied_in_batches_too(photos: Path) -> None:
    fields = {"jpg": ["bytes", len], "small": ["bytes", ss.decode.CenterCrop(8, source="jpg")]}
    samples = list(ss.ShardDataset(photos, fields=fields).take(5))
    batch = next(iter(ss.ShardDataset(photos, fields=fields, batch_size=5)))
    assert batch["jpg"].tolist() == [sample["jpg"] for sample in samples]
    for image, sample in zip(batch["small"], samples, strict=True):
        assert torch.equal(image.permute(1, 2, 0), torch.from_numpy(sample["small"]))


def test_tuples_and_bare_values_are_batched_too(photos: Path) -> None:
    pair = ss.ShardDataset(photos, fields=CROP, batch_size=4, transform=lambda s: (s["jpg"], s["cls"]))
    images, labels = next(iter(pair))
    assert tuple(images.shape) == (4, 24, 24, 3)
    assert labels.tolist() == [0, 1, 2, 3]
    bare = ss.ShardDataset(photos, fields=["cls"], batch_size=4, transform=lambda s: s["cls"] / 2)
    assert next(iter(bare)).tolist() == [0, 0.5, 1, 1.5]


def draws(sample: dict[str, Any]) -> dict[str, Any]:
    return {"a": random.random(), "b": float(np.random.rand()), "c": float(torch.rand(()))}


def test_global_draws_are_keyed_by_position_and_disturb_nothing(photos: Path) -> None:
    def run() -> list[dict[str, Any]]:
        return list(ss.ShardDataset(photos, fields=["cls"], shuffle=True, seed=9, transform=draws))

    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    expected = (random.random(), float(np.random.rand()), float(torch.rand(())))
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    first = run()
    assert (random.random(), float(np.random.rand()), float(torch.rand(()))) == expected
    assert run() == first
    assert len({sample["a"] for sample in first}) == len(first)


def test_generators_are_handed_to_those_that_take_them(photos: Path) -> None:
    def with_rng(sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        return {"x": rng.random()}

    def with_generator(sample: dict[str, Any], *, generator: torch.Generator) -> dict[str, Any]:
        return {"x": float(torch.rand((), generator=generator))}

    for transform in (with_rng, with_generator):
        dataset = ss.ShardDataset(photos, fields=["cls"], batch_size=8, transform=transform)
        first = next(iter(dataset))["x"]
        assert torch.equal(first, next(iter(dataset))["x"])
        assert len(set(first.tolist())) == 8


def test_none_drops_a_sample(photos: Path) -> None:
    def even(sample: dict[str, Any]) -> dict[str, Any] | None:
        return sample if sample["cls"] % 2 == 0 else None

    singles = [sample["cls"] for sample in ss.ShardDataset(photos, fields=["cls"], transform=even)]
    assert singles == [n % 7 for n in range(120) if n % 7 % 2 == 0]
    dataset = ss.ShardDataset(photos, fields=["cls"], batch_size=7, transform=even)
    assert next(iter(dataset))["cls"].tolist() == [0, 2, 4, 6]
    batch = next(iter(dataset.replace(dropped="repeat")))
    assert batch["__valid__"].tolist() == [n % 2 == 0 for n in range(7)]
    assert batch["cls"].tolist() == [0, 0, 2, 0, 4, 0, 6]


def test_a_batch_without_any_sample_is_an_error(photos: Path) -> None:
    dataset = ss.ShardDataset(photos, fields=["cls"], batch_size=4, transform=lambda sample: None)
    with pytest.raises(ss.errors.BatchError, match=r"none of the 4(.|\n)*ss.find_rows\(dataset, predicate\)"):
        next(iter(dataset))


def test_an_exception_names_key_and_shard(photos: Path) -> None:
    def broken(sample: dict[str, Any]) -> None:
        raise ZeroDivisionError("seven")

    for batch_size in (None, 4):
        with pytest.raises(ss.errors.TransformError, match="ZeroDivisionError: seven") as caught:
            next(iter(ss.ShardDataset(photos, transform=broken, fields=["cls"], batch_size=batch_size)))
        assert caught.value.place["key"] == "k000000"
        assert caught.value.place["shard"] == "shard-000000.tar"
        assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_batch_transform_gets_the_batch(photos: Path) -> None:
    def double(batch: dict[str, Any]) -> dict[str, Any]:
        return batch | {"cls": batch["cls"] * 2}

    dataset = ss.ShardDataset(photos, fields=["cls"], batch_size=4, batch_transform=double)
    assert next(iter(dataset))["cls"].tolist() == [0, 2, 4, 6]
    assert next(iter(dataset.to_tuple("cls")))[0].tolist() == [0, 2, 4, 6]


def test_samples_with_different_keys_are_refused(photos: Path) -> None:
    def uneven(sample: dict[str, Any]) -> dict[str, Any]:
        return {"cls": 1} if sample["cls"] else {"cls": 0, "extra": 1}

    with pytest.raises(ss.errors.BatchError, match="extra"):
        next(iter(ss.ShardDataset(photos, fields=["cls"], batch_size=4, transform=uneven)))
