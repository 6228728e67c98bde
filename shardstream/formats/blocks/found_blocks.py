"""``FoundBlocks``: what a format says of an object that is compressed; how it is found out for the usual kinds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import xxhash

from shardstream.errors import DecodeError, FormatError, UnsupportedError
from shardstream.formats.blocks import BlockList, ObjectBlocks
from shardstream.formats.blocks.codecs import CODECS, LARGEST, inflate, inflate_unknown
from shardstream.formats.scans.object_bytes import ObjectBytes
from shardstream.sizes import size as sized

LARGEST_WHOLE = 256 << 20
"""Bytes that an object which is one block may have, inflated, where nothing but inflating it tells."""
OR_PACK = "or pack the data set"
PACK = f"decompress it, {OR_PACK}"
"""What to do with what cannot be read in place."""


class FoundBlocks(NamedTuple):
    """The blocks of an object.

    Attributes:
        blocks: Where they lie.
        first: The first one, inflated, if it had to be inflated to know.
        more: Others of which the same is true, by their numbers.
        damage: What is lost behind them, of an object that is cut off.
    """

    blocks: ObjectBlocks
    first: memoryview | None = None
    more: Mapping[int, memoryview] = {}
    damage: FormatError | None = None


def one_block(data: ObjectBytes, codec: str, size: int | None = None) -> FoundBlocks:
    """An object that is compressed as a whole: one block, which is inflated now.

    Args:
        data: The object.
        codec: Name of the codec.
        size: Bytes that it inflates to, where something says so.

    Raises:
        FormatError: It does not inflate, to as many bytes; or is too large to be read in place.
        MissingExtraError: A package is not installed that it takes.
        StorageError: It cannot be read.
    """
    if size is None:
        found = small_block(data, codec, LARGEST_WHOLE)
        if found is None:
            raise too_large(data, codec, LARGEST_WHOLE)
        return found
    if data.size > LARGEST + LARGEST // 8 or size > LARGEST:
        raise too_large(data, codec, LARGEST)
    try:
        return _block(data, codec, inflate(CODECS[codec], data.get(0, data.size), size))
    except DecodeError as error:
        raise data.damaged(error.what, 0) from error


def small_block(data: ObjectBytes, codec: str, most: int) -> FoundBlocks | None:
    """The same of an object of which nothing says how large it is; ``None`` where that is more than ``most``."""
    if data.size > most + most // 8:
        return None
    try:
        found = inflate_unknown(CODECS[codec], data.get(0, data.size), most)
    except DecodeError as error:
        raise data.damaged(error.what, 0) from error
    return None if found is None else _block(data, codec, found)


def _block(data: ObjectBytes, codec: str, inflated: memoryview) -> FoundBlocks:
    out = BlockList()
    out.add(codec, 0, data.size, len(inflated), xxhash.xxh3_64_intdigest(inflated))
    return FoundBlocks(out.of(data.size), inflated)


def too_large(data: ObjectBytes, codec: str, most: int, *, hint: str = PACK) -> UnsupportedError:
    """The error for an object that is compressed as a whole, and inflates to more than is read."""
    what = f"it is compressed with {codec} as a whole, and larger than {sized(most)} when it is inflated"
    return UnsupportedError(what, url=data.url, hint=hint)
