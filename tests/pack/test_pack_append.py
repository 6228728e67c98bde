"""``ss.pack(append=True)``: a data set grows by what a source holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import shardstream as ss
from shardstream.errors import DestinationError, FieldError, UsageError
from shardstream.pack.options import PackOptions
from shardstream.pack.output.destination import Destination
from shardstream.pack.plan.pack_plan import pack_plan
from shardstream.pack.run import pack, run_pack
from shardstream.shards.manifest import Manifest

from ..storage.places import S3Place
from .making import photo_list, samples, tree

SMALL = "10kB"
OPTIONS: dict[str, Any] = {"shard_size": SMALL, "key": "line"}


@pytest.fixture
def sources(tmp_path: Path) -> tuple[Path, Path]:
    one, two = photo_list(tmp_path / "a", 40), photo_list(tmp_path / "b", 25)
    for folder, number in (("a", "00003"), ("b", "00006")):
        (tmp_path / folder / "c0" / f"{number}.jpg").write_bytes(b"broken")
    # Keys go on behind those of the first.
    two.write_text("\n" * 40 + two.read_text())
    return one, two


def grow(out: Any, sources: tuple[Path, Path], **options: Any) -> Manifest:
    for source in sources:
        found = pack(source, out, append=True, workers=0, **OPTIONS, **options)
    return found


def test_new_shards_behind_the_old_ones(sources: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    one = pack(sources[0], out, append=True, workers=0, **OPTIONS)
    before = tree(out)
    assert (one.version, one.samples) == (1, 39)
    report = run_pack(
        sources[1], out, PackOptions(**OPTIONS, shards=ss.ShardOptions(rows=True)), append=True, workers=2
    )
    two = report.manifest
    assert (two.version, two.samples, two.shards > one.shards) == (2, 63, True)
    after = tree(out)
    changed = {name for name in before if after.get(name) != before[name]}
    assert changed == {"dataset.json", "rejects.jsonl", "report.json"}
    assert list(samples(out))[:39] == list(samples(tmp_path / "out"))[:39]
    assert Manifest.load(out, version=1).fingerprint == one.fingerprint
    lines = [json.loads(line) for line in (out / "rejects.jsonl").read_text().splitlines()]
    assert [entry["line"] for entry in lines] == [4, 47]
    assert json.loads((out / "report.json").read_text())["version"] == 2
    assert not (out / ".pack").exists()
    rows = pytest.importorskip("pyarrow.parquet").read_table(out / "rows.parquet").to_pylist()
    assert {row["shard"] for row in rows} == {two.shard_name(i) for i in range(one.shards, two.shards)}
    assert len(ss.Reader(out)) == 63


def test_again_it_is_complete(sources: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    grow(out, sources)
    before = tree(out)
    for source in sources:
        assert run_pack(source, out, PackOptions(**OPTIONS), append=True, workers=0).complete
    assert tree(out) == before
    for source in sources:  # neither of them is all that is there
        with pytest.raises(DestinationError, match="another data set, of 63 samples"):
            pack(source, out, workers=0, **OPTIONS)


@pytest.mark.full
def test_the_same_however_it_was_done(s3: S3Place, sources: tuple[Path, Path], tmp_path: Path) -> None:
    grow(tmp_path / "one", sources)
    pack(sources[0], tmp_path / "two", workers=2, **OPTIONS)
    plan = pack_plan(sources[1], tmp_path / "two", append=True, **OPTIONS)
    for task in plan.tasks[:2]:
        task.run()
    with pytest.raises(UsageError, match="not written yet"):
        plan.commit()
    assert run_pack(sources[1], tmp_path / "two", PackOptions(**OPTIONS), append=True, workers=2).kept == 2
    assert tree(tmp_path / "two") == tree(tmp_path / "one")
    grow(s3.url(), sources, storage=ss.StorageOptions(options=s3.options))
    expected = tree(tmp_path / "one")
    assert {name: s3.dig(name) for name in expected} == expected


def test_killed_right_after_the_switch(
    sources: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grow(tmp_path / "whole", sources)
    out = tmp_path / "out"
    pack(sources[0], out, workers=0, **OPTIONS)
    with monkeypatch.context() as patch:
        patch.setattr(Destination, "finish", _interrupted)
        with pytest.raises(KeyboardInterrupt):
            pack(sources[1], out, append=True, workers=0, **OPTIONS)
    assert Manifest.load(out).version == 2
    assert run_pack(sources[1], out, PackOptions(**OPTIONS), append=True, workers=0).complete
    assert tree(out) == tree(tmp_path / "whole")


def _interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def test_what_does_not_go_together_is_refused_before_anything_is_written(
    sources: tuple[Path, Path], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    pack(sources[0], out, workers=0, **OPTIONS)
    before = tree(out)
    with pytest.raises(UsageError, match="record"):
        pack(sources[1], out, append=True, format="record", workers=0, **OPTIONS)
    with pytest.raises(UsageError, match="exclude"):
        pack(sources[1], out, append=True, overwrite=True, **OPTIONS)
    with pytest.raises(FieldError):
        pack(sources[1], out, append=True, fields={"jpg": "0", "cls": "1:float"}, workers=0, **OPTIONS)
    assert tree(out) == before
