"""``--dedup``: exact copies are left out, whatever they are called."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardstream import StorageOptions
from shardstream.pack.options import PackOptions
from shardstream.pack.plan import dedup as dedup_module
from shardstream.pack.plan.dedup import Distinct
from shardstream.pack.plan.pack_plan import pack_plan
from shardstream.pack.run import pack, run_pack
from shardstream.pack.sources import Source, SourcePart

from ..storage.places import S3Place
from .making import jpeg, photo_list, samples, tree

SMALL = "10kB"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Sixty photographs; every tenth is a copy of the first, and two pairs more."""
    found = photo_list(tmp_path / "in", 60)
    for copy, first in [*((i, 0) for i in range(10, 60, 10)), (33, 32), (7, 5)]:
        (tmp_path / "in" / f"c{copy % 3}" / f"{copy:05d}.jpg").write_bytes(jpeg(first))
    (tmp_path / "in" / "c1" / "00001.jpg").write_bytes(b"")
    (tmp_path / "in" / "c1" / "00004.jpg").write_bytes(b"")
    return found


COPIES = {10: 0, 20: 0, 30: 0, 40: 0, 50: 0, 33: 32, 7: 5}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("workers", [pytest.param(0, marks=pytest.mark.full), 2])
def test_of_equal_samples_the_first_stays(source: Path, tmp_path: Path, workers: int) -> None:
    report = run_pack(source, tmp_path / "out", PackOptions(shard_size=SMALL, dedup=True), workers=workers)
    numbers = {int(key[-5:]) for key in samples(tmp_path / "out")}
    assert numbers == set(range(60)) - COPIES.keys() - {1, 4}
    lines = [json.loads(line) for line in (tmp_path / "out" / "duplicates.jsonl").read_text().splitlines()]
    assert {entry["line"] - 1: entry["same_as"] - 1 for entry in lines} == COPIES
    assert [entry["line"] for entry in lines] == sorted(entry["line"] for entry in lines)
    assert (report.duplicates, report.rejects) == (7, 2)
    assert json.loads((tmp_path / "out" / "report.json").read_text())["duplicates"] == 7
    assert run_pack(source, tmp_path / "out", PackOptions(shard_size=SMALL, dedup=True), workers=0).complete
    pack(source, tmp_path / "other", shard_size=SMALL, dedup=True, workers=2 - workers)
    assert tree(tmp_path / "other") == tree(tmp_path / "out")
    assert not (tmp_path / "out" / ".pack").exists()


def test_without_copies_there_is_no_list(tmp_path: Path) -> None:
    pack(photo_list(tmp_path, 20), tmp_path / "out", dedup=True, workers=0)
    assert not (tmp_path / "out" / "duplicates.jsonl").exists()
    assert len(samples(tmp_path / "out")) == 20


@pytest.mark.full
def test_hashes_are_kept_too(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = pack_plan(source, tmp_path / "out", shard_size=SMALL, dedup=True)
    plan.tasks[0].run()
    monkeypatch.setattr(dedup_module, "_hash_of", None)
    report = run_pack(source, tmp_path / "out", PackOptions(shard_size=SMALL, dedup=True), workers=0)
    assert (report.kept, report.duplicates) == (1, 7)


@pytest.mark.full
def test_in_a_store(s3: S3Place, source: Path, tmp_path: Path) -> None:
    pack(source, tmp_path / "out", shard_size=SMALL, dedup=True, workers=0)
    pack(source, s3.url(), storage=StorageOptions(options=s3.options), shard_size=SMALL, dedup=True, workers=2)
    expected = tree(tmp_path / "out")
    assert {name: s3.dig(name) for name in expected} == expected


def test_samples_from_python_are_compared_by_all_their_values(tmp_path: Path) -> None:
    found: list[dict[str, Any]] = [{"txt": "a", "cls": 1}, {"txt": "a", "cls": 2}, {"cls": 1, "txt": "a"}]
    report = run_pack(found, tmp_path / "out", PackOptions(dedup=True, key="line"), workers=0)
    assert report.manifest.samples == 2
    assert (tmp_path / "out" / "duplicates.jsonl").read_text() == '{"line": 3, "same_as": 1}\n'


class Numbers(Source):
    url = "numbers"

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def part(self, numbers: Any) -> SourcePart:
        return numbers

    @property
    def fingerprint(self) -> str:
        return ""


@given(st.integers(0, 40), st.sets(st.integers(0, 39)))
def test_what_is_left_keeps_its_order(count: int, copies: set[int]) -> None:
    copies = {one for one in copies if one < count}
    found = Distinct(Numbers(count), np.array(sorted(copies), np.int64))
    assert len(found) == count - len(copies)
    left: Any = found.part(np.arange(len(found)))
    assert left.tolist() == [i for i in range(count) if i not in copies]
