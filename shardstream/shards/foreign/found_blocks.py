"""``FoundBlocks``: what a format says of an object that is compressed; how it is found out for the usual kinds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import xxhash

from shardstream.errors import DecodeError, FormatError
from shardstream.shards.foreign.object_bytes import ObjectBytes
from shardstream.sizes import size as sized
from shardstream.storage.blocks import BlockList, ObjectBlocks
from shardstream.storage.blocks.codecs import CODECS, LARGEST, inflate, inflate_unknown

LARGEST_WHOLE = 256 << 20
"""Bytes that an object which is one block may have, inflated, where nothing but inflating it tells."""
PACK = "decompress it, or pack the data set"
"""What to do with what cannot be read in place."""


class FoundBlocks(NamedTuple):
    """The blocks of an object.

    Attributes:
        blocks: Where they lie.
        first: The first one, inflated, if it had to be inflated to know.
        more: Others of which the same is true, by their numbers.
    """

    blocks: ObjectBlocks
    first: memoryview | None = None
    more: Mapping[int, memoryview] = {}


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
    most = LARGEST_WHOLE if size is None else LARGEST
    if data.size > most + most // 8 or (size or 0) > most:
        raise _too_large(data, codec, most)
    try:
        stored = data.get(0, data.size)
        if size is None:
            found = inflate_unknown(CODECS[codec], stored, LARGEST_WHOLE)
        else:
            found = inflate(CODECS[codec], stored, size)
    except DecodeError as error:
        raise data.damaged(error.what, 0) from error
    if found is None:
        raise _too_large(data, codec, LARGEST_WHOLE)
    out = BlockList()
    out.add(codec, 0, data.size, len(found), xxhash.xxh3_64_intdigest(found))
    return FoundBlocks(out.of(data.size), found)


def _too_large(data: ObjectBytes, codec: str, most: int) -> FormatError:
    what = f"it is compressed with {codec} as a whole, and larger than {sized(most)} when it is inflated"
    return FormatError(what, url=data.url, hint=PACK)
