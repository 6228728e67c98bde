"""Values and types of tables are those of the reader in place, for each way of making keys and choosing fields."""

from __future__ import annotations

import datetime as dt
import decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import shardstream as ss
from shardstream.errors import FormatError, UsageError

from .test_tables import write

ROWS = 5
UTC = dt.UTC
NOON = dt.datetime(2026, 1, 2, 12, 0, 0, 123456)
COLUMNS: dict[str, tuple[Any, pa.DataType | None]] = {
    **{f"{name}": ([1, 2, None, 4, 5], getattr(pa, name)()) for name in ("int8", "uint16", "int64", "float32")},
    "uint64": ([2**64 - 1, 0, 1, 2, 2**63], pa.uint64()),
    "exact": ([2**53 + 1, None, -(2**62) - 1, 0, 1], pa.int64()),
    "float16": (np.array([0.5, 1, 2, 3, 4], np.float16), pa.float16()),
    "float64": ([0.1, None, float("inf"), -0.0, float("nan")], pa.float64()),
    "bool": ([True, None, None, True, False], pa.bool_()),
    "text": (["é", None, "", "a\tb", "01.jpgs"], pa.string()),
    "large_text": (["é", None, "", "a\nb", "c"], pa.large_string()),
    "enum": (pa.array(["a", "b", "a", None, "b"]).dictionary_encode(), None),
    "blob": ([b"\x00\xff", b"", None, b"a", b"b"], pa.binary()),
    "fixed_blob": ([b"ab", b"cd", None, b"ef", b"gh"], pa.binary(2)),
    "stamp": ([NOON, None, NOON, NOON, NOON], pa.timestamp("us")),
    "zone": ([NOON.replace(tzinfo=UTC)] * ROWS, pa.timestamp("ms", tz="UTC")),
    "nanos": ([10**18 + 1, None, 1, 2, 3], pa.timestamp("ns")),
    "day": ([dt.date(2026, 1, 2)] * ROWS, pa.date32()),
    "clock": ([dt.time(12, 0, 1)] * ROWS, pa.time64("us")),
    "money": (
        [decimal.Decimal("1.50"), None, decimal.Decimal("-2.25"), *[decimal.Decimal(0)] * 2],
        pa.decimal128(8, 2),
    ),
    "ints": ([[1, 2], [], None, [3], [4, 5, 6]], pa.list_(pa.int32())),
    "floats": ([[0.5]] * ROWS, pa.large_list(pa.float32())),
    "pairs": ([[1, 2]] * ROWS, pa.list_(pa.int16(), 2)),
    "flags": ([[True, None]] * ROWS, pa.list_(pa.bool_())),
    "words": ([["a", None], [], None, ["b"], ["c"]], pa.list_(pa.string())),
    "blobs": ([[b"a", None]] * ROWS, pa.list_(pa.binary())),
    "days": ([[dt.date(2026, 1, 2), None]] * ROWS, pa.list_(pa.date32())),
    "nested": ([[[1, 2], [3]], [], None, [[4]], [[]]], pa.list_(pa.list_(pa.int64()))),
    "map": ([[("k", 1), ("l", None)], [], None, [("m", 2)], []], pa.map_(pa.string(), pa.int64())),
    "obj": (
        [
            {"a": 1, "b": "x", "c": {"d": [1]}},
            {"a": 2, "b": None, "c": None},
            *[{"a": 3, "b": "y", "c": {"d": []}}] * 3,
        ],
        None,
    ),
    "objs": ([[{"a": 1}, None]] * ROWS, pa.list_(pa.struct({"a": pa.int64()}))),
    "odd name": (["a", "b", "c", "d", "e"], pa.string()),
    "nothing": ([None] * ROWS, pa.string()),
    "nothing_dated": ([None] * ROWS, pa.date32()),
}
NAMED = [name for name in COLUMNS if not name.startswith("nothing")]


def plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return str(value.dtype), plain(value.tolist())
    if isinstance(value, list):
        return [plain(one) for one in value]
    return "NaN" if value != value else value


def told(url: Path) -> tuple[dict[str, str], list[dict[str, Any]]]:
    reader = ss.Reader(url)
    types = {name: str(kind) for name, kind in reader.manifest.fields.items()}
    samples = [{name: plain(value) for name, value in sample.items() if name != "__key__"} for sample in reader]
    return types, samples


def make(path: Path) -> Path:
    columns = {name: pa.array(values, kind) if kind is not None else values for name, (values, kind) in COLUMNS.items()}
    return write(pa.table({"id": [f"k{row}" for row in range(ROWS)], **columns}), path)


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_values_and_types_are_those_in_place(tmp_path: Path, kind: str) -> None:
    types, samples = told(make(tmp_path / f"rows.{kind}"))
    kept = ({name: one for name, one in types.items() if name != "id"}, [{**one, "id": None} for one in samples])
    for number, key in enumerate(("path", "line", "auto", "stem", "id")):
        for fields in (None, {name: name for name in NAMED}):
            out = tmp_path / f"{number}-{fields is None}"
            ss.pack(
                tmp_path / f"rows.{kind}", out, fields=fields and renamed(fields), key=key, workers=0, shuffle=False
            )
            found_types, found = told(out)
            if fields is None:
                assert (found_types, found) == (types, samples), key
            else:
                assert (found_types, [{**one, "id": None} for one in found]) == kept, key


def renamed(fields: dict[str, str]) -> dict[str, str]:
    return {name.replace(" ", "_"): column for name, column in fields.items()}


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_values_beside_listed_files_are_those_in_place(tmp_path: Path, kind: str) -> None:
    """A list has a sample for each row that has all of its fields."""
    types, samples = told(make(tmp_path / f"rows.{kind}"))
    table = pa.table({"path": [f"{row}.txt" for row in range(ROWS)]})
    for name, (values, arrow) in COLUMNS.items():
        table = table.append_column(name, pa.array(values, arrow) if arrow is not None or name == "obj" else values)
    write(table, tmp_path / f"list.{kind}")
    for row in range(ROWS):
        (tmp_path / f"{row}.txt").write_text(f"text {row}")
    fields = {"txt": "path:file"} | renamed({name: name for name in NAMED})
    ss.pack(tmp_path / f"list.{kind}", tmp_path / "out", fields=fields, workers=0, shuffle=False)
    found_types, found = told(tmp_path / "out")
    assert (found_types.pop("txt"), {one.pop("txt") for one in found}) == ("str", {"text 0", "text 4"})
    assert found_types == {name: one for name, one in types.items() if name != "id"}
    assert found == [{name: one for name, one in samples[row].items() if name != "id"} for row in (0, 4)]


@pytest.mark.parametrize("key", ["path", "line"])
def test_a_struct_that_is_named(tmp_path: Path, key: str) -> None:
    path = make(tmp_path / "rows.parquet")

    def packed(fields: dict[str, str]) -> dict[str, Any]:
        ss.pack(path, tmp_path / "out", fields=fields, key=key, workers=0, shuffle=False, overwrite=True)
        return {name: plain(value) for name, value in ss.Reader(tmp_path / "out")[0].items() if name != "__key__"}

    assert packed({"obj": "obj"}) == {"obj.a": 1, "obj.b": "x", "obj.c.d": ("int64", [1])}
    assert packed({"x": "obj", "n": "int8"}) == {"x.a": 1, "x.b": "x", "x.c.d": ("int64", [1]), "n": 1}
    assert packed({"d": "obj.c"}) == {"d.d": ("int64", [1])}
    for fields in ({"obj": "obj:json"}, {"obj": "json"}):
        assert packed(fields) == {"obj": {"a": 1, "b": "x", "c": {"d": [1]}}}
    assert packed({"obj": "obj:json", "a": "obj.a"}) == {"obj": {"a": 1, "b": "x", "c": {"d": [1]}}, "a": 1}
    with pytest.raises(UsageError, match=r"column 'obj' is a struct, .* stored as int64.*\n.*'obj.a', 'obj.b'"):
        packed({"obj": "obj:int64"})
    with pytest.raises(UsageError, match=r"columns 'obj.a' and 'int8' would both be the field 'x.a'"):
        packed({"x": "obj", "x.a": "int8"})


@pytest.mark.parametrize("key", ["path", "line"])
def test_text_that_is_declared_to_be_something_else(tmp_path: Path, key: str) -> None:
    """The bytes of a text are never those of numbers."""
    path = tmp_path / "rows.parquet"
    columns = {"v": ["[1, 2]", "[3, 4]"], "n": ["7", "8"], "day": [dt.date(2026, 1, 2)] * 2, "m": ["5", "6"]}
    pyarrow.parquet.write_table(pa.table(columns), path)
    fields = {"v": "v:values:uint16", "a": "v:array:int8:2", "n": "n:int64", "day": "day:str", "x": "*:float32"}
    ss.pack(path, tmp_path / "out", fields=fields, key=key, workers=0, shuffle=False)
    found = {name: plain(value) for name, value in ss.Reader(tmp_path / "out")[0].items() if name != "__key__"}
    assert found == {"v": ("uint16", [1, 2]), "a": ("int8", [1, 2]), "n": 7, "day": "2026-01-02", "x": ("float32", [5])}


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_tensors_of_arrow_keep_their_shape(tmp_path: Path, kind: str) -> None:
    numbers = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
    table = pa.table({"x": pa.FixedShapeTensorArray.from_numpy_ndarray(numbers)})
    path = write(table, tmp_path / f"rows.{kind}")
    for url in (path, tmp_path / "out"):
        if url != path:
            ss.pack(path, url, workers=0, shuffle=False)
        reader = ss.Reader(url)
        assert str(reader.manifest.fields["x"]) == "array:float32:2,3"
        assert np.array_equal([sample["x"] for sample in reader], numbers)
    permuted = pa.FixedShapeTensorArray.from_numpy_ndarray(numbers.transpose(0, 2, 1))
    with pytest.raises(FormatError, match=r"column 'x'.*permuted axes"):
        ss.Reader(write(pa.table({"x": permuted}), tmp_path / f"permuted.{kind}"))


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_infinite_numbers_in_json_are_refused(tmp_path: Path, kind: str) -> None:
    table = pa.table({"x": [[[float("inf")]], None], "n": [1, 2]})
    path = write(table, tmp_path / f"rows.{kind}")
    with pytest.raises(FormatError, match=r"column 'x'.*an infinite number is within lists"):
        ss.Reader(path)
    ss.pack(path, tmp_path / "out", fields={"n": "n"}, workers=0)
    assert len(ss.Reader(tmp_path / "out")) == 2
