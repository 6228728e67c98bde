"""JPEG files of every coding process: none is decoded in a way that its header rules out."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import features

import shardstream as ss
from shardstream.errors import DecodeError, UnsupportedError
from shardstream.faults import fault_kind
from shardstream.images import backends
from shardstream.images.header import probe
from tests.images.jpeg_processes import every_process, lies, lossless, pixels_of, segment, with_frame

ROOT = Path(__file__).parents[2]
JFIF = segment(0xE0, b"JFIF\0\1\1\0\0\1\0\1\0\0")
YCCK = segment(0xEE, b"Adobe\0\x64\0\0\0\0\2")
LOSSLESS_READ = int((features.version("libjpeg_turbo") or "0").partition(".")[0]) >= 3  # Pillow-SIMD: the system's
needs_lossless = pytest.mark.skipif(not LOSSLESS_READ, reason="this Pillow reads no lossless JPEG")
MALLOC_DEBUG = Path("/lib/x86_64-linux-gnu/libc_malloc_debug.so.0")


def test_no_library_overruns_its_buffer():
    """In a process of its own, where glibc ends it as soon as memory behind a buffer was written."""
    checked = {"LD_PRELOAD": str(MALLOC_DEBUG), "MALLOC_CHECK_": "3"} if MALLOC_DEBUG.exists() else {}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.images.jpeg_processes"],
        cwd=ROOT,
        env=os.environ | checked | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr[-2000:]}"
    told = [line for line in done.stdout.splitlines() if LOSSLESS_READ or "a lossless JPEG, which only" not in line]
    assert told == [f"{len([*every_process(), *lies()])} files"]


def test_the_header_names_the_process_and_how_far_it_is_scaled():
    infos = [probe(case.data) for case in every_process()]
    scaled, whole = ({(info.sof, info.bit_depth) for info in infos if info.max_scale == scale} for scale in (8, 1))
    assert scaled == {(sof, 8) for sof in (0, 1, 2, 9, 10)}
    assert whole == {(3, 8)}


def test_a_header_that_can_be_read_in_two_ways_is_not_trusted():
    for case in lies():
        try:
            info = probe(case.data)
        except DecodeError:
            continue
        plain = "within a comment" in case.name or ", fill bytes (" in case.name
        assert (info.sof is not None) == plain, case.name
        assert plain or info.max_scale == 1, case.name


@needs_lossless
@pytest.mark.parametrize("components", [1, 3])
def test_a_lossless_jpeg_is_cropped_packed_and_checked(tmp_path, components):
    """Its pixels are the same to all, since it is decoded at full size."""
    pixels = pixels_of(96, 128, components)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jpg").write_bytes(lossless(pixels))
    expected = np.broadcast_to(pixels, (96, 128, 3))
    fields = {
        "whole": ss.decode.Image(source="jpg"),
        "scaled": ss.decode.CenterCrop(8, resize=10, source="jpg"),
        "exact": ss.decode.CenterCrop(8, resize=10, exact=True, source="jpg"),
    }
    ss.pack(tmp_path / "in", tmp_path / "out", workers=0, images=ss.ImageOptions(check="decode"))
    for place in (tmp_path / "in", tmp_path / "out"):
        batch = ss.ShardDataset(str(place), fields=fields, batch_size=1).peek()
        assert np.array_equal(batch["whole"][0].permute(1, 2, 0), expected)
        assert np.array_equal(batch["scaled"], batch["exact"])
    assert not ss.diagnose.verify(tmp_path / "out", decode=True).problems
    ss.pack(tmp_path / "in", tmp_path / "small", workers=0, images=ss.ImageOptions(max_side=16))
    assert probe(ss.Reader(tmp_path / "small", fields={"jpg": "bytes"})[0]["jpg"]).width == 16


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (JFIF.join((b"\xff\xd8", lossless(pixels_of(40, 48, 3))[2:])), "lossless 8-bit JPEG with colors as YCbCr"),
        (YCCK.join((b"\xff\xd8", lossless(pixels_of(40, 48, 4))[2:])), "lossless 8-bit JPEG with colors as YCbCr"),
        (lossless(pixels_of(40, 48, 1, 16), 16), "lossless 16-bit JPEG"),
        (with_frame(lossless(pixels_of(40, 48, 3)), 1, 12), "12-bit JPEG"),
        (with_frame(lossless(pixels_of(40, 48, 3)), 5), "hierarchical 8-bit JPEG"),
        (with_frame(lossless(pixels_of(40, 48, 3)), 11), "lossless 8-bit JPEG"),
    ],
    ids=[
        "lossless YCbCr",
        "lossless YCCK",
        "lossless of 16 bits",
        "12 bits",
        "hierarchical",
        "lossless and arithmetic-coded",
    ],
)
@pytest.mark.parametrize("decode", [backends.decode, backends.decode_deep, backends.decode_frames])
def test_what_no_library_decodes_is_unsupported_and_not_damaged(data, why, decode):
    with pytest.raises(UnsupportedError, match=f"a {why}, which is not read") as caught:
        decode(data)
    assert "damaged" not in str(caught.value)


def test_no_backend_is_asked_for_a_scale_that_the_file_does_not_have():
    """Not by callers that chose it themselves, and not if it says that it can do it."""
    asked = []

    class Mine:
        def max_scale(self, info):
            return 8

        def decode(self, data, info, job):
            asked.append(job.scale)
            return np.zeros((info.height, info.width, 3), np.uint8)

    data = lossless(pixels_of(40, 48, 3))
    info = probe(data)
    assert backends.decode(data, min_size=(5, 6), backend=Mine()).shape == (40, 48, 3)
    assert asked == [1]
    for backend in ("auto", "simplejpeg", "pillow", Mine()):
        with pytest.raises(UnsupportedError, match="at 1/2 of it"):
            backends.decode_scaled(data, info, scale=2, backend=backend)
    assert asked == [1]


@needs_lossless
@pytest.mark.parametrize("decode", [backends.decode, backends.decode_deep, backends.decode_frames])
def test_a_lossless_jpeg_that_is_cut_is_damaged(decode):
    data = lossless(pixels_of(40, 48, 3))
    with pytest.raises(DecodeError, match="damaged") as caught:
        decode(data[: len(data) // 2])
    assert fault_kind(caught.value) == "damaged"


@pytest.mark.parametrize("version", ["2.1.5", None])
def test_a_pillow_whose_libjpeg_reads_no_lossless_jpeg_says_so(monkeypatch, version):
    monkeypatch.setattr(features, "version", lambda _: version)
    data = lossless(pixels_of(40, 48, 3))
    for decode in (backends.decode, backends.decode_deep, backends.decode_frames):
        with pytest.raises(UnsupportedError, match=r"lossless JPEG.*libjpeg-turbo 3"):
            decode(data)
