"""What becomes of image files as they are packed, and what is told about it."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import shardstream as ss
from shardstream.cli import app
from shardstream.diagnose import info
from shardstream.errors import MissingExtraError
from shardstream.images.encode import encode
from shardstream.images.jpeg.cutting import is_addressable
from shardstream.images.jpeg.transcode import restore
from shardstream.pack.run import pack
from shardstream.shards.manifest import Manifest

from ..images.jpeg.test_transcode import encoded, picture
from .making import samples


def folder(tmp_path: Path) -> tuple[Path, dict[str, bytes]]:
    """Photographs of several kinds in a class folder."""
    exif = Image.Exif()
    exif[0x0112] = 6
    files = {f"plain{i}.jpg": encoded(picture(400 + 16 * i, 300, seed=i)) for i in range(6)}
    files |= {
        "turned.jpg": encoded(picture(500, 300), exif=exif, icc_profile=b"p" * 3000, comment=b"hello"),
        "progressive.jpg": encoded(picture(300, 200), progressive=True),
        "cmyk.jpg": encoded(picture(300, 200).convert("CMYK")),
        "small.jpg": encoded(picture(16, 16)),
    }
    (tmp_path / "in" / "c0").mkdir(parents=True)
    for name, data in files.items():
        (tmp_path / "in" / "c0" / name).write_bytes(data)
    return tmp_path / "in", {f"c0/{name[:-4]}": data for name, data in files.items()}


def stored(out: Path) -> dict[str, bytes]:
    return {key if "/" in key else f"c0/{key}": bytes(sample["jpg"]) for key, sample in samples(out).items()}


KINDS = {"addressable": 7, "progressive": 1, "CMYK": 1, "too small": 1}


def test_files_become_addressable_and_come_back(tmp_path: Path) -> None:
    source, files = folder(tmp_path)
    manifest = pack(source, tmp_path / "out", workers=0, shard_size="100kB")
    assert manifest.kinds == {"jpg": KINDS}
    assert Manifest.load(tmp_path / "out").kinds == {"jpg": KINDS}
    found = stored(tmp_path / "out")
    assert {key: restore(data) for key, data in found.items()} == files
    assert sum(is_addressable(data) for data in found.values()) == 7
    (field,) = (one for one in info(tmp_path / "out").fields if one.name == "jpg")
    assert field.kinds == KINDS


def test_both_ways_give_the_same_batches(tmp_path: Path) -> None:
    source, _ = folder(tmp_path)
    (source / "c0" / "cmyk.jpg").unlink()  # the keys stay those of the same folder
    fields = {"jpg": ss.decode.RandomResizedCrop(64, flip=True), "cls": None}
    batches = []
    for way in ("addressable", "keep"):
        manifest = pack(source, tmp_path / way, images=ss.ImageOptions(jpeg=way))  # type: ignore[arg-type]
        assert bool(manifest.kinds) == (way == "addressable")
        ds = ss.ShardDataset(tmp_path / way, fields=fields, batch_size=9)
        batches.append(next(iter(ds)))
    assert batches[0]["__key__"] == batches[1]["__key__"]
    assert np.array_equal(batches[0]["jpg"], batches[1]["jpg"])


def test_keep_stores_files_as_they_are(tmp_path: Path) -> None:
    source, files = folder(tmp_path)
    assert pack(source, tmp_path / "out", images=ss.ImageOptions(jpeg="keep")).kinds == {}
    assert stored(tmp_path / "out") == files


def test_the_width_of_segments_and_the_plan(tmp_path: Path) -> None:
    source, _ = folder(tmp_path)
    sizes, plans = [], set()
    for width in (32, 64, 128):
        manifest = pack(source, tmp_path / f"{width}", images=ss.ImageOptions(segment_width=width))
        sizes.append(manifest.bytes)
        plans.add(manifest.plan)
    assert sizes[0] > sizes[1] >= sizes[2]
    assert len(plans) == 3


@pytest.mark.parametrize("way", ["addressable", "keep"])
def test_what_is_stripped_and_what_stays(tmp_path: Path, way: Any) -> None:
    source, files = folder(tmp_path)
    pack(source, tmp_path / "out", images=ss.ImageOptions(strip=True, jpeg=way))
    found = stored(tmp_path / "out")
    turned = Image.open(io.BytesIO(found["c0/turned"]))
    assert turned.getexif()[0x0112] == 6
    assert len(turned.getexif()) == 1
    assert "icc_profile" not in turned.info
    assert "comment" not in turned.info
    for key, data in found.items():
        assert np.array_equal(np.asarray(Image.open(io.BytesIO(data))), np.asarray(Image.open(io.BytesIO(files[key]))))
    whole = stored(Path(pack(source, tmp_path / "whole", images=ss.ImageOptions(jpeg=way)).url))
    assert len(found["c0/turned"]) < len(whole["c0/turned"]) - 3000


def test_large_images_are_made_smaller(tmp_path: Path) -> None:
    source, files = folder(tmp_path)
    manifest = pack(source, tmp_path / "out", images=ss.ImageOptions(max_side=250, quality=80))
    assert manifest.kinds == {"jpg": {"addressable": 9, "too small": 1}}
    found = stored(tmp_path / "out")
    for key, data in found.items():
        before, after = Image.open(io.BytesIO(files[key])), Image.open(io.BytesIO(data))
        assert max(after.size) == min(250, max(before.size))
        assert after.size[0] / after.size[1] == pytest.approx(before.size[0] / before.size[1], rel=0.01)
    turned = Image.open(io.BytesIO(found["c0/turned"]))
    assert turned.getexif()[0x0112] == 6
    assert turned.info["icc_profile"] == b"p" * 3000
    assert found["c0/small"] == files["c0/small"]


@pytest.mark.full
def test_shards_are_cut_by_the_sizes_that_images_will_have(tmp_path: Path) -> None:
    folder_ = tmp_path / "in" / "c0"
    folder_.mkdir(parents=True)
    for i in range(40):
        (folder_ / f"{i}.jpg").write_bytes(encoded(picture(640, 480, seed=i), quality=95))
    whole = pack(tmp_path / "in", tmp_path / "a", shard_size="1MB")
    shrunk = pack(tmp_path / "in", tmp_path / "b", shard_size="1MB", images=ss.ImageOptions(max_side=160))
    assert shrunk.bytes < whole.bytes / 8
    assert shrunk.shards == 1


def test_a_damaged_file_is_left_out_with_its_reason(tmp_path: Path) -> None:
    source, files = folder(tmp_path)
    data = files["c0/plain0"]
    (source / "c0" / "plain0.jpg").write_bytes(data[: len(data) // 2])
    manifest = pack(source, tmp_path / "kept", damaged="keep")
    assert manifest.kinds["jpg"]["damaged"] == 1
    assert stored(tmp_path / "kept")["c0/plain0"] == data[: len(data) // 2]
    manifest = pack(source, tmp_path / "shrunk", images=ss.ImageOptions(max_side=100))
    assert manifest.samples == 9
    (reject,) = (json.loads(line) for line in (tmp_path / "shrunk" / "rejects.jsonl").read_text().splitlines())
    assert "plain0" in reject["path"]
    assert reject["reason"] == "the JPEG file is truncated: it has no end marker (EOI)"


def test_the_command_tells_of_kinds(tmp_path: Path) -> None:
    source, _ = folder(tmp_path)
    out = str(tmp_path / "out")
    done = CliRunner().invoke(app.app, ["pack", str(source), out, "--segment-width", "32"])
    assert done.exit_code == 0, done.output
    assert "jpg: 7 addressable; kept as they are: 1 CMYK, 1 progressive, 1 too small" in done.output
    told = json.loads(CliRunner().invoke(app.app, ["info", out, "--json"]).output)
    assert next(one for one in told["fields"] if one["name"] == "jpg")["kinds"] == KINDS
    assert "70.0% addressable" in CliRunner().invoke(app.app, ["info", out]).output


def test_without_numba_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, _ = folder(tmp_path)
    monkeypatch.setitem(__import__("sys").modules, "numba", None)
    with pytest.raises(MissingExtraError, match=r"pip install .*\[pack\]"):
        pack(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    pack(source, tmp_path / "out", images=ss.ImageOptions(jpeg="keep"))


@pytest.mark.parametrize("stream", [False, True])
def test_numba_is_asked_for_where_there_is_a_jpeg(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, stream: bool
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "numba", None)
    others = [{"__key__": f"{i}", "png": encode(np.full((8, 8, 3), i, np.uint8), "png"), "n": i} for i in range(5)]
    jpeg = {"__key__": "jpeg", "jpg": encode(np.zeros((64, 64, 3), np.uint8), "jpg")}
    assert pack(iter(others) if stream else others, tmp_path / "none", workers=0).samples == 5
    with pytest.raises(MissingExtraError, match=r"numba.*jpeg='keep'\) does without"):
        pack(iter([*others, jpeg]) if stream else [*others, jpeg], tmp_path / "one", workers=0)
    with tarfile.open(tmp_path / "one.tar", "w") as tar:
        member = tarfile.TarInfo("a.jpg")
        member.size = len(jpeg["jpg"])
        tar.addfile(member, io.BytesIO(jpeg["jpg"]))
    with pytest.raises(MissingExtraError, match=r"numba.*jpeg='keep'\) does without"):
        pack(tmp_path / "one.tar", tmp_path / "tar", workers=0)
