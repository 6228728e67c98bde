"""Arrow tables with columns of every type, written by pyarrow, and what each becomes."""

from __future__ import annotations

import datetime
import decimal
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

FILE = pa.struct({"bytes": pa.binary(), "path": pa.string()})


def image(row: int) -> bytes:
    """What begins as a JPEG file does."""
    return b"\xff\xd8\xff" + bytes([row % 256]) * (10 * row % 300 + 9)


def photographs(rows: Sequence[int], *, features: bool = True) -> pa.Table:
    """What `datasets` writes of images with labels and captions."""
    images = [{"bytes": image(row), "path": f"{row % 3}.jpg" if row % 4 else None} for row in rows]
    table = pa.table(
        {
            "image": pa.array(images, FILE),
            "label": pa.array([row % 3 for row in rows], pa.int64()),
            "caption": pa.array([f"number {row}" if row % 5 else None for row in rows], pa.string()),
        }
    )
    told = {
        "image": {"_type": "Image"},
        "label": {"names": ["ape", "cat", "wolf"], "_type": "ClassLabel"},
        "caption": {"dtype": "string", "_type": "Value"},
    }
    metadata = {"huggingface": json.dumps({"info": {"features": told}})}
    return table.replace_schema_metadata(metadata if features else None)


def of_photograph(row: int) -> dict[str, Any]:
    """The sample of a row of `photographs`."""
    caption = {"caption": f"number {row}"} if row % 5 else {}
    return {"image": image(row), "cls": row % 3, **caption}


def write(path: Path, table: pa.Table, *, rows: int = 7, stream: bool = False, codec: str | None = None) -> None:
    """A file or stream with batches of so many rows."""
    make = pa.ipc.new_stream if stream else pa.ipc.new_file
    with make(str(path), table.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_table(table, max_chunksize=rows)


def every_type(count: int) -> pa.Table:
    """A column of every type that can be read, with rows that have no value."""
    rows = range(count)
    day = datetime.date(2020, 1, 1)

    def column(value: Any, kind: Any = None, without: int = -1) -> pa.Array:
        return pa.array([None if row == without else value(row) for row in rows], kind)

    numbers = {
        **{f"n.{name}": column(lambda i: i, getattr(pa, name)(), 5) for name in ("int8", "uint16", "int32", "uint64")},
        **{f"n.{name}": column(lambda i: i / 2, getattr(pa, name)(), 6) for name in ("float32", "float64")},
        "n.float16": pa.array(np.arange(count, dtype=np.float16)),
        "n.bool": column(lambda i: i % 3 == 0, without=5),
        "n.of_dictionary": column(lambda i: i % 4 * 1.5).dictionary_encode(),
    }
    texts = {
        "t.string": column(lambda i: f"é{i}" * i, without=2),
        "t.large_string": column(lambda i: f"x{i}" * i, pa.large_string()),
        "t.string_view": column(lambda i: f"view{i}" * i, pa.string_view(), 3),
        "t.of_dictionary": column(lambda i: f"d{i % 4}", without=7).dictionary_encode(),
        "b.binary": column(lambda i: b"%d" % i * i, without=0),
        "b.large_binary": column(lambda i: b"%d" % i * i, pa.large_binary()),
        "b.binary_view": column(lambda i: b"%d" % i * i, pa.binary_view()),
        "b.of_one_size": column(lambda i: b"%03d" % i, pa.binary(3), 3),
    }
    lists = {
        "l.values": column(lambda i: [*range(i)], pa.list_(pa.uint16()), 4),
        "l.large_values": column(lambda i: [*range(i)], pa.large_list(pa.float32())),
        "l.views": column(lambda i: [*range(i)], pa.list_view(pa.int32()), 1),
        "l.fixed": column(lambda i: [i, i + 1, i + 2], pa.list_(pa.float32(), 3), 6),
        "l.fixed_twice": column(lambda i: [[i, i + 1], [1, 2]], pa.list_(pa.list_(pa.int8(), 2), 2)),
        "l.rows": column(lambda i: [[i, i + 1]] * (i % 3), pa.list_(pa.list_(pa.int8(), 2)), 8),
    }
    nested = {
        "j.ragged": column(lambda i: [[i] * (i % 3)] * (i % 3), without=9),
        "j.texts": column(lambda i: [f"é{i}", None][: i % 3], without=2),
        "j.structs": column(lambda i: [{"a": i, "b": None, "c": {"d": i / 4}}] * (i % 3)),
        "j.views": column(lambda i: ["a", "long enough for a buffer"] * (i % 3), pa.list_(pa.string_view())),
        "j.truths": column(lambda i: [True, False] * (i % 3), pa.list_view(pa.bool_())),
        "j.map": column(lambda i: [("k", i)], pa.map_(pa.string(), pa.int64())),
        "j.pairs": column(lambda i: [(i, "v")], pa.map_(pa.int8(), pa.string())),
        "j.stamp": column(lambda i: datetime.datetime(2020, 1, 1, i % 24), pa.timestamp("s")),
        "j.zoned": column(lambda i: datetime.datetime(2020, 1, 1, i % 24), pa.timestamp("ms", "UTC"), 3),
        "j.date": column(lambda i: day + datetime.timedelta(i)),
        "j.date64": column(lambda i: day + datetime.timedelta(i), pa.date64()),
        "j.time": column(lambda i: datetime.time(1, 2, 3, i), pa.time64("us")),
        "j.duration": column(lambda i: i, pa.duration("ms")),
        "j.decimal": column(lambda i: decimal.Decimal(f"-{i}.25")),
        "j.images": column(lambda i: [{"bytes": image(i), "path": None}] * (i % 3), pa.list_(FILE)),
    }
    structs = {
        "s": column(lambda i: {"x": i, "y": {"z": f"z{i}"}}, without=8),
        "nothing": pa.nulls(count),
    }
    return pa.table({**numbers, **texts, **lists, **nested, **structs})


def of_every_type(table: pa.Table) -> list[dict[str, Any]]:
    """The samples that the rows of `every_type` become, as pyarrow reads them."""
    return [{name: one for name, one in _flat(row).items() if one is not None} for row in table.to_pylist()]


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    found = {name: one for name, one in row.items() if name not in ("s", "nothing")}
    if row["s"]:
        found |= {"s.x": row["s"]["x"], "s.y.z": row["s"]["y"]["z"]}
    changed = {
        "j.map": dict,
        "j.pairs": lambda some: [list(one) for one in some],
        "j.stamp": lambda one: one.isoformat(),
        "j.zoned": lambda one: one.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z",
        "j.date": lambda one: one.isoformat(),
        "j.date64": lambda one: one.isoformat(),
        "j.time": lambda one: one.isoformat(timespec="microseconds"),
        "j.duration": lambda one: one // datetime.timedelta(milliseconds=1),
        "j.decimal": str,
        "j.images": lambda some: [one["bytes"] for one in some],
    }
    return found | {name: change(row[name]) for name, change in changed.items() if row[name] is not None}
