"""What was read, addressed by object and byte range, so that readers need not know how it came."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import NotFoundError, StorageError
from shardstream.storage.base.store import Request, Store

_EMPTY = memoryview(b"")


class Buffers(ABC):
    """Byte ranges of objects that are at hand. Empty ranges always are."""

    @abstractmethod
    def view(self, path: str, offset: int, length: int | None) -> memoryview:
        """The bytes of one range, without copying; ``None`` for up to the end of the object.

        Raises:
            StorageError: The range was not read, or reaches past the object.
        """

    def views(self, path: str, offsets: NDArray[np.int64], lengths: NDArray[np.int64]) -> list[memoryview]:
        """The bytes of many ranges of one object, without copying."""
        return [self.view(path, *extent) for extent in zip(offsets.tolist(), lengths.tolist(), strict=True)]

    @abstractmethod
    def gather(self, path: str, offsets: NDArray[np.int64], width: int) -> NDArray[np.uint8]:
        """``width`` bytes from each offset, copied: a new array (n, width)."""


class MappedBuffers(Buffers):
    """Everything in a store whose objects are at hand: nothing is read before it is used."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def view(self, path: str, offset: int, length: int | None) -> memoryview:
        return self._store.get(path, offset, length) if length != 0 else _EMPTY

    def views(self, path: str, offsets: NDArray[np.int64], lengths: NDArray[np.int64]) -> list[memoryview]:
        return list(self._store.views(path, offsets, lengths))

    def gather(self, path: str, offsets: NDArray[np.int64], width: int) -> NDArray[np.uint8]:
        if not len(offsets) or not width:
            return np.empty((len(offsets), width), np.uint8)
        if not self._store.mapped:
            return stacked(self._store.views(path, offsets, np.full(len(offsets), width)), width)
        start = int(offsets.min())
        span = self._store.get(path, start, int(offsets.max()) + width - start)
        return gathered(span, offsets - start, width)


class _Part(NamedTuple):
    start: int
    data: memoryview
    to_end: bool  # whether the object is known to end with it

    @property
    def end(self) -> int:
        return self.start + len(self.data)


class FetchedBuffers(Buffers):
    """Ranges that were fetched beforehand; asking for anything else is an error.

    A range that lies in one part is a slice of it; one that lies across parts that follow one another is copied
    together.

    Args:
        parts: The requests and what came of them. Ranges may overlap.
        missing: Objects that are not there: the error that whoever uses one gets.
    """

    def __init__(
        self, parts: Iterable[tuple[Request, memoryview]], missing: Mapping[str, NotFoundError] | None = None
    ) -> None:
        self._missing = missing or {}
        found: dict[str, list[_Part]] = {}
        for request, data in parts:
            found.setdefault(request.path, []).append(_Part(request.offset, data, request.length is None))
        self._parts = {path: _outermost(ranges) for path, ranges in found.items()}
        self._starts = {path: [part.start for part in ranges] for path, ranges in self._parts.items()}
        self._ends = {path: np.array([part.end for part in ranges]) for path, ranges in self._parts.items()}

    def view(self, path: str, offset: int, length: int | None) -> memoryview:
        if length == 0:
            return _EMPTY
        last = bisect_right(self._starts.get(path, ()), offset) - 1
        if last >= 0:
            start, data, to_end = self._parts[path][last]
            if length is None and to_end:
                return data[offset - start :]
            if length is not None and offset + length <= start + len(data):
                return data[offset - start : offset - start + length]
            end = self._end_of(path) if length is None else offset + length
            following = ((part.start, part.data) for part in self._parts[path][last:])
            if end is not None and (whole := across(following, offset, end)) is not None:
                return whole
        if path in self._missing:
            raise self._missing[path]
        wanted = "the rest" if length is None else f"{length} bytes"
        raise StorageError(f"{wanted} of an object was used that had not been planned", url=path, offset=offset)

    def views(self, path: str, offsets: NDArray[np.int64], lengths: NDArray[np.int64]) -> list[memoryview]:
        parts = self._parts.get(path, ())
        if not parts or not len(offsets):
            return super().views(path, offsets, lengths)
        starts = self._starts[path]
        chosen, ends = np.searchsorted(starts, offsets, side="right") - 1, offsets + lengths
        if int(offsets.min()) < starts[0] or (ends > self._ends[path][chosen]).any():
            return super().views(path, offsets, lengths)
        found = []
        for number, offset, end in zip(chosen.tolist(), offsets.tolist(), ends.tolist(), strict=True):
            start, data, _ = parts[number]
            found.append(data[offset - start : end - start])
        return found

    def _end_of(self, path: str) -> int | None:
        """Size of an object, where its end was read."""
        last = self._parts[path][-1]
        return last.end if last.to_end else None

    def gather(self, path: str, offsets: NDArray[np.int64], width: int) -> NDArray[np.uint8]:
        if len(offsets) and width and len(self._parts.get(path, ())) == 1:
            (start, data, _) = self._parts[path][0]
            if int(offsets.min()) >= start and int(offsets.max()) + width <= start + len(data):
                return gathered(data, offsets - start, width)
        return stacked(self.views(path, offsets, np.full(len(offsets), width)), width)


def across(parts: Iterable[tuple[int, memoryview]], begin: int, end: int) -> memoryview | None:
    """Bytes ``[begin, end)``, copied from parts in order, of which the first holds ``begin``.

    Args:
        parts: Where each begins, and its bytes.
        begin: The first byte.
        end: The byte after the last one.

    Returns:
        They; ``None`` where the parts leave a gap.
    """
    pieces = []
    for start, data in parts:
        stop = start + len(data)
        if not start <= begin < stop:
            return None
        pieces.append(data[begin - start : end - start])
        begin = min(stop, end)
        if begin == end:
            return memoryview(b"".join(pieces))
    return None


def joined(pieces: Sequence[memoryview]) -> memoryview:
    """Pieces that follow one another, as one buffer; copied only where there are several."""
    if len(pieces) == 1:
        return pieces[0]
    return memoryview(b"".join(pieces)) if pieces else _EMPTY


def stacked(pieces: Sequence[memoryview], width: int) -> NDArray[np.uint8]:
    """Pieces of ``width`` bytes each, copied: a new array (n, width)."""
    return np.frombuffer(bytearray().join(pieces), np.uint8).reshape(len(pieces), width)


def gathered(data: memoryview, offsets: NDArray[np.int64], width: int) -> NDArray[np.uint8]:
    """``width`` bytes of ``data`` from each offset, copied: a new array (n, width)."""
    # One element begins at every byte, so any set of offsets is one fancy index.
    elements = np.ndarray(len(data) - width + 1, f"V{width}", data, strides=(1,))
    return elements[offsets].view(np.uint8).reshape(len(offsets), width)


def _outermost(ranges: list[_Part]) -> list[_Part]:
    """Without those that lie in another, in order: the last that begins before a byte then reaches furthest."""
    kept: list[_Part] = []
    reach = -1
    for part in sorted(ranges, key=lambda part: (part.start, -len(part.data), not part.to_end)):
        end = part.start + len(part.data)
        if end > reach:
            kept.append(part)
            reach = end
        elif part.to_end:  # so does the range that it lies in
            kept[-1] = kept[-1]._replace(to_end=True)
    return kept
