"""Out of shards again: what others read holds every sample, to the byte."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardstream import ImageOptions, ShardOptions, StorageOptions
from shardstream.errors import ChecksumError, DestinationError, FormatError, StorageError, UsageError
from shardstream.images.jpeg.cutting import is_addressable
from shardstream.pack.export import files
from shardstream.pack.export.files import put_all
from shardstream.pack.export.names import extensions, file_stem, folds_names
from shardstream.pack.export.run import export
from shardstream.pack.run import pack
from shardstream.pack.writer import ShardWriter
from shardstream.shards.fields import FieldType
from shardstream.shards.manifest import Manifest
from shardstream.storage import open_store
from shardstream.storage.local.store import LocalStore

from ..shards.peers import gnu_tar_names, webdataset_samples
from ..storage.places import S3Place
from ..stream.making import photograph
from .making import PYTHON, photo_list, samples, tree

KINDS = ("files", "webdataset", "parquet")
FIELDS = {"cls": "int64", "emb": "array:float32:2,3", "id": "uint16", "ok": "bool", "score": "float32"}


def everything(path: Any, count: int = 23, *, format: Any = "record", **options: Any) -> Any:
    """A data set with every kind of value, some missing."""
    with ShardWriter(path, format=format, fields=FIELDS, shard_size=4000, classes=["a", "b"], **options) as writer:
        for i in range(count):
            sample: dict[str, Any] = {
                "__key__": f"folder.x/{i:03d}",
                "raw": np.random.default_rng(i).bytes(i * 37),
                "cls": i % 2,
                "id": i,
                "ok": i % 3 == 0,
                "emb": np.full((2, 3), i, np.float32),
                "txt": f"text {i} é",
                "json": {"n": [i]},
                "arr.npy": np.arange(i),
                "jpg": photograph(i),
                "seg": b"\x89PNG" + bytes([i]),
            }
            if i % 4 == 1:
                del sample["txt"], sample["emb"], sample["jpg"], sample["ok"]
            writer.write(sample)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("export") / "ds"
    return everything(path, shards=ShardOptions(zstd=["txt"]))  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Photographs in class folders, and the data set that `pack` makes of them."""
    root = tmp_path_factory.mktemp("photos")
    for i in range(30):
        path = root / "in" / f"class {i % 3}" / f"{i:02d}.v1.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(photograph(i, 200, 150))
    pack(root / "in", root / "ds", shard_size=60_000, workers=0)
    return root / "in", root / "ds"


@pytest.mark.full
@pytest.mark.parametrize("workers", [0, 2])
def test_photographs_are_those_that_were_packed(photos: tuple[Path, Path], tmp_path: Path, workers: int) -> None:
    source, dataset = photos
    stored = samples(dataset)
    assert all(is_addressable(sample["jpg"]) for sample in stored.values())  # type: ignore[arg-type]
    report = export(dataset, tmp_path / "files", to="files", workers=workers)
    found = tree(tmp_path / "files")
    assert {name: data for name, data in found.items() if name.endswith(".jpg")} == tree(source)
    assert found.keys() - tree(source).keys() == {"labels.tsv", "classes.txt", "export.json"}
    assert found["classes.txt"] == b"class 0\nclass 1\nclass 2\n"
    assert (report.samples, report.kept, report.bytes) == (30, 0, sum(map(len, tree(source).values())) + 8 * 0)

    pack(tmp_path / "files/labels.tsv", tmp_path / "again", key="key", workers=0)
    assert samples(tmp_path / "again") == stored
    export(dataset, tmp_path / "keep", to="files", jpeg="keep", workers=0)
    assert (tmp_path / "keep/class 0/00.v1.jpg").read_bytes() == stored["class 0/00.v1"]["jpg"]


def test_files_hold_every_value(folder: Path, tmp_path: Path) -> None:
    export(folder, tmp_path, to="files", workers=0)
    header, *lines = (tmp_path / "labels.tsv").read_text().splitlines()
    titles = header.split("\t")
    assert titles[:2] == ["key", "path"]
    rows = {row["key"]: row for row in (dict(zip(titles, line.split("\t"), strict=True)) for line in lines)}
    stored = samples(folder)
    assert list(rows) == list(stored)
    named = {"jpg": "path", "cls": "label"}
    count = 0
    for key, sample in stored.items():
        for name in Manifest.load(folder).fields:
            cell = rows[key][named.get(name, name)]
            value = sample.get(name)
            if value is None:
                assert cell == ""
            elif name == "emb":
                assert np.array_equal(np.load(tmp_path / cell), value)
                count += 1
            elif isinstance(value, bytes):
                assert (tmp_path / cell).read_bytes() == value
                count += 1
            else:
                assert float(cell) == float(value)  # type: ignore[arg-type]
    assert count + 3 == len(tree(tmp_path))
    assert rows["folder.x/000"]["emb"] == "folder.x/000.emb.npy"
    assert rows["folder.x/000"]["raw"] == "folder.x/000.raw"


@pytest.mark.full
def test_webdataset_reads_its_shards(folder: Path, tmp_path: Path) -> None:
    export(folder, tmp_path, to="webdataset", workers=2)
    shards = sorted(tmp_path.glob("*.tar"))
    assert len(shards) == Manifest.load(folder).shards > 3
    found = [sample for shard in shards for sample in webdataset_samples(shard)]
    stored = samples(folder)
    assert [key for key, _ in found] == list(stored)
    names = {"emb": "emb.npy"}
    for key, values in found:
        assert values.keys() == {names.get(name, name) for name in stored[key]}
        for name, value in stored[key].items():
            if isinstance(value, bytes):
                assert values[names.get(name, name)] == value
        assert int(values["cls"]) == stored[key]["cls"]
    assert not any("shardstream" in name for shard in shards for name in gnu_tar_names(shard))
    assert (tmp_path / "classes.txt").read_text() == "a\nb\n"


def test_arrow_reads_its_tables(folder: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    export(folder, tmp_path, to="parquet", workers=0)
    tables = [parquet.read_table(path) for path in sorted(tmp_path.glob("*.parquet"))]
    rows = [row for table in tables for row in table.to_pylist()]
    stored = samples(folder)
    assert [row.pop("__key__") for row in rows] == list(stored)
    for row, (key, sample) in zip(rows, stored.items(), strict=True):
        for name, cell in row.items():
            value = sample.get(name)
            if name == "jpg" and value is not None:
                assert cell == {"bytes": value, "path": f"{key}.jpg"}
            elif name == "emb" and value is not None:
                assert np.array_equal(np.array(cell, np.float32).reshape(2, 3), value)
            elif name in ("txt", "json") and value is not None:
                assert cell.encode() == value
            else:
                assert cell == value
    schema = tables[0].schema
    assert str(schema.field("id").type) == "uint16"
    assert schema.field("emb").metadata == {b"shape": b"2,3"}
    features = json.loads(schema.metadata[b"huggingface"])["info"]["features"]
    assert features["cls"] == {"names": ["a", "b"], "_type": "ClassLabel"}
    assert features["jpg"] == {"_type": "Image"}


# ------------------------------------------------------------------------------------------------------ interruptions


def _begun(tmp_path: Path, to: str) -> None:
    if to == "parquet":
        pytest.importorskip("pyarrow")


KILLED = """
import os, sys
from shardstream.pack.export.run import export
from shardstream.pack.output.commits import Pending
commit, left = Pending.commit, [int(sys.argv[4])]
def commit_or_die(pending):
    if not left[0]:
        os.kill(os.getpid(), 9)
    left[0] -= 1
    commit(pending)
Pending.commit = commit_or_die
export(sys.argv[1], sys.argv[2], to=sys.argv[3], workers=0)
"""


@pytest.mark.full
@pytest.mark.parametrize(
    "to", [pytest.param(kind, marks=pytest.mark.full) if kind != "webdataset" else kind for kind in KINDS]
)
def test_killed_and_started_again(folder: Path, tmp_path: Path, to: Any) -> None:
    if to == "parquet":
        pytest.importorskip("pyarrow")
    export(folder, tmp_path / "whole", to=to, workers=0)
    died = subprocess.run([*PYTHON, "-c", KILLED, str(folder), str(tmp_path / "out"), to, "3"], timeout=60, check=False)
    assert died.returncode == -signal.SIGKILL
    assert len(list((tmp_path / "out/.export").glob("*.done"))) == 3
    first = Manifest.load(folder).table.samples[:3].sum()
    assert export(folder, tmp_path / "out", to=to, workers=2).kept == first
    assert tree(tmp_path / "out") == tree(tmp_path / "whole")
    stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")}
    assert export(folder, tmp_path / "out", to=to).kept == 23
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")} == stamps


def test_what_a_run_that_died_at_its_end_has_left_is_removed(folder: Path, tmp_path: Path) -> None:
    export(folder, tmp_path, to="webdataset", workers=0)
    whole = tree(tmp_path)
    (tmp_path / ".export").mkdir()
    (tmp_path / ".export/shard-000000.tar.done").touch()
    assert export(folder, tmp_path, to="webdataset", workers=0).kept == 23
    assert tree(tmp_path) == whole


def test_what_a_run_that_died_at_its_beginning_has_left_is_removed(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / ".shardstream-0123456789abcdef").write_bytes(b"{")
    export(folder, out, to="files", workers=0)
    assert not [path for path in out.iterdir() if path.name.startswith(".")]


def test_files_of_equal_size_are_not_written_again(folder: Path, tmp_path: Path) -> None:
    export(folder, tmp_path, to="files", workers=0)
    state = json.loads((tmp_path / "export.json").read_text())
    (tmp_path / "export.json").write_text(json.dumps(state | {"complete": False}))
    path, other = tmp_path / "folder.x/003.raw", tmp_path / "folder.x/004.raw"
    path.write_bytes(b"short")
    stamp, content = other.stat().st_mtime_ns, tree(folder)
    assert export(folder, tmp_path, to="files", workers=0).kept == 0
    assert path.read_bytes() == samples(folder)["folder.x/003"]["raw"]
    assert (other.stat().st_mtime_ns, tree(folder)) == (stamp, content)


# ---------------------------------------------------------------------------------------------------------- refusals


def test_what_lies_there_is_not_touched(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(DestinationError, match=r"holds mine\.txt"):
        export(folder, tmp_path, to="files")
    export(folder, tmp_path / "out", to="files", workers=0)
    for change in ({"to": "webdataset"}, {"to": "files", "jpeg": "keep"}):
        with pytest.raises(DestinationError, match="another export"):
            export(folder, tmp_path / "out", **change)  # type: ignore[arg-type]
    (tmp_path / "out/export.json").write_text("{")
    with pytest.raises(DestinationError, match="another export"):
        export(folder, tmp_path / "out", to="files")


@pytest.mark.parametrize("options", [{"to": "zip"}, {"to": "files", "jpeg": "x"}, {"to": "files", "workers": -1}])
def test_bad_arguments(folder: Path, tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        export(folder, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_a_damaged_value_stops_it_and_is_named(tmp_path: Path) -> None:
    everything(tmp_path / "ds")
    path = sorted((tmp_path / "ds").glob("*.rec"))[1]
    data = bytearray(path.read_bytes())
    data[200] ^= 1
    path.write_bytes(data)
    with pytest.raises(ChecksumError) as caught:
        export(tmp_path / "ds", tmp_path / "out", to="webdataset", workers=0)
    assert caught.value.place["shard"] == path.name
    assert caught.value.place["key"].startswith("folder.x/")  # type: ignore[union-attr]


def test_keys_that_lead_elsewhere_stay_inside(tmp_path: Path) -> None:
    keys = ["../../x", "a/../b", ".hidden/c", "%2E%2E/d", "tab\tand\nline", ".", "é/ñ", "a.b"]
    with ShardWriter(tmp_path / "ds") as writer:
        for key in keys:
            writer.write({"__key__": key, "raw.bin": key.encode()})
    export(tmp_path / "ds", tmp_path / "out", to="files", workers=0)
    found = tree(tmp_path / "out")
    files = {data.decode() for name, data in found.items() if name.endswith("bin")}
    assert files == set(keys)
    assert set(tree(tmp_path)) == {f"out/{name}" for name in found} | {f"ds/{name}" for name in tree(tmp_path / "ds")}


@pytest.mark.parametrize("to", ["files", "webdataset", "parquet"])
@pytest.mark.parametrize("forged", ["key", "field"])
def test_names_that_no_writer_takes_overwrite_nothing(tmp_path: Path, to: Any, forged: str) -> None:
    victim = tmp_path / "victim.sh"
    victim.write_bytes(b"as it was")
    key, field = (str(victim)[:-3], "sh") if forged == "key" else ("k", "b/../../../victim.sh")
    with pytest.MonkeyPatch.context() as patch:
        # A writer of somebody's own, that checks nothing.
        for module in ("pack.writer", "shards.writing"):
            patch.setattr(sys.modules[f"shardstream.{module}"], "check_key", lambda key: key)
        for module in ("pack.writer", "pack.sources.values", "shards.writing", "shards.manifest"):
            patch.setattr(sys.modules[f"shardstream.{module}"], "check_field_name", lambda name: None)
        with ShardWriter(
            tmp_path / "ds", format="record", fields={field: "bytes"}, shards=ShardOptions(key_table=False)
        ) as writer:
            writer.write({"__key__": key, field: b"echo pwned"})
    before = tree(tmp_path)
    with pytest.raises(FormatError):
        export(tmp_path / "ds", tmp_path / "deep/out", to=to, workers=0)
    assert {name: data for name, data in tree(tmp_path).items() if not name.startswith("deep/")} == before
    assert not [name for name in tree(tmp_path) if name.startswith("deep/out") and "pwned" in name]


def test_the_function_that_writes_files_refuses_such_names_itself(tmp_path: Path) -> None:
    for name in (str(tmp_path / "victim"), "a/../../victim"):
        with pytest.raises(UsageError, match="leads out of the store"):
            put_all(LocalStore(tmp_path / "out"), [(name, b"x")], again=False)
    assert not (tmp_path / "victim").exists()


def test_names_of_files() -> None:
    assert file_stem("a.b/c.d", escape_dots=True) == "a.b/c%2Ed"
    kinds = {"image": "jpg", "jpeg": "jpg", "a.mask.png": "png", "cls": "int", "emb": "array:float32:3", "t": "str"}
    found = extensions({name: FieldType.parse(kind) for name, kind in kinds.items()})
    assert found == {
        "image": "image.jpg",
        "jpeg": "jpeg",
        "a.mask.png": "a.mask.png",
        "emb": "emb.npy",
        "t": "t.txt",
    }
    with pytest.raises(UsageError, match=r"\.a\.txt"):
        extensions({"a": FieldType.parse("str"), "a.txt": FieldType.parse("str")})


def test_a_key_that_is_too_long_for_a_file(tmp_path: Path) -> None:
    with ShardWriter(tmp_path / "ds") as writer:
        writer.write({"__key__": "k" * 300, "bin": b"x"})
    with pytest.raises(StorageError, match="too long"):
        export(tmp_path / "ds", tmp_path / "out", to="files", workers=0)
    assert not [name for name in tree(tmp_path / "out") if name.startswith(".shardstream")]


@pytest.mark.full
def test_from_a_store_to_a_store(s3: S3Place, tmp_path: Path) -> None:
    here = {"storage": StorageOptions(source=s3.options, options=s3.options)}
    everything(s3 / "ds", storage=StorageOptions(options=s3.options))
    everything(tmp_path / "ds")
    for to in ("files", "webdataset"):
        export(s3 / "ds", s3 / to, to=to, workers=0, **here)  # type: ignore[arg-type]
        export(tmp_path / "ds", tmp_path / to, to=to, workers=0)  # type: ignore[arg-type]
        store = open_store(s3 / to, storage_options=s3.options)
        assert {found.path: bytes(store.get(found.path)) for found in store.list()} == tree(tmp_path / to)


def test_the_list_of_a_labelled_set(tmp_path: Path) -> None:
    pack(photo_list(tmp_path / "in", 12), tmp_path / "ds", workers=0, images=ImageOptions(jpeg="keep"))
    export(tmp_path / "ds", tmp_path / "out", to="files", workers=0)
    pack(tmp_path / "out/labels.tsv", tmp_path / "again", workers=0, images=ImageOptions(jpeg="keep"), key="key")
    assert samples(tmp_path / "again") == samples(tmp_path / "ds")


# ------------------------------------------------------------------------------------------------- names of its own


@pytest.mark.parametrize(
    ("key", "field"), [("export", "json"), ("EXPORT", "json"), ("labels", "tsv"), ("classes", "txt")]
)
def test_no_sample_takes_a_name_of_the_export_itself(tmp_path: Path, key: str, field: str) -> None:
    with ShardWriter(tmp_path / "ds", fields={field: "bytes"}, classes=["a"]) as writer:
        writer.write({"__key__": key, field: b"the sample's"})
    export(tmp_path / "ds", tmp_path / "out", to="files", workers=0)
    assert export(tmp_path / "ds", tmp_path / "out", to="files", workers=0).kept == 1  # its own state is whole
    (line,) = (tmp_path / "out/labels.tsv").read_text().splitlines()[1:]
    found, path = line.split("\t")
    assert found == key
    assert (tmp_path / "out" / path).read_bytes() == b"the sample's"
    assert (tmp_path / "out/classes.txt").read_text() == "a\n"


def test_a_key_below_the_file_of_another_says_which(tmp_path: Path) -> None:
    with ShardWriter(tmp_path / "ds") as writer:
        for key in ("a", "a.txt/b"):
            writer.write({"__key__": key, "txt": key})
    with pytest.raises(StorageError, match=r"a\.txt/b\.txt.*\n.*hint: .*folder") as caught:
        export(tmp_path / "ds", tmp_path / "out", to="files", workers=0)
    assert "too long" not in str(caught.value)


@pytest.mark.parametrize(
    ("first", "second"), [("Photo", "photo"), ("x/caf\u00e9", "x/cafe\u0301"), ("STRASSE", "straße")]
)
def test_keys_that_would_be_one_file_name_here_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str, second: str
) -> None:
    with ShardWriter(tmp_path / "ds", shard_size=2000) as writer:
        for key in (first, *(f"between/{i}" for i in range(9)), second):
            writer.write({"__key__": key, "txt": key * 40})
    export(tmp_path / "ds", tmp_path / "here", to="files", workers=0)
    assert len(list((tmp_path / "here").rglob("*.txt"))) == 11
    monkeypatch.setattr(files, "folds_names", lambda folder: True)
    with pytest.raises(UsageError) as caught:
        export(tmp_path / "ds", tmp_path / "there", to="files", workers=0)
    assert f"{first!r} and {second!r}" in str(caught.value)
    assert not (tmp_path / "there").exists()
    export(tmp_path / "ds", tmp_path / "tables", to="webdataset", workers=0)


def test_this_file_system_tells_case_apart(tmp_path: Path) -> None:
    assert not folds_names(tmp_path / "new")
    assert not list((tmp_path / "new").iterdir())
    (tmp_path / "file").touch()
    assert not folds_names(tmp_path / "file/below")
