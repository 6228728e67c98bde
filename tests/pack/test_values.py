"""Rows of values on their way into shards, from data set to data set, and out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch

import shardstream as ss
from shardstream.errors import DecodeError, FieldError
from shardstream.pack.export.run import export
from shardstream.pack.merge import merge
from shardstream.pack.repack import repack
from shardstream.pack.sources.declared import declared_name, fitted, parse_type
from shardstream.shards.arrays import npy_bytes

from .making import types

COUNT = 12
DECLARED = {"row": "values:uint16"}


def row(number: int) -> list[int]:
    return [number, 65_535, 7][: number % 4]


def sample(number: int) -> dict[str, Any]:
    return {"__key__": f"k{number:03d}", "row": row(number), "n": number}


def samples() -> Any:
    return (sample(number) for number in range(COUNT))


def check(out: Path, *, kind: str = "values:uint16") -> None:
    assert types(out)["row"] == kind
    found = {one["__key__"]: one["row"] for one in ss.Reader(out)}
    assert len(found) == COUNT
    for number in range(COUNT):
        one = found[f"k{number:03d}"]
        assert (one.dtype, one.tolist()) == (np.uint16, row(number))


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    out = tmp_path / "stored"
    with ss.ShardWriter(out, fields=DECLARED) as writer:
        for one in samples():
            writer.write(one)
    return out


# --------------------------------------------------------------------------------------------------------- one by one


@pytest.mark.parametrize(
    ("kind", "value", "what"),
    [
        ("values:uint16", [1, 2, 70_000], r"70000 does not fit uint16 \[0, 65535\], at \[2\] of .* values:uint16"),
        ("values:uint16", np.array([1, -2]), r"-2 does not fit uint16 .*, at \[1\]"),
        ("values:uint16", [1, 2.5], r"expected uint16, got 2.5 \(float\), at \[1\]"),
        ("values:uint16", [[1, 2], [3, 4]], r"expected values:uint16, numbers in one row, got \[2, 2\]"),
        ("values:uint16", np.uint16(3), r"numbers in one row, got \[\]"),
        ("values:uint16", [[1], [2, 3]], "expected values:uint16, got rows of several lengths"),
        ("values:uint16", torch.tensor([1.5]), r"expected values:uint16, got an array of float32 \[1\]"),
        ("values:uint16", b"\x01\x02\x03", "3 bytes are not a multiple of 2"),
        ("values:uint16", b"\x93NUMPY\x01\x00", "bytes that are not valid values:uint16: not an NPY file"),
        ("values:uint8", "text", r"expected values:uint8, got 'text' \(str\)"),
        ("values:bool", b"\x02", "neither true nor false"),
        ("values:float32", [1e300], r"1e\+300 does not fit float32"),
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
        ("values:uint16", [], np.zeros(0, np.uint16)),
        ("values:uint16", (1, 65_535), np.array([1, 65_535], np.uint16)),
        ("values:uint16", np.arange(8)[::2], np.array([0, 2, 4, 6], np.uint16)),
        ("values:int16", np.array([1, -2], ">i4"), np.array([1, -2], np.int16)),
        ("values:float32", [0.1, 2], np.array([0.1, 2], np.float32)),
        ("values:uint32", torch.tensor([3, 4]), np.array([3, 4], np.uint32)),
        ("values:bool", [True, False], np.array([True, False])),
        ("values:uint16", b"\x01\x02", np.array([513], np.uint16)),
        ("values:uint16", npy_bytes(np.array([513, 2])), np.array([513, 2], np.uint16)),
    ],
)
def test_what_is_held_exactly_is_taken(tmp_path: Path, kind: str, value: Any, stored: Any) -> None:
    with ss.ShardWriter(tmp_path / "out", fields={"x": kind}) as writer:
        writer.write({"__key__": "a", "x": value})
    found = ss.Reader(tmp_path / "out")[0]["x"]
    assert (found.dtype, found.tolist(), found.flags.writeable) == (stored.dtype, stored.tolist(), True)
    assert types(tmp_path / "out") == {"x": kind}


def test_a_declared_type_comes_back_from_its_name() -> None:
    assert declared_name(parse_type("values:int8")) == "values:int8"
    assert isinstance(fitted(parse_type("values:int8"), [1]), np.ndarray)


# ------------------------------------------------------------------------------------------------------------ sources


@pytest.mark.parametrize("format", ["tar", "record"])
def test_a_generator(tmp_path: Path, format: str) -> None:
    ss.pack(samples(), tmp_path / "out", fields=DECLARED, format=format, workers=0)
    check(tmp_path / "out")


def test_a_transform(tmp_path: Path) -> None:
    def tokenized(one: dict[str, Any]) -> dict[str, Any]:
        return one | {"row": torch.tensor(one["row"], dtype=torch.int32)}

    ss.pack(samples(), tmp_path / "out", fields=DECLARED, transform=tokenized, workers=0)
    check(tmp_path / "out")


def test_a_value_that_does_not_fit_is_a_reject(tmp_path: Path) -> None:
    bad = {"__key__": "bad", "row": [1, -1], "n": 0}
    manifest = ss.pack([*samples(), bad], tmp_path / "out", fields=DECLARED, workers=0)
    assert manifest.samples == COUNT
    (reject,) = [json.loads(line) for line in (tmp_path / "out" / "rejects.jsonl").read_text().splitlines()]
    assert "field 'row': -1 does not fit uint16" in reject["reason"]


@pytest.mark.parametrize("values", ["list", "text", "bytes"])
@pytest.mark.parametrize("rule", ["row:values:uint16", "values:uint16"])
def test_columns_of_tables(tmp_path: Path, values: str, rule: str) -> None:
    rows = [row(number) for number in range(COUNT)]
    columns = {
        "list": pa.array(rows, pa.list_(pa.int64())),
        "text": pa.array([json.dumps(one) for one in rows]),
        "bytes": pa.array([np.array(one, "<u2").tobytes() for one in rows]),
    }
    keys = [f"k{number:03d}" for number in range(COUNT)]
    pyarrow.parquet.write_table(pa.table({"key": keys, "row": columns[values]}), tmp_path / "list.parquet")
    ss.pack(tmp_path / "list.parquet", tmp_path / "out", fields={"row": rule}, key="key", workers=0)
    check(tmp_path / "out")


def test_lists_of_text(tmp_path: Path) -> None:
    lines = [json.dumps({"key": f"k{number:03d}", "row": row(number)}) for number in range(COUNT)]
    (tmp_path / "list.jsonl").write_text("\n".join(lines) + "\n")
    ss.pack(tmp_path / "list.jsonl", tmp_path / "out", fields={"row": "row:values:uint16"}, key="key", workers=0)
    check(tmp_path / "out")


def test_npy_files_and_files_of_elements(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in range(COUNT):
        array = np.array(row(number), np.uint16)
        data = array.tobytes() if number % 2 else npy_bytes(array)
        (tmp_path / "in" / f"k{number:03d}.row").write_bytes(data)
    ss.pack(tmp_path / "in", tmp_path / "out", fields=DECLARED, workers=0)
    check(tmp_path / "out")


def test_a_type_that_is_none_is_said(tmp_path: Path) -> None:
    with pytest.raises(FieldError, match="unknown field type 'values:u2'") as caught:
        ss.ShardWriter(tmp_path / "out", fields={"row": "values:u2"})
    assert "values:DTYPE" in str(caught.value)


# ------------------------------------------------------------------------------------- from data set to data set


def looks_like_npy(folder: Path) -> bytes:
    """A data set of one row of bytes that are an NPY file."""
    data = npy_bytes(np.zeros(3, np.int32))
    with ss.ShardWriter(folder, fields={"row": "values:uint8"}) as writer:
        writer.write({"__key__": "a", "row": np.frombuffer(data, np.uint8)})
    return data


@pytest.mark.parametrize("format", ["tar", "record"])
def test_repack(stored: Path, tmp_path: Path, format: str) -> None:
    zstd = ["row"] if format == "record" else ()
    manifest = repack(
        stored, tmp_path / "out", format=format, shards=ss.ShardOptions(zstd=zstd), shuffle=True, workers=0
    )
    assert manifest.codecs == dict.fromkeys(zstd, "zstd")
    check(tmp_path / "out")
    check(stored)


def test_repack_takes_no_row_for_a_file(tmp_path: Path) -> None:
    data = looks_like_npy(tmp_path / "in")
    repack(tmp_path / "in", tmp_path / "out", workers=0)
    assert ss.Reader(tmp_path / "out")[0]["row"].tobytes() == data
    ss.pack(
        iter([{"__key__": "a", "row": np.frombuffer(data, np.uint8)}]),
        tmp_path / "spooled",
        fields={"row": "values:uint8"},
        workers=0,
    )
    assert ss.Reader(tmp_path / "spooled")[0]["row"].tobytes() == data


def test_a_transform_of_repack_gets_an_array(stored: Path, tmp_path: Path) -> None:
    def doubled(one: dict[str, Any]) -> dict[str, Any]:
        assert one["row"].dtype == np.uint16
        return one | {"row": np.concatenate([one["row"], one["row"]])}

    repack(stored, tmp_path / "out", transform=doubled, workers=0)
    found = {one["__key__"]: one["row"].tolist() for one in ss.Reader(tmp_path / "out")}
    assert types(tmp_path / "out")["row"] == "values:uint16"
    assert found["k003"] == row(3) * 2


def test_append(stored: Path) -> None:
    with ss.ShardWriter(stored, append=True) as writer:
        writer.write({"__key__": "more", "row": [1, 2]})
    assert types(stored)["row"] == "values:uint16"
    assert ss.Reader(stored).get("more")["row"].tolist() == [1, 2]
    with pytest.raises(FieldError, match="is values:uint16 in the data set, but bytes"):
        ss.ShardWriter(stored, append=True, fields={"row": "bytes"}).__enter__()


def test_merge(stored: Path, tmp_path: Path) -> None:
    with ss.ShardWriter(tmp_path / "more", fields=DECLARED) as writer:
        writer.write({"__key__": "more", "row": [1, 2]})
    merge([stored, tmp_path / "more"], tmp_path / "out")
    assert types(tmp_path / "out")["row"] == "values:uint16"
    assert ss.Reader(tmp_path / "out").get("more")["row"].tolist() == [1, 2]


@pytest.mark.parametrize("other", ["bytes", "values:uint32", "values:int16", "array", "image"])
def test_data_sets_that_mean_other_things_do_not_become_one(stored: Path, tmp_path: Path, other: str) -> None:
    value: Any = np.zeros(2, other.rpartition(":")[2]) if other.startswith("values") else b"1234"
    value = np.zeros(2) if other == "array" else np.zeros((2, 2, 3), np.uint8) if other == "image" else value
    with ss.ShardWriter(tmp_path / "more", fields={"row": other}) as writer:
        writer.write({"__key__": "more", "row": value, "n": 0})
    for order in ([stored, tmp_path / "more"], [tmp_path / "more", stored]):
        with pytest.raises(FieldError, match="values:uint16") as caught:
            merge(order, tmp_path / "out")
        assert other in str(caught.value)
        with pytest.raises(FieldError, match="values:uint16"):
            ss.ShardDataset(order, fields=["row"])
        assert len(ss.ShardDataset(order, fields=["n"])) == COUNT + 1


# ---------------------------------------------------------------------------------------------------------------- out


def test_export_to_parquet_and_back(tmp_path: Path) -> None:
    out = tmp_path / "stored"
    with ss.ShardWriter(out, fields=DECLARED | {"half": "values:float16", "flags": "values:bool"}) as writer:
        for number, one in enumerate(samples()):
            writer.write(one | {"half": [0.5] * (number % 3), "flags": [True, False] if number % 2 else None})
    export(out, tmp_path / "tables", to="parquet", workers=0)
    (table,) = [pyarrow.parquet.read_table(path) for path in (tmp_path / "tables").glob("*.parquet")]
    kinds = {name: str(table.schema.field(name).type) for name in ("row", "half", "flags")}
    assert {name: kind.split("<")[0] for name, kind in kinds.items()} == dict.fromkeys(kinds, "list")
    assert [kinds[name].split(": ")[1].rstrip(">") for name in kinds] == ["uint16", "halffloat", "bool"]
    found = {one["__key__"]: one for one in table.to_pylist()}
    for number in range(COUNT):
        one = found[f"k{number:03d}"]
        assert (one["row"], one["half"]) == (row(number), [0.5] * (number % 3))
        assert one["flags"] == ([True, False] if number % 2 else None)
    ss.pack(
        next((tmp_path / "tables").glob("*.parquet")),
        tmp_path / "again",
        fields={"row": "row:values:uint16"},
        key="__key__",
        workers=0,
    )
    check(tmp_path / "again")


def test_export_to_files_and_webdataset(stored: Path, tmp_path: Path) -> None:
    export(stored, tmp_path / "files", to="files", workers=0)
    for number in range(COUNT):
        found = np.load(tmp_path / "files" / f"k{number:03d}.row.npy")
        assert (found.dtype, found.tolist()) == (np.uint16, row(number))
    export(stored, tmp_path / "tars", to="webdataset", workers=0)
    (shard,) = (tmp_path / "tars").glob("*.tar")
    ss.pack(shard, tmp_path / "again", fields={"row.npy": "values:uint16"}, workers=0)
    assert types(tmp_path / "again")["row.npy"] == "values:uint16"
    found = {one["__key__"]: one["row.npy"].tolist() for one in ss.Reader(tmp_path / "again")}
    assert found == {f"k{number:03d}": row(number) for number in range(COUNT)}


def test_a_row_that_ends_in_the_middle_of_a_number(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with ss.ShardWriter(out, fields={"row": "bytes"}) as writer:
        writer.write({"__key__": "a", "row": b"1234"})
        writer.write({"__key__": "b", "row": b"123"})
    head = out / "dataset.json"
    said = json.loads(head.read_text())
    said["fields"]["row"]["as"] = "values:uint16"
    del said["checksum"]
    head.write_text(json.dumps(said))
    with pytest.raises(DecodeError, match="3 bytes are not a multiple of 2") as caught:
        export(out, tmp_path / "files", to="files", workers=0)
    place = caught.value.place
    assert (place["key"], place["sample"], place["field"], "shard" in place) == ("b", 1, "row", True)
    assert repack(out, tmp_path / "again", workers=0).samples == 1
    assert "not a multiple of 2" in (tmp_path / "again" / "rejects.jsonl").read_text()
