"""The ordered list of recognizers: which of them takes a source, and what is imported to decide it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

import shardstream.formats.sources
from shardstream.errors import ShardStreamError
from shardstream.pack.repack import repack
from shardstream.pack.run import pack
from shardstream.pack.sources.lists.columns import Wanted
from shardstream.pack.sources.recognizers import Place, SourceFormats, recognizers

from .foreign import members, tar_bytes
from .making import jpeg, photos, samples

_KNOWN: SourceFormats = shardstream.formats.sources  # by the type checker: the package keeps the contract


def write(path: Path, data: bytes | str = b"x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def table(path: Path, columns: dict[str, list[Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pyarrow.table(columns), path)
    return path


def mpdataset(root: Path) -> Path:
    write(root / "cls.csv", "ape,0\n")
    return write(root / "data.csv", "a.jpg,0\n").parent


ROWS = '{"text": "a b", "n": 1}\n' * 3
NAMES = '{"path": "a.jpg", "label": 1}\n' * 3
VALUES: dict[str, list[Any]] = {"data": [b"1", b"2"], "n": [1, 2]}
PATHS: dict[str, list[Any]] = {"path": ["a.jpg", "b.jpg"], "label": [1, 2]}


def tar(path: Path) -> Path:
    return write(path, tar_bytes(members(0, 3)))


SOURCES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "samples": ("PythonObjects", lambda at: [{"jpg": jpeg(1)}]),
    "an iterator of samples": ("PythonObjects", lambda at: iter([{"jpg": jpeg(1)}])),
    "a compressed tar": ("TarsInOrder", lambda at: tar(at / "a.tar.gz")),
    "compressed tars in braces": ("TarsInOrder", lambda at: str(tar(at / "a-1.tgz")).replace("1", "{1..1}")),
    "a URL of a compressed tar": ("TarsInOrder", lambda at: tar(at / "a.tar.zst").as_uri()),
    "a Zarr directory": ("PackageDatasets", lambda at: write(at / "a.zarr" / "zarr.json").parent),
    "an ArrayRecord file": ("PackageDatasets", lambda at: write(at / "a.array_record")),
    "a tar": ("ExternalDatasets", lambda at: tar(at / "a.tar")),
    "tars of a pattern": ("ExternalDatasets", lambda at: f"{tar(at / 'a.tar').parent}/*.tar"),
    "tars of a pattern without a suffix": ("ExternalDatasets", lambda at: f"{tar(at / 'in/a.tar').parent}/a*"),
    "a directory of tars": ("ExternalDatasets", lambda at: tar(at / "in" / "a.tar").parent),
    "rows of JSON lines": ("ExternalDatasets", lambda at: write(at / "a.jsonl", ROWS)),
    "a directory of tables": ("ExternalDatasets", lambda at: table(at / "in/a.parquet", VALUES).parent),
    "a table": ("Tables", lambda at: table(at / "a.parquet", VALUES)),
    "a table that is a list": ("Tables", lambda at: table(at / "a.parquet", PATHS)),
    "tables of a pattern": ("Tables", lambda at: f"{table(at / 'a.parquet', VALUES).parent}/*.parquet"),
    "class directories": ("Directories", lambda at: write(at / "in/c0/a.jpg").parents[1]),
    "a flat directory": ("Directories", lambda at: write(at / "in/a.txt").parent),
    "a directory that is called like rows": ("Directories", lambda at: write(at / "in.jsonl/a.txt").parent),
    "images of a pattern": ("Directories", lambda at: f"{write(at / 'in/a.jpg').parent}/**/*.jpg"),
    "a directory of MPDataset": ("Directories", lambda at: mpdataset(at / "in")),
    "a list": ("TextLists", lambda at: write(at / "list.tsv", "a.jpg\t1\n")),
    "a URL of a list": ("TextLists", lambda at: write(at / "list.csv", "path,label\na.jpg,1\n").as_uri()),
    "JSON lines that name files": ("TextLists", lambda at: write(at / "a.jsonl", NAMES)),
    "a missing file": ("TextLists", lambda at: at / "nowhere.tsv"),
    "a missing table": ("TextLists", lambda at: at / "nowhere.parquet"),
    "an image": ("TextLists", lambda at: write(at / "a.jpg")),
}


@pytest.mark.parametrize("name", SOURCES)
def test_one_recognizer_takes_a_source(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    expected, make = SOURCES[name]
    place = Place(make(tmp_path / "given"))
    assert taker(place) == expected


def taker(place: Place) -> str:
    """The recognizer that takes a source, or says why the source cannot be packed."""
    for one in recognizers():
        try:
            if one.recognize(place, Wanted()) is None:
                continue
        except ShardStreamError:
            pass  # as for a package that is not installed
        return type(one).__name__
    raise AssertionError("no recognizer takes it")


OPENED = """
import sys
from shardstream.pack.sources.opening import open_source
open_source([{"n": 1}])
open_source(sys.argv[1])
print(*(name for name in sys.modules if name.startswith("shardstream.formats")))
"""


def test_samples_and_streamed_tars_are_taken_before_formats_are_imported(tmp_path: Path) -> None:
    command = [sys.executable, "-c", OPENED, str(tar(tmp_path / "a.tar.gz"))]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() == []


LOADED = """
import sys

def loaded(sample):
    return {"modules": " ".join(name for name in sys.modules if name.startswith("shardstream.formats"))}
"""


def test_workers_import_no_formats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "code/transforms_of_workers.py", LOADED)
    monkeypatch.syspath_prepend(tmp_path / "code")
    loaded = import_module("transforms_of_workers").loaded
    names = [f"in/{path}" for path in photos(tmp_path / "in", 6)]
    sources = {"directories": tmp_path / "in", "tables": table(tmp_path / "list.parquet", {"path": names})}
    for name, source in sources.items():
        pack(source, tmp_path / name, transform=loaded, shard_size="1kB", workers=2)
    repack(tmp_path / "directories", tmp_path / "ours", transform=loaded, shard_size="1kB", workers=2)
    for name in (*sources, "ours"):
        assert {sample["modules"] for sample in samples(tmp_path / name).values()} == {b""}
