"""What is at fault: the same kind in rejects.jsonl, report.json, the report, `verify --json`, and on the terminal."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import shardstream as ss
from shardstream.cli.app import app
from shardstream.diagnose import verify
from shardstream.faults import FAULT_KINDS, fault_kind
from shardstream.pack.options import PackOptions
from shardstream.pack.run import run_pack
from shardstream.testing.pictures import photo, save
from tests.images.test_unsupported import POINTER, jpeg


def files() -> dict[str, tuple[bytes, str | None]]:
    """Files, and what kind of reject each is."""
    good = save(photo(16, 16), "JPEG")
    return {
        "a.jpg": (good, None),
        "b.jpg": (good[:200], "damaged"),
        "c.jpg": (b"", "damaged"),
        "d.jpg": (b"8BPS" + bytes(40), "unsupported"),
        "e.jpg": (POINTER, "missing"),
        "f.jpg": (jpeg(bits=12), "unsupported"),
    }


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    for name, (data, _) in files().items():
        (tmp_path / "in" / name).write_bytes(data)
    lines = [f"in/{name}\t1\n" for name in files()] + ["in/none.jpg\t1\n", "in/a.jpg\tcat\n"]
    (tmp_path / "list.tsv").write_text("".join(lines))
    return tmp_path / "list.tsv"


def test_every_reject_has_its_kind(source: Path, tmp_path: Path) -> None:
    report = run_pack(source, tmp_path / "out", PackOptions(images=ss.ImageOptions(check="decode")), workers=0)
    rejects = [json.loads(line) for line in (tmp_path / "out" / "rejects.jsonl").read_text().splitlines()]
    found = {(one["path"], one["line"]): one["kind"] for one in rejects}
    expected = {(f"in/{name}", row): kind for row, (name, (_, kind)) in enumerate(files().items(), 1) if kind}
    assert found == expected | {("in/none.jpg", 7): "missing", ("in/a.jpg", 8): "invalid"}
    counts = {"damaged": 2, "missing": 2, "unsupported": 2, "invalid": 1}
    assert report.fault_kinds == counts
    assert json.loads((tmp_path / "out" / "report.json").read_text())["reject_kinds"] == counts
    assert (report.told_rejects("sample"), report.told_kinds) == (
        "7 samples",
        "2 damaged, 2 missing, 2 unsupported, 1 invalid",
    )
    again = run_pack(
        source, tmp_path / "out", PackOptions(images=ss.ImageOptions(check="decode")), workers=0
    )  # as they were kept
    assert again.fault_kinds == counts
    assert set(counts) == set(FAULT_KINDS)


def test_verify_says_the_kind_of_each_problem(source: Path, tmp_path: Path) -> None:
    manifest = ss.pack(source.parent / "in", tmp_path / "out", damaged="keep", workers=0)
    assert manifest.kinds["jpg"]["unsupported"] == 1
    problems = verify(tmp_path / "out", decode=True).problems
    assert sorted(one.kind for one in problems) == ["damaged", "missing", "unsupported", "unsupported"]
    assert {one.check for one in problems} == {"picture"}
    result = CliRunner().invoke(app, ["verify", str(tmp_path / "out"), "--decode", "--json"])
    told = json.loads(result.stdout)["problems"]
    assert [one["kind"] for one in told] == [one.kind for one in problems]
    result = CliRunner().invoke(app, ["verify", str(tmp_path / "out"), "--decode"])
    assert "2 unsupported" in result.stdout
    assert ": 4 problems: " in result.stdout.replace("\n", " ")


def test_arrays_and_texts_have_kinds(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    np.save(folder / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    np.save(folder / "whole.npy", np.arange(9))
    (folder / "half.npy").write_bytes((folder / "whole.npy").read_bytes()[:-4])
    (folder / "latin.txt").write_bytes("café".encode("latin-1"))
    ss.pack(f"{folder}/*.npy", tmp_path / "arrays", workers=0)
    ss.pack(
        [{"__key__": "a", "txt": "b"}, {"__key__": "c", "txt": b"caf\xe9"}], tmp_path / "texts", fields={"txt": "str"}
    )
    found = {
        one["path"].rpartition("/")[2]: one["kind"]
        for out in ("arrays", "texts")
        for one in map(json.loads, (tmp_path / out / "rejects.jsonl").read_text().splitlines())
    }
    assert found == {"objects.npy": "unsupported", "half.npy": "damaged", "c": "unsupported"}


@pytest.mark.parametrize(
    "error",
    [
        kind
        for kind in vars(ss.errors).values()
        if isinstance(kind, type) and issubclass(kind, ss.errors.ShardStreamError)
    ],
)
def test_the_class_of_an_error_says_its_kind(error: type[ss.errors.ShardStreamError]) -> None:
    """Data that cannot be read are damaged, unless a class says that they are not."""
    kind = fault_kind(error("what"))
    assert kind in FAULT_KINDS
    if not issubclass(error, ss.errors.DataError | ss.errors.StorageError | ss.errors.MissingExtraError):
        assert kind == "invalid"
    if error in (ss.errors.DataError, ss.errors.DecodeError, ss.errors.FormatError, ss.errors.ChecksumError):
        assert kind == "damaged"
