"""LMDB databases as sources: read by our own reader, through their catalogue."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from shardstream import ImageOptions
from shardstream.errors import ChangedError, DuplicateKeyError, FormatError, UsageError
from shardstream.pack.plan.pack_plan import pack_plan
from shardstream.pack.run import pack

from .making import jpeg, samples, tree

lmdb = pytest.importorskip("lmdb")  # which writes them here; nothing needs it to read


@pytest.fixture(params=[True, False], ids=["folder", "file"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / ("in" if request.param else "in.lmdb")
    write(path, {f"a/{i:03d}.jpg": jpeg(i) for i in range(40)} | {"text": b"hello", "empty": b""}, folder=request.param)
    return path


def write(path: Path, entries: dict[str, bytes], *, folder: bool = True) -> None:
    with lmdb.open(str(path), subdir=folder, map_size=1 << 24) as environment, environment.begin(write=True) as change:
        for key, value in entries.items():
            change.put(key.encode(), value)


@pytest.mark.one_in(2)
def test_values_are_what_their_content_says(database: Path, tmp_path: Path) -> None:
    pack(database, tmp_path / "out", shard_size="10kB", workers=2, images=ImageOptions(jpeg="keep"))
    found = samples(tmp_path / "out")
    assert found == {f"a/{i:03d}": {"jpg": jpeg(i)} for i in range(40)}
    lines = [json.loads(line) for line in (tmp_path / "out" / "rejects.jsonl").read_text().splitlines()]
    assert [line["path"].rpartition("/")[2] for line in lines] == ["empty", "text"]  # in a database of pictures
    pack(database, tmp_path / "two", shard_size="10kB", workers=0, images=ImageOptions(jpeg="keep"))
    assert tree(tmp_path / "two") == tree(tmp_path / "out")


def test_nothing_needs_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "in", {"a": jpeg(1)})
    monkeypatch.setitem(sys.modules, "lmdb", None)
    pack(tmp_path / "in", tmp_path / "out", workers=0)
    assert len(samples(tmp_path / "out")) == 1


def test_keys(database: Path, tmp_path: Path) -> None:
    pack(database, tmp_path / "out", key="stem", workers=0)
    assert "039" in samples(tmp_path / "out")
    pack(database, tmp_path / "lines", key="line", workers=0)
    assert "0000000040" in samples(tmp_path / "lines")
    with pytest.raises(UsageError, match="nor a field"):
        pack(database, tmp_path / "none", key="label")


def test_keys_that_become_one(tmp_path: Path) -> None:
    write(tmp_path / "in", {"x/a": b"1", "y/a": b"2"})
    with pytest.raises(DuplicateKeyError, match=r"data\.mdb#0 and data\.mdb#1"):
        pack(tmp_path / "in", tmp_path / "out", key="stem")


def test_a_change_meanwhile_is_noticed(tmp_path: Path) -> None:
    write(tmp_path / "in", {"a": jpeg(0), "b": jpeg(1)})
    before = pack_plan(tmp_path / "in", tmp_path / "out")
    with lmdb.open(str(tmp_path / "in"), map_size=1 << 24) as environment, environment.begin(write=True) as change:
        change.delete(b"a")
    with pytest.raises(ChangedError, match="it was written again"):
        before.tasks[0].run()
    assert pack_plan(tmp_path / "in", tmp_path / "out").fingerprint != before.fingerprint


@pytest.mark.parametrize("part", [1.0, 0.5, 0.01])
@pytest.mark.parametrize("missing", [4096, 1])
def test_a_database_that_is_cut_off_is_an_error(tmp_path: Path, part: float, missing: int) -> None:
    write(tmp_path / "in", {f"{i:04d}": jpeg(i) for i in range(40)})
    with lmdb.open(str(tmp_path / "in"), readonly=True) as environment:
        whole = (environment.info()["last_pgno"] + 1) * environment.stat()["psize"]
    data = (tmp_path / "in/data.mdb").read_bytes()[:whole]
    cut = max(int(len(data) * part) - missing, 8192)
    (tmp_path / "in/data.mdb").write_bytes(data[:cut])
    with pytest.raises(FormatError, match=f"the database ends at byte {cut} of {whole}") as caught:
        pack(tmp_path / "in", tmp_path / "out")
    assert "fetch or write the file again" in str(caught.value)
    (tmp_path / "in/data.mdb").write_bytes(data)
    assert pack(tmp_path / "in", tmp_path / "out", workers=0).samples == 40


@pytest.mark.parametrize("size", [0, 1, 100, 151, 152, 4096])
def test_files_of_any_size_that_are_no_database(tmp_path: Path, size: int) -> None:
    write(tmp_path, {"a": jpeg(0)})
    whole = (tmp_path / "data.mdb").read_bytes()
    for content in (bytes(size), whole[:size]):
        (tmp_path / "data.mdb").write_bytes(content)
        with pytest.raises(FormatError) as caught:
            pack(tmp_path, tmp_path / "out")
        assert caught.value.place["url"]


def test_what_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "data.mdb").write_bytes(b"nonsense" * 1000)
    with pytest.raises(FormatError, match="not an LMDB database"):
        pack(tmp_path, tmp_path / "out")
    write(tmp_path / "empty", {})
    with pytest.raises(FormatError, match="no sample"):
        pack(tmp_path / "empty", tmp_path / "out")
