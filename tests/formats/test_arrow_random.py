"""Tables of random types, nested in each other, with values that are not there: read as pyarrow reads them."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from shardstream.errors import FormatError
from shardstream.formats.arrow.format import Arrow
from tests.formats.scanning import samples

LEAVES = (
    *(pa.bool_(), pa.int8(), pa.uint16(), pa.int64(), pa.float32(), pa.float64()),
    *(pa.string(), pa.large_string(), pa.string_view()),
    *(pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(3)),
)


def kind_of_column(draw: random.Random, depth: int = 0) -> pa.DataType:
    if depth > 2 or draw.random() < 0.4:
        return draw.choice(LEAVES)
    inner = kind_of_column(draw, depth + 1)
    return draw.choice(
        (
            *(pa.list_(inner), pa.large_list(inner), pa.list_(inner, draw.randrange(1, 4))),
            *(pa.list_view(inner), pa.large_list_view(inner), pa.map_(pa.string(), inner)),
            pa.struct([("a", inner), ("b", draw.choice(LEAVES))]),
        )
    )


def value(draw: random.Random, kind: pa.DataType) -> Any:
    if draw.random() < 0.15:
        return None
    if pa.types.is_map(kind):
        return [(f"k{number}", value(draw, kind.item_type)) for number in range(draw.randrange(3))]
    if pa.types.is_struct(kind):
        return {one.name: value(draw, one.type) for one in kind}
    if pa.types.is_fixed_size_list(kind):
        return [value(draw, kind.value_type) for _ in range(kind.list_size)]
    if pa.types.is_fixed_size_binary(kind):
        return draw.randbytes(kind.byte_width)
    if kind in LEAVES:
        text = "é" * draw.randrange(20)
        made = {"b": draw.random() < 0.5, "i": draw.randrange(100), "f": draw.randrange(100) / 4, "s": text}
        name = str(kind).removeprefix("large_").removeprefix("u").replace("double", "float")
        return text.encode() if name.startswith("binary") else made[name[0]]
    return [value(draw, kind.value_type) for _ in range(draw.randrange(4))]


def read(folder: Path) -> list[dict[str, Any]]:
    """Lists with elements that are not there, or of other lengths, are taken as JSON."""
    names: list[str] = []
    while True:
        try:
            found = samples(Arrow(), folder, {"json": ",".join(names)} if names else {})
        except FormatError as error:
            told = re.search(r"column '([^']+)': (there are elements|lists that)", str(error))
            if told is None or told[1] in names:
                raise
            names.append(told[1])
        else:
            return [{name: plain(one) for name, one in values.items()} for _, values in found]


def plain(found: Any) -> Any:
    return found.tolist() if isinstance(found, np.ndarray) else found


def expected(name: str, kind: pa.DataType, found: Any) -> dict[str, Any]:
    """The fields that a value becomes."""
    if pa.types.is_struct(kind):
        parts = (expected(f"{name}.{one.name}", one.type, found and found[one.name]) for one in kind)
        return {name: one for part in parts for name, one in part.items()}
    return {} if found is None else {name: nested(kind, found)}


def nested(kind: pa.DataType, found: Any) -> Any:
    if found is None or kind in LEAVES:
        return found
    if pa.types.is_map(kind):
        return {key: nested(kind.item_type, one) for key, one in found}
    if pa.types.is_struct(kind):
        return {one.name: nested(one.type, found[one.name]) for one in kind}
    return [nested(kind.value_type, one) for one in found]


@pytest.mark.parametrize("seed", [*range(8), *(pytest.param(seed, marks=pytest.mark.full) for seed in range(8, 150))])
def test_random_tables(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    count = draw.randrange(1, 40)
    kinds = {name: kind_of_column(draw) for name in "xyz"}
    columns = {name: pa.array([value(draw, kind) for _ in range(count)], kind) for name, kind in kinds.items()}
    begin, end = sorted((draw.randrange(count + 1), draw.randrange(count + 1)))
    whole = pa.table(columns)
    table = pa.concat_tables([whole.slice(0, begin), whole.slice(begin, end - begin), whole.slice(end)])
    make = draw.choice((pa.ipc.new_file, pa.ipc.new_stream))
    options = pa.ipc.IpcWriteOptions(compression=draw.choice((None, "lz4", "zstd")))
    with make(str(tmp_path / "a.arrow"), table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=draw.randrange(1, 20))
    wanted = [
        {name: one for column, kind in kinds.items() for name, one in expected(column, kind, row[column]).items()}
        for row in table.to_pylist()
    ]
    assert read(tmp_path) == wanted
