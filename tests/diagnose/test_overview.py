"""What a page is made of: samples from all over a data set, and what its fields hold."""

from __future__ import annotations

import io
import wave
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from shardstream.diagnose.overview import overview, spread_numbers
from shardstream.diagnose.shown import ShownValue
from shardstream.errors import MissingKeyError, UsageError
from shardstream.images.encode import encode
from shardstream.pack.writer import ShardWriter
from shardstream.progress import ProgressEvent
from shardstream.shards.manifest import Manifest
from shardstream.testing import MemoryStore, make_dataset

from .making import flip, make


def values(found: tuple[ShownValue, ...]) -> dict[str, ShownValue]:
    return {one.name: one for one in found}


def sound() -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(8000)
        out.writeframes(bytes(1600))
    return file.getvalue()


def test_samples_come_from_all_shards_and_are_the_same_for_a_seed() -> None:
    store = MemoryStore()
    make_dataset(store, samples=400, shards=20)
    found = overview(store, samples=40)
    assert len(found.samples) == 40
    assert len({one.shard for one in found.samples}) == 20 == found.opened
    assert [one.number for one in found.samples] == sorted(one.number for one in found.samples)
    assert found.samples == overview(store, samples=40).samples
    other = overview(store, samples=40, seed=1)
    assert [one.number for one in other.samples] != [one.number for one in found.samples]
    assert [one.key for one in found.samples] == [f"{one.number:06d}" for one in found.samples]


def test_numbers_are_spread_over_any_size() -> None:
    for total, count in ((10, 200), (200, 200), (10**7, 200), (1001, 7)):
        numbers = spread_numbers(total, count, 3)
        assert len(numbers) == min(total, count)
        assert (np.diff(numbers) > 0).all()
        assert 0 <= numbers[0] <= numbers[-1] < total


def test_only_ranges_of_what_is_shown_are_read() -> None:
    store = MemoryStore()
    make_dataset(store, samples=2000, fields={"raw": lambda i: bytes([i % 256]) * 20_000, "cls": "int64"}, shards=10)
    before = len(store.requests)
    found = overview(store, samples=20)
    asked = store.requests[before:]
    assert len(found.samples) == 20
    assert len(asked) < 60, "an index a shard, and a range a sample"
    ranges = [one for one in asked if one.path.startswith("shard-") and one.kind == "open"]
    assert all(one.start < 0 or one.stop is not None for one in ranges)
    read = sum(-one.start if one.stop is None else one.stop - one.start for one in ranges)
    assert read < 2_000_000 < Manifest.read(store).bytes


def test_every_kind_of_value(tmp_path: Path) -> None:
    picture = np.full((60, 80, 3), (200, 30, 30), np.uint8)
    mask = np.zeros((60, 80), np.uint8)
    mask[:, :40] = 3
    sample = {
        "jpg": encode(picture, "jpg"),
        "mask": encode(mask, "png"),
        "boxes": np.array([[8, 6, 40, 30]], np.float32),
    }
    sample |= {"txt": "one\ntwo", "meta.json": {"a": [1]}, "cls": 1, "wav": sound(), "arr": np.arange(6).reshape(2, 3)}
    sample |= {"raw": b"abc", "webp": b"no picture", "any": encode(picture, "png")}
    fields = {"mask": "png", "wav": "bytes"}
    with ShardWriter(tmp_path, classes=["cat", "dog"], fields=fields, damaged="keep") as writer:
        writer.write({"__key__": "a", **sample})
        writer.write({"__key__": "b", "cls": 0})
    found = overview(tmp_path)
    one, other = found.samples
    shown = values(one.values)
    assert {name: value.kind for name, value in shown.items()} == {
        "jpg": "picture",
        "mask": "mask",
        "boxes": "boxes",
        "txt": "text",
        "meta.json": "json",
        "cls": "number",
        "wav": "audio",
        "arr": "array",
        "raw": "bytes",
        "any": "picture",
        "webp": "bytes",
    }
    assert (one.label, one.key, one.row, other.label) == ("1 (dog)", "a", 0, "0 (cat)")
    assert one.fetch == f"ss.Reader({str(tmp_path)!r})[0]"
    assert [value.name for value in other.values] == ["cls"]
    assert shown["boxes"].boxes == ((0.1, 0.1, 0.5, 0.5),)
    assert shown["txt"].text == "one\ntwo"
    assert shown["wav"].sound is not None
    assert shown["wav"].sound.file == sample["wav"]
    assert "does not decode" in shown["webp"].text
    assert shown["jpg"].checked == "compared"
    data = (tmp_path / one.shard).read_bytes()
    assert shown["raw"].offset is not None
    assert data[shown["raw"].offset :][:3] == b"abc"
    assert shown["jpg"].thumbnail is not None
    assert shown["jpg"].thumbnail.jpeg != sample["jpg"], "it is encoded anew"
    assert shown["mask"].thumbnail is not None
    laid = np.asarray(Image.open(io.BytesIO(shown["mask"].thumbnail.jpeg)))
    assert abs(laid[30, 70].astype(int) - (200, 30, 30)).max() < 20, "the picture, where there is no label"
    assert laid[30, 10, 1] > 90, "the third colour over it"


def test_what_fields_hold_is_counted_over_the_shards_that_were_opened(tmp_path: Path) -> None:
    with ShardWriter(tmp_path, classes=["cat", "dog"]) as writer:
        for i in range(100):
            writer.write({"__key__": str(i), "cls": int(i < 30), "score": i / 2, "txt": "x" * i if i % 4 else None})
    found = overview(tmp_path, samples=10)
    fields = {one.name: one for one in found.fields}
    assert (found.total, found.counted, len(found.samples)) == (100, 100, 10)
    assert fields["cls"].labels == (("0 cat", 70), ("1 dog", 30))
    assert fields["cls"].distinct == 2
    score = fields["score"].numbers
    assert score is not None
    assert (score.least, score.mean, score.most) == (0, 24.75, 49.5)
    assert fields["txt"].missing == 0.25
    assert fields["txt"].bytes is not None
    assert (fields["txt"].bytes.least, fields["txt"].bytes.most) == (1, 99)
    assert sum(found.shard_samples) == 100


def test_damage_is_shown_where_it_is(tmp_path: Path) -> None:
    url = make(tmp_path)
    path = url / Manifest.load(url).shard_name(0)
    flip(path, path.read_bytes().index(b"\2" * 1500))
    found = {one.number: one for one in overview(url).samples}
    assert len(found) == 20
    shown = values(found[2].values)
    assert (shown["raw"].kind, shown["raw"].checked) == ("damaged", "differs")
    assert shown["fix"].checked == "compared"
    assert all(value.checked != "differs" for number in (1, 3) for value in found[number].values)


def test_samples_by_number_and_key_and_what_cannot_be(tmp_path: Path) -> None:
    url = make(tmp_path)
    events: list[ProgressEvent] = []
    found = overview(url, [3, -1], keys=["a.b/7"], progress=events.append)
    assert [one.number for one in found.samples] == [3, 7, 19]
    assert found.seed is None
    assert (events[-1].done, events[-1].total) == (3, 3)
    for numbers, keys, error in (([20], [], UsageError), ([], ["nobody"], MissingKeyError)):
        with pytest.raises(error, match="no sample"):
            overview(url, numbers, keys=keys)
    with pytest.raises(UsageError, match="samples must be in"):
        overview(url, samples=0)
