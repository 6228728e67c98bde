"""Pictures of every format: told by content, opened as one format only, decoded as Pillow does."""

from __future__ import annotations

import io
import sys
import threading
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, features

from shardstream.errors import DecodeError, MissingExtraError
from shardstream.images import backends, opening
from shardstream.images.backends import NAMES, decode, decode_deep, decode_frames, decode_labels, find
from shardstream.images.formats import FORMATS, format_of, refused, refused_suffix
from shardstream.images.header import probe
from shardstream.images.shrink import shrink
from shardstream.testing.pictures import photo, png16, save

OTHERS = ("GIF", "BMP", "TIFF", "AVIF", "JPEG2000", "TGA", "PPM", "ICO")


def written(kind: str, mode: str = "RGB", size: tuple[int, int] = (20, 30), **options: Any) -> bytes:
    """A file of one of the formats that only Pillow reads."""
    if {"AVIF": "avif", "JPEG2000": "jpg_2000"}.get(kind, "pil") not in features.get_supported():
        pytest.skip(f"this Pillow writes no {kind}")
    return save(Image.fromarray(photo(*size)).convert(mode), kind, **options)


def pillows(data: bytes) -> NDArray[np.uint8]:
    """What Pillow makes of it."""
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image.convert("RGB"))


@pytest.mark.parametrize("kind", OTHERS)
def test_other_formats_decode_as_by_pillow(kind: str) -> None:
    modes = {"GIF": ("P", "L"), "AVIF": ("RGB", "RGBA"), "JPEG2000": ("L", "RGB", "RGBA"), "ICO": ("RGBA",)}
    modes["PPM"], modes["BMP"] = ("1", "L", "RGB"), ("1", "L", "P", "RGB")
    for mode in modes.get(kind, ("L", "P", "RGB", "RGBA")):
        data = written(kind, mode, (16, 16) if kind == "ICO" else (20, 30))
        found, info = format_of(data), probe(memoryview(data))
        assert found is not None
        assert (found.pillow, info.kind) == (kind, found.kind)
        expected = pillows(data)
        assert (info.height, info.width) == expected.shape[:2]
        np.testing.assert_array_equal(decode(memoryview(data)), expected)


@pytest.mark.parametrize("backend", [name for name in NAMES if name not in ("accimage", "torchvision")])
def test_every_backend_leaves_other_formats_to_pillow(backend: Any) -> None:
    data = written("BMP")
    assert find(backend).max_scale(probe(data)) == int(backend in ("auto", "pillow"))
    np.testing.assert_array_equal(decode(data, backend=backend), photo(20, 30))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "EPS files are never opened: they are programs"),
        (b"8BPS\0\1", "PSD files are never opened"),
        (b"\xd7\xcd\xc6\x9a\0\0", "WMF files are never opened: they hold drawings"),
        (b"\1\0\0\0" + bytes(36) + b" EMF", "EMF files are never opened"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "FPX or MIC files are never opened"),
        (b'\xef\xbb\xbf <?xml version="1.0"?><svg/>', "XML files are never opened"),
        (b"\n<!DOCTYPE html><html>404", "a web page"),
        (b"plain text", "neither JPEG, PNG nor WebP, nor of another format that is read: begins with 70 6c"),
        (b"\0\0\0\x18ftypisom\0\0\0\0isommp42", "begins with 00 00 00 18 66 74 79 70"),
        (bytes(64), "begins with 00 00"),
    ],
)
def test_what_is_never_opened_is_an_error_that_says_why(
    data: bytes, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "module", lambda: pytest.fail("Pillow was asked"))
    with pytest.raises(DecodeError, match=said):
        decode(data)


def test_pillow_is_never_asked_to_find_the_format(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that begins like one format gets the reader of that format alone, whatever it goes on as."""
    asked = []
    real = Image.open

    def spy(file: Any, mode: Any = "r", formats: Any = None) -> Any:
        asked.append(formats)
        return real(file, mode, formats)

    monkeypatch.setattr(Image, "open", spy)
    decode(written("TIFF"))
    decode(save(photo(8, 8), "PNG"))
    for data in (b"BM%!PS-Adobe-3.0", b"GIF89a" + b"%!PS" * 20):
        with pytest.raises(DecodeError) as caught:
            decode(data)
        assert "0x" not in caught.value.what  # no address of a buffer, which would differ from run to run
    assert set(asked) == {("TIFF",), ("BMP",), ("GIF",), ("PNG",)}


def test_suffixes_name_one_format_each() -> None:
    suffixes = [suffix for one in FORMATS for suffix in one.suffixes]
    assert len(suffixes) == len(set(suffixes))
    assert not any(map(refused_suffix, suffixes))
    assert refused_suffix("eps") == refused(b"%!PS")
    assert refused_suffix("pdf") is None


def test_a_tga_needs_the_bytes_that_its_header_promises() -> None:
    data = written("TGA")
    assert probe(data).kind == "tga"
    with pytest.raises(DecodeError, match="neither JPEG"):
        probe(data[:600])
    assert probe(written("TGA", compression="tga_rle")).kind == "tga"


def test_sizes_are_checked_before_anything_is_allocated() -> None:
    """A header that promises 4 * 10^9 pixels."""
    data = bytearray(written("BMP"))
    data[18:26] = (65_535).to_bytes(4, "little") * 2
    with pytest.raises(DecodeError, match=r"65535 x 65535|4294836225"):
        decode(bytes(data))
    gif = bytearray(written("GIF", "P"))
    gif[6:10] = b"\xff\xff\xff\xff"
    with pytest.raises(DecodeError, match=r"65535 x 65535|4294836225"):
        decode(bytes(gif))


@pytest.mark.parametrize("kind", [kind for kind in OTHERS if kind != "ICO"])
def test_damage_is_an_error_of_ours(kind: str) -> None:
    data = written(kind, "P" if kind == "GIF" else "RGB")
    for length in (len(data) // 3, len(data) // 2, len(data) - 1):
        try:
            pixels = decode(data[:length])
        except DecodeError:
            continue
        assert pixels.shape == (20, 30, 3)  # as Pillow takes it


def test_a_tiff_is_decoded_upright_whatever_pillow_says_of_its_size() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    data = written("TIFF", exif=exif)
    info = probe(data)
    assert (info.height, info.width, info.orientation) == (30, 20, 1)
    np.testing.assert_array_equal(decode(data), np.rot90(photo(20, 30), -1))


def test_all_frames() -> None:
    frames = [Image.fromarray(photo(20, 30, seed)).quantize(64) for seed in range(3)]
    data = save(frames[0], "GIF", save_all=True, append_images=frames[1:])
    found = decode_frames(memoryview(data))
    assert (found.shape, found.dtype) == ((3, 20, 30, 3), np.uint8)
    for one, frame in zip(found, frames, strict=True):
        np.testing.assert_array_equal(one, np.asarray(frame.convert("RGB")))
    np.testing.assert_array_equal(decode(data), found[0])
    for kind, options in (("TIFF", {}), ("PNG", {}), ("WEBP", {"lossless": True})):
        pages = [Image.fromarray(photo(20, 30, seed)) for seed in range(3)]
        found = decode_frames(save(pages[0], kind, save_all=True, append_images=pages[1:], **options))
        np.testing.assert_array_equal(found, np.stack([photo(20, 30, seed) for seed in range(3)]))
    assert decode_frames(save(photo(8, 9), "JPEG")).shape == (1, 8, 9, 3)


def test_frames_have_one_size_and_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = [Image.fromarray(photo(20, 30)), Image.fromarray(photo(10, 30))]
    data = save(pages[0], "TIFF", save_all=True, append_images=pages[1:])
    with pytest.raises(DecodeError, match="frame 1 has 30 x 10 pixels, not 30 x 20"):
        decode_frames(data)
    monkeypatch.setattr(backends.dispatch, "MAX_PIXELS", 1000)
    with pytest.raises(DecodeError, match="2 frames of 30 x 20 pixels, more than 1000"):
        decode_frames(data)


def test_16_bits() -> None:
    """As they are where they are asked for, else their high byte, whatever the format."""
    values = (np.arange(600, dtype=np.uint16) * 109).reshape(20, 30)
    for kind in ("PNG", "TIFF", *(["JPEG2000"] if features.check("jpg_2000") else [])):
        data = save(Image.fromarray(values), kind)
        assert probe(data).bit_depth == 16
        np.testing.assert_array_equal(decode(data), np.repeat((values >> 8).astype(np.uint8)[..., None], 3, 2))
        found = decode_deep(memoryview(data))
        assert (found.dtype, found.flags.c_contiguous) == (np.uint16, True)
        np.testing.assert_array_equal(found, values[..., None])
    pgm = b"P5 30 20 65535\n" + values.astype(">u2").tobytes()
    np.testing.assert_array_equal(decode_deep(pgm), values[..., None])
    np.testing.assert_array_equal(decode(pgm)[..., 0], values >> 8)


def test_8_bits_are_widened_to_the_full_range() -> None:
    pixels = photo(20, 30)
    np.testing.assert_array_equal(decode_deep(save(pixels, "PNG")), pixels * np.uint16(257))
    np.testing.assert_array_equal(decode_deep(save(pixels[..., 0], "BMP"))[..., 0], pixels[..., 0] * np.uint16(257))
    assert decode_deep(save(Image.fromarray(pixels).convert("1"), "PNG")).max() == 65_535


def test_16_bit_colour_by_opencv() -> None:
    cv2 = pytest.importorskip("cv2")
    values = np.random.default_rng(1).integers(0, 65_536, (20, 30, 3), np.uint16)
    tiff = cv2.imencode(".tif", values[..., ::-1], [cv2.IMWRITE_TIFF_COMPRESSION, 1])[1].tobytes()
    for data in (png16(values), tiff):
        np.testing.assert_array_equal(decode_deep(data), values)
        np.testing.assert_array_equal(decode(data), (values >> 8).astype(np.uint8))


def test_values_that_do_not_fit_16_bits() -> None:
    whole = np.arange(600, dtype=np.int32).reshape(20, 30)
    np.testing.assert_array_equal(decode_deep(save(Image.fromarray(whole), "TIFF"))[..., 0], whole)
    for values in (whole - 1, whole + 70_000, whole.astype(np.float32)):
        with pytest.raises(DecodeError, match="do not fit 16 bits"):
            decode_deep(save(Image.fromarray(values), "TIFF"))


def test_label_maps_of_a_tiff_keep_their_numbers() -> None:
    labels = np.arange(600, dtype=np.int32).reshape(20, 30) * 1000
    np.testing.assert_array_equal(decode_labels(save(Image.fromarray(labels), "TIFF")), labels)
    with pytest.raises(DecodeError, match="fractions"):
        decode_labels(save(Image.fromarray(labels.astype(np.float32)), "TIFF"))


@pytest.mark.parametrize("kind", OTHERS)
def test_smaller_ones_become_png(kind: str) -> None:
    data = written(kind, "P" if kind == "GIF" else "RGB", (64, 64))
    smaller = shrink(data, 32, quality=90, metadata=True)
    assert smaller is not None
    info = probe(smaller)
    assert (info.kind, info.width, info.height) == ("png", 32, 32)
    assert shrink(data, 64, quality=90, metadata=True) is None


def test_what_pillow_was_built_without_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    data = written("JPEG2000")
    monkeypatch.setattr(opening, "_features", frozenset)
    with pytest.raises(MissingExtraError, match="was built without JPEG2000"):
        decode(data)


HEIC = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(40)


def test_heic_names_its_extra_where_nothing_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pi_heif", "pillow_heif"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(opening, "find_spec", lambda name: None)
    opening._heif_reader.cache_clear()
    with pytest.raises(MissingExtraError, match=r"'pi_heif' is needed for HEIC files") as caught:
        decode(HEIC)
    assert "[heif]" in str(caught.value)


def test_a_damaged_heic_is_an_error_of_ours() -> None:
    opening._heif_reader.cache_clear()
    pytest.importorskip("pi_heif")
    with pytest.raises(DecodeError, match="heic file that does not decode"):
        decode(HEIC)


def test_threads_may_open_the_first_picture_at_once() -> None:
    """Pillow's readers are imported at the first need."""
    data, found = written("TGA"), []
    threads = [threading.Thread(target=lambda: found.append(decode(data).shape)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [(20, 30, 3)] * 8
