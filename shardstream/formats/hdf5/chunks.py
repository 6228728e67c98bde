"""Blocks of a data set that is not stored as its samples are read: filtered, in chunks of parts of samples, swapped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardstream.formats.blocks import BlockList
from shardstream.formats.blocks.codecs import LARGEST
from shardstream.formats.blocks.hdf5_chunks import SWAP, Chunk, ChunkLayout
from shardstream.formats.hdf5.file import REPACK, H5Dataset

_BLOCK = 128 << 10  # bytes of rows that small chunks are put together to
_APART = 4  # times as many bytes may be read as chunks take that belong together
_NEAR = 1 << 20  # and so many more
_NOTHING = 8  # bytes of a block of which nothing is stored: those with which each file begins


class BlockPlace(NamedTuple):
    """A block: rows from ``begin`` to ``end``, and what of the file it is made of, how."""

    begin: int
    end: int
    offset: int
    length: int
    setting: bytes


def add_blocks(dataset: H5Dataset, out: BlockList) -> None:
    """The blocks of a data set, in order.

    Raises:
        FormatError: They would be too large, or their chunks lie too far apart.
    """
    for one in block_places(dataset):
        size = (one.end - one.begin) * dataset.width
        out.add("hdf5", one.offset, one.length, size, setting=one.setting)


def block_places(dataset: H5Dataset) -> Iterator[BlockPlace]:
    """The same; raises the same."""
    if not dataset.width or not dataset.samples:
        return
    if dataset.chunk:
        yield from _of_chunks(dataset)
    else:
        yield from _of_one_piece(dataset)


def _is_swapped(dataset: H5Dataset) -> bool:
    """Whether it holds big-endian numbers, of which blocks are little-endian."""
    return dataset.type["class"] == "number" and str(dataset.type["dtype"]).startswith(">")


def _layout(dataset: H5Dataset, chunk: tuple[int, ...], shape: tuple[int, ...]) -> ChunkLayout:
    if _is_swapped(dataset):
        steps = ((SWAP, dataset.item), *dataset.steps)
        return ChunkLayout(steps, dataset.item, chunk, shape, dataset.fill[::-1])
    return ChunkLayout(dataset.steps, dataset.item, chunk, shape, dataset.fill)


def _of_one_piece(dataset: H5Dataset) -> Iterator[BlockPlace]:
    """Rows of a data set that lies in one piece, or nowhere, as many as make a block."""
    rows = max(1, _BLOCK // dataset.width)
    _check_size(dataset, rows)
    for begin in range(0, dataset.samples, rows):
        end = min(begin + rows, dataset.samples)
        shape = (end - begin, *dataset.shape[1:])
        layout = _layout(dataset, shape, shape)
        if dataset.offset is None:
            yield BlockPlace(begin, end, 0, _NOTHING, layout.setting((Chunk(0, 0),)))
        else:
            place = dataset.offset + begin * dataset.width
            yield BlockPlace(begin, end, place, (end - begin) * dataset.width, layout.setting())


def _of_chunks(dataset: H5Dataset) -> Iterator[BlockPlace]:
    across, high = dataset.across, dataset.chunk[0]
    _check_size(dataset, min(high, dataset.samples))
    slabs = -(-dataset.samples // high)
    together = max(1, _BLOCK // (high * dataset.width))
    for first in range(0, slabs, together):
        last = min(first + together, slabs)
        near = _is_near(dataset.chunks[first * across : last * across])
        for low in range(first, last, last - first if near else 1):
            up = last if near else low + 1
            begin, end = low * high, min(up * high, dataset.samples)
            shape = (end - begin, *dataset.shape[1:])
            layout = _layout(dataset, dataset.chunk, shape)
            yield _block(dataset, layout, begin, dataset.chunks[low * across : up * across])


def _block(dataset: H5Dataset, layout: ChunkLayout, begin: int, chunks: NDArray[np.uint64]) -> BlockPlace:
    end = begin + layout.shape[0]
    written = chunks[chunks[:, 1] > 0]
    if not len(written):
        return BlockPlace(begin, end, 0, _NOTHING, layout.setting((Chunk(0, 0),) * len(chunks)))
    offset = int(written[:, 0].min())
    length = int((written[:, 0] + written[:, 1]).max()) - offset
    if length > LARGEST or not _is_near(chunks):
        dataset.refuse(
            f"keeps parts of samples far apart: {len(written)} chunks within {length} bytes, at sample {begin}",
            hint=_WHOLE_SAMPLES,
            at=offset,
        )
    if len(chunks) == 1 and not chunks[0, 2]:
        return BlockPlace(begin, end, offset, length, layout.setting())
    shifted = int(_is_swapped(dataset))  # a step that chunks are never written without stands first then
    places = tuple(Chunk(at - offset if size else 0, size, mask << shifted) for at, size, mask in chunks.tolist())
    return BlockPlace(begin, end, offset, length, layout.setting(places))


_WHOLE_SAMPLES = "write it again in chunks of whole samples: `h5repack -l NAME:CHUNK=1xHEIGHTxWIDTH OLD NEW`"


def _is_near(chunks: NDArray[np.uint64]) -> bool:
    """Whether chunks can be read at once, for what lies between them."""
    written = chunks[chunks[:, 1] > 0]
    if len(written) < 2:
        return True
    span = int((written[:, 0] + written[:, 1]).max()) - int(written[:, 0].min())
    return span <= _APART * int(written[:, 1].sum()) + _NEAR


def _check_size(dataset: H5Dataset, rows: int) -> None:
    if rows * dataset.width > LARGEST:
        dataset.refuse(
            f"has samples that are stored {rows} at a time, {rows * dataset.width} bytes: more than {LARGEST}",
            hint=_WHOLE_SAMPLES,
        )
    if dataset.chunk and np.prod(dataset.chunk, dtype=object) * dataset.item > LARGEST:
        dataset.refuse(f"has chunks of more than {LARGEST} bytes", hint=REPACK)


def row_places(dataset: H5Dataset, begin: int, end: int) -> NDArray[np.uint64]:
    """Where samples begin in the file, of a data set that is stored as it is read."""
    rows = np.arange(begin, end, dtype=np.uint64)
    if not dataset.chunk:
        assert dataset.offset is not None
        return rows * np.uint64(dataset.width) + np.uint64(dataset.offset)
    high = np.uint64(dataset.chunk[0])
    places: NDArray[np.uint64] = dataset.chunks[rows // high, 0] + rows % high * np.uint64(dataset.width)
    return places


def is_plain(dataset: H5Dataset) -> bool:
    """Whether samples lie in the file as they are read, each in one piece."""
    if dataset.steps or _is_swapped(dataset) or (not dataset.chunk and dataset.offset is None):
        return False
    if not dataset.chunk:
        return True
    whole = dataset.across == 1 and dataset.chunk[1:] == dataset.shape[1:]
    return whole and bool((dataset.chunks[:, 1] == dataset.chunk[0] * dataset.width).all())
