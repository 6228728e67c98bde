"""Somebody who gives the wrong place is told what lies there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from shardstream.cli.app import app
from shardstream.testing import make_dataset


def nothing(folder: Path) -> Path:
    return folder


def cut_short(folder: Path) -> Path:
    (folder / ".pack").mkdir()
    return folder


def files(folder: Path) -> Path:
    for number in range(6):
        (folder / f"{number}.xyz").write_text("?")
    return folder


def one_too_high(folder: Path) -> Path:
    make_dataset(folder / "train", samples=5, fields={"id": "int64"}, format="record")
    return folder


def its_head(folder: Path) -> Path:
    make_dataset(folder, samples=5, fields={"id": "int64"})
    return folder / "dataset.json"


def mistyped(folder: Path) -> Path:
    make_dataset(folder / "shards", samples=5, fields={"id": "int64"})
    return folder / "shardz"


@pytest.mark.parametrize(
    ("place", "hint"),
    [
        (nothing, "the folder is empty"),
        (cut_short, "a run of `shardstream pack` was cut short there"),
        (files, "the folder holds 0.xyz, 1.xyz, 2.xyz, 3.xyz and 2 more, of no format"),
        (one_too_high, "a data set is in a folder of it: train;"),
        (its_head, "they lie in a data set of shardstream: give that, "),
        (mistyped, "did you mean 'shards'?"),
    ],
)
def test_what_lies_there_is_named(place: Callable[[Path], Path], hint: str, tmp_path: Path) -> None:
    found = CliRunner().invoke(app, ["info", str(place(tmp_path))])
    assert found.exit_code == 3
    assert f"  hint: {hint}" in found.stderr
    assert found.stderr.splitlines()[-1] == "  see: shardstream errors not-found"
