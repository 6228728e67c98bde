"""Numbers of a run while it goes on: to functions, files and bars."""

from __future__ import annotations

import io
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.progress import Progress

import shardstream as ss
from shardstream.errors import UsageError
from shardstream.load import LoaderStats
from shardstream.load.reporter import prometheus_text
from tests.grouped import grouped

from ..stream.making import numbered, write_dataset


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("numbers"), numbered([60, 40]))


def data(folder: Path, **settings: Any) -> ss.ShardDataset:
    return ss.ShardDataset(folder, **grouped({"fields": ["id"], "batch_size": 10} | settings))


class Told(list[dict[str, float]]):
    def __call__(self, values: dict[str, float]) -> None:
        assert threading.current_thread() is threading.main_thread()
        self.append(values)


def test_every_batch_where_asked_and_the_end_of_an_iteration_otherwise(folder: Path) -> None:
    often, seldom = Told(), Told()
    list(ss.Loader(data(folder), num_workers=1, on_stats=often, stats_every=0))
    assert [values["batches_total"] for values in often] == list(range(1, 11))
    assert all(json.loads(json.dumps(values)) == values for values in often)
    assert all(0 <= values["wait_share"] <= 1 for values in often)
    loader = ss.Loader(data(folder), num_workers=0, on_stats=seldom, stats_every=1000)
    for _ in range(2):
        for _ in zip(range(len(loader)), loader, strict=False):  # a loop that never asks for one more
            pass
    assert [values["samples_total"] for values in seldom] == [100, 200]


def test_a_prefetcher_tells_its_own_function_and_the_loaders(folder: Path) -> None:
    own, inner = Told(), Told()
    loader = ss.Loader(data(folder), num_workers=0, on_stats=inner, stats_every=1000)
    list(ss.DevicePrefetcher(loader, "cpu", on_stats=own, stats_every=0))
    assert [values["batches_total"] for values in own] == list(range(1, 11))
    assert [values["batches_total"] for values in inner] == [10]
    plain = Told()
    list(ss.DevicePrefetcher([1, 2, 3], "cpu", on_stats=plain, stats_every=1000))
    assert [values["batches_total"] for values in plain] == [3]


def test_what_on_stats_raises_is_raised(folder: Path) -> None:
    def fail(values: dict[str, float]) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        list(ss.Loader(data(folder), num_workers=0, on_stats=fail, stats_every=0))


def test_files_of_ranks_are_merged(folder: Path, tmp_path: Path) -> None:
    file = str(tmp_path / "stats-{rank}.json")
    for rank in range(2):
        list(ss.Loader(data(folder, rank=rank, world_size=2), num_workers=0, stats_file=file))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["stats-0.json", "stats-1.json"]
    table = LoaderStats().merged(tmp_path / "stats-*.json")
    assert [(row.rank, row.values["samples_total"]) for row in table.ranks] == [(0, 50), (1, 50)]


def test_a_file_that_cannot_be_written_is_told_of_once(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    loader = ss.Loader(data(folder), num_workers=0, stats_every=0, stats_file=tmp_path / "no" / "stats.json")
    assert len(list(loader)) == 10
    assert [record.getMessage() for record in caplog.records] == [
        f"the stats_file {tmp_path}/no/stats.json cannot be written: No such file or directory"
    ]


def test_a_file_that_others_wrote_is_a_table_or_an_error_of_ours(tmp_path: Path) -> None:
    file = tmp_path / "stats-0.json"
    whole = LoaderStats(batches=1, samples=2, seconds=3.0).of_rank().to_json()
    odd: list[Any] = [float("nan"), float("inf"), 10**400, -(10**400), True, "1", None, [1]]
    wrong = [whole | {"values": whole["values"] | {"samples_total": one}} for one in odd]
    wrong += [whole | {"values": whole["values"] | {"world_size": one}} for one in (1 << 60, 0, "2")]
    wrong += [whole | {"time": "now"}, whole | {"host": 3}, whole | {"values": [1]}, {**whole, "values": {}}, [whole]]
    texts = [json.dumps(one).encode() for one in wrong]
    for text in (*texts, b"[" * 60_000, b"1" * 5_000, b"\xff", b"", b" " * (2 << 20)):
        file.write_bytes(text)
        with pytest.raises(UsageError, match="numbers"):
            LoaderStats().merged(file)
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(UsageError, match="this is not a file of numbers"):
        LoaderStats().merged(file)


def test_arguments_that_cannot_be(folder: Path) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"on_stats": 3}, "on_stats must be callable"),
        ({"stats_every": -1}, "stats_every must be"),
        ({"stats_file": "stats.csv"}, r"must end in \.json or \.prom"),
    ]
    for arguments, text in wrong:
        with pytest.raises(UsageError, match=text):
            ss.Loader(data(folder), num_workers=0, **arguments)
    loader = ss.Loader(data(folder, rank=0, world_size=2), num_workers=0, stats_file="stats.json")
    with pytest.raises(UsageError, match=r"2 ranks would write the same stats_file"):
        iter(loader)


def test_the_text_format_of_prometheus(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "stats.prom"
    list(ss.Loader(data(folder), num_workers=0, stats_file=path))
    lines = path.read_text().splitlines()
    assert "# TYPE shardstream_samples_total counter" in lines
    assert 'shardstream_samples_total{rank="0"} 100' in lines
    assert "# TYPE shardstream_wait_share gauge" in lines
    stats = LoaderStats(sources={'a"b': 1, "c\nd": 2})
    text = prometheus_text(stats.as_dict())
    assert 'shardstream_source_samples_total{rank="0",source="a\\"b"} 1\n' in text
    assert 'shardstream_source_samples_total{rank="0",source="c\\nd"} 2\n' in text
    assert text.count("# TYPE shardstream_source_samples_total") == 1


@pytest.mark.parametrize("ahead", [False, True])
def test_progress_knows_the_epoch_and_where_it_goes_on(folder: Path, ahead: bool) -> None:
    loader = ss.Loader(data(folder), num_workers=0)
    ready: Any = ss.DevicePrefetcher(loader, "cpu") if ahead else loader
    for event, batch in ss.progress(ready):
        assert len(batch["id"]) == 10
        if event.done == 4:
            break
    assert (event.phase, event.total, event.unit, event.kept) == ("epoch 0", 10, "batches", 0)
    loader.load_state_dict(loader.state_dict())
    events = [event for event, _ in ss.progress(ready)]
    assert [event.done for event in events] == [5, 6, 7, 8, 9, 10]
    assert {event.kept for event in events} == {4}
    assert [event.phase for event, _ in ss.progress(ready)] == ["epoch 1"] * 10


def test_progress_counts_single_samples(folder: Path) -> None:
    events = [event for event, _ in ss.progress(ss.Loader(data(folder, batch_size=None), num_workers=0))]
    assert (len(events), events[-1].done, events[-1].total, events[-1].unit) == (100, 100, 100, "samples")


def resumed(folder: Path) -> ss.Loader:
    loader = ss.Loader(data(folder), num_workers=0)
    for _ in zip(range(3), loader, strict=False):
        pass
    loader.load_state_dict(loader.state_dict())
    return loader


def test_rich_draws(folder: Path) -> None:
    with Progress(console=Console(file=io.StringIO())) as bar:
        loader = resumed(folder)
        for _ in range(2):
            for _ in ss.progress(loader, bar):
                pass
    assert [(task.completed, task.total) for task in bar.tasks] == [(10, 10), (10, 10)]
    assert bar.tasks[1].description.startswith("epoch 1: ")
    assert "samples/s, waits " in bar.tasks[0].description


def test_tqdm_draws(folder: Path) -> None:
    tqdm = pytest.importorskip("tqdm")
    screen, loader = io.StringIO(), resumed(folder)
    with tqdm.tqdm(file=screen) as bar:
        for _ in ss.progress(loader, bar):
            pass
        assert (bar.n, bar.total, bar.initial) == (10, 10, 3)
        for _ in ss.progress(loader, bar):
            pass
        assert (bar.n, bar.total, bar.initial) == (10, 10, 0)
    assert "epoch 1: 100%" in screen.getvalue()
    assert "samples/s, waits " in screen.getvalue()


def test_a_run_without_end_has_no_total(folder: Path) -> None:
    tqdm = pytest.importorskip("tqdm")
    schedule = [(0, {"a": 1, "b": 1}), (500, {"a": 1, "b": 0})]
    mixture = ss.Mixture({"a": data(folder), "b": data(folder)}, schedule=schedule, batch_size=10)
    loader, screen = ss.Loader(mixture, num_workers=0), io.StringIO()
    with Progress(console=Console(file=io.StringIO())) as drawn, tqdm.tqdm(file=screen) as bar:
        for first, one in ((0, bar), (4, drawn)):
            events = [event for _, (event, _) in zip(range(4), ss.progress(loader, one), strict=False)]
            assert [(event.done, event.total, event.kept) for event in events] == [
                (first + n, 0, first) for n in (1, 2, 3, 4)
            ]
            loader.load_state_dict(loader.state_dict())
        assert (bar.n, bar.total) == (4, None)
        assert [(task.completed, task.total) for task in drawn.tasks] == [(8, None)]


def test_progress_refuses_what_it_cannot_use(folder: Path) -> None:
    with pytest.raises(UsageError, match="needs a Loader, got list"):
        ss.progress([])  # type: ignore[arg-type]  # that is what is refused
    with pytest.raises(UsageError, match="cannot draw on a StringIO"):
        ss.progress(ss.Loader(data(folder), num_workers=0), io.StringIO())
