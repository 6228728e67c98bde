"""The file of a trace: spans nest, every batch has its arrow, and it is JSON whatever becomes of workers."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter, defaultdict
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

import shardstream as ss
from shardstream.errors import UsageError, WorkerError
from shardstream.images.jpeg.transcode import make_addressable
from shardstream.load import iteration, tracing

from ..storage.places import WebPlace
from ..stream.making import die_at, numbered, photograph, square, write_dataset

Event = dict[str, Any]
NEEDED = {"X": {"tid", "ts", "dur"}, "M": {"tid", "args"}, "b": {"id", "ts"}, "e": {"id", "ts"}}
FLOW = {"tid", "ts", "id"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("traced") / "d", numbered([70, 50], t=str))


def events_of(file: Path) -> list[Event]:
    """The events, each with what the format wants of it."""
    recorded = json.loads(file.read_text())
    assert set(recorded) == {"displayTimeUnit", "otherData", "traceEvents"}
    for event in recorded["traceEvents"]:
        assert event.keys() >= {"ph", "name", "pid"} | NEEDED.get(event["ph"], FLOW)
        assert event.get("ts", 0) >= 0
        assert event.get("dur", 0) >= 0
    found: list[Event] = recorded["traceEvents"]
    return found


def check_nesting(events: list[Event]) -> None:
    """Of two spans of a thread, one holds the other, or they have nothing in common."""
    threads = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            begin = round(1e3 * event["ts"])
            threads[event["pid"], event["tid"]].append((begin, -round(1e3 * event["dur"])))
    for spans in threads.values():
        open_: list[int] = []
        for begin, length in sorted(spans):
            while open_ and open_[-1] <= begin:
                open_.pop()
            assert not open_ or begin - length <= open_[-1]
            open_.append(begin - length)


def check_flows(events: list[Event], batches: int, through: list[str]) -> None:
    """Each batch has an arrow from where it was made through these spans."""
    spans = [event for event in events if event["ph"] == "X"]
    flows = defaultdict(list)
    for event in events:
        if event["ph"] in "stf":
            flows[event["id"]].append(event)
    assert len(flows) == batches
    for ends in flows.values():
        assert [end["ph"] for end in ends] == ["s", *"t" * (len(through) - 2), "f"]
        assert all(early["ts"] <= late["ts"] for early, late in pairwise(ends))
        for name, end in zip(through, ends, strict=True):
            around = [
                span["name"]
                for span in spans
                if (span["pid"], span["tid"]) == (end["pid"], end["tid"])
                and span["ts"] <= end["ts"] <= span["ts"] + span["dur"]
            ]
            assert name in around


def traced(folder: Path, file: Path, *, before: bool, ahead: bool = False, **arguments: Any) -> list[Event]:
    """An epoch of 12 batches."""
    dataset = ss.ShardDataset(folder, fields=["t", "id"], batch_size=10, shuffle=True, transform=square)
    loader = ss.Loader(dataset, **arguments)
    batches: Any = ss.DevicePrefetcher(loader, "cpu") if ahead else loader
    if before:
        list(batches)
    with ss.trace(file):
        assert len(list(batches)) == 12
    written = file.read_bytes()
    list(batches)  # nobody writes any more
    assert file.read_bytes() == written
    return events_of(file)


@pytest.mark.parametrize(
    ("method", "before", "ahead"),
    [
        ("fork", True, False),
        ("fork", False, True),
        pytest.param("forkserver", False, False, marks=pytest.mark.full),
        pytest.param("spawn", True, True, marks=pytest.mark.full),
    ],
)
def test_every_batch_is_followed_from_its_worker(
    folder: Path, tmp_path: Path, method: str, before: bool, ahead: bool
) -> None:
    file = tmp_path / "run.json"
    events = traced(folder, file, before=before, ahead=ahead, num_workers=2, multiprocessing_context=method)
    check_nesting(events)
    check_flows(events, 12, ["batch", "transport", *(["copy", "transform"] if ahead else []), "wait"])
    spans = Counter(event["name"] for event in events if event["ph"] == "X")
    assert spans["batch"] == spans["transport"] == spans["wait"] == spans["read"] == 12
    assert spans["transform"] == 120 + 12 * ahead
    made = [event["args"] for event in events if event["ph"] == "X" and event["name"] == "batch"]
    assert sorted(one["batch"] for one in made) == list(range(12))
    assert {one["epoch"] for one in made} == {int(before)}
    names = {event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert names == {"rank 0", "rank 0, worker 0", "rank 0, worker 1"}


def test_first_batches_of_workers_that_are_ahead_of_their_loader_are_in_it(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(one: tracing.Traced) -> None:
        time.sleep(0.5)
        tracing.follow(one)

    monkeypatch.setattr(iteration, "follow", late)
    events = traced(folder, tmp_path / "run.json", before=False, num_workers=2, multiprocessing_context="fork")
    check_flows(events, 12, ["batch", "transport", "wait"])


def test_without_workers_all_is_in_one_thread(folder: Path, tmp_path: Path) -> None:
    events = traced(folder, tmp_path / "run.json", before=False, num_workers=0)
    check_nesting(events)
    check_flows(events, 12, ["batch", "wait"])
    assert len({event["tid"] for event in events if event["ph"] == "X"}) == 1


def test_cuts_and_requests_are_shown(web: WebPlace, tmp_path: Path) -> None:
    pytest.importorskip("numba")
    jpeg = make_addressable(photograph(0, 480, 360)).data
    folder = write_dataset(tmp_path / "d", numbered([20], jpg=lambda _: jpeg), format="record")
    for one in folder.iterdir():
        web.plant(one.name, one.read_bytes())
    fields: Any = {"jpg": ss.decode.RandomResizedCrop(64, scale=(0.1, 0.2))}
    dataset = ss.ShardDataset(web.url(), fields=fields, batch_size=10, reads=ss.ReadOptions(threads=1))
    file = tmp_path / "run.json"
    with ss.trace(file):
        list(ss.Loader(dataset, num_workers=0))
    events = events_of(file)
    check_nesting(events)
    assert sum(event["name"] == "cut" for event in events) == 20
    begins = [event for event in events if event["ph"] == "b"]
    attempts = {event["args"]["url"]: event["args"]["attempts"] for event in begins}
    assert attempts[web.url("shard-000000.rec")] >= 1, (
        attempts
    )  # more where the machine is busy, and a request takes long
    assert sorted(event["id"] for event in begins) == sorted(event["id"] for event in events if event["ph"] == "e")


def test_a_killed_worker_leaves_a_whole_file(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    dataset = ss.ShardDataset(folder, fields=["id"], transform=partial(die_at, 75, signal.SIGKILL), batch_size=10)
    with ss.trace(file):
        batches = iter(ss.Loader(dataset, num_workers=2))
        next(batches)
        events_of(file)  # also while it is written
        with pytest.raises(WorkerError):
            list(batches)
    events = events_of(file)
    check_flows(events, sum(event["ph"] == "s" for event in events), ["batch", "transport", "wait"])


def test_a_trace_ends_where_it_is_too_large(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tracing, "_MOST_BYTES", 20_000)
    monkeypatch.setattr(tracing, "_WRITE_S", 0.0)
    events = traced(folder, tmp_path / "run.json", before=False, num_workers=0)
    assert 0 < sum(event["name"] == "wait" for event in events) < 12
    assert os.path.getsize(tmp_path / "run.json") <= 20_000
    assert "run.json ends here" in caplog.text


def test_torch_shows_the_same_waits_and_copies(folder: Path, tmp_path: Path) -> None:
    experimental: Any = torch.profiler._ExperimentalConfig
    try:
        threads = experimental(profile_all_threads=True)
    except TypeError:
        pytest.skip("this torch shows the ranges of one thread only")
    loader = ss.Loader(ss.ShardDataset(folder, fields=["id"], batch_size=10), num_workers=0)
    for on in (False, True):
        with torch.profiler.profile(experimental_config=threads) as profiled:
            if on:
                with ss.trace(tmp_path / "run.json"):
                    list(ss.DevicePrefetcher(loader, "cpu"))
            else:
                list(ss.DevicePrefetcher(loader, "cpu"))
        found = {event.key for event in profiled.key_averages() if event.key.startswith("shardstream.")}
        assert found == ({"shardstream.wait", "shardstream.copy", "shardstream.transform"} if on else set())


def test_files_that_cannot_be(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="cannot be written: No such file"), ss.trace(tmp_path / "no" / "run.json"):
        pass
    with (
        pytest.raises(UsageError, match="being recorded already"),
        ss.trace(tmp_path / "a.json"),
        ss.trace(tmp_path / "b.json"),
    ):
        pass
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UsageError, match="2 ranks would write the same trace"), ss.trace(tmp_path / "run.json"):
        pass
    with ss.trace(tmp_path / "run-{rank}.json"):
        pass
    assert json.loads((tmp_path / "run-1.json").read_text())["otherData"]["rank"] == 1
