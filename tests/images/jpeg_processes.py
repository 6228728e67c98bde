"""JPEG files of every coding process, valid or with a header that lies, for tests and stress tests.

Source: ITU-T T.81, annexes B and H.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from shardstream.errors import DecodeError, MissingExtraError, UnsupportedError
from shardstream.images import backends
from shardstream.images.backends import NAMES, BackendName
from shardstream.images.damage import check_damage
from shardstream.images.geometry import Box
from shardstream.images.header import ImageInfo, probe
from shardstream.images.jpeg.transcode import make_addressable, restore
from shardstream.images.region import ImageFile
from shardstream.images.shrink import shrink

FRAMES = tuple(n for n in range(16) if n not in (4, 8, 12))
"""The n of the frame headers SOFn; DHT, JPG, and DAC are between them."""
PRECISIONS = (2, 7, 8, 9, 12, 16)
COMPONENTS = (1, 3, 4)
_DIGITS = 17  # Huffman codes of five bits: one for each size of a difference


class Case(NamedTuple):
    """A file.

    Attributes:
        name: What it is, in words.
        data: Its bytes.
        pixels: Its values, (H, W, C), where a decoder must return just these; else `None`.
    """

    name: str
    data: bytes
    pixels: NDArray[np.integer] | None = None


def pixels_of(height: int, width: int, components: int, precision: int = 8) -> NDArray[np.int64]:
    """A smooth image with noise: (height, width, components)."""
    rows = np.linspace(0, (1 << precision) - 1, height * width * components)
    noise = np.random.default_rng(height * width).integers(-9, 10, rows.shape)
    return (rows + noise).clip(0, (1 << precision) - 1).astype(np.int64).reshape(height, width, components)


def segment(code: int, content: bytes) -> bytes:
    """A marker segment."""
    return struct.pack(">BBH", 0xFF, code, 2 + len(content)) + content


def lossless(pixels: NDArray[np.integer], precision: int = 8, frame: int = 3) -> bytes:
    """Encode (H, W, C) losslessly (SOF3): predictor 1, one scan, Huffman codes of five bits."""
    height, width, components = pixels.shape
    values = pixels.astype(np.int64)
    predicted = np.empty_like(values)
    predicted[:, 1:] = values[:, :-1]
    predicted[1:, 0] = values[:-1, 0]
    predicted[0, 0] = 1 << (precision - 1)
    bits: list[str] = []
    for difference in (values - predicted).reshape(-1).tolist():
        # Modulo 2^16, as H.1.2.1 has it.
        number = (difference + (1 << 15)) % (1 << 16) - (1 << 15)
        size = 16 if number == -(1 << 15) else abs(number).bit_length()
        extra = "" if size in (0, 16) else format(number if number > 0 else number + (1 << size) - 1, f"0{size}b")
        bits.append(format(size, "05b") + extra)
    whole = "".join(bits)
    whole += "1" * (-len(whole) % 8)
    scan = int(whole, 2).to_bytes(len(whole) // 8).replace(b"\xff", b"\xff\0")
    head = struct.pack(">BHHB", precision, height, width, components)
    head += b"".join(bytes((n + 1, 0x11, 0)) for n in range(components))
    table = bytes((0,)) + bytes((0, 0, 0, 0, _DIGITS, *[0] * 11)) + bytes(range(_DIGITS))
    order = bytes((components, *(part for n in range(components) for part in (n + 1, 0)), 1, 0, 0))
    return b"".join(
        (b"\xff\xd8", segment(0xC4, table), segment(0xC0 + frame, head), segment(0xDA, order), scan, b"\xff\xd9")
    )


def dct(height: int, width: int, components: int, **options: object) -> bytes:
    """Encode an image by Pillow, with its options."""
    pixels = pixels_of(height, width, components).astype(np.uint8)
    mode = {1: "L", 3: "RGB", 4: "CMYK"}[components]
    buffer = io.BytesIO()
    Image.frombytes(mode, (width, height), pixels.tobytes()).save(buffer, "JPEG", quality=90, **options)
    return buffer.getvalue()


def frame_offset(data: bytes) -> int:
    """Offset of the frame header."""
    at = 2
    while not (0xC0 <= data[at + 1] <= 0xCF and data[at + 1] not in (0xC4, 0xC8, 0xCC)):
        at += 2 + int.from_bytes(data[at + 2 : at + 4])
    return at


def with_frame(data: bytes, frame: int, precision: int | None = None) -> bytes:
    """A file whose frame header says another process, and precision."""
    at, changed = frame_offset(data), bytearray(data)
    changed[at + 1] = 0xC0 + frame
    if precision is not None:
        changed[at + 4] = precision
    return bytes(changed)


def every_process(height: int = 40, width: int = 48) -> Iterator[Case]:
    """Each frame header, precision, and number of components over the pixels of each kind of coder."""
    for components in COMPONENTS:
        coded = {
            "sequential": dct(height, width, components, subsampling=2),
            "progressive": dct(height, width, components, progressive=True, subsampling=0),
        }
        for precision in PRECISIONS:
            pixels = pixels_of(height, width, components, precision)
            payloads = {**coded, "lossless": lossless(pixels, precision)}
            for frame in FRAMES:
                for coder, data in payloads.items():
                    name = f"SOF{frame}, {precision} bits, {components} components, {coder} data"
                    whole = frame == 3 and coder == "lossless"
                    yield Case(name, with_frame(data, frame, precision), pixels if whole else None)


def lies(height: int = 40, width: int = 48) -> Iterator[Case]:
    """Files of which one reader of headers may see another frame than the next one."""
    for components in (1, 3):
        dct_file = dct(height, width, components)
        flat = lossless(pixels_of(height, width, components))
        for (name, data), (other_name, other) in (
            (("DCT", dct_file), ("lossless", flat)),
            (("lossless", flat), ("DCT", dct_file)),
        ):
            at, there = frame_offset(data), frame_offset(other)
            frame = other[there : there + 2 + int.from_bytes(other[there + 2 : there + 4])]
            small = frame[:5] + struct.pack(">HH", height // 8, width // 8) + frame[9:]
            for what, inserted in (
                ("a frame", frame),
                ("a smaller frame", small),
                ("a frame within garbage", b"\0\x01garbage" + frame),
                ("a frame within a comment", segment(0xFE, frame)),
                ("a frame behind fill bytes", b"\xff\xff\xff" + frame),
                ("a frame behind a stuffed byte", b"\xff\0" + frame),
                ("a frame behind SOI", b"\xff\xd8" + frame),
                ("a frame behind RST0", b"\xff\xd0" + frame),
                ("a frame behind TEM", b"\xff\x01" + frame),
                ("a frame behind EOI", b"\xff\xd9" + frame),
                ("a frame behind DHP", segment(0xDE, frame[4:]) + frame),
                ("a frame behind a reserved marker", segment(0x02, b"\0\0") + frame),
                ("a frame behind a marker with a long length", b"\xff\xc8\xff\xff" + frame),
                ("a frame in SOI with a length", b"\xff\xd8" + struct.pack(">H", 2 + len(frame)) + frame),
                ("a frame in RST0 with a length", b"\xff\xd0" + struct.pack(">H", 2 + len(frame)) + frame),
                ("a frame in TEM with a length", b"\xff\x01" + struct.pack(">H", 2 + len(frame)) + frame),
                ("garbage", b"\0\x01garbage"),
                ("fill bytes", b"\xff\xff\xff"),
            ):
                for where, place in (("before", at), ("behind", at + 2 + int.from_bytes(data[at + 2 : at + 4]))):
                    case = f"{name}, {components} components, {what} ({other_name}) {where} its own"
                    yield Case(case, data[:place] + inserted + data[place:])


def installed() -> list[BackendName]:
    """The backends that can be used here."""
    names: list[BackendName] = []
    for name in NAMES:
        try:
            backends.find(name)
        except MissingExtraError:
            continue
        names.append(name)
    return names


def problems(case: Case, names: list[BackendName]) -> Iterator[str]:
    """Decode a file in every way. A library that overruns its buffer ends the process.

    Yields:
        What is wrong, other than a `DecodeError`, which any file may be.
    """
    try:
        info = probe(case.data)
    except DecodeError:
        return
    if info.width * info.height > 1 << 20:
        return
    for name in names:
        yield from (f"{case.name}, {name}: {problem}" for problem in _decoded(case, info, name))
    made = attempt(lambda: make_addressable(case.data, width=8).data)
    if isinstance(made, bytes) and restore(made) != case.data:
        yield f"{case.name}: made addressable, it is not restored"
    attempt(lambda: check_damage(case.data, info, decode=True))
    attempt(lambda: shrink(case.data, 8, quality=90, metadata=True))


def _decoded(case: Case, info: ImageInfo, name: BackendName) -> Iterator[str]:
    height, width = info.height, info.width
    whole = attempt(partial(backends.decode, case.data, backend=name))
    decodes = info.bit_depth == 8 and info.sof in (None, 0, 1, 2, 3, 9, 10)
    if not decodes and not isinstance(whole, UnsupportedError):
        yield f"it is not called unsupported: {whole!r}"
    if case.pixels is not None and decodes and case.pixels.shape[2] != 4:
        pixels = np.broadcast_to(case.pixels, (height, width, 3))
        if not np.array_equal(whole, pixels):
            yield f"other pixels: {whole!r}"
    for scale in (2, 4, 8):
        if scale > min(height, width):
            break
        size = -(-height // scale), -(-width // scale)
        for tolerant in (False, True):
            scaled = attempt(partial(backends.decode, case.data, min_size=size, backend=name, tolerant=tolerant))
            if isinstance(scaled, np.ndarray) and info.sof in (None, 3) and scaled.shape != (height, width, 3):
                yield f"it is decoded at another scale than 1: {scaled.shape}"
        for fast in (False, True):
            decode = partial(backends.decode_scaled, case.data, info, scale=scale, fast=fast, backend=name)
            forced = attempt(partial(decode, reuse=fast))
            if isinstance(forced, np.ndarray) and info.sof not in (0, 1, 2, 9, 10):
                yield f"a decoder was asked for a scale: {forced.shape}"
        attempt(lambda: ImageFile(case.data).decode(Box(0, 0, 1, 1), scale=scale, backend=name))  # noqa: B023
    for read in (backends.decode_labels, backends.decode_deep, backends.decode_frames):
        attempt(partial(read, case.data))


def attempt(call: Callable[[], Any]) -> Any:
    """What a call returns, or its `DecodeError`."""
    try:
        return call()
    except DecodeError as error:
        return error


def main() -> None:
    """Print what is wrong, and how many files were tried."""
    names, count = installed(), 0
    for case in (*every_process(), *lies()):
        count += 1
        for problem in problems(case, names):
            print(problem, flush=True)
    print(f"{count} files")


if __name__ == "__main__":
    main()
