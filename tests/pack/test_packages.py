"""Zarr, Lance and ArrayRecord: their own packages read them, elsewhere; what must not be opened is not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardstream as ss
from shardstream.errors import DataError, FormatError, SourceError
from shardstream.formats.packages.codecs import unknown_codec
from shardstream.formats.packages.known import PACKAGES
from shardstream.pack.run import pack

from .foreign import stored
from .making import jpeg

IMAGES = np.arange(40 * 6 * 4, dtype=np.uint8).reshape(40, 6, 4)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))


def zarr_of(path: Path, version: int) -> Path:
    import zarr

    group = zarr.open_group(path, mode="w", zarr_format=version)
    sharded = {"shards": (16, 6, 4)} if version == 3 else {}
    for name, data, chunks in (
        ("image", IMAGES, (8, 3, 4)),
        ("meta/label", np.arange(40, dtype=">i4") % 5, (16,)),
        ("text", np.array([f"é{row}" for row in range(40)], object), (7,)),
    ):
        kind = str if name == "text" else data.dtype
        more = sharded if name == "image" else {}
        group.create_array(name, shape=data.shape, chunks=chunks, dtype=kind, **more)[:] = data
    group.create_array("scalar", shape=(), dtype="i4")
    return path


def records_of(path: Path, values: list[bytes]) -> Path:
    from array_record.python.array_record_module import ArrayRecordWriter

    writer = ArrayRecordWriter(str(path), "group_size:4")
    for value in values:
        writer.write(value)
    writer.close()
    return path


def read(out: Path) -> list[dict[str, Any]]:
    return sorted(ss.Reader(out), key=lambda sample: sample["__key__"])


# ------------------------------------------------------------------------------------------------- what is in shards


@pytest.mark.parametrize("version", [2, 3])
def test_arrays_of_zarr_are_fields(version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = zarr_of(tmp_path / "data.zarr", version)
    pack(source, tmp_path / "out", workers=0)
    found = read(tmp_path / "out")
    assert [one["__key__"] for one in found] == [f"data/{row:08d}" for row in range(40)]
    for row, one in enumerate(found):
        assert np.array_equal(one["image"], IMAGES[row])
        assert (one["meta.label"], one["text"]) == (row % 5, f"é{row}")
    kinds = ss.Reader(tmp_path / "out").manifest.fields
    assert (str(kinds["image"]), str(kinds["meta.label"])) == ("array:uint8:6,4", "int32")


_WRITE_LANCE = """
import sys, lance, pyarrow.ipc
lance.write_dataset(pyarrow.ipc.open_file(sys.argv[1]).read_all(), sys.argv[2], max_rows_per_file=int(sys.argv[3]))
"""


def lance_of(path: Path, table: Any, rows: int) -> Path:
    """Written by a process of its own: whoever imports lance is warned at each fork from then on."""
    import pyarrow as pa

    with pa.OSFile(f"{path}.arrow", "wb") as out, pa.ipc.new_file(out, table.schema) as writer:
        writer.write_table(table)
    subprocess.run([sys.executable, "-c", _WRITE_LANCE, f"{path}.arrow", path, str(rows)], check=True, timeout=120)
    os.remove(f"{path}.arrow")
    return path


@pytest.mark.skipif(find_spec("lance") is None, reason="pylance is not installed")
def test_columns_of_lance_are_fields(tmp_path: Path) -> None:
    import pyarrow as pa

    picture = [{"bytes": jpeg(row), "path": f"{row}.jpg"} for row in range(20)]
    table = pa.table(
        {
            "image": pa.array(picture, pa.struct([("bytes", pa.binary()), ("path", pa.string())])),
            "number": pa.array([row if row % 3 else None for row in range(20)], pa.int32()),
            "half": pa.array(np.arange(20, dtype=np.float16)),
            "embedding": pa.array([[float(row)] * 4 for row in range(20)], pa.list_(pa.float32(), 4)),
            "tokens": pa.array([[*range(row)] for row in range(20)], pa.list_(pa.uint16())),
            "text": [f"é{row}" for row in range(20)],
            "about": [{"row": row, "names": ["a", None]} for row in range(20)],
        }
    )
    lance_of(tmp_path / "a.lance", table, 8)
    pack(tmp_path / "a.lance", tmp_path / "out", workers=0)
    found = read(tmp_path / "out")
    assert len(found) == 20
    for row, one in enumerate(found):
        assert one.get("number") == (row if row % 3 else None)
        assert (one["half"], one["text"], one["about"]) == (row, f"é{row}", {"row": row, "names": ["a", None]})
        assert np.array_equal(one["embedding"], np.full(4, row, np.float32))
        assert np.array_equal(one["tokens"], np.arange(row, dtype=np.uint16))
    values, kinds = stored(tmp_path / "out")
    assert values["a/00000003"]["image"] == jpeg(3)
    assert kinds["embedding"] == "array:float32:4"


@pytest.mark.skipif(find_spec("lance") is None, reason="pylance is not installed")
def test_images_of_which_lance_has_only_paths_are_refused(tmp_path: Path) -> None:
    import pyarrow as pa

    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    table = pa.table({"image": pa.array([{"bytes": None, "path": "0.jpg"}, None], kind), "n": [0, 1]})
    lance_of(tmp_path / "a.lance", table, 8)
    with pytest.raises(DataError, match="column 'image' has only the paths of files"):
        pack(tmp_path / "a.lance", tmp_path / "out", workers=0)
    pack(tmp_path / "a.lance", tmp_path / "out", fields={"n": "n"}, workers=0)
    assert len(read(tmp_path / "out")) == 2


def test_records_are_samples(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    records_of(tmp_path / "in/a.array_record-00000-of-00002", [b"%d" % row for row in range(30)])
    records_of(tmp_path / "in/a.array_record-00001-of-00002", [b"x" * 1000])
    (tmp_path / "in/features.json").write_text("{}")
    for number, source in enumerate((tmp_path / "in", tmp_path / "in/a.array_record-*")):
        pack(source, tmp_path / f"out{number}", workers=0)
        found, _ = stored(tmp_path / f"out{number}")
        assert len(found) == 31
        assert found["a-00000-of-00002/00000007"]["bin"] == b"7"
        assert found["a-00001-of-00002/00000000"]["bin"] == b"x" * 1000
    records_of(tmp_path / "jpeg.array_record", [jpeg(row) for row in range(3)])
    pack(tmp_path / "jpeg.array_record", tmp_path / "jpeg", workers=0)
    assert [one["jpg"] for one in stored(tmp_path / "jpeg")[0].values()]


def test_fields_are_chosen_and_renamed(tmp_path: Path) -> None:
    source = zarr_of(tmp_path / "a.zarr", 3)
    import zarr

    zarr.open_group(source, mode="a").create_array("other", shape=(3,), dtype="i4")[:] = 1
    with pytest.raises(FormatError, match=r"different numbers of samples: image 40, meta\.label 40, other 3, text 40"):
        pack(source, tmp_path / "out", workers=0)
    pack(source, tmp_path / "out", workers=0, fields={"cls": "meta.label", "x": "image", "caption": "text:str"})
    assert set(read(tmp_path / "out")[5]) == {"__key__", "cls", "x", "caption"}


# ---------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize("kind", PACKAGES)
def test_streaming_says_that_it_is_packed(kind: str, tmp_path: Path) -> None:
    place = tmp_path / "data"
    (place / "_versions").mkdir(parents=True)
    name = {"zarr": "zarr.json", "lance": "_versions/1.manifest", "array-record": "a.array_record"}[kind]
    (place / name).write_text("{}")
    with pytest.raises(FormatError, match="is packed, and not streamed where it lies") as caught:
        ss.ShardDataset(place)
    assert f"shardstream pack '{place}' DEST" in str(caught.value.hint)
    with pytest.raises(FormatError, match="is packed, and not streamed"):
        ss.ShardDataset(place, reading=ss.SourceOptions(format=kind))


def test_a_folder_of_several_is_none(tmp_path: Path) -> None:
    for name in ("a", "b"):
        zarr_of(tmp_path / f"in/{name}.zarr", 3)
    with pytest.raises(FormatError, match="Zarr is packed, and not streamed"):
        ss.ShardDataset(tmp_path / "in")
    with pytest.raises(SourceError, match=r"each of these is a data set: a\.zarr, b\.zarr"):
        pack(tmp_path / "in", tmp_path / "out", workers=0)


@pytest.mark.parametrize("version", [2, 3])
def test_an_array_of_zarr_announces_what_its_chunks_can_hold(version: int, tmp_path: Path) -> None:
    import zarr

    from shardstream.formats.packages.zarr import answer

    path = tmp_path / "a.zarr"
    array = zarr.create_array(path, shape=(1 << 20, 16), chunks=(1 << 16, 8), dtype="i8", zarr_format=version)
    request = {"do": "describe", "path": str(path), "fields": None, "chosen": False}
    array[-1] = 7  # of 32 chunks two: all others are fill values
    (told,) = answer(request, bool)
    assert told["samples"] == 1 << 20
    file = path / ("zarr.json" if version == 3 else ".zarray")
    file.write_text(file.read_text().replace(str(1 << 20), str(10**13)))
    with pytest.raises(FormatError, match=r"it announces 10000000000000 samples of 128 bytes, and its chunks hold at"):
        pack(path, tmp_path / "out", workers=0)


def test_objects_of_zarr_are_not_opened(tmp_path: Path) -> None:
    meta = {"zarr_format": 2, "shape": [2], "chunks": [2], "dtype": "|O", "order": "C", "fill_value": None}
    hostile = {
        "pickle": meta | {"compressor": None, "filters": [{"id": "pickle"}]},
        "encoded by 'nobody'": meta | {"compressor": {"id": "nobody"}, "filters": [{"id": "vlen-utf8"}]},
        "of Python objects": meta | {"compressor": None, "filters": None},
    }
    for number, (match, one) in enumerate(hostile.items()):
        folder = tmp_path / f"{number}.zarr" / "x"
        folder.mkdir(parents=True)
        (folder.parent / ".zgroup").write_text('{"zarr_format": 2}')
        (folder / ".zarray").write_text(json.dumps(one))
        (folder / "0").write_bytes(b"cos\nsystem\n(S'touch " + os.fsencode(tmp_path / "run") + b"'\ntR.")
        with pytest.raises(FormatError, match=match):
            pack(folder.parent, tmp_path / "out", workers=0)
    assert not (tmp_path / "run").exists()


def test_codecs_that_are_known_and_not() -> None:
    def of(*names: str) -> dict[str, Any]:
        return {"zarr_format": 3, "codecs": [{"name": name} for name in names]}

    inner = {"name": "sharding_indexed", "configuration": {"codecs": [{"name": "bytes"}, {"name": "numcodecs.pickle"}]}}
    assert unknown_codec(of("transpose", "bytes", "zstd", "numcodecs.shuffle")) is None
    assert "'pickle'" in str(unknown_codec({"zarr_format": 3, "codecs": [inner]}))
    assert "'any'" in str(unknown_codec(of("any")))
    assert "transformers" in str(unknown_codec(of("bytes") | {"storage_transformers": [{}]}))
    deep: Any = {"name": "bytes"}
    for _ in range(9):
        deep = {"name": "sharding_indexed", "configuration": {"codecs": [deep]}}
    assert unknown_codec({"zarr_format": 3, "codecs": [deep]}) is not None


def test_what_is_damaged_is_a_reject_and_what_is_none_an_error(tmp_path: Path) -> None:
    source = zarr_of(tmp_path / "a.zarr", 2)
    chunk = source / "meta" / "label" / "1"
    chunk.write_bytes(chunk.read_bytes()[:5])
    with pytest.raises(SourceError, match="cannot be read from here on"):
        pack(source, tmp_path / "out", workers=0)
    (tmp_path / "b.array_record").write_bytes(b"x" * 200_000)
    with pytest.raises((FormatError, SourceError)):
        pack(tmp_path / "b.array_record", tmp_path / "out", workers=0)
    with pytest.raises(SourceError, match="from a local disk only"):
        pack("s3://bucket/a.zarr", tmp_path / "out", workers=0)
    (tmp_path / "c.zarr").mkdir()
    (tmp_path / "c.zarr/.zarray").write_text("[]")
    with pytest.raises(FormatError, match="cannot be read"):
        pack(tmp_path / "c.zarr", tmp_path / "out", workers=0)
