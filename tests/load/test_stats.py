"""What of a loader's numbers leaves the process."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

import shardstream as ss
from shardstream.errors import UsageError
from shardstream.load import LoaderStats, RankTable

from ..stream.making import numbered, write_dataset


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("numbers"), numbered([60, 40]))


def loader_of(folder: Path, workers: int = 0) -> ss.Loader:
    return ss.Loader(ss.ShardDataset(folder, fields=["id"], batch_size=10), num_workers=workers)


def test_the_numbers_are_flat_and_json_and_counters_only_grow(folder: Path) -> None:
    loader = loader_of(folder, workers=1)
    before = loader.stats.as_dict()
    assert all(type(value) in (int, float) for value in before.values())
    for _ in loader:
        now = loader.stats.as_dict()
        assert all(now[name] >= value for name, value in before.items() if name.endswith("_total"))
        before = now
    assert json.loads(json.dumps(before)) == before
    assert (before["batches_total"], before["samples_total"], before["workers"]) == (10, 100, 1)
    assert before["worker_assemble_seconds_total"] > 0


def test_every_name_is_documented() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs/watching.md").read_text()
    stats = LoaderStats(transfers={"requests": 1}, sources={"NAME": 1})
    short = {"worker_transform_seconds_total": "worker_transform_…", "worker_decode_seconds_total": "worker_decode_…"}
    short["worker_assemble_seconds_total"] = "worker_assemble_…"
    assert [name for name in stats.as_dict() if f"`{short.get(name, name)}`" not in text] == []


def test_rates_are_those_of_the_interval() -> None:
    stats = LoaderStats(workers=4, batches=10, samples=100, seconds=10.0, wait_seconds=10.0)
    before = stats.as_dict()
    stats.batches, stats.samples, stats.seconds, stats.wait_seconds = 30, 300, 14.0, 11.0
    stats.stages["decode"] = 8.0
    stats.transfers["bytes"] = 4000
    rates = stats.since(before)
    assert rates["interval_seconds"] == 4.0
    assert rates["samples_per_second"] == 50.0
    assert rates["wait_share"] == 0.25
    assert rates["worker_decode_share"] == 0.5
    assert rates["transfer_bytes_per_second"] == 1000.0
    assert not set(rates) & set(before)
    assert set(stats.since(stats.as_dict()).values()) == {0.0}


def test_after_a_reset_the_interval_began_there(folder: Path) -> None:
    stats = LoaderStats(batches=10, samples=100, seconds=10.0, rank=3, world_size=4)
    before = stats.as_dict()
    stats.reset()
    assert (stats.rank, stats.world_size) == (3, 4)
    stats.samples, stats.seconds = 20, 2.0
    assert stats.since(before)["samples_per_second"] == 10.0
    assert stats.since({}) == stats.since(before)


def of_rank(rank: int, wait: float, *, world_size: int = 3) -> LoaderStats:
    stats = LoaderStats(4, 100, 1000, wait, 10.0, rank=rank, world_size=world_size)
    stats.stages["read"] = 36.0 if wait > 1 else 1.0
    return stats


def test_the_slow_rank_is_a_line() -> None:
    table = of_rank(0, 0.1).merged([of_rank(2, 4.0), of_rank(1, 0.2)])
    assert [row.rank for row in table.ranks] == [0, 1, 2]
    assert table.slowest is table.ranks[2]
    assert table.total()["samples_total"] == 3000
    lines = str(table).splitlines()
    head = ["rank", "host", "batches", "samples/s", "waits", "read", "decode", "transf.", "assemble"]
    assert lines[0].split() == head
    assert lines[3].split()[2:] == ["100", "100", "40", "%", "3.60", "0.00", "0.00", "0.00"]
    assert lines[4].startswith("rank 2 (")
    assert lines[4].endswith("the others 1.5 % (median): they wait for it; its bottleneck: storage")
    assert max(map(len, lines[:4])) <= 80


def test_ranks_that_are_alike_are_not_blamed_and_missing_ones_are_named() -> None:
    table = of_rank(0, 0.1).merged([of_rank(2, 0.2)])
    assert table.slowest is None
    assert str(table).splitlines()[-2:] == [
        "no numbers of rank 1",
        "no rank waits for data much longer than the others",
    ]
    assert str(LoaderStats().merged([])) == "no rank has delivered anything yet"


def test_of_a_rank_that_comes_twice_the_later_numbers_count() -> None:
    earlier = of_rank(0, 0.1).of_rank()
    time.sleep(0.001)
    later = of_rank(0, 0.3).of_rank()
    assert RankTable.of([later, earlier]).ranks == (later,)


def test_files_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    for text in ("{", "[]", '{"shardstream_stats": 1}', '{"shardstream_stats": 1, "host": "a"}', "\x00"):
        path = tmp_path / "stats.json"
        path.write_text(text)
        with pytest.raises(UsageError, match="numbers") as caught:
            LoaderStats().merged(path)
        assert caught.value.place["url"] == str(path)
    with pytest.raises(UsageError, match="no such file"):
        LoaderStats().merged(tmp_path / "no-*.json")
    path.write_text('{"shardstream_stats": 2}')
    with pytest.raises(UsageError, match="version 2"):
        LoaderStats().merged([path])


def test_one_process_gathers_itself(folder: Path) -> None:
    loader = loader_of(folder)
    assert len(list(ss.DevicePrefetcher(loader, "cpu"))) == 10
    (row,) = ss.gather_stats(ss.DevicePrefetcher(loader, "cpu")).ranks
    assert row.values["samples_total"] == 100
    with pytest.raises(UsageError, match="needs a Loader, got list"):
        ss.gather_stats(ss.DevicePrefetcher([], "cpu"))
    other = ss.Loader(ss.ShardDataset(folder, fields=["id"], batch_size=10, ranks=(1, 2)), num_workers=0)
    list(other)
    with pytest.raises(UsageError, match="2 ranks have no process group"):
        ss.gather_stats(other)
