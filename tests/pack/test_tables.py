"""Lists in Parquet and Arrow files."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet
import pytest

from shardstream import ImageOptions, StorageOptions
from shardstream.errors import DuplicateKeyError, FormatError, SourceError, UsageError
from shardstream.pack.run import pack
from shardstream.pack.sources import File, Item, Reject
from shardstream.pack.sources.opening import open_source

from ..storage.places import S3Place
from .making import jpeg, photo_list, samples

KINDS = ("parquet", "arrow", "stream.arrow", "feather")


def write(table: pa.Table, path: Path) -> Path:
    if path.suffix == ".parquet":
        pa.parquet.write_table(table, path, row_group_size=7)
    elif path.suffix == ".feather":
        pa.feather.write_feather(table, path)
    else:
        new = pa.ipc.new_stream if "stream" in path.name else pa.ipc.new_file
        with new(path, table.schema) as writer:
            writer.write_table(table, max_chunksize=7)
    return path


def make(folder: Path, columns: dict[str, Any], kind: str = "parquet", **metadata: Any) -> Path:
    table = pa.table(columns)
    if metadata:
        table = table.replace_schema_metadata({key: json.dumps(value) for key, value in metadata.items()})
    return write(table, folder / f"list.{kind}")


def read(path: Any, **options: Any) -> list[Item | Reject]:
    source = open_source(path, **options)
    return list(source.part(np.arange(len(source))))


def values(path: Any, **options: Any) -> list[object]:
    return [item.values if isinstance(item, Item) else item.reason for item in read(path, **options)]


@pytest.mark.parametrize("kind", KINDS)
def test_tables_of_every_kind(tmp_path: Path, kind: str) -> None:
    columns = {"w": [1.5, 2, 3] * 10, "label": [3, None, -4] * 10, "path": [f"a/{i}.jpg" for i in range(30)]}
    path = make(tmp_path, columns, kind)
    source = open_source(path)
    items = list(source.part(np.array([29, 0, 1])))
    assert items == [
        Item(30, "a/29.jpg", "29", {"jpg": File(str(tmp_path / "a/29.jpg")), "cls": -4}),
        Item(1, "a/0.jpg", "0", {"jpg": File(str(tmp_path / "a/0.jpg")), "cls": 3}),
        Reject(2, "a/1.jpg", "it has no label"),
    ]
    assert len(source) == 30
    assert "w" in source.notes[0]


def test_fields_of_every_type(tmp_path: Path) -> None:
    columns = {
        "photo": ["1.jpg", "2.jpg"],
        "text": ["é", None],
        "vector": [[1.0, 2.0], [3.0, 4.0]],
        "nested": [{"a": [1]}, {"a": []}],
        "flag": [True, False],
        "raw": [b"\xff", b""],
        "day": [date(2026, 1, 2)] * 2,
        "big": pa.array([2**64 - 1, 0], pa.uint64()),
    }
    fields = {
        "jpg": "photo",
        "txt": "text",
        "v": "vector:array:float32:2",
        "nested": "nested",
        "json": "nested:json",
        "flag": "flag",
        "raw": "raw",
        "day": "day",
        "big": "big:uint64",
    }
    one, two = values(make(tmp_path, columns), fields=fields)
    assert isinstance(one, dict)
    assert one.pop("v").tolist() == [1, 2]
    assert one.pop("nested.a").tolist() == [1]
    assert one == {
        "jpg": File(str(tmp_path / "1.jpg")),
        "txt": "é",
        "json": {"a": [1]},
        "flag": True,
        "raw": b"\xff",
        "day": "2026-01-02",
        "big": 2**64 - 1,
    }
    assert two == "it has no column 'text'"
    with pytest.raises(UsageError, match="no column 'x'"):
        read(tmp_path / "list.parquet", fields={"jpg": "x"})


def test_images_as_hugging_face_keeps_them(tmp_path: Path) -> None:
    features = {"label": {"names": ["ape", "wolf"], "_type": "ClassLabel"}, "image": {"_type": "Image"}}
    images = [{"bytes": jpeg(i), "path": f"{i}.jpg" if i else None} for i in range(3)]
    images += [{"bytes": None, "path": "x/9.jpg"}, {"bytes": jpeg(4), "path": "8.jpg"}]
    path = make(tmp_path, {"image": images, "label": [0, 1, 0, 1, 1]}, huggingface={"info": {"features": features}})
    source = open_source(path)
    assert source.classes == ("ape", "wolf")
    assert values(path) == [
        {"image": jpeg(0), "cls": 0},
        {"image": jpeg(1), "cls": 1},
        {"image": jpeg(2), "cls": 0},
        {"cls": 1},
        {"image": jpeg(4), "cls": 1},
    ]
    assert values(path, fields={"png": "image", "y": "label:int8"})[0] == {"png": jpeg(0), "y": 0}
    assert [item.key for item in read(path) if isinstance(item, Item)][:2] == ["list/00000000", "list/00000001"]
    manifest = pack(path, tmp_path / "out", key="line", images=ImageOptions(jpeg="keep"), workers=0)
    assert (manifest.samples, manifest.classes) == (5, ("ape", "wolf"))
    assert samples(tmp_path / "out")["0000000002"] == {"image": jpeg(1), "cls": 1}


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_images_of_hugging_face_that_are_files_beside_it(tmp_path: Path, kind: str) -> None:
    images = [{"bytes": None, "path": f"x/{i}.jpg"} for i in range(3)]
    path = make(tmp_path, {"image": images, "label": [0, 1, 0]}, kind)
    wanted = [{"jpg": File(str(tmp_path / f"x/{i}.jpg")), "cls": i % 2} for i in range(3)]
    assert values(path) == wanted
    assert values(path, fields={"jpg": "image", "cls": "label"}) == wanted


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_rows_of_a_table_are_samples(tmp_path: Path, kind: str) -> None:
    columns = {
        "image": [jpeg(i) for i in range(20)],
        "text": [f"t{i}.jpg" for i in range(20)],
        "tokens": [[i, 2, 3] for i in range(20)],
        "day": [date(2026, 1, 2)] * 20,
    }
    path = make(tmp_path, columns, kind)
    found = values(path)[7]
    assert isinstance(found, dict)
    assert found.pop("tokens").tolist() == [7, 2, 3]
    assert found == {"image": jpeg(7), "text": b"t7.jpg", "day": b'"2026-01-02"'}
    chosen = pack(path, tmp_path / "out", fields={"v": "tokens:array:float32:3", "image": "image"}, workers=0)
    assert {name: str(kind) for name, kind in chosen.fields.items()} == {"v": "array:float32:3", "image": "jpg"}
    folder = tmp_path / "several"
    folder.mkdir()
    make(folder, {"image": columns["image"]}, kind)
    for named in (folder, f"{folder}/*.{kind}", f"{folder}/list*"):
        assert values(named)[3] == {"image": jpeg(3)}


def test_columns_that_are_not_chosen_are_not_read(tmp_path: Path) -> None:
    path = make(tmp_path, {"a": ["a" * 50] * 3, "b": ["x", "y", "z"], "image": [jpeg(0)] * 3})
    data = bytearray(path.read_bytes())
    data[4:30] = bytes(26)
    path.write_bytes(data)
    assert values(path, fields={"b": "b"}) == [{"b": b"x"}, {"b": b"y"}, {"b": b"z"}]
    with pytest.raises(FormatError, match="'a'"):
        values(path)


@pytest.mark.full
@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_tables_of_large_images(tmp_path: Path, suffix: str) -> None:
    count = 2100
    images = [{"bytes": jpeg(i), "path": f"p{i:04d}.jpg"} for i in range(count)]
    table = pa.table({"image": images, "label": [i % 3 for i in range(count)], "txt": ["hi"] * count})
    features = {"label": {"_type": "ClassLabel", "names": ["a", "b", "c"]}}
    table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    for part in range(2):
        rows = table.slice(part * 1050, 1050)
        if suffix == "parquet":
            pa.parquet.write_table(rows, tmp_path / f"{part}.parquet", row_group_size=400)
        else:
            write(rows, tmp_path / f"{part}.arrow")
    assert len(open_source(tmp_path / f"0.{suffix}", fields={"txt": "txt"})) == 1050
    found = pack(f"{tmp_path}/*.{suffix}", tmp_path / "out", shard_size="500kB", workers=2)
    assert (found.samples, found.classes) == (count, ("a", "b", "c"))
    stored = samples(tmp_path / "out")
    for i in range(count):
        key = f"{i // 1050}/{i % 1050:08d}"
        assert stored[key] == {"image": jpeg(i), "cls": i % 3, "txt": b"hi"}
    chosen = pack(f"{tmp_path}/*.{suffix}", tmp_path / "two", fields={"jpg": "image", "txt": "txt"}, workers=0)
    assert set(chosen.fields) == {"jpg", "txt"}
    assert chosen.plan != found.plan
    pack(f"{tmp_path}/*.{suffix}", tmp_path / "lines", key="line", workers=0)
    assert samples(tmp_path / "lines")["0000002100"] == {"image": jpeg(2099), "cls": 2099 % 3, "txt": b"hi"}


def test_tables_of_images_whose_keys_stand_in_a_column(tmp_path: Path) -> None:
    count = 1100
    table = {
        "image": [jpeg(i) for i in range(count)],
        "label": [i % 3 for i in range(count)],
        "name": [f"n{i}" for i in range(count)],
        "same": ["x"] * count,
    }
    for part in range(2):
        pa.parquet.write_table(pa.table(table).slice(part * 550, 550), tmp_path / f"{part}.parquet", row_group_size=200)
    fields = {"jpg": "image", "cls": "label"}
    pack(f"{tmp_path}/*.parquet", tmp_path / "out", fields=fields, key="name", workers=0)
    assert samples(tmp_path / "out")["n1099"] == {"jpg": jpeg(1099), "cls": 1}
    with pytest.raises(UsageError, match="key='naem' is neither") as caught:
        pack(f"{tmp_path}/*.parquet", tmp_path / "two", key="naem", fields=fields, workers=0)
    assert "image, label, name, same" in str(caught.value)
    named = pack(f"{tmp_path}/*.parquet", tmp_path / "two", labels="name", fields=fields, key="name", workers=0)
    assert named.classes == ("0", "1", "2")
    with pytest.raises(DuplicateKeyError):
        pack(f"{tmp_path}/*.parquet", tmp_path / "three", key="same", fields=fields, workers=0)


def test_many_columns_beside_images_are_one_array(tmp_path: Path) -> None:
    columns: dict[str, Any] = {"image": [jpeg(i) for i in range(3)], "id": ["a", "b", "c"]}
    columns |= {f"f{i}": [i, i + 0.5, None if i == 2 else 1] for i in range(12)}
    path = make(tmp_path, columns)
    pack(path, tmp_path / "out", fields={"jpg": "image", "x": "f*:float32"}, key="id", workers=0)
    stored = samples(tmp_path / "out")
    assert sorted(stored) == ["a", "b"]
    assert np.asarray(stored["b"]["x"]).tolist() == [i + 0.5 for i in range(12)]
    assert "'f2'" in (tmp_path / "out/rejects.jsonl").read_text()
    pack(path, tmp_path / "rest", fields={"jpg": "image", "x": "*:float64"}, key="id", workers=0)
    assert np.asarray(samples(tmp_path / "rest")["a"]["x"]).tolist() == [*range(12)]
    with pytest.raises(UsageError, match="no column matches"):
        pack(path, tmp_path / "none", fields={"jpg": "image", "x": "g*:float32"}, workers=0)


def test_several_files_are_one_list(tmp_path: Path) -> None:
    for i in range(3):
        write(pa.table({"path": [f"{i}/{k}.jpg" for k in range(5)], f"x{i}": [0] * 5}), tmp_path / f"part-{i}.parquet")
    items = read(f"{tmp_path}/part-*.parquet")
    assert [item.path for item in items] == [f"{i}/{k}.jpg" for i in range(3) for k in range(5)]
    write(pa.table({"file": ["a.jpg"]}), tmp_path / "part-9.parquet")
    with pytest.raises(SourceError, match="no column 'path'") as caught:
        read(f"{tmp_path}/part-*.parquet")
    assert caught.value.place["url"] == str(tmp_path / "part-9.parquet")
    with pytest.raises(SourceError, match="no file matches"):
        read(f"{tmp_path}/none-*.parquet")


def test_duplicates_and_names(tmp_path: Path) -> None:
    with pytest.raises(DuplicateKeyError, match="lines 2 and 4"):
        read(make(tmp_path, {"path": ["1.jpg", "2.jpg", "3.jpg", "2.png"]}))
    path = make(tmp_path, {"path": ["1.jpg", "2.jpg"], "label": ["wolf", "ape"]})
    assert open_source(path, labels="name").classes == ("ape", "wolf")
    with pytest.raises(SourceError, match="is not a 64-bit integer") as caught:
        read(path)
    assert "--labels name" in str(caught.value)


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_damaged_files(tmp_path: Path, kind: str) -> None:
    path = make(tmp_path, {"path": [f"{i}.jpg" for i in range(1000)]}, kind)
    data = path.read_bytes()
    for broken in (b"", b"PAR1", data[:-20], data[: len(data) // 2], b"x" * 100):
        path.write_bytes(broken)
        with pytest.raises(SourceError) as caught:
            read(path)
        assert caught.value.place["url"] == str(path)


def test_the_fingerprint_is_of_the_rows(tmp_path: Path) -> None:
    columns = {"path": ["1.jpg", "2.jpg"], "label": [1, 2]}
    prints = {open_source(make(tmp_path, columns, kind)).fingerprint for kind in KINDS}
    assert len(prints) == 1
    assert open_source(make(tmp_path, {**columns, "label": [1, 3]})).fingerprint not in prints


def test_a_table_in_a_bucket(tmp_path: Path, s3: S3Place) -> None:
    rows = [line.split("\t") for line in photo_list(tmp_path, 12).read_text().splitlines()]
    path = make(tmp_path, {"image": [row[0] for row in rows], "label": [int(row[1]) for row in rows]})
    s3.plant("list.parquet", path.read_bytes())
    for row in rows:
        s3.plant(row[0], (tmp_path / row[0]).read_bytes())
    pack(
        s3 / "list.parquet",
        tmp_path / "out",
        storage=StorageOptions(source=s3.options),
        workers=0,
        images=ImageOptions(jpeg="keep"),
    )
    pack(path, tmp_path / "same", workers=0, images=ImageOptions(jpeg="keep"))
    assert samples(tmp_path / "out") == samples(tmp_path / "same")
    assert len(samples(tmp_path / "out")) == 12


@pytest.mark.parametrize("odd", [None, "a\tb", "a\nb", "a\r"])
def test_odd_text_is_kept(tmp_path: Path, odd: str | None) -> None:
    texts = ["one", "two"] * 20
    plain = open_source(
        make(tmp_path, {"path": [f"{i}.jpg" for i in range(41)], "t": [*texts, "x"]}), fields={"jpg": "path", "t": "t"}
    )
    assert [item.values["t"] for item in plain.part(np.array([40, 0])) if isinstance(item, Item)] == ["x", "one"]
    path = make(tmp_path, {"path": [f"{i}.jpg" for i in range(41)], "t": [*texts, odd]})
    *_, last = values(path, fields={"jpg": "path", "t": "t"})
    assert last == ("it has no column 't'" if odd is None else {"jpg": File(str(tmp_path / "40.jpg")), "t": odd})


def test_numbers_stay_numbers(tmp_path: Path) -> None:
    path = make(tmp_path, {"path": ["1.jpg"], "n": [5], "id": [7]})
    (item,) = read(path, fields={"jpg": "path", "n": "n", "m": "n:int8"}, key="id")
    assert item == Item(1, "1.jpg", "7", {"jpg": File(str(tmp_path / "1.jpg")), "n": 5, "m": 5})
