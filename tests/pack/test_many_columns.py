"""``--field 'x=f*:float32'``: many columns of a list as one array, in the order of the file."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from shardstream.errors import UsageError

from .making import packed, types

NAMES = [*(f"f{number}" for number in range(11)), "kind", "f11"]
"""f10 stands behind f9, as numbers go, and f11 behind another column."""
MANY = {"x": "f*:float32", "cls": "kind:int"}


def features(number: int) -> list[float]:
    return [number + place / 4 for place in range(12)]


def write_many(path: Path, names: list[str] = NAMES, count: int = 8) -> Path:
    values = [dict(zip([name for name in NAMES if name != "kind"], features(n), strict=True)) for n in range(count)]
    rows = [{name: values[n].get(name, n % 3) for name in names} for n in range(count)]
    if path.suffix == ".parquet":
        pa.parquet.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    else:
        mark = "," if path.suffix == ".csv" else "\t"
        lines = [mark.join(str(one[name]) for name in names) for one in rows]
        path.write_text("\n".join([*([mark.join(names)] if path.stem != "plain" else []), *lines]) + "\n")
    return path


KINDS = ["list.csv", "list.tsv", "list.jsonl", "list.parquet"]


@pytest.mark.parametrize("name", KINDS)
def test_many_columns_are_one_array_in_the_order_of_the_file(tmp_path: Path, name: str) -> None:
    found, rejects = packed(tmp_path / "out", write_many(tmp_path / name), MANY, key="line", workers=0)
    assert types(tmp_path / "out") == {"x": "array:float32:12", "cls": "int64"}
    assert rejects == []
    first = 2 if name in ("list.csv", "list.tsv") else 1  # the header is a line
    for key, one in found.items():
        assert (one["x"].tolist(), one["cls"]) == (features(int(key) - first), (int(key) - first) % 3)
    other = sorted(NAMES)  # f0, f1, f10, f11, f2
    found, _ = packed(tmp_path / "sorted", write_many(tmp_path / name, other), MANY, key="line")
    places = [int(one[1:]) for one in other if one != "kind"]
    assert found[f"{first:010d}"]["x"].tolist() == [features(0)[place] for place in places]


@pytest.mark.parametrize("name", KINDS)
def test_all_columns_that_are_not_taken(tmp_path: Path, name: str) -> None:
    fields = {"x": "*:float64", "cls": "kind:int", "ends": "f*1:float32"}
    found, _ = packed(tmp_path / "out", write_many(tmp_path / name), fields, key="f0" if "pa" not in name else "line")
    rest = [2, 3, 4, 5, 6, 7, 8, 9, 10] if "pa" not in name else [0, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    assert types(tmp_path / "out") == {"x": f"array:float64:{len(rest)}", "cls": "int64", "ends": "array:float32:2"}
    for one in found.values():
        number = int(one["ends"][0])
        assert one["x"].tolist() == [features(number)[place] for place in rest]
        assert one["ends"].tolist() == [features(number)[1], features(number)[11]]
    everything, _ = packed(tmp_path / "all", write_many(tmp_path / name), {"x": "*:float32"}, key="line")
    assert {one["x"].shape for one in everything.values()} == {(13,)}


def test_a_list_without_a_header_has_numbers_for_columns(tmp_path: Path) -> None:
    path = write_many(tmp_path / "plain.csv")
    found, _ = packed(tmp_path / "out", path, {"cls": "11:int", "x": "*:float32"}, key="line")
    assert found["0000000003"]["x"].tolist() == features(2)
    found, _ = packed(tmp_path / "ones", path, {"x": "1*:float32"}, key="line")
    assert found["0000000003"]["x"].tolist() == [features(2)[1], features(2)[10], 2.0, features(2)[11]]


@pytest.mark.parametrize("name", KINDS)
def test_patterns_that_cannot_be_meant(tmp_path: Path, name: str) -> None:
    path = write_many(tmp_path / name)
    for column, what in (
        ("g*:float32", r"no column matches 'g\*'.*\n.*the columns are f0, f1, .*, f10, kind, f11"),
        ("f*", r"the field 'x' of 12 columns \(f\*\) has no type.*\n.*fields=\{'x': 'f\*:float32'\}"),
        ("f*:str", r"has the type str"),
        ("f*:array:float32:12", r"has the type array:float32:12"),
    ):
        with pytest.raises(UsageError, match=what):
            packed(tmp_path / "out", path, {"x": column}, key="line")
    with pytest.raises(UsageError, match=r"no column is left for '\*'"):
        packed(tmp_path / "out", path, {"x": "*:int8", "y": "f*:float32", "cls": "kind"}, key="line")


def test_a_cell_that_does_not_fit_is_named(tmp_path: Path) -> None:
    path = tmp_path / "list.csv"
    path.write_text("a1,a2,a3\n1,2,3\n1,,3\n1,2,256\n1,x,3\n1,2\n1,2,3.5\n4,5,6\n")
    found, rejects = packed(tmp_path / "out", path, {"x": "a*:uint8"}, key="line")
    assert sorted(one["x"].tolist() for one in found.values()) == [[1, 2, 3], [4, 5, 6]]
    assert rejects == [
        "3: column 'a2': '' cannot be read as uint8",
        "4: column 'a3': 256 does not fit uint8 [0, 255]",
        "5: column 'a2': 'x' cannot be read as uint8",
        "6: the line has 2 columns where the first has 3",
        "7: column 'a3': '3.5' cannot be read as uint8",
    ]
    path = tmp_path / "list.jsonl"
    path.write_text('{"a1": 1, "a2": null}\n{"a1": 1, "a2": 2}\n{"a1": 1}\n{"a1": [1], "a2": 1}\n')
    found, rejects = packed(tmp_path / "json", path, {"x": "a*:int16"}, key="line")
    assert [one["x"].tolist() for one in found.values()] == [[1, 2]]
    assert rejects == [
        "1: it has no column 'a2'",
        "3: it has no column 'a2'",
        "4: column 'a1': expected int16, got [1] (list)",
    ]


def test_a_column_whose_name_holds_a_star(tmp_path: Path) -> None:
    path = tmp_path / "list.csv"
    path.write_text("a,a*\n1,2\n")
    found, _ = packed(tmp_path / "out", path, {"x": "a*:int8"}, key="line")
    assert found["0000000002"]["x"] == 2


@pytest.mark.parametrize(
    ("text", "fields", "key", "first"),
    [
        ("row0,1.5,2.5\nrow1,2,3\n", {"x": "*:float32"}, "0", [1.5, 2.5]),
        ("true,false\nfalse,false\n", {"x": "*:bool"}, "line", [True, False]),
        ("0,1,2\n1,2,3\n", {"x": "*:float32", "cls": "0"}, "line", [1, 2]),
        ("kind,2010,2011\n1,2,3\n", {"x": "20*:float32", "cls": "kind"}, "line", [2, 3]),
        ("id,2010,2011\na,2,3\n", {"x": "*:float32"}, "id", [2, 3]),
        (",a,b\n0,2,3\n", {"x": "*:float32"}, "line", [0, 2, 3]),
    ],
)
def test_no_first_line_is_lost_and_no_header_packed(
    tmp_path: Path, text: str, fields: dict[str, str], key: str, first: list[float]
) -> None:
    (tmp_path / "list.csv").write_text(text)
    found, rejects = packed(tmp_path / "out", tmp_path / "list.csv", fields, key=key)
    assert found[min(found)]["x"].tolist() == first
    assert len(found) == (2 if text[0] in "rt0" else 1)
    assert rejects == []


def test_a_first_line_that_lacks_a_number_is_a_reject_and_no_header(tmp_path: Path) -> None:
    for number, fields in enumerate(({"x": "*:float32"}, {"x": "*:float32", "cls": "0"})):
        (tmp_path / "list.csv").write_text("0,,2\n1,2,3\n")
        found, rejects = packed(tmp_path / f"{number}", tmp_path / "list.csv", fields, key="line")
        assert (len(found), rejects) == (1, ["1: column '1': '' cannot be read as float32"])
