"""From the stored bytes of a block to its inflated ones. What a block announces is checked before it is believed."""

from __future__ import annotations

import bz2
import lzma
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np
import xxhash

from shardstream.errors import DecodeError
from shardstream.extras import require
from shardstream.formats.blocks.gzip_points import part_pieces
from shardstream.formats.blocks.hdf5_chunks import chunked
from shardstream.formats.blocks.nested import convert

LARGEST = 1 << 30
"""Bytes that a block may have, inflated."""
PLAIN = 0
"""The codec of bytes that are stored as they are."""
CODECS = {
    "none": PLAIN,
    "zstd": 1,
    "gzip": 2,
    "zlib": 3,
    "deflate": 4,
    "bz2": 5,
    "xz": 6,
    "brotli": 7,
    "snappy": 8,
    "parquet": 9,
    "gzip-part": 10,
    "lz4": 11,
    "nested": 12,
    "hdf5": 13,
}
"""Numbers of codecs by name, as catalogues store them, at most 255."""
_NAMES = {number: name for name, number in CODECS.items()}
_HINT = "the object is damaged, or was replaced; fetch or write it again"
_TAKEN = 256 << 10  # bytes that are given to a codec at once
_MADE = 1 << 20  # bytes that it may give back at once
_WINDOW = 1 << 27  # bytes that a decompressor may need for itself: what `zstd --long` writes
_TIGHTEST_LZ4 = 256  # bytes that one of LZ4 stands for at most
_LEAST_ZSTD, _LARGEST_ZSTD = 3, 128 << 10  # bytes that a block of a frame takes at least, and holds at most


def inflate(codec: int, data: memoryview, size: int, setting: bytes = b"") -> memoryview:
    """What the stored bytes of a block hold: exactly ``size`` bytes, read only.

    Args:
        codec: Number of the codec.
        data: The stored bytes.
        size: Bytes that they inflate to.
        setting: What the codec has to know besides; empty for most.

    Raises:
        DecodeError: They hold more or less, or are damaged.
        MissingExtraError: A package is not installed that it takes.
    """
    if not 0 <= size <= LARGEST:
        raise DecodeError(f"a block of {size} bytes is larger than blocks may be, {LARGEST}", hint=_HINT)
    name = _NAMES[codec]
    try:
        found = _WHOLE[name](data, size, setting) if name in _WHOLE else _gathered(_pieces(name, data), size)
    except MemoryError as error:
        hint = "use fewer workers, or pack the data set"
        raise DecodeError(f"a block of {size} bytes does not fit into memory", hint=hint) from error
    if len(found) != size:
        raise DecodeError(f"a block inflates to {len(found)} bytes, not {size}", hint=_HINT)
    return found


def inflate_by_name(name: str, data: memoryview, size: int) -> memoryview:
    """The same as `inflate` by the name of the codec; KeyError where there is none."""
    return inflate(CODECS[name], data, size)


def checksum_of(codec: int, inflated: memoryview) -> int:
    """What a table of blocks has of the inflated bytes of one: CRC-32 where zip files have it, else XXH3-64."""
    return zlib.crc32(inflated) if _NAMES[codec] == "deflate" else xxhash.xxh3_64_intdigest(inflated)


def inflate_unknown(codec: int, data: memoryview, most: int) -> memoryview | None:
    """The same of a block of which nobody said how large it is; ``None`` where that is more than ``most``.

    Raises:
        DecodeError: It is damaged.
        MissingExtraError: A package is not installed that it takes.
    """
    name = _NAMES[codec]
    out = bytearray()
    for piece in _zstd_pieces(data) if name == "zstd" else _pieces(name, data):
        if len(out) + len(piece) > most:
            return None
        out += piece
    return memoryview(out).toreadonly()


def inflated_start(codec: int, data: memoryview, most: int) -> bytes:
    """The first bytes of what the first stored bytes of a block hold: at most so many, as far as they are sound.

    Raises:
        MissingExtraError: A package is not installed that it takes.
    """
    out = bytearray()
    name = _NAMES[codec]
    with suppress(DecodeError):
        for piece in _zstd_pieces(data) if name == "zstd" else _pieces(name, data):
            out += piece
            if len(out) >= most:
                break
    return bytes(out[:most])


def _gathered(pieces: Iterator[bytes], size: int) -> memoryview:
    """Pieces in a buffer of that many bytes."""
    out = np.empty(size, np.uint8).data
    at = 0
    for piece in pieces:
        if at + len(piece) > size:
            raise DecodeError(f"a block inflates to more than {size} bytes", hint=_HINT)
        out[at : at + len(piece)] = piece
        at += len(piece)
    return out[:at].toreadonly()


# ----------------------------------------------------------------------------------------------- the standard library


def _of_zlib(bits: int) -> Callable[[], Any]:
    return lambda: _Zlib(bits)


class _Zlib:
    """zlib's decompressor with the interface of those of bz2 and lzma."""

    def __init__(self, bits: int) -> None:
        self._inner = zlib.decompressobj(bits)

    def decompress(self, data: bytes | memoryview, most: int) -> bytes:
        return self._inner.decompress(self._inner.unconsumed_tail or data, most)

    @property
    def needs_input(self) -> bool:
        return not self._inner.unconsumed_tail and not self._inner.eof

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data


_BITS = {"gzip": zlib.MAX_WBITS | 16, "zlib": zlib.MAX_WBITS, "deflate": -zlib.MAX_WBITS}
_STREAMS: dict[str, Callable[[], Any]] = {
    **{name: _of_zlib(bits) for name, bits in _BITS.items()},
    "bz2": bz2.BZ2Decompressor,
    "xz": lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=2 * _WINDOW),
}
_SEVERAL = frozenset({"gzip", "bz2", "xz"})  # one stream after another is their concatenation


def _pieces(name: str, data: memoryview) -> Iterator[bytes]:
    """The inflated bytes in pieces, none larger than `_MADE`."""
    at = 0
    stream = _STREAMS[name]()
    try:
        while not stream.eof:
            asks = stream.needs_input
            taken = data[at : at + _TAKEN] if asks else b""
            at += len(taken)
            piece = stream.decompress(taken, _MADE)
            if asks and not len(taken) and not piece and not stream.eof:  # zlib may have had some left
                raise DecodeError("a block is cut off: its compressed bytes end too early", hint=_HINT)
            yield piece
            if stream.eof and at - len(stream.unused_data) < len(data):
                at -= len(stream.unused_data)
                if name not in _SEVERAL:
                    raise DecodeError("bytes follow the end of a block", hint=_HINT)
                if data[at] or np.frombuffer(data[at:], np.uint8).any():  # tapes are filled up with zeros
                    stream = _STREAMS[name]()
    except (zlib.error, lzma.LZMAError, OSError, EOFError) as error:
        raise DecodeError(f"a block does not inflate: {error}", hint=_HINT) from error


# ---------------------------------------------------------------------------------------------------------- packages


class _Contexts(threading.local):
    """Contexts are costly to make, and none may be used by two threads at once."""

    decompressor: Any = None


_contexts = _Contexts()


def _of_zlib_at_once(name: str) -> Callable[[memoryview, int, bytes], memoryview]:
    """Most are one stream that holds what it announces, and small: what is not goes the long way."""

    def inflated(data: memoryview, size: int, _: bytes) -> memoryview:
        if size <= _MADE:
            stream = zlib.decompressobj(_BITS[name])
            with suppress(zlib.error):
                found = stream.decompress(data, size + 1)
                if len(found) == size and stream.eof and not stream.unused_data:
                    return memoryview(found)
        return _gathered(_pieces(name, data), size)

    return inflated


def _zstandard() -> ModuleType:
    return require("zstandard", extra="zstd", purpose="to read what is compressed with zstd")


def _zstd(data: memoryview, size: int, _: bytes) -> memoryview:
    """One frame."""
    zstandard = _zstandard()
    if _contexts.decompressor is None:
        _contexts.decompressor = zstandard.ZstdDecompressor()
    try:
        announced = zstandard.frame_content_size(data)
        if announced not in (-1, size) or size > (len(data) // _LEAST_ZSTD + 1) * _LARGEST_ZSTD:
            raise DecodeError(f"a block inflates to {announced} bytes, it says in {len(data)}, not {size}", hint=_HINT)
        # No more than that is allocated, and one byte more tells where there is more.
        raw = _contexts.decompressor.decompress(data, max_output_size=size + 1, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise DecodeError(f"a block does not inflate: {error}", hint=_HINT) from error
    return memoryview(raw)


def _zstd_pieces(data: memoryview) -> Iterator[bytes]:
    zstandard = _zstandard()
    reader = zstandard.ZstdDecompressor(max_window_size=_WINDOW).stream_reader(data)
    try:
        while piece := reader.read(_MADE):
            yield piece
    except zstandard.ZstdError as error:
        raise DecodeError(f"a block does not inflate: {error}", hint=_HINT) from error


def _cramjam(name: str) -> Any:
    return getattr(require("cramjam", extra="codecs", purpose=f"to read what is compressed with {name}"), name)


def inflated_into(inflate_into: Callable[[Any, Any], int], data: memoryview, size: int) -> memoryview:
    """What a function of a package writes of a block into a buffer of that many bytes, maybe fewer.

    Raises:
        DecodeError: It raises something, as it does where they are damaged or hold more.
    """
    out = np.empty(size, np.uint8)
    try:
        written = inflate_into(data, out)
    except Exception as error:  # the package's own, which has no name before it is imported
        raise DecodeError(f"a block does not inflate to {size} bytes: {error}", hint=_HINT) from error
    return out.data[:written].toreadonly()


def _brotli(data: memoryview, size: int, _: bytes) -> memoryview:
    return inflated_into(_cramjam("brotli").decompress_into, data, size)


def _snappy(data: memoryview, size: int, _: bytes) -> memoryview:
    return inflated_into(_cramjam("snappy").decompress_raw_into, data, size)


def _lz4(data: memoryview, size: int, _: bytes) -> memoryview:
    """One frame."""
    if size > _TIGHTEST_LZ4 * len(data):
        raise DecodeError(f"a block of {len(data)} bytes cannot inflate to {size}", hint=_HINT)
    return inflated_into(_cramjam("lz4").decompress_into, data, size)


def _nested(data: memoryview, _size: int, setting: bytes) -> memoryview:
    return memoryview(convert(data, setting, inflate_by_name))


def _parquet(data: memoryview, size: int, setting: bytes) -> memoryview:
    # Imported when it is needed: it inflates the pages of its blocks with the codecs here.
    found: memoryview = import_module("shardstream.formats.blocks.parquet.block").inflated_block(data, size, setting)
    return found


_WHOLE: dict[str, Callable[[memoryview, int, bytes], memoryview]] = {
    "none": lambda data, *_: data,
    "zstd": _zstd,
    **{name: _of_zlib_at_once(name) for name in _BITS},
    "brotli": _brotli,
    "snappy": _snappy,
    "gzip-part": lambda data, size, setting: _gathered(part_pieces(data, setting), size),
    "hdf5": chunked,
    "lz4": _lz4,
    "nested": _nested,
    "parquet": _parquet,
}
