from __future__ import annotations

import io
import sys

import numpy as np
import pytest
from PIL import Image

from shardstream.errors import FieldError, MissingExtraError, UsageError
from shardstream.images.backends import simplejpeg
from shardstream.images.encode import encode
from shardstream.images.header import probe


def opened(data: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(data)))


@pytest.mark.parametrize("subsampling", ["4:2:0", "4:2:2", "4:4:4"])
def test_jpeg(photo, subsampling):
    pixels = photo(90, 120)
    data = encode(pixels, "jpg", subsampling=subsampling)
    assert probe(data)[:4] == ("jpg", 120, 90, 3)
    assert np.abs(opened(data).astype(int) - pixels).mean() < 3
    assert len(encode(pixels, "jpg", quality=50)) < len(data)
    assert encode(pixels[:, ::-1], "jpg") == encode(pixels[:, ::-1].copy(), "jpg")


def test_jpeg_of_grey_and_of_pil_images(photo):
    grey = photo(30, 40)[..., 0]
    assert probe(encode(grey, "jpg")).channels == 1
    assert np.abs(opened(encode(grey, "jpg")).astype(int) - grey).mean() < 2
    assert encode(grey[..., None], "jpg") == encode(grey, "jpg")
    image = Image.fromarray(photo(30, 40))
    assert encode(image, "jpg") == encode(photo(30, 40), "jpg")
    assert probe(encode(image.convert("P"), "jpg")).channels == 3


def test_jpeg_with_pillow_alone(photo, monkeypatch):
    monkeypatch.setitem(sys.modules, "simplejpeg", None)
    simplejpeg.module.cache_clear()
    try:
        data = encode(photo(90, 120), "jpg", subsampling="4:4:4")
        assert np.abs(opened(data).astype(int) - photo(90, 120)).mean() < 2
    finally:
        monkeypatch.undo()
        simplejpeg.module.cache_clear()


def test_png_needs_pillow(photo, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(MissingExtraError, match="pillow"):
        encode(photo(4, 4), "png")


def test_png_and_lossless_webp_keep_every_pixel(photo):
    pixels = photo(30, 40)
    alpha = np.dstack([pixels, pixels[..., 0]])
    wide = pixels[..., 0].astype(np.uint16) * 257
    assert np.array_equal(opened(encode(pixels, "png")), pixels)
    assert np.array_equal(opened(encode(pixels[..., 0], "png")), pixels[..., 0])
    assert np.array_equal(opened(encode(alpha, "png")), alpha)
    assert np.array_equal(opened(encode(wide, "png")), wide)
    assert np.array_equal(opened(encode(pixels, "webp", lossless=True)), pixels)
    assert np.abs(opened(encode(pixels, "webp")).astype(int) - pixels).mean() < 6
    palette = Image.fromarray(pixels).quantize(20)
    assert np.array_equal(opened(encode(palette, "png")), np.asarray(palette))


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (np.zeros((3, 4, 3), np.float32), "jpg"),
        (np.zeros((3, 30, 40), np.uint8), "jpg"),
        (np.zeros((30, 40, 4), np.uint8), "jpg"),
        (np.zeros((30, 40), np.uint16), "jpg"),
        (np.zeros((30, 40), np.uint16), "webp"),
        (np.zeros((0, 40, 3), np.uint8), "png"),
        ([[1, 2]], "png"),
        (b"bytes", "jpg"),
        (Image.new("CMYK", (4, 4)), "png"),
        (Image.new("F", (4, 4)), "png"),
        (Image.new("L", (20_000, 1)), "webp"),
    ],
)
def test_values_that_are_no_image(value, kind):
    with pytest.raises(FieldError, match="cannot be encoded"):
        encode(value, kind)


def test_png_of_big_endian_numbers():
    pixels = np.arange(12, dtype=">u2").reshape(3, 4)
    assert (opened(encode(pixels, "png")) == pixels).all()


def test_arguments(photo):
    with pytest.raises(UsageError, match="quality"):
        encode(photo(4, 4), "jpg", quality=0)
    with pytest.raises(UsageError, match="kind"):
        encode(photo(4, 4), "gif")  # type: ignore[arg-type]
