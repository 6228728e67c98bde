"""Arrow files and streams are read in place as pyarrow reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import feather

from shardstream.errors import FormatError, UsageError
from shardstream.formats.arrow.format import Arrow
from shardstream.formats.contract import ObjectListing
from shardstream.formats.scans.rows import PIECE
from tests.formats.arrow_tables import FILE, every_type, image, of_every_type, photographs, write
from tests.formats.scanning import in_memory, listing_of, recognised, samples, scanned

ROWS = 23


def plain(values: dict[str, Any]) -> dict[str, Any]:
    """Arrays as lists."""
    return {name: one.tolist() if isinstance(one, np.ndarray) else one for name, one in values.items()}


@pytest.mark.one_in(5)
@pytest.mark.parametrize("codec", [None, "lz4", "zstd"])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("rows", [7, pytest.param(1000, marks=pytest.mark.full)])
def test_every_type(tmp_path: Path, codec: str | None, stream: bool, rows: int) -> None:
    table = every_type(ROWS)
    write(tmp_path / "a.arrow", table, rows=rows, stream=stream, codec=codec)
    found = samples(Arrow(), tmp_path)
    assert [plain(values) for _, values in found] == of_every_type(table)
    assert [key for key, _ in found] == [f"a/{row:08d}" for row in range(ROWS)]
    if rows == 7:
        again = [plain(values) for _, values in samples(Arrow(), in_memory(tmp_path))]
        assert again == of_every_type(table)


def test_large_batches_are_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = every_type(ROWS)
    write(tmp_path / "a.arrow", table, rows=1000)
    monkeypatch.setattr("shardstream.formats.arrow.rows._AT_ONCE", 5)
    assert [plain(values) for _, values in samples(Arrow(), tmp_path)] == of_every_type(table)


def test_types_of_fields(tmp_path: Path) -> None:
    write(tmp_path / "a.arrow", every_type(ROWS))
    ((_, rows),) = scanned(Arrow(), tmp_path)
    kinds = {column.name: (str(column.type), column.codec) for column in rows.columns}
    assert kinds["l.values"] == ("values:uint16", "none")
    assert kinds["l.fixed_twice"] == ("array:int8:2,2", "none")
    assert kinds["l.rows"] == ("array", "arrow.rows:int8:2")
    assert kinds["j.texts"] == ("json", "none")
    assert kinds["j.images"] == ("msgpack", "none")
    assert kinds["n.uint64"] == ("uint64", "none")


@pytest.mark.parametrize("codec", [None, "lz4"])
def test_slices_of_tables(tmp_path: Path, codec: str | None) -> None:
    # Offsets of what is cut out of a table need not begin at 0, nor bitmaps at a byte.
    table = every_type(ROWS)
    parts = [table.slice(0, 3), table.slice(3, 9), table.slice(12, 0), table.slice(12)]
    table = pa.concat_tables(parts)
    write(tmp_path / "a.arrow", table, rows=5, codec=codec)
    assert [plain(values) for _, values in samples(Arrow(), tmp_path)] == of_every_type(table)


@pytest.mark.parametrize("compression", ["uncompressed", "lz4", "zstd"])
def test_feather(tmp_path: Path, compression: Any) -> None:
    feather.write_feather(photographs(range(9)), str(tmp_path / "a.feather"), compression=compression)
    assert [values["image"] for _, values in samples(Arrow(), tmp_path)] == [image(row) for row in range(9)]


def test_feather_of_version_1_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.feather").write_bytes(b"FEA1" + bytes(60) + b"FEA1")
    with pytest.raises(FormatError, match="Feather of version 1"):
        samples(Arrow(), tmp_path)


def test_images_labels_and_paths(tmp_path: Path) -> None:
    table = photographs(range(9))
    nothing = pa.table({"image": pa.array([{"bytes": None, "path": "x/1.jpg"}, None], FILE), "label": [1, None]})
    full = pa.concat_tables([table, nothing], promote_options="default")
    write(tmp_path / "a.arrow", full.replace_schema_metadata(table.schema.metadata))
    listing = listing_of(tmp_path)
    found = recognised(Arrow(), listing)
    assert found.classes == ("ape", "cat", "wolf")
    assert [note for note in found.notes if "image.path" in note]
    values = [values for _, values in samples(Arrow(), tmp_path)]
    assert values[1] == {"image": image(1), "cls": 1, "caption": "number 1"}
    assert values[9:] == [{"cls": 1}, {}]
    ((_, rows),) = scanned(Arrow(), tmp_path)
    assert {column.name: str(column.type) for column in rows.columns}["image"] == "jpg"
    chosen = ObjectListing(listing.store, listing.objects, chosen={"name": "image.path", "y": "label"})
    (one,) = recognised(Arrow(), chosen).objects
    data = Arrow().open(listing.store, one)
    columns = next(iter(Arrow().scan(data, one.about))).columns
    assert [column.name for column in columns] == ["image.path", "label"]
    assert recognised(Arrow(), chosen).classes == ("ape", "cat", "wolf")


def test_the_first_file_that_can_be_read_tells_the_classes(tmp_path: Path) -> None:
    (tmp_path / "0.arrow").write_bytes(b"")
    write(tmp_path / "1.arrow", photographs(range(3)))
    found = recognised(Arrow(), listing_of(tmp_path))
    assert found.classes == ("ape", "cat", "wolf")
    assert len(found.objects) == 2


def test_images_of_which_only_paths_are_stored_are_refused(tmp_path: Path) -> None:
    for kind in (FILE, pa.struct({"bytes": pa.null(), "path": pa.string()})):
        images = pa.array([{"bytes": None, "path": f"/data/{row}.jpg"} for row in range(3)], kind)
        write(tmp_path / "a.arrow", pa.table({"image": images, "label": range(3)}))
        with pytest.raises(FormatError, match="only the paths of files"):
            samples(Arrow(), tmp_path)
        listing = listing_of(tmp_path)
        chosen = ObjectListing(listing.store, listing.objects, chosen={"path": "image.path"})
        assert recognised(Arrow(), chosen).classes is None


def test_small_batches_are_joined_and_large_ones_are_cut(tmp_path: Path) -> None:
    table = pa.table({"a": pa.array(range(3 * PIECE), pa.int32())})
    write(tmp_path / "small.arrow", table, rows=1000)
    write(tmp_path / "large.arrow", table, rows=1 << 20)
    counts: dict[str, list[int]] = {}
    for path, rows in scanned(Arrow(), tmp_path):
        counts.setdefault(path, []).append(len(rows.keys))
    assert counts == {"large.arrow": [PIECE] * 3, "small.arrow": [4000, 4000, 4000, 288]}
    numbers = [values["a"] for key, values in samples(Arrow(), tmp_path) if key.startswith("small")]
    assert numbers == [*range(3 * PIECE)]


def test_dictionaries_that_others_take_the_place_of(tmp_path: Path) -> None:
    kind = pa.dictionary(pa.int8(), pa.string())
    schema = pa.schema({"a": kind})
    with pa.ipc.new_stream(str(tmp_path / "a.arrow"), schema) as writer:
        for words in (["x", "y"], ["z"], []):
            column = pa.array([*words, None], kind)
            writer.write_batch(pa.record_batch([column], schema))
    assert [values for _, values in samples(Arrow(), tmp_path)] == [{"a": "x"}, {"a": "y"}, {}, {"a": "z"}, {}, {}]


def test_dictionaries_that_add_to_others_are_refused(tmp_path: Path) -> None:
    kind = pa.dictionary(pa.int8(), pa.string())
    schema = pa.schema({"a": kind})
    options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
    with pa.ipc.new_stream(str(tmp_path / "a.arrow"), schema, options=options) as writer:
        for words in (["x"], ["x", "y"]):
            indices = pa.array(range(len(words)), pa.int8())
            writer.write_batch(pa.record_batch([pa.DictionaryArray.from_arrays(indices, words)], schema))
    with pytest.raises(FormatError, match="delta"):
        samples(Arrow(), tmp_path)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array([[1, None], [2]]), "without a value in lists"),
        (pa.array([[[1, 2], [3, None]]], pa.list_(pa.list_(pa.int8(), 2))), "without a value in lists"),
        (pa.array([[[1, 2], None]], pa.list_(pa.list_(pa.int8(), 2))), "without a value in lists"),
        (pa.RunEndEncodedArray.from_arrays([1, 2], ["a", "b"]), "run_end_encoded"),
        (pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])]), "sparse_union"),
        (pa.array([None], pa.month_day_nano_interval()), "interval"),
    ],
)
def test_columns_that_cannot_be_read_are_refused_by_name(tmp_path: Path, column: pa.Array, message: str) -> None:
    write(tmp_path / "a.arrow", pa.table({"first": range(len(column)), "odd": column}))
    with pytest.raises(FormatError, match=message) as caught:
        samples(Arrow(), tmp_path)
    assert "odd" in str(caught.value)
    listing = listing_of(tmp_path)
    rest = ObjectListing(listing.store, listing.objects, chosen={"first": "first"})
    (one,) = recognised(Arrow(), rest).objects
    assert sum(len(rows.keys) for rows in Arrow().scan(Arrow().open(listing.store, one), one.about)) == len(column)


def test_lists_as_json(tmp_path: Path) -> None:
    write(tmp_path / "a.arrow", pa.table({"a": [[1, None], None, [float("nan")]], "b": ["x", "y", "z"]}))
    found = [values for _, values in samples(Arrow(), tmp_path, {"json": "a"})]
    assert found == [{"a": [1, None], "b": "x"}, {"b": "y"}, {"a": [None], "b": "z"}]
    with pytest.raises(UsageError, match="'b' is not a column of lists"):
        samples(Arrow(), tmp_path, {"json": "b"})


def test_arrays_whose_shape_only_features_tell(tmp_path: Path) -> None:
    table = pa.table({"a": pa.array([[[1, 2], [3, 4]], None, [[5, 6], [7, 8]]], pa.list_(pa.list_(pa.float32())))})
    feature = {"a": {"shape": [2, 2], "dtype": "float32", "_type": "Array2D"}}
    metadata = {"huggingface": json.dumps({"info": {"features": feature}})}
    write(tmp_path / "a.arrow", table.replace_schema_metadata(metadata))
    found = [plain(values) for _, values in samples(Arrow(), tmp_path)]
    assert found == [{"a": [[1, 2], [3, 4]]}, {}, {"a": [[5, 6], [7, 8]]}]
    other = pa.table({"a": pa.array([[[1, 2, 3], [4]]], pa.list_(pa.list_(pa.float32())))})
    write(tmp_path / "a.arrow", other.replace_schema_metadata(metadata))
    with pytest.raises(FormatError, match="should all have 2 elements"):
        samples(Arrow(), tmp_path)


def test_without_columns(tmp_path: Path) -> None:
    write(tmp_path / "a.arrow", pa.table({"a": pa.nulls(3)}))
    with pytest.raises(FormatError, match="no column with values"):
        samples(Arrow(), tmp_path)


def test_numbers_in_big_endian_order_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.arrow", pa.table({"a": [1]}), stream=True)
    data = bytearray((tmp_path / "a.arrow").read_bytes())

    def number(at: int, width: int = 4, *, signed: bool = False) -> int:
        return int.from_bytes(data[at : at + width], "little", signed=signed)

    root = 8 + number(8)
    header = root + number(root - number(root, signed=True) + 4 + 2 * 2, 2)
    schema = header + number(header)
    fields = schema - number(schema, signed=True) + 4
    # The endianness is the first field, and absent where it is little: let the offset of the columns stand for it.
    data[fields : fields + 2] = data[fields + 2 : fields + 4]
    (tmp_path / "a.arrow").write_bytes(data)
    with pytest.raises(FormatError, match="big-endian"):
        samples(Arrow(), tmp_path)
