"""The contract, held by every library that can be imported here, and by a decoder that is none of ours."""

from __future__ import annotations

import io
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from PIL import Image

from shardstream.errors import DecodeError, MissingExtraError
from shardstream.images.backends import NAMES, decode, find
from shardstream.images.header import probe
from shardstream.testing import BackendConformance

from .damaging import damaged_files

MISSING = {
    "opencv": "OpenCV is not installed",
    "imageio": "imageio is not installed",
    "torchvision": "its wheels need the CUDA build of torch, as tools/bench/run installs it",
    "accimage": "accimage is on no package index",
}

DEPRECATED = pytest.mark.filterwarnings(
    "ignore:The image decoding and encoding capabilities of TorchVision:DeprecationWarning"  # from 0.29 on
)


def installed(name: str) -> bool:
    try:
        find(name)
    except MissingExtraError:
        return False
    return True


@pytest.mark.parametrize("name", MISSING)
def test_the_library_is_here(name):
    """So that what is left out below is said once, with its reason."""
    if not installed(name):
        pytest.skip(f"the contract of {name!r} is not tested: {MISSING[name]}")


class TestAuto(BackendConformance):
    backend = "auto"
    scales: ClassVar = {"jpg": 8, "png": 1, "webp": 1}


class TestSimplejpeg(BackendConformance):
    backend = "simplejpeg"
    scales: ClassVar = {"jpg": 8, "png": 0, "webp": 0}


class TestPillow(BackendConformance):
    backend = "pillow"
    scales: ClassVar = {"jpg": 8, "png": 1, "webp": 1}


class TestOpencv(BackendConformance):
    backend = "opencv"
    __test__ = installed(backend)
    scales: ClassVar = {"jpg": 8, "png": 1, "webp": 1}
    cmyk = 1  # rounds where Pillow cuts off


class TestImageio(BackendConformance):
    backend = "imageio"
    __test__ = installed(backend)
    scales: ClassVar = {"jpg": 1, "png": 1, "webp": 1}


@DEPRECATED
class TestTorchvision(BackendConformance):
    backend = "torchvision"
    __test__ = installed(backend)
    scales: ClassVar = {"jpg": 1, "png": 0, "webp": 0}


class TestAccimage(BackendConformance):
    backend = "accimage"
    __test__ = installed(backend)
    scales: ClassVar = {"jpg": 1, "png": 0, "webp": 0}


class Own:
    """As a user would write one: small, Pillow inside, for PNG and JPEG at two scales."""

    def max_scale(self, info):
        return {"jpg": 2, "png": 1}.get(info.kind, 0) if info.channels == 3 and info.bit_depth == 8 else 0

    def decode(self, data, info, job):
        try:
            with Image.open(io.BytesIO(data)) as image:
                image.draft(None, (info.width // job.scale, info.height // job.scale))
                return np.array(image.convert("RGB"))
        except (OSError, SyntaxError, ValueError, EOFError) as error:
            raise DecodeError(f"it does not decode: {error}") from error


class TestOwn(BackendConformance):
    backend = Own()
    scales: ClassVar = {"jpg": 2, "png": 1, "webp": 0}


@pytest.mark.filterwarnings("ignore:Image appears to be a malformed MPO:UserWarning")
@pytest.mark.parametrize("backend", [*filter(installed, NAMES), pytest.param(Own(), id="own")])
@DEPRECATED
@given(data=damaged_files())
def test_damage_gives_pixels_or_a_decode_error(backend, data):
    for tolerant in (False, True):
        try:
            found = decode(data, tolerant=tolerant, backend=backend)
        except DecodeError:
            continue
        assert found.shape == (probe(data).height, probe(data).width, 3)
