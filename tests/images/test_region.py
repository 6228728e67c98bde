"""What is decoded of an addressable file equals a full decode, at every DCT scale; other files take the usual road."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from shardstream.errors import DecodeError
from shardstream.images import backends
from shardstream.images.geometry import Box, scaled_box
from shardstream.images.header import probe
from shardstream.images.jpeg.transcode import make_addressable
from shardstream.images.region import ImageFile

from .jpeg.test_cut import SIMPLE, picture
from .jpeg.test_transcode import encoded


def whole(data: bytes, scale: int) -> np.ndarray:
    return backends.decode_scaled(data, probe(data), scale=scale)


@given(
    st.integers(9, 500),
    st.integers(9, 300),
    st.sampled_from(list(SIMPLE)),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from([None, 16, 64]),
    st.data(),
)
def test_a_region_is_that_of_a_full_decode_at_every_scale(width, height, sampling, scale, segment, data) -> None:
    import simplejpeg

    file = simplejpeg.encode_jpeg(np.asarray(picture(width, height, seed=width)), 90, "RGB", SIMPLE[sampling])
    stored = file if segment is None else make_addressable(file, width=segment).data
    pixels = whole(file, scale)
    opened = ImageFile(stored)
    for _ in range(3):
        left, top = data.draw(st.integers(0, width - 1)), data.draw(st.integers(0, height - 1))
        box = Box(top, left, data.draw(st.integers(1, height - top)), data.draw(st.integers(1, width - left)))
        small = scaled_box(box, scale)
        small = small._replace(top=min(small.top, pixels.shape[0] - 1), left=min(small.left, pixels.shape[1] - 1))
        region = opened.decode(small, scale=scale)
        got = region.pixels[small.top - region.origin[0] :, small.left - region.origin[1] :]
        assert np.array_equal(got[: small.height, : small.width], pixels[small.slices()])


def test_only_what_is_needed_is_decoded() -> None:
    file = make_addressable(encoded(picture(640, 480))).data
    region = ImageFile(file).decode(Box(200, 300, 100, 100))
    assert region.pixels.shape[0] <= 100 + 2 * (16 + 2)
    assert region.pixels.shape[1] <= 100 + 2 * (64 + 2)
    assert ImageFile(file).decode(Box(0, 0, 480, 620)).pixels.shape == (480, 640, 3)


def test_other_kinds_are_decoded_whole() -> None:
    image = picture(64, 48)
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    for file in (buffer.getvalue(), encoded(image, progressive=True), encoded(image.convert("CMYK"))):
        region = ImageFile(file).decode(Box(1, 2, 10, 20))
        assert region.pixels.shape == (48, 64, 3)
        assert region.origin == (0, 0)


def test_a_changed_file_is_an_error_and_tolerance_takes_what_there_is() -> None:
    file = make_addressable(encoded(picture(640, 480))).data
    file = file[: len(file) // 2]
    with pytest.raises(DecodeError, match="changed"):
        ImageFile(file).decode(Box(0, 0, 50, 50))
    opened = ImageFile(file)
    region = opened.decode(Box(0, 0, 50, 50), tolerant=True)
    assert np.array_equal(
        region.pixels[:50, :50], np.asarray(Image.open(io.BytesIO(encoded(picture(640, 480)))))[:50, :50]
    )
