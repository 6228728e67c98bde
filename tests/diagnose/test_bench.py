from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardstream as ss
from shardstream.diagnose import bench
from shardstream.diagnose.bench import fields_to_read, measured
from shardstream.diagnose.processor import Gauge
from shardstream.errors import FieldError, UsageError
from shardstream.images.encode import encode
from shardstream.load.diagnosis import IN_WORKERS
from shardstream.pack.writer import ShardWriter
from shardstream.progress import ProgressEvent
from shardstream.shards.manifest import Manifest
from shardstream.threads import cores

from ..storage.faults import FaultProxy
from ..storage.places import S3Place, WebPlace


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
    assert (report.samples, report.crop) == (20, 4)
    assert bench(url, batches=2, batch_size=10, workers=0).crop == 224
    assert bench(url, batches=2, batch_size=10, workers=0, fields=["cls"]).crop is None
    assert 0 < report.bytes < 20 * Manifest.load(url).bytes / 40
    with pytest.raises(FieldError, match="jpeg"):
        bench(url, batches=2, batch_size=10, workers=0, fields=["jpeg"])


@pytest.mark.parametrize("both", [False, True])
def test_samples_with_one_of_several_image_fields_are_decoded_once(tmp_path: Path, *, both: bool) -> None:
    """A directory of several kinds of images is measured as a training loop reads it; an image and its mask are two."""
    image = {kind: encode(np.zeros((8, 8, 3), np.uint8), kind) for kind in ("jpg", "png")}
    with ShardWriter(tmp_path) as writer:
        for i in range(20):
            kind = "jpg" if i % 3 else "png"
            writer.write({"__key__": f"{i}", "cls": i, **(image if both else {kind: image[kind]})})
    stored = Manifest.load(tmp_path).fields
    read = fields_to_read(tmp_path, stored, 224, {})
    assert set(read) == ({"jpg", "png", "cls"} if both else {"image", "cls"})
    assert set(fields_to_read(tmp_path, stored, None, {})) == {"jpg", "png", "cls"}
    report = bench(tmp_path, batches=2, batch_size=10, workers=0, crop=4, fields=["image", "cls"])
    assert (report.samples, report.crop) == (20, 4)
    assert report.bytes > 20 * len(image["png"])
    shown = repr(report)
    assert f"BenchReport({str(tmp_path)!r}: " in shown
    assert len(shown) < 600
    assert not re.search(r"\d\.\d{4}", shown)


@pytest.mark.parametrize("options", [{"batch_size": 41}, {"seconds": 0}, {"batches": 0}, {"step": -1.0}], ids=str)
def test_what_cannot_work_is_refused(url: Path, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        bench(url, workers=0, **{"batches": 1, **options})


PAUSE = 0.002  # a sample


class SlowlyArriving:
    """Takes its time to come out of a pickle."""

    def __reduce__(self) -> Any:
        return time.sleep, (10 * PAUSE,)


def slowly(sample: Any) -> Any:
    time.sleep(PAUSE)
    return sample


def slow_batch(batch: Any) -> Any:
    time.sleep(50 * PAUSE)
    return batch


def slowly_sent(batch: Any) -> Any:
    return [SlowlyArriving(), len(batch["cls"])]


LARGE = np.broadcast_to(np.float64(0), (1 << 20,))
"""Costs nothing before it is written to a batch: so much then that no other stage can, on a busy machine either."""


def large(sample: Any) -> Any:
    return {"values": LARGE}


@pytest.fixture
def slow_store(web: WebPlace, tmp_path: Path) -> Iterator[str]:
    """A data set on a web server that takes its time for each answer."""
    with ShardWriter(tmp_path / "set", shard_size="20kB", format="record") as writer:
        for i in range(40):
            writer.write({"__key__": f"{i}", "raw": bytes(10_000)})
    for file in (tmp_path / "set").iterdir():
        web.plant(file.name, file.read_bytes())
    with FaultProxy(web.endpoint.removeprefix("http://")) as proxy:
        proxy.add("bandwidth", times=None, bytes_per_second=100_000)  # or a busy machine is what takes the time
        yield web.url().replace(web.endpoint, proxy.url)


@pytest.fixture
def photos(tmp_path: Path) -> str:
    large = encode(np.random.default_rng(0).integers(0, 256, (600, 800, 3), np.uint8), "jpg")
    with ShardWriter(tmp_path / "photos") as writer:
        for i in range(40):
            writer.write({"__key__": f"{i}", "jpg": large, "cls": i})
    return str(tmp_path / "photos")


@pytest.mark.one_in(5)
@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    ("data", "settings", "limit", "advice"),
    [
        ("photos", {"crop": 32}, "decode", "decode-bound: "),
        ("photos", {"transform": slowly, "fields": ["cls"]}, "transform", "transform-bound: "),
        ("photos", {"transform": large, "fields": ["cls"]}, "assembly", "assembly-bound: "),
        (
            "photos",
            {"ahead": {"device": "cpu", "transform": slow_batch}, "fields": ["cls"]},
            "batch transform",
            "transform-bound: ",
        ),
        ("photos", {"step": 0.2, "fields": ["cls"]}, "loop", "loop-bound: "),
        ("slow_store", {}, "storage", "storage-bound: "),
    ],
    ids=["decode", "transform", "assembly", "batch transform", "loop", "storage"],
)
def test_the_verdict_is_that_of_the_loader(
    data: str,
    settings: dict[str, Any],
    limit: str,
    advice: str,
    workers: int,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaders: list[ss.Loader] = []

    class Kept(ss.Loader):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            loaders.append(self)

    monkeypatch.setattr("shardstream.load.Loader", Kept)
    options = {"reads": ss.ReadOptions(prefetch="32kB")} if data == "slow_store" else {}
    report = bench(request.getfixturevalue(data), batches=6, batch_size=10, workers=workers, **settings, **options)
    assert report.limit == limit
    assert report.advice.startswith(advice)
    stats = loaders[0].stats
    found = stats.diagnosis(report.processors)
    assert (report.limit, report.advice, report.wait_share) == (found.bottleneck, found.advice, found.waiting)
    assert report.worker_load == found.worker_load <= 1
    assert sum(found.busy[stage] for stage in IN_WORKERS.values()) <= max(workers, 1) + 1e-9
    assert (report.samples, report.batches, report.workers) == (stats.samples, stats.batches, stats.workers)


def test_slow_transport_is_named(photos: str) -> None:
    settings: dict[str, Any] = {"batch_transform": slowly_sent, "fields": ["cls"]}
    report = bench(photos, batches=6, batch_size=10, workers=1, **settings)
    assert report.limit == "transport"
    assert report.advice.startswith("transport-bound: ")


def test_what_is_not_decoded_is_no_advice(photos: str) -> None:
    report = bench(photos, batches=20, batch_size=10, workers=1, fields=["jpg"], crop=None)
    assert report.crop is None
    assert report.limit != "decode"
    assert "decod" not in report.advice
    stream = ss.ShardDataset(photos, batch_size=10, fields={"cls": slowly})
    slow = measured(ss.Loader(stream, num_workers=1), seconds=1, batches=4, mean_bytes=8)
    assert slow.limit == "decode"
    assert "jpeg" not in slow.advice  # it is no picture that is decoded


def test_epochs_of_one_batch_have_a_verdict(url: Path) -> None:
    # Crops so large that making them takes longer than to begin an epoch, also on a busy machine.
    report = bench(url, batches=3, batch_size=40, workers=0, crop=320, tail="exact")
    assert (report.samples, report.epochs) == (120, 3)
    assert "in the training process, " in report.advice
    assert report.worker_load <= 1


def test_a_version_and_a_cache(s3: S3Place, tmp_path: Path) -> None:
    for append in (False, True):
        with ShardWriter(s3.url(), append=append, storage=ss.StorageOptions(options=s3.options)) as writer:
            for i in range(20):
                writer.write({"__key__": f"{append}{i}", "raw": bytes(100)})
    settings: dict[str, Any] = {"storage_options": s3.options, "batches": 2, "batch_size": 20, "workers": 0}
    assert bench(s3.url(), version=1, cache=tmp_path / "cache", **settings).epochs == 2
    assert bench(s3.url(), replicas=[s3.url()], **settings).epochs == 1
    assert (tmp_path / "cache").is_dir()
    with pytest.raises(UsageError, match="no version 3"):
        bench(s3.url(), version=3, **settings)


def test_a_gauge_sees_this_process_compute() -> None:
    gauge = Gauge()
    until = time.process_time() + 0.05
    while time.process_time() < until:
        pass
    found = gauge.processors()
    assert 0 < found.ours <= found.cores == cores()
    assert 0 <= found.others <= found.cores - found.ours
    assert found.idle == pytest.approx(found.cores - found.ours - found.others)
