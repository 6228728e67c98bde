"""Opening a data set indexes it only where that is soon done."""

from __future__ import annotations

import gzip
import random
from pathlib import Path
from typing import Any

import pytest

import shardstream as ss
from shardstream.dataset.foreign import plan as planning
from shardstream.dataset.foreign import scanning
from shardstream.errors import UsageError
from shardstream.shards.foreign import gzip_parts

from .making import webdataset


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))


def test_what_takes_long_is_a_command_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = webdataset(tmp_path / "data")
    monkeypatch.setattr(scanning, "_PROBE_S", 0.0)
    monkeypatch.setattr(planning.Making, "__init__", _with_no_time(planning.Making.__init__))
    with pytest.raises(UsageError, match=r"3 objects of .* have to be indexed[\s\S]*shardstream index"):
        ss.ShardDataset(own)
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    assert ss.index(own, workers=1).scanned == 3


@pytest.mark.full
def test_one_large_gzip_file_is_given_up_while_its_parts_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("indexed_gzip")
    lines = b"".join(b'{"text": "%s"}\n' % random.Random(n).randbytes(9000).hex().encode() for n in range(2000))
    (tmp_path / "all.jsonl.gz").write_bytes(gzip.compress(lines, 1))
    monkeypatch.setattr(gzip_parts, "_STEP", 1 << 20)
    monkeypatch.setattr(scanning, "_PROBE_S", 0.0)
    monkeypatch.setattr(planning.Making, "__init__", _with_no_time(planning.Making.__init__))
    monkeypatch.setattr(gzip_parts, "_parsed", None)
    with pytest.raises(UsageError, match=r"1 object of .* has to be indexed[\s\S]*shardstream index"):
        ss.ShardDataset(tmp_path / "all.jsonl.gz")


def _with_no_time(make: Any) -> Any:
    def init(self: Any, *args: Any, **given: Any) -> None:
        make(self, *args, **given)
        self.limit = 0.0

    return init
