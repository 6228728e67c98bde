"""The classic comparisons: every library that is installed here gives the same crops, by the call that is timed."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from shardstream.images.encode import encode

TOOLS = Path(__file__).resolve().parents[2] / "tools"
COUNT = 6


def bench(name: str) -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(TOOLS))
        return importlib.import_module(f"bench.{name}")


harness = bench("harness")
report = bench("report")
rounds = bench("classic.rounds")
decoding = bench("classic.decoding")
augmenting = bench("classic.augmenting")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    threads = torch.get_num_threads()
    monkeypatch.setattr(rounds, "IMAGES", COUNT)
    monkeypatch.setattr(rounds, "CHUNK", COUNT // 2)
    photos = tmp_path / "photos"
    photos.mkdir()
    for number in range(COUNT):
        row = np.linspace(0, 40 * number, 300, dtype=np.uint8)
        pixels = np.broadcast_to(row[None, :, None], (200, 300, 3))
        (photos / f"{number}.jpg").write_bytes(encode(np.ascontiguousarray(pixels), "jpg", quality=90))
    (tmp_path / "photos.tsv").write_text("".join(f"photos/{number}.jpg\t0\n" for number in range(COUNT)))
    yield str(photos)
    torch.set_num_threads(threads)  # each contender has one


@pytest.mark.parametrize("name", sorted(decoding.LIBRARIES.keys() - {"pillow", "pillow-simd"}))
def test_libraries_deliver_what_pillow_delivers(folder: str, name: str) -> None:
    pytest.importorskip({"opencv": "cv2"}.get(name, name))
    expected, found = (harness.Row(harness.Contender(one, "")) for one in ("pillow", name))
    expected.delivered = decoding.measured("pillow", folder)["delivered"]
    found.delivered = decoding.measured(name, folder)["delivered"]
    harness.check_delivered([expected, found])
    assert not found.problem
    assert expected.delivered["crops"] == ["[3, 224, 224] uint8"]


@pytest.mark.parametrize("addressable", [False, True])
def test_so_does_shardstream(folder: str, addressable: bool) -> None:
    result = decoding.ours(folder, addressable=addressable)
    expected = decoding.measured("pillow", folder)
    assert result["delivered"]["crops"] == expected["delivered"]["crops"]
    assert result["delivered"]["mean"] == pytest.approx(expected["delivered"]["mean"], abs=10)  # of other rectangles
    assert result["figures"].keys() == expected["figures"].keys()


def test_another_library_in_pillows_place_is_refused() -> None:
    with pytest.raises(ValueError, match="this is Pillow"):
        decoding.library_of("pillow-simd")


def test_samples_are_augmented(folder: str) -> None:
    pytest.importorskip("albumentations")
    result = augmenting.measured("albumentations", folder)
    assert result["delivered"]["samples"] == ["(3, 224, 224) float32"]
    assert list(result["figures"]) == ["augmented, samples/s", "decoded and augmented, samples/s"]


def test_a_table_without_memory() -> None:
    row = harness.Row(harness.Contender("a", ""), [{"x/s": 2.0}], memory=[1])
    lacking = harness.Row(harness.Contender("b", ""), problem="b is not installed")
    assert report.table([row, lacking], memory=False).splitlines()[2:] == [
        "| a | 2 | 1.00 |",
        "| b | b is not installed |  |",
    ]
