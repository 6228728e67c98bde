"""Types that users declare hold for every source: exactly, or as an error or reject that says what was wrong."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import shardstream as ss
from shardstream.errors import FieldError, FormatError, SourceError, UsageError
from shardstream.pack.sources.declared import fitted, parse_type
from shardstream.shards.fields import SCALAR_TYPES
from shardstream.shards.scalars import to_scalar

from .making import jpeg, packed, photo_list, types

COUNT = 30
FIXED = {"tokens": "array:uint16:4"}


def tokens(number: int) -> list[int]:
    return [number, 0, 65_535, 7]


def row(number: int) -> list[int]:
    return list(range(number % 4))


def sample(number: int) -> dict[str, Any]:
    return {"__key__": f"k{number:03d}", "tokens": tokens(number), "row": row(number)}


def check(out: Path, found: dict[str, Any], *, rows: str = "uint16") -> None:
    assert types(out) == {"tokens": "array:uint16:4", "row": "array"}
    assert len(found) == COUNT
    for number, one in enumerate(found[key] for key in sorted(found)):
        assert (one["tokens"].dtype, one["tokens"].tolist()) == (np.uint16, tokens(number))
        assert (one["row"].dtype, one["row"].tolist()) == (rows, row(number))


# --------------------------------------------------------------------------------------------------------- one by one


@pytest.mark.parametrize(
    ("kind", "value", "what"),
    [
        ("array:uint16:3", [1, 2, 70_000], r"70000 does not fit uint16 \[0, 65535\], at \[2\] .*array:uint16:3"),
        ("array:uint16:3", np.array([1, -2, 3]), r"-2 does not fit uint16 .*, at \[1\] .*array:uint16:3"),
        ("array:uint16:3", [1, math.nan, 3], r"expected uint16, got nan \(float\), at \[1\] .*array:uint16:3"),
        ("array:uint16:3", [1, 2.5, 3], r"expected uint16, got 2.5 \(float\), at \[1\]"),
        ("array:uint16:3", [1, None, 3], r"expected uint16, got None \(NoneType\), at \[1\]"),
        ("array:uint16:3", ["1", "2", "3"], r"expected uint16, got '1' \(str\), at \[0\]"),
        ("array:uint16:3", [1, 2**70, 3], r"1180591620717411303424 does not fit uint16"),
        ("array:uint16:3", [1, 2], r"expected array:uint16:3, got an array of uint16 \[2\]"),
        ("array:uint16:2,2", [[1, 2], [3]], "expected array:uint16:2,2, got rows of several lengths"),
        ("array:uint16:3", np.array([1.0, 2, 3]), r"expected array:uint16:3, got an array of float64 \[3\]"),
        ("array:uint16", torch.tensor([1.5]), r"expected array:uint16, got an array of float32 \[1\]"),
        ("array:float32", np.array([0.1]), r"expected array:float32, got an array of float64 \[1\]"),
        ("array:float32", [1e300], r"1e\+300 does not fit float32, at \[0\]"),
        ("array:float16", [70_000.0], r"70000.0 does not fit float16, at \[0\]"),
        ("array:float32", [2**24 + 1], "the integer 16777217 has no exact float32"),
        ("array:float32", np.array([2**24 + 1]), "the integer 16777217 has no exact float32"),
        ("array:float32", [0.5, 2**24 + 1], r"the integer 16777217 has no exact float32, at \[1\]"),
        ("array:float64", [0.5, 2**53 + 1], "the integer 9007199254740993 has no exact float64"),
        ("array:uint8", [True], r"expected uint8, got True \(bool\)"),
        ("array:bool", [1], r"expected bool, got 1 \(int\)"),
        ("array:uint8", "text", r"expected array:uint8, got 'text' \(str\)"),
        ("array:uint8", {"a": 1}, "expected array:uint8, got {'a': 1}"),
        ("array:uint8", b"no npy", "bytes that are not valid array"),
        ("array:float32", torch.tensor([1.0], dtype=torch.bfloat16), "expected array:float32, got tensor"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, kind: str, value: Any, what: str) -> None:
    with ss.ShardWriter(tmp_path / "out", fields={"x": kind}) as writer:
        with pytest.raises(FieldError, match=what) as caught:
            writer.write({"__key__": "a", "x": value})
        assert (caught.value.place["key"], caught.value.place["field"]) == ("a", "x")
        writer.write({"__key__": "a", "y": 1})


@pytest.mark.parametrize(
    ("kind", "value", "stored"),
    [
        ("array:uint16", [], np.zeros(0, np.uint16)),
        ("array:uint16:2,0", [[], []], np.zeros((2, 0), np.uint16)),
        ("array:uint16:4", np.arange(8)[::2], np.array([0, 2, 4, 6], np.uint16)),
        ("array:int16", np.array([1, -2], ">i4"), np.array([1, -2], np.int16)),
        ("array:uint64", [2**63, 1], np.array([2**63, 1], np.uint64)),
        ("array:uint64", [2**63 + 1, 1], np.array([2**63 + 1, 1], np.uint64)),
        ("array:uint64", [[2**64 - 1], [0]], np.array([[2**64 - 1], [0]], np.uint64)),
        ("array:int64", [np.uint64(3), np.int64(2**62 + 1)], np.array([3, 2**62 + 1])),
        ("array:float32", [0.1, 2**24, 16_777_217.0], np.array([0.1, 2**24, 16_777_217.0], np.float32)),
        ("array:float32", [0.1, 2, math.inf], np.array([0.1, 2, math.inf], np.float32)),
        ("array:float32:2", np.array([0.5, 2], np.float16), np.array([0.5, 2], np.float32)),
        ("array:float64", torch.tensor([3]), np.array([3.0])),
        ("array:bool", ((True, False), (False, True)), np.array([[True, False], [False, True]])),
    ],
)
def test_what_is_held_exactly_is_taken(tmp_path: Path, kind: str, value: Any, stored: Any) -> None:
    with ss.ShardWriter(tmp_path / "out", fields={"x": kind}) as writer:
        writer.write({"__key__": "a", "x": value})
    found = ss.Reader(tmp_path / "out")[0]["x"]
    assert (found.dtype, found.shape, found.tolist()) == (stored.dtype, stored.shape, stored.tolist())
    assert types(tmp_path / "out") == {"x": "array" if kind.count(":") == 1 else kind}


INTEGERS = st.builds(lambda power, by: 2**power + by, st.sampled_from((11, 24, 53, 63, 64)), st.integers(-3, 3))
NUMBERS = INTEGERS | st.integers(-(2**70), 2**70) | st.integers(-300, 300) | st.floats() | st.booleans()


@given(st.lists(NUMBERS, max_size=4), st.sampled_from(SCALAR_TYPES))
def test_lists_are_taken_as_single_numbers_are(values: list[Any], kind: str) -> None:
    mixed = bool in map(type, values) and set(map(type, values)) != {bool}  # of which numpy makes numbers
    element = parse_type(kind)
    try:
        expected = np.array([to_scalar(element, value) for value in values], kind)
    except FieldError:
        expected = None
    try:
        found = fitted(parse_type(f"array:{kind}"), values)
    except FieldError:
        assert expected is None
        return
    assert isinstance(found, np.ndarray)
    assert found.dtype == np.dtype(kind)
    if not mixed:
        assert expected is not None
        assert np.array_equal(found, expected, equal_nan=found.dtype.kind == "f")


@given(st.lists(st.integers(-(2**63), 2**64), min_size=1, max_size=4), st.sampled_from(SCALAR_TYPES), st.data())
def test_arrays_are_taken_where_each_integer_is_held(values: list[int], kind: str, data: st.DataObject) -> None:
    fits = [one for one in SCALAR_TYPES if "int" in one and all(_holds(one, value) for value in values)]
    if not fits:
        return
    array = np.array(values, data.draw(st.sampled_from(fits)))
    try:
        found = fitted(parse_type(f"array:{kind}"), array)
    except FieldError:
        assert not all(_holds(kind, value) for value in values)
    else:
        assert isinstance(found, np.ndarray)
        assert [int(one) for one in found.tolist()] == values


def _holds(kind: str, value: int) -> bool:
    try:
        to_scalar(parse_type(kind), value)
    except FieldError:
        return False
    return True


def test_appended_samples_keep_to_what_was_declared(tmp_path: Path) -> None:
    for start in (0, 2):
        with ss.ShardWriter(tmp_path / "out", fields={"x": "array:uint8"}, append=True) as writer:
            writer.write({"__key__": f"{start}", "x": [start]})
            with pytest.raises(FieldError, match="256 does not fit uint8"):
                writer.write({"__key__": f"{start + 1}", "x": [256]})
    assert [one["x"].dtype for one in ss.Reader(tmp_path / "out")] == [np.uint8] * 2


# ------------------------------------------------------------------------------------------------------------- sources


def listed() -> list[dict[str, Any]]:
    return [sample(number) for number in range(COUNT)]


def generated() -> Iterator[dict[str, Any]]:
    return (sample(number) for number in range(COUNT))


DECLARED = FIXED | {"row": "array:uint16"}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("make", [listed, generated])
@pytest.mark.parametrize("workers", [0, 2])
def test_samples_of_python(tmp_path: Path, make: Callable[[], Any], workers: int) -> None:
    found, rejects = packed(tmp_path / "out", make(), DECLARED, workers=workers)
    check(tmp_path / "out", found)
    assert rejects == []


@pytest.mark.parametrize("make", [listed, generated])
def test_a_sample_of_python_that_does_not_fit_is_a_reject(tmp_path: Path, make: Callable[[], Any]) -> None:
    def wrong() -> Iterator[dict[str, Any]]:
        for number, one in enumerate(make()):
            yield one | ({"tokens": [1, 2, 3, 1 << 16]} if number == 4 else {"row": [0.5]} if number == 9 else {})

    source = wrong() if make is generated else list(wrong())
    found, rejects = packed(tmp_path / "out", source, DECLARED)
    assert len(found) == COUNT - 2
    assert rejects == [
        "5: field 'tokens': 65536 does not fit uint16 [0, 65535], at [3] of what was declared array:uint16:4",
        "10: field 'row': expected uint16, got 0.5 (float), at [0] of what was declared array:uint16",
    ]


def add_tokens(one: dict[str, Any]) -> dict[str, Any]:
    number = int(one["__key__"][-5:])
    return {"jpg": one["jpg"], "tokens": np.array(tokens(number if number != 3 else 1 << 20)), "row": row(number)}


def tokenized(one: dict[str, Any]) -> dict[str, Any]:
    """A field that was text becomes an array."""
    return {"tokens": [len(word) for word in one["tokens"].split()]}


def test_what_a_transform_makes(tmp_path: Path) -> None:
    path = photo_list(tmp_path, 12)
    (tmp_path / "photos").mkdir()
    for number in range(12):
        (tmp_path / "photos" / f"{number:05d}.jpg").write_bytes(jpeg(number))
    for number, source in enumerate((path, tmp_path / "photos", path)):
        out = tmp_path / f"{number}"
        fields = dict(DECLARED) if number < 2 else {"jpg": "0", "cls": "1"} | DECLARED
        found, rejects = packed(out, source, fields, transform=add_tokens)
        assert types(out) == {"jpg": "jpg", "tokens": "array:uint16:4", "row": "array"}
        assert len(found) == 11
        assert {one[name].dtype for one in found.values() for name in DECLARED} == {np.dtype(np.uint16)}
        (reason,) = rejects
        assert "field 'tokens': 1048576 does not fit uint16 [0, 65535], at [0]" in reason


@pytest.mark.parametrize("kind", [list, iter])
def test_a_transform_may_change_what_a_field_is(tmp_path: Path, kind: Callable[[Any], Any]) -> None:
    source = kind([{"__key__": f"{number}", "tokens": "a bb ccc " * (number % 2 + 1)} for number in range(4)])
    found, rejects = packed(tmp_path / "out", source, {"tokens": "array:int32"}, transform=tokenized)
    assert rejects == []
    assert {key: one["tokens"].tolist() for key, one in found.items()} == {
        f"{number}": [1, 2, 3] * (number % 2 + 1) for number in range(4)
    }
    assert {one["tokens"].dtype for one in found.values()} == {np.dtype(np.int32)}


def test_tar_files(tmp_path: Path) -> None:
    with ss.ShardWriter(tmp_path / "tars", fields={"x.npy": "array"}) as writer:
        for number, dtype in enumerate((np.int64, np.uint16, np.float32)):
            writer.write({"__key__": f"{number}", "x.npy": np.arange(3).astype(dtype)})
    found, rejects = packed(tmp_path / "out", f"{tmp_path}/tars/*.tar", {"x.npy": "array:uint16"})
    assert {key: one["x.npy"].dtype for key, one in found.items()} == {"0": np.uint16, "1": np.uint16}
    assert rejects == ["3: field 'x.npy': expected array:uint16, got an array of float32 [3]"]


def test_npy_files_become_arrays_of_one_shape(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in range(3):
        np.save(tmp_path / "in" / f"{number}.npy", np.arange(2 + number // 2))
    with ss.ShardWriter(tmp_path / "tars") as writer:
        for number in range(3):
            writer.write({"__key__": f"{number}", "npy": (tmp_path / "in" / f"{number}.npy").read_bytes()})
    for source in (tmp_path / "in", f"{tmp_path}/tars/*.tar"):
        out = tmp_path / f"out{len(str(source))}"
        found, (reason,) = packed(out, source, {"npy": "array:uint16:2"})
        assert types(out)["npy"] == "array:uint16:2"
        assert [one["npy"].tolist() for one in found.values()] == [[0, 1]] * 2
        assert reason == "3: field 'npy': expected array:uint16:2, got an array of uint16 [3]"


def test_appended_lists_of_another_type_are_refused_before_anything_is_packed(tmp_path: Path) -> None:
    path = table(tmp_path / "list.parquet", v=pa.array([[1, 2], [3]]))
    packed(tmp_path / "out", path, {"v": "v:json"}, key="line")
    for fields in ({"v": "v"}, {"v": "array:uint8"}):
        with pytest.raises(FieldError, match=r"json in the data set, but (array|values)"):
            ss.pack_plan(path, tmp_path / "out", fields=fields, key="line", append=True)


def test_a_type_of_a_field_that_few_samples_have(tmp_path: Path) -> None:
    rows = [{"__key__": f"{n}", "n": n} | ({"few": [n % 9]} if n == 1903 else {}) for n in range(2000)]
    with pytest.raises(UsageError, match=r"none of 1,000 samples looked at has a field 'few'.*\n.*transform="):
        ss.pack_plan(rows, tmp_path / "out", fields={"few": "array:uint8"})
    ss.pack(rows, tmp_path / "out", fields={"few": "array:uint8"}, transform=dict, workers=0)
    assert types(tmp_path / "out") == {"n": "int64", "few": "array"}


def test_a_type_without_a_field_is_an_error(tmp_path: Path) -> None:
    for source in (listed(), generated()):
        with pytest.raises(UsageError, match=r"no sample has a field 'tokns', .* array:uint16:4.*\n.*did you mean"):
            packed(tmp_path / "out", source, {"tokns": "array:uint16:4"})
    with pytest.raises(UsageError, match="no sample has a field 'tokens'"):
        packed(tmp_path / "out", photo_list(tmp_path, 3), FIXED)
    with pytest.raises(UsageError, match="'path' is not a type"):
        packed(tmp_path / "out", tmp_path, {"jpg": "path"})


def test_files_of_a_folder(tmp_path: Path) -> None:
    for number in range(3):
        folder = tmp_path / "in" / f"c{number}"
        folder.mkdir(parents=True)
        (folder / f"{number}.jpg").write_bytes(jpeg(number))
    packed(tmp_path / "out", tmp_path / "in", {"jpg": "bytes", "cls": "int16"})
    assert types(tmp_path / "out") == {"jpg": "bytes", "cls": "int16"}
    with pytest.raises(UsageError, match=r"no sample has a field 'png', .*\n.*there are 'cls', 'jpg'"):
        packed(tmp_path / "other", tmp_path / "in", {"png": "bytes"})


def test_another_type_is_another_plan(tmp_path: Path) -> None:
    def fingerprint(fields: dict[str, str]) -> str:
        return ss.pack_plan(listed(), tmp_path / "out", fields=fields).fingerprint

    assert fingerprint({"row": "array:uint16"}) == fingerprint({"row": "array:uint16"})
    assert fingerprint({"row": "array:uint16"}) != fingerprint({"row": "array:uint32"})


class Feature:
    """What Hugging Face's data sets say of a column."""

    def __init__(self, **known: Any) -> None:
        vars(self).update(known)


def feature(name: str, **known: Any) -> Any:
    return type(name, (Feature,), {})(**known)


class Dataset(list[Any]):
    __module__ = "datasets.arrow_dataset"
    features: dict[str, Any]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", ["Sequence", "List", "LargeList"])
def test_columns_of_hugging_face_are_arrays(tmp_path: Path, name: str) -> None:
    values = feature("Value", dtype="uint16")
    source = Dataset({"tokens": tokens(number), "row": row(number), "n": number} for number in range(COUNT))
    source.features = {
        "tokens": feature(name, feature=values, length=4),
        "row": feature(name, feature=values, length=-1),
        "n": feature("Value", dtype="int64"),
    }
    found, rejects = packed(tmp_path / "out", source, None)
    assert types(tmp_path / "out") == {"tokens": "array:uint16:4", "row": "array", "n": "int64"}
    assert {one["row"].dtype for one in found.values()} == {np.dtype(np.uint16)}
    assert rejects == []
    packed(tmp_path / "other", source, {"row": "json", "tokens": "array:int64:4"})
    assert types(tmp_path / "other") == {"tokens": "array:int64:4", "row": "json", "n": "int64"}
    source.features = {"x": feature("Array2D", shape=(None, 2), dtype="float32")}
    source[:] = [{"x": [[1.5, 2]] * (number + 1)} for number in range(3)]
    found, _ = packed(tmp_path / "matrices", source, None)
    assert sorted(one["x"].shape for one in found.values()) == [(1, 2), (2, 2), (3, 2)]
    assert {one["x"].dtype for one in found.values()} == {np.dtype(np.float32)}


# -------------------------------------------------------------------------------------------------------------- tables


def table(path: Path, **columns: Any) -> Path:
    pa.parquet.write_table(pa.table(columns), path, row_group_size=8)
    return path


COLUMNS = {"tokens": "tokens", "row": "row"}


def test_columns_of_lists_in_tables_are_arrays(tmp_path: Path) -> None:
    numbers = range(COUNT)
    path = table(
        tmp_path / "t.parquet",
        key=[f"k{number:03d}" for number in numbers],
        tokens=pa.array([tokens(n) for n in numbers], pa.list_(pa.uint16(), 4)),
        row=pa.array([row(n) for n in numbers], pa.large_list(pa.uint16())),
    )
    found, rejects = packed(tmp_path / "out", path, COLUMNS, key="key")
    assert types(tmp_path / "out") == {"tokens": "values:uint16", "row": "values:uint16"}  # as in place
    assert rejects == []
    declared = {"tokens": "array:uint16:4", "row": "row:array:int8"}
    found, _ = packed(tmp_path / "declared", path, declared, key="key")
    check(tmp_path / "declared", found, rows="int8")
    packed(tmp_path / "text", path, {"row": "row:json"}, key="key")
    assert types(tmp_path / "text") == {"row": "json"}


def test_lists_of_tables_with_a_transform(tmp_path: Path) -> None:
    path = table(tmp_path / "t.parquet", row=pa.array([[1, 2], [3]], pa.list_(pa.int16())))
    options: dict[str, Any] = {"key": "line", "transform": doubled}
    found, rejects = packed(tmp_path / "out", path, {"row": "row", "twice": "array:int16"}, **options)
    assert ([one["twice"].tolist() for one in found.values()], rejects) in (([[2, 4], [6]], []), ([[6], [2, 4]], []))


def doubled(one: dict[str, Any]) -> dict[str, Any]:
    assert one["row"].dtype == np.int16
    return {"twice": 2 * one["row"]}


def test_lists_of_every_kind_in_tables(tmp_path: Path) -> None:
    kinds = {
        "f": (pa.list_(pa.float32()), [0.5], "float32"),
        "h": (pa.list_(pa.float16()), np.array([0.5], np.float16), "float16"),
        "u": (pa.list_(pa.uint64()), [2**64 - 1], "uint64"),
    }
    columns = {name: pa.array([value], kind) for name, (kind, value, _) in kinds.items()}
    nested = {"s": ["a"], "d": [{"a": 1}], "b": [True], "m": [[0.1, 0.2]]}
    path = table(tmp_path / "t.parquet", **columns, **{name: pa.array([value]) for name, value in nested.items()})
    found, rejects = packed(tmp_path / "out", path, {name: name for name in [*kinds, *nested]}, key="line")
    assert rejects == []
    (one,) = found.values()
    assert {name: one[name].dtype.name for name in kinds} == {name: kind for name, (_, _, kind) in kinds.items()}
    assert {name: one[name] for name in nested} == nested


@pytest.mark.parametrize("kind", [pa.list_, pa.large_list, lambda of: pa.list_(of, 2)])
@pytest.mark.parametrize(
    ("stored", "declared"),
    [
        *(("int16", None), ("uint64", "array:uint64"), ("int32", "array:int8"), ("int16", "array:float32")),
        *(("float32", "array:float16"), ("float16", "array:float32"), ("float64", None)),
    ],
)
def test_lists_of_tables_are_what_lists_of_python_are(
    kind: Any, stored: str, declared: str | None, tmp_path: Path
) -> None:
    values = [[1, 2], [3, 100]]
    array = pa.array([np.array(one, stored) for one in values], kind(pa.from_numpy_dtype(np.dtype(stored))))
    path = table(tmp_path / "t.parquet", row=array, n=[7, 8])
    rule = {"row": f"row:{declared}" if declared else "row", "n": "n:int64"}
    found, rejects = packed(tmp_path / "out", path, rule, key="n")
    assert rejects == []
    wanted = np.dtype((declared or f"array:{stored}").partition(":")[2])
    assert {key: (one["row"].tolist(), one["row"].dtype) for key, one in found.items()} == {
        str(7 + number): (one, wanted) for number, one in enumerate(values)
    }


def test_a_list_with_a_missing_element_is_refused_but_as_json(tmp_path: Path) -> None:
    path = table(tmp_path / "t.parquet", v=pa.array([[1, 2], [1, None], [3]], pa.list_(pa.int16())))
    with pytest.raises(FormatError, match=r"'v' .*an element of a list of integers is missing.*\n.*COLUMN:json"):
        packed(tmp_path / "out", path, {"v": "v"}, key="line")
    found, rejects = packed(tmp_path / "out", path, {"v": "v:json"}, key="line")
    assert rejects == []
    assert sorted(one["v"][0] for one in found.values()) == [1, 1, 3]
    assert [1, None] in [one["v"] for one in found.values()]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("kind", ["csv", "jsonl", "tsv"])
def test_columns_of_lists_in_text(tmp_path: Path, kind: str) -> None:
    rows = [json.dumps(tokens(number)) for number in range(COUNT)]
    rows[3:6] = ["[1, 2, 3]", "[1, 2, 3, 70000]", "[1, 2, NaN, 4]"]
    path = tmp_path / f"list.{kind}"
    if kind == "jsonl":
        path.write_text("".join(f'{{"id": "k{i:03d}", "tokens": {text}}}\n' for i, text in enumerate(rows)))
    elif kind == "csv":
        path.write_text("id,tokens\n" + "".join(f'k{i:03d},"{text}"\n' for i, text in enumerate(rows)))
    else:
        path.write_text("id\ttokens\n" + "".join(f"k{i:03d}\t{text}\n" for i, text in enumerate(rows)))
    for number, fields in enumerate((FIXED, {"tokens": "tokens:array:uint16:4"})):
        found, rejects = packed(tmp_path / f"{number}", path, fields, key="id")
        assert types(tmp_path / f"{number}") == FIXED
        assert {key: one["tokens"].tolist() for key, one in found.items()} == {
            f"k{i:03d}": tokens(i) for i in range(COUNT) if not 3 <= i < 6
        }
        first = 4 if kind == "jsonl" else 5
        assert rejects == [
            f"{first}: column 'tokens': expected array:uint16:4, got an array of uint16 [3]",
            f"{first + 1}: column 'tokens': 70000 does not fit uint16 [0, 65535], at [3] of what was declared "
            "array:uint16:4",
            f"{first + 2}: column 'tokens': expected uint16, got nan (float), at [2] of what was declared "
            "array:uint16:4",
        ]


def test_what_is_neither_a_column_nor_a_type(tmp_path: Path) -> None:
    for name, text in (("list.jsonl", '{"tokens": [1]}\n'), ("list.csv", "tokens,n\n[1],2\n")):
        (tmp_path / name).write_text(text)
        for fields, what in (
            ({"tokens": "array:uint61"}, r"'array:uint61' is not a type, and there is no such column.*\n.*array:DTYPE"),
            ({"x": "array:int8", "y": "m"}, "'m'"),
        ):
            with pytest.raises((UsageError, SourceError), match=what):
                packed(tmp_path / "out", tmp_path / name, fields, key="line")
    with pytest.raises(
        UsageError, match=r"the list has no column 'tokns', to be stored as array:int8.*\n.*did you mean"
    ):
        packed(tmp_path / "out", tmp_path / "list.jsonl", {"tokns": "array:int8"}, key="line")
    with pytest.raises(
        FieldError, match=r"unknown field type 'array:uint61'.*\n.*or array:DTYPE for arrays of any shape"
    ):
        ss.ShardWriter(tmp_path / "out", fields={"x": "array:uint61"})


def test_a_column_goes_before_a_type(tmp_path: Path) -> None:
    path = tmp_path / "list.jsonl"
    path.write_text('{"array": 1, "float": "words", "uint8": 3}\n' * 2)
    fields = {"x": "array:uint8", "txt": "float", "uint8": "uint8"}
    packed(tmp_path / "out", path, fields, key="line")
    assert types(tmp_path / "out") == {"txt": "str", "uint8": "int64", "x": "uint8"}
