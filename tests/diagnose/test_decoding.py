from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from shardstream.diagnose import DecodeReport, bench_decode
from shardstream.errors import MissingExtraError, NotFoundError, SourceError, UsageError
from shardstream.images.backends import NAMES, find
from shardstream.images.encode import encode
from shardstream.pack.writer import ShardWriter
from shardstream.progress import ProgressEvent

QUICK = {"seconds": 0.01, "crop": 16}


def picture(number: int) -> np.ndarray:
    return np.random.default_rng(number).integers(0, 256, (30, 40, 3), np.uint8)


def speeds(report: DecodeReport, kind: str) -> dict[str, tuple[float | None, float | None, bool]]:
    number = list(report.images).index(kind)
    found = {one.backend: one.speeds[number] for one in report.backends if one.library is not None}
    return {name: (speed.full, speed.crop, speed.taken) for name, speed in found.items()}


@pytest.fixture
def url(tmp_path: Path) -> Path:
    """Twelve JPEG and four PNG files, and samples without any."""
    with ShardWriter(tmp_path / "set", shard_size="20kB") as writer:
        for i in range(20):
            kind = "jpg" if i < 12 else "png"
            image = encode(picture(i), kind) if i < 16 else None
            writer.write({"__key__": f"{i}", "jpg": None, "png": None, "cls": i} | ({kind: image} if image else {}))
    return tmp_path / "set"


def test_every_backend_is_listed_and_those_installed_are_measured(url: Path) -> None:
    threads = torch.get_num_threads()
    seen: list[ProgressEvent] = []
    report = bench_decode(url, progress=seen.append, **QUICK)
    assert torch.get_num_threads() == threads
    assert report.source == str(url)
    assert dict(report.images) == {"jpg": 12, "png": 4}
    assert dict(report.sizes) == {"jpg": (40, 30), "png": (40, 30)}
    assert [one.backend for one in report.backends] == [name for name in NAMES if name != "auto"]
    for one in report.backends:
        try:
            expected = find(one.backend).library, None
        except MissingExtraError as error:
            expected = None, error.hint
        assert (one.library, one.missing) == expected
        assert len(one.speeds) == (2 if one.library else 0)
    jpg, png = speeds(report, "jpg"), speeds(report, "png")
    assert all(full > 0 and crop > 0 for full, crop, _ in jpg.values())
    assert [name for name, speed in jpg.items() if speed[2]] == ["simplejpeg"]
    assert [name for name, speed in png.items() if speed[2]] == ["pillow"]
    assert png["simplejpeg"] == (None, None, False)
    assert png["pillow"][0] > 0
    assert [now.done for now in seen] == [0, 1, 2, 3]
    assert {now.total for now in seen} == {4}


def test_files_in_place_of_a_data_set(tmp_path: Path) -> None:
    files = [tmp_path / f"{i}.jpg" for i in range(3)]
    for i, file in enumerate(files):
        file.write_bytes(encode(picture(i), "jpg"))
    assert dict(bench_decode(*files, images=2, **QUICK).images) == {"jpg": 2}
    files[0].write_bytes(files[0].read_bytes()[:200])
    assert dict(bench_decode(*files, **QUICK).images) == {"jpg": 2}  # what does not decode says nothing of speed
    assert bench_decode(**QUICK).source == "photographs made of noise, 500 x 375"


def test_what_cannot_work_is_refused(url: Path, tmp_path: Path) -> None:
    (tmp_path / "text.jpg").write_text("no image")
    with pytest.raises(SourceError, match="no image that decodes"):
        bench_decode(tmp_path / "text.jpg")
    with pytest.raises(UsageError, match="must all be image files"):
        bench_decode(tmp_path / "text.jpg", url)
    with pytest.raises(NotFoundError):
        bench_decode(tmp_path / "missing")
    for name in ("images", "crop", "seconds"):
        with pytest.raises(UsageError, match=name):
            bench_decode(url, **{name: 0})
    with ShardWriter(tmp_path / "labels") as writer:
        writer.write({"__key__": "a", "cls": 1})
    with pytest.raises(UsageError, match="no image field"):
        bench_decode(tmp_path / "labels")
