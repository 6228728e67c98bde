"""JSON lines, MXNet's lists, lines with blanks, plain paths."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardstream import ImageOptions
from shardstream.errors import DuplicateKeyError, ShardStreamError, SourceError, UsageError
from shardstream.pack.run import pack
from shardstream.pack.sources import File, Item, Reject
from shardstream.pack.sources.base import StreamSource
from shardstream.pack.sources.opening import open_source

from .making import make, photo_list, samples


def read(path: Path, **options: Any) -> list[Item | Reject]:
    source = open_source(path, **options)
    return list(source.part(np.arange(len(source))))


def found(path: Path, **options: Any) -> list[tuple[int, str, object]]:
    """(line, path, label), or (line, path, reason)."""
    return [
        (item.line, item.path, item.values.get("cls") if isinstance(item, Item) else item.reason)
        for item in read(path, **options)
    ]


def test_json_lines(tmp_path: Path) -> None:
    text = (
        '\ufeff{"file_name": "a/1.jpg", "label": 3, "text": "x"}\r\n'
        '\r\n{"label": "4", "file_name": "a/b\\n/\\u00e9.jpg"}\n'
        '{"file_name": "a/3.jpg"}\n'
        '{"file_name": null, "label": 1}\n'
        "[1]\n"
        '{"file_name": "a/6.jpg", "label": 1.5}\n'
        '{"file_name": "a/7.jpg", "label": 7.0, "file_name": "a/8.jpg"}\n'
        '{"file_name": "a/9.jpg", "label": 18446744073709551616}\n'
        '{"file_name": "\\ud800.jpg", "label": 1}\n'
        '{"file_name": {"bytes": 1}, "label": 1}\n'
        '{"file_na'
    )
    path = make(tmp_path, text, "list.jsonl")
    assert found(path)[:10] == [
        (1, "a/1.jpg", 3),
        (3, "a/b\n/é.jpg", 4),
        (4, "a/3.jpg", "it has no label"),
        (5, "", "it has no path"),
        (6, "list.jsonl", "line 6 is not a row: a list, where a JSON object is needed (offset 161)"),
        (7, "a/6.jpg", "the label 1.5 is not a 64-bit integer"),
        (8, "a/8.jpg", 7),
        (9, "a/9.jpg", "the label 18446744073709551616 is not a 64-bit integer"),
        (10, "", "'\\ud800.jpg' is not valid UTF-8"),
        (11, "", "the line has no path"),
    ]
    (*_, last) = read(path)
    assert isinstance(last, Reject)
    assert "is not a row: " in last.reason
    assert "text" in open_source(path).notes[0]


def test_json_that_is_no_list(tmp_path: Path) -> None:
    with pytest.raises(ShardStreamError, match="line 2 is not a row") as caught:
        read(make(tmp_path, "[\n1\n]", "list.jsonl"))
    assert caught.value.hint
    with pytest.raises(UsageError, match="called like a path") as caught_too:
        read(make(tmp_path, '{"photo": "1.jpg"}', "list.jsonl"))
    assert "fields=" in str(caught_too.value)
    with pytest.raises(SourceError, match="no column 'x'"):
        read(make(tmp_path, '{"path": "1.jpg"}\n{"path": "2.jpg"}', "list.jsonl"), fields={"jpg": "path", "a": "x"})


def test_json_without_its_name(tmp_path: Path) -> None:
    assert found(make(tmp_path, '{"path": "1.jpg", "cls": 1}\n{"path": "2.jpg", "cls": 2}\n', "list")) == [
        (1, "1.jpg", 1),
        (2, "2.jpg", 2),
    ]


def test_json_keys(tmp_path: Path) -> None:
    path = make(tmp_path, '{"path": "1.jpg", "id": 7}\n{"path": "2.jpg", "id": "x/8"}\n', "list.jsonl")
    assert [item.key for item in read(path, key="id") if isinstance(item, Item)] == ["7", "x/8"]
    with pytest.raises(DuplicateKeyError, match="lines 1 and 2"):
        read(make(tmp_path, '{"path": "1.jpg", "id": 7}\n{"path": "2.jpg", "id": "7"}\n', "list.jsonl"), key="id")
    with pytest.raises(UsageError, match="nor a column"):
        read(path, key="nothing")


def test_lists_of_mxnet(tmp_path: Path) -> None:
    path = make(tmp_path, "0\t3.000000\ta b/1.jpg\n5\t1\ta b/2.jpg\n6\t0.5\ta b/3.jpg\n7\ta b/4.jpg\n", "train.lst")
    assert found(path) == [
        (1, "a b/1.jpg", 3),
        (2, "a b/2.jpg", 1),
        (3, "a b/3.jpg", "the label '0.5' is not a 64-bit integer"),
        (4, "", "the line has 2 columns where the first has 3"),
    ]
    regression = read(path, fields={"jpg": "2", "y": "1:float32"}, key="0")
    assert [(item.key, item.values["y"]) for item in regression if isinstance(item, Item)] == [
        ("0", 3.0),
        ("5", 1.0),
        ("6", 0.5),
    ]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("0\t9223372036854775808.0\ta.jpg\n", "the label '9223372036854775808.0' is not a 64-bit integer"),
        ("0\t2\t16777217\tb.jpg\n", "the integer 16777217 has no exact float32, at [1]"),
    ],
)
def test_numbers_that_would_lose_digits_are_rejects(tmp_path: Path, line: str, reason: str) -> None:
    first = "0\t1\ta.jpg\n" if line.count("\t") == 2 else "0\t1\t2\ta.jpg\n"
    one, two = read(make(tmp_path, first + line, "train.lst"))
    assert isinstance(one, Item)
    assert isinstance(two, Reject)
    assert reason in two.reason


@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_integers_as_text_lose_no_digits_in_floats(tmp_path: Path, kind: str) -> None:
    exact = 2 ** (24 if kind == "float32" else 53)
    path = make(tmp_path, f"path,x\na.jpg,{exact}\nb.jpg,{exact + 1}\nc.jpg,{exact + 1}.0\n", "list.csv")
    one, two, three = read(path, fields={"jpg": "path", "x": f"x:{kind}"})
    assert isinstance(one, Item)
    assert isinstance(two, Reject)
    assert isinstance(three, Item)
    assert (one.values["x"], f"{exact + 1} has no exact {kind}" in two.reason) == (exact, True)


def test_lists_of_mxnet_for_detection(tmp_path: Path) -> None:
    path = make(tmp_path, "0\t2\t5\t0\t.1\t.2\tx/1.jpg\n1\t2\t5\tx/2.jpg\n2\tnope\t1\tx/3.jpg\n", "train.lst")
    one, two, three = read(path)
    assert isinstance(one, Item)
    assert isinstance(two, Item)
    assert one.values["jpg"] == File(str(tmp_path / "x/1.jpg"))
    assert (one.key, two.key) == ("1", "2")
    assert one.values["cls"].dtype == np.float32
    assert one.values["cls"].tolist() == pytest.approx([2, 5, 0, 0.1, 0.2])
    assert two.values["cls"].tolist() == [2, 5]
    assert isinstance(three, Reject)
    assert "is not a number" in three.reason


def test_lines_with_blanks(tmp_path: Path) -> None:
    path = make(tmp_path, "a b/1.jpg 3\r\na b/ 2.jpg   -4 \n\na b/3.jpg x\n", "train.txt")
    source = open_source(path)
    assert found(path) == [
        (1, "a b/1.jpg", 3),
        (2, "a b/ 2.jpg", -4),
        (4, "a b/3.jpg", "the label 'x' is not a 64-bit integer"),
    ]
    assert "blanks" in source.notes[0]


def test_names_after_blanks(tmp_path: Path) -> None:
    path = make(tmp_path, "a b/1.jpg cat\na b/2.jpg dog\n", "train.txt")
    source = open_source(path, labels="name")
    assert source.classes == ("cat", "dog")
    assert found(path, labels="name") == [(1, "a b/1.jpg", 0), (2, "a b/2.jpg", 1)]


def test_plain_paths(tmp_path: Path) -> None:
    path = make(tmp_path, b"my photos/1 2.jpg\nmy photos/3.jpg\nmy photos/caf\xe9.jpg", "train.txt")
    assert found(path)[:2] == [(1, "my photos/1 2.jpg", None), (2, "my photos/3.jpg", None)]
    text = "x 1.jpg\ny.jpg 2\nz.jpg\n"
    assert [entry[1] for entry in found(make(tmp_path, text, "list.txt"))] == ["x 1.jpg", "y.jpg 2", "z.jpg"]


def test_lists_of_urls(tmp_path: Path) -> None:
    text = "https://h.org/a/1.jpg?w=2\t0\ns3://bucket/a/2.PNG\t1\nlocal/3.jpg\t2\n"
    items = read(make(tmp_path, text, "list.tsv"))
    assert [item.values for item in items if isinstance(item, Item)] == [
        {"jpg": File("https://h.org/a/1.jpg?w=2"), "cls": 0},
        {"png": File("s3://bucket/a/2.PNG"), "cls": 1},
        {"jpg": File(str(tmp_path / "local/3.jpg")), "cls": 2},
    ]
    same = "https://h.org/a/1.jpg?w=2\nhttps://h.org/a/b/2.jpg#x\n"
    assert [item.key for item in read(make(tmp_path, same, "list.tsv")) if isinstance(item, Item)] == ["1", "b/2"]
    many = "https://h.org/a/1.jpg\nhttp://g.org/a/1.jpg\n"
    assert [item.key for item in read(make(tmp_path, many, "list.tsv")) if isinstance(item, Item)] == [
        "h.org/a/1",
        "g.org/a/1",
    ]


@pytest.mark.parametrize("name", ["list.txt", "list.lst", "list.jsonl", "list.csv"])
def test_every_kind_packs_the_same_samples(tmp_path: Path, name: str) -> None:
    tsv = photo_list(tmp_path, 20)
    rows = [line.split("\t") for line in tsv.read_text().splitlines()]
    lines = {
        "list.txt": [f"{path} {label}" for path, label in rows],
        "list.lst": [f"{i}\t{label}.000\t{path}" for i, (path, label) in enumerate(rows)],
        "list.jsonl": [f'{{"image": "{path}", "label": {label}}}' for path, label in rows],
        "list.csv": ["image,label", *(f'"{path}",{label}' for path, label in rows)],
    }[name]
    pack(make(tmp_path, "\n".join(lines), name), tmp_path / "out", workers=0, images=ImageOptions(jpeg="keep"))
    pack(tsv, tmp_path / "tsv", workers=0, images=ImageOptions(jpeg="keep"))
    assert samples(tmp_path / "out") == samples(tmp_path / "tsv")


@pytest.mark.parametrize("kind", ["list", "tuple of paths", "generator", "text", "links"])
def test_absolute_paths_from_anywhere_have_one_key(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list, paths from Python, and links: keys are relative to what all share, wherever the list is."""
    monkeypatch.chdir(tmp_path)
    paths = [f"{tmp_path}/data/{folder}/{i}.jpg" for folder in "ab" for i in range(3)]
    (tmp_path / "linked").symlink_to("data")
    source: Any = {
        "list": paths,
        "tuple of paths": tuple(map(Path, paths)),
        "generator": (path for path in paths),
        "text": make(tmp_path, "".join(f"{path}\n" for path in paths), "list.txt"),
        "links": [path.replace("/data/", "/linked/") for path in paths],
    }[kind]
    source = open_source(source)
    assert not isinstance(source, StreamSource)
    items = list(source.part(np.arange(len(source))))
    assert [item.key for item in items if isinstance(item, Item)] == ["a/0", "a/1", "a/2", "b/0", "b/1", "b/2"]


def test_paths_from_python_are_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = photo_list(tmp_path, 4)
    monkeypatch.chdir(path.parent)
    names = [line.partition("\t")[0] for line in path.read_text().splitlines()]
    assert pack(map(Path, names), tmp_path / "out", workers=2).samples == 4
    with pytest.raises(SourceError, match="sample 1 is a dict, and the first is a path"):
        pack([names[0], {"__key__": "a"}], tmp_path / "other")
    with pytest.raises(DuplicateKeyError, match="lines 1 and 2"):
        pack([names[0], names[0]], tmp_path / "other")
