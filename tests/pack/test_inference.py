"""Types of fields that nobody declared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shardstream.errors import SourceError
from shardstream.pack.options import PackOptions
from shardstream.pack.run import pack, run_pack

from .making import samples


def make(folder: Path, rows: list[dict[str, Any]]) -> Path:
    path = folder / "list.jsonl"
    path.write_text("".join(f"{json.dumps({'id': i} | row)}\n" for i, row in enumerate(rows)))
    return path


FIELDS = {"score": "score", "txt": "txt"}


@pytest.mark.full
def test_whole_numbers_among_others_are_floats(tmp_path: Path) -> None:
    """Each shard alone would see one type only."""
    path = make(tmp_path, [{"score": i if i < 300 else i / 2, "txt": "a" * 500} for i in range(600)])
    found = pack(path, tmp_path / "out", fields=FIELDS, key="line", shard_size="50kB", shuffle=False, workers=2)
    assert found.shards > 4
    assert {name: kind.name for name, kind in found.fields.items()} == {"score": "float64", "txt": "str"}
    assert samples(tmp_path / "out")["0000000003"]["score"] == 2.0


def test_a_rare_value_that_does_not_fit_is_a_reject(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"score": i, "txt": "a"} for i in range(5000)]
    rows[2500] = {"score": "none", "txt": "a"}
    report = run_pack(make(tmp_path, rows), tmp_path / "out", PackOptions(fields=FIELDS, key="line"), workers=0)
    assert report.manifest.fields["score"].name == "int64"
    assert report.first_reject is not None
    assert (report.rejects, report.first_reject.line) == (1, 2501)
    assert "expected int64" in report.first_reject.reason


def test_types_that_do_not_go_together_are_named_before_anything_is_written(tmp_path: Path) -> None:
    path = make(tmp_path, [{"score": i if i % 2 else "x", "txt": "a"} for i in range(50)])
    with pytest.raises(SourceError, match=r"the field is .* in line .*, but .* in line") as caught:
        pack(path, tmp_path / "out", fields=FIELDS, key="line", workers=0)
    assert caught.value.place["field"] == "score"
    assert "--field score=COLUMN:" in str(caught.value)
    assert not (tmp_path / "out").exists()
    declared = FIELDS | {"score": "score:str"}
    assert pack(path, tmp_path / "out", fields=declared, key="line", workers=0).samples == 50
