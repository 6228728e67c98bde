"""``tools/gpu_checks`` as far as it goes without a GPU, and what its report says."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from shardstream.testing import make_dataset

ROOT = Path(__file__).resolve().parents[2]


def gpu(name: str) -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "tools"))
        return importlib.import_module(f"gpu.{name}")


report = gpu("report")


def checked(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [str(ROOT / "tools" / "gpu_checks"), *map(str, arguments)]
    environment = os.environ | {"PYTHON": sys.executable, "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module", autouse=True)
def temporary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing of these runs lies in the machine's folder for temporary files, where another test looks meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(tmp_path_factory.mktemp("temporary")))
        yield


@pytest.fixture(scope="module")
def carried(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as ``--prepare`` makes it, without wheels."""
    folder = tmp_path_factory.mktemp("carried")
    make_dataset(folder / "shards", samples=12, fields={"jpg": "jpg", "cls": "int64"})
    return folder


def results(path: Path) -> dict[str, dict[str, Any]]:
    return {one["part"]: one for one in json.loads(path.read_text())["results"]}


@pytest.mark.full
def test_parts_add_to_the_report(carried: Path, tmp_path: Path) -> None:
    where = tmp_path / "deep" / "report.json"
    for parts in ("machine,ahead", "kinds"):
        done = checked("--quick", "--with", carried, "--only", parts, "--report", where)
        assert done.returncode == 0, done.stdout + done.stderr
    found = results(where)
    assert {part: one["status"] for part, one in found.items()} == {
        "machine": "passed",
        "ahead": "left out",
        "kinds": "passed",
    }
    assert found["ahead"]["rows"] == [{"what": "left out", "found": "needs a CUDA device", "aim": "", "failed": False}]
    assert {row["what"]: row["found"] for row in found["kinds"]["rows"]}["sparse, COO"] == "arrived on cpu"
    tables = where.with_suffix(".md").read_text()
    assert "| sparse, COO | arrived on cpu |" in tables
    assert "## The machine" in tables


def test_what_takes_too_long_is_ended_and_said(carried: Path, tmp_path: Path) -> None:
    where = tmp_path / "report.json"
    done = checked("--quick", "--with", carried, "--only", "kinds", "--limit", 1, "--report", where)
    assert done.returncode == 1
    assert done.stderr.endswith("failed: kinds\n")
    assert results(where)["kinds"]["status"] == "stopped after 1 s"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--only", "warp"], "there is no part warp; there are machine, tests,"),
        (["--with", "nowhere"], "nowhere has no shards; make it with tools/gpu_checks --prepare nowhere"),
        (["--limit", "0"], "--limit must be a positive number of seconds, got 0"),
    ],
)
def test_what_cannot_be(arguments: list[str], says: str) -> None:
    done = checked(*arguments)
    assert done.returncode == 2
    assert says in done.stderr


def test_the_last_result_of_a_part_is_shown() -> None:
    row = {"what": "a | b", "found": "3", "aim": "", "failed": True}
    one = {"part": "x", "title": "X", "machine": "M", "status": "failed", "seconds": 2.4, "rows": [row], "said": ""}
    other = one | {"status": "passed", "rows": [row | {"failed": False, "aim": "4"}], "said": "more\n"}
    assert report.tables([one]) == "## X\n\nM; failed, 2 s.\n\n| what | found |\n|---|---|\n| a \\| b | **3** |\n"
    shown = report.tables([one, other])
    assert shown.count("## X") == 1
    assert "| a \\| b | 3 | 4 |" in shown
    assert "```text\nmore\n```" in shown


@pytest.mark.full
def test_all_of_it_runs(tmp_path: Path) -> None:
    """But for the recipes, which tests/recipes runs."""
    where, parts = tmp_path / "report.json", [part for part in gpu("parts").TITLES if part != "recipes"]
    done = checked("--quick", "--only", ",".join(parts), "--report", where)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {one["status"] for one in results(where).values()} == {"passed", "left out"}
