"""Opening a data set indexes it only where that is soon done."""

from __future__ import annotations

import gzip
import random
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardstream as ss
from shardstream.errors import UsageError
from shardstream.formats.blocks import gzip_parts
from shardstream.formats.catalog import plan as planning
from shardstream.formats.catalog import scanning
from shardstream.formats.scans.rows import PIECE

from .making import SAMPLES, webdataset


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))


def test_what_takes_long_is_a_command_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = webdataset(tmp_path / "data")
    monkeypatch.setattr(scanning, "_PROBE_S", 0.0)
    monkeypatch.setattr(scanning, "_SMALL", 0)
    monkeypatch.setattr(planning.Making, "__init__", _with_no_time(planning.Making.__init__))
    with pytest.raises(UsageError, match=r"3 objects of .* have to be indexed[\s\S]*shardstream index"):
        ss.ShardDataset(own)
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    assert ss.index(own, workers=1).scanned < 3  # what was indexed is kept


@pytest.mark.full
def test_one_large_gzip_file_is_given_up_while_its_parts_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("indexed_gzip")
    lines = b"".join(b'{"text": "%s"}\n' % random.Random(n).randbytes(9000).hex().encode() for n in range(2000))
    (tmp_path / "all.jsonl.gz").write_bytes(gzip.compress(lines, 1))
    monkeypatch.setattr(gzip_parts, "_STEP", 1 << 20)
    monkeypatch.setattr(scanning, "_PROBE_S", 0.0)
    monkeypatch.setattr(scanning, "_SMALL", 0)
    monkeypatch.setattr(planning.Making, "__init__", _with_no_time(planning.Making.__init__))
    monkeypatch.setattr(gzip_parts, "_parsed", None)
    with pytest.raises(UsageError, match=r"1 object of .* has to be indexed[\s\S]*shardstream index"):
        ss.ShardDataset(tmp_path / "all.jsonl.gz")


class _Clock:
    """Time as scanning sees it: it passes only when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> _Clock:
    clock = _Clock()
    monkeypatch.setattr(scanning, "time", clock)
    return clock


def _slow_scan(monkeypatch: pytest.MonkeyPatch, clock: _Clock, *, start: float, piece: float) -> None:
    """Have the first scan begin after ``start`` seconds, and each piece take ``piece``."""
    scan, left = scanning._scan, [start]

    def slow(*arguments: Any) -> Iterator[Any]:
        clock.now += left.pop() if left else 0.0
        for found in scan(*arguments):
            clock.now += piece
            yield found

    monkeypatch.setattr(scanning, "_scan", slow)


def test_start_up_is_no_speed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: _Clock) -> None:
    own = webdataset(tmp_path / "data", tars=40)
    monkeypatch.setattr(scanning, "_SMALL", 0)
    _slow_scan(monkeypatch, clock, start=600.0, piece=0.5)
    assert len(ss.ShardDataset(own)) == 40 * SAMPLES


def test_small_data_are_indexed_however_long_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: _Clock
) -> None:
    own = webdataset(tmp_path / "data")
    _slow_scan(monkeypatch, clock, start=0.0, piece=1000.0)
    assert len(ss.ShardDataset(own)) == 3 * SAMPLES


def test_the_estimate_is_what_the_rest_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: _Clock) -> None:
    own = webdataset(tmp_path / "data", tars=40)
    monkeypatch.setattr(scanning, "_SMALL", 0)
    _slow_scan(monkeypatch, clock, start=600.0, piece=4.0)
    with pytest.raises(UsageError, match=r"takes about 2 min \d+ s more here"):  # 38 or 39 objects of 4 s each
        ss.ShardDataset(own)


def test_scanning_that_takes_longer_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = webdataset(tmp_path / "data")
    monkeypatch.setattr(scanning, "_NOTICE_S", 0.0)
    monkeypatch.setattr("shardstream.waits.NOTICE_S", 0.04)  # how often the waits are looked at
    told = threading.Event()
    monkeypatch.setattr("shardstream.waits._log.warning", lambda *given: (lines.append(given), told.set()))
    lines: list[Any] = []
    scan = scanning._scan

    def waiting(*arguments: Any) -> Iterator[Any]:
        assert told.wait(60)
        yield from scan(*arguments)

    monkeypatch.setattr(scanning, "_scan", waiting)
    ss.ShardDataset(own)
    assert re.search(r"data to be indexed \(WebDataset, 0% of .*\)", lines[0][0] % lines[0][1:])


@pytest.mark.parametrize("chosen", [None, {"a": "a"}])
@pytest.mark.parametrize("kind", ["parquet", "hdf5"])
def test_one_large_file_says_which_share_of_it_was_scanned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, chosen: dict[str, str] | None
) -> None:
    columns = {name: np.arange(5 * PIECE, dtype=np.int32) for name in "abcd"}
    if kind == "parquet":
        pq = pytest.importorskip("pyarrow.parquet")
        pq.write_table(pytest.importorskip("pyarrow").table(columns), tmp_path / "x.parquet", row_group_size=PIECE)
    else:
        with pytest.importorskip("h5py").File(tmp_path / "x.h5", "w") as file:
            for name, values in columns.items():
                file[name] = values
    monkeypatch.setattr(scanning, "_PROBE_S", -1.0)
    told: list[ss.ProgressEvent] = []
    ss.index(tmp_path, fields=chosen, workers=1, progress=told.append)
    shares = [event.done / event.total for event in told]
    assert shares == sorted(shares)
    assert all(any(abs(share - one / 5) < 0.1 for share in shares) for one in range(1, 6))


def _with_no_time(make: Any) -> Any:
    def init(self: Any, *args: Any, **given: Any) -> None:
        make(self, *args, **given)
        self.limit = 0.0

    return init
