from __future__ import annotations

import io
import sys
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageOps

from shardstream.errors import DecodeError, MissingExtraError
from shardstream.images.backends import decode, decode_labels, decode_scaled, dispatch, simplejpeg
from shardstream.images.header import probe


@pytest.fixture
def without(monkeypatch):
    """``without("simplejpeg")``: as if a package were not installed."""
    caches = (simplejpeg.module, dispatch.named)

    def hide(*packages: str) -> None:
        for package in packages:
            monkeypatch.setitem(sys.modules, {"PIL": "PIL.Image"}.get(package, package), None)
        for cached in caches:
            cached.cache_clear()

    yield hide
    monkeypatch.undo()
    for cached in caches:
        cached.cache_clear()


def reference(data: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


@pytest.mark.parametrize("subsampling", [0, 1, 2])
@pytest.mark.parametrize("progressive", [False, True])
def test_jpeg_has_pillows_pixels(photo, save, subsampling, progressive):
    data = save(photo(101, 143), "JPEG", quality=90, subsampling=subsampling, progressive=progressive)
    assert np.array_equal(decode(data), reference(data))
    assert np.array_equal(decode(memoryview(data)), reference(data))


@pytest.mark.parametrize("size", [(375, 500), (1, 1), (7, 9), (8, 15), (16, 17), (101, 143)])
@pytest.mark.parametrize("scale", [1, 2, 4, 8])
@pytest.mark.parametrize("library", ["simplejpeg", "PIL"])
def test_dct_scales(photo, save, without, size, scale, library):
    if scale > min(size):
        pytest.skip("no box of this image can cover anything at this scale")
    data = save(photo(*size), "JPEG", quality=92)
    expected = reference(data)
    without("PIL" if library == "simplejpeg" else "simplejpeg")
    pixels = decode_scaled(data, probe(data), scale=scale)
    assert pixels.shape == (-(-size[0] // scale), -(-size[1] // scale), 3)
    if min(size) > 100:
        h, w = size[0] // scale, size[1] // scale
        blocks = expected[: h * scale, : w * scale].reshape(h, scale, w, scale, 3)
        assert np.abs(pixels[:h, :w] - blocks.mean((1, 3))).mean() < 2


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("least", "expected"),
    [
        (None, (375, 500)),
        ((376, 1), (375, 500)),
        ((188, 250), (375, 500)),  # 375 / 2 is less than 188: the decoded 188th row is half invented
        ((187, 250), (188, 250)),
        ((187, 251), (375, 500)),
        ((93, 125), (94, 125)),
        ((10, 10), (47, 63)),
    ],
)
def test_min_size_is_covered_by_the_cheap_scales_only(photo, save, least, expected):
    data = save(photo(), "JPEG")
    assert decode(data, min_size=least).shape == (*expected, 3)
    png = save(photo(), "PNG")
    assert decode(png, min_size=least).shape == (375, 500, 3)


def test_grey_palette_alpha(photo, save):
    pixels = photo(40, 60)
    grey = Image.fromarray(pixels).convert("L")
    for kind in ("JPEG", "PNG"):
        data = save(grey, kind)
        decoded = decode(data)
        assert decoded.shape == (40, 60, 3)
        assert np.array_equal(decoded, reference(data))
        assert (decoded[..., 0] == decoded[..., 2]).all()
    palette = Image.fromarray(pixels).quantize(64)
    assert np.array_equal(decode(save(palette, "PNG")), np.asarray(palette.convert("RGB")))
    transparent = decode(save(palette, "PNG", transparency=bytes(range(64))))
    assert np.array_equal(transparent, np.asarray(palette.convert("RGB")))
    alpha = np.dstack([pixels, np.arange(2400, dtype=np.uint32).reshape(40, 60).astype(np.uint8)])
    for kind, options in (("PNG", {}), ("WEBP", {"lossless": True, "exact": True})):
        assert np.array_equal(decode(save(alpha, kind, **options)), pixels)
    assert np.array_equal(decode(save(Image.merge("LA", (grey, grey)), "PNG"))[..., 0], np.asarray(grey))
    one_bit = Image.fromarray(pixels).convert("1")
    assert np.array_equal(decode(save(one_bit, "PNG"))[..., 1], np.asarray(one_bit) * np.uint8(255))


def test_16_bit_png_is_scaled_not_clipped(save):
    values = (np.arange(4096, dtype=np.uint16) * 16).reshape(64, 64)
    data = save(Image.fromarray(values), "PNG")
    assert probe(data).bit_depth == 16
    decoded = decode(data)
    assert np.array_equal(decoded, np.repeat((values >> 8).astype(np.uint8)[..., None], 3, 2))
    assert len(np.unique(decoded)) == 256


@pytest.mark.parametrize("library", ["both", "simplejpeg"])
def test_cmyk(photo, save, without, library):
    rgb = Image.fromarray(photo(64, 48))
    data = save(rgb.convert("CMYK"), "JPEG", quality=98, subsampling=0)
    assert probe(data).channels == 4
    expected = reference(data)
    if library == "both":
        assert np.array_equal(decode(data), expected)
    else:
        without("PIL")
        assert np.abs(decode(data).astype(int) - expected).max() <= 2


def test_the_content_counts_not_the_name(photo, save):
    pixels = photo(20, 30)
    assert np.array_equal(decode(save(pixels, "PNG")), pixels)
    assert np.array_equal(decode(save(pixels, "WEBP", lossless=True)), pixels)


def test_exif_orientation_is_ignored(photo, save):
    exif = Image.Exif()
    exif[0x0112] = 6
    data = save(photo(40, 60), "JPEG", exif=exif)
    assert decode(data).shape == (40, 60, 3)
    assert ImageOps.exif_transpose(Image.open(io.BytesIO(data))).size == (40, 60)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("library", ["both", "simplejpeg", "PIL"])
def test_truncated_files_are_errors(photo, save, without, kind, library):
    data = save(photo(120, 160), kind)
    if library != "both":
        if kind != "JPEG" and library == "simplejpeg":
            return
        without("PIL" if library == "simplejpeg" else "simplejpeg")
    for length in (len(data) // 2, len(data) * 9 // 10, len(data) - (2 if kind == "JPEG" else 30)):
        with pytest.raises(DecodeError, match="does not decode"):
            decode(data[:length])


@pytest.mark.parametrize("library", ["both", "simplejpeg", "PIL"])
def test_tolerant_takes_what_there_is(photo, save, without, library):
    pixels = photo(120, 160)
    if library != "both":
        without("PIL" if library == "simplejpeg" else "simplejpeg")
    for kind in ("JPEG",) if library == "simplejpeg" else ("JPEG", "PNG"):
        data = save(pixels, kind)
        whole = decode(data)
        part = decode(data[: len(data) * 2 // 3], tolerant=True)
        assert part.shape == whole.shape
        assert np.array_equal(part[:32], whole[:32])
        assert len(np.unique(part[-4:])) == 1
        assert np.array_equal(decode(data, tolerant=True), whole)


@pytest.mark.parametrize("library", ["both", "simplejpeg", "PIL"])
def test_what_libjpeg_only_warns_of_is_decoded_as_it_does(photo, save, without, library):
    data = save(photo(120, 160), "JPEG")
    stray = data[:-2] + b"stray bytes" + data[-2:]
    with pytest.raises(ValueError, match="extraneous bytes"):
        simplejpeg.module().decode_jpeg(stray)
    damaged = bytearray(data)
    damaged[len(data) // 2] ^= 0x55
    references = [reference(stray), reference(bytes(damaged))]
    if library != "both":
        without("PIL" if library == "simplejpeg" else "simplejpeg")
    assert np.array_equal(decode(stray), references[0])
    assert np.array_equal(decode(bytes(damaged)), references[1])
    with pytest.raises(DecodeError):  # damaged and truncated: libjpeg warns of the damage only
        decode(bytes(damaged[: len(data) * 4 // 5]))


def test_thumbnails_do_not_hide_a_truncation(photo, save, without):
    exif = Image.Exif().tobytes() + b"\xff\xd8 a thumbnail \xff\xd9"
    data = bytearray(save(photo(120, 160), "JPEG", exif=exif))
    data[len(data) // 2] ^= 0x55
    without("PIL")
    with pytest.raises(DecodeError):
        decode(bytes(data[: len(data) * 4 // 5]))


def test_labels(save):
    labels = np.random.default_rng(0).integers(0, 21, (30, 40), np.uint8)
    palette = Image.fromarray(labels).copy()
    palette.putpalette(np.random.default_rng(1).integers(0, 256, 768, np.uint8).tobytes())
    assert palette.mode == "P"
    rgb = np.repeat(labels[..., None], 3, 2)
    for data in (
        save(labels, "PNG"),
        save(palette, "PNG"),
        save(rgb, "WEBP", lossless=True),
        save(Image.merge("LA", (Image.fromarray(labels),) * 2), "PNG"),
    ):
        decoded = decode_labels(data)
        assert decoded.dtype == np.uint8
        assert np.array_equal(decoded, labels)
    wide = labels.astype(np.uint16) * 1000
    assert decode_labels(save(Image.fromarray(wide), "PNG")).tolist() == wide.tolist()
    bits = decode_labels(save(Image.fromarray(labels > 10), "PNG"))
    assert np.array_equal(bits, labels > 10)
    grey = save(Image.fromarray(labels), "JPEG", quality=100)
    assert np.abs(decode_labels(grey).astype(int) - labels).max() <= 2


def test_a_coloured_image_is_no_label_map(photo, save):
    for kind in ("PNG", "JPEG"):
        with pytest.raises(DecodeError, match="coloured"):
            decode_labels(save(photo(20, 20), kind))


def test_missing_packages(photo, save, without):
    jpg, png = save(photo(20, 20), "JPEG"), save(photo(20, 20), "PNG")
    without("PIL", "simplejpeg")
    with pytest.raises(MissingExtraError, match=r"pip install .*\[images\]"):
        decode(jpg)
    with pytest.raises(MissingExtraError, match=r"pip install .*\[pillow\]"):
        decode(png)
    assert probe(png).kind == "png"


def test_reused_memory_is_reused_and_fresh_memory_is_not(photo, save):
    first, second = (save(photo(60, 80, seed), "JPEG") for seed in (1, 2))
    a = decode_scaled(first, probe(first), reuse=True)
    kept = a.copy()
    b = decode_scaled(second, probe(second), reuse=True)
    assert np.shares_memory(a, b)
    c, d = decode(first), decode(second)
    assert not np.shares_memory(c, d)
    assert np.array_equal(c, kept)
    assert np.array_equal(d, b)


def test_threads_have_memory_of_their_own(photo, save):
    files = [save(photo(60, 80, seed), "JPEG") for seed in range(4)]
    expected = [decode(data) for data in files]
    wrong = []

    def work(number: int) -> None:
        for _ in range(50):
            pixels = decode_scaled(files[number], probe(files[number]), reuse=True)
            if not np.array_equal(pixels, expected[number]):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_absurd_sizes_are_refused_before_anything_is_allocated(photo, save):
    data = bytearray(save(photo(20, 20), "JPEG"))
    frame = data.index(b"\xff\xc0")
    data[frame + 5 : frame + 9] = b"\xff\xff\xff\xff"
    with pytest.raises(DecodeError, match="65535 x 65535"):
        decode(bytes(data))
    with pytest.raises(DecodeError, match="65535 x 65535"):
        decode_labels(bytes(data))


def test_12_bit_jpeg_is_an_error(photo, save):
    data = bytearray(save(photo(20, 20), "JPEG"))
    data[data.index(b"\xff\xc0") + 4] = 12
    with pytest.raises(DecodeError):
        decode(bytes(data))


@pytest.mark.filterwarnings("ignore:Image appears to be a malformed MPO:UserWarning")
@given(st.data())
def test_damage_gives_pixels_or_a_decode_error(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    pixels = np.kron(rng.integers(0, 256, (4, 5, 3), np.uint8), np.ones((6, 6, 1), np.uint8))
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, data.draw(st.sampled_from(["JPEG", "PNG", "WEBP"])))
    damaged = bytearray(buffer.getvalue())
    for _ in range(data.draw(st.integers(0, 4))):
        damaged[int(rng.integers(12, len(damaged)))] = int(rng.integers(256))
    del damaged[len(damaged) - int(rng.integers(0, 30)) * data.draw(st.integers(0, 1)) :]
    for call in (decode, decode_labels):
        for tolerant in (False, True):
            try:
                found = call(bytes(damaged), tolerant=tolerant)
            except DecodeError:
                continue
            assert found.shape[:2] == (probe(bytes(damaged)).height, probe(bytes(damaged)).width)
