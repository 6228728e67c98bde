"""What every decoder of images has to hold."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Mapping
from itertools import product
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from shardstream.decode import RandomResizedCrop, SampleContext
from shardstream.errors import DecodeError, UnsupportedError
from shardstream.images.backends import Backend, BackendName, decode, decode_scaled, find, jpeg_scale
from shardstream.images.geometry import Box, scaled_box
from shardstream.images.header import probe
from shardstream.images.jpeg.transcode import make_addressable
from shardstream.images.region import ImageFile
from shardstream.testing.asserting import check, check_arrays, check_equal, expect, skip
from shardstream.testing.pictures import photo, pillow, png16, reference, save

_KINDS = {"jpg": "JPEG", "png": "PNG", "webp": "WEBP"}
_SIZES = ((375, 500), (1, 1), (7, 9), (8, 15), (16, 17), (101, 143))


class BackendConformance:
    """What every `shardstream.decode.Backend` has to hold, as test methods; subclass it as ``Test...``.

    What a backend does not read, ``"auto"`` reads in its place: whoever names it gets the same pixels, so all tests
    ask for all kinds of files. The reference is Pillow, which has to be installed.

    Attributes:
        backend: What is tested: a name, or an object of your own.
        scales: What ``max_scale`` says of an ordinary JPEG, PNG and WebP, as ``{"jpg": 8, "png": 1, "webp": 0}``;
            ``None``: whatever it says is right.
        cmyk: Grey levels by which its conversion of CMYK may differ from Pillow's.

    Example:
        >>> class TestMine(BackendConformance):
        ...     backend = "pillow"  # or an object of your own: MyDecoder()
    """

    backend: Backend | BackendName
    scales: ClassVar[Mapping[str, int] | None] = None
    cmyk: int = 0

    # -------------------------------------------------------------------------------------------------------- helpers

    def decode(self, data: bytes | bytearray | memoryview, **options: Any) -> NDArray[np.uint8]:
        """The pixels of a file, by the backend; ``options`` as of `shardstream.images.backends.decode`."""
        return decode(data, backend=self.backend, **options)

    def _says(self) -> dict[str, int]:
        backend = find(self.backend)
        return {kind: backend.max_scale(probe(save(photo(16, 16), name))) for kind, name in _KINDS.items()}

    def _jpeg_scale(self) -> int:
        """How far JPEG files come scaled, by itself or by ``"auto"``."""
        return self._says()["jpg"] or 8

    # ---------------------------------------------------------------------------------------------------------- tests

    def test_max_scale_is_1_2_4_8_or_0(self) -> None:
        """What it says it can do, and that it is what the subclass says."""
        said = self._says()
        for kind, scale in said.items():
            check(scale in (0, 1, 2, 4, 8), f"max_scale of a {kind} file must be 0, 1, 2, 4 or 8, got {scale!r}")
        if self.scales is not None:
            check_equal(said, dict(self.scales), "what max_scale says")

    def test_jpeg_has_pillows_pixels(self) -> None:
        """Every subsampling, baseline and progressive, as bytes, bytearray and memoryview."""
        for subsampling, progressive in product((0, 1, 2), (False, True)):
            data = save(photo(101, 143), "JPEG", quality=90, subsampling=subsampling, progressive=progressive)
            for given_as in (data, bytearray(data), memoryview(data)):
                what = f"a JPEG (subsampling {subsampling}, progressive {progressive}, {type(given_as).__name__})"
                check_arrays(self.decode(given_as), reference(data), what)

    def test_dct_scales(self) -> None:
        """A JPEG at 1/2, 1/4 and 1/8: its size rounded up, and the mean of its blocks."""
        for size, scale in product(_SIZES, (1, 2, 4, 8)):
            data = save(photo(*size), "JPEG", quality=92)
            info, expected = probe(data), reference(data)
            h, w = size[0] // scale, size[1] // scale
            if not h * w:
                continue
            least = jpeg_scale(info, size, (h, w), self.backend)
            check_equal(least, min(scale, self._jpeg_scale()), f"the scale for {h} x {w} pixels of {size}")
            pixels = decode_scaled(data, info, scale=least, backend=self.backend)
            shape = (-(-size[0] // least), -(-size[1] // least), 3)
            check_equal(pixels.shape, shape, f"the shape of a JPEG of {size} at 1/{least}")
            if min(size) > 100 and least == scale:
                blocks = expected[: h * scale, : w * scale].reshape(h, scale, w, scale, 3)
                off = float(np.abs(pixels[:h, :w] - blocks.mean((1, 3))).mean())
                check(off < 2, f"a JPEG at 1/{scale} must be the mean of its blocks, but is {off:.1f} levels off")

    def test_png_and_webp_are_never_scaled(self) -> None:
        """Only JPEG files come at a scale."""
        for kind in ("PNG", "WEBP"):
            data = save(photo(40, 60), kind, lossless=True)
            check_equal(jpeg_scale(probe(data), (40, 60), (2, 2), self.backend), 1, f"the scale of a {kind}")
            check_arrays(self.decode(data, min_size=(2, 2)), photo(40, 60), f"a {kind} of which few pixels are wanted")

    def test_grey_palette_alpha(self) -> None:
        """Grey becomes three channels, a palette its colours; transparency is dropped."""
        pixels, image = photo(40, 60), pillow()
        grey = image.fromarray(pixels).convert("L")
        for kind in ("JPEG", "PNG"):
            data = save(grey, kind)
            check_arrays(self.decode(data), reference(data), f"a grey {kind}")
        palette = image.fromarray(pixels).quantize(64)
        for options in ({}, {"transparency": bytes(range(64))}, {"transparency": 3}):
            found = self.decode(save(palette, "PNG", **options))
            check_arrays(found, np.asarray(palette.convert("RGB")), f"a palette PNG {sorted(options)}")
        alpha = np.dstack([pixels, np.arange(2400, dtype=np.uint32).reshape(40, 60).astype(np.uint8)])
        for data, kind in ((save(alpha, "PNG"), "PNG"), (save(alpha, "WEBP", lossless=True, exact=True), "WebP")):
            check_arrays(self.decode(data), pixels, f"a {kind} with alpha")
        both = self.decode(save(image.merge("LA", (grey, grey)), "PNG"))
        check_arrays(both, np.repeat(np.asarray(grey)[..., None], 3, 2), "a PNG of grey and alpha")
        one_bit = image.fromarray(pixels).convert("1")
        found = self.decode(save(one_bit, "PNG"))[..., 1]
        check_arrays(found, np.asarray(one_bit) * np.uint8(255), "a PNG of one bit a pixel")

    def test_16_bit_png_is_scaled_not_clipped(self) -> None:
        """The high byte, of grey and of colour."""
        values = (np.arange(4096, dtype=np.uint16) * 16).reshape(64, 64)
        high = (values >> 8).astype(np.uint8)
        data = save(pillow().fromarray(values), "PNG")
        check_equal(probe(data).bit_depth, 16, "the bits of the PNG that is tested with")
        check_arrays(self.decode(data), np.repeat(high[..., None], 3, 2), "a 16-bit grey PNG")
        colour = np.dstack([values, values[::-1], values.T])
        check_arrays(self.decode(png16(colour)), np.dstack([high, high[::-1], high.T]), "a 16-bit colour PNG")

    def test_cmyk(self) -> None:
        """Pillow's conversion, within `cmyk` grey levels."""
        data = save(pillow().fromarray(photo(64, 48)).convert("CMYK"), "JPEG", quality=98, subsampling=0)
        check_equal(probe(data).channels, 4, "the channels of the JPEG that is tested with")
        off = int(np.abs(self.decode(data).astype(int) - reference(data)).max())
        check(off <= self.cmyk, f"a CMYK JPEG may be {self.cmyk} grey levels off Pillow's pixels, but is {off}")

    def test_the_content_counts_not_the_name(self) -> None:
        """PNG and WebP are told by their bytes."""
        pixels = photo(20, 30)
        check_arrays(self.decode(save(pixels, "PNG")), pixels, "a PNG")
        check_arrays(self.decode(save(pixels, "WEBP", lossless=True)), pixels, "a WebP")

    def test_exif_orientation_is_ignored(self) -> None:
        """Pixels come as they are stored."""
        for kind in _KINDS.values():
            exif = pillow().Exif()
            exif[0x0112] = 6
            data = save(photo(40, 60), kind, exif=exif)
            check_arrays(self.decode(data), reference(data), f"a {kind} with an EXIF orientation")

    def test_the_first_frame_of_an_animation(self) -> None:
        """An animated PNG or WebP is its first frame."""
        first, second = photo(20, 30, 1), photo(20, 30, 2)
        image = pillow()
        for kind in ("PNG", "WEBP"):
            others = [image.fromarray(second)]
            data = save(image.fromarray(first), kind, save_all=True, append_images=others, lossless=True)
            check_arrays(self.decode(data), first, f"an animated {kind}")

    def test_truncated_files_are_errors(self) -> None:
        """Whatever is missing, were it the end marker of a JPEG: DecodeError."""
        for kind in _KINDS.values():
            data = save(photo(120, 160), kind)
            for length in (len(data) // 2, len(data) * 9 // 10, len(data) - (2 if kind == "JPEG" else 30)):
                what = f"decoding {length} of {len(data)} bytes of a {kind}"
                error = expect(DecodeError, what, self.decode, data[:length])
                check("does not decode" in str(error), f"{what} must say that it does not decode, got {error}")

    def test_tolerant_takes_what_there_is(self) -> None:
        """``tolerant=True``: the rows that are there, and one colour below."""
        for kind in ("JPEG", "PNG"):
            data = save(photo(120, 160), kind)
            whole = self.decode(data)
            part = self.decode(data[: len(data) * 2 // 3], tolerant=True)
            check_equal(part.shape, whole.shape, f"the shape of a truncated {kind}")
            check_arrays(part[:32], whole[:32], f"the first rows of a truncated {kind}")
            check_equal(len(np.unique(part[-4:])), 1, f"the number of values in the last rows of a truncated {kind}")
            check_arrays(self.decode(data, tolerant=True), whole, f"a whole {kind} with tolerant=True")

    def test_what_libjpeg_only_warns_of_is_decoded_as_it_does(self) -> None:
        """Stray bytes and bad codes inside a JPEG that has its end."""
        data = save(photo(120, 160), "JPEG")
        stray = data[:-2] + b"stray bytes" + data[-2:]
        damaged = bytearray(data)
        damaged[len(data) // 2] ^= 0x55
        check_arrays(self.decode(stray), reference(stray), "a JPEG with stray bytes")
        check_arrays(self.decode(bytes(damaged)), reference(bytes(damaged)), "a JPEG with a changed byte")
        both = bytes(damaged[: len(data) * 4 // 5])  # libjpeg warns of the damage only
        expect(DecodeError, "decoding a JPEG that is damaged and truncated", self.decode, both)

    def test_what_is_too_large_or_too_deep_is_an_error(self) -> None:
        """Headers that promise 65,535 x 65,535 pixels, or 12 bits: UnsupportedError."""
        frame = 5 + (data := save(photo(20, 20), "JPEG")).index(b"\xff\xc0")
        large = data[:frame] + b"\xff\xff\xff\xff" + data[frame + 4 :]
        error = expect(UnsupportedError, "decoding a JPEG of too many pixels", self.decode, large)
        check("65535 x 65535" in str(error), f"the error must say how many pixels the JPEG has, got {error}")
        deep = data[: frame - 1] + b"\x0c" + data[frame:]
        expect(UnsupportedError, "decoding a JPEG of 12 bits", self.decode, deep)

    def test_pixels_that_are_not_to_be_reused_stay(self) -> None:
        """Only ``reuse=True`` allows memory that is used again."""
        first, second = (save(photo(60, 80, seed), "JPEG") for seed in (1, 2))
        held = self.decode(first)
        kept = held.copy()
        check_arrays(self.decode(second), reference(second), "a second JPEG")
        found = decode_scaled(second, probe(second), reuse=True, backend=self.backend)
        check_arrays(found, reference(second), "a second JPEG, with reuse=True")
        check_arrays(held, kept, "what was decoded before, without reuse=True,")

    def test_threads_do_not_disturb_each_other(self) -> None:
        """Four threads decode at once."""
        files = [save(photo(60, 80, seed), "JPEG") for seed in range(4)]
        wrong: list[object] = []

        def work(number: int) -> None:
            try:
                for _ in range(25):
                    pixels = decode_scaled(files[number], probe(files[number]), reuse=True, backend=self.backend)
                    if not np.array_equal(pixels, reference(files[number])):
                        wrong.append(f"thread {number} got other pixels")
            except Exception as error:  # the thread would end in silence
                wrong.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        check(not wrong, f"four threads that decode at once must get their own pixels, but {wrong[:1]}")

    def test_a_piece_of_an_addressable_jpeg_has_the_pixels_of_the_whole(self) -> None:
        """What is cut from an addressable JPEG is an ordinary small JPEG to the backend. Needs numba."""
        if importlib.util.find_spec("numba") is None:
            skip("numba, which makes JPEG files addressable, is not installed")
        for subsampling in (0, 1, 2):
            made = make_addressable(save(photo(), "JPEG", quality=90, subsampling=subsampling))
            check_equal(made.kind, "addressable", "the kind of the JPEG that is tested with")
            file = ImageFile(made.data)
            boxes = (Box(0, 0, 64, 64), Box(104, 200, 96, 160), Box(240, 320, 128, 176))
            for scale in [one for one in (1, 2, 4, 8) if one <= self._jpeg_scale()]:
                whole = decode_scaled(made.data, file.info, scale=scale, backend=self.backend).copy()
                for box in boxes:
                    wanted = scaled_box(box, scale)
                    pixels, (top, left) = file.decode(wanted, scale=scale, backend=self.backend)
                    check(pixels.size < whole.size, f"{box} of an addressable JPEG must not decode all of it")
                    found = pixels[wanted._replace(top=wanted.top - top, left=wanted.left - left).slices()]
                    check_arrays(found, whole[wanted.slices()], f"{box} of an addressable JPEG at 1/{scale}")

    def test_crops_show_the_same_part(self) -> None:
        """The same random crop as by ``"auto"``."""
        data = save(photo(), "JPEG", quality=92)
        # Equal where both decode at one scale; else the rectangle moves to the grid of the coarser one.
        limit = 0 if self._jpeg_scale() == 8 else 6
        for position in range(8):
            crops = []
            for backend in (self.backend, "auto"):
                context = SampleContext("key", "shard", 0, position, 0, 0)
                crop = RandomResizedCrop(64, flip=True, backend=backend)
                crops.append(crop.apply(data, context, name="jpg", stream=0).astype(int))
            off = float(np.abs(crops[0] - crops[1]).mean())
            check(off <= limit, f"a crop may be {limit} grey levels off the one by 'auto', but is {off:.1f}")
