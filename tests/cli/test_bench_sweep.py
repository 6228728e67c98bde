from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import shardstream as ss
from shardstream.cli.app import app


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with ss.ShardWriter(tmp_path / "set") as writer:
        for i in range(20):
            writer.write({"__key__": f"{i}", "cls": i})
    return tmp_path / "set"


def test_a_sweep_in_json_with_its_figure(folder: Path, tmp_path: Path) -> None:
    arguments = ["bench", folder, "--sweep", "--json", "-q", "--batch-size", 4, "--seconds", 0.02]
    result = CliRunner().invoke(app, [str(one) for one in (*arguments, "--plot", tmp_path / "a.svg")])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["best"] in found["trials"]
    assert found["line"].startswith("loader = ss.Loader(ds, batch_size=")
    assert (tmp_path / "a.svg").read_text().startswith("<svg ")


def test_the_tables_end_in_a_line_of_python(folder: Path) -> None:
    arguments = ["bench", folder, "--sweep", "-q", "--batch-size", 4, "--seconds", 0.02]
    result = CliRunner().invoke(app, [str(one) for one in arguments])
    assert result.exit_code == 0, result.output
    *_, line, following = result.stdout.splitlines()
    assert line.startswith("loader = ss.Loader(ds, batch_size=")
    assert following.startswith("next: shardstream bench ")


@pytest.mark.parametrize(
    ("options", "hint"),
    [(["--plot", "a.svg"], "give --sweep too"), (["--sweep", "--workers", "2"], "leave --workers")],
)
def test_what_does_not_go_together_is_refused(folder: Path, options: list[str], hint: str) -> None:
    result = CliRunner().invoke(app, ["bench", str(folder), *options])
    assert result.exit_code == 2
    assert hint in result.stderr
