"""Which fields the columns of a table become."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from shardstream.formats.arrow.columns import TableField, classes_of, features_of, fields_of
from shardstream.formats.arrow.schema import of_pyarrow

FILE = pa.struct({"bytes": pa.binary(), "path": pa.string()})


def fields(columns: dict[str, pa.DataType], features: Any = None, chosen: tuple[str, ...] = ()) -> list[TableField]:
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    return [*fields_of(of_pyarrow(pa.schema(columns)), features_of(metadata), chosen=chosen)]


@pytest.mark.parametrize(
    ("column", "feature", "expected"),
    [
        (pa.int16(), None, ("number", "int16", ())),
        (pa.float16(), None, ("number", "float16", ())),
        (pa.bool_(), None, ("number", "bool", ())),
        (pa.large_string(), None, ("text", "str", ())),
        (pa.string_view(), None, ("text", "str", ())),
        (pa.string(), {"_type": "Json"}, ("text", "json", ())),
        *([(pa.json_(), None, ("text", "json", ()))] if hasattr(pa, "json_") else []),  # since 19
        (pa.binary(3), None, ("bytes", "bytes", ())),
        (pa.binary_view(), None, ("bytes", "bytes", ())),
        (pa.dictionary(pa.int8(), pa.string()), None, ("text", "str", ())),
        (pa.dictionary(pa.int8(), pa.int32()), None, ("number", "int32", ())),
        (pa.list_(pa.uint16()), None, ("values", "values:uint16", (-1,))),
        (pa.list_(pa.float64(), 3), None, ("fixed", "array:float64:3", (3,))),
        (pa.list_(pa.list_(pa.float64(), 3)), None, ("array", "array", (-1, 3))),
        (pa.list_(pa.list_(pa.int8())), {"shape": [2, 3]}, ("fixed", "array:int8:2,3", (2, 3))),
        (pa.list_(pa.list_(pa.int8())), {"shape": [None, 3]}, ("array", "array", (-1, 3))),
        (pa.list_(pa.list_(pa.int8())), None, ("converted", "json", ())),
        (pa.list_(pa.list_(pa.int8())), {"shape": ["a", -1]}, ("converted", "json", ())),
        (pa.list_view(pa.string()), None, ("converted", "json", ())),
        (pa.list_(FILE), None, ("converted", "msgpack", ())),
        (pa.map_(pa.string(), pa.int8()), None, ("converted", "json", ())),
        (pa.timestamp("us", "UTC"), None, ("converted", "json", ())),
        (pa.decimal128(9, 2), None, ("converted", "json", ())),
        (pa.null(), None, ("nothing", "bytes", ())),
        (pa.month_day_nano_interval(), None, ("refused", "bytes", ())),
        (pa.run_end_encoded(pa.int32(), pa.string()), None, ("refused", "bytes", ())),
        (pa.list_(pa.float32(), 1 << 30), None, ("refused", "bytes", ())),
        (pa.list_(pa.float32(), 0), None, ("converted", "json", ())),
        (pa.list_(pa.list_view(pa.int8())), {"shape": [2, 3]}, ("converted", "json", ())),
    ],
)
def test_types(column: pa.DataType, feature: Any, expected: tuple[Any, ...]) -> None:
    (found,) = fields({"x": column}, {"x": feature})
    assert (found.how, str(found.type), found.shape) == expected


def test_structs_and_files() -> None:
    found = fields({"image": FILE, "a b": pa.struct({"c/d": pa.int8(), "e": pa.struct({"f": pa.string()})})})
    assert [(one.name, one.source, one.beside) for one in found] == [
        ("image", ("image", "bytes"), False),
        ("image.path", ("image", "path"), True),
        ("a_b.c.d", ("a b", "c/d"), False),
        ("a_b.e.f", ("a b", "e", "f"), False),
    ]
    assert [one.how for one in fields({"a b": pa.int8(), "a_b": pa.int8(), "c": pa.int8()})] == [
        *("refused", "refused"),
        "number",
    ]


def test_the_label() -> None:
    names = {"_type": "ClassLabel", "names": ["a", "b"]}
    found = fields({"kind": pa.int64(), "label": pa.int64()}, {"kind": names})
    assert [one.name for one in found] == ["cls", "label"]
    assert classes_of(found) == ("a", "b")
    assert [one.name for one in fields({"kind": pa.int64()}, {"kind": names}, ("kind",))] == ["kind"]
    assert [one.name for one in fields({"Label": pa.int64(), "x": pa.int64()})] == ["cls", "x"]
    two = {"fine": names, "label": names}
    assert [one.name for one in fields({"fine": pa.int64(), "label": pa.int64()}, two)] == ["fine", "cls"]
    assert [one.name for one in fields({"label": pa.int64(), "cls": pa.string()})] == ["label", "cls"]
    assert [one.name for one in fields({"label": pa.string()})] == ["label"]


@pytest.mark.parametrize("text", ["", "[]", '{"info": 3}', '{"info": {"features": []}}', "[" * 100_000])
def test_metadata_that_is_something_else(text: str) -> None:
    assert features_of({"huggingface": text}) == {}
