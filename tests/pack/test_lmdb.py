"""LMDB databases as sources."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shardstream.errors import DuplicateKeyError, SourceError, UsageError
from shardstream.pack import pack, pack_plan
from shardstream.pack.sources.lmdb import _environment

from .making import jpeg, samples, tree

lmdb = pytest.importorskip("lmdb")


@pytest.fixture(params=[True, False], ids=["folder", "file"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / ("in" if request.param else "in.lmdb")
    write(path, {f"a/{i:03d}.x": jpeg(i) for i in range(40)} | {"text": b"hello", "empty": b""}, folder=request.param)
    return path


def write(path: Path, entries: dict[str, bytes], *, folder: bool = True) -> None:
    _environment.cache_clear()
    with lmdb.open(str(path), subdir=folder, map_size=1 << 24) as environment, environment.begin(write=True) as change:
        for key, value in entries.items():
            change.put(key.encode(), value)


def test_values_are_what_their_content_says(database: Path, tmp_path: Path) -> None:
    pack(database, tmp_path / "out", shard_size="10kB", workers=2)
    found = samples(tmp_path / "out")
    assert found == {f"a/{i:03d}": {"jpg": jpeg(i)} for i in range(40)} | {"text": {"bin": b"hello"}}
    (line,) = (tmp_path / "out" / "rejects.jsonl").read_text().splitlines()
    assert json.loads(line) == {"path": "empty", "line": 41, "reason": "the value is empty"}
    pack(database, tmp_path / "two", shard_size="10kB", workers=0)
    assert tree(tmp_path / "two") == tree(tmp_path / "out")


def test_keys(database: Path, tmp_path: Path) -> None:
    pack(database, tmp_path / "out", key="stem", workers=0)
    assert "039" in samples(tmp_path / "out")
    pack(database, tmp_path / "lines", key="line", workers=0)
    assert "0000000040" in samples(tmp_path / "lines")
    with pytest.raises(UsageError, match="no columns"):
        pack(database, tmp_path / "none", key="label")


def test_keys_that_become_one(tmp_path: Path) -> None:
    write(tmp_path / "in", {"a.x": b"1", "a.y": b"2"})
    with pytest.raises(DuplicateKeyError, match=r"a\.x and a\.y"):
        pack(tmp_path / "in", tmp_path / "out")


def test_a_change_meanwhile_is_noticed(tmp_path: Path) -> None:
    write(tmp_path / "in", {"a": jpeg(0), "b": jpeg(1)})
    before = pack_plan(tmp_path / "in", tmp_path / "out")
    _environment.cache_clear()
    with lmdb.open(str(tmp_path / "in"), map_size=1 << 24) as environment, environment.begin(write=True) as change:
        change.delete(b"a")
    with pytest.raises(SourceError, match="changed while it was being packed"):
        before.tasks[0].run()
    assert pack_plan(tmp_path / "in", tmp_path / "out").fingerprint != before.fingerprint


def test_what_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "data.mdb").write_bytes(b"nonsense" * 1000)
    with pytest.raises(SourceError, match="cannot be read"):
        pack(tmp_path, tmp_path / "out")
    write(tmp_path / "empty", {})
    with pytest.raises(SourceError, match="is empty"):
        pack(tmp_path / "empty", tmp_path / "out")
