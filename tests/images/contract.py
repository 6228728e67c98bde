"""What every backend has to hold. Subclass `BackendContract` and name the backend, or give an object of your own.

What a backend does not read, ``auto`` reads in its place: whoever names it gets the same pixels, so all tests ask for
all kinds of files. The reference is Pillow, called without the code under test.
"""

from __future__ import annotations

import io
import struct
import threading
import zlib
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import strategies as st
from PIL import Image

from shardstream.decode import RandomResizedCrop, SampleContext
from shardstream.errors import DecodeError
from shardstream.images.backends import decode, decode_scaled, find, jpeg_scale
from shardstream.images.geometry import Box, scaled_box
from shardstream.images.header import probe
from shardstream.images.jpeg.transcode import make_addressable
from shardstream.images.region import ImageFile


def reference(data: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def png16(values: np.ndarray) -> bytes:
    """A 16-bit colour PNG, which Pillow cannot write."""

    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    height, width, _ = values.shape
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    header = struct.pack(">IIBBBBB", width, height, 16, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


@st.composite
def damaged_files(draw) -> bytes:
    """A small file of any kind with some bytes changed, or its end cut off."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    pixels = np.kron(rng.integers(0, 256, (4, 5, 3), np.uint8), np.ones((6, 6, 1), np.uint8))
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, draw(st.sampled_from(["JPEG", "PNG", "WEBP"])))
    damaged = bytearray(buffer.getvalue())
    for _ in range(draw(st.integers(0, 4))):
        damaged[int(rng.integers(12, len(damaged)))] = int(rng.integers(256))
    del damaged[len(damaged) - int(rng.integers(0, 30)) * draw(st.integers(0, 1)) :]
    return bytes(damaged)


class BackendContract:
    """Attributes: what is tested, and in what it may differ.

    Attributes:
        backend: A name or an object.
        scales: What ``max_scale`` says of an ordinary JPEG, PNG and WebP.
        cmyk: Grey levels by which its conversion of CMYK may differ from Pillow's.
    """

    backend: Any
    scales: ClassVar[dict[str, int]]
    cmyk: int = 0

    @pytest.fixture(autouse=True)
    def _scaled(self, photo, save):
        """What it says it can do is what its subclass says."""
        kinds = {"jpg": "JPEG", "png": "PNG", "webp": "WEBP"}
        said = {kind: find(self.backend).max_scale(probe(save(photo(16, 16), kinds[kind]))) for kind in kinds}
        assert said == self.scales

    def decode(self, data: Any, **options: Any) -> np.ndarray:
        return decode(data, backend=self.backend, **options)

    @pytest.mark.parametrize("subsampling", [0, 1, 2])
    @pytest.mark.parametrize("progressive", [False, True])
    def test_jpeg_has_pillows_pixels(self, photo, save, subsampling, progressive):
        data = save(photo(101, 143), "JPEG", quality=90, subsampling=subsampling, progressive=progressive)
        for given_as in (data, bytearray(data), memoryview(data)):
            pixels = self.decode(given_as)
            assert pixels.dtype == np.uint8
            assert np.array_equal(pixels, reference(data))

    @pytest.mark.parametrize("size", [(375, 500), (1, 1), (7, 9), (8, 15), (16, 17), (101, 143)])
    def test_dct_scales(self, photo, save, size):
        data = save(photo(*size), "JPEG", quality=92)
        info, expected = probe(data), reference(data)
        for scale in (1, 2, 4, 8):
            h, w = size[0] // scale, size[1] // scale
            if not h * w:
                continue
            least = jpeg_scale(info, size, (h, w), self.backend)
            assert least == min(scale, self.scales["jpg"] or 8)
            pixels = decode_scaled(data, info, scale=least, backend=self.backend)
            assert pixels.shape == (-(-size[0] // least), -(-size[1] // least), 3)
            if min(size) > 100 and least == scale:
                blocks = expected[: h * scale, : w * scale].reshape(h, scale, w, scale, 3)
                assert np.abs(pixels[:h, :w] - blocks.mean((1, 3))).mean() < 2

    def test_png_and_webp_are_never_scaled(self, photo, save):
        for kind in ("PNG", "WEBP"):
            data = save(photo(40, 60), kind, lossless=True)
            assert jpeg_scale(probe(data), (40, 60), (2, 2), self.backend) == 1
            assert np.array_equal(self.decode(data, min_size=(2, 2)), photo(40, 60))

    def test_grey_palette_alpha(self, photo, save):
        pixels = photo(40, 60)
        grey = Image.fromarray(pixels).convert("L")
        for kind in ("JPEG", "PNG"):
            data = save(grey, kind)
            assert np.array_equal(self.decode(data), reference(data))
        palette = Image.fromarray(pixels).quantize(64)
        for options in ({}, {"transparency": bytes(range(64))}, {"transparency": 3}):
            assert np.array_equal(self.decode(save(palette, "PNG", **options)), np.asarray(palette.convert("RGB")))
        alpha = np.dstack([pixels, np.arange(2400, dtype=np.uint32).reshape(40, 60).astype(np.uint8)])
        for kind, options in (("PNG", {}), ("WEBP", {"lossless": True, "exact": True})):
            assert np.array_equal(self.decode(save(alpha, kind, **options)), pixels)
        both = self.decode(save(Image.merge("LA", (grey, grey)), "PNG"))
        assert np.array_equal(both, np.repeat(np.asarray(grey)[..., None], 3, 2))
        one_bit = Image.fromarray(pixels).convert("1")
        assert np.array_equal(self.decode(save(one_bit, "PNG"))[..., 1], np.asarray(one_bit) * np.uint8(255))

    def test_16_bit_png_is_scaled_not_clipped(self, save):
        values = (np.arange(4096, dtype=np.uint16) * 16).reshape(64, 64)
        high = (values >> 8).astype(np.uint8)
        data = save(Image.fromarray(values), "PNG")
        assert probe(data).bit_depth == 16
        assert np.array_equal(self.decode(data), np.repeat(high[..., None], 3, 2))
        colour = np.dstack([values, values[::-1], values.T])
        assert np.array_equal(self.decode(png16(colour)), np.dstack([high, high[::-1], high.T]))

    def test_cmyk(self, photo, save):
        data = save(Image.fromarray(photo(64, 48)).convert("CMYK"), "JPEG", quality=98, subsampling=0)
        assert probe(data).channels == 4
        assert np.abs(self.decode(data).astype(int) - reference(data)).max() <= self.cmyk

    def test_the_content_counts_not_the_name(self, photo, save):
        pixels = photo(20, 30)
        assert np.array_equal(self.decode(save(pixels, "PNG")), pixels)
        assert np.array_equal(self.decode(save(pixels, "WEBP", lossless=True)), pixels)

    @pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
    def test_exif_orientation_is_ignored(self, photo, save, kind):
        exif = Image.Exif()
        exif[0x0112] = 6
        data = save(photo(40, 60), kind, exif=exif)
        assert np.array_equal(self.decode(data), reference(data))

    @pytest.mark.parametrize("kind", ["PNG", "WEBP"])
    def test_the_first_frame_of_an_animation(self, photo, save, kind):
        first, second = photo(20, 30, 1), photo(20, 30, 2)
        others = [Image.fromarray(second)]
        data = save(Image.fromarray(first), kind, save_all=True, append_images=others, lossless=True)
        assert np.array_equal(self.decode(data), first)

    @pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
    def test_truncated_files_are_errors(self, photo, save, kind):
        data = save(photo(120, 160), kind)
        for length in (len(data) // 2, len(data) * 9 // 10, len(data) - (2 if kind == "JPEG" else 30)):
            with pytest.raises(DecodeError, match="does not decode"):
                self.decode(data[:length])

    @pytest.mark.parametrize("kind", ["JPEG", "PNG"])
    def test_tolerant_takes_what_there_is(self, photo, save, kind):
        data = save(photo(120, 160), kind)
        whole = self.decode(data)
        part = self.decode(data[: len(data) * 2 // 3], tolerant=True)
        assert part.shape == whole.shape
        assert np.array_equal(part[:32], whole[:32])
        assert len(np.unique(part[-4:])) == 1
        assert np.array_equal(self.decode(data, tolerant=True), whole)

    def test_what_libjpeg_only_warns_of_is_decoded_as_it_does(self, photo, save):
        data = save(photo(120, 160), "JPEG")
        stray = data[:-2] + b"stray bytes" + data[-2:]
        damaged = bytearray(data)
        damaged[len(data) // 2] ^= 0x55
        assert np.array_equal(self.decode(stray), reference(stray))
        assert np.array_equal(self.decode(bytes(damaged)), reference(bytes(damaged)))
        with pytest.raises(DecodeError):  # damaged and truncated: libjpeg warns of the damage only
            self.decode(bytes(damaged[: len(data) * 4 // 5]))

    def test_what_is_too_large_or_too_deep_is_an_error(self, photo, save):
        frame = 5 + (data := save(photo(20, 20), "JPEG")).index(b"\xff\xc0")
        for changed, match in (
            (data[:frame] + b"\xff\xff\xff\xff" + data[frame + 4 :], "65535 x 65535"),
            (data[: frame - 1] + b"\x0c" + data[frame:], "does not decode"),
        ):
            with pytest.raises(DecodeError, match=match):
                self.decode(changed)

    def test_pixels_that_are_not_to_be_reused_stay(self, photo, save):
        first, second = (save(photo(60, 80, seed), "JPEG") for seed in (1, 2))
        held = self.decode(first)
        kept = held.copy()
        assert np.array_equal(self.decode(second), reference(second))
        assert np.array_equal(decode_scaled(second, probe(second), reuse=True, backend=self.backend), reference(second))
        assert np.array_equal(held, kept)

    def test_threads_do_not_disturb_each_other(self, photo, save):
        files = [save(photo(60, 80, seed), "JPEG") for seed in range(4)]
        wrong = []

        def work(number: int) -> None:
            for _ in range(25):
                pixels = decode_scaled(files[number], probe(files[number]), reuse=True, backend=self.backend)
                if not np.array_equal(pixels, reference(files[number])):
                    wrong.append(number)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong

    @pytest.mark.parametrize("subsampling", [0, 1, 2])
    def test_a_piece_of_an_addressable_jpeg_has_the_pixels_of_the_whole(self, photo, save, subsampling):
        made = make_addressable(save(photo(), "JPEG", quality=90, subsampling=subsampling))
        assert made.kind == "addressable"
        file = ImageFile(made.data)
        for scale in (1, 2, 4, 8):
            if scale > (self.scales["jpg"] or 8):
                continue
            whole = decode_scaled(made.data, file.info, scale=scale, backend=self.backend).copy()
            for box in (Box(0, 0, 64, 64), Box(104, 200, 96, 160), Box(240, 320, 128, 176)):
                wanted = scaled_box(box, scale)
                pixels, (top, left) = file.decode(wanted, scale=scale, backend=self.backend)
                assert pixels.size < whole.size
                found = pixels[wanted._replace(top=wanted.top - top, left=wanted.left - left).slices()]
                assert np.array_equal(found, whole[wanted.slices()])

    def test_crops_show_the_same_part(self, photo, save):
        data = save(photo(), "JPEG", quality=92)
        for position in range(8):
            crops = []
            for backend in (self.backend, "auto"):
                context = SampleContext("key", "shard", 0, position, 0, 0)
                crop = RandomResizedCrop(64, flip=True, backend=backend)
                crops.append(crop.apply(data, context, name="jpg", stream=0).astype(int))
            # Equal where both decode at one scale; else the rectangle moves to the grid of the coarser one.
            limit = 0 if self.scales["jpg"] in (0, 8) else 6
            assert np.abs(crops[0] - crops[1]).mean() <= limit
