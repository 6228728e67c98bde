"""Objects that are compressed as a whole, whatever they hold: told by their first bytes, and read in blocks."""

from __future__ import annotations

from shardstream.dataset.lists.decompression import MAGIC_BYTES, compression_of
from shardstream.errors import UnsupportedError
from shardstream.formats.blocks.codecs import CODECS, inflated_start
from shardstream.formats.blocks.found_blocks import FoundBlocks, one_block
from shardstream.formats.blocks.gzip_parts import gzip_blocks
from shardstream.formats.blocks.zstd_frames import zstd_blocks
from shardstream.formats.scans.object_bytes import ObjectBytes

_CODECS = {"gzip": "gzip", "bzip2": "bz2", "xz": "xz", "zstd": "zstd"}


def plain_start(start: bytes, most: int) -> bytes:
    """The first bytes that an object holds, inflated: at most so many, and none where it is compressed as nobody reads.

    Args:
        start: The first bytes of the object as it is stored.
        most: Bytes that are wanted.

    Raises:
        MissingExtraError: A package is not installed that it takes.
    """
    how = compression_of(start)
    if how is None:
        return start[:most]
    return inflated_start(CODECS[_CODECS[how]], memoryview(start), most) if how in _CODECS else b""


def compressed_blocks(data: ObjectBytes, kind: str) -> FoundBlocks | None:
    """The blocks of an object that may be compressed; ``None`` for a plain one.

    Args:
        data: The object.
        kind: What it is, for messages: ``"tar file"``.

    Raises:
        FormatError: It cannot be read in place.
        MissingExtraError: A package is not installed that it takes.
        StorageError: It cannot be read.
    """
    how = compression_of(data.get(0, min(MAGIC_BYTES, data.size)))
    if how is None:
        return None
    if how == "zstd":
        return zstd_blocks(data)
    if how == "gzip":
        return gzip_blocks(data)
    if how not in _CODECS:
        raise not_read(data.url, kind, how)
    return one_block(data, _CODECS[how])


def not_read(url: str, kind: str, how: str) -> UnsupportedError:
    """The error for an object that is compressed in a way that is not read."""
    what = f"the {kind} is compressed with {how}, and is not read in place"
    return UnsupportedError(what, url=url, hint="decompress it first, or pack it")
