"""Mixtures: shares, epochs, what is delivered, and what is refused. Resuming is in ``test_resuming.py``."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardstream as ss
from tests.grouped import grouped

from .making import numbered, photograph, write_dataset
from .resuming import ids_and_padding, sources_and_ids


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("mixture")
    return {
        "big": write_dataset(root / "big", numbered([700, 0, 300])),
        "mid": write_dataset(root / "mid", numbered([200, 100]), format="record"),
        "tiny": write_dataset(root / "tiny", numbered([3])),
    }


@pytest.fixture
def sources(folders: dict[str, Path]) -> dict[str, ss.ShardDataset]:
    return {name: ss.ShardDataset(folder) for name, folder in folders.items()}


def test_shares_are_exact_and_sources_are_used_evenly(sources: dict[str, ss.ShardDataset]) -> None:
    weighted = {"big": (sources["big"], 0.6), "mid": (sources["mid"], "0.3"), "tiny": (sources["tiny"], 0.1)}
    mixture = ss.Mixture(weighted, batch_size=20, epoch=2000, tail="exact", seed=5)
    assert mixture.shares == {"big": 0.6, "mid": 0.3, "tiny": 0.1}
    pairs = sources_and_ids(mixture) + sources_and_ids(mixture)
    counts = Counter(source for source, _ in pairs)
    for number, share in enumerate((0.6, 0.3, 0.1)):
        assert abs(counts[number] - 4000 * share) < 200  # blocks of labels are exact, lanes end inside them
    for number, size in enumerate((1000, 300, 3)):
        uses = Counter(i for source, i in pairs if source == number)
        assert set(uses) == set(range(size))
        assert max(uses.values()) - min(uses.values()) <= 2 + 0.02 * max(uses.values())


def test_without_weights_sources_count_with_their_size(sources: dict[str, ss.ShardDataset]) -> None:
    mixture = ss.Mixture({"big": sources["big"], "mid": sources["mid"].repeat(3)}, batch_size=10)
    assert mixture.samples == 1900
    assert mixture.shares["mid"] == pytest.approx(9 / 19, rel=0.01)
    assert len(mixture) == 190 == len(list(mixture))


@pytest.mark.parametrize(("epoch", "samples"), [("total", 1300), ("mid", 3000), ("big", 1112), (777, 777)])
def test_when_an_epoch_ends(sources: dict[str, ss.ShardDataset], epoch: Any, samples: int) -> None:
    mixture = ss.Mixture({"big": (sources["big"], 9), "mid": (sources["mid"], 1)}, epoch=epoch)
    assert mixture.samples == len(mixture) == samples


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize(
    ("by", "tail", "batch_size"),
    [
        *(("samples", tail, size) for tail in ("drop", "pad", "exact") for size in (16, 7, None)),
        *(("batches", tail, 16) for tail in ("drop", "pad", "exact")),
    ],
)
def test_samples_are_those_that_all_ranks_get(
    sources: dict[str, ss.ShardDataset], by: Any, tail: Any, batch_size: int | None, ranks: int
) -> None:
    two = {"big": (sources["big"], 3), "mid": (sources["mid"], 1)}
    shape: dict[str, Any] = {"batch_size": batch_size, "by": by, "tail": tail, "epoch": 777}

    def check(mixtures: list[ss.Mixture], samples: int) -> None:
        parts = [list(mixture) for mixture in mixtures]
        assert samples == sum(len(ids_and_padding(part)[0]) for part in parts)

    mixtures = [ss.Mixture(two, **grouped(shape), ranks=(rank, ranks)) for rank in range(ranks)]
    assert {mixture.samples for mixture in mixtures} == {mixtures[0].samples}
    first = iter(mixtures[0])
    next(first)
    state = mixtures[0].state_dict()
    check([mixture.replace() for mixture in mixtures], mixtures[0].samples)
    size = None if batch_size is None else 5 + batch_size  # another shape, whose epochs have the lanes of the state
    other = ss.Mixture(two, **grouped(shape | {"batch_size": size}), ranks=(0, 1))
    other.load_state_dict(state)
    list(other)
    expected, items = other.samples, len(other)
    batches = list(other)
    assert len(batches) == items
    assert len(ids_and_padding(batches)[0]) == expected


def test_an_endless_one_has_no_length_and_does_not_end(sources: dict[str, ss.ShardDataset]) -> None:
    mixture = ss.Mixture({"a": (sources["mid"], 1), "b": (sources["tiny"], 1)}, epoch="endless", batch_size=64)
    loader = ss.Loader(mixture, num_workers=0)
    for one in (mixture, loader):
        with pytest.raises(TypeError, match=r"no length.*\n  hint: .*ss.Mixture\(\.\.\., epoch=\d+\)"):
            len(one)
    for step, _ in enumerate(loader):
        if step == 50:
            break
    state = loader.state_dict()
    assert (state["epoch"], state["position"]) == (0, 51 * 64)


def test_by_batches_each_has_one_source_and_sources_may_differ(folders: dict[str, Path], tmp_path: Path) -> None:
    photos = write_dataset(tmp_path / "photos", numbered([40, 50], jpg=photograph))
    parts = {
        "photos": (ss.ShardDataset(photos, fields={"jpg": ss.decode.RandomResizedCrop(32)}), 0.25),
        "numbers": (ss.ShardDataset(folders["big"]), 0.75),
    }
    mixture = ss.Mixture(parts, by="batches", batch_size=16, epoch=1600)
    loader = ss.Loader(mixture, num_workers=2)
    kinds = Counter()
    for batch in loader:
        source = set(batch["__source__"].tolist())
        assert len(source) == 1
        assert ("jpg" in batch) == (source == {0})
        kinds[source.pop()] += 1
    assert sum(kinds.values()) == len(loader)
    assert loader.stats.sources == {"photos": kinds[0] * 16, "numbers": kinds[1] * 16}
    assert abs(kinds[0] / len(loader) - 0.25) < 0.1


@pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")
def test_length_by_batches_is_known_whatever_the_workers(sources: dict[str, ss.ShardDataset]) -> None:
    mixture = ss.Mixture({"a": (sources["big"], 1), "b": (sources["mid"], 1)}, by="batches", batch_size=4)
    orders = []
    for workers in (0, 3):
        loader = ss.Loader(mixture, num_workers=workers, persistent_workers=False)
        mixture.set_epoch(0)
        orders.append([batch["id"].tolist() for batch in loader])
        assert len(orders[-1]) == len(loader) == len(mixture)
    assert orders[0] == orders[1]


def test_sources_decoded_differently_share_a_batch(folders: dict[str, Path]) -> None:
    def negative(sample: dict[str, Any]) -> dict[str, Any]:
        return sample | {"id": -sample["id"]}

    parts = {
        "plain": (ss.ShardDataset(folders["big"]), 1),
        "turned": (ss.ShardDataset(folders["mid"], transform=negative), 1),
    }
    for batch in ss.Mixture(parts, batch_size=50):
        source, ids = batch["__source__"].numpy(), batch["id"].numpy()
        assert (ids[source == 1] <= 0).all()
        assert (ids[source == 0] >= 0).all()
        assert set(source.tolist()) == {0, 1}


def test_images_of_equal_recipes_go_into_one_slab(tmp_path: Path) -> None:
    crop = {"jpg": ss.decode.RandomResizedCrop(24), "id": None}
    parts = {
        name: (ss.ShardDataset(write_dataset(tmp_path / name, numbered([60], jpg=photograph)), fields=crop), 1)
        for name in "ab"
    }
    batch = next(iter(ss.Mixture(parts, batch_size=32)))
    assert batch["jpg"].shape == (32, 3, 24, 24)
    assert batch["__source__"].float().mean() == 0.5
    named = ss.Mixture(parts, batch_size=32).to_tuple("jpg", "__source__")
    images, source = next(iter(named))
    assert np.array_equal(images, batch["jpg"])
    assert np.array_equal(source, batch["__source__"])


def test_single_samples_say_their_source(sources: dict[str, ss.ShardDataset]) -> None:
    mixture = ss.Mixture({"a": (sources["big"], 3), "b": (sources["mid"], 1)}, epoch=400)
    loader = ss.Loader(mixture, num_workers=1)
    counts = Counter(sample["__source__"] for sample in loader)
    assert loader.stats.sources == {"a": counts[0], "b": counts[1]}
    assert sum(counts.values()) == 400


def test_ranks_partition_a_mixture(sources: dict[str, ss.ShardDataset]) -> None:
    def mixture(**ranks: int) -> ss.Mixture:
        return ss.Mixture(
            {"a": (sources["big"], 3), "b": (sources["mid"], 1)},
            epoch=1200,
            batch_size=8,
            tail="pad",
            seed=2,
            **grouped(ranks),
        )

    ranks = [sources_and_ids(mixture(rank=rank, world_size=3)) for rank in range(3)]
    assert len({len(one) for one in ranks}) == 1
    assert sum(map(len, ranks)) == 1200
    assert Counter(source for one in ranks for source, _ in one)[0] == pytest.approx(900, abs=60)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda s: ss.Mixture({}), "needs sources"),
        (lambda s: ss.Mixture({"a": (s["big"], 1), "b": s["mid"]}), "some not"),
        (lambda s: ss.Mixture({"a": (s["big"], 0), "b": (s["mid"], 1)}), "weight"),
        (lambda s: ss.Mixture({"a": "folder"}), "not a ShardDataset"),
        (lambda s: ss.Mixture({"big": (s["big"], 1)}, epoch="bgi"), "did you mean 'big'"),
        (lambda s: ss.Mixture({"big": (s["big"], 1)}, epoch=0), "must be a source"),
        (lambda s: ss.Mixture({"big": (s["big"], 1)}, by="epochs"), "by must be"),
        (lambda s: ss.Mixture({"a": (s["big"].take(0), 1)}), "no samples"),
        (lambda s: ss.Mixture({"a": (s["big"], 1), "b": (s["mid"].replace(fields=[]), 1)}), "only one of them has id"),
    ],
)
def test_what_cannot_be_mixed_is_refused(sources: dict[str, ss.ShardDataset], make: Any, message: str) -> None:
    with pytest.raises(ss.errors.UsageError, match=message):
        make(sources)
