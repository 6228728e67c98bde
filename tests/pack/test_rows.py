"""``rows.parquet``: what became of every line."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from shardstream import ShardOptions, StorageOptions
from shardstream.pack.options import PackOptions
from shardstream.pack.run import pack, run_pack
from shardstream.shards.framings import framing_of
from shardstream.shards.manifest import Manifest
from shardstream.storage import MappedBuffers, open_store

from ..storage.places import S3Place
from .making import jpeg, photo_list, tree

parquet = pytest.importorskip("pyarrow.parquet")


def no_threes(sample: dict[str, Any]) -> dict[str, Any] | None:
    return None if sample["__key__"].endswith("3") else sample


@pytest.fixture
def source(tmp_path: Path) -> Path:
    found = photo_list(tmp_path / "in", 40)
    (tmp_path / "in" / "c2" / "00005.jpg").write_bytes(b"")
    (tmp_path / "in" / "c0" / "00006.jpg").write_bytes(jpeg(2))
    found.write_text("path\tlabel\n\n" + found.read_text() + "\t1\n")
    return found


OPTIONS: dict[str, Any] = {
    "shard_size": "10kB",
    "transform": no_threes,
    "dedup": True,
    "shards": ShardOptions(rows=True),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("format", ["tar", "record"])
def test_every_line_is_there_once(source: Path, tmp_path: Path, format: Any) -> None:
    out = tmp_path / "out"
    report = run_pack(source, out, PackOptions(format=format, **OPTIONS), workers=0)
    rows = parquet.read_table(out / "rows.parquet").to_pylist()
    assert sorted(row["line"] for row in rows) == list(range(3, 44))
    assert Counter(row["status"] for row in rows) == {"packed": 34, "dropped": 4, "rejected": 2, "duplicate": 1}
    assert report.tally.samples == 34
    by_line = {row["line"]: row for row in rows}
    assert by_line[9]["reason"] == "a copy of line 5"
    assert by_line[8]["reason"] == "the file is empty"
    assert by_line[8]["path"] == "c2/00005.jpg"
    assert by_line[43]["reason"] == "the line has no path"
    assert by_line[6]["status"] == "dropped"
    manifest, store = Manifest.load(out), open_store(out)
    for row in rows:
        if row["status"] != "packed":
            assert (row["key"], row["offset"]) == (None, None)
            continue
        assert row["key"] == f"c{(row['line'] - 3) % 3}/{row['line'] - 3:05d}"
        index = framing_of(format).scan(store, row["shard"])
        (found,) = (i for i, key in enumerate(index.keys) if key == row["key"])
        data = framing_of(format).extract(index, MappedBuffers(store), [found], ["jpg"])["jpg"].data[0]  # type: ignore[arg-type]
        assert bytes(data) == (out / row["shard"]).read_bytes()[row["offset"] :][: len(data)]  # type: ignore[arg-type]
    assert {row["shard"] for row in rows if row["status"] == "packed"} <= {
        manifest.shard_name(i) for i in range(manifest.shards)
    }


@pytest.mark.full
def test_it_is_the_same_however_it_was_packed(s3: S3Place, source: Path, tmp_path: Path) -> None:
    pack(source, tmp_path / "one", workers=0, **OPTIONS)
    pack(source, tmp_path / "two", workers=2, **OPTIONS)
    pack(source, tmp_path / "two", workers=2, overwrite=True, **OPTIONS)
    assert tree(tmp_path / "two") == tree(tmp_path / "one")
    pack(source, s3.url(), storage=StorageOptions(options=s3.options), workers=2, **OPTIONS)
    assert s3.dig("rows.parquet") == tree(tmp_path / "one")["rows.parquet"]


def test_shards_without_their_lines_are_done_again(source: Path, tmp_path: Path) -> None:
    from shardstream.pack.plan.pack_plan import pack_plan

    options = OPTIONS | {"dedup": False}
    for task in pack_plan(source, tmp_path / "out", **options | {"shards": ShardOptions(rows=False)}).tasks:
        task.run()
    report = run_pack(source, tmp_path / "out", PackOptions(**options), workers=0)
    assert report.kept == 0
    assert parquet.read_table(tmp_path / "out" / "rows.parquet").num_rows == 41
