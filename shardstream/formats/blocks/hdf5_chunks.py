"""Chunks of an HDF5 data set, as blocks: filters are undone, and chunks put together to rows.

Source: the HDF5 file format specification, version 3.0, https://docs.hdfgroup.org/hdf5/latest/_f_m_t3.html.
"""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import DecodeError
from shardstream.extras import require

DEFLATE, SHUFFLE, FLETCHER32, LZF, SWAP = 1, 2, 3, 4, 5
"""Steps of a pipeline, as settings name them: filters of HDF5, and the other order of bytes."""
_SIZED = (SHUFFLE, SWAP)  # steps that have the size of an element
_MOST = 64  # steps, and axes
_CHECKSUM = 4  # bytes that fletcher32 adds
_WORDS = 1 << 16  # of which a weighted sum fits into 64 bits
_MODULUS = 65535
_LARGEST = 1 << 30
_HINT = "the object is damaged, or was replaced; fetch or write it again"


class Chunk(NamedTuple):
    """Where a chunk is stored: from which byte of the block on, how many; and which steps it was written without.

    One of no bytes was never written: it holds the fill value.
    """

    offset: int
    length: int
    mask: int = 0


@dataclass(frozen=True, slots=True)
class ChunkLayout:
    """What chunks of a block have in common.

    Attributes:
        steps: What was done to each when it was written, in this order, with the size of an element or 0.
        item: Bytes of an element.
        chunk: Elements of a chunk along each axis.
        shape: Elements of the block along each axis; the last chunks may reach beyond.
        fill: The element that stands where nothing was written; empty for zeros.
    """

    steps: tuple[tuple[int, int], ...]
    item: int
    chunk: tuple[int, ...]
    shape: tuple[int, ...]
    fill: bytes = b""

    @property
    def grid(self) -> tuple[int, ...]:
        """Chunks along each axis."""
        return tuple(-(-size // part) for size, part in zip(self.shape, self.chunk, strict=True))

    @property
    def chunk_bytes(self) -> int:
        """Bytes of a chunk without filters."""
        return math.prod(self.chunk) * self.item

    def setting(self, chunks: tuple[Chunk, ...] = ()) -> bytes:
        """It as the setting of a codec, with the chunks in order; without any the block is one chunk as stored."""
        numbers = [len(self.steps)]
        for step, size in self.steps:
            numbers += [step, size] if step in _SIZED else [step]
        numbers += [self.item, len(self.chunk), *self.chunk, *self.shape, len(self.fill), *self.fill, len(chunks)]
        end = 0
        for chunk in chunks:
            away = chunk.offset - end
            numbers += [2 * away if away >= 0 else -2 * away - 1, chunk.length, chunk.mask]
            end = chunk.offset + chunk.length
        return b"".join(map(_varint, numbers))


def chunk_bytes(setting: bytes) -> int:
    """Bytes of a chunk without filters, which may have more rows than the block."""
    return _parsed(setting)[0].chunk_bytes


def chunked(data: memoryview, size: int, setting: bytes) -> memoryview:
    """The rows of a block, of the bytes of its chunks.

    Raises:
        DecodeError: They are damaged, or the setting does not go with them.
        MissingExtraError: A package is not installed that it takes.
    """
    layout, chunks = _parsed(setting)
    if math.prod(layout.shape) * layout.item != size or layout.chunk_bytes > _LARGEST:
        raise DecodeError(f"a block of {size} bytes is not of shape {list(layout.shape)}", hint=_HINT)
    chunks = chunks or (Chunk(0, len(data)),)
    if len(chunks) != math.prod(layout.grid):
        raise DecodeError(f"a block of {math.prod(layout.grid)} chunks says where {len(chunks)} lie", hint=_HINT)
    if len(chunks) == 1 and layout.chunk == layout.shape and chunks[0].length:
        return _unfiltered(data, chunks[0], layout).data.toreadonly()
    out = np.empty((*layout.shape, layout.item), np.uint8)
    for corner, chunk in zip(_corners(layout), chunks, strict=True):
        place = tuple(slice(at, at + part) for at, part in zip(corner, layout.chunk, strict=True))
        target = out[place]
        if not chunk.length:
            target[...] = np.frombuffer(layout.fill or bytes(layout.item), np.uint8)
            continue
        found = _unfiltered(data, chunk, layout).reshape(*layout.chunk, layout.item)
        target[...] = found[tuple(slice(0, part) for part in target.shape[:-1])]
    return out.reshape(-1).data.toreadonly()


def _corners(layout: ChunkLayout) -> Iterator[tuple[int, ...]]:
    """Where each chunk begins, in order."""
    axes = (range(0, size, part) for size, part in zip(layout.shape, layout.chunk, strict=True))
    return itertools.product(*axes)


def _unfiltered(data: memoryview, chunk: Chunk, layout: ChunkLayout) -> NDArray[np.uint8]:
    """The bytes of a chunk, its filters undone in turn."""
    if not 0 <= chunk.offset <= chunk.offset + chunk.length <= len(data):
        raise DecodeError(f"a chunk of {chunk.length} bytes lies outside of its block of {len(data)}", hint=_HINT)
    found = data[chunk.offset : chunk.offset + chunk.length]
    most = layout.chunk_bytes + _CHECKSUM * len(layout.steps)
    for number, (step, item) in reversed([*enumerate(layout.steps)]):
        if step == SWAP or not chunk.mask >> number & 1:
            found = _undone(step, found, item, most)
    if len(found) != layout.chunk_bytes:
        raise DecodeError(f"a chunk has {len(found)} bytes, not {layout.chunk_bytes}", hint=_HINT)
    return np.frombuffer(found, np.uint8)


def _undone(step: int, data: memoryview, item: int, most: int) -> memoryview:
    if step == DEFLATE:
        return _deflated(data, most)
    if step == SHUFFLE:
        return _unshuffled(data, item)
    if step == FLETCHER32:
        return _compared(data)
    if step == LZF:
        return _lzf(data, most)
    if not item or len(data) % item:
        raise DecodeError(f"{len(data)} bytes are not elements of {item} bytes", hint=_HINT)
    return np.ascontiguousarray(np.frombuffer(data, np.uint8).reshape(-1, item)[:, ::-1]).reshape(-1).data


def _deflated(data: memoryview, most: int) -> memoryview:
    stream = zlib.decompressobj()
    try:
        found = stream.decompress(data, most + 1)
    except zlib.error as error:
        raise DecodeError(f"a chunk does not inflate: {error}", hint=_HINT) from error
    if not stream.eof:
        raise DecodeError("a chunk is cut off, or inflates to more than it holds", hint=_HINT)
    return memoryview(found)


def _unshuffled(data: memoryview, item: int) -> memoryview:
    """All first bytes of elements stand first, then all second ones; what is no whole element follows as it is."""
    count = len(data) // item if item else 0
    if item <= 1 or count <= 1:
        return data
    stored, out = np.frombuffer(data, np.uint8), np.empty(len(data), np.uint8)
    whole = count * item
    out[:whole].reshape(count, item)[...] = stored[:whole].reshape(item, count).T
    out[whole:] = stored[whole:]
    return out.data


def _compared(data: memoryview) -> memoryview:
    if len(data) < _CHECKSUM:
        raise DecodeError(f"a chunk of {len(data)} bytes has no checksum", hint=_HINT)
    body, stored = data[:-_CHECKSUM], int.from_bytes(data[-_CHECKSUM:], "little")
    first, second = _fletcher32(np.frombuffer(body, np.uint8))
    if (first, second) != ((stored & 0xFFFF) % _MODULUS, (stored >> 16) % _MODULUS):
        raise DecodeError("a chunk differs from its checksum (fletcher32)", hint=_HINT)
    return body


def _fletcher32(data: NDArray[np.uint8]) -> tuple[int, int]:
    """The two sums over words of 16 bits, big-endian, modulo 65535."""
    whole = len(data) // 2
    words = data[: 2 * whole].view(">u2")
    first = second = 0
    for start in range(0, whole, _WORDS):
        part = words[start : start + _WORDS].astype(np.uint64)
        weights = np.arange(len(part), 0, -1, dtype=np.uint64)
        second = (second + len(part) * first + int(part @ weights)) % _MODULUS
        first = (first + int(part.sum())) % _MODULUS
    if len(data) % 2:
        first = (first + (int(data[-1]) << 8)) % _MODULUS
        second = (second + first) % _MODULUS
    return first, second


def _lzf(data: memoryview, most: int) -> memoryview:
    require("numba", extra="hdf5", purpose="to read what is compressed with LZF")
    from shardstream.formats.blocks.lzf import inflate_lzf

    out = np.empty(most, np.uint8)
    written = inflate_lzf(np.frombuffer(data, np.uint8), out)
    if written < 0:
        raise DecodeError("a chunk does not inflate (LZF)", hint=_HINT)
    return out.data[:written]


# ---------------------------------------------------------------------------------------------------------- settings


def _varint(number: int) -> bytes:
    """Seven bits a byte, the lowest first; the eighth says that more follow."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _numbers(setting: bytes) -> Iterator[int]:
    number = shift = 0
    for byte in setting:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            yield number
            number = shift = 0
        elif shift > 63:
            raise ValueError("a number of more than 64 bits")


@lru_cache(maxsize=256)
def _parsed(setting: bytes) -> tuple[ChunkLayout, tuple[Chunk, ...]]:
    numbers = _numbers(setting)
    try:
        steps = tuple(_steps(numbers))
        item, axes = next(numbers), _counted(numbers)
        chunk, shape = _taken(numbers, axes), _taken(numbers, axes)
        fill = bytes(_taken(numbers, next(numbers)))
        if not item or not axes or not all(chunk) or len(fill) not in (0, item):
            raise ValueError("sizes")
        chunks, end = [], 0
        for _ in range(next(numbers)):
            away, length, mask = next(numbers), next(numbers), next(numbers)
            offset = end + (-(away + 1) // 2 if away & 1 else away // 2)
            chunks.append(Chunk(offset, length, mask))
            end = offset + length
        return ChunkLayout(steps, item, chunk, shape, fill), tuple(chunks)
    except (StopIteration, RuntimeError, ValueError) as error:
        raise DecodeError("the setting of a block of chunks cannot be read", hint="index the data again") from error


def _steps(numbers: Iterator[int]) -> Iterator[tuple[int, int]]:
    for _ in range(_counted(numbers)):
        step = next(numbers)
        if step not in (DEFLATE, SHUFFLE, FLETCHER32, LZF, SWAP):
            raise ValueError("a step that is not known")
        yield step, next(numbers) if step in _SIZED else 0


def _counted(numbers: Iterator[int]) -> int:
    found = next(numbers)
    if found > _MOST:
        raise ValueError("more than there can be")
    return found


def _taken(numbers: Iterator[int], count: int) -> tuple[int, ...]:
    found = tuple(itertools.islice(numbers, count))
    if len(found) != count:
        raise ValueError("cut off")
    return found
