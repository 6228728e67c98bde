"""Which pages of a column chunk are shown as they lie, and which as blocks: told once for blocks and for scans."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shardstream.formats.blocks.parquet.block import raw_setting, values_setting
from shardstream.formats.blocks.parquet.columns import OpenPage, count_elements, opened, split_dictionary, texts
from shardstream.formats.blocks.parquet.encodings import wrong
from shardstream.formats.blocks.parquet.pages import DELTA_LENGTH, PLAIN, Page
from shardstream.formats.blocks.parquet.values import BYTES, ENCODINGS, LeafShape
from shardstream.formats.parquet.footer import ColumnChunk
from shardstream.formats.scans.object_bytes import ObjectBytes

TOGETHER = 1 << 20
"""Inflated bytes of neighbouring pages that are one block: each costs a task, and is the smallest read."""
_LISTS_TOGETHER = 4 << 20
_FARTHEST = 32 << 20  # the same of pages that are read with the dictionary before them, and all that is between
LARGEST_PART = 256 << 20
"""Bytes of rows, or of values that are written by what differs, that are put together at once."""


@dataclass(slots=True)
class PagePart:
    """Some pages of a column chunk.

    Attributes:
        pages: They.
        begin: Where they begin, with the dictionary that they need.
        end: Where they end.
        setting: Of their block; empty where they are shown as they lie.
        size: Bytes of the block.
        rewritten: Whether it holds the values alone, one after another.
        open: They without compression, of lists.
    """

    pages: Sequence[Page]
    begin: int
    end: int
    setting: bytes = b""
    size: int = 0
    rewritten: bool = False
    open: list[OpenPage] = field(default_factory=list)


def check_encodings(pages: Sequence[Page], leaf: LeafShape) -> None:
    """Refuse encodings that are of no such values; DecodeError."""
    for page in pages:
        if page.encoding not in ENCODINGS[leaf.physical] and not page.dictionary:
            raise wrong(f"its encoding {page.encoding} is not one of such values")


def parts_of_bytes(data: ObjectBytes, chunk: ColumnChunk, leaf: LeafShape, pages: Sequence[Page]) -> Iterator[PagePart]:
    """The parts of a column of bytes or text, in order; pages whose values are entries of the dictionary are in none.

    Raises:
        DecodeError: A page is damaged.
        MissingExtraError: A package is not installed that it takes.
        StorageError: It cannot be read.
    """
    dictionary, rest = split_dictionary(pages)
    if dictionary is not None:
        yield _shown(chunk, [dictionary])
    run: list[Page] = []
    for page in (page for page in rest if not page.of_dictionary):
        if run and (is_plain(run[0], leaf) != is_plain(page, leaf) or sum(one.size for one in run) >= TOGETHER):
            yield _part(data, chunk, leaf, run)
            run = []
        run.append(page)
    if run:
        yield _part(data, chunk, leaf, run)


def is_plain(page: Page, leaf: LeafShape) -> bool:
    """Whether each value is in one piece of the page."""
    return page.encoding == PLAIN or (leaf.physical == BYTES and page.encoding == DELTA_LENGTH)


def _part(data: ObjectBytes, chunk: ColumnChunk, leaf: LeafShape, run: Sequence[Page]) -> PagePart:
    if is_plain(run[0], leaf):
        return _shown(chunk, run)
    setting = values_setting(chunk.compression, leaf, "", 0)
    found = texts(data.get, run, chunk.compression, leaf, LARGEST_PART)
    size = sum(len(value) for _, values in found for value in values)
    return PagePart(run, run[0].at, run[-1].end, setting, size, rewritten=True)


def _shown(chunk: ColumnChunk, run: Sequence[Page]) -> PagePart:
    if chunk.compression == "none":
        return PagePart(run, run[0].at, run[-1].end)
    return PagePart(run, run[0].at, run[-1].end, raw_setting(chunk.compression), sum(page.size for page in run))


def parts_of_lists(
    data: ObjectBytes, chunk: ColumnChunk, leaf: LeafShape, dtype: np.dtype[Any], pages: Sequence[Page]
) -> Iterator[PagePart]:
    """The parts of a column of lists of numbers: no list is in two of them.

    Raises:
        DecodeError: A page is damaged.
        MissingExtraError: A package is not installed that it takes.
        StorageError: It cannot be read.
    """
    dictionary, rest = split_dictionary(pages)
    run: list[OpenPage] = []
    for page in rest:
        one = opened(data.get, page, chunk.compression, leaf)
        if run and _begins_row(one):
            part = _part_of_lists(data, chunk, leaf, dtype, run, dictionary)
            if part is not None:
                yield part
                run = []
        run.append(one)
    if run:
        last = _part_of_lists(data, chunk, leaf, dtype, run, dictionary, last=True)
        assert last is not None
        yield last


def _begins_row(one: OpenPage) -> bool:
    repetition = one.levels.repetition
    return repetition is not None and bool(len(repetition)) and not repetition[0]


def _part_of_lists(
    data: ObjectBytes,
    chunk: ColumnChunk,
    leaf: LeafShape,
    dtype: np.dtype[Any],
    run: list[OpenPage],
    dictionary: Page | None,
    *,
    last: bool = False,
) -> PagePart | None:
    """These pages, if they are enough for a part."""
    found = [one.page for one in run]
    begin, end = found[0].at, found[-1].end
    if len(run) == 1 and chunk.compression == "none" and _lie_as_they_are(run[0], leaf, dtype):
        return PagePart(found, begin, end, open=run)
    entries = dictionary if any(page.of_dictionary for page in found) else None
    skip = 0 if entries is None else begin - entries.end
    most = _LISTS_TOGETHER if entries is None else min(max(_LISTS_TOGETHER, skip), _FARTHEST)
    if not last and sum(page.values for page in found) * dtype.itemsize < most:
        return None
    setting = values_setting(chunk.compression, leaf, dtype.str, skip)
    if entries is not None:
        begin, found = entries.at, [entries, *found]
    size = dtype.itemsize * sum(count_elements(one, leaf, dtype) for one in run)
    return PagePart(found, begin, end, setting, size, open=run)


def _lie_as_they_are(one: OpenPage, leaf: LeafShape, dtype: np.dtype[Any]) -> bool:
    same = one.page.encoding == PLAIN and dtype.itemsize == leaf.dtype.itemsize and dtype.kind != "b"
    return same and count_elements(one, leaf, dtype) == one.there
