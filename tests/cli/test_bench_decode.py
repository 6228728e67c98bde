from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from shardstream.cli.app import app
from shardstream.images.encode import encode


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    path = tmp_path / "a.jpg"
    path.write_bytes(encode(np.random.default_rng(0).integers(0, 256, (30, 40, 3), np.uint8), "jpg"))
    return path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_a_table_with_what_auto_takes(photo: Path) -> None:
    result = run("bench", "decode", photo, "--seconds", 0.01, "--crop", 16)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0] == "images       1 files"
    assert lines[1].split() == ["1", "jpg", "image,", "40", "x", "30", "in", "the", "middle"]
    rows = {line.split()[0]: line for line in lines[3:-2]}
    assert list(rows) == ["simplejpeg", "pillow", "opencv", "torchvision", "imageio", "accimage"]
    assert [name for name, row in rows.items() if row.endswith("*")] == ["simplejpeg"]
    assert "not installed" in rows["accimage"]


def test_in_json(photo: Path) -> None:
    result = run("bench", "decode", photo, "--seconds", 0.01, "--json", "--quiet")
    found = json.loads(result.stdout)
    assert found["images"] == {"jpg": 1}
    assert found["crop"] == 224
    (speed,) = next(one["speeds"] for one in found["backends"] if one["backend"] == "pillow")
    assert speed["full"] > 0
    assert speed["taken"] is False
    assert not result.stderr


def test_bench_without_a_verb_streams(photo: Path) -> None:
    for arguments in (["bench", photo.parent / "none"], ["bench", "stream", photo.parent / "none"]):
        result = run(*arguments)
        assert result.exit_code == 3
        assert "none" in result.stderr
    told = run("bench", "--help").stdout
    assert told.split() == run("bench", "stream", "--help").stdout.replace("bench stream", "bench").split()
    assert {"--workers", "--crop", "--step"} <= set(told.split())
    assert "bench decode URL" in " ".join(told.split())
    assert run("bench", "decode", photo.parent / "none").exit_code == 3
