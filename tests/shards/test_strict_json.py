"""JSON that is JSON: no NaN and no lost key, on every path into a data set and out of one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import shardstream as ss
from shardstream.errors import DecodeError, ShardStreamError
from shardstream.text import strict_json

NAN = {"a": [1, {"b": float("nan")}]}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))


@pytest.mark.parametrize(
    "value",
    [
        {1: "a", "1": "b"},
        {True: 1, "true": 2},
        {None: 1, "null": 2},
        {0.5: 1, "0.5": 2},
        [{"x": ({1: 2, "1": 3},)}],
        NAN,
        [float("inf")],
    ],
)
def test_what_json_cannot_hold_is_refused(value: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"are both|not JSON compliant"):
        strict_json(value)
    with ss.ShardWriter(tmp_path / "out") as writer:
        writer.write({"__key__": "a", "j": {}})
        with pytest.raises(ShardStreamError):
            writer.write({"__key__": "b", "j": value})
    assert (
        ss.pack([{"__key__": "a", "j": {}}, {"__key__": "b", "j": value}], tmp_path / "packed", workers=0).samples == 1
    )


@pytest.mark.parametrize("value", [{1: 2}, {"a": (1, [None, True, 0.5])}, [], "x", {"é": {"1": 1, 2: 2}}])
def test_other_values_are_written_as_python_writes_them(value: Any) -> None:
    assert json.loads(strict_json(value)) == json.loads(json.dumps(value))


def _jsonl(folder: Path) -> Path:
    (folder / "a.jsonl").write_text(json.dumps({"j": {}}) + "\n" + json.dumps({"j": NAN}) + "\n")
    return folder / "a.jsonl"


def _webdataset(folder: Path) -> Path:
    from tests.pack.foreign import tar_bytes

    (folder / "a.tar").write_bytes(tar_bytes({"0.j.json": b"{}", "1.j.json": json.dumps(NAN).encode()}))
    return folder / "a.tar"


@pytest.mark.parametrize("make", [_jsonl, _webdataset])
def test_nan_of_other_libraries_is_refused_in_place_and_rejected(make: Callable[[Path], Path], tmp_path: Path) -> None:
    source = make(tmp_path)
    reader = ss.Reader(source)
    assert len(reader) == 2
    with pytest.raises(DecodeError, match="it holds NaN, which JSON does not have"):
        reader[1]
    ss.pack(source, tmp_path / "out", workers=0)
    (reject,) = map(json.loads, (tmp_path / "out/rejects.jsonl").read_text().splitlines())
    assert "it holds NaN" in reject["reason"]
