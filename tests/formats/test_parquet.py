"""Parquet: against pyarrow in every encoding and compression, and files that lie."""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardstream.formats.parquet.format import Parquet
from shardstream.formats.scans.rows import PIECE
from shardstream.testing import MemoryStore

from .scanning import listing_of, recognised, samples, scanned

PARQUET = Parquet()
JPEG = b"\xff\xd8\xff\xe0photograph"
COMPRESSIONS = ("none", "snappy", "gzip", "brotli", "zstd", "lz4")
ROWS = 23


def columns(rows: int = ROWS) -> dict[str, Any]:
    """Columns of every type that is read, with and without missing values."""
    some = [row % 5 != 3 for row in range(rows)]

    def missing(values: list[Any]) -> list[Any]:
        return [value if there else None for value, there in zip(values, some, strict=True)]

    count = range(rows)
    return {
        "i8": pa.array([row - 5 for row in count], pa.int8()),
        "u16": pa.array([row * 1000 for row in count], pa.uint16()),
        "u32": pa.array([row + 2**32 - 100 for row in count], pa.uint32()),
        "i64": pa.array(missing([row * 10**12 - 7 for row in count]), pa.int64()),
        "u64": pa.array([2**64 - 1 - row for row in count], pa.uint64()),
        "f2": pa.array(np.arange(rows, dtype=np.float16)),
        "f4": pa.array(missing([row / 2 for row in count]), pa.float32()),
        "f8": pa.array([row / 3 for row in count], pa.float64()),
        "yes": pa.array(missing([row % 2 == 0 for row in count]), pa.bool_()),
        "text": pa.array(missing([f"é{row % 7}" * row for row in count]), pa.string()),
        "raw": pa.array(missing([bytes([row]) * (3 * row) for row in count]), pa.binary()),
        "large": pa.array([bytes([row, 1]) for row in count], pa.large_binary()),
        "fixed": pa.array(missing([bytes([row]) * 6 for row in count]), pa.binary(6)),
        "image": pa.array(
            [
                {"bytes": JPEG + bytes([row]) if row % 6 else None, "path": f"{row}.jpg"} if row % 4 else None
                for row in count
            ],
            pa.struct({"bytes": pa.binary(), "path": pa.string()}),
        ),
        "tokens": pa.array(missing([list(range(row % 6)) for row in count]), pa.list_(pa.int32())),
        "small": pa.array([list(range(row % 4)) for row in count], pa.list_(pa.uint16())),
        "floats": pa.array(missing([[row / 2] * (row % 3) for row in count]), pa.list_(pa.float32())),
        "box": pa.array(missing([[row, 1, 2, 3] for row in count]), pa.list_(pa.float32())),
        "day": pa.array(missing([date(2026, 1, 1) + timedelta(row) for row in count]), pa.date32()),
        "when": pa.array([datetime(2026, 1, 2, 3, 4, row) for row in count], pa.timestamp("us")),
        "there": pa.array([datetime(2026, 1, 2, 3, 4, row, tzinfo=UTC) for row in count], pa.timestamp("ms", "UTC")),
        "clock": pa.array([time(1, 2, row) for row in count], pa.time64("us")),
        "money": pa.array(missing([Decimal(row - 3) / 100 for row in count]), pa.decimal128(12, 2)),
        "cent": pa.array([Decimal(row) / 10 for row in count], pa.decimal128(5, 1)),
        "words": pa.array(missing([["a", None, "é"][: row % 4] for row in count]), pa.list_(pa.string())),
        "deep": pa.array(missing([[[1, row], [], None][: row % 4] for row in count]), pa.list_(pa.list_(pa.int64()))),
        "objects": pa.array(
            missing([[{"name": f"n{row}", "area": row, "box": [1.0, None]}, None][: row % 3] for row in count]),
            pa.list_(pa.struct({"name": pa.string(), "area": pa.int64(), "box": pa.list_(pa.float32())})),
        ),
        "files": pa.array(
            [[{"bytes": JPEG, "path": None}] * (row % 3) for row in count],
            pa.list_(pa.struct({"bytes": pa.binary(), "path": pa.string()})),
        ),
        "map": pa.array(
            missing([[("a", row), ("b", None)][: row % 3] for row in count]), pa.map_(pa.string(), pa.int32())
        ),
        "inner": pa.array(
            missing([{"x": row, "y": {"z": f"z{row}"}} for row in count]),
            pa.struct({"x": pa.int64(), "y": pa.struct({"z": pa.string()})}),
        ),
        "nothing": pa.nulls(rows),
    }


def shown(name: str, value: Any) -> Any:
    """What stands for a value of pyarrow."""
    if name in ("day", "when", "clock"):
        text = value.isoformat()
        return f"{text}.000000" if name != "day" else text
    if name == "there":
        return value.replace(tzinfo=None).isoformat() + ".000Z"
    if name in ("money", "cent"):
        return str(value)
    if name == "map":
        return dict(value)
    return value


def expected(table: pa.Table) -> list[dict[str, Any]]:
    found = []
    for row in table.to_pylist():
        image, inner = row.pop("image", None), row.pop("inner", None)
        row = {name: shown(name, value) for name, value in row.items() if value is not None}
        if image is not None and image["bytes"] is not None:
            row["image"] = image["bytes"]
        if inner is not None:
            row |= {"inner.x": inner["x"], "inner.y.z": inner["y"]["z"]}
        found.append(row)
    return found


def parquet(table: pa.Table | dict[str, Any], **options: Any) -> MemoryStore:
    out = io.BytesIO()
    table = table if isinstance(table, pa.Table) else pa.table(table)
    pq.write_table(table, out, **{"row_group_size": 9} | options)
    return MemoryStore({"data/part.parquet": out.getvalue()})


def plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    return bytes(value) if isinstance(value, memoryview) else value


def check(store: MemoryStore, table: pa.Table) -> None:
    found, wanted = samples(PARQUET, store), expected(table)
    assert len(found) == len(wanted)
    for row, ((key, values), sample) in enumerate(zip(found, wanted, strict=True)):
        assert key == f"data/part/{row:08d}"
        assert {name: plain(value) for name, value in values.items()} == sample


@pytest.mark.one_in(5)
@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("dictionary", [False, True])
def test_every_type(compression: str, version: str, dictionary: bool) -> None:
    table = pa.table(columns())
    check(
        parquet(
            table,
            compression=compression,
            data_page_version=version,
            use_dictionary=dictionary,
            data_page_size=30,
            write_batch_size=3,
        ),
        table,
    )


ENCODED = {
    "i8": "DELTA_BINARY_PACKED",
    "i64": "DELTA_BINARY_PACKED",
    "u64": "BYTE_STREAM_SPLIT",
    "f4": "BYTE_STREAM_SPLIT",
    "f8": "BYTE_STREAM_SPLIT",
    "yes": "RLE",
    "text": "DELTA_BYTE_ARRAY",
    "raw": "DELTA_LENGTH_BYTE_ARRAY",
    "large": "DELTA_BYTE_ARRAY",
    "fixed": "BYTE_STREAM_SPLIT",
    "image.bytes": "DELTA_LENGTH_BYTE_ARRAY",
    "tokens.list.element": "DELTA_BINARY_PACKED",
    "floats.list.element": "BYTE_STREAM_SPLIT",
    "words.list.element": "DELTA_BYTE_ARRAY",
    "when": "DELTA_BINARY_PACKED",
}


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_other_encodings(compression: str) -> None:
    table = pa.table(columns(58))
    store = parquet(
        table,
        compression=compression,
        use_dictionary=False,
        column_encoding=ENCODED,
        row_group_size=40,
        data_page_size=200,
        write_batch_size=16,
    )
    check(store, table)


def test_lists_that_go_on_in_the_next_page() -> None:
    """Pages of version 1 need not begin with a row; those of version 2, and those of an index, do."""
    rows = [[row * 100 + one for one in range(row * 7 % 40)] for row in range(60)]
    table = pa.table({"tokens": pa.array(rows, pa.list_(pa.int32()))})
    for compression in ("none", "snappy"):
        for dictionary in (False, True):
            store = parquet(
                table, compression=compression, use_dictionary=dictionary, data_page_size=64, write_batch_size=7
            )
            check(store, table)


FEATURES = {
    "label": {"_type": "ClassLabel", "names": ["ape", "wolf"]},
    "image": {"_type": "Image"},
    "grid": {"_type": "Array2D", "shape": [2, 3], "dtype": "float32"},
    "tall": {"_type": "Array2D", "shape": [None, 2], "dtype": "int32"},
    "box": {"_type": "List", "feature": {"_type": "Value", "dtype": "float32"}, "length": 4},
}


def hugging_face(rows: int = 5) -> pa.Table:
    table = pa.table(
        {
            "image": [{"bytes": JPEG, "path": "a.jpg"}] * rows,
            "label": pa.array([row % 2 for row in range(rows)], pa.int64()),
            "grid": pa.array(
                [[[row, 1, 2], [3, 4, 5]] if row != 2 else None for row in range(rows)],
                pa.list_(pa.list_(pa.float32())),
            ),
            "tall": pa.array(
                [[[row, one] for one in range(row)] for row in range(rows)], pa.list_(pa.list_(pa.int32()))
            ),
            "box": pa.array([[row, 1, 2, 3] for row in range(rows)], pa.list_(pa.float32())),
        }
    )
    return table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": FEATURES}})})


@pytest.mark.parametrize("compression", ["none", "snappy"])
def test_features_of_hugging_face(compression: str) -> None:
    store = parquet(hugging_face(), compression=compression, use_dictionary=False)
    rows = [rows for _, rows in scanned(PARQUET, store)]
    found = recognised(PARQUET, listing_of(store))
    assert found.classes == ("ape", "wolf")
    assert "image.path" in found.notes[0]
    types = {column.name: str(column.type) for column in rows[0].columns}
    assert types == {
        "box": "array:float32:4",
        "cls": "int64",
        "grid": "array:float32:2,3",
        "image": "jpg",
        "tall": "array",
    }
    read = [values for _, values in samples(PARQUET, store)]
    assert read[1]["grid"].tolist() == [[1, 1, 2], [3, 4, 5]]
    assert "grid" not in read[2]
    assert read[3]["tall"].tolist() == [[3, 0], [3, 1], [3, 2]]
    assert read[3]["tall"].dtype == np.int32
    assert read[4]["box"].tolist() == [4, 1, 2, 3]
    assert read[1]["cls"] == 1


def test_chosen_columns_are_the_only_ones_that_are_read() -> None:
    table = pa.table({"a": [1, 2], "b": ["x", "y"], "image": [{"bytes": JPEG, "path": "p.jpg"}] * 2})
    store = parquet(table)
    listing = listing_of(store)
    listing.chosen = {"text": "b:str", "name": "image.path"}
    (one,) = recognised(PARQUET, listing).objects
    raw = bytearray(store.get(one.path))
    place = raw.index(b"PAR1") + 4
    raw[place : place + 10] = bytes(10)  # where `a` lies
    damaged = MemoryStore({one.path: bytes(raw)})
    from shardstream.formats.contract import shown as opened

    _, data, _ = opened(PARQUET, damaged, one)
    (rows,) = PARQUET.scan(data, one.about)
    assert [column.name for column in rows.columns] == ["b", "image.path"]


def test_large_row_groups_become_several_shards_and_small_ones_one() -> None:
    table = pa.table({"n": list(range(3 * PIECE // 2))})
    assert [len(rows.keys) for _, rows in scanned(PARQUET, parquet(table, row_group_size=10**6))] == [
        PIECE * 3 // 4
    ] * 2
    assert [len(rows.keys) for _, rows in scanned(PARQUET, parquet(table, row_group_size=100))] == [2050, 2050, 2044]


@pytest.mark.full
def test_what_datasets_writes_is_what_it_reads(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {
            "image": datasets.Image(decode=False),
            "label": datasets.ClassLabel(names=["ape", "wolf"]),
            "text": datasets.Value("string"),
            "tokens": datasets.Sequence(datasets.Value("int32")),
            "box": datasets.Sequence(datasets.Value("float32"), length=4),
            "grid": datasets.Array2D((2, 3), "float32"),
            "seen": {"name": datasets.Value("string"), "score": datasets.Value("float64")},
        }
    )
    rows = [
        {
            "image": {"bytes": JPEG + bytes([row]), "path": f"{row}.jpg"},
            "label": row % 2,
            "text": f"é{row}",
            "tokens": list(range(row % 5)),
            "box": [row, 1, 2, 3],
            "grid": [[row, 1, 2], [3, 4, 5]],
            "seen": {"name": f"n{row}", "score": row / 3},
        }
        for row in range(250)
    ]
    datasets.Dataset.from_list(rows, features=features).to_parquet(str(tmp_path / "train.parquet"))
    theirs = datasets.load_dataset("parquet", data_files=str(tmp_path / "*.parquet"), cache_dir=str(tmp_path / "cache"))
    found = samples(PARQUET, MemoryStore({"train.parquet": (tmp_path / "train.parquet").read_bytes()}))
    for (_, one), other in zip(found, theirs["train"], strict=True):
        values = {name: plain(value) for name, value in one.items()}
        assert values == {
            "image": other["image"]["bytes"],
            "cls": other["label"],
            "text": other["text"],
            "tokens": other["tokens"],
            "box": other["box"],
            "grid": other["grid"],
            "seen.name": other["seen"]["name"],
            "seen.score": other["seen"]["score"],
        }
