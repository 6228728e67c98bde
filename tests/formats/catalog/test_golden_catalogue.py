"""Catalogues of version 1 are read for ever, and are still what is written; ``docs/foreign.md`` says all of them."""

from __future__ import annotations

import ast
import io
import json
import os
import shutil
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardstream as ss
from shardstream.diagnose import verify
from tests.formats.catalog import independent_catalogue
from tests.formats.catalog.every import SETS
from tests.grouped import grouped

GOLDEN = Path(__file__).parents[2] / "golden" / "foreign" / "catalogue"
INDEXES = "shardstream-indexes-6ab08f101b0f045d.bin"
TABLE = "shardstream-objects-dd314da0a5d10f30.table"
WRITTEN_NS = 10**18


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def copied(folder: Path, *, when: int = WRITTEN_NS, only: str = "*") -> Path:
    """The golden files, written when the catalogue says."""
    folder.mkdir()
    for path in GOLDEN.glob(only):
        shutil.copy(path, folder)
        os.utime(folder / path.name, ns=(when, when))
    return folder


def stored() -> dict[str, dict[str, bytes]]:
    """What tarfile finds: values by key and extension."""
    out: dict[str, dict[str, bytes]] = {}
    for path in sorted(GOLDEN.glob("*.tar")):
        with tarfile.open(path) as archive:
            for member in archive:
                key, _, extension = member.name.partition(".")
                out.setdefault(key, {})[extension] = archive.extractfile(member).read()
    return out


def check(found: dict[str, Any], expected: dict[str, bytes]) -> None:
    assert {name for name, value in found.items() if value is not None} == set(expected)
    assert (bytes(found["jpg"]), int(found["cls"])) == (expected["jpg"], int(expected["cls"]))
    assert found.get("txt") == (expected["txt"].decode() if "txt" in expected else None)
    assert np.array_equal(found["npy"], np.load(io.BytesIO(expected["npy"])))


def test_the_golden_catalogue_is_found_and_read(tmp_path: Path, home: Path) -> None:
    folder, expected = copied(tmp_path / "data"), stored()
    reader = ss.Reader(folder, fields={"jpg": "bytes", "cls": None, "txt": None, "npy": None})
    found = {sample["__key__"]: dict(sample) for sample in reader}
    assert list(found) == list(expected)
    for key, sample in found.items():
        del sample["__key__"]
        check(sample, expected[key])
    report = ss.index(folder, workers=0)
    assert (report.scanned, report.place, report.fingerprint[:16]) == (0, str(folder), INDEXES[20:36])
    assert not (home / "shardstream/catalogues").exists()
    assert verify(folder).values == 4 * 7 - 2 - 7  # of one text a tar there is none, and numbers have no checksum


def test_what_is_indexed_today_is_the_same_bytes(tmp_path: Path) -> None:
    folder = copied(tmp_path / "data", only="*.tar")
    ss.index(folder, checksums=True, beside=True, workers=0)
    assert {path.name for path in folder.iterdir()} == {path.name for path in GOLDEN.iterdir()}
    for name in (INDEXES, TABLE):
        assert (folder / name).read_bytes() == (GOLDEN / name).read_bytes()
    new, old = (json.loads((place / "shardstream-catalogue.json").read_text()) for place in (folder, GOLDEN))
    assert {key: new[key] for key in old if key != "checksum"} == {key: old[key] for key in old if key != "checksum"}


def test_when_files_were_written_stands_in_the_versions_only(tmp_path: Path) -> None:
    folder = copied(tmp_path / "data", only="*.tar", when=WRITTEN_NS + 12345)
    ss.index(folder, checksums=True, beside=True, workers=0)
    assert (folder / INDEXES).read_bytes() == (GOLDEN / INDEXES).read_bytes()
    (table,) = folder.glob("*.table")
    new, names = independent_catalogue.read_table(table.read_bytes())
    old, old_names = independent_catalogue.read_table((GOLDEN / TABLE).read_bytes())
    assert new.pop("versions").tolist() == [WRITTEN_NS + 12345] * 2
    assert old.pop("versions").tolist() == [WRITTEN_NS] * 2
    assert names == old_names
    assert all(np.array_equal(new[name], old[name]) for name in old)


def test_the_independent_reader_reads_it() -> None:
    head, samples = independent_catalogue.read_catalogue(GOLDEN, GOLDEN)
    assert (head["source"], head["checked"], head["classes"]) == ("webdataset", True, None)
    assert {name: entry["type"] for name, entry in head["fields"].items()} == {
        "cls": "int64",
        "jpg": "jpg",
        "npy": "array",
        "txt": "str",
    }
    expected = stored()
    count = 0
    for key, values in samples:
        check(values, expected[key])
        count += 1
    assert count == len(expected) == 7


@pytest.mark.parametrize("name", ["webdataset", "tar-of-tars", "zip", "npy", "nanogpt"])
def test_the_independent_reader_reads_what_is_written_today(name: str, tmp_path: Path) -> None:
    folder, cache = tmp_path / "data", tmp_path / "cache"
    folder.mkdir()
    SETS[name].make(folder)
    how = {"source_format": name, "format_options": SETS[name].options or None}
    place = Path(ss.index(folder, cache=cache, workers=0, **grouped(how)).place)
    head, samples = independent_catalogue.read_catalogue(place, folder)
    reader = ss.Reader(folder, cache=cache, fields={"jpg": "bytes"} if "jpg" in head["fields"] else None)
    for (key, values), sample in zip(samples, reader, strict=True):
        assert key == sample["__key__"]
        assert all(np.array_equal(values[field], value) for field, value in sample.items() if field != "__key__")


def test_the_independent_reader_is_independent() -> None:
    tree = ast.parse(Path(independent_catalogue.__file__).read_text())
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    others = {name for name in imported if name.split(".")[0] not in sys.stdlib_module_names}
    assert others == {"numpy", "xxhash", "tests.shards.independent_reader"}
