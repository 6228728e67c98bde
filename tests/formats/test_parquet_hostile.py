"""Parquet files that are damaged, lie, or are of a kind that is refused."""

from __future__ import annotations

import io
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardstream.errors import ChecksumError, DecodeError, FormatError, UsageError
from shardstream.formats.blocks.codecs import CODECS, inflate
from shardstream.formats.blocks.parquet.thrift import Thrift
from shardstream.formats.contract import ObjectListing, SourceObject
from shardstream.formats.contract import shown as opened
from shardstream.formats.parquet.format import Parquet
from shardstream.formats.scans.object_bytes import ObjectBytes
from shardstream.testing import MemoryStore

from .damaging import check_column, cut, flipped
from .scanning import decoded, listing_of, samples
from .test_parquet import JPEG, columns, parquet

PARQUET = Parquet()


def stored(table: dict[str, Any], **options: Any) -> bytes:
    return bytes(parquet(pa.table(table), **options).get("data/part.parquet"))


def read(data: bytes) -> None:
    """All of a file, as far as it is sound; FormatError where it is not found out before values are read."""
    store = MemoryStore({"x.parquet": data})
    one = SourceObject("x.parquet", len(data), {"size": len(data), "chosen": []})
    with suppress(FormatError):
        shows, shown, _ = opened(PARQUET, store, one)
        for rows in PARQUET.scan(shown, one.about):
            for column in rows.columns:
                check_column(column, len(rows.keys), shown.size)
            with suppress(DecodeError, ChecksumError):
                list(decoded(PARQUET, shows, one.path, rows))


SMALL = ("i64", "text", "image", "tokens", "day", "objects")
KINDS = [
    {"compression": "none", "use_dictionary": False},
    {"compression": "snappy"},
    {"compression": "zstd", "data_page_version": "2.0", "data_page_size": 64, "write_batch_size": 4},
]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("options", KINDS)
def test_cut_off_and_changed_files(options: dict[str, Any]) -> None:
    table = {name: value for name, value in columns(12).items() if name in SMALL}
    data = stored(table, store_schema=False, write_statistics=False, **options)
    for damaged in cut(data, 399):
        read(damaged)
    for damaged in flipped(data, 80):
        read(damaged)
    last = len(data) - int.from_bytes(data[-8:-4], "little") - 8
    for footer in flipped(data[last:-8], 50):
        read(data[:last] + footer + data[-8:])


def refusal(data: bytes, name: str = "x.parquet") -> FormatError:
    store = MemoryStore({name: data})
    with pytest.raises(FormatError) as caught:
        samples(PARQUET, store)
    assert caught.value.hint
    assert store.locate(name) in str(caught.value)
    return caught.value


def test_files_without_a_footer() -> None:
    data = stored({"a": [1, 2, 3]})
    for damaged in (data[:-1], data[:-9], b"PAR1" + bytes(100), b"PAR1PAR1"):
        assert "fetch or write the file again" in str(refusal(damaged))
    assert "footer" in str(refusal(data[:-8] + b"\xff\xff\xff\x7fPAR1"))


def test_encrypted_files_are_refused_by_name() -> None:
    data = stored({"a": [1, 2, 3]})
    assert "encrypted" in str(refusal(b"PARE" + data[4:-4] + b"PARE"))


def test_types_that_are_not_read_are_refused_by_name() -> None:
    import datetime

    out = io.BytesIO()
    pq.write_table(
        pa.table({"t": [datetime.datetime(2026, 1, 2)], "b": [1]}), out, use_deprecated_int96_timestamps=True
    )
    error = refusal(out.getvalue())
    assert "'t'" in str(error)
    assert "int96" in str(error)
    assert "--field" in str(error)
    store = MemoryStore({"x.parquet": out.getvalue()})
    listing = listing_of(store)
    listing.chosen = {"b": "b"}
    found = PARQUET.recognize(listing, {})
    assert found is not None
    _, data, _ = opened(PARQUET, store, found.objects[0])
    (rows,) = PARQUET.scan(data, found.objects[0].about)
    assert [column.name for column in rows.columns] == ["b"]


def test_a_missing_element_of_a_list_of_integers_is_refused() -> None:
    error = refusal(stored({"a": pa.array([[1, None]], pa.list_(pa.int32()))}))
    assert "an element of a list of integers is missing" in str(error)
    assert "json=COLUMN" in str(error)


def of_spark(definition: int) -> bytes:
    """A file of one column x of [1, None, 3], with an encoding of its levels of definition.

    parquet-mr and fastparquet name BIT_PACKED (4) for levels of repetition, of which there are none.
    """
    out = io.BytesIO()
    schema = pa.schema([("x", pa.int64())])
    with pq.ParquetWriter(out, schema, use_dictionary=False, compression="none", store_schema=False) as writer:
        writer.write_table(pa.table({"x": [1, None, 3]}, schema=schema))
    data = out.getvalue()
    before = bytes((0x15, 3 << 1)) * 2  # RLE, twice
    assert data.count(before) == 1
    return data.replace(before, bytes((0x15, definition << 1, 0x15, 4 << 1)))


def test_bit_packed_levels_are_refused_only_if_a_column_has_them() -> None:
    assert [values for _, values in samples(PARQUET, MemoryStore({"x.parquet": of_spark(3)}))] == [
        {"x": 1},
        {},
        {"x": 3},
    ]
    error = refusal(of_spark(4))
    assert "column 'x' cannot be read: its levels have the deprecated encoding BIT_PACKED" in str(error)
    assert "damaged" not in str(error)


def test_row_groups_without_rows_are_left_out() -> None:
    out = io.BytesIO()
    schema = pa.schema([("a", pa.int64()), ("s", pa.string()), ("d", pa.date32())])
    empty = schema.empty_table()
    with pq.ParquetWriter(out, schema) as writer:
        for table in (empty, pa.table({"a": [1], "s": ["x"], "d": [None]}, schema=schema), empty):
            writer.write_table(table)
    assert [values for _, values in samples(PARQUET, MemoryStore({"x.parquet": out.getvalue()}))] == [
        {"a": 1, "s": "x"}
    ]


@pytest.mark.parametrize("also", [{}, {"n": [1, 2]}])
def test_images_of_which_only_paths_are_there_are_refused(also: dict[str, Any]) -> None:
    error = refusal(stored({"image": [{"bytes": None, "path": f"{n}.jpg"} for n in range(2)], **also}))
    assert "column 'image' has only the paths of files" in str(error)
    some = stored({"image": [{"bytes": None, "path": "0.jpg"}, {"bytes": JPEG, "path": None}], **also})
    assert len(samples(PARQUET, MemoryStore({"x.parquet": some}))) == 2


def test_lists_that_are_taken_as_json() -> None:
    store = MemoryStore(
        {"x.parquet": stored({"a": pa.array([[1, None], [], None], pa.list_(pa.int32())), "b": [1, 2, 3]})}
    )
    found = [values for _, values in samples(PARQUET, store, {"json": "a"})]
    assert found == [{"a": [1, None], "b": 1}, {"a": [], "b": 2}, {"b": 3}]
    with pytest.raises(UsageError, match="'b' is not a column of lists"):
        PARQUET.recognize(listing_of(store), {"json": "b"})


def test_lists_that_are_not_of_their_shape() -> None:
    from .test_parquet import hugging_face

    table = hugging_face().drop_columns(["box", "tall"])
    grids = pa.array([[[1.0, 2.0], [3, 4, 5, 6]]] * 5, pa.list_(pa.list_(pa.float32())))
    data = parquet(table.set_column(table.schema.get_field_index("grid"), "grid", grids)).get("data/part.parquet")
    assert "[2, 3]" in str(refusal(bytes(data)))


def test_rows_before_the_damage_are_kept() -> None:
    table = {"text": [f"{row}" * 20 for row in range(9000)]}
    data = bytearray(stored(table, row_group_size=4500, use_dictionary=False, compression="snappy"))
    second = pq.ParquetFile(io.BytesIO(data)).metadata.row_group(1).column(0).data_page_offset
    data[second + 200 : second + 300] = bytes(100)
    one = SourceObject("x.parquet", len(data), {"size": len(data), "chosen": []})
    _, shown, _ = opened(PARQUET, MemoryStore({"x.parquet": bytes(data)}), one)
    found = PARQUET.scan(shown, one.about)
    assert [len(next(found).keys) for _ in range(2)] == [2250, 2250]
    with pytest.raises(FormatError, match="'text' of the rows from 4500 on"):
        next(found)


def test_tables_of_other_formats_are_refused_by_name() -> None:
    data = stored({"a": [1]})
    for beside, name in {"_delta_log/0.json": "Delta Lake", "metadata/v1.metadata.json": "Iceberg"}.items():
        with pytest.raises(FormatError, match=name):
            PARQUET.recognize(listing_of(MemoryStore({"a.parquet": data, beside: b"{}"})), {})


def test_what_is_not_recognised() -> None:
    data = stored({"a": [1]})

    def recognises(objects: dict[str, bytes]) -> bool:
        return PARQUET.recognize(ObjectListing(MemoryStore(objects), list(MemoryStore(objects).list())), {}) is not None

    assert recognises({"a.parquet": data, "README.md": b"", "_SUCCESS": b"", "_metadata": data})
    assert not recognises({"00000.tar": b"x", "00000.parquet": data})
    assert not recognises({"a.parquet": b"other"})


def test_checksums_of_pages_are_compared() -> None:
    data = bytearray(
        stored({"image": [{"bytes": JPEG * 9, "path": "a"}] * 9}, write_page_checksum=True, compression="none")
    )
    about = {"size": len(data), "chosen": []}

    def differences() -> list[FormatError]:
        found = ObjectBytes(MemoryStore({"x": bytes(data)}), "x", len(data))
        return list(PARQUET.differences(found, about))

    assert not differences()
    data[data.index(JPEG) + 10] ^= 1
    (error,) = differences()
    assert "CRC-32" in str(error)


def test_settings_of_blocks_that_lie() -> None:
    for setting in (
        b"",
        b"{}",
        b"[]",
        b'{"as_is":"x"}',
        b'{"values":[]}',
        b'{"rows":[1,2,3]}',
        b'{"as_is":"none","b":1}',
        b"\xff",
    ):
        with pytest.raises(DecodeError):
            inflate(CODECS["parquet"], memoryview(b"123456789"), 9, setting)


def test_structs_within_structs_have_an_end() -> None:
    for data in (
        b"\x1c" * 1000,
        b"\x19" * 1000,
        b"\x1b\x01\xbb" * 500,
        b"\x19\xfc\xff\xff\xff\xff\x0f",
        b"\x18\xff\xff\xff\xff\x0f",
    ):
        for wanted in ({}, {1: {}}, {1: None}, {1: [{}]}):
            with pytest.raises(DecodeError):
                Thrift(data).struct(wanted)
