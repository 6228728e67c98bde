"""Names that a foreign data set holds lead nowhere outside of its root; what is written by them stays inside, too."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import shardstream as ss
from shardstream.diagnose import view
from shardstream.errors import ShardStreamError
from shardstream.testing import MemoryStore
from tests.formats.catalog.every import SETS, tar_of
from tests.formats.catalog.making import jpeg
from tests.grouped import grouped

_opened: list[str] | None = None


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if _opened is not None and event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
        _opened.append(os.path.abspath(os.fsdecode(arguments[0])))


sys.addaudithook(_note)


@pytest.fixture
def opened() -> Iterator[list[str]]:
    """Every file that is opened meanwhile."""
    global _opened
    _opened = []
    yield _opened
    _opened = None


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def names_outside(outside: Path, name: str) -> dict[str, str]:
    """Spellings of a file that lies beside the root."""
    return {
        "up": f"../{outside.name}/{name}",
        "down and up": f"sub/../../{outside.name}/{name}",
        "absolute": str(outside / name),
        "backslashes": f"..\\{outside.name}\\{name}",
        "url": f"file://{outside / name}",
        "dots": f"./../{outside.name}/{name}",
        "zero": f"../{outside.name}/{name}\0.mds",
        "doubled": f"//{outside / name}",
    }


def mds(folder: Path, rename: Callable[[str], str]) -> str:
    index = json.loads((folder / "index.json").read_text())
    name = index["shards"][0]["raw_data"]["basename"]
    index["shards"][0]["raw_data"]["basename"] = rename(name)
    (folder / "index.json").write_text(json.dumps(index))
    return name


def litdata(folder: Path, rename: Callable[[str], str]) -> str:
    index = json.loads((folder / "index.json").read_text())
    name = index["chunks"][0]["filename"]
    index["chunks"][0]["filename"] = rename(name)
    (folder / "index.json").write_text(json.dumps(index))
    return name


INDEXED = {"mds": mds, "litdata": litdata}
SPELLINGS = list(names_outside(Path("/"), ""))


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("format", INDEXED)
def test_an_index_names_what_is_outside(format: str, spelling: str, tmp_path: Path, opened: list[str]) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    SETS[format].make(root)
    name = INDEXED[format](root, lambda name: names_outside(outside, name)[spelling])
    (root / name).rename(outside / name)
    for place in (root, MemoryStore({path.name: path.read_bytes() for path in root.iterdir()})):
        opened.clear()
        for how in ({}, {"source_format": format}):
            with pytest.raises(ShardStreamError) as caught:
                list(ss.ShardDataset(place, **grouped(how)))
            assert caught.value.hint
        assert not [path for path in opened if path.startswith(str(outside))]


HOSTILE = ["../../../escaped", "/escaped", "a/../../../escaped", "..", ".", "a//../..//escaped", "C:\\escaped", "~/x"]


def recordio(root: Path) -> None:
    """The list beside the records says the keys."""
    SETS["recordio"].make(root)
    (root / "part-1.rec").unlink()
    (root / "part-1.idx").unlink()
    (root / "part-0.lst").write_text("".join(f"{row}\t{row}\t{HOSTILE[row]}.jpg\n" for row in range(6)))


def tar(root: Path) -> None:
    (root / "a.tar").write_bytes(tar_of({f"{name}/x{row}.jpg": jpeg(row) for row, name in enumerate(HOSTILE)}))


def tar_of_tars(root: Path) -> None:
    inner = {f"../../n{row}.tar": tar_of({f"{name}/x.jpg": jpeg(row)}) for row, name in enumerate(HOSTILE)}
    (root / "a.tar").write_bytes(tar_of(inner))


def zipped(root: Path) -> None:
    import zipfile

    with zipfile.ZipFile(root / "a.zip", "w") as archive:
        for row, name in enumerate(HOSTILE):
            archive.writestr(f"{name}/x{row}.jpg", jpeg(row))


def lmdb_files(root: Path, listed: bool = False) -> None:
    import lmdb

    with lmdb.open(str(root), map_size=1 << 22) as base, base.begin(write=True) as change:
        for row, name in enumerate(HOSTILE):
            change.put(f"{name}/x{row}".encode(), jpeg(row))
    if listed:
        lines = "".join(f"{name}/x{row}.png (16,24,3) 1\n" for row, name in enumerate(HOSTILE))
        (root / "meta_info.txt").write_text(lines)


def lmdb_listed(root: Path) -> None:
    lmdb_files(root, listed=True)


@pytest.mark.parametrize("write", [recordio, tar, tar_of_tars, zipped, lmdb_files, lmdb_listed])
def test_keys_that_are_paths_lead_nowhere(write: Callable[[Path], None], tmp_path: Path, opened: list[str]) -> None:
    root = tmp_path / "a" / "b" / "c" / "root"
    root.mkdir(parents=True)
    write(root)
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    opened.clear()
    samples = list(ss.ShardDataset(root, fields={"jpg": "bytes"}))
    assert len(samples) in (6, len(HOSTILE))
    assert all(sample["jpg"][:2] == b"\xff\xd8" for sample in samples)
    # Whatever is written by such keys lies in the folder that it is to lie in.
    targets = [root.parent / name for name in ("view", "files", "packed")]
    view(root, range(len(samples)), save=targets[0])
    ss.export(root, targets[1], to="files")
    ss.repack(root, targets[2], format="tar", workers=0)
    after = {path for path in tmp_path.rglob("*") if path.is_file()} - before
    assert all(any(path.is_relative_to(place) for place in (*targets, tmp_path / "home")) for path in after), after
    assert not any("escaped" in path and not path.startswith(str(tmp_path)) for path in opened)
