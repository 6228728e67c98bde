"""Parts of a data set: split, where, take; and epochs of another size."""

from __future__ import annotations

import pickle
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import shardstream as ss

from .making import numbered, write_dataset

SIZES = [400, 1, 0, 250, 99, 250]
SHARES = {"train": 0.7, "val": 0.2, "test": "0.1"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    shards = numbered(SIZES, cls=lambda n: n * 7 % 10, score=lambda n: n / 4)
    for sample in shards[4]:
        del sample["score"]
    return write_dataset(tmp_path_factory.mktemp("views"), shards)


def ids_of(dataset: ss.ShardDataset) -> list[int]:
    return [sample["id"] for sample in dataset.replace(batch_size=None, shuffle=False)]


def test_parts_of_a_split_are_disjoint_and_complete(folder: Path) -> None:
    parts = {name: ids_of(ss.ShardDataset(folder, split=(name, SHARES))) for name in SHARES}
    assert sorted(number for ids in parts.values() for number in ids) == list(range(1000))
    assert {name: len(ids) for name, ids in parts.items()} == {"train": 700, "val": 200, "test": 100}


def test_a_split_keeps_its_samples_when_shards_are_appended(folder: Path, tmp_path: Path) -> None:
    grown = write_dataset(tmp_path / "grown", numbered([*SIZES, 300], cls=lambda n: 0, score=lambda n: 0.0))
    for name in SHARES:
        before = ids_of(ss.ShardDataset(folder, split=(name, SHARES)))
        after = ids_of(ss.ShardDataset(grown, split=(name, SHARES)))
        assert [number for number in after if number < 1000] == before


def test_a_split_by_shards_gives_each_to_one_part(folder: Path) -> None:
    begins = np.cumsum([0, *SIZES])
    shards = []
    for name in ("train", "val"):
        ids = ids_of(ss.ShardDataset(folder, split=(name, {"train": 0.5, "val": 0.5}), split_by="shards"))
        shards.append({int(np.searchsorted(begins, number, side="right")) for number in ids})
    assert not shards[0] & shards[1]
    assert sum(map(len, shards)) == 5


@pytest.mark.parametrize(
    ("split", "message"),
    [
        (("vall", {"train": 0.5, "val": 0.5}), "did you mean 'val'"),
        (("val", {"train": 0.5, "val": 0.4}), "add up"),
        ("val", "name and the shares"),
    ],
)
def test_a_split_that_is_none_is_refused(folder: Path, split: object, message: str) -> None:
    with pytest.raises(ss.errors.UsageError, match=message):
        ss.ShardDataset(folder, split=split)  # type: ignore[arg-type]


def test_where_finds_the_samples_by_the_index(folder: Path) -> None:
    dataset = ss.ShardDataset(folder, where={"cls": [1, 5, 9]})
    expected = [number for number in range(1000) if number * 7 % 10 in (1, 5, 9)]
    assert ids_of(dataset) == expected
    assert len(dataset) == dataset.samples == len(expected)


def test_where_takes_several_columns_single_values_and_leaves_out_samples_without_value(folder: Path) -> None:
    scores = np.arange(0, 200, 0.5)  # of even numbers below 800
    expected = [n for n in range(800) if n * 7 % 10 == 4 and n % 2 == 0 and not 651 <= n < 750]
    assert ids_of(ss.ShardDataset(folder, where={"cls": 4, "score": scores})) == expected
    assert ids_of(ss.ShardDataset(folder, where={"cls": []})) == []


def test_class_names_stand_for_labels(tmp_path: Path) -> None:
    with ss.ShardWriter(tmp_path / "named", classes=["cat", "dog", "eel"]) as writer:
        for number in range(9):
            writer.write({"__key__": str(number), "id": number, "cls": number % 3})
    assert ids_of(ss.ShardDataset(tmp_path / "named", where={"cls": ["dog", "eel"]})) == [1, 2, 4, 5, 7, 8]
    with pytest.raises(ss.errors.FieldError, match=r"no class is called 'cow'.*\n.*cat, dog, eel"):
        ss.ShardDataset(tmp_path / "named", where={"cls": "cow"})


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ({"clss": 1}, "did you mean 'cls'"),
        ({"txt": "a"}, "stands in the index"),
        ({"cls": [None]}, "not with None"),
        ([1], "must be a dict"),
        ({"cls": "cat"}, "no class names"),
    ],
)
def test_a_filter_that_cannot_work_is_refused(tmp_path: Path, where: object, message: str) -> None:
    folder = write_dataset(tmp_path / "d", numbered([3], cls=lambda n: n, txt=str))
    with pytest.raises(ss.errors.UsageError, match=message):
        ss.ShardDataset(folder, where=where)  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [0, 1, 400, 401, 500, 1000, 5000])
def test_take_is_the_first_in_stored_order(folder: Path, count: int) -> None:
    assert ids_of(ss.ShardDataset(folder).take(count)) == list(range(min(count, 1000)))


def test_views_compose(folder: Path) -> None:
    dataset = ss.ShardDataset(folder, split=("train", SHARES), where={"cls": [2, 3]})
    train = ids_of(ss.ShardDataset(folder, split=("train", SHARES)))
    expected = [number for number in train if number * 7 % 10 in (2, 3)]
    assert ids_of(dataset) == expected
    assert ids_of(dataset.take(20).take(50)) == expected[:20]


def test_a_view_is_shuffled_completely_and_in_equal_steps(folder: Path) -> None:
    where = {"cls": [1, 2]}
    datasets = [
        ss.ShardDataset(folder, where=where, shuffle=True, fields=["id"], batch_size=8, ranks=(rank, 3))
        for rank in range(3)
    ]
    expected = [number for number in range(1000) if number * 7 % 10 in (1, 2)]
    assert len({len(dataset) for dataset in datasets}) == 1
    seen = [number for dataset in datasets for batch in dataset for number in batch["id"].tolist()]
    assert len(seen) == len(set(seen)) == len(expected) // 24 * 24
    assert set(seen) <= set(expected)


def test_the_view_is_part_of_the_fingerprint(folder: Path) -> None:
    whole = ss.ShardDataset(folder)
    views = [
        whole,
        whole.take(5),
        whole.take(6),
        ss.ShardDataset(folder, where={"cls": 1}),
        ss.ShardDataset(folder, split=("val", SHARES)),
        ss.ShardDataset(folder, split=("test", SHARES)),
        whole.choose(10),
    ]
    assert len({view.fingerprint for view in views}) == len(views)
    assert whole.fingerprint == whole.manifest.fingerprint
    assert (
        ss.ShardDataset(folder, where={"cls": [5, 1]}).fingerprint
        == ss.ShardDataset(folder, where={"cls": {1, 5}}).fingerprint
    )


def test_a_view_survives_pickling_without_another_scan(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = ss.ShardDataset(folder, where={"cls": 3}, split=("train", SHARES)).take(40)
    data = pickle.dumps(dataset)
    assert len(data) < 48_000  # most of it zeros of shared memory

    def scan(*_: object) -> None:
        raise AssertionError("scanned again")

    monkeypatch.setattr("shardstream.dataset.view._scan", scan)
    copy = pickle.loads(data)
    assert copy.fingerprint == dataset.fingerprint
    assert ids_of(copy) == ids_of(dataset)


@pytest.mark.parametrize("context", ["fork", pytest.param("spawn", marks=pytest.mark.full)])
def test_workers_see_the_view(folder: Path, context: str) -> None:
    dataset = ss.ShardDataset(folder, fields=["id"], where={"cls": 3}, batch_size=16)
    loader = ss.Loader(dataset, num_workers=2, multiprocessing_context=context, persistent_workers=False)
    assert [number for batch in loader for number in batch["id"].tolist()] == list(range(9, 1000, 10))


def test_errors_name_the_row_of_the_shard_and_not_of_the_view(folder: Path) -> None:
    def fail(sample: dict[str, int]) -> None:
        raise KeyError(sample["id"])

    dataset = ss.ShardDataset(folder, where={"cls": 3}, transform=fail)
    with pytest.raises(ss.errors.TransformError) as caught:
        next(iter(dataset))
    assert caught.value.place["sample"] == 9


# ------------------------------------------------------------------------------------------------ epochs of other sizes


@pytest.mark.parametrize("shuffle", [False, True])
def test_epochs_of_another_size_are_pieces_of_an_endless_walk(folder: Path, shuffle: bool) -> None:
    dataset = ss.ShardDataset(folder, fields=["id"], shuffle=shuffle, epoch_size=300, batch_size=10, seed=3)
    walk = [number for _ in range(10) for batch in dataset for number in batch["id"].tolist()]
    assert len(walk) == 3000
    counts = Counter(walk)
    assert set(counts) == set(range(1000))
    assert set(counts.values()) == {3}
    if not shuffle:
        assert walk == [*range(1000)] * 3


def test_over_and_under_sampling(folder: Path) -> None:
    dataset = ss.ShardDataset(folder, fields=["id"], shuffle=True, tail="exact")
    assert len(dataset.repeat(2.5)) == 2500
    assert set(Counter(sample["id"] for sample in dataset.repeat(2)).values()) == {2}
    half = dataset.repeat(0.5)
    half.set_epoch(0)
    first, second = ({sample["id"] for sample in half} for _ in range(2))
    assert not first & second
    assert len(dataset.choose(77)) == len(list(dataset.choose(77))) == 77


def test_an_epoch_of_all_samples_by_number_is_the_plain_epoch(folder: Path) -> None:
    plain = ss.ShardDataset(folder, fields=["id"], shuffle=True, batch_size=10)
    sized = ss.ShardDataset(folder, fields=["id"], shuffle=True, batch_size=10, epoch_size=1000)
    for _ in range(3):
        assert [batch["id"].tolist() for batch in plain] == [batch["id"].tolist() for batch in sized]


@pytest.mark.parametrize(
    ("method", "size"),
    [("repeat", 0), ("repeat", 1e-9), ("repeat", True), ("choose", 0), ("choose", None), ("take", -1), ("take", 2.5)],
)
def test_sizes_that_are_none_are_refused(folder: Path, method: str, size: float | None) -> None:
    with pytest.raises(ss.errors.UsageError, match=r"repeat|epoch_size|choose|take|less than one"):
        getattr(ss.ShardDataset(folder), method)(size)


def test_nothing_cannot_fill_an_epoch(folder: Path) -> None:
    dataset = ss.ShardDataset(folder, where={"cls": 77}, epoch_size=100, batch_size=10)
    with pytest.raises(ss.errors.UsageError, match="no samples to fill an epoch"):
        next(iter(dataset))
