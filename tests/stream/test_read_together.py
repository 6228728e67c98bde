"""Small steps whose batches whole columns make are read several at once: nobody can tell, but by the time it takes."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import shardstream as ss
from shardstream.decode import Packed
from shardstream.decode.packed import OUTPUTS
from shardstream.errors import BatchError, ChecksumError, ShardStreamError
from shardstream.stream.iteration.content import Content
from tests.grouped import grouped

SIZE, BINS = 16, 157

Make = Callable[[], Any]


@pytest.fixture(scope="module")
def bins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    draws, out = np.random.default_rng(0), tmp_path_factory.mktemp("together") / "bins"
    documents = []
    for i in range(400):
        ids = draws.integers(1, 60_000, draws.integers(1, 11))
        documents.append({"__key__": f"d{i}", "ids": ids} | ({"loss_mask": ids % 3 > 0} if i % 4 == 0 else {}))
    ss.pack(
        documents,
        out,
        bins=ss.PackedSequences(SIZE, token_dtype="uint16"),
        format="record",
        shard_size="1kB",
        workers=0,
    )
    return out


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("together") / "numbers"
    rows = ({"__key__": f"k{i:04}", "n": i, "x": np.full(3, i, np.float32)} for i in range(1003))
    options: dict[str, Any] = {"fields": {"n": "int", "x": "array:float32:3"}, "shuffle": False, "workers": 0}
    ss.pack(rows, out, format="record", shard_size="4kB", **options)
    return out


def read(make: Make) -> list[dict[str, Any]]:
    return [plain(batch) for batch in make()]


def plain(batch: dict[str, Any]) -> dict[str, Any]:
    return {name: value.tolist() if isinstance(value, torch.Tensor) else value for name, value in batch.items()}


def alone(make: Make) -> list[dict[str, Any]]:
    """The same with each step read by itself."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Content, "read_together", lambda *_: 1)
        return read(make)


def packs() -> st.SearchStrategy[Packed]:
    return st.builds(
        Packed,
        st.sampled_from([None, SIZE // 2, SIZE // 4]),
        outputs=st.lists(st.sampled_from(OUTPUTS), min_size=1, unique=True),
        labels=st.sampled_from(["same", "next"]),
        pieces=st.sampled_from(["restart", "continue"]),
        flat=st.booleans(),
        names=st.sampled_from(["own", "hf"]),
    )


@given(
    packed=packs(),
    batch_size=st.integers(1, 40),
    tail=st.sampled_from(["exact", "pad", "drop"]),
    rank=st.integers(0, 2),
    seed=st.integers(0, 9),
)
def test_bins_are_the_same(bins: Path, packed: Packed, batch_size: int, tail: Any, rank: int, seed: int) -> None:
    def make() -> Any:
        options: dict[str, Any] = {"shuffle": seed > 0, "seed": seed, "rank": rank, "world_size": 3, "tail": tail}
        return ss.ShardDataset(bins, fields={"text": packed}, batch_size=batch_size, **grouped(options))

    assert make()._content.read_together(make()._settings) > 1
    assert read(make) == alone(make)


@given(data=st.data(), batch_size=st.integers(1, 64))
def test_a_mixture_of_numbers_goes_on_anywhere(numbers: Path, data: st.DataObject, batch_size: int) -> None:
    def make() -> Any:
        parts = [ss.ShardDataset(numbers, fields=["n", "x"], shuffle=True, seed=seed) for seed in (1, 2)]
        weighted = {"a": (parts[0], 2), "b": (parts[1], 1)}
        return ss.Mixture(weighted, epoch=900, batch_size=batch_size, tail="exact")

    whole = alone(make)
    first, taken = make(), data.draw(st.integers(0, len(whole) - 1))
    iterator, rest = iter(first), make()
    begun = [plain(batch) for batch in islice(iterator, taken)]
    rest.load_state_dict(first.state_dict())
    assert begun + [plain(batch) for batch in rest] == whole


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_of_a_loader_are_the_same(bins: Path, workers: int) -> None:
    def make() -> Any:
        dataset = ss.ShardDataset(bins, fields={"text": Packed()}, batch_size=3, shuffle=True, tail="pad")
        return ss.Loader(dataset, num_workers=workers, multiprocessing_context="fork" if workers else None)

    assert read(make) == alone(make)


def test_a_tensor_owns_no_more_than_it_shows(bins: Path) -> None:
    batches = list(ss.ShardDataset(bins, fields={"text": Packed()}, batch_size=2))
    for value in (value for value in batches[5].values() if isinstance(value, torch.Tensor)):
        saved = io.BytesIO()
        torch.save(value, saved)
        assert value.untyped_storage().nbytes() == value.nbytes < len(saved.getvalue()) < value.nbytes + 2000
    kept = batches[4]["ids"].clone()
    batches[5]["ids"].zero_()
    assert torch.equal(batches[4]["ids"], kept)


def until_it_fails(dataset: Any) -> tuple[list[Any], ShardStreamError | None]:
    found: list[Any] = []
    try:
        found.extend(plain(batch) for batch in dataset)
    except ShardStreamError as error:
        return found, error
    return found, None


def damaged(numbers: Path, out: Path) -> Path:
    """A copy of which one value is not what was written."""
    out.mkdir()
    for file in numbers.iterdir():
        (out / file.name).write_bytes(file.read_bytes())
    wrong = np.full(3, 333, np.float32).tobytes()
    (shard,) = (one for one in out.glob("*.rec") if wrong in one.read_bytes())
    raw = bytearray(shard.read_bytes())
    raw[raw.index(wrong)] ^= 1
    shard.write_bytes(raw)
    return out


def test_damage_comes_to_light_where_it_lies(numbers: Path, tmp_path: Path) -> None:
    bad = damaged(numbers, tmp_path / "bad")

    def make(**options: Any) -> Any:
        return ss.ShardDataset(bad, fields=["n", "x"], batch_size=5, tail="exact", **grouped(options))

    found, error = until_it_fails(make())
    assert len(found) == 333 // 5
    assert isinstance(error, ChecksumError)
    assert "k0333" in str(error)
    for dropped, samples in (("short", 4), ("repeat", 5)):
        again = partial(make, on_error="skip", dropped=dropped)
        skipping = read(again)
        assert skipping == alone(again)
        assert len(skipping[66]["n"]) == samples
    assert sum(not valid for batch in skipping for valid in batch["__valid__"]) == 1
    assert skipping[66]["__valid__"] == [True, True, True, False, True]


def test_what_is_excluded_is_left_out_of_its_step(numbers: Path) -> None:
    def make() -> Iterator[Any]:
        excluded = [f"k{i:04}" for i in (7, 8, 200)]
        return iter(ss.ShardDataset(numbers, fields=["n"], batch_size=5, tail="exact", exclude_keys=excluded))

    assert read(make) == alone(make)


def test_a_number_that_is_missing_is_missed_in_its_batch(tmp_path: Path) -> None:
    rows = ({"__key__": f"k{i}", "m": i} | ({} if i == 43 else {"n": i}) for i in range(100))
    ss.pack(rows, tmp_path / "out", format="record", fields={"m": "int", "n": "int"}, shuffle=False, workers=0)
    found, error = until_it_fails(ss.ShardDataset(tmp_path / "out", fields=["n"], batch_size=4))
    assert len(found) == 10
    assert isinstance(error, BatchError)
    assert "k43" in str(error)


@pytest.mark.parametrize("shuffle", [False, True])
def test_two_iterations_of_one_data_set_may_take_turns(numbers: Path, shuffle: bool) -> None:
    def make() -> Iterator[dict[str, Any]]:
        dataset = ss.ShardDataset(numbers, fields=["n"], batch_size=7, tail="exact", shuffle=shuffle)
        return chain.from_iterable(zip(dataset, dataset, strict=True))

    assert read(make) == alone(make)
