"""gzip, bzip2, xz and zstd files, decompressed in order, a piece at a time: lists and other text that is read once.

What a file is compressed with, its first bytes say, so that one from a pipe needs no name. No piece is large, whatever
the archive announces.
"""

from __future__ import annotations

import bz2
import lzma
import os
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from shardstream.errors import FormatError
from shardstream.extras import require

MAGIC_BYTES = 10
"""First bytes of a file that tell how it is compressed."""
_LZ4 = b"\x04\x22\x4d\x18"
_PIECE = 1 << 20
_INPUT = 16 << 10
_ZSTD_INPUT = 1 << 10  # four bytes may make 128 KB, so that this is 32 MB at most
_XZ_MEMORY = 256 << 20  # `xz -9` takes 65 MB


class _Decompressor(Protocol):
    """What takes one archive apart, of several that may follow one another in a file."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


class _Gzip:
    def __init__(self) -> None:
        self._one = zlib.decompressobj(16 + zlib.MAX_WBITS)
        self.needs_input = True

    @property
    def eof(self) -> bool:
        return self._one.eof

    @property
    def unused_data(self) -> bytes:
        return self._one.unused_data

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        found = self._one.decompress(self._one.unconsumed_tail + data, max_length)
        self.needs_input = len(found) < max_length
        return found


class _Zstd:
    needs_input = True

    def __init__(self) -> None:
        zstandard = require("zstandard", extra="zstd", purpose="to read lists that are compressed with zstd")
        self._error: type[Exception] = zstandard.ZstdError
        self._one = zstandard.ZstdDecompressor().decompressobj()

    @property
    def eof(self) -> bool:
        return bool(self._one.eof)

    @property
    def unused_data(self) -> bytes:
        return bytes(self._one.unused_data)

    def decompress(self, data: bytes, _max_length: int, /) -> bytes:
        try:
            return bytes(self._one.decompress(data))
        except self._error as error:
            raise OSError(str(error)) from error


@dataclass(frozen=True, slots=True)
class Codec:
    """A way to compress files.

    Attributes:
        name: What it is called.
        suffix: How names of such files end.
        magic: What they begin with.
        make: Makes what takes one apart.
        step: Bytes of the file that are taken at once.
    """

    name: str
    suffix: str
    magic: re.Pattern[bytes]
    make: Callable[[], _Decompressor]
    step: int = _INPUT


def _xz() -> _Decompressor:
    return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)


CODECS = (
    Codec("gzip", ".gz", re.compile(rb"\x1f\x8b\x08"), _Gzip),
    Codec("bzip2", ".bz2", re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)"), bz2.BZ2Decompressor),
    Codec("xz", ".xz", re.compile(rb"\xfd7zXZ\0"), _xz),
    # A frame, or one that is skipped, with which pzstd begins.
    Codec("zstd", ".zst", re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"), _Zstd, _ZSTD_INPUT),
)
_SUFFIXES = {codec.suffix: codec for codec in CODECS}


def plain_name(name: str) -> str:
    """The name of a list without what it is compressed with.

    >>> plain_name("list.csv.gz"), plain_name("list.csv")
    ('list.csv', 'list.csv')
    """
    stem, suffix = os.path.splitext(name)
    return stem if suffix.lower() in _SUFFIXES else name


def compression_of(start: bytes | memoryview) -> str | None:
    """Name how a file with these first bytes is compressed; ``None``: not at all, or in a way that is not known."""
    if bytes(start[: len(_LZ4)]) == _LZ4:
        return "lz4"
    return next((codec.name for codec in CODECS if codec.magic.match(start)), None)


def codec_of(head: bytes, url: str) -> Codec | None:
    """What a list is compressed with, if it is.

    Args:
        head: Its first bytes, 16 of them or all.
        url: What it is.

    Raises:
        FormatError: It is called like a compressed file, and is none.
    """
    found = next((codec for codec in CODECS if codec.magic.match(head)), None)
    named = _SUFFIXES.get(os.path.splitext(url)[1].lower())
    if found is None and named is not None and head:
        raise FormatError(
            f"the list is called {named.suffix}, but is not a {named.name} file",
            url=url,
            hint=f"rename it to {plain_name(url.rpartition('/')[2])!r} if it is plain text, or copy it again",
        )
    return found


def pieces(read: Callable[[int, int], bytes], size: int, codec: Codec, url: str) -> Iterator[tuple[int, bytes]]:
    """What a compressed file holds: pieces, none of them empty, and what was taken of the file before each.

    Args:
        read: Gives the bytes of the file between two places.
        size: Bytes of the file.
        codec: What it is compressed with.
        url: What it is.

    Raises:
        FormatError: It is damaged or cut off; ``offset`` says where in the file.
        MissingExtraError: What it is compressed with needs a package that is not installed.
    """
    at, data, one, begun = 0, b"", codec.make(), False
    while True:
        if not data and one.needs_input:
            if at == size:
                break
            data = read(at, min(at + codec.step, size))
            at += len(data)
        if not begun:  # zeros that fill a block may follow an archive, or another one
            data = data.lstrip(b"\0")
            if not data:
                continue
        start = at - len(data)
        try:
            found = one.decompress(data, _PIECE)
        except (OSError, zlib.error, lzma.LZMAError, ValueError) as error:
            raise FormatError(
                f"the {codec.name} file cannot be decompressed from here on: {error}",
                url=url,
                offset=start,
                hint="it is damaged, most likely: copy or compress it again",
            ) from error
        begun, data = True, b""
        if found:
            yield start, found
        if one.eof:
            data, one, begun = one.unused_data, codec.make(), False
    if begun:
        raise FormatError(f"the {codec.name} file is cut off", url=url, offset=size, hint="copy or compress it again")
