"""Samples that are lost while packing: each broken line alone, counted for every format, and limited by max_rejects."""

from __future__ import annotations

import gzip
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import shardstream as ss
from shardstream.cli.app import app
from shardstream.cli.report import Exit
from shardstream.errors import TooManyRejectsError, UsageError
from shardstream.pack.options import PackOptions
from shardstream.pack.run import pack, run_pack

from .foreign import tar_bytes

BINS = {
    "bins": ss.PackedSequences(
        64, tokenizer=lambda text: list(text.encode()), tokenizer_id="bytes", token_dtype="uint16"
    )
}
WAYS: dict[str, dict[str, Any]] = {
    "rows": {},
    "fields": {"fields": {"txt": "text"}, "key": "line"},
    "bins": BINS,
}
BROKEN = (3, 4, 17)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))


def rejects(dest: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (dest / "rejects.jsonl").read_text().splitlines()]


def broken_lines(path: Path, count: int = 20, broken: tuple[int, ...] = BROKEN) -> list[int]:
    """Write rows, some of them cut off; where each of these lines begins."""
    lines = [
        b'{"text": "cut' if number in broken else json.dumps({"text": f"document {number}"}).encode()
        for number in range(1, count + 1)
    ]
    text = b"".join(line + b"\n" for line in lines)
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return [sum(len(line) + 1 for line in lines[: number - 1]) for number in broken]


@pytest.mark.parametrize("where", ["file", "folder"])
@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
@pytest.mark.parametrize("way", WAYS)
def test_a_broken_line_costs_its_sample_alone(way: str, name: str, where: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    begins = broken_lines(tmp_path / "in" / name)
    source = tmp_path / "in" / name if where == "file" else tmp_path / "in"
    manifest = pack(source, tmp_path / "out", workers=0, format="record", **WAYS[way])
    assert (manifest.bins.documents if manifest.bins else manifest.samples) == 17
    assert rejects(tmp_path / "out") == [
        {
            "path": name,
            "line": line,
            "kind": "damaged",
            "reason": f"line {line} is not a row: Unterminated string starting at column 10 (offset {begin + 9})",
        }
        for line, begin in zip(BROKEN, begins, strict=True)
    ]


def test_a_broken_line_in_place_is_an_error_unless_it_is_left_out(tmp_path: Path) -> None:
    broken_lines(tmp_path / "a.jsonl")
    with pytest.raises(ss.errors.FormatError, match=r"line 3 is not a row: .*; 3 samples are lost"):
        ss.ShardDataset(tmp_path / "a.jsonl")
    report = ss.index(tmp_path / "a.jsonl", damaged="reject", workers=0)
    assert report.samples == 17
    assert "3 samples are lost" in " ".join(report.notes)
    found = [one["text"] for one in ss.Reader(tmp_path / "a.jsonl")]
    assert found == [f"document {number}" for number in range(1, 21) if number not in BROKEN]


def _npy(folder: Path) -> tuple[Path, int | None]:
    np.save(folder / "a.npy", np.zeros((100, 10), np.float32))
    data = (folder / "a.npy").read_bytes()
    (folder / "a.npy").write_bytes(data[: 128 + 40 * 30])
    return folder / "a.npy", 70


def _tar(folder: Path) -> tuple[Path, int | None]:
    data = tar_bytes({f"{number:03d}.txt": b"x" * 700 for number in range(20)})
    (folder / "a.tar").write_bytes(data[: len(data) // 2])
    return folder / "a.tar", None


def _gzip(folder: Path) -> tuple[Path, int | None]:
    rows = b"".join(json.dumps({"text": os.urandom(40).hex()}).encode() + b"\n" for _ in range(200))
    (folder / "a.jsonl.gz").write_bytes(gzip.compress(rows)[:8000])
    return folder / "a.jsonl.gz", None


def _list(folder: Path) -> tuple[Path, int | None]:
    (folder / "a.json").write_text(json.dumps([{"text": "a"}] * 5)[:-20])
    return folder / "a.json", None


@pytest.mark.parametrize("make", [_npy, _tar, _gzip, _list])
def test_a_damaged_file_says_how_many_samples_it_costs(make: Any, tmp_path: Path) -> None:
    source, lost = make(tmp_path)
    found = CliRunner().invoke(app, ["pack", str(source), str(tmp_path / "out"), "--workers", "0"])
    assert found.exit_code == Exit.PROBLEMS, found.output
    (reject,) = rejects(tmp_path / "out")
    assert reject["samples"] == lost
    told = "the rest of the file is lost, number of samples unknown" if lost is None else f"{lost} samples are lost"
    assert told in reject["reason"]
    text = " ".join(found.stdout.split())
    assert ("at least 1 sample could not be read" if lost is None else f"{lost} samples could not be read") in text
    assert "1 file lost, wholly or in part" in text
    again = CliRunner().invoke(app, ["pack", str(source), str(tmp_path / "out"), "--json"])
    assert again.exit_code == Exit.PROBLEMS
    report = json.loads(again.stdout)
    assert (report["rejects"], report["lost_files"], report["uncounted_files"]) == (lost or 1, 1, int(lost is None))


def test_single_rejected_samples_are_no_failure(tmp_path: Path) -> None:
    broken_lines(tmp_path / "a.jsonl")
    found = CliRunner().invoke(app, ["pack", str(tmp_path / "a.jsonl"), str(tmp_path / "out"), "--workers", "0"])
    assert found.exit_code == Exit.DONE, found.output
    assert "3 samples could not be read" in found.stdout


# -------------------------------------------------------------------------------------------------- max_rejects


class Refusing:
    """A transform that raises for every tenth sample while a file is there."""

    def __init__(self, flag: Path) -> None:
        self.flag = flag

    def __call__(self, sample: dict[str, Any]) -> dict[str, Any]:
        if int(sample["__key__"]) % 10 == 0 and self.flag.exists():
            raise ValueError("refused")
        return sample


def samples(count: int) -> list[dict[str, Any]]:
    return [{"__key__": f"{number:06d}", "txt": "x" * 100} for number in range(count)]


@pytest.mark.parametrize(
    ("limit", "passes", "where"),
    [
        *((limit, True, "here") for limit in (20, "020", "10%")),
        *((limit, False, "here") for limit in (19, "9.99 %", 0)),
        *((20, True, "threads"), (19, False, "threads")),
    ],
)
def test_a_limit_holds_however_it_is_packed(limit: int | str, passes: bool, where: str, tmp_path: Path) -> None:
    """At the end, too, which small runs reach before a share is looked at."""
    (tmp_path / "flag").touch()
    how: dict[str, Any] = {"workers": 0}
    with ThreadPoolExecutor(2) as executor:
        if where == "threads":
            how = {"on": executor}
        how |= {
            "transform": Refusing(tmp_path / "flag"),
            "shard_size": "5kB",
            "reading": ss.SourceOptions(max_rejects=limit),
        }
        if passes:
            assert pack(samples(200), tmp_path / "out", **how).samples == 180
            return
        with pytest.raises(TooManyRejectsError, match=f"cannot be packed; max_rejects is {limit}"):
            pack(samples(200), tmp_path / "out", **how)
    assert not (tmp_path / "out/dataset.json").exists()
    (tmp_path / "flag").unlink()
    options = PackOptions(
        transform=Refusing(tmp_path / "flag"), shard_size="5kB", reading=ss.SourceOptions(max_rejects=0)
    )
    report = run_pack(samples(200), tmp_path / "out", options, workers=0)
    assert (report.manifest.samples, report.rejects) == (200, 0)


def test_finished_shards_without_rejects_are_kept(tmp_path: Path) -> None:
    (tmp_path / "flag").touch()
    given = [one for one in samples(201) if int(one["__key__"]) % 10 or one["__key__"] == "000200"]
    none = ss.SourceOptions(max_rejects=0)
    options = PackOptions(transform=Refusing(tmp_path / "flag"), shard_size="5kB", shuffle=False, reading=none)
    with pytest.raises(TooManyRejectsError, match="1 of "):
        run_pack(given, tmp_path / "out", options, workers=0)
    (tmp_path / "flag").unlink()
    report = run_pack(given, tmp_path / "out", options, workers=0)
    assert report.manifest.samples == 181
    assert report.kept in (report.manifest.shards - 1, report.manifest.shards - 2)  # the one before may be unfinished


def test_a_run_ends_as_soon_as_its_limit_is_passed(tmp_path: Path) -> None:
    broken_lines(tmp_path / "a.jsonl")
    for limit, passes in ((3, True), (2, False), ("15%", True), ("14%", False)):
        dest, seen = tmp_path / f"out{limit}", list[str]()
        if passes:
            assert (
                pack(tmp_path / "a.jsonl", dest, workers=0, reading=ss.SourceOptions(max_rejects=limit)).samples == 17
            )
            continue
        transform = seen.append
        with pytest.raises(TooManyRejectsError, match="3 of 20 samples"):
            pack(
                tmp_path / "a.jsonl", dest, workers=0, reading=ss.SourceOptions(max_rejects=limit), transform=transform
            )
        assert not list(dest.glob("*.tar"))  # lines are known before the first shard is written
    found = CliRunner().invoke(app, ["pack", str(tmp_path / "a.jsonl"), str(tmp_path / "x"), "--max-rejects", "10%"])
    assert found.exit_code == Exit.DATA
    assert "max_rejects is 10%" in found.stderr


def test_an_unknown_number_of_samples_passes_any_limit(tmp_path: Path) -> None:
    source, _ = _tar(tmp_path)
    with pytest.raises(TooManyRejectsError, match=r"of 1 file an unknown number of samples is lost, such as a\.tar"):
        pack(source, tmp_path / "out", workers=0, reading=ss.SourceOptions(max_rejects="50%"))


@pytest.mark.parametrize("limit", [-1, "x", "101%", "%", True, 0.5, "-2", "5 %%"])
def test_what_is_no_limit(limit: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="max_rejects must be a number"):
        pack(samples(2), tmp_path / "out", workers=0, reading=ss.SourceOptions(max_rejects=limit))
