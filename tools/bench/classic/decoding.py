"""Libraries that decode JPEG files, each called as its users call it.

A library is two functions: the bytes of a file to the whole picture, in whatever form its users hold it, and the bytes
with a rectangle to that rectangle as uint8 pixels of 224 x 224, in whatever order of axes.
"""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from bench.boxes import random_box
from bench.classic import rounds
from bench.race.epochs import one_thread
from bench.race.processes import SIZE

Box = tuple[int, int, int, int]  # left, top, width, height


class Library(NamedTuple):
    """What a library does."""

    whole: Callable[[bytes], Any]
    crop: Callable[[bytes, Box], Any]


def measured(library: str, folder: str) -> dict[str, Any]:
    """Images a second, decoded whole, and decoded, cut and resized.

    Args:
        library: One of `LIBRARIES`.
        folder: The photographs.
    """
    one_thread()
    files = rounds.files(folder)
    boxes = _boxes(files)
    whole, crop = library_of(library)
    crops = [np.asarray(crop(data, box)) for data, box in zip(files, boxes, strict=True)]
    figures = rounds.rates(
        {"whole, images/s": lambda i: whole(files[i]), f"to {SIZE}, images/s": lambda i: crop(files[i], boxes[i])}
    )
    shapes = {f"{sorted(one.shape)} {one.dtype}" for one in crops}
    return {"figures": figures, "delivered": {"crops": sorted(shapes), "mean": float(np.mean(crops))}}


def ours(folder: str, *, addressable: bool) -> dict[str, Any]:
    """The same by shardstream, which draws the rectangles itself: as it decodes a sample of a data set.

    Args:
        folder: The photographs.
        addressable: Make the files addressable first, as packing does.
    """
    import shardstream as ss
    from shardstream.images.backends import decode
    from shardstream.images.jpeg.transcode import make_addressable

    one_thread()
    files = rounds.files(folder)
    if addressable:
        files = [make_addressable(data).data for data in files]
    transform = ss.decode.RandomResizedCrop(SIZE)
    out = np.empty((SIZE, SIZE, 3), np.uint8)

    def crop(number: int) -> Any:
        context = ss.decode.SampleContext(key="", shard="", row=0, position=number % len(files), seed=0, epoch=0)
        return transform.apply(files[number], context, name="jpg", stream=0, out=out)

    mean = float(np.mean([crop(number).mean() for number in range(len(files))]))
    works = {"whole, images/s": lambda i: decode(files[i]), f"to {SIZE}, images/s": crop}
    shapes = [f"{sorted((SIZE, SIZE, 3))} uint8"]
    return {"figures": rounds.rates(works), "delivered": {"crops": shapes, "mean": mean}}


def _boxes(files: list[bytes]) -> list[Box]:
    from PIL import Image

    rng = random.Random(0)
    return [random_box(*Image.open(io.BytesIO(data)).size, rng) for data in files]


def library_of(name: str) -> Library:
    """One of `LIBRARIES`."""
    import PIL

    if name.startswith("pillow") and (name == "pillow-simd") != ("post" in PIL.__version__):
        raise ValueError(f"this is Pillow {PIL.__version__}")
    return LIBRARIES[name]()


def _pillow() -> Library:
    from PIL import Image

    def whole(data: bytes) -> Any:
        return Image.open(io.BytesIO(data)).convert("RGB")

    def crop(data: bytes, box: Box) -> Any:
        left, top, width, height = box
        part = whole(data).crop((left, top, left + width, top + height))
        return np.asarray(part.resize((SIZE, SIZE), Image.Resampling.BILINEAR))

    return Library(whole, crop)


def _with_opencv(whole: Callable[[bytes], Any]) -> Library:
    """What gives numpy arrays and has no resize, with OpenCV's."""
    import cv2

    cv2.setNumThreads(1)

    def crop(data: bytes, box: Box) -> Any:
        left, top, width, height = box
        part = whole(data)[top : top + height, left : left + width]
        return cv2.resize(part, (SIZE, SIZE), interpolation=cv2.INTER_LINEAR)

    return Library(whole, crop)


def _opencv() -> Library:
    import cv2

    def whole(data: bytes) -> Any:
        picture: Any = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
        return cv2.cvtColor(picture, cv2.COLOR_BGR2RGB)

    return _with_opencv(whole)


def _simplejpeg() -> Library:
    import simplejpeg

    return _with_opencv(simplejpeg.decode_jpeg)


def _imageio() -> Library:
    from imageio import v3

    return _with_opencv(lambda data: v3.imread(data, extension=".jpg"))


def _torchvision() -> Library:
    import torch
    from torchvision.io import ImageReadMode, decode_image

    def whole(data: bytes) -> Any:
        return decode_image(torch.frombuffer(bytearray(data), dtype=torch.uint8), mode=ImageReadMode.RGB)

    return _with_torchvision(whole)


def _torchcodec() -> Library:
    from torchcodec.decoders import decode_jpeg

    return _with_torchvision(decode_jpeg)


def _with_torchvision(whole: Callable[[bytes], Any]) -> Library:
    """What gives tensors, with torchvision's resize."""
    from torchvision.transforms.v2 import functional

    def crop(data: bytes, box: Box) -> Any:
        left, top, width, height = box
        return functional.resized_crop(whole(data), top, left, height, width, [SIZE, SIZE], antialias=True)

    return Library(whole, crop)


def _accimage() -> Library:
    import accimage

    def crop(data: bytes, box: Box) -> Any:
        left, top, width, height = box
        image = accimage.Image(data)
        image.crop((left, top, left + width, top + height))
        image.resize((SIZE, SIZE))
        pixels = np.empty((3, SIZE, SIZE), np.uint8)
        image.copyto(pixels)
        return pixels

    return Library(accimage.Image, crop)


LIBRARIES: dict[str, Callable[[], Library]] = {
    "pillow": _pillow,
    "pillow-simd": _pillow,
    "opencv": _opencv,
    "simplejpeg": _simplejpeg,
    "imageio": _imageio,
    "torchvision": _torchvision,
    "torchcodec": _torchcodec,
    "accimage": _accimage,
}
