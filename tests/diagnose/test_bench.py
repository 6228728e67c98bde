from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardstream.diagnose import bench
from shardstream.diagnose.bench import judge
from shardstream.diagnose.processor import Gauge, Load
from shardstream.errors import FieldError, UsageError
from shardstream.images.encode import encode
from shardstream.pack import ShardWriter
from shardstream.progress import ProgressEvent
from shardstream.shards.manifest import Manifest

QUIET = Load(here=0.1, workers=0.1, queued=0.0, disk=0, processors=0.2, cores=8)


@pytest.fixture
def url(tmp_path: Path) -> Path:
    with ShardWriter(tmp_path, shard_size="20kB") as writer:
        for i in range(40):
            pixels = np.full((8 + i % 3, 8, 3), i, np.uint8)
            writer.write({"__key__": f"{i}", "jpg": encode(pixels, "jpg"), "cls": i, "raw": b"1" if i % 3 else None})
    return tmp_path


@pytest.mark.parametrize("workers", [0, 2])
def test_it_counts_what_came(url: Path, workers: int) -> None:
    seen: list[ProgressEvent] = []
    report = bench(url, batches=9, batch_size=10, workers=workers, progress=seen.append)
    manifest = Manifest.load(url)
    assert (report.batches, report.samples, report.epochs) == (9, 90, 2.25)
    assert report.bytes == round(90 * manifest.bytes / 40)
    assert report.samples_per_second == pytest.approx(90 / report.seconds)
    assert report.bytes_per_second == pytest.approx(report.bytes / report.seconds)
    assert 0 <= report.wait_share <= 1
    assert report.first_batch > 0
    assert report.transfers == {}
    assert report.url == str(url)


def test_crops_and_chosen_fields(url: Path) -> None:
    report = bench(url, batches=2, batch_size=10, workers=0, crop=4, fields=["jpg", "cls"])
    assert report.samples == 20
    assert 0 < report.bytes < 20 * Manifest.load(url).bytes / 40
    with pytest.raises(FieldError, match="jpeg"):
        bench(url, batches=2, batch_size=10, workers=0, fields=["jpeg"])


@pytest.mark.parametrize("options", [{"batch_size": 41}, {"seconds": 0}, {"batches": 0}, {"step": -1.0}], ids=str)
def test_what_cannot_work_is_refused(url: Path, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        bench(url, workers=0, **{"batches": 1, **options})


@pytest.mark.parametrize(
    ("load", "given", "limit"),
    [
        (QUIET, {"step": 0.1, "waited": 0.01}, "step"),
        (QUIET, {"step": 0.1, "waited": 0.9}, "workers"),
        (replace(QUIET, processors=7.9), {}, "processors"),
        (replace(QUIET, queued=0.5), {}, "processors"),
        (replace(QUIET, here=1.0), {}, "consumer"),
        (replace(QUIET, here=1.0), {"workers": 0}, "consumer"),
        (replace(QUIET, workers=0.95), {}, "workers"),
        (replace(QUIET, workers=0.95, here=0.9), {}, "workers"),
        (QUIET, {"local": False}, "store"),
        (replace(QUIET, disk=1), {}, "store"),
        (QUIET, {}, "workers"),
    ],
    ids=str,
)
def test_the_limit_is_whoever_is_busy(load: Load, given: dict[str, Any], limit: str) -> None:
    assert judge(load, **{"waited": 1.0, "step": 0.0, "workers": 2, "local": True, **given})[0] == limit


def test_a_gauge_sees_this_process_compute() -> None:
    gauge = Gauge()
    until = time.process_time() + 0.05
    while time.process_time() < until:
        pass
    load = gauge.read(0)
    assert load.here > 0
    assert load.processors > 0
    assert (load.workers, load.cores > 0) == (0, True)
