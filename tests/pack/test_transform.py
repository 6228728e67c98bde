"""``transform=``: what becomes of samples before they are stored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardstream import ImageOptions
from shardstream.errors import SourceError, UsageError
from shardstream.images.header import probe
from shardstream.pack.options import PackOptions
from shardstream.pack.run import pack, run_pack

from .making import jpeg, photo_list, samples, tree

SMALL = "10kB"


def even(sample: dict[str, Any]) -> dict[str, Any] | None:
    """Keeps every other sample, with more fields and without the label."""
    number = int(sample["__key__"][-5:])
    if number % 2:
        return None
    rest = {name: value for name, value in sample.items() if name != "cls"}
    return rest | {"number": number, "note": f"{number} of {sample['cls']}", "emb": np.full(3, number, np.float32)}


@pytest.mark.parametrize("workers", [pytest.param(0, marks=pytest.mark.full), 2])
def test_fields_change_and_samples_are_left_out(tmp_path: Path, workers: int) -> None:
    source = photo_list(tmp_path, 60)
    options = PackOptions(shard_size=SMALL, transform=even)
    report = run_pack(source, tmp_path / "out", options, workers=workers)
    found = samples(tmp_path / "out")
    assert sorted(found) == sorted(f"c{i % 3}/{i:05d}" for i in range(0, 60, 2))
    assert found["c1/00004"]["jpg"] == jpeg(4)
    assert found["c1/00004"]["note"] == b"4 of 1"
    assert found["c1/00004"]["number"] == 4
    assert {name: kind.name for name, kind in report.manifest.fields.items()} == {
        "emb": "array",
        "jpg": "jpg",
        "note": "str",
        "number": "int64",
    }
    assert (report.tally.samples, report.tally.dropped, report.rejects) == (30, 30, 0)
    assert json.loads((tmp_path / "out" / "report.json").read_text())["dropped"] == 30


def test_bytes_do_not_depend_on_workers(tmp_path: Path) -> None:
    source = photo_list(tmp_path, 60)
    for name, workers in (("one", 0), ("two", 2)):
        pack(source, tmp_path / name, shard_size=SMALL, transform=even, workers=workers)
    assert tree(tmp_path / "one") == tree(tmp_path / "two")


def pixels(sample: dict[str, Any]) -> dict[str, Any]:
    return {"jpg": np.full((200, 300, 3), 7, np.uint8)}


def test_pixels_are_encoded_and_go_the_way_of_all_images(tmp_path: Path) -> None:
    pack(photo_list(tmp_path, 4), tmp_path / "out", transform=pixels, images=ImageOptions(max_side=150), workers=0)
    for sample in samples(tmp_path / "out").values():
        info = probe(sample["jpg"])  # type: ignore[arg-type]
        assert (info.kind, info.width, info.height) == ("jpg", 150, 100)


def shrunk(sample: dict[str, Any]) -> dict[str, Any]:
    return {"raw": bytes(sample["jpg"][:10])}


def test_shards_are_cut_by_the_sizes_that_samples_will_have(tmp_path: Path) -> None:
    source = photo_list(tmp_path, 200)
    plain = pack(source, tmp_path / "plain", shard_size=SMALL, format="record", workers=0)
    less = pack(source, tmp_path / "less", shard_size=SMALL, format="record", transform=shrunk, workers=0)
    assert less.samples == 200
    assert less.shards * 5 < plain.shards


def failing(sample: dict[str, Any]) -> Any:
    number = int(sample["__key__"][-5:])
    wrong = {3: "text", 5: {"__key__": "other"}, 7: {"emb": object()}, 9: {"jpg": b"no image"}, 11: {"a b": 1}}
    if number == 1:
        raise ValueError("broken on purpose")
    return wrong.get(number, sample)


def test_faults_are_rejects_with_their_reason(tmp_path: Path) -> None:
    report = run_pack(photo_list(tmp_path, 20), tmp_path / "out", PackOptions(transform=failing), workers=0)
    lines = (tmp_path / "out" / "rejects.jsonl").read_text().splitlines()
    reasons = {entry["line"] - 1: entry["reason"] for entry in map(json.loads, lines)}
    assert reasons.keys() == {1, 3, 5, 7, 9, 11}
    assert reasons[1] == "transform raised ValueError: broken on purpose"
    assert reasons[3] == "transform returned a str, not a dict of fields"
    assert reasons[5] == "transform changed the key to 'other'"
    assert "object has no field type" in reasons[7]
    assert "neither JPEG" in reasons[9]
    assert "cannot be a field name" in reasons[11]
    assert report.tally.samples == 14
    assert sum(report.reasons.values()) == 6


def nothing(_sample: dict[str, Any]) -> None: ...


def test_a_transform_that_leaves_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="the transform leaves no sample"):
        pack(photo_list(tmp_path, 5), tmp_path / "out", transform=nothing, workers=0)
    assert not tree(tmp_path / "out")


def test_another_transform_is_another_plan(tmp_path: Path) -> None:
    source = photo_list(tmp_path, 5)
    plans = {
        pack(source, tmp_path / f"{i}", transform=one, workers=0).plan for i, one in enumerate((None, even, pixels))
    }
    assert len(plans) == 3


def test_what_cannot_be_one_is_refused(tmp_path: Path) -> None:
    source = photo_list(tmp_path, 30)
    with pytest.raises(UsageError, match="must be a function"):
        pack(source, tmp_path / "out", transform="shrink")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="transform cannot be sent to worker processes") as caught:
        pack(source, tmp_path / "out", shard_size=SMALL, transform=lambda sample: sample, workers=2)
    assert "top of a module" in str(caught.value)
    assert pack(source, tmp_path / "out", transform=lambda sample: sample, workers=0).samples == 30
