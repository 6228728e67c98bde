"""Batches made by several threads are those made by one, and so are their errors; the threads go with the iteration."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import shardstream as ss
from shardstream.errors import BatchError, DecodeError, ShardStreamError, TransformError, UsageError
from shardstream.stream.batching.samples import DecodePool, StepDecoding

from .making import labels, numbered, photograph, square, write_dataset

FIELDS = {
    "jpg": ss.decode.RandomResizedCrop(32, flip=True),
    "view2": ss.decode.RandomResizedCrop(24, source="jpg"),
    "mask": ss.decode.Mask(source="png", like="jpg"),
    "txt": None,
    "id": None,
}


def fields_of(number: int) -> bytes:
    return labels(96 if number % 2 else 80, 72)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """80 photographs with masks."""
    jpg = {"jpg": lambda n: photograph(n, 96 if n % 2 else 80, 72), "txt": lambda n: f"caption {n}"}
    return write_dataset(tmp_path_factory.mktemp("pairs"), numbered([50, 30], png=fields_of, **jpg))


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 photographs, of which numbers 13, 14 and 40 do not decode."""
    shards = numbered([60], jpg=lambda n: photograph(n)[: 700 if n in (13, 14, 40) else None])
    return write_dataset(tmp_path_factory.mktemp("damaged"), shards)


def same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, torch.Tensor | np.ndarray):
        return bool((one == other).all())
    return bool(one == other)


def alive() -> list[str]:
    return [thread.name for thread in threading.enumerate() if "shardstream-decode" in thread.name]


@pytest.mark.parametrize("batch_size", [pytest.param(16, marks=pytest.mark.full), None])
def test_batches_and_samples_are_those_of_one_thread(pairs: Path, batch_size: int | None) -> None:
    one, three = (
        list(
            ss.ShardDataset(
                pairs,
                fields=FIELDS,
                batch_size=batch_size,
                shuffle=True,
                tail="exact",
                reads=ss.ReadOptions(threads=threads),
            )
        )
        for threads in (1, 3)
    )
    assert len(one) == len(three) > 4
    assert all(map(same, one, three))
    assert not alive()


def test_a_callable_inside_of_a_decoder_is_called_by_one_thread(pairs: Path) -> None:
    idents = set()

    def pick(number: int, rng: np.random.Generator) -> list[int]:
        idents.add(threading.get_ident())
        return [0, 0, 20 + number % 9 + int(rng.integers(5)), 30]

    fields = {"crop": ss.decode.Crop(16, box="id", pick=pick, source="jpg"), "jpg": FIELDS["jpg"]}
    one, three = (
        list(ss.ShardDataset(pairs, fields=fields, batch_size=16, reads=ss.ReadOptions(threads=threads)))
        for threads in (1, 3)
    )
    assert all(map(same, one, three))
    assert idents == {threading.get_ident()}


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.full)])
def test_in_workers(pairs: Path, method: str) -> None:
    dataset = ss.ShardDataset(pairs, fields=FIELDS, batch_size=16, shuffle=True, reads=ss.ReadOptions(threads=1))
    loader = ss.Loader(dataset.replace(reads=ss.ReadOptions(threads=2)), num_workers=2, multiprocessing_context=method)
    for _ in range(2):
        assert all(map(same, dataset, loader))


def test_transforms_are_called_in_order_by_one_thread(pairs: Path) -> None:
    called: list[tuple[int, int]] = []

    def transform(sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        called.append((threading.get_ident(), sample["id"]))
        return square(sample) | {"drawn": rng.random()}

    one, three = (
        list(
            ss.ShardDataset(
                pairs, fields=FIELDS, batch_size=16, transform=transform, reads=ss.ReadOptions(threads=threads)
            )
        )
        for threads in (1, 3)
    )
    assert all(map(same, one, three))
    assert {ident for ident, _ in called} == {threading.get_ident()}
    assert [number for _, number in called] == 2 * list(range(80))


def test_a_callable_of_a_field_is_called_by_one_thread_and_what_is_like_it_follows(pairs: Path) -> None:
    idents = set()

    def add(value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        idents.add(threading.get_ident())
        return value // 2 + np.random.randint(3)

    fields = FIELDS | {"jpg": [FIELDS["jpg"], add]}
    one, three = (
        list(ss.ShardDataset(pairs, fields=fields, batch_size=16, shuffle=True, reads=ss.ReadOptions(threads=threads)))
        for threads in (1, 3)
    )
    assert all(map(same, one, three))
    assert idents == {threading.get_ident()}


def test_the_first_damaged_sample_raises(damaged: Path) -> None:
    def first(threads: int) -> str:
        dataset = ss.ShardDataset(damaged, fields=FIELDS_OF_ONE, batch_size=60, reads=ss.ReadOptions(threads=threads))
        with pytest.raises(DecodeError) as caught:
            list(dataset)
        return str(caught.value)

    assert first(1) == first(4)
    assert not alive()


FIELDS_OF_ONE = {"jpg": ss.decode.RandomResizedCrop(16), "id": None}


def test_damaged_samples_are_skipped_alike(damaged: Path, caplog: pytest.LogCaptureFixture) -> None:
    said = []
    batches = []
    for threads in (1, 4):
        caplog.clear()
        dataset = ss.ShardDataset(
            damaged, fields=FIELDS_OF_ONE, batch_size=30, on_error="skip", reads=ss.ReadOptions(threads=threads)
        )
        batches.append(list(dataset))
        said.append([record.getMessage() for record in caplog.records])
    assert all(map(same, *batches))
    assert said[0] == said[1]
    assert [30 - len(batch["id"]) for batch in batches[0]] == [2, 1]


def test_too_many_skips_raise_alike(damaged: Path) -> None:
    def message(threads: int) -> str:
        dataset = ss.ShardDataset(
            damaged,
            fields=FIELDS_OF_ONE,
            batch_size=60,
            on_error="skip",
            max_skips=1,
            reads=ss.ReadOptions(threads=threads),
        )
        with pytest.raises(ShardStreamError, match="max_skips is 1") as caught:
            list(dataset)
        return str(caught.value)

    assert message(1) == message(3)


def test_what_fails_first_in_a_sample_is_what_is_raised(damaged: Path) -> None:
    def fail(value: int) -> int:
        if value == 13:
            raise ValueError("no")
        return value

    def kind(threads: int, fields: dict[str, Any]) -> str:
        with pytest.raises((TransformError, DecodeError)) as caught:
            list(ss.ShardDataset(damaged, fields=fields, batch_size=60, reads=ss.ReadOptions(threads=threads)))
        return f"{type(caught.value).__name__} {caught.value}"

    for fields in ({"id": fail, "jpg": FIELDS_OF_ONE["jpg"]}, {"jpg": FIELDS_OF_ONE["jpg"], "id": fail}):
        assert kind(1, fields) == kind(3, fields)


def test_threads_go_when_an_iteration_is_left(pairs: Path) -> None:
    dataset = ss.ShardDataset(pairs, fields=FIELDS, batch_size=8, reads=ss.ReadOptions(threads=3))
    batches = iter(dataset)
    next(batches)
    assert alive()
    del batches
    assert not alive()
    assert same(dataset.peek(), dataset.replace(reads=ss.ReadOptions(threads=1)).peek())
    assert not alive()


def test_mixtures(pairs: Path) -> None:
    one, three = (
        list(ss.Mixture({"a": (part, 0.5), "b": (part, 0.5)}, batch_size=20, reads=ss.ReadOptions(threads=threads)))
        for part in [ss.ShardDataset(pairs, fields=FIELDS)]
        for threads in (1, 3)
    )
    assert all(map(same, one, three))


def test_the_number_is_checked(pairs: Path) -> None:
    with pytest.raises(UsageError, match="threads"):
        ss.ShardDataset(pairs, reads=ss.ReadOptions(threads=0))


def test_the_largest_are_begun_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_dataset(
        tmp_path, numbered([24], jpg=lambda n: photograph(n, *((640, 480) if n in (3, 20) else (64, 48))))
    )
    begun: list[int] = []
    begin = StepDecoding.begin

    def noted(self: StepDecoding, outputs: Any, slot: int, **options: Any) -> bool:
        begun.append(self.rows.rows[slot])
        return begin(self, outputs, slot, **options)

    monkeypatch.setattr(StepDecoding, "begin", noted)
    (one,) = ss.ShardDataset(folder, fields=FIELDS_OF_ONE, batch_size=24, reads=ss.ReadOptions(threads=1))
    assert begun in ([], list(range(24)))
    begun.clear()
    (two,) = ss.ShardDataset(folder, fields=FIELDS_OF_ONE, batch_size=24, reads=ss.ReadOptions(threads=2))
    assert set(begun[:2]) == {3, 20}
    assert sorted(begun) == list(range(24))
    assert same(one, two)


def test_all_before_the_first_that_fails_are_done() -> None:
    crew = DecodePool(4)
    try:
        for fails in (0, 1, 7, 50, 99):
            done: list[int] = []

            def work(number: int, done: list[int] = done, fails: int = fails) -> bool:
                done.append(number)
                return number < fails

            for numbers in (list(range(100)), list(range(99, -1, -1)), [*range(50, 100), *range(50)]):
                done.clear()
                crew.run(work, numbers)
                assert set(range(fails + 1)) <= set(done)
                assert len(done) == len(set(done))
        done = []
        crew.run(lambda number: not done.append(number), range(1000))
        assert sorted(done) == list(range(1000))
    finally:
        crew.close()


def test_none_good_is_said(tmp_path: Path) -> None:
    folder = write_dataset(tmp_path, numbered([8], jpg=lambda n: photograph(n)[:700]))
    with pytest.raises(BatchError, match="none of the 8"):
        list(
            ss.ShardDataset(
                folder, fields=FIELDS_OF_ONE, batch_size=8, on_error="skip", reads=ss.ReadOptions(threads=2)
            )
        )
