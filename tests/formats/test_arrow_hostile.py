"""Arrow objects that are cut off, changed, or made to mislead."""

from __future__ import annotations

import io
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from shardstream.errors import DataError, FormatError
from shardstream.formats.arrow.format import Arrow, npy_of_rows
from shardstream.formats.contract import SourceObject, shown
from shardstream.testing import MemoryStore
from tests.formats.arrow_tables import every_type, photographs
from tests.formats.damaging import check_column, cut, flipped
from tests.formats.scanning import decoded, samples


def written(table: pa.Table, *, stream: bool = False, codec: str | None = None, rows: int = 5) -> bytes:
    out = io.BytesIO()
    make = pa.ipc.new_stream if stream else pa.ipc.new_file
    with make(out, table.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_table(table, max_chunksize=rows)
    return out.getvalue()


def read(data: bytes, about: Mapping[str, Any] | None = None) -> tuple[int, str]:
    """Samples of an object, and the error or damage; nothing but errors of ours, and no place outside of it."""
    store = MemoryStore({"object.arrow": data})
    one = SourceObject("object.arrow", len(data), about or {})
    count, message = 0, ""
    try:
        seen, inflated, _ = shown(Arrow(), store, one)
        for rows in Arrow().scan(inflated, one.about):
            count += len(rows.keys)
            message = "" if rows.damage is None else str(rows.damage)
            for column in rows.columns:
                check_column(column, len(rows.keys), inflated.size)
            with suppress(DataError, ValueError):  # values that are no text, and compressed ones that do not inflate
                for _ in decoded(Arrow(), seen, one.path, rows):
                    pass
    except FormatError as error:
        message = str(error)
    return count, message


@pytest.mark.one_in(3)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("codec", [None, "lz4"])
def test_cut_off_at_every_byte(stream: bool, codec: str | None) -> None:
    data = written(photographs(range(12)), stream=stream, codec=codec)
    whole = read(data)
    assert whole == (12, "")
    counts = []
    for part in cut(data, 61):
        count, message = read(part)
        counts.append(count)
        # A stream may end after any batch.
        assert message or stream
    assert counts == sorted(counts)
    assert {0, 5, 10} <= set(counts) <= {0, 5, 10, 12}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("codec", [None, "zstd"])
@pytest.mark.parametrize("stream", [False, True])
def test_changed_bytes(stream: bool, codec: str | None) -> None:
    data = written(every_type(9), stream=stream, codec=codec)
    for changed in flipped(data, 8, seed=stream):
        read(changed)


def test_what_is_cut_off_says_how_much_is_whole() -> None:
    data = written(photographs(range(12)))
    count, message = read(data[:-200])
    assert count == 12
    assert "cut off" in message
    assert "offset" in message
    data = written(every_type(12))
    count, message = read(data[: len(data) // 2])
    assert count == 5
    assert "cut off" in message


def test_a_footer_of_another_file() -> None:
    one, other = written(photographs(range(12))), written(photographs(range(12)), rows=3)
    end, other_end = (int.from_bytes(data[-10:-6], "little") + 10 for data in (one, other))
    count, message = read(one[:-end] + other[-other_end:])
    assert count == 12
    assert "the footer lists 4 batches, and 3 are there" in message


def test_values_that_are_not_utf_8(tmp_path: Path) -> None:
    data = written(pa.table({"a": [["xyz"]]}))
    (tmp_path / "a.arrow").write_bytes(data.replace(b"xyz", b"\xff\xfe\xfd"))
    assert [values for _, values in samples(Arrow(), tmp_path)] == [{"a": ["���"]}]


def test_more_rows_than_bytes() -> None:
    table = pa.table({"a": pa.nulls(1_000_000), "b": pa.array([[]] * 1_000_000, pa.list_(pa.null(), 0))})
    count, message = read(written(table, rows=1_000_000))
    assert not count
    assert "rows cannot be in an object of" in message or "no column" in message


@pytest.mark.parametrize("text", ["float32:0", "int8:-1", "uint8:3,-1", "uint8:7"])
def test_rows_that_are_no_arrays(text: str) -> None:
    with pytest.raises(ValueError, match=r"hold no|rows of"):
        npy_of_rows(memoryview(b"12345678"), text)
