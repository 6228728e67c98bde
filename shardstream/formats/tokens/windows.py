"""Windows of a stream of tokens: samples by arithmetic, without a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from shardstream.errors import UsageError
from shardstream.formats.scans.object_bytes import ObjectBytes
from shardstream.formats.scans.rows import ScannedRows, numbered_keys, pieces
from shardstream.shards.fields import FieldType
from shardstream.shards.index import Column

TOKENS = "tokens"
"""The field of tokens."""
LENGTH = "L: windows of L + 1 tokens over the stream of all documents, each beginning with the last token of the former"
"""What the option ``length`` means."""


def window_length(options: Mapping[str, str]) -> int | None:
    """The option ``length``, if it is given; UsageError where it is not a positive number."""
    text = options.get("length")
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text)):
        raise UsageError(
            f"length={text!r} is not a number of tokens", hint="give the length of the context: length=1024"
        )
    return int(text)


def windows(data: ObjectBytes, dtype: str, length: int) -> Iterator[ScannedRows]:
    """All windows of an object that is tokens one after another; a shorter rest at its end is left out."""
    kind = FieldType.parse(f"array:{dtype}:{length + 1}")
    width = np.dtype(dtype).itemsize
    for begin, end in pieces(max(0, data.size // width - 1) // length):
        offsets = np.arange(begin, end, dtype=np.uint64) * np.uint64(length * width)
        yield ScannedRows(numbered_keys(data.path, begin, end - begin), (Column(TOKENS, kind, offsets=offsets),))
