"""A sample is augmented by its position in the epoch: whatever batch, rank, worker or run it comes in."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

import shardstream as ss
from shardstream.augment import GaussianBlur, ImageBatch, Operation, Positions, RandomCrop, RandomResizedCrop
from shardstream.augment.draws import Draws, RandomStream
from shardstream.rng import Domain, words
from tests.grouped import grouped

from .references import MEAN, STD

AUGMENT: dict[str, Any] = {
    "flip": True,
    "color_jitter": (0.4, 0.4, 0.4, 0.1),
    "grayscale": 0.2,
    "blur": GaussianBlur(0.5, kernel_size=7),
    "erase": 0.25,
}

# -------------------------------------------------------------------------------------------------------------- numbers


@given(st.lists(st.integers(0, 2**43) | st.integers(0, 12), min_size=1, max_size=12), st.sampled_from([1, 2, 3, 9]))
@example([5, 6, 7, 9, 10, 10, 9, 0], 3)
@example([2**43], 9)
def test_the_words_of_a_sample_are_those_of_its_position(values: list[int], each: int) -> None:
    drawn = Draws(None, len(values), Positions(11, np.array(values))).words(RandomStream.COLOR_JITTER, each)
    for position, row in zip(values, drawn.tolist(), strict=True):
        own = words(each, seed=11, domain=Domain.BATCH, a=int(RandomStream.COLOR_JITTER), skip=position * each)
        assert row == own.tolist()


def test_a_key_counts_by_the_place_in_the_batch() -> None:
    by_key = Draws(11, 7).words(RandomStream.FLIP, 3)
    assert np.array_equal(by_key, Draws(None, 7, Positions(11, np.arange(7))).words(RandomStream.FLIP, 3))
    # Of another number of samples, positions do not say which is which.
    assert np.array_equal(by_key, Draws(11, 7, Positions(12, np.arange(6))).words(RandomStream.FLIP, 3))
    assert Draws(11, 0, Positions(12, np.arange(0))).words(RandomStream.FLIP, 3).shape == (0, 3)


@given(data=st.data())
def test_any_division_into_batches_gives_the_same(photos: torch.Tensor, data: st.DataObject) -> None:
    augment = ImageBatch(MEAN, STD, crop=RandomCrop(16, padding=4), **AUGMENT)
    images, positions = photos[:9, :, :20, :20], np.arange(9) * 7 % 9 + 1000
    whole = augment(images, key=0, positions=Positions(9, positions))
    order = data.draw(st.permutations(range(9)))
    cuts = sorted(data.draw(st.sets(st.integers(1, 8), max_size=2)))
    for begin, end in zip([0, *cuts], [*cuts, 9], strict=True):
        part = list(order[begin:end])
        found = augment(images[part], key=begin, positions=Positions(9, positions[part]))
        torch.testing.assert_close(found, whole[part], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "operation", [GaussianBlur(1.0, kernel_size=5), RandomResizedCrop(16), RandomCrop(16)], ids=repr
)
def test_operations_by_themselves_take_positions(photos: torch.Tensor, operation: Operation) -> None:
    whole = operation(photos, positions=Positions(9, np.arange(24)))
    part = operation(photos[20:], positions=Positions(9, np.arange(20, 24)))
    torch.testing.assert_close(part, whole[20:], rtol=0, atol=1e-5)
    assert not torch.equal(part, operation(photos[20:], positions=Positions(9, np.arange(4))))


def test_lambda_follows_the_sample_and_the_partner_the_batch(photos: torch.Tensor) -> None:
    augment = ImageBatch(MEAN, STD, mixup=0.2, classes=24)
    labels = torch.arange(24)
    _, whole = augment((photos, labels), positions=Positions(9, np.arange(24)))
    _, part = augment((photos[8:], labels[8:]), positions=Positions(9, np.arange(8, 24)))
    assert torch.equal(part[1:], whole[9:])  # these have the same neighbours
    assert part[0, 8] == whole[8, 8]  # λ
    assert not torch.equal(part[0], whole[8])  # its neighbour is the last of the batch


# -------------------------------------------------------------------------------------------------------- in a training


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    folder = tmp_path_factory.mktemp("positions") / "out"
    with ss.ShardWriter(folder, fields={"image": "array:uint8:3,8,8"}, shard_size="4KB") as writer:
        for i in range(96):
            writer.write({"__key__": str(i), "image": rng.integers(0, 256, (3, 8, 8), dtype=np.uint8), "id": i})
    return folder


Seen = dict[int, list[torch.Tensor]]


def augmented(batches: Iterable[dict[str, Any]], into: Seen | None = None) -> Seen:
    """What became of each sample, by its id."""
    seen: Seen = {} if into is None else into
    for batch in batches:
        valid = batch.get("__valid__", torch.ones(len(batch["id"]), dtype=torch.bool))
        for number, image in zip(batch["id"][valid].tolist(), batch["image"][valid], strict=True):
            seen.setdefault(number, []).append(image)
    return seen


def ahead(dataset: Any, workers: int = 0, **loading: Any) -> ss.DevicePrefetcher:
    loader = ss.Loader(dataset, num_workers=workers, **loading)
    return ss.DevicePrefetcher(loader, "cpu", transform=ImageBatch(MEAN, STD, image="image", **AUGMENT))


def same(first: Seen, second: Seen) -> bool:
    if first.keys() != second.keys():
        return False
    pairs = ((a, b) for number in first for a, b in zip(first[number], second[number], strict=True))
    return all(torch.allclose(a, b, rtol=0, atol=1e-5) for a, b in pairs)


@pytest.fixture(scope="module")
def whole(folder: Path) -> Seen:
    """An epoch that nothing interrupts."""
    return augmented(ahead(ss.ShardDataset(folder, shuffle=True, batch_size=8, seed=3)))


def test_epochs_differ_and_runs_do_not(folder: Path, whole: Seen) -> None:
    run = ahead(ss.ShardDataset(folder, shuffle=True, batch_size=8, seed=3), workers=2)
    assert same(augmented(run), whole)
    second = augmented(run)
    assert not any(torch.equal(second[number][0], whole[number][0]) for number in whole)


@pytest.mark.parametrize(("batch_size", "ranks"), [(5, 1), (24, 1), (4, 2), (3, 3)])
@pytest.mark.parametrize("stop", [1, 5])
def test_a_resume_with_other_batches_and_ranks_changes_nothing(
    folder: Path, whole: Seen, batch_size: int, ranks: int, stop: int
) -> None:
    first = ahead(ss.ShardDataset(folder, shuffle=True, batch_size=8, seed=3))
    seen: Seen = {}
    for step, batch in enumerate(first, 1):
        augmented([batch], seen)
        if step == stop:
            break
    state = first.state_dict()
    for rank in range(ranks):
        settings = {"batch_size": batch_size, "tail": "exact", "rank": rank, "world_size": ranks}
        rest = ahead(ss.ShardDataset(folder, shuffle=True, seed=3, **grouped(settings)))
        rest.load_state_dict(state)
        augmented(rest, seen)
    assert same(seen, whole)


def test_padding_repeats_the_augmentation_of_what_it_repeats(folder: Path) -> None:
    dataset = ss.ShardDataset(folder, batch_size=10, tail="pad", seed=3)
    batches = list(ahead(dataset))
    assert batches[-1]["__valid__"].tolist() == [True] * 6 + [False] * 4
    shown = {
        number: image
        for batch in batches[:-1]
        for number, image in zip(batch["id"].tolist(), batch["image"], strict=True)
    }
    for number, image in zip(batches[-1]["id"][6:].tolist(), batches[-1]["image"][6:], strict=True):
        torch.testing.assert_close(image, shown[number], rtol=0, atol=1e-5)


def drop_thirds(sample: dict[str, Any]) -> dict[str, Any] | None:
    return None if sample["id"] % 3 == 0 else sample


def collate(samples: list[dict[str, Any]]) -> dict[str, Any]:
    return torch.utils.data.default_collate(samples)


def test_dropped_samples_move_none_of_the_others(folder: Path, whole: Seen) -> None:
    kept = {number: images for number, images in whole.items() if number % 3}
    for loading in ({}, {"collate_fn": collate}):  # slots that are filled up, and lists with fewer samples
        dataset = ss.ShardDataset(folder, shuffle=True, batch_size=8, seed=3, transform=drop_thirds)
        assert same(augmented(ahead(dataset, **loading)), kept)


def test_mixtures_are_keyed_by_their_own_positions(folder: Path) -> None:
    def mixture(batch_size: int) -> Seen:
        sources = {name: (ss.ShardDataset(folder), 1) for name in "ab"}
        mix = ss.Mixture(
            sources,
            batch_size=batch_size,
            seed=3,
            epoch=96,
            order=ss.OrderOptions(lanes=2, chunk=2, window=8),
            tail="exact",
        )
        return augmented(ahead(mix))

    assert same(mixture(4), mixture(12))


def test_a_transform_of_ones_own_gets_them(folder: Path) -> None:
    got: list[Any] = []

    def transform(batch: dict[str, Any], key: int, positions: Positions | None) -> dict[str, Any]:
        got.append((key, positions))
        return batch

    dataset = ss.ShardDataset(folder, fields=["id"], batch_size=40, seed=3, tail="exact")
    run = ss.DevicePrefetcher(ss.Loader(dataset, num_workers=0), "cpu", transform=transform)
    list(run)
    list(run)
    values = [positions.values.tolist() for _, positions in got]
    assert values == 2 * [list(range(40)), list(range(40, 80)), list(range(80, 96))]
    assert len({key for key, _ in got}) == 6
    epochs = [positions.key for _, positions in got]
    assert epochs == [epochs[0]] * 3 + [epochs[3]] * 3
    assert epochs[0] != epochs[3]


def doubled(batch: dict[str, Any]) -> dict[str, Any]:
    return {"id": torch.cat([batch["id"]] * 2)}


@pytest.mark.parametrize("kind", ["twice as many", "others' loader", "single samples"])
def test_where_positions_do_not_say_it_a_batch_has_its_key(folder: Path, kind: str) -> None:
    dataset = ss.ShardDataset(folder, fields=["id"])
    loader: Any = {
        "twice as many": ss.Loader(dataset.replace(batch_size=32, batch_transform=doubled), num_workers=0),
        "others' loader": [{"id": part} for part in torch.arange(96).split(32)],
        "single samples": ss.Loader(dataset, num_workers=0),
    }[kind]
    image = torch.arange(8).expand(3, 8, 8)
    flip = ss.augment.RandomHorizontalFlip()
    known: list[bool] = []

    def flipped(batch: dict[str, Any], key: int, positions: Positions | None) -> tuple[bool, ...]:
        known.append(positions is not None)
        count = len(batch["id"]) if isinstance(batch["id"], torch.Tensor) else 1
        images = image.expand(count, -1, -1, -1).to(torch.uint8)
        return tuple((flip(images, key=key, positions=positions)[:, 0, 0, 0] > 0).tolist())

    results = list(ss.DevicePrefetcher(loader, "cpu", transform=flipped))
    assert set(known) == {kind == "twice as many"}
    assert len(set(results)) == (2 if kind == "single samples" else 3)
