"""``shardstream merge`` and ``shardstream export``: what they print, and what they return."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from shardstream.cli.app import app
from shardstream.pack.writer import ShardWriter
from shardstream.shards.manifest import Manifest


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("NO_COLOR", "1")


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def sets(tmp_path: Path) -> list[Path]:
    for name in ("one", "two"):
        with ShardWriter(tmp_path / name, shard_size="3kB") as writer:
            for i in range(5):
                writer.write({"__key__": f"{name}/{i}", "bin": bytes(1000), "cls": i})
    return [tmp_path / "one", tmp_path / "two"]


def test_merge(sets: list[Path], tmp_path: Path) -> None:
    result = run("merge", *sets, tmp_path / "both")
    assert result.exit_code == 0
    assert "both: 10 samples of 2 data sets in 6 shards" in result.stdout.replace("\n", "")
    again = run("merge", *sets, tmp_path / "both", "--json")
    assert json.loads(again.stdout)["fingerprint"] == Manifest.load(tmp_path / "both").fingerprint
    other = run("merge", sets[0], tmp_path / "both")
    assert other.exit_code == 2
    assert "--overwrite" in other.stderr
    assert run("merge", sets[0], tmp_path / "both", "--overwrite", "-q").exit_code == 0
    twice = run("merge", sets[0], tmp_path / "both", tmp_path / "x", "-q")
    assert twice.exit_code == 3
    assert "has the same key" in twice.stderr


def test_export(sets: list[Path], tmp_path: Path) -> None:
    result = run("export", sets[0], tmp_path / "files", "--to", "files", "--workers", 0)
    assert result.exit_code == 0
    assert "files: 5 samples as files (" in result.stdout.replace("\n", "")
    again = run("export", sets[0], tmp_path / "files", "--to", "files", "--workers", 0)
    assert "as files, 5 of them by an earlier run" in again.stdout.replace("\n", "")
    report = json.loads(
        run("export", sets[1], tmp_path / "tars", "--to", "webdataset", "--workers", 0, "--json").stdout
    )
    assert (report["samples"], report["kept"]) == (5, 0)
    assert run("export", sets[0], tmp_path / "tars", "--to", "webdataset").exit_code == 2
    assert run("export", sets[0], tmp_path / "new").exit_code == 2


def test_info_lists_versions(sets: list[Path]) -> None:
    with ShardWriter(sets[0], append=True) as writer:
        writer.write({"__key__": "new", "cls": 1})
    result = run("info", sets[0])
    assert "version     2 (older ones too: 1)" in result.stdout
