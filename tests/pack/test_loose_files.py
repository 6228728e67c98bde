"""Datasets whose samples name files of their own: a file that cannot be read costs its sample alone, in any format."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

import shardstream as ss
from shardstream.cli.app import app
from shardstream.cli.report import Exit
from shardstream.formats.registry import format_named, format_names
from shardstream.pack.options import PackOptions
from shardstream.pack.run import run_pack
from shardstream.pack.sources.base import SourceReading
from shardstream.pack.sources.opening import open_source
from shardstream.testing import MemoryStore

from .foreign import coco, yolo
from .making import jpeg

COUNT = 24


def directory(root: Path) -> Path:
    for number in range(COUNT):
        path = root / f"{number % 2}/{number:03d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(jpeg(number))
    return root


def listed(root: Path) -> Path:
    directory(root)
    lines = (f"{number % 2}/{number:03d}.jpg\t{number % 2}\n" for number in range(COUNT))
    (root / "list.tsv").write_text("".join(lines))
    return root / "list.tsv"


def imagefolder(root: Path) -> Path:
    directory(root)
    rows = (f"{number % 2}/{number:03d}.jpg,caption {number}\n" for number in range(COUNT))
    (root / "metadata.csv").write_text("".join(("file_name,text\n", *rows)))
    return root


class Kind(NamedTuple):
    make: Callable[[Path], Path]
    format: str | None
    file: str
    line: int


KINDS = {
    "COCO": Kind(coco, None, "val2017/003.jpg", 4),
    "YOLO": Kind(yolo, None, "images/003.jpg", 4),
    "directory": Kind(directory, "files", "1/003.jpg", COUNT // 2 + 2),
    "list": Kind(listed, "files", "1/003.jpg", 4),
    "layout in place": Kind(imagefolder, "files", "1/003.jpg", 4),
    "layout": Kind(imagefolder, None, "1/003.jpg", 5),
}


def _missing(path: Path) -> tuple[str, str]:
    path.unlink()
    return "missing", "there is no such file"


def _directory(path: Path) -> tuple[str, str]:
    path.unlink()
    path.mkdir()
    return "invalid", "it is a directory"


def _loop(path: Path) -> tuple[str, str]:
    path.unlink()
    path.symlink_to(path.name)
    return "missing", "Too many levels of symbolic links"


def _forbidden(path: Path) -> tuple[str, str]:
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("root reads every file")
    return "missing", "Permission denied"


def _empty(path: Path) -> tuple[str, str]:
    path.write_bytes(b"")
    return "damaged", "the file is empty"


def _placeholder(path: Path) -> tuple[str, str]:
    size = path.stat().st_size  # as it was listed
    path.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n".ljust(size))
    return "missing", "Git LFS pointer"


FAULTS = (_missing, _directory, _loop, _forbidden, _empty, _placeholder)


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))


def rejects(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "rejects.jsonl").read_text().splitlines()]


def test_every_format_of_files_is_tried() -> None:
    assert {name for name in format_names() if format_named(name).loose} == {"coco", "yolo", "files"}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_file_that_cannot_be_read_is_one_reject(
    kind: Kind, fault: Callable[[Path], tuple[str, str]], tmp_path: Path
) -> None:
    """Also where it went after the directory was listed."""
    root = tmp_path / "in"
    source = open_source(str(kind.make(root)), reading=SourceReading(format=kind.format))
    what, reason = fault(root / kind.file)
    report = run_pack(source, tmp_path / "out", PackOptions(), workers=0)
    assert (report.manifest.samples, report.rejects, report.fault_kinds) == (COUNT - 1, 1, {what: 1})
    (reject,) = rejects(tmp_path / "out")
    assert (reject["path"], reject["line"], reject["kind"]) == (kind.file, kind.line, what)
    assert reason in reject["reason"]


@pytest.mark.parametrize("kind", [KINDS["COCO"], KINDS["list"]], ids=["COCO", "list"])
def test_the_command_counts_and_limits_such_rejects_and_goes_on(kind: Kind, tmp_path: Path) -> None:
    source = kind.make(tmp_path / "in")
    (tmp_path / "in" / kind.file).rename(tmp_path / "away")
    formats = [] if kind.format is None else ["--source-format", kind.format]

    def packed(out: str, *flags: str) -> Any:
        given = ["pack", str(source), str(tmp_path / out), "--workers", "0", "--shard-size", "9kB", *formats, *flags]
        return CliRunner().invoke(app, given)

    done = packed("all")
    assert done.exit_code == Exit.DONE, done.output
    assert "1 sample could not be read" in done.output
    refused = packed("none", "--max-rejects", "0")
    assert refused.exit_code == Exit.DATA, refused.output
    assert not (tmp_path / "none/dataset.json").exists()
    (tmp_path / "away").rename(tmp_path / "in" / kind.file)
    again = packed("none", "--max-rejects", "0")
    assert again.exit_code == Exit.DONE, again.output
    assert len(ss.ShardDataset(tmp_path / "none")) == COUNT


WAYS: tuple[dict[str, Any], ...] = (
    {"fields": {"number": "txt:int64"}},
    {"fields": {"image": "txt:bytes"}},
    {"key": "txt"},
    {"fields": {"cls": "txt"}, "labels": "name"},
)


@pytest.mark.parametrize("how", WAYS)
def test_a_missing_file_whose_content_is_a_number_key_or_label_is_one_reject(
    how: dict[str, Any], tmp_path: Path
) -> None:
    root = tmp_path / "in"
    root.mkdir()
    for number in range(9):
        (root / f"{number}.txt").write_text(str(number))
    (root / "list.tsv").write_text("".join(("path\tcls\n", *(f"{number}.txt\t0\n" for number in range(9)))))
    (root / "3.txt").unlink()
    reading = ss.SourceOptions(format="files")
    assert ss.pack(root / "list.tsv", tmp_path / "out", reading=reading, workers=0, **how).samples == 8
    (reject,) = rejects(tmp_path / "out")
    assert (reject["path"], reject["kind"], reject["reason"]) == ("3.txt", "missing", "there is no such file")


def test_a_store_lacks_an_object(tmp_path: Path) -> None:
    root = coco(tmp_path / "in")
    files = {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*.*") if path.is_file()}
    del files["val2017/003.jpg"], files["val2017/009.jpg"]
    assert ss.repack(MemoryStore(files), tmp_path / "out", workers=0).samples == COUNT - 2
    expected = {"kind": "missing", "reason": "there is no such file"}
    found = rejects(tmp_path / "out")
    assert found == [{"path": f"val2017/{n:03d}.jpg", "line": n + 1, **expected} for n in (3, 9)]
