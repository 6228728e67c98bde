"""What a step waits for: each stage is made the slow one on purpose, in real workers, and has to be named."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import shardstream as ss
from shardstream.load import LoaderStats
from shardstream.stream.ipc.worker_batch import WorkerBatch
from shardstream.threads import Processors
from tests.grouped import grouped

from ..storage.faults import FaultProxy
from ..storage.places import WebPlace
from ..stream.making import numbered, photograph, write_dataset

PAUSE = 0.004  # a sample, far above what all else takes


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("numbers"), numbered([80, 80], jpg=photograph))


class SlowlyArriving:
    """Takes its time to come out of a pickle."""

    def __reduce__(self) -> Any:
        return time.sleep, (4 * PAUSE,)


def slow(value: Any) -> Any:
    time.sleep(PAUSE)
    return value


def slow_batch(batch: Any) -> Any:
    time.sleep(4 * PAUSE)
    return batch


def slowly_collated(samples: list[Any]) -> Any:
    return slow_batch(len(samples))


def slowly_sent(samples: list[Any]) -> Any:
    return [SlowlyArriving(), len(samples)]


def stats_of(
    folder: Path | str, *, workers: int = 1, ahead: Any = None, pause: float = 0, **settings: Any
) -> LoaderStats:
    loading = {name: settings.pop(name) for name in ("collate_fn",) if name in settings}
    dataset = ss.ShardDataset(folder, **grouped({"batch_size": 4, "fields": ["id"], "shuffle": True} | settings))
    loader = ss.Loader(dataset, num_workers=workers, **loading)
    source: Any = ss.DevicePrefetcher(loader, "cpu", **ahead) if ahead is not None else loader
    for _ in source:
        time.sleep(pause)
    return loader.stats


@pytest.mark.one_in(3)
@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    ("bottleneck", "settings"),
    [
        ("decode", {"fields": {"id": slow}}),
        ("transform", {"transform": slow}),
        ("transform", {"batch_transform": slow_batch}),
        ("assembly", {"collate_fn": slowly_collated}),
    ],
)
def test_a_slow_stage_of_the_workers_is_named(folder: Path, bottleneck: str, settings: Any, workers: int) -> None:
    stats = stats_of(folder, workers=workers, **settings)
    found = stats.diagnosis()
    assert found.bottleneck == bottleneck
    assert found.advice.startswith(f"{bottleneck}-bound: ")
    assert ("use workers" in found.advice) == (workers == 0)
    assert stats.stages["assemble" if bottleneck == "assembly" else bottleneck] > 40 * 3 * PAUSE


@pytest.fixture
def slow_url(web: WebPlace, tmp_path: Path) -> Iterator[str]:
    """A data set on a web server that takes its time for each answer."""
    folder = write_dataset(tmp_path, numbered([80, 80], bin=lambda n: bytes(20_000)), format="record")
    for file in folder.iterdir():
        web.plant(file.name, file.read_bytes())
    with FaultProxy(web.endpoint.removeprefix("http://")) as proxy:
        proxy.add("bandwidth", times=None, bytes_per_second=1_000_000)
        yield web.url().replace(web.endpoint, proxy.url)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("workers", "advice"), [(0, "use workers"), (1, "cache=")])
def test_slow_storage_is_named(slow_url: str, workers: int, advice: str) -> None:
    found = stats_of(slow_url, workers=workers, fields=["bin"], prefetch="64KB").diagnosis()
    assert found.bottleneck == "storage"
    assert advice in found.advice


def test_slow_transport_is_named(folder: Path) -> None:
    stats = stats_of(folder, collate_fn=slowly_sent)
    assert stats.diagnosis().bottleneck == "transport"
    assert stats.transport_seconds > 40 * 3 * PAUSE


def test_a_slow_transform_of_batches_is_named(folder: Path) -> None:
    stats = stats_of(folder, ahead={"transform": slow_batch})
    assert stats.diagnosis().bottleneck == "batch transform"
    assert "transform of batches" in stats.report()
    assert stats.transform_seconds > 40 * 3 * PAUSE


@pytest.mark.one_in(2)
@pytest.mark.parametrize("ahead", [None, {}])
def test_a_slow_loop_is_named(folder: Path, ahead: Any) -> None:
    stats = stats_of(folder, ahead=ahead, pause=200 * PAUSE, batch_size=40, tail="exact")
    assert stats.start_seconds <= stats.wait_seconds
    assert stats.diagnosis().bottleneck == "loop"


def test_a_copy_that_takes_long_is_named() -> None:
    stats = LoaderStats(workers=4, batches=10, seconds=10, wait_seconds=8, device_copy_seconds=9, transform_seconds=1)
    assert stats.diagnosis().bottleneck == "copy"


def test_workers_that_begin_are_not_waited_for() -> None:
    stats = LoaderStats(workers=4, batches=10, seconds=10, wait_seconds=6, start_seconds=5)
    stats.waits.extend([0.1] * 9)
    assert stats.diagnosis().waiting == pytest.approx(0.2)


def test_workers_that_are_busy_with_several_things_are_busy() -> None:
    stages = {"read": 18.0, "decode": 21.0}  # of 40 s of four workers: neither stage alone fills them
    stats = LoaderStats(workers=4, batches=10, seconds=10, wait_seconds=8, stages=stages)
    assert stats.diagnosis().bottleneck == "decode"


def test_waiting_for_nothing_that_is_busy_is_uneven() -> None:
    stats = LoaderStats(workers=4, batches=10, seconds=10, wait_seconds=5, stages={"decode": 8.0})
    assert stats.diagnosis().bottleneck == "uneven"


FULL = {"workers": 2, "batches": 10, "seconds": 10, "wait_seconds": 9}


@pytest.mark.parametrize(
    ("processors", "advice"),
    [
        (Processors(2, 0.3, 0.0, 0.0), "add workers (1.7 of 2 cores are idle)"),
        (Processors(2, 0.8, 1.2, 0.0), "free the 1.2 of 2 cores that other programs use"),
        (Processors(2, 2.0, 0.0, 0.0), "all 2 cores are busy"),
    ],
)
def test_who_uses_the_processors_decides_whether_workers_would_help(processors: Processors, advice: str) -> None:
    stats = LoaderStats(**FULL, stages={"decode": 20.0}, images=True)
    found = stats.diagnosis(processors)
    assert found.bottleneck == "decode"
    assert found.advice.startswith(f"decode-bound: 2.0 of 2 workers busy, 100 % of it in decoding; {advice}")


@pytest.mark.parametrize(("disk", "advice"), [(1.0, "bring the data nearer"), (0.0, "no disk is waited for")])
def test_data_in_memory_cannot_come_nearer(disk: float, advice: str) -> None:
    stats = LoaderStats(**FULL, stages={"read": 20.0})
    assert advice in stats.diagnosis(Processors(2, 1.0, 0.0, disk)).advice


@pytest.mark.parametrize(
    ("processors", "advice"),
    [(Processors(2, 0.3, 1.7, 0.0), "1.7 of 2 cores that other"), (Processors(2, 0.3, 0.0, 0.9), "wait for a disk")],
)
def test_what_else_makes_waiting_uneven(processors: Processors, advice: str) -> None:
    found = LoaderStats(**FULL, stages={"decode": 4.0}).diagnosis(processors)
    assert found.bottleneck == "uneven"
    assert advice in found.advice


def test_work_from_before_makes_nobody_busier_than_he_can_be() -> None:
    stats = LoaderStats(**FULL, stages={"read": 5.0, "decode": 16.0}, transport_seconds=11.0)
    found = stats.diagnosis()
    assert found.worker_load == 1
    assert found.busy["storage"] + found.busy["decode"] == pytest.approx(2)
    assert found.busy["transport"] == 1
    assert "2.0 of 2 workers busy" in found.advice


@pytest.mark.full
def test_pictures_are_advised_on_where_pictures_are_decoded(folder: Path) -> None:
    values = stats_of(folder, fields={"id": slow}).diagnosis()
    pictures = stats_of(folder, fields={"jpg": [ss.decode.Image(), slow], "id": None}).diagnosis()
    assert values.bottleneck == pictures.bottleneck == "decode"
    assert ("jpeg" in values.advice, "jpeg" in pictures.advice) == (False, True)


@pytest.mark.parametrize("jpeg", ["addressable", "keep"])
def test_packing_is_advised_only_if_it_would_change_the_files(tmp_path: Path, jpeg: Any) -> None:
    (tmp_path / "src").mkdir()
    for number in range(3):
        Image.new("RGB", (64, 64), (number, 0, 0)).save(tmp_path / f"src/{number}.jpg")
        Image.new("RGB", (64, 64), (number, 0, 0)).save(tmp_path / f"src/b{number}.png")
    ss.pack(tmp_path / "src", tmp_path / "out", images=ss.ImageOptions(jpeg=jpeg), workers=0)
    for place, fields, expected in (
        ("out", {"jpg": ss.decode.Image()}, jpeg == "addressable"),
        ("out", {"png": ss.decode.Image()}, True),
        ("out", {"image": ss.decode.Image()}, jpeg == "addressable"),
        ("src", {"image": ss.decode.Image()}, False),
    ):
        dataset = ss.ShardDataset(tmp_path / place, fields=fields)
        stats = ss.Loader(dataset, num_workers=0).stats
        stats.reset()
        assert stats.addressable == expected
    for addressable in (False, True):
        stats = LoaderStats(**FULL, stages={"decode": 20.0}, images=True, addressable=addressable)
        assert ("--jpeg addressable" in stats.diagnosis().advice) != addressable
        assert "--max-side" in stats.diagnosis().advice


def test_nothing_yet() -> None:
    assert LoaderStats().report() == "nothing was delivered yet"


def test_the_lines_of_a_report() -> None:
    stats = LoaderStats(workers=8, samples=2000, late=2)
    stats.add([WorkerBatch(None, 0, stages={"decode": 60.0, "read": 8.0, "assemble": 6.0})])
    for _ in range(10):
        stats.waited(0.9)
    stats.seconds = 10.0
    stats.device_transform_seconds = 0.5
    lines = stats.report().splitlines()
    assert lines[0] == "10 steps of 1,000.0 ms; waited for data 90 % of the time, and 0.0 s for first batches"
    assert lines[1] == "a step waited 900.0 ms (median), 900.0 (1 in 100), 900.0 (worst of the last 10)"
    assert "  decoding                    6.00 of 8 workers" in lines
    assert "  transform of batches        5.0 %" in lines
    assert "  2 batches reached the loop before the device had done with them" in lines
    assert lines[-1].startswith("decode-bound: 7.4 of 8 workers busy, 81 % of it in decoding; ")
    stats.reset()
    assert stats == LoaderStats(workers=8)


def test_waits_are_those_of_the_loop(folder: Path) -> None:
    stats = stats_of(folder, ahead={"transform": slow_batch}, pause=8 * PAUSE)
    assert len(stats.waits) == stats.batches - 1 == 39
    assert sum(stats.waits) <= stats.wait_seconds  # which has the wait for the end too
    assert stats.seconds >= stats.wait_seconds + 40 * 8 * PAUSE


def test_a_notebook_shows_one_line_of_it() -> None:
    assert repr(LoaderStats(workers=1)) == "LoaderStats(1 worker: nothing was delivered yet)"
    stats = LoaderStats(workers=4, batches=1234, samples=78976, seconds=12.3456, wait_seconds=6.2, skipped=7)
    assert repr(stats) == (
        "LoaderStats(4 workers: 1,234 batches, 78,976 samples, 7 skipped in 12.3 s (6,397 samples/s),"
        " waited for data 50 % of the time; report() says why)"
    )
    stats = LoaderStats(batches=1, samples=1, seconds=1.0, rank=3, world_size=8)
    assert repr(stats).startswith("LoaderStats(rank 3 of 8, 0 workers: 1 batch, 1 sample in 1.0 s (1 samples/s), ")
