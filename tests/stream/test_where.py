"""`where=` finds exactly the samples that hold one of the numbers: against Python's exact integers and fractions."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import shardstream as ss
from shardstream.shards.fields import SCALAR_TYPES

from .exact import exactly, near
from .making import write_dataset


@pytest.fixture(scope="module")
def columns(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[ss.ShardDataset, list[Any]]]:
    """By type: a data set with a column ``x`` of it, and what its samples hold, ``None`` for no value."""
    made: dict[str, tuple[ss.ShardDataset, list[Any]]] = {}

    def dataset(kind: str) -> tuple[ss.ShardDataset, list[Any]]:
        if kind not in made:
            # In the first shard some have no value, in the second all have one, in the third the field is not there.
            values = near(kind)
            full = [*values, *(None if i % 2 else value for i, value in enumerate(values))]
            parts = [[None, *full, None], values, [None] * 3]
            number, shards = 0, []
            for part in parts:
                shards.append([])
                for value in part:
                    shards[-1].append({"__key__": f"k{number}", "id": number} | ({} if value is None else {"x": value}))
                    number += 1
            folder = tmp_path_factory.mktemp("where") / kind
            write_dataset(folder, shards, format="record", types={"x": kind})
            made[kind] = ss.ShardDataset(folder), [value for part in parts for value in part]
        return made[kind]

    return dataset


def found(dataset: ss.ShardDataset, asked: Any) -> list[int]:
    ours = ss.ShardDataset(dataset.manifest.url, where={"x": asked}, fields=["id"], batch_size=256)
    return [number for batch in ours for number in batch["id"].tolist()]


_EDGES = st.sampled_from([7, 8, 10, 11, 15, 16, 24, 31, 32, 53, 60, 63, 64, 127, 128]).map(lambda power: 1 << power)
_ASKED = (
    st.builds(lambda edge, sign, step: sign * edge + step, _EDGES, st.sampled_from([1, -1]), st.integers(-2, 2))
    | st.integers(-3, 300)
    | st.booleans()
    | st.builds(lambda edge, sign: float(sign * edge), _EDGES, st.sampled_from([1, -1]))
    | st.floats(allow_nan=False)
    | st.sampled_from([0.1, 0.5, 1 / 3, -0.0, 5.0, 65519.99, 65520.0, 3.4028235677973366e38, 1e-50, math.inf])
)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("kind", SCALAR_TYPES)
@given(data=st.data())
def test_exactly_the_samples_that_hold_a_number_are_found(columns: Any, kind: str, data: st.DataObject) -> None:
    dataset, stored = columns(kind)
    present = [value for value in stored if value is not None and value == value]
    asked = data.draw(st.lists(_ASKED | st.sampled_from(present), max_size=6))
    wanted = [exactly(kind, number) for number in asked]
    if None in wanted:
        with pytest.raises(ss.errors.FieldError, match=r"field x.*\n.*no sample can have it"):
            found(dataset, asked)
        asked = [number for number, exact in zip(asked, wanted, strict=True) if exact is not None]
        wanted = [exact for exact in wanted if exact is not None]
    held = [Fraction(value) if value is not None and math.isfinite(value) else value for value in stored]
    assert found(dataset, asked) == [i for i, value in enumerate(held) if value is not None and value in wanted]


@pytest.mark.one_in(4)
@pytest.mark.parametrize("kind", SCALAR_TYPES)
def test_every_stored_number_finds_itself_and_nothing_else(columns: Any, kind: str) -> None:
    dataset, stored = columns(kind)
    forms: list[Callable[[Any], Any]] = [
        lambda value: value,
        lambda value: [value],
        lambda value: {value},
        lambda value: np.array([value], kind),
        lambda value: np.dtype(kind).type(value),
        lambda value: [np.array(value, kind)],
    ]
    for number, value in enumerate({value for value in stored if value is not None and value == value}):
        expected = [i for i, other in enumerate(stored) if other is not None and other == value]
        assert found(dataset, forms[number % len(forms)](value)) == expected


def test_many_large_ids_find_no_neighbours(tmp_path: Path) -> None:
    base = np.random.default_rng(0).integers(2**62, 2**63, 500).astype(np.uint64) * np.uint64(2)
    ids = np.unique(np.concatenate([base, base + np.uint64(1)])).tolist()
    shard = [{"__key__": f"k{i}", "id": i, "x": number} for i, number in enumerate(ids)]
    dataset = ss.ShardDataset(write_dataset(tmp_path / "d", [shard], types={"x": "uint64"}))
    assert found(dataset, ids[::2][:400]) == list(range(0, 800, 2))
    assert found(dataset, np.array(ids[1::2], np.uint64)) == list(range(1, len(ids), 2))


def test_tensors_name_values_like_arrays(columns: Any) -> None:
    dataset, stored = columns("float32")
    expected = [i for i, value in enumerate(stored) if value in (0.5, float(np.float32(0.1)))]
    for asked in (torch.tensor([0.5, 0.1]), [torch.tensor(0.5), torch.tensor(0.1)], [0.5, 0.1], (0.1, np.float32(0.5))):
        assert found(dataset, asked) == expected
    assert found(dataset, torch.tensor(0.5)) == [i for i, value in enumerate(stored) if value == 0.5]


@pytest.mark.parametrize("asked", [math.nan, [1.0, math.nan], np.array([np.nan]), None, b"1", [b"1"], 1j, [[1]]])
def test_what_equals_nothing_is_refused(columns: Any, asked: Any) -> None:
    for kind in ("float32", "uint8"):
        with pytest.raises(ss.errors.UsageError, match=r"where can compare 'x' with numbers and class names"):
            found(columns(kind)[0], asked)


@pytest.mark.parametrize(
    ("kind", "asked", "message"),
    [
        ("int64", 2**63, r"9223372036854775808 does not fit int64"),
        ("uint8", [3, 300], r"300 does not fit uint8"),
        ("uint64", [-1, 3], r"-1 does not fit uint64"),
        ("int32", 0.5, r"0\.5 is not an integer"),
        ("int32", math.inf, r"inf is not an integer"),
        ("bool", 2, r"expected bool, got 2"),
        ("float32", 2**24 + 1, r"16777217 has no exact float32"),
        ("float16", 1e5, r"100000\.0 does not fit float16"),
    ],
)
def test_what_a_column_cannot_hold_is_an_error_that_says_so(columns: Any, kind: str, asked: Any, message: str) -> None:
    dataset, _ = columns(kind)
    with pytest.raises(ss.errors.FieldError, match=message) as caught:
        found(dataset, asked)
    assert caught.value.place["field"] == "x"
    assert str(caught.value.place["url"]) == dataset.manifest.url


def test_samples_without_a_value_never_match(tmp_path: Path) -> None:
    shards = [
        [{"__key__": f"a{i}", "id": i} | ({"cls": i % 3} if i % 2 else {}) for i in range(10)],
        [{"__key__": f"b{i}", "id": 10 + i} for i in range(3)],
    ]
    folder = write_dataset(tmp_path / "d", shards, types={"cls": "int32"})
    ids = [sample["id"] for sample in ss.ShardDataset(folder, where={"cls": 0}, fields=["id"])]
    assert ids == [3, 9]
