"""One damaged or odd file beside a dataset doesn't hide it, and is named."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

import shardstream as ss
from shardstream.errors import FormatError, UsageError


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))


def parquet() -> bytes:
    pa, out = pytest.importorskip("pyarrow"), io.BytesIO()
    pytest.importorskip("pyarrow.parquet").write_table(pa.table({"x": [1, 2]}), out)
    return out.getvalue()


def hdf5() -> bytes:
    out = io.BytesIO()
    with pytest.importorskip("h5py").File(out, "w") as file:
        file["x"] = np.arange(2)
    return out.getvalue()


def zipped() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        file.writestr("a.txt", "x")
        file.writestr("b.txt", "y")
    return out.getvalue()


FILES = {
    "parquet": parquet,
    "h5": hdf5,
    "zip": zipped,
    "jsonl": lambda: b'{"x": 1}\n{"x": 2}\n',
    "json": lambda: b'{"x": 1}\n{"x": 2}\n',
}
BAD = {"empty": b"", "page": b"<html>log in</html>", "pointer": b"version https://git-lfs.github.com/spec/v1\noid 1\n"}


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("suffix", FILES)
def test_the_first_file_of_several_is_damaged(suffix: str, bad: str, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / f"0.{suffix}").write_bytes(BAD[bad])
    (folder / f"1.{suffix}").write_bytes(FILES[suffix]())
    if not (bad == "empty" and suffix in ("json", "jsonl")):  # which has no rows, and is whole
        with pytest.raises(FormatError, match=rf"0\.{suffix}"):
            ss.Reader(folder)
    assert ss.index(folder, damaged="reject", workers=0).samples == 2


@pytest.mark.parametrize("suffix", ["parquet", "h5", "zip"])
def test_files_of_a_format_among_others(suffix: str, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / f"a.{suffix}").write_bytes(FILES[suffix]())
    (folder / "notes.v2").write_bytes(b"")
    name = {"h5": "hdf5"}.get(suffix, suffix)
    assert len(ss.Reader(folder)) == 2
    (folder / "notes.v2").write_bytes(b"text")
    with pytest.raises(
        UsageError, match=rf"is found here, beside other files: notes\.v2[\s\S]*SourceOptions\(format='{name}'"
    ):
        ss.Reader(folder)
    assert len(ss.Reader(folder, reading=ss.SourceOptions(format=name))) == 2
    (folder / "b.jsonl").write_text(json.dumps({"x": 1}))
    with pytest.raises(UsageError, match=rf"are found here[\s\S]*SourceOptions\(format='{name}' or 'jsonl'"):
        ss.Reader(folder)
