"""JSON lines whose rows are samples: packed as they are read in place; those that name files stay lists."""

from __future__ import annotations

import bz2
import gzip
import json
from pathlib import Path

import pytest

import shardstream as ss
from shardstream.errors import FormatError
from shardstream.formats.blocks import found_blocks
from shardstream.formats.sources.foreign import ForeignSource
from shardstream.pack.run import pack
from shardstream.pack.sources.lists.source import ListSource
from shardstream.pack.sources.opening import open_source

from .foreign import stored
from .making import photos

ROWS = [{"text": f"number {row}\n", "n": row, "tokens": [row] * 3} for row in range(40)]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def written(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    for part in range(2):
        text = "".join(json.dumps(row) + "\n" for row in ROWS[20 * part : 20 * part + 20])
        (folder / f"part-{part}.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    (folder / "README.md").write_text("rows")
    return folder


@pytest.mark.parametrize("what", ["", "part-0.jsonl.gz", "part-{0,1}.jsonl.gz", "*.jsonl.gz"])
def test_rows_are_packed_as_they_are_read_in_place(tmp_path: Path, what: str) -> None:
    source = str(written(tmp_path / "in") / what)
    pack(source, tmp_path / "out", workers=0)
    found, kinds = stored(tmp_path / "out")
    assert (found, kinds) == stored(source)
    assert len(found) == (20 if what == "part-0.jsonl.gz" else 40)
    assert {name: str(kind) for name, kind in kinds.items()} == {"text": "str", "n": "int64", "tokens": "values:int64"}


def test_rows_that_name_files_and_columns_that_are_chosen_are_lists(tmp_path: Path) -> None:
    photos(tmp_path / "photos", 2)
    names = [path.relative_to(tmp_path).as_posix() for path in (tmp_path / "photos").rglob("*.jpg")]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"image": name}) + "\n" for name in names))
    assert isinstance(open_source(tmp_path / "a.jsonl"), ListSource)
    (tmp_path / "b.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    assert isinstance(open_source(tmp_path / "b.jsonl"), ForeignSource)
    assert isinstance(open_source(tmp_path / "b.jsonl", fields={"t": "text"}, key="line"), ListSource)


def test_a_damaged_line_costs_the_rows_behind_it(tmp_path: Path) -> None:
    text = "".join(json.dumps(row) + "\n" for row in ROWS)
    (tmp_path / "a.jsonl").write_text(text[: len(text) // 2])
    pack(tmp_path / "a.jsonl", tmp_path / "out", workers=0)
    (reject,) = map(json.loads, (tmp_path / "out/rejects.jsonl").read_text().splitlines())
    count = (text[: len(text) // 2]).count("\n")
    assert len(stored(tmp_path / "out")[0]) == count
    assert f"line {count + 1} is not a row" in reject["reason"]
    (tmp_path / "b.jsonl").write_text("hello\n")
    with pytest.raises(FormatError, match="line 1 is not a row: Expecting value at column 1"):
        pack(tmp_path / "b.jsonl", tmp_path / "none", workers=0)


def test_what_is_compressed_as_one_block_too_large_is_packed_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(found_blocks, "LARGEST_WHOLE", 1000)
    text = "".join(json.dumps(row) + "\n" for row in ROWS)
    (tmp_path / "a.jsonl.bz2").write_bytes(bz2.compress(text.encode()))
    with pytest.raises(FormatError, match="or pack the data set"):
        ss.index(tmp_path / "a.jsonl.bz2")
    pack(tmp_path / "a.jsonl.bz2", tmp_path / "out", workers=0, shuffle=False)
    found = [json.loads(json.dumps(one, default=str)) for one in ss.Reader(tmp_path / "out")]
    assert [(one["__key__"], one["text"], one["n"]) for one in found] == [
        (f"{row + 1:010d}", f"number {row}\n", row) for row in range(40)
    ]
