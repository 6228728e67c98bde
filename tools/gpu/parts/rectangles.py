"""Rectangles cut out of addressable JPEGs, decoded by libjpeg-turbo, nvJPEG (torchvision) and nvImageCodec.

A cut file has a restart marker between every two segments. Pixels are compared inside of the rectangle, without the
margin, with those that simplejpeg finds in the same cut file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.dlpack import from_dlpack

import shardstream as ss
from gpu.setting import Row, Setting, first_line, seconds
from shardstream.images.geometry import Box
from shardstream.images.jpeg import cutting
from shardstream.threads import cores

SIDE, BATCH = 300, 128
Pixels: TypeAlias = "NDArray[np.uint8]"


class Decode(Protocol):
    """A decoder for a GPU: cut files, or whole ones; (height, width, 3) each."""

    def __call__(self, rectangles: list[Rectangle], *, whole: bool) -> list[Any]: ...


class Rectangle:
    """A cut file, and where the wanted pixels lie in it."""

    def __init__(self, whole: bytes, box: Box) -> None:
        found = cutting.read(whole)
        assert found is not None
        cut = found.cut(box)
        self.whole, self.file = whole, bytes(cut.data)
        self.left, self.top = box.left - cut.box.left, box.top - cut.box.top
        self.width, self.height = box.width, box.height

    def of(self, pixels: Pixels) -> Pixels:
        """The wanted ones of the file's (height, width, 3)."""
        return pixels[self.top : self.top + self.height, self.left : self.left + self.width]


def run(setting: Setting) -> Iterator[Row]:
    """Are restart intervals accepted, how far are the pixels, how fast is it?"""
    rectangles = _rectangles(setting)
    files = [one.file for one in rectangles]
    reference = [one.of(pixels) for one, pixels in zip(rectangles, _simplejpeg(files), strict=True)]
    kilobytes = sum(map(len, files)) / len(files) / 1e3
    whole = sum(len(one.whole) for one in rectangles) / len(files) / 1e3
    yield Row("files", f"{len(files)} of {SIDE} × {SIDE} pixels, {kilobytes:.0f} of {whole:.0f} kB each")
    times = setting.some(20)
    yield _speed("simplejpeg, one thread", lambda: _simplejpeg(files), len(files), times)
    with ThreadPoolExecutor(cores()) as pool:
        name = f"simplejpeg, {cores()} threads"
        yield _speed(name, lambda: list(pool.map(lambda file: _simplejpeg([file]), files)), len(files), times)
    if setting.device.type != "cuda":
        yield Row("nvJPEG, nvImageCodec", "need a CUDA device")
        return
    for name, decode in _decoders().items():
        yield from _decoded(name, decode, rectangles, reference, times)


def _rectangles(setting: Setting) -> list[Rectangle]:
    random = np.random.default_rng(0)
    found: list[Rectangle] = []
    for sample in ss.ShardDataset(setting.shards, fields={"jpg": "bytes"}):
        whole = bytes(sample["jpg"])
        image = cutting.read(whole)
        if image is None or image.height < SIDE or image.width < SIDE:
            continue
        top, left = random.integers(image.height - SIDE + 1), random.integers(image.width - SIDE + 1)
        found.append(Rectangle(whole, Box(int(top), int(left), SIDE, SIDE)))
    if not found:
        raise ValueError(f"{setting.shards} has no addressable photograph of {SIDE} × {SIDE} pixels or more")
    return [found[number % len(found)] for number in range(BATCH)]


def _simplejpeg(files: list[bytes]) -> list[Pixels]:
    import simplejpeg

    return [simplejpeg.decode_jpeg(file) for file in files]


def _decoders() -> dict[str, Decode]:
    found: dict[str, Decode] = {}
    if find_spec("torchvision"):
        found["torchvision.io.decode_jpeg on CUDA"] = _torchvision
    if find_spec("nvidia") and find_spec("nvidia.nvimgcodec"):
        found["nvImageCodec"] = _nvimgcodec()
    return found


def _torchvision(rectangles: list[Rectangle], *, whole: bool) -> list[Any]:
    from torchvision.io import ImageReadMode, decode_jpeg

    files = [bytearray(one.whole if whole else one.file) for one in rectangles]
    encoded = [torch.frombuffer(file, dtype=torch.uint8) for file in files]
    return [image.permute(1, 2, 0) for image in decode_jpeg(encoded, mode=ImageReadMode.RGB, device="cuda")]


def _nvimgcodec() -> Decode:
    from nvidia import nvimgcodec

    decoder = nvimgcodec.Decoder()

    def decode(rectangles: list[Rectangle], *, whole: bool) -> list[Any]:
        files = [one.whole if whole else one.file for one in rectangles]
        return [from_dlpack(image.cuda()) for image in decoder.decode(files)]

    return decode


def _decoded(
    name: str, decode: Decode, rectangles: list[Rectangle], reference: list[Pixels], times: int
) -> Iterator[Row]:
    try:
        images: list[Any] = decode(rectangles, whole=False)
        pixels = [image.cpu().numpy() for image in images]
    except Exception as error:  # a decoder that refuses such files is a result
        yield Row(f"{name}: restart intervals", f"refused: {type(error).__name__}: {first_line(error)}")
        return
    far = [
        np.abs(one.of(found).astype(int) - wanted.astype(int))
        for one, found, wanted in zip(rectangles, pixels, reference, strict=True)
    ]
    wrong = sum(int(one.max()) > 48 for one in far)
    yield Row(f"{name}: restart intervals", f"accepted; {wrong} of {len(far)} images more than 48 grey levels off")
    mean = float(np.mean([one.mean() for one in far]))
    most = max(int(one.max()) for one in far)
    yield Row(f"{name}: from simplejpeg's pixels", f"{mean:.2f} grey levels in the mean, {most} at most")
    yield _speed(f"{name}, cut files", lambda: decode(rectangles, whole=False), len(rectangles), times)
    yield _speed(f"{name}, whole files", lambda: decode(rectangles, whole=True), len(rectangles), times)


def _speed(name: str, call: Callable[[], Any], count: int, times: int) -> Row:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return Row(name, f"{count / seconds(device, call, times):,.0f} images/s")
