"""Compressed data of other libraries are read inflated: each block once, and never again where a cache is."""

from __future__ import annotations

import os
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardstream as ss
from shardstream.diagnose import verify
from shardstream.errors import ChangedError, DataError, FormatError
from shardstream.formats.catalog.catalog import Catalogue
from shardstream.formats.catalog.object_table import ObjectTable
from shardstream.storage import counters
from shardstream.testing import MemoryStore

from .making import SAMPLES, batches, everything, mds, packed_tars, webdataset, zips

MAKERS: dict[str, Callable[[Path], Path]] = {
    "mds.zstd": lambda folder: mds(folder, "zstd"),
    "tar.gz": lambda folder: packed_tars(folder, "gz"),
    "tar.frames": lambda folder: packed_tars(folder, "frames"),
    "zip.deflated": lambda folder: zips(folder, zipfile.ZIP_DEFLATED),
}
PLAIN: dict[str, Callable[[Path], Path]] = {"mds": mds, "tar": webdataset, "zip": zips}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Folders of data sets by their kind; tests do not change them."""
    root = tmp_path_factory.mktemp("compressed")
    return lambda kind: there if (there := root / kind).exists() else (MAKERS | PLAIN)[kind](there)


def plain_of(kind: str) -> str:
    return kind.partition(".")[0]


def in_memory(folder: Path) -> MemoryStore:
    return MemoryStore({path.name: path.read_bytes() for path in folder.iterdir()})


def inflated(act: Callable[[], Any]) -> tuple[int, Any]:
    """Blocks that were inflated meanwhile in this process, and what was returned."""
    before = counters().snapshot()
    found = act()
    return counters().since(before)["inflated_blocks"], found


def same(one: Any, other: Any) -> None:
    assert one.keys() == other.keys()
    for key, sample in one.items():
        assert {name: str(value) for name, value in sample.items()} == {
            name: str(value) for name, value in other[key].items()
        }


@pytest.mark.parametrize("kind", MAKERS)
def test_samples_are_those_of_what_is_not_compressed(kind: str, folders: Any) -> None:
    plain = everything(folders(plain_of(kind)), fields={"jpg": "bytes", "cls": None, "json": None})
    for place in (folders(kind), in_memory(folders(kind))):
        same(everything(place, fields={"jpg": "bytes", "cls": None, "json": None}), plain)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("kind", MAKERS)
def test_the_order_is_the_same_from_anywhere(kind: str, folders: Any, tmp_path: Path) -> None:
    expected = batches(folders(kind))
    assert sorted(key for keys, _ in expected for key in keys) == sorted(everything(folders(kind)))
    assert batches(folders(kind), workers=2) == expected
    store = in_memory(folders(kind))
    assert batches(store) == expected
    for workers in (0, 2):
        assert batches(store, workers, cache=tmp_path / "blocks") == expected
    assert batches(folders(kind), cache=tmp_path / "other") == expected


@pytest.mark.one_in(4)
@pytest.mark.parametrize("kind", MAKERS)
def test_each_block_is_inflated_once_and_with_a_cache_never_again(kind: str, folders: Any, tmp_path: Path) -> None:
    ss.index(folders(kind), workers=1)
    manifest = ss.ShardDataset(folders(kind), fields=["cls"]).manifest
    assert isinstance(manifest, Catalogue)
    there = len(manifest.objects.block_offsets)
    least = 3
    if kind == "tar.frames":
        least = there - 3  # the last holds no value
    elif kind == "zip.deflated":
        there -= 3  # the bytes of the zips, as they are
        least = 2 * 3 * SAMPLES  # labels are in the index
    count, _ = inflated(lambda: batches(folders(kind)))
    assert least <= count <= there
    for place in (folders(kind), in_memory(folders(kind))):
        cache = tmp_path / type(place).__name__
        ss.index(place, workers=1, cache=cache)
        count, first = inflated(lambda place=place, cache=cache: batches(place, cache=cache))
        assert least <= count <= there
        assert inflated(lambda place=place, cache=cache: batches(place, cache=cache)) == (0, first)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("kind", MAKERS)
def test_a_run_goes_on_at_another_place_with_other_workers(kind: str, folders: Any) -> None:
    options: dict[str, Any] = {"fields": ["cls"], "batch_size": 8, "shuffle": True, "seed": 5}
    whole = [keys for keys, _ in batches(folders(kind))]
    loader = ss.Loader(ss.ShardDataset(folders(kind), **options), num_workers=2)
    iterator = iter(loader)
    first = [list(batch["__key__"]) for batch in islice(iterator, 3)]
    state = loader.state_dict()
    del iterator
    elsewhere = ss.Loader(ss.ShardDataset(in_memory(folders(kind)), **options), num_workers=0)
    elsewhere.load_state_dict(state)
    assert first + [list(batch["__key__"]) for batch in elsewhere] == whole


def test_a_catalogue_keeps_blocks_of_what_did_not_change(folders: Any, tmp_path: Path) -> None:
    own = tmp_path / "own"
    shutil.copytree(folders("mds.zstd"), own)
    assert ss.index(own, workers=1, beside=True).scanned == 3
    (changed,) = own.glob("*00001.mds.zstd")
    os.utime(changed, (5, 5))
    count, report = inflated(lambda: ss.index(own, workers=1, beside=True))
    assert (count, report.scanned) == (0, 1)  # the scan inflates by itself, before there are blocks
    same(everything(own), everything(folders("mds")))
    ds = ss.ShardDataset(own, fields=["cls", "jpg"], batch_size=8)
    os.utime(changed, (6, 6))
    with pytest.raises(ChangedError, match="not the one that was indexed"):
        list(ss.Loader(ds, num_workers=0))


def test_verify_names_a_damaged_block_and_says_nothing_else_of_its_object(folders: Any, tmp_path: Path) -> None:
    own = tmp_path / "own"
    shutil.copytree(folders("mds.zstd"), own)
    ss.index(own, workers=1)
    (path,) = own.glob("*00001.mds.zstd")
    when, data = path.stat().st_mtime_ns, bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(when, when))
    block, own_hash = verify(own).problems
    assert (block.shard, block.check, block.offset) == (path.name, "index", 0)
    assert "a block inflates to other bytes" in block.what
    assert (own_hash.check, own_hash.what[:8]) == ("checksum", "its sha1")


@pytest.mark.full
def test_what_else_reads_a_data_set(folders: Any, tmp_path: Path) -> None:
    place, plain = folders("mds.zstd"), everything(folders("mds"))
    ss.index(place, workers=1, checksums=True)
    report = verify(place, decode=True)
    assert (report.ok, report.values, report.pictures) == (True, 6 * SAMPLES, 3 * SAMPLES)
    ss.repack(place, tmp_path / "packed", workers=0)
    same(everything(tmp_path / "packed"), plain)
    assert ss.export(place, tmp_path / "files", to="files").samples == 3 * SAMPLES


def test_damage_since_it_was_indexed_is_told_with_its_place(folders: Any, tmp_path: Path) -> None:
    own = tmp_path / "own"
    shutil.copytree(folders("tar.gz"), own)
    ss.index(own, workers=1)
    (path,) = own.glob("part-1.tar.gz")
    times, data = path.stat(), bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    with pytest.raises(DataError, match=r"(?s)inflate.*part-1\.tar\.gz"):
        batches(own)
    problems = verify(own).problems
    assert {one.shard for one in problems} == {"part-1.tar.gz"}


LIES = {
    "block_ends": [0, 2, 2],
    "block_offsets": [1, 0, 0],
    "block_lengths": [2**32 - 1, 1, 1],
    "block_sizes": [2**30 + 1, 1, 1],
    "block_codecs": [255, 1, 1],
}


@pytest.mark.parametrize("column", LIES)
def test_tables_of_blocks_that_lie_are_data_errors(column: str, folders: Any) -> None:
    manifest = ss.ShardDataset(folders("mds.zstd"), fields=["cls"]).manifest
    assert isinstance(manifest, Catalogue)
    ObjectTable.parse(memoryview(manifest.objects.pack()), url="x")
    kind = getattr(manifest.objects, column).dtype
    lying = replace(manifest.objects, **{column: np.array(LIES[column], kind)})
    with pytest.raises(FormatError, match="contradicts itself"):
        ObjectTable.parse(memoryview(lying.pack()), url="x")


SETTINGS = {
    "block_codecs": [1 | 3 << 8, 1 | 1 << 8, 1],
    "block_setting_ends": [2, 1, 3],
    "setting_ends": [3, 2, 5],
}


@pytest.mark.parametrize("column", SETTINGS)
def test_settings_of_blocks_are_kept_and_checked(column: str, folders: Any) -> None:
    manifest = ss.ShardDataset(folders("mds.zstd"), fields=["cls"]).manifest
    assert isinstance(manifest, Catalogue)
    plain = manifest.objects
    assert len(plain.block_codecs) == 3
    table = replace(
        plain,
        block_codecs=np.array([1 | 2 << 8, 1 | 1 << 8, 1], "<u4"),
        block_setting_ends=np.array([2, 3, 3], "<u8"),
        setting_ends=np.array([3, 3, 5], "<u8"),
        settings=memoryview(b"abcde"),
    )
    again = ObjectTable.parse(memoryview(table.pack()), url="x")
    assert again.pack() == table.pack()
    assert again.identity == table.identity != plain.identity
    told = [next(again.blocks_of(number).stored_blocks([0])) for number in range(3)]  # type: ignore[union-attr]
    assert [(one.codec, one.setting) for one in told] == [(1, b""), (1, b"de"), (1, b"")]
    lying = replace(table, **{column: np.array(SETTINGS[column], getattr(table, column).dtype)})
    with pytest.raises(FormatError, match="contradicts itself"):
        ObjectTable.parse(memoryview(lying.pack()), url="x")
    with pytest.raises(FormatError, match="contradicts itself"):
        ObjectTable.parse(memoryview(replace(table, settings=memoryview(b"abcdef")).pack()), url="x")
