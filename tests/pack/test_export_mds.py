"""``export --to mds``: what MosaicML Streaming reads, and what our own reader of its shards finds there again."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import struct
import subprocess
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash

import shardstream as ss
from shardstream.diagnose import verify
from shardstream.errors import DestinationError, UsageError
from shardstream.images.encode import encode
from shardstream.pack.export import mds
from shardstream.pack.export.run import export
from shardstream.pack.writer import ShardWriter
from shardstream.shards.manifest import Manifest

from ..formats import told
from ..storage.places import S3Place
from ..stream.making import photograph
from .making import PYTHON, tree
from .test_export import KILLED

COUNT = 23
FIELDS = {
    "cls": "int64",
    "emb": "array:float32:2,3",
    "id": "uint16",
    "ok": "bool",
    "score": "float32",
    "d": "float64",
    "row": "values:uint16",
    "none": "array:int8:0,2",
    "mask": "array:bool:2",
    "half": "values:float16",
}
ENCODINGS = {
    "__key__": "str",
    "arr.npy": "ndarray",
    "cls": "int",
    "d": "float64",
    "emb": "ndarray:float32:2,3",
    "half": "ndarray:float16",
    "id": "uint16",
    "jpg": "jpeg",
    "json": "json",
    "mask": "ndarray:uint8:2",
    "none": "ndarray:int8",
    "ok": "uint8",
    "png": "png",
    "raw": "bytes",
    "row": "ndarray:uint16",
    "score": "float32",
    "txt": "str",
    "webp": "bytes",
}


@cache
def picture(i: int, kind: str) -> bytes:
    """A small picture."""
    return encode(np.full((3, 4, 3), i, np.uint8), kind)


def sample(i: int) -> dict[str, Any]:
    """A sample with every kind of value."""
    return {
        "__key__": f"folder.x/{i:03d}",
        "raw": np.random.default_rng(i).bytes(i * 37),
        "cls": i % 2 - 1,
        "id": i,
        "ok": i % 3 == 0,
        "score": i / 3,
        "d": i / 3,
        "emb": np.full((2, 3), i, np.float32),
        "row": np.arange(i % 5, dtype=np.uint16),
        "half": np.arange(i, dtype=np.float16),
        "none": np.zeros((0, 2), np.int8),
        "mask": np.array([True, i % 2 == 0]),
        "txt": f"text {i} é",
        "json": {"n": [i, None]},
        "arr.npy": np.arange(300 * i).reshape(3, -1).astype((np.int16, np.float64, np.bool_)[i % 3]),
        "jpg": photograph(i),
        "png": picture(i, "png"),
        "webp": picture(i, "webp"),
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("export") / "ds"
    with ShardWriter(path, format="record", fields=FIELDS, shard_size=20_000, classes=["a", "b"]) as writer:
        for i in range(COUNT):
            writer.write(sample(i))
    return path


def expected(i: int) -> dict[str, Any]:
    """What others find of a sample: truth values are bytes."""
    found = {name: int(value) if isinstance(value, bool) else value for name, value in sample(i).items()}
    return {
        name: value.view(np.uint8) if getattr(value, "dtype", None) == np.bool_ else value
        for name, value in found.items()
    }


def records(path: Path, entry: dict[str, Any]) -> list[dict[str, bytes]]:
    """The values of a shard, taken apart by a few lines that follow the description of the format."""
    data = path.read_bytes()
    if entry["compression"]:
        data = pytest.importorskip("zstandard").ZstdDecompressor().decompress(data)
    assert len(data) == entry["raw_data"]["bytes"]
    assert entry["raw_data"]["hashes"] == {"xxh64": xxhash.xxh64_hexdigest(data)}
    (count,) = struct.unpack_from("<I", data)
    offsets = struct.unpack_from(f"<{count + 1}I", data, 4)
    found = []
    for start, end in pairwise(offsets):
        values, sized = {}, entry["column_sizes"].count(None)
        lengths = iter(struct.unpack_from(f"<{sized}I", data, start))
        at = start + 4 * sized
        for name, size in zip(entry["column_names"], entry["column_sizes"], strict=True):
            length = next(lengths) if size is None else size
            values[name] = data[at : at + length]
            at += length
        assert at == end
        found.append(values)
    return found


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_the_format_to_the_byte(folder: Path, tmp_path: Path, compression: Any) -> None:
    report = export(folder, tmp_path, to="mds", compression=compression, workers=0)
    assert (report.samples, report.kept) == (COUNT, 0)
    index = json.loads((tmp_path / "index.json").read_text())
    assert index["version"] == 2
    assert len(index["shards"]) == Manifest.load(folder).shards > 3
    found: list[dict[str, bytes]] = []
    for number, entry in enumerate(index["shards"]):
        assert dict(zip(entry["column_names"], entry["column_encodings"], strict=True)) == ENCODINGS
        assert (entry["format"], entry["version"], entry["compression"]) == ("mds", 2, compression)
        stored = entry["zip_data" if compression else "raw_data"]
        assert stored["basename"] == f"shard.{number:05d}.mds" + (f".{compression}" if compression else "")
        path = tmp_path / stored["basename"]
        assert path.stat().st_size == stored["bytes"]
        assert stored["hashes"] == {"xxh64": xxhash.xxh64_hexdigest(path.read_bytes())}
        found += records(path, entry)
        assert len(found) == sum(one["samples"] for one in index["shards"][: number + 1])
    for i, values in enumerate(found):
        assert values["__key__"].decode() == f"folder.x/{i:03d}"
        assert values["jpg"] == photograph(i)
        assert struct.unpack("<q", values["cls"]) == (i % 2 - 1,)
        assert values["row"] == bytes([1 << 2, i % 5]) + np.arange(i % 5, dtype="<u2").tobytes()
        assert values["emb"] == np.full(6, i, "<f4").tobytes()
        wide = 100 * i > 255
        head = [(17, 66, 8)[i % 3], 2 << 2 | wide, *np.array([3, 100 * i], "<u2" if wide else "u1").tobytes()]
        assert list(values["arr.npy"][: len(head)]) == head
    assert (tmp_path / "classes.txt").read_text() == "a\nb\n"
    assert {path.name for path in tmp_path.iterdir() if ".mds" not in path.name} == {
        *("classes.txt", "export.json", "index.json")
    }


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_our_reader_of_mds_finds_every_value(folder: Path, tmp_path: Path, compression: Any) -> None:
    if compression:
        pytest.importorskip("zstandard")
    export(folder, tmp_path, to="mds", compression=compression, workers=0)
    names = ["key__" if name == "__key__" else name for name in ENCODINGS]
    fields = {name: "bytes" if name in ("jpg", "png", "webp") else None for name in names}
    found = list(ss.ShardDataset(tmp_path, fields=fields))
    assert len(found) == COUNT
    for i, one in enumerate(found):
        for name, value in expected(i).items():
            other = one["key__" if name == "__key__" else name]
            if isinstance(value, np.ndarray):
                assert (other.dtype, other.shape, other.tobytes()) == (value.dtype, value.shape, value.tobytes())
            else:
                assert other == (np.float32(value) if name == "score" else value)
    assert verify(tmp_path).ok
    assert verify(tmp_path).own


def test_begun_and_started_again(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    export(folder, tmp_path / "whole", to="mds", workers=0)
    write, left = mds.MdsTarget.write, [1, 2, 3]

    def write_three(*arguments: Any, **options: Any) -> bytes:
        left.pop()
        return write(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(mds.MdsTarget, "write", write_three)
        with pytest.raises(IndexError):
            export(folder, tmp_path / "out", to="mds", workers=0)
    _goes_on(folder, tmp_path)


@pytest.mark.full
def test_killed_and_started_again(folder: Path, tmp_path: Path) -> None:
    export(folder, tmp_path / "whole", to="mds", workers=2)
    died = subprocess.run(
        [*PYTHON, "-c", KILLED, str(folder), str(tmp_path / "out"), "mds", "3"], timeout=60, check=False
    )
    assert died.returncode == -signal.SIGKILL
    _goes_on(folder, tmp_path)


def _goes_on(folder: Path, tmp_path: Path) -> None:
    assert not (tmp_path / "out/index.json").exists()
    assert export(folder, tmp_path / "out", to="mds", workers=0).kept == Manifest.load(folder).table.samples[:3].sum()
    assert tree(tmp_path / "out") == tree(tmp_path / "whole")
    with pytest.raises(DestinationError, match="another export"):
        export(folder, tmp_path / "out", to="mds", compression="zstd", workers=0)


def test_to_a_store(s3: S3Place, folder: Path, tmp_path: Path) -> None:
    export(folder, s3 / "mds", to="mds", workers=0, storage=ss.StorageOptions(dest=s3.options))
    fields = ["cls", "row"]
    found = list(ss.ShardDataset(s3 / "mds", fields=fields, storage_options=s3.options))
    assert [one["cls"] for one in found] == [i % 2 - 1 for i in range(COUNT)]
    assert found[7]["row"].tolist() == [0, 1]


# ---------------------------------------------------------------------------------------------------------- refusals


def one(path: Path, fields: dict[str, str] | None = None, **values: Any) -> Path:
    """A data set of two samples; the second has only ``x``."""
    with ShardWriter(path, fields=fields or {}) as writer:
        writer.write({"__key__": "a", "x": 1, **values})
        writer.write({"__key__": "b", "x": 2})
    return path


def test_samples_that_lack_a_field_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no txt, and MDS has no") as caught:
        export(one(tmp_path / "ds", txt="t"), tmp_path / "out", to="mds", workers=0)
    assert caught.value.place["key"] == "b"
    assert not (tmp_path / "out/index.json").exists()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.array(1.0), "without dimensions"),
        (np.array([1j]), "no arrays of complex"),
        (np.array(["a"]), "no arrays of str"),
    ],
)
def test_arrays_that_mds_has_not_are_refused(tmp_path: Path, value: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        export(one(tmp_path / "ds", {"v.npy": "array"}, **{"v.npy": value}), tmp_path / "out", to="mds", workers=0)
    assert (caught.value.place["key"], caught.value.place["field"]) == ("a", "v.npy")


@pytest.mark.parametrize(
    ("largest", "message"), [(15_000, "whose offsets end at 4 GiB"), (5000, "a value of 9606 bytes")]
)
def test_what_needs_more_than_32_bits_is_refused(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, largest: int, message: str
) -> None:
    monkeypatch.setattr(mds, "_LARGEST", largest)
    with pytest.raises(UsageError, match=message):
        export(folder, tmp_path, to="mds", workers=0)


@pytest.mark.parametrize("options", [{"to": "files", "compression": "zstd"}, {"to": "mds", "compression": "br"}])
def test_compression_is_of_mds_and_zstd(folder: Path, tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="compression"):
        export(folder, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


# ------------------------------------------------------------------------------------------------------- their reader

THEIRS = """
import json, sys
sys.path.insert(0, sys.argv[3])
from streaming import StreamingDataset
from telling import told
data = StreamingDataset(remote=sys.argv[1], local=sys.argv[2], shuffle=False, batch_size=1, validate_hash="xxh64")
json.dump([{name: told(value) for name, value in one.items()} for one in data], sys.stdout)
"""


@pytest.mark.full
@pytest.mark.parametrize("compression", [None, "zstd"])
def test_mosaics_own_reader_gives_the_same_samples(folder: Path, tmp_path: Path, compression: Any) -> None:
    kept = os.environ.get("SHARDSTREAM_GOLDEN_ENVIRONMENTS", str(Path.home() / ".cache" / "shardstream-golden"))
    python = Path(kept) / "mds/bin/python"
    if not python.exists():
        pytest.skip("tools/foreign/make_golden mds makes the environment of mosaicml-streaming")
    export(folder, tmp_path / "out", to="mds", compression=compression, workers=0)
    tools = Path(__file__).parents[2] / "tools" / "foreign"
    done = subprocess.run(
        [python, "-c", THEIRS, tmp_path / "out", tmp_path / "local", tools],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )
    found = json.loads(done.stdout)
    assert len(found) == COUNT
    for i, values in enumerate(found):
        for name, value in expected(i).items():
            if name == "jpg":
                assert values[name] == {"sha256": hashlib.sha256(value).hexdigest()}
            else:
                told.check(np.float32(value).item() if name == "score" else value, values[name])
