from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardstream import ImageOptions
from shardstream.errors import FieldError, SourceError, UsageError
from shardstream.pack.run import pack
from shardstream.pack.sources import File, Item, Reject
from shardstream.pack.sources.lists.mapping import FieldRule, parse_fields
from shardstream.pack.sources.opening import open_source

from .making import jpeg, make, photos, samples

Fields = dict[str, str]


def read(path: Path, fields: Fields, **options: Any) -> list[Item | Reject]:
    source = open_source(path, fields=fields, **options)
    return list(source.part(np.arange(len(source))))


def values(path: Path, fields: Fields, **options: Any) -> list[object]:
    """Fields of good samples, reasons of bad ones."""
    return [item.values if isinstance(item, Item) else item.reason for item in read(path, fields, **options)]


@pytest.mark.parametrize(
    ("text", "column", "kind"),
    [
        ("x", "x", None),
        ("x:int", "x", "int64"),
        ("x:text", "x", "str"),
        ("x:file", "x", "file"),
        ("a:b:float32", "a:b", "float32"),
        ("a:b", "a:b", None),
        ("v:array:float32:2,3", "v", "array:float32:2,3"),
        ("v:array", "v", "array"),
        (":int", "", "int64"),
    ],
)
def test_columns_and_types(text: str, column: str, kind: str | None) -> None:
    assert parse_fields({"a": text}) == (FieldRule("a", column, kind),)


def test_a_label_is_an_integer_unless_said() -> None:
    assert parse_fields({"cls": "y", "a.jpg": "x"}) == (FieldRule("cls", "y", "int64"), FieldRule("a.jpg", "x", None))
    assert parse_fields({"cls": "y:float"}) == (FieldRule("cls", "y", "float64"),)


def test_fields_that_cannot_be() -> None:
    with pytest.raises(FieldError, match="field name"):
        parse_fields({"a b": "x"})
    with pytest.raises(UsageError, match="no column"):
        parse_fields({"a": ""})
    with pytest.raises(UsageError, match="dict"):
        parse_fields([("a", "b")])  # type: ignore[arg-type]


def test_named_columns(tmp_path: Path) -> None:
    text = 'image_path,mask,label,note,unused\nx/1.jpg,x/1.png,3,"a, b",0\n/y/2.jpg,s3://b/2.png,-1,,0\n'
    fields = {"jpg": "image_path", "mask.png": "mask", "cls": "label", "caption": "note:text"}
    source = open_source(make(tmp_path, text, "list.csv"), fields=fields)
    items = list(source.part(np.arange(2)))
    assert [item.values for item in items if isinstance(item, Item)] == [
        {
            "jpg": File(str(tmp_path / "x/1.jpg")),
            "mask.png": File(str(tmp_path / "x/1.png")),
            "cls": 3,
            "caption": "a, b",
        },
        {"jpg": File("/y/2.jpg"), "mask.png": File("s3://b/2.png"), "cls": -1, "caption": ""},
    ]
    assert {name: kind.name for name, kind in source.types.items()} == {"cls": "int64", "caption": "str"}
    assert source.notes == ()


def test_numbered_columns(tmp_path: Path) -> None:
    path = make(tmp_path, "id1\tx/1.jpg\t0.5\nid2\tx/2.jpg\t1e3\n")
    assert values(path, {"jpg": "1", "w": "2:float32"}, key="0") == [
        {"jpg": File(str(tmp_path / "x/1.jpg")), "w": 0.5},
        {"jpg": File(str(tmp_path / "x/2.jpg")), "w": 1000.0},
    ]
    assert [item.key for item in read(path, {"jpg": "1"}, key="0") if isinstance(item, Item)] == ["id1", "id2"]
    with pytest.raises(UsageError, match="no header"):
        read(path, {"jpg": "path"})
    with pytest.raises(UsageError, match="'3'"):
        read(path, {"jpg": "3"})


def test_a_header_is_known_by_the_columns_that_are_asked_for(tmp_path: Path) -> None:
    path = make(tmp_path, "photo\tkind\n1.jpg\t2\n")
    assert values(path, {"jpg": "photo", "cls": "kind"}) == [{"jpg": File(str(tmp_path / "1.jpg")), "cls": 2}]


@pytest.mark.parametrize("fields", [{"jpg": "0"}, {"jpg": "0", "cls": "1:int"}, {"jpg": "0", "tokens": "array:uint16"}])
def test_a_label_that_is_the_number_of_a_column_makes_no_header(tmp_path: Path, fields: dict[str, str]) -> None:
    path = make(tmp_path, "0.jpg\t0\n1.jpg\t1\n2.jpg\t0\n")
    assert [one["jpg"] for one in values(path, fields)] == [File(str(tmp_path / f"{i}.jpg")) for i in range(3)]
    path = make(tmp_path, "0\t1\n3\t4\n")
    assert values(path, {"y": "0:int", "z": "1:int"}, key="line") == [{"y": 0, "z": 1}, {"y": 3, "z": 4}]
    path = make(tmp_path, "kind\t0\n3\t4\n")
    assert values(path, {"y": "kind:int", "z": "0:int"}, key="line") == [{"y": 3, "z": 4}]


def test_a_header_is_known_by_the_key_and_by_the_column_of_an_unknown_type(tmp_path: Path) -> None:
    path = make(tmp_path, "id,kind\na,2\n", "list.csv")
    for key in ("id", "line"):
        with pytest.raises(UsageError, match="'itn' is not a field type, for column 'kind'"):
            read(path, {"cls": "kind:itn"}, key=key)
    with pytest.raises(UsageError, match=r"no column 'kinds'.*\n.*its columns are id, kind"):
        read(path, {"cls": "kinds"}, key="id")
    assert values(make(tmp_path, "line,3\nb,4\n", "list.csv"), {"x": "0"}, key="line") == [{"x": "line"}, {"x": "b"}]


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("int8", "-128", -128),
        ("int8", "128", "column 'x': 128 does not fit int8"),
        ("int", "9223372036854775808", "column 'x': 9223372036854775808 does not fit int64"),
        ("int", "1.5", "column 'x': '1.5' cannot be read as int64"),
        ("int", "1_0", "column 'x': '1_0' cannot be read as int64"),
        ("float", "nope", "column 'x': 'nope' cannot be read as float64"),
        ("float32", "1e300", "column 'x': 1e+300 does not fit float32"),
        ("bool", "True", True),
        ("bool", "yes", "column 'x': 'yes' cannot be read as bool"),
        ("bytes", "\xe9", b"\xc3\xa9"),
        ("json", '{"a": [1]}', {"a": [1]}),
        ("json", "{", "column 'x': '{' cannot be read as json"),
        ("jpg", "x.jpg", "column 'x': the text 'x.jpg', where bytes are needed"),
        ("file", "", "the line has no path"),
        ("int", "", "column 'x': '' cannot be read as int64"),
    ],
)
def test_text_as_what_was_declared(tmp_path: Path, kind: str, text: str, expected: object) -> None:
    path = make(tmp_path, json.dumps({"x": text}) + "\n" + json.dumps({"x": text, "p": 1}) + "\n", "list.jsonl")
    if isinstance(expected, str):
        with pytest.raises(SourceError) as caught:
            values(path, {"a": f"x:{kind}"}, key="line")
        assert caught.value.what.startswith(expected)
    else:
        assert values(path, {"a": f"x:{kind}"}, key="line") == [{"a": expected}] * 2


def test_arrays(tmp_path: Path) -> None:
    path = make(
        tmp_path, '{"v": [1, 2.5], "w": [[1], [2]]}\n{"v": [1], "w": 3}\n{"v": "[0, 1]", "w": "x"}\n', "a.jsonl"
    )
    one, two, three = values(path, {"v": "v:array:float32:2", "w": "w:array"}, key="line")
    assert isinstance(one, dict)
    assert one["v"].dtype == np.float32
    assert one["v"].tolist() == [1, 2.5]
    assert one["w"].tolist() == [[1], [2]]
    assert two == "column 'v': expected array:float32:2, got an array of float32 [1]"
    assert three == "column 'w': 'x' cannot be read as array"


def test_broken_lines_name_the_column(tmp_path: Path) -> None:
    path = make(tmp_path, b"path\tlabel\ttext\n1.jpg\t1\ta\n2.jpg\tx\tb\n3.jpg\n\t3\tc\n5.jpg\t5\tcaf\xe9\n")
    found = read(path, {"jpg": "path", "cls": "label", "txt": "text"})
    assert found[1:] == [
        Reject(3, "2.jpg", "column 'label': 'x' cannot be read as int64"),
        Reject(4, "", "the line has 1 column where the first has 3"),
        Reject(5, "", "the line has no path"),
        Reject(6, "5.jpg", "column 'text': 'caf%E9' is not valid UTF-8"),
    ]


def test_names_as_labels(tmp_path: Path) -> None:
    path = make(tmp_path, "path\tkind\n1.jpg\twolf\n2.jpg\tape\n3.jpg\t\n")
    source = open_source(path, fields={"jpg": "path", "cls": "kind"}, labels="name")
    found = list(source.part(np.arange(3)))
    assert source.classes == ("ape", "wolf")
    assert [item.values["cls"] for item in found if isinstance(item, Item)] == [1, 0]
    assert found[2] == Reject(4, "3.jpg", "the label is missing")
    with pytest.raises(UsageError, match="needs a label"):
        read(path, {"jpg": "path"}, labels="name")


def test_samples_without_files(tmp_path: Path) -> None:
    path = make(tmp_path, "id\ttext\na\tone\nb\ttwo\n")
    assert values(path, {"txt": "text"}, key="id") == [{"txt": "one"}, {"txt": "two"}]
    with pytest.raises(UsageError, match="no field is a file"):
        read(path, {"txt": "text"})


PICTURES = {
    "list.csv": "path,label\na/1.JPG,1\na/2.jpg,2\n",
    "list.jsonl": '{"path": "a/1.JPG", "label": 1}\n',
}


@pytest.mark.parametrize("name", PICTURES)
@pytest.mark.parametrize("key", ["path", "auto", "line", "label"])
def test_a_picture_that_would_be_its_path_says_what_is_meant(tmp_path: Path, name: str, key: str) -> None:
    path = make(tmp_path, PICTURES[name], name)
    with pytest.raises(UsageError) as caught:
        read(path, {"image": "path", "cls": "label"}, key=key)
    assert "fields={'jpg': 'path'}" in str(caught.value.hint)
    assert "fields={'image': 'path:" in str(caught.value.hint)
    if key != "path":  # from whose path none could be made
        assert "would be the text in column 'path', such as 'a/1.JPG'" in caught.value.what
        assert caught.value.place == {"url": str(path), "field": "image"}
    assert values(path, {"image": "path:str"}, key="line")[0] == {"image": "a/1.JPG"}
    assert values(path, {"jpg": "path", "image": "path:str"})[0]["image"] == "a/1.JPG"  # type: ignore[index]


@pytest.mark.parametrize(
    ("fields", "first"),
    [
        ({"jpg": "path", "name": "path"}, "a/1.jpg"),
        ({"jpg": "path", "image": "text"}, "a photo of St. Paul"),
        ({"jpg": "path", "photo": "n"}, 3),
    ],
)
def test_text_that_is_meant_stays_text(tmp_path: Path, fields: Fields, first: object) -> None:
    path = make(tmp_path, '{"path": "a/1.jpg", "text": "a photo of St. Paul", "n": 3}\n', "list.jsonl")
    (found,) = values(path, fields)
    assert isinstance(found, dict)
    assert first in found.values()


def test_other_pictures_are_stored_as_files(tmp_path: Path) -> None:
    path = make(tmp_path, "path\tlabel\na/1.tiff\t1\n")
    with pytest.raises(UsageError, match="not the picture") as caught:
        read(path, {"a.image": "path"}, key="line")
    assert "fields={'a.image': 'path:file'} stores the files" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("text", "name", "column"),
    [
        ("path,label\na.jpg,1\n", "list.csv", "label:itn"),
        ('{"path": "a.jpg", "label": 1}\n', "list.jsonl", "label:itn"),
        ("a.jpg\t1\n", "list.tsv", "1:itn"),
    ],
)
def test_a_type_that_is_none_lists_those_that_are(tmp_path: Path, text: str, name: str, column: str) -> None:
    path = make(tmp_path, text, name)
    with pytest.raises(UsageError, match="'itn' is not a field type, for column") as caught:
        read(path, {"jpg": "0" if name == "list.tsv" else "path", "cls": column})
    hint = str(caught.value.hint)
    assert hint.startswith("did you mean 'int'?")
    assert all(f" {kind}," in hint for kind in ("file", "text", "int", "float", "json", "jpg", "float32", "uint8"))
    assert "array:DTYPE:SHAPE" in hint
    assert caught.value.place["url"] == str(path)


def test_the_fingerprint_knows_the_fields(tmp_path: Path) -> None:
    path = make(tmp_path, "path\tlabel\n1.jpg\t1\n")
    found = {
        open_source(path, fields=fields).fingerprint
        for fields in ({"jpg": "path"}, {"jpg": "path", "cls": "label"}, {"jpg": "path", "y": "label"}, None)
    }
    assert len(found) == 4


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(
    json_values, st.sampled_from(["int", "int8", "float32", "bool", "str", "json", "bytes", "array", "file", "msgpack"])
)
def test_any_value_is_a_field_or_a_reject(value: object, kind: str) -> None:
    from shardstream.pack.sources.lists.mapping import BoundField, is_path
    from shardstream.pack.sources.lists.records import Broken

    (rule,) = parse_fields({"a": f"x:{kind}"})
    with contextlib.suppress(Broken):
        BoundField(rule, "x", is_path(rule)).value({"x": value})


def test_packed_fields_come_back(tmp_path: Path) -> None:
    rows = [f'{path},{i},"note, {i}",{i / 2},"{{""a"": [{i}]}}"\n' for i, path in enumerate(photos(tmp_path, 12))]
    path = make(tmp_path, "file,n,note,w,extra\n" + "".join(rows) + "missing.jpg,x,,1,{}\n", "list.csv")
    fields = {"jpg": "file", "cls": "n:int16", "txt": "note", "w": "w:float32", "json": "extra:json"}
    manifest = pack(path, tmp_path / "out", fields=fields, workers=0, images=ImageOptions(jpeg="keep"))
    assert {name: kind.name for name, kind in manifest.fields.items()} == {
        "jpg": "jpg",
        "cls": "int16",
        "txt": "str",
        "w": "float32",
        "json": "json",
    }
    found = samples(tmp_path / "out")["c2/00005"]
    assert found.pop("jpg") == jpeg(5)
    assert found == {"cls": 5, "txt": b"note, 5", "w": 2.5, "json": b'{"a":[5]}'}
    (reject,) = map(json.loads, (tmp_path / "out" / "rejects.jsonl").read_text().splitlines())
    assert reject == {
        "path": "missing.jpg",
        "line": 14,
        "kind": "invalid",
        "reason": "column 'n': 'x' cannot be read as int16",
    }


def test_names_of_files_that_are_made_of_cells(tmp_path: Path) -> None:
    rows = [{"id": 7, "n": 1}, {"id": "a b", "n": 2}, {"id": "", "n": 3}, {"id": [1], "n": 4}]
    (tmp_path / "l.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    fields = {"jpg": "id:file:images/{}.jpg", "n": "n"}
    found = values(tmp_path / "l.jsonl", fields, key="line")
    assert found[:2] == [
        {"jpg": File(str(tmp_path / "images/7.jpg")), "n": 1},
        {"jpg": File(str(tmp_path / "images/a b.jpg")), "n": 2},
    ]
    assert [str(one) for one in found[2:]] == ["the line has no path", "its column 'id' is a list, not text"]
    other = open_source(tmp_path / "l.jsonl", fields=fields | {"jpg": "id:file:{}.jpg"}, key="line")
    assert other.fingerprint != open_source(tmp_path / "l.jsonl", fields=fields, key="line").fingerprint
