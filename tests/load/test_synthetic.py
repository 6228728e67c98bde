"""`Synthetic`: the shapes of a loader's batches, and none of its work."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import shardstream as ss

from ..stream.making import numbered, write_dataset


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("numbers"), numbered([50, 30]))


def test_it_is_the_first_batch_as_often_as_there_are_batches(folder: Path) -> None:
    loader = ss.Loader(ss.ShardDataset(folder, shuffle=True, batch_size=8), num_workers=2)
    synthetic = ss.Synthetic(loader)
    batches = list(synthetic)
    assert len(batches) == len(synthetic) == len(loader) == 10
    assert len({id(batch) for batch in batches}) == 1
    assert loader.stats.batches == loader.epoch == loader.state_dict()["position"] == 0
    assert batches[0]["id"].tolist() == next(iter(loader))["id"].tolist()
    ahead = ss.DevicePrefetcher(synthetic, "cpu", transform=lambda batch: batch["id"] * 2)
    assert [tuple(ids.shape) for ids in ahead] == [(8,)] * 10


def test_what_a_collate_fn_makes_and_single_samples(folder: Path) -> None:
    loader = ss.Loader(ss.ShardDataset(folder, batch_size=8), num_workers=0, collate_fn=len)
    assert list(ss.Synthetic(loader, batches=3)) == [8, 8, 8]
    single = ss.Loader(ss.ShardDataset(folder), num_workers=0, collate_fn=lambda sample: sample["id"])
    assert list(ss.Synthetic(single, batches=2)) == [0, 0]


def test_any_iterable() -> None:
    assert [len(batch) for batch in ss.Synthetic([torch.ones(4), torch.ones(2)])] == [4, 4]
    with pytest.raises(ss.errors.UsageError, match="has no length"):
        ss.Synthetic(iter([1]))
    with pytest.raises(ss.errors.UsageError, match="no batches"):
        list(ss.Synthetic([], batches=1))


def test_a_data_set_or_mixture_stays_where_it_is(folder: Path) -> None:
    """Also where the first batch is the last one, with which an epoch is over."""
    dataset = ss.ShardDataset(folder, batch_size=80)
    mixture = ss.Mixture({"all": (dataset, 1)}, batch_size=80, epoch=80)
    for one in (dataset, mixture):
        assert len(list(ss.Synthetic(one))) == len(one) == 1
        assert one.epoch == one.state_dict()["position"] == 0
