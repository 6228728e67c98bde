"""Numbers keep the dtype they are stored in, or one that holds all of them: in every batch, on every road into it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

import shardstream as ss
from shardstream.errors import BatchError, FieldError
from shardstream.shards.fields import SCALAR_TYPES
from shardstream.stream.tensors.numbers import Numbers, common_dtype

from .exact import exactly, near
from .making import write_dataset

Folder = Callable[..., Path]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """A data set with a column ``x`` of this type, made once: of these values, by default those `near` its bounds."""
    made: dict[str, Path] = {}

    def dataset(kind: str, values: list[Any] | None = None) -> Path:
        name = f"{kind}-{values}"
        if name not in made:
            stored = near(kind) if values is None else values
            samples = [
                {"__key__": f"{kind}-{i}"} | ({} if value is None else {"x": value}) for i, value in enumerate(stored)
            ]
            shards = [samples[start : start + 16] for start in range(0, len(samples), 16)]
            path = tmp_path_factory.mktemp("numbers") / "d"
            made[name] = write_dataset(path, shards, types={"x": kind})
        return made[name]

    return dataset


def same(value: Any) -> Any:
    return value


def bits(values: Any) -> list[Any]:
    """Numbers that can be compared exactly, NaN too."""
    return [repr(value) if isinstance(value, float) else value for value in values]


# ------------------------------------------------------------------------------------------------- what is stored stays

ROADS: dict[str, dict[str, Any]] = {
    "stored": {},
    "transform": {"transform": same},
    "callable": {"fields": {"x": same}},
    "callables": {"fields": {"x": [same, same]}, "transform": same},
}


@pytest.mark.one_in(5)
@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize("kind", SCALAR_TYPES)
def test_stored_numbers_keep_dtype_and_value(folder: Folder, kind: str, road: str) -> None:
    expected = torch.from_numpy(np.array(near(kind), kind))
    for batch_size in (1, 7, 100):
        batches = [batch["x"] for batch in ss.ShardDataset(folder(kind), batch_size=batch_size, **ROADS[road])]
        assert {batch.dtype for batch in batches} == {expected.dtype}
        assert bits(torch.cat(batches).tolist()) == bits(expected.tolist())


@pytest.mark.parametrize("kind", SCALAR_TYPES)
def test_stored_arrays_keep_dtype_and_value_through_a_transform(folder: Folder, kind: str) -> None:
    rows = np.array(near(kind), kind)
    rows = rows[: len(rows) // 2 * 2].reshape(-1, 2)
    path = folder(f"array:{kind}:2", list(rows))
    for road in ROADS.values():
        batches = [batch["x"] for batch in ss.ShardDataset(path, batch_size=5, **road)]
        assert np.array_equal(torch.cat(batches).numpy().view(np.uint8), rows.view(np.uint8))


def test_rows_of_varying_length_keep_their_dtype_through_a_transform(tmp_path: Path) -> None:
    shard = [{"__key__": f"k{n}", "x": np.full(n % 3, 2**63 + n, np.uint64)} for n in range(6)]
    dataset = ss.ShardDataset(write_dataset(tmp_path / "d", [shard]), batch_size=1, transform=same)
    assert [batch["x"].dtype for batch in dataset] == [torch.uint64] * 6


# -------------------------------------------------------------------------------------- what transforms make of numbers


@pytest.mark.parametrize("kind", SCALAR_TYPES)
@given(data=st.data())
def test_what_python_returns_is_held_exactly_or_refused(kind: str, data: st.DataObject) -> None:
    edges = st.sampled_from([value for value in near(kind) if value == value]) | st.integers(-300, 300)
    wide = st.sampled_from([edge + step for edge in (-(2**63), 2**63, 2**64, 2**24, 2**53) for step in (-1, 0, 1)])
    one_type = data.draw(st.sampled_from([int, float]))
    values = data.draw(st.lists((edges | wide).filter(math.isfinite).map(one_type), min_size=1, max_size=6))
    dtype = np.dtype(kind)
    if one_type is float and dtype.kind != "f":
        dtype = np.dtype(np.float64)
    elif dtype.kind == "b":
        dtype = np.dtype(np.int64)
    held = [exactly(dtype.name, value) for value in values]
    numbers = Numbers({"x": np.dtype(kind)})
    if None in held:
        with pytest.raises(BatchError, match=r"does not fit|has no exact") as caught:
            numbers.slab("x", values, lambda slot: {"key": f"k{slot}"})
        assert caught.value.place == {"key": f"k{held.index(None)}", "field": "x"}
        return
    slab = numbers.slab("x", values, None)
    assert slab.numpy().dtype == dtype
    assert [Fraction(value) for value in slab.tolist()] == held


@given(value=st.integers(-(2**65), 2**65))
@example(2**63 - 1)
@example(2**63)
@example(-(2**63))
@example(-(2**63) - 1)
def test_new_fields_of_integers_are_int64_or_an_error(value: int) -> None:
    if -(2**63) <= value < 2**63:
        slab = Numbers({}).slab("new", [value, 0], None)
        assert (slab.dtype, slab.tolist()) == (torch.int64, [value, 0])
        return
    with pytest.raises(BatchError, match=r"does not fit int64 .*\n.*" + (r"np\.uint64" if value > 0 else "numpy")):
        Numbers({}).slab("new", [0, value], None)


@pytest.mark.parametrize("batch_size", [1, 4])
def test_what_a_column_cannot_hold_is_an_error_that_says_where(folder: Folder, batch_size: int) -> None:
    def ignored(sample: dict[str, Any]) -> dict[str, Any]:
        return sample | {"x": -100} if sample["x"] == 2 else sample

    path = folder("uint8", [5, 3, 0, 1, 2, 7])
    with pytest.raises(BatchError, match=r"-100 does not fit uint8 \[0, 255\].*\n.*np\.int64") as caught:
        list(ss.ShardDataset(path, batch_size=batch_size, transform=ignored))
    assert caught.value.place == {"shard": "shard-000000.tar", "sample": 4, "key": "uint8-4", "field": "x"}
    declared = ss.ShardDataset(path, fields={"x": np.int64}, batch_size=batch_size, transform=ignored)
    batches = [batch["x"] for batch in declared]
    assert {batch.dtype for batch in batches} == {torch.int64}
    assert torch.cat(batches).tolist() == [5, 3, 0, 1, -100, 7]


def test_the_error_of_a_callable_says_where_and_crosses_processes(folder: Folder) -> None:
    dataset = ss.ShardDataset(folder("uint8", [1, 2, 3]), fields={"x": lambda x: int(x) * 100}, batch_size=3)
    with pytest.raises(BatchError, match="300 does not fit uint8") as caught:
        list(ss.Loader(dataset, num_workers=1))
    assert caught.value.place == {"shard": "shard-000000.tar", "sample": 2, "key": "uint8-2", "field": "x"}


def test_the_place_is_of_the_sample_that_fills_a_dropped_slot(folder: Folder) -> None:
    def transform(sample: dict[str, Any]) -> dict[str, Any] | None:
        return None if sample["x"] == 1 else {"x": 300}

    with pytest.raises(BatchError, match="300 does not fit") as caught:
        ss.ShardDataset(folder("uint8", [1, 2, 3]), batch_size=3, transform=transform).peek()
    assert caught.value.place["key"] == "uint8-1"


@pytest.mark.parametrize(
    ("values", "types"),
    [
        ([0, 0.5], "float, int"),
        ([True, 2], "bool, int"),
        ([np.float32(1), 0.5], "float, float32"),
        ([np.int64(1), np.int32(1)], "int32, int64"),
        ([np.zeros(2), 0], "int, ndarray"),
        ([0, np.zeros(2)], "int, ndarray"),
        ([torch.zeros(()), 0], "Tensor, int"),
        ([[1], torch.zeros(1)], "Tensor, list"),
    ],
)
def test_types_that_differ_in_a_batch_are_refused(folder: Folder, values: list[Any], types: str) -> None:
    dataset = ss.ShardDataset(folder("bool", [False, True]), batch_size=2, transform=lambda s: {"y": values[s["x"]]})
    with pytest.raises(BatchError, match=rf"different types cannot become one batch \({types}\)") as caught:
        dataset.peek()
    assert caught.value.place == {"shard": "shard-000000.tar", "sample": 1, "key": "bool-1", "field": "y"}


@pytest.mark.parametrize("make", [np.array, torch.tensor])
def test_arrays_of_one_output_have_one_dtype(folder: Folder, make: Callable[[Any], Any]) -> None:
    for batch_size, message in ((2, "different shapes or dtypes"), (1, "were int64 in an earlier batch and are float")):
        dataset = ss.ShardDataset(
            folder("bool", [False, True]),
            batch_size=batch_size,
            transform=lambda s: {"y": make([0.5, 1.0] if s["x"] else [1, 2])},
        )
        with pytest.raises(BatchError, match=message) as caught:
            list(dataset)
        assert caught.value.place == {"shard": "shard-000000.tar", "sample": 1, "key": "bool-1", "field": "y"}


def test_arrays_that_are_stored_each_with_its_own_dtype_come_with_it(tmp_path: Path) -> None:
    for kind, make in (("array", np.asarray), ("tensor", torch.tensor)):
        shard = [{"__key__": f"k{n}", "x": make([n if n % 2 else n / 2])} for n in range(4)]
        dataset = ss.ShardDataset(write_dataset(tmp_path / kind, [shard], types={"x": kind}), batch_size=1)
        assert [batch["x"][0].is_floating_point() for batch in dataset] == [True, False, True, False]


def test_one_output_has_one_dtype_in_all_batches_of_an_iteration(folder: Folder) -> None:
    path = folder("uint8", [0, 1, 2, 3])
    dataset = ss.ShardDataset(path, batch_size=2, transform=lambda s: {"w": 0 if s["x"] < 2 else 0.5})
    with pytest.raises(BatchError, match=r"were int64 in an earlier batch and are float64 now") as caught:
        list(dataset)
    assert caught.value.place["key"] == "uint8-2"
    kinds = iter([int, float])

    def other_each_epoch(sample: dict[str, Any]) -> dict[str, Any]:
        if sample["x"] == 0:
            other_each_epoch.kind = next(kinds)  # type: ignore[attr-defined]
        return {"w": other_each_epoch.kind(sample["x"])}  # type: ignore[attr-defined]

    dataset = ss.ShardDataset(path, batch_size=2, transform=other_each_epoch)
    assert [[batch["w"].dtype for batch in dataset] for _ in range(2)] == [[torch.int64] * 2, [torch.float64] * 2]


@pytest.mark.parametrize("made", [np.float16(0.1), np.float64(0.1), np.uint64(2**63 + 1), np.int8(-3), np.bool_(True)])
@pytest.mark.parametrize("kind", ["int32", "float32", "json"])
def test_numbers_of_numpy_keep_their_own_dtype(folder: Folder, kind: str, made: Any) -> None:
    path = folder(kind, [1, 2, 3])
    for road in ({"fields": {"x": lambda _: made}}, {"transform": lambda s: s | {"x": made}}):
        batch = ss.ShardDataset(path, batch_size=3, **road).peek()["x"]  # type: ignore[arg-type]
        assert batch.numpy().dtype == made.dtype
        assert batch.tolist() == [made.item()] * 3
        sample = ss.ShardDataset(path, **road).peek()  # type: ignore[arg-type]
        assert type(sample["x"]) is type(made)


@pytest.mark.parametrize("road", [{}, {"transform": same}])
@pytest.mark.parametrize(
    "spec",
    [np.int8, [np.int8], [None, np.int8], [same, np.int8]],
    ids=["type", "in a list", "after nothing", "after a callable"],
)
def test_a_numpy_type_declares_the_dtype(folder: Folder, spec: Any, road: dict[str, Any]) -> None:
    batch = ss.ShardDataset(folder("uint64", [3, 127]), fields={"x": spec}, batch_size=2, **road).peek()["x"]
    assert (batch.dtype, batch.tolist()) == (torch.int8, [3, 127])
    for batch_size in (None, 3):
        dataset = ss.ShardDataset(
            folder("uint64", [3, 2**63, 300]),
            fields={"x": spec},
            batch_size=batch_size,
            on_error="skip",
            **road,
        )
        with pytest.raises(FieldError, match="9223372036854775808 does not fit int8") as caught:
            list(dataset)
        assert caught.value.place == {"shard": "shard-000000.tar", "sample": 1, "key": "uint64-1", "field": "x"}
    rows = folder("array:int64:2", [np.array([1, 2]), np.array([3, 128])])
    dataset = ss.ShardDataset(rows, fields={"x": spec}, batch_size=1, **road)
    assert dataset.peek()["x"].dtype == torch.int8
    with pytest.raises(FieldError, match="128 does not fit int8") as caught:
        dataset.replace(batch_size=2).peek()
    assert caught.value.place["sample"] == 1
    assert ss.Reader(folder("float64", [0.1]), fields={"x": [np.float32]})[0]["x"] == np.float32(0.1)


def test_a_numpy_type_makes_numbers_of_json_one_type(folder: Folder) -> None:
    path = folder("json", [1, 0.5])
    with pytest.raises(BatchError, match=r"different types .*\(float, int\).*\n.*in `fields`"):
        ss.ShardDataset(path, batch_size=2).peek()
    batch = ss.ShardDataset(path, fields={"x": np.float32}, batch_size=2).peek()["x"]
    assert (batch.dtype, batch.tolist()) == (torch.float32, [1.0, 0.5])


def test_a_column_may_become_another_kind_of_number(folder: Folder) -> None:
    path = folder("uint8", [1, 2, 3])
    made = [
        (lambda x: x / 2, torch.float64, [0.5, 1.0, 1.5]),
        (lambda x: x > 1, torch.bool, [False, True, True]),
        (lambda x: "ab"[x % 2], list, ["b", "a", "b"]),
    ]
    for change, kind, expected in made:
        batch = ss.ShardDataset(path, batch_size=3, transform=lambda s, c=change: {"x": c(s["x"])}).peek()["x"]
        assert list(batch) == expected
        assert (batch.dtype if isinstance(batch, torch.Tensor) else type(batch)) is kind


@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize("kind", ["uint8", "array:float32:2"])
def test_a_sample_without_a_number_is_named_on_every_road(folder: Folder, kind: str, road: str) -> None:
    value = 1 if kind == "uint8" else np.ones(2, np.float32)
    path = folder(kind, [value, None, value, None])
    for batch_size in (1, 4):
        with pytest.raises(BatchError, match=r"samples of a batch have no 'x'.*\n.*fill it in a transform") as caught:
            list(ss.ShardDataset(path, batch_size=batch_size, **ROADS[road]))
        assert caught.value.place["key"] == f"{kind}-1"


# ------------------------------------------------------------------------------------------------------------- mixtures


def mixture(one: Path, other: Path, *, by: Any = "samples", batch_size: int = 3, **recipe: Any) -> ss.Mixture:
    """Of both, the second with this recipe, so that some batches have samples of one and some of both."""
    sources = {"one": (ss.ShardDataset(one), 1), "other": (ss.ShardDataset(other, **recipe), 1)}
    return ss.Mixture(
        sources, by=by, batch_size=batch_size, order=ss.OrderOptions(lanes=8, chunk=batch_size), epoch=240
    )


def holds(kind: str, value: Any) -> bool:
    if isinstance(value, float) and not math.isfinite(value):
        return kind in ("float16", "float32", "float64")
    held = exactly(kind, value)
    return held is not None and held == Fraction(value)


@pytest.mark.parametrize(("one", "other"), [*itertools.combinations_with_replacement(SCALAR_TYPES, 2)])
def test_the_common_dtype_is_the_narrowest_that_holds_both(one: str, other: str) -> None:
    both = [*near(one), *near(other)]
    fitting = [kind for kind in SCALAR_TYPES if all(holds(kind, value) for value in both)]
    found = common_dtype([np.dtype(one), np.dtype(other)])
    assert (None if found is None else found.name) == min(
        fitting, key=lambda kind: (np.dtype(kind).itemsize, "float" in kind), default=None
    )
    assert found == common_dtype([np.dtype(other), np.dtype(one)])


@pytest.mark.one_in(10)
@pytest.mark.parametrize(("one", "other"), [*itertools.combinations(SCALAR_TYPES, 2)])
def test_unlike_sources_come_in_a_common_dtype_or_are_refused(folder: Folder, one: str, other: str) -> None:
    common = common_dtype([np.dtype(one), np.dtype(other)])
    for first, second in ((one, other), (other, one)):
        if common is None:
            with pytest.raises(
                FieldError, match=rf"no dtype holds .*'x' exactly: {first} in 'one', {second} in 'other'"
            ):
                mixture(folder(first), folder(second))
            continue
        seen: dict[int, set[Any]] = {0: set(), 1: set()}
        for batch in mixture(folder(first), folder(second)):
            assert batch["x"].numpy().dtype == common
            for source, value in zip(batch["__source__"].tolist(), batch["x"].tolist(), strict=True):
                seen[source].add(repr(float(value)) if isinstance(value, float) else value)
        for source, kind in enumerate((first, second)):
            stored = np.array(near(kind), kind).astype(common).tolist()
            assert seen[source] <= {repr(value) if isinstance(value, float) else value for value in stored}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("recipe", [{"transform": same}, {"fields": {"x": same}}, {}])
def test_every_batch_of_a_mixture_has_the_dtype(folder: Folder, recipe: dict[str, Any]) -> None:
    ids = [5, 2**63 + 1, 2**63 + 2, 2**60 + 1]
    for batch_size in (1, 3):  # of one source, and of both
        for batch in mixture(folder("uint64", ids), folder("uint8", [7, 9]), batch_size=batch_size, **recipe):
            assert batch["x"].dtype == torch.uint64
            assert len(set(batch["__source__"].tolist())) == min(batch_size, 2)
            assert set(batch["x"].tolist()) <= {*ids, 7, 9}


def test_single_samples_of_a_mixture_hold_what_is_stored(folder: Folder) -> None:
    for kinds in (("float32", "float64"), ("float64", "float32"), ("int8", "int64"), ("int64", "int8")):
        one, other = (folder(kind) for kind in kinds)
        sources = {"one": (ss.ShardDataset(one), 1), "other": (ss.ShardDataset(other), 1)}
        for sample in ss.Mixture(sources, epoch=200):
            assert repr(sample["x"]) in {repr(value) for value in near(kinds[sample["__source__"]])}


def test_arrays_of_a_mixture_come_in_a_common_dtype(folder: Folder) -> None:
    one = folder("array:float32:2", [np.array([0.1, 2], np.float32)])
    other = folder("array:int32:2", [np.array([2**31 - 1, -5], np.int32)])
    rows = [[float(np.float32(0.1)), 2.0], [2.0**31 - 1, -5.0]]
    for first, second, expected in ((one, other, rows), (other, one, rows[::-1])):
        for recipe in ({}, {"transform": same}):
            for batch in mixture(first, second, **recipe):
                assert batch["x"].dtype == torch.float64
                for source, row in zip(batch["__source__"].tolist(), batch["x"].tolist(), strict=True):
                    assert row == expected[source]
    three = folder("array:float32:3", [np.ones(3, np.float32)])
    with pytest.raises(FieldError, match=r"float32 \[2\] in 'one' and float32 \[3\] in 'other'"):
        mixture(one, three)
    with pytest.raises(FieldError, match=r"float32 \[2\] in 'one' and float64 in 'other'"):
        mixture(one, folder("float64", [1.0]))
    with pytest.raises(FieldError, match=r"float32 \[2\] in 'one' and json in 'other'"):
        mixture(one, folder("json", [[1]]))


def test_rows_of_a_mixture_are_rows_in_every_batch(tmp_path: Path) -> None:
    sources = {}
    for number, kind in enumerate(("int64", "int8")):  # so that batches of both are put together from samples
        shard = [{"__key__": f"k{n}", "x": n, "rows": np.full(n % 3, n, np.uint64)} for n in range(6)]
        path = write_dataset(tmp_path / kind, [shard], types={"x": kind})
        sources[kind] = (ss.ShardDataset(path), 1 + number)
    for batch in ss.Mixture(sources, batch_size=3, epoch=90):
        assert isinstance(batch["rows"], ss.Ragged)
        assert batch["rows"].values.dtype == torch.uint64
        assert [row.tolist() for row in batch["rows"]] == [[n] * (n % 3) for n in batch["x"].tolist()]


def test_images_of_different_sizes_are_refused_when_the_mixture_is_made(tmp_path: Path) -> None:
    path = write_dataset(tmp_path / "d", [[{"__key__": "k", "jpg": b"never decoded"}]])
    one, other = (ss.ShardDataset(path, fields={"jpg": ss.decode.RandomResizedCrop(size)}) for size in (24, 32))
    with pytest.raises(FieldError, match=r"uint8 \[24, 24, 3\] in 'a' and uint8 \[32, 32, 3\] in 'b'"):
        ss.Mixture({"a": (one, 1), "b": (other, 1)})


def test_a_source_can_be_converted_before_it_is_mixed(folder: Folder) -> None:
    ids, scores = folder("int64", [2**40, 3]), folder("float32", [0.5])
    with pytest.raises(FieldError, match=r"fields.*np\.float32"):
        mixture(scores, ids)
    for batch in mixture(scores, ids, fields={"x": np.float32}):
        assert batch["x"].dtype == torch.float32
    with pytest.raises(FieldError, match="no dtype holds all values"):
        mixture(scores, ids, transform=same)
    # Where every source has a transform, that may turn both into one type, and is asked.
    sources = {
        name: (ss.ShardDataset(path, transform=lambda s: {"x": float(s["x"])}), 1)
        for name, path in (("ids", ids), ("scores", scores))
    }
    batches = [batch["x"] for batch in ss.Mixture(sources, batch_size=3, epoch=60)]
    assert {batch.dtype for batch in batches} == {torch.float64}
    assert set(torch.cat(batches).tolist()) == {2.0**40, 3.0, 0.5}


def test_by_batches_every_source_keeps_its_own(folder: Folder) -> None:
    for batch in mixture(folder("int64", [2**40, 3]), folder("float32", [0.5]), by="batches"):
        assert batch["x"].dtype == (torch.float32 if batch["__source__"][0] else torch.int64)


def test_a_list_of_data_sets_of_different_dtypes_is_refused_when_it_is_made(folder: Folder) -> None:
    with pytest.raises(FieldError, match=r"the field is int64 in .*, but uint8 in"):
        ss.ShardDataset([folder("int64", [1]), folder("uint8", [1])])
