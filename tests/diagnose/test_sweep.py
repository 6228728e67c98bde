"""Each stage alone, settings of the loader, and what other data would gain, of small data sets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardstream as ss
from shardstream.cli.verbs.bench_sweep import plot_sweep
from shardstream.diagnose import SweepReport, sweep
from shardstream.errors import UsageError
from shardstream.images.encode import encode
from shardstream.threads import cores

from ..storage.places import WebPlace

QUICK: dict[str, Any] = {"samples": 24, "seconds": 0.05, "batch_size": 8}


def write(folder: Path, **more: Any) -> Path:
    with ss.ShardWriter(folder, shard_size="100kB", **more) as writer:
        for i in range(40):
            pixels = np.random.default_rng(i).integers(0, 256, (120, 160, 3), np.uint8)
            writer.write({"__key__": f"{i}", "jpg": encode(pixels, "jpg"), "cls": i})
    return folder


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> SweepReport:
    return sweep(write(tmp_path_factory.mktemp("photos")), crop=32, **QUICK)


def test_each_stage_is_measured_alone(found: SweepReport) -> None:
    speeds = {stage.name: stage.samples_per_second for stage in found.stages}
    assert list(speeds) == ["index", "storage", "cut", "decode", "resize", "assembly", "transport", "copy"]
    for name in ("index", "storage", "decode", "resize", "assembly", "transport"):
        assert speeds[name], name
    assert speeds["cut"] is None
    assert "addressable" in found.stages[2].note


def test_settings_are_tried_up_to_the_cores(found: SweepReport) -> None:
    workers = [
        trial.workers for trial in found.trials if (trial.batch_size, trial.prefetch_factor) in ((8, None), (8, 2))
    ]
    assert workers == [0, *(number for number in (1, 2, 4, 8, 16, 32, 64, 128) if number <= cores())]
    assert {trial.batch_size for trial in found.trials} == {4, 8, 16}
    assert {trial.prefetch_factor for trial in found.trials} == {None, 2, 4}
    assert found.best in found.trials
    assert found.best.workers > 0
    fastest = max(trial.samples_per_second for trial in found.trials if trial.workers)
    assert found.best.samples_per_second >= 0.95 * fastest


def test_the_best_setting_is_a_line_of_python(found: SweepReport) -> None:
    names: dict[str, Any] = {"ss": ss, "ds": ss.ShardDataset(found.url, fields=["cls"])}
    exec(found.line, names)
    assert names["loader"].num_workers == found.best.workers
    assert sum(len(batch["cls"]) for batch in names["loader"]) == 40


def test_what_would_gain_is_measured(found: SweepReport) -> None:
    ratios = {change.name: change.ratio for change in found.changes}
    assert list(ratios) == ['resize="device"', "cache", "record", "addressable JPEG"]
    assert ratios.pop("cache") is None
    assert all(ratio is not None and ratio > 0 for ratio in ratios.values())


@pytest.mark.full
def test_what_is_there_already_is_not_measured(tmp_path: Path) -> None:
    ss.pack(ss.Reader(write(tmp_path / "a")), tmp_path / "b", format="record", workers=0)
    found = sweep(tmp_path / "b", crop=32, **QUICK)
    assert found.stages[2].samples_per_second
    notes = {change.name: change.note for change in found.changes if change.ratio is None}
    assert notes["record"] == "they are record shards already"
    assert notes["addressable JPEG"] == "they are addressable already"


@pytest.mark.full
def test_a_cache_is_measured_where_data_come_over_a_network(web: WebPlace, tmp_path: Path) -> None:
    for file in write(tmp_path / "set").iterdir():
        web.plant(file.name, file.read_bytes())
    found = sweep(web.url(), crop=None, fields=["cls", "jpg"], **QUICK)
    cache = next(change for change in found.changes if change.name == "cache")
    assert cache.ratio is not None
    assert found.crop is None
    notes = {change.name: change.note for change in found.changes if change.ratio is None}
    assert notes == {'resize="device"': "no images are decoded", "addressable JPEG": "no JPEG is decoded"}


def test_the_figure_is_svg_in_which_names_are_inert(found: SweepReport, tmp_path: Path) -> None:
    from dataclasses import replace
    from xml.etree import ElementTree

    plot_sweep(replace(found, url="<script>&"), tmp_path / "a.svg")
    root = ElementTree.parse(tmp_path / "a.svg").getroot()
    tags = [one.tag.rpartition("}")[2] for one in root.iter()]
    assert tags.count("rect") == 1 + len(found.trials)
    assert "script" not in tags
    with pytest.raises(UsageError, match="cannot be written"):
        plot_sweep(found, tmp_path / "none" / "a.svg")


@pytest.mark.parametrize("options", [{"samples": 0}, {"seconds": 0.0}], ids=str)
def test_what_cannot_work_is_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="must be positive"):
        sweep(tmp_path, **options)
