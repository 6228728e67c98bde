"""What a run would do is what it then does, and nothing is written for it."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import shardstream as ss
from shardstream.cli.app import app
from shardstream.errors import DestinationError, SourceError
from shardstream.images.encode import encode
from shardstream.pack.dry_run import DryRun, dry_run
from shardstream.pack.options import PackOptions
from shardstream.pack.output.places import StorageOptions


def look(source: object, dest: object, **options: Any) -> DryRun:
    return dry_run(str(source), str(dest), PackOptions(**options), storage=StorageOptions(), workers=1)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for number in range(240):
        path = tmp_path / "photos" / ("cat", "dog")[number % 2] / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode(rng.integers(0, 256, (32, 40, 3), np.uint8), "jpg") if number % 10 else b"none")
    return tmp_path / "photos"


def test_it_foretells_what_is_written(photos: Path, tmp_path: Path) -> None:
    found = look(photos, tmp_path / "out", shard_size="100kB")
    assert [path.name for path in tmp_path.iterdir()] == ["photos"]
    manifest = ss.pack(photos, tmp_path / "out", shard_size="100kB", workers=1)
    assert (found.samples, found.shards, found.classes) == (240, manifest.shards, manifest.classes)
    assert found.fields == {name: str(kind) for name, kind in manifest.fields.items()}
    assert found.bytes == pytest.approx(manifest.bytes, rel=0.2)
    assert found.probed == 100
    assert 2 <= found.rejected <= 20
    assert all(one.path.endswith("0.jpg") for one in found.rejects)
    assert (found.holds, found.complete) == (None, False)
    again = look(photos, tmp_path / "out", shard_size="100kB")
    assert (again.holds, again.complete) == (216, True)
    other = look(photos, tmp_path / "out", shard_size="100kB", seed=1)
    assert (other.holds, other.complete) == (216, False)


def test_a_source_that_can_only_be_read_in_order_is_not_read_whole(photos: Path, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "data.tar.gz", "w:gz") as tar:
        tar.add(photos, "photos")
    found = look(tmp_path / "data.tar.gz", tmp_path / "out")
    assert found.probed <= 240
    assert "jpg" in found.fields
    assert not (tmp_path / "out").exists()


def test_errors_are_those_of_a_run(photos: Path, tmp_path: Path) -> None:
    with pytest.raises(DestinationError, match="lies in the folder"):
        look(photos, photos / "out")
    (tmp_path / "empty").mkdir()
    with pytest.raises(SourceError):
        look(tmp_path / "empty", tmp_path / "out")


def test_the_command_prints_the_plan(photos: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["pack", str(photos), str(tmp_path / "out"), "--dry-run", "-q"])
    assert result.exit_code == 0, result.output
    rows = dict(line.split(maxsplit=1) for line in result.stdout.splitlines() if not line.startswith(" "))
    assert rows["source"].endswith("240 samples")
    assert rows["classes"] == "2: cat, dog"
    assert "of 100 samples looked at, so about " in rows["rejects"]
    assert rows["time"].startswith("about ")
    assert not (tmp_path / "out").exists()
