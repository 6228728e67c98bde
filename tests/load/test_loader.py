"""`Loader` and plain `DataLoader`s in real worker processes."""

from __future__ import annotations

import contextlib
import functools
import gc
import inspect
import pickle
import warnings
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

import shardstream as ss
from shardstream.stream.ipc.worker_batch import WorkerBatch

from ..stream.making import numbered, photograph, square, write_dataset

CROP = {"jpg": ss.decode.RandomResizedCrop(24, flip=True), "id": None, "txt": None}


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    shards = numbered([150, 90, 60], jpg=photograph, txt=lambda n: f"caption {n}")
    return write_dataset(tmp_path_factory.mktemp("photos"), shards)


@pytest.fixture(autouse=True)
def more_workers_than_cores_are_fine() -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="This DataLoader will create", category=UserWarning)
        yield


def flatten(batches: Any) -> list[tuple[list[int], bytes]]:
    return [(batch["id"].tolist(), batch["jpg"].permute(0, 2, 3, 1).numpy().tobytes()) for batch in batches]


@functools.cache
def reference(photos: Path, epoch: int) -> list[tuple[list[int], bytes]]:
    dataset = ss.ShardDataset(photos, fields=CROP, batch_size=16, shuffle=True, seed=3)
    dataset.set_epoch(epoch)
    return flatten(dataset)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("num_workers", [0, 1, 2, 4, 8])
def test_augmented_batches_are_the_same_with_any_usual_number_of_workers(photos: Path, num_workers: int) -> None:
    dataset = ss.ShardDataset(photos, fields=CROP, shuffle=True, seed=3)
    loader = ss.Loader(dataset, batch_size=16, num_workers=num_workers)
    assert len(loader) == 300 // 16
    for epoch in range(2):
        assert dataset.epoch == epoch
        batches = list(loader)
        assert flatten(batches) == reference(photos, epoch)
        assert batches[0]["jpg"].is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    ("persistent", "method", "workers"),
    [
        *((True, "spawn", 1), (False, "fork", 2)),
        *(pytest.param(False, method, 2, marks=pytest.mark.full) for method in ("forkserver", "spawn")),
        *(pytest.param(True, method, 2, marks=pytest.mark.full) for method in ("fork", "forkserver", "spawn")),
    ],
)
def test_every_start_method(photos: Path, method: str, persistent: bool, workers: int) -> None:
    dataset = ss.ShardDataset(photos, fields=CROP, batch_size=16, shuffle=True, seed=3)
    loader = ss.Loader(dataset, num_workers=workers, multiprocessing_context=method, persistent_workers=persistent)
    for epoch in range(2):
        assert flatten(loader) == reference(photos, epoch)
    dataset.set_epoch(0)
    assert flatten(loader) == reference(photos, 0)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("persistent", [False, True])
def test_a_plain_dataloader_counts_epochs_too(photos: Path, persistent: bool) -> None:
    dataset = ss.ShardDataset(photos, fields=CROP, batch_size=16, shuffle=True, seed=3)
    loader = DataLoader(dataset, batch_size=None, num_workers=2, persistent_workers=persistent)
    assert len(loader) == 300 // 16
    assert flatten(loader) == reference(photos, 0)
    assert flatten(loader) == reference(photos, 1)
    assert dataset.epoch == 2
    dataset.set_epoch(1)
    assert flatten(loader) == reference(photos, 1)


def test_a_plain_dataloader_that_batches_by_itself(photos: Path) -> None:
    dataset = ss.ShardDataset(photos, fields=["id", "txt"])
    batches = list(DataLoader(dataset, batch_size=10, num_workers=2))
    assert sorted(i for batch in batches for i in batch["id"].tolist()) == list(range(300))
    assert batches[0]["txt"][:2] == ["caption 0", "caption 1"]


@pytest.mark.parametrize("num_workers", [0, 3])
def test_single_samples_in_stored_order(photos: Path, num_workers: int) -> None:
    loader = ss.Loader(ss.ShardDataset(photos, fields=["id"]), num_workers=num_workers)
    assert len(loader) == 300
    assert [sample["id"] for sample in loader] == list(range(300))


def test_unusual_numbers_of_workers_lose_nothing(photos: Path) -> None:
    for num_workers in (3, 5):
        dataset = ss.ShardDataset(photos, fields=["id"], shuffle=True, tail="exact", batch_size=7)
        seen = [i for batch in ss.Loader(dataset, num_workers=num_workers) for i in batch["id"].tolist()]
        assert sorted(seen) == list(range(300))


def test_fewer_samples_than_workers(tmp_path: Path) -> None:
    write_dataset(tmp_path, numbered([2]))
    loader = ss.Loader(ss.ShardDataset(tmp_path, tail="exact", shuffle=True), batch_size=1, num_workers=4)
    assert sorted(batch["id"].item() for batch in loader) == [0, 1]


def test_break_begins_the_epoch_again(photos: Path) -> None:
    dataset = ss.ShardDataset(photos, fields=CROP, batch_size=16, shuffle=True, seed=3)
    loader = ss.Loader(dataset, num_workers=2)
    for _ in loader:
        break
    assert dataset.epoch == 0
    assert flatten(loader) == reference(photos, 0)
    assert dataset.epoch == 1


def test_two_loaders_on_one_data_set(photos: Path) -> None:
    dataset = ss.ShardDataset(photos, fields=CROP, batch_size=16, shuffle=True, seed=3)
    one, two = ss.Loader(dataset, num_workers=1), ss.Loader(dataset, num_workers=2)
    pairs = list(zip(one, two, strict=True))
    assert flatten(first for first, _ in pairs) == flatten(second for _, second in pairs) == reference(photos, 0)
    assert dataset.epoch == 1


def test_an_outdated_iterator_says_so(photos: Path) -> None:
    loader = ss.Loader(ss.ShardDataset(photos, fields=["id"], batch_size=16), num_workers=1)
    old = iter(loader)
    next(old)
    assert len(list(loader)) == 19
    with pytest.raises(ss.errors.UsageError, match="newer one"):
        next(old)


def test_a_kept_list_of_batches_keeps_its_pixels(photos: Path) -> None:
    loader = ss.Loader(ss.ShardDataset(photos, fields=CROP, batch_size=16, shuffle=True, seed=3), num_workers=2)
    kept = list(loader)
    assert flatten(kept) == reference(photos, 0)


def only_ids(batch: dict[str, Any]) -> list[int]:
    return batch["id"].tolist()


def count(samples: list[dict[str, Any]]) -> dict[str, Any]:
    return {"n": len(samples), "ids": [sample["id"] for sample in samples]}


def test_collate_fn_gets_the_samples_of_a_batch(photos: Path) -> None:
    dataset = ss.ShardDataset(photos, fields=["id"], transform=square)
    batches = list(ss.Loader(dataset, batch_size=128, num_workers=2, collate_fn=count))
    assert [batch["n"] for batch in batches] == [128, 128, 44]
    assert batches[1]["ids"] == [n * n for n in range(128, 256)]


class Counted(list[int]):
    """A `collate_fn` that is false as long as it has counted nothing."""

    def __call__(self, samples: list[dict[str, Any]]) -> int:
        return len(samples)


def test_collate_fn_may_be_an_empty_container(photos: Path) -> None:
    dataset = ss.ShardDataset(photos, fields=["id"])
    assert list(ss.Loader(dataset, batch_size=128, num_workers=0, collate_fn=Counted())) == [128, 128, 44]


def test_batch_transform_takes_the_batch_size_of_the_loader(photos: Path) -> None:
    dataset = ss.ShardDataset(photos, fields=["id"], batch_transform=only_ids)
    assert sum(ss.Loader(dataset, batch_size=100, num_workers=1), []) == list(range(300))  # noqa: RUF017 - three lists
    for iterate in (lambda: next(iter(dataset)), dataset.peek, lambda: iter(ss.Loader(dataset, num_workers=0))):
        with pytest.raises(ss.errors.UsageError, match="batch_transform needs batches, but there is no batch_size"):
            iterate()
    with pytest.raises(ss.errors.UsageError, match="collate_fn"):
        iter(ss.Loader(dataset, batch_size=10, collate_fn=count, num_workers=0))


def test_other_dataloader_arguments_are_forwarded(photos: Path) -> None:
    dataset = ss.ShardDataset(photos, fields=["id"], batch_size=32)
    loader = ss.Loader(dataset, num_workers=1, prefetch_factor=5, timeout=60)
    assert loader.prefetch_factor == 5
    assert loader.timeout == 60
    assert loader.persistent_workers
    assert len(list(loader)) == 10


@pytest.mark.parametrize("name", ["shuffle", "sampler", "batch_sampler", "drop_last"])
def test_what_the_data_set_decides_is_refused(photos: Path, name: str) -> None:
    with pytest.raises(ss.errors.UsageError, match="ShardDataset"):
        ss.Loader(ss.ShardDataset(photos), num_workers=0, **{name: True})
    with pytest.raises(ss.errors.UsageError, match="needs a ShardDataset"):
        ss.Loader([1, 2], num_workers=0)  # type: ignore[arg-type]


_LOADERS_OWN = {"url", "sources", *inspect.signature(ss.Loader).parameters}


@pytest.mark.parametrize("kind", [ss.ShardDataset, ss.Mixture])
def test_every_argument_of_a_dataset_is_refused_with_the_place_where_it_belongs(photos: Path, kind: Any) -> None:
    dataset = ss.ShardDataset(photos)
    dataset = ss.Mixture({"a": (dataset, 1)}, batch_size=2) if kind is ss.Mixture else dataset
    for name in inspect.signature(kind).parameters.keys() - _LOADERS_OWN:
        with pytest.raises(ss.errors.UsageError, match=name) as caught:
            ss.Loader(dataset, num_workers=0, **{name: 1})
        assert name == "shuffle" or f"{kind.__name__}(..., {name}=" in str(caught.value.hint)
    if kind is ss.Mixture:  # what belongs to one of its datasets
        with pytest.raises(ss.errors.UsageError, match=r"ShardDataset\(\.\.\., fields="):
            ss.Loader(dataset, num_workers=0, fields=["id"])


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        ({"tail": "pad"}, "ShardDataset(..., tail='pad')"),
        ({"fields": ["id"]}, "ShardDataset(..., fields=['id'])"),
        ({"rank": 0}, "ShardDataset(..., ranks=(rank, world_size))"),
        ({"world_size": None}, "ShardDataset(..., ranks=(rank, world_size))"),
        ({"batchsize": 4}, "did you mean 'batch_size'?"),
        ({"pin_memry": True}, "did you mean 'pin_memory'?"),
    ],
)
def test_an_argument_that_a_loader_does_not_take_names_the_line_to_write(
    photos: Path, arguments: dict[str, Any], hint: str
) -> None:
    with pytest.raises(ss.errors.UsageError, match=next(iter(arguments))) as caught:
        ss.Loader(ss.ShardDataset(photos), num_workers=0, **arguments)
    assert hint in str(caught.value.hint)


def test_a_batch_size_that_replaces_that_of_the_dataset_is_logged_once(
    photos: Path, caplog: pytest.LogCaptureFixture
) -> None:
    dataset = ss.ShardDataset(photos, fields=["id"], batch_size=39)
    for size in (39, None, 41, 41):
        ss.Loader(dataset, batch_size=size, num_workers=0)
    ss.Loader(ss.ShardDataset(photos, fields=["id"]), batch_size=37, num_workers=0)
    assert caplog.messages == ["batch_size=41 of the loader replaces batch_size=39 of the dataset"]


def fail(sample: dict[str, Any]) -> Any:
    raise ValueError(f"no {sample['id']}")


def test_an_error_keeps_its_type_and_place_on_its_way_from_a_worker(photos: Path) -> None:
    loader = ss.Loader(ss.ShardDataset(photos, fields=["id"], transform=fail), batch_size=8, num_workers=1)
    with pytest.raises(ss.errors.TransformError, match="no 0") as caught:
        next(iter(loader))
    assert caught.value.place == {"shard": "shard-000000.tar", "sample": 0, "key": "k000000"}
    notes = "".join(caught.value.__notes__)
    assert "worker 0" in notes
    assert 'raise ValueError(f"no {sample[' in notes
    with pytest.raises(ss.errors.TransformError, match=r"no 0[\s\S]*key k000000"):
        next(iter(DataLoader(ss.ShardDataset(photos, fields=["id"], transform=fail), batch_size=None, num_workers=1)))


@pytest.mark.full
@pytest.mark.parametrize("persistent", [False, True])
def test_an_error_that_is_caught_holds_nothing(photos: Path, persistent: bool) -> None:
    """Workers end with the last reference. Left to the cycle collector, torch would wait 5 seconds for each of them."""
    dataset = ss.ShardDataset(photos, fields=["id"], transform=fail)
    loader = ss.Loader(dataset, batch_size=8, num_workers=1, persistent_workers=persistent)
    gc.collect()
    gc.disable()
    try:
        items = iter(loader)
        workers = weakref.ref(items.gi_frame.f_locals["iteration"]._request.args[1])
        with contextlib.suppress(ss.errors.TransformError):
            next(items)
        del loader, items
        assert workers() is None
    finally:
        gc.enable()


@pytest.mark.full
def test_a_lambda_under_spawn_is_named(photos: Path) -> None:
    dataset = ss.ShardDataset(photos, fields=["id"], transform=lambda sample: sample)
    loader = ss.Loader(dataset, batch_size=8, num_workers=1, multiprocessing_context="spawn")
    with pytest.raises(ss.errors.UsageError, match="`transform` cannot be pickled"):
        next(iter(loader))
    assert len(list(ss.Loader(dataset, batch_size=8, num_workers=1))) == 38


def elsewhere(sample: dict[str, Any]) -> dict[str, Any]:
    return {"x": torch.empty(1, device="meta")}


def test_a_device_tensor_from_a_worker_is_refused_with_the_right_way(photos: Path) -> None:
    loader = ss.Loader(ss.ShardDataset(photos, transform=elsewhere), num_workers=1, batch_size=4, collate_fn=None)
    with pytest.raises(ss.errors.UsageError, match="pin_memory=True"):
        next(iter(loader))
    loader = ss.Loader(ss.ShardDataset(photos, transform=elsewhere), num_workers=1)
    with pytest.raises(ss.errors.UsageError, match="pin_memory=True"):
        next(iter(loader))


def test_stats_say_what_was_delivered(photos: Path) -> None:
    loader = ss.Loader(ss.ShardDataset(photos, fields=CROP, batch_size=16, shuffle=True), num_workers=2)
    assert loader.stats.samples_per_second == 0
    list(loader)
    stats = loader.stats
    assert (stats.batches, stats.samples, stats.skipped) == (18, 288, 0)
    assert 0 < stats.wait_share <= 1
    assert stats.worker_seconds > 0
    stats.reset()
    assert loader.stats.batches == 0


def test_a_loader_pickles_its_data_set_small(photos: Path) -> None:
    loader = ss.Loader(ss.ShardDataset(photos, fields=CROP, batch_size=16), num_workers=0)
    assert len(pickle.dumps(loader.dataset)) < 65536


def test_pinning_reaches_every_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    """What torch's pinning thread does to a parcel, on machines that have nothing to pin for."""
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor + 100)
    one = torch.ones(2)
    rows = ss.Ragged(one, torch.tensor([0, 2]))
    parcel = WorkerBatch({"a": one, "b": [one, "text"], "c": (one, {"d": rows})}, samples=2).pin_memory()
    assert parcel.data["a"].tolist() == parcel.data["b"][0].tolist() == parcel.data["c"][0].tolist() == [101, 101]
    assert parcel.data["b"][1] == "text"
    assert parcel.data["c"][1]["d"].values.tolist() == [101, 101]


@pytest.mark.full
def test_albumentations_give_equal_pixels_with_any_number_of_workers(photos: Path) -> None:
    """Passed as it is: its keyword call is found, and its randomness keyed by position."""
    albumentations = pytest.importorskip("albumentations")
    augment = albumentations.Compose(
        [albumentations.HorizontalFlip(p=0.5), albumentations.RandomBrightnessContrast(p=1), albumentations.Rotate(p=1)]
    )
    fields = {"jpg": [ss.decode.RandomResizedCrop(24), augment], "id": None}
    epochs = []
    for num_workers in (0, 1, 4):
        dataset = ss.ShardDataset(photos, fields=fields, batch_size=32, shuffle=True, seed=8)
        epochs.append(flatten(ss.Loader(dataset, num_workers=num_workers)))
    assert epochs[0] == epochs[1] == epochs[2]
    plain = ss.ShardDataset(photos, fields={"jpg": ss.decode.RandomResizedCrop(24), "id": None}, batch_size=32)
    assert flatten(plain.replace(shuffle=True, seed=8)) != epochs[0]
