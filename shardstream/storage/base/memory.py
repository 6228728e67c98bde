"""Values of many objects at once, by where they lie in memory: to numpy the whole address space is one array."""

from __future__ import annotations

import ctypes
import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardstream.storage.base.buffers import across, stacked
from shardstream.storage.base.counters import counters
from shardstream.storage.base.held import MOST, address_of, copy_ranges

Integers = NDArray[np.int64]

_LOWEST = 4096  # no system maps the first page
_SPACE = 1 << 48
_WIDEST = 1 << 14  # numpy counts the bytes of all elements in 63 bits
_LONGEST = 48  # bits of an offset in an object
_HOT = 512 << 10  # bytes of values that are copied before whoever asked sees them


def gather_at(addresses: Integers, width: int) -> NDArray[np.uint8]:
    """``width`` bytes from each address, copied: a new array (n, width).

    Nothing is checked: the caller holds what lies there, and has compared each address with where it ends.
    """
    if not width or not len(addresses):
        return np.empty((len(addresses), width), np.uint8)
    if width <= _WIDEST:
        return _elements(width)[addresses - _LOWEST].view(np.uint8).reshape(len(addresses), width)
    out, space = np.empty((len(addresses), width), np.uint8), _elements(1).view(np.uint8)
    for row, begin in zip(out, (addresses - _LOWEST).tolist(), strict=True):
        row[:] = space[begin : begin + width]
    return out


@cache
def _elements(width: int) -> NDArray[Any]:
    """The address space as elements of ``width`` bytes, one of which begins at every byte. Looking touches nothing."""
    space = memoryview((ctypes.c_ubyte * _SPACE).from_address(_LOWEST))
    return np.ndarray(_SPACE - width + 1, f"V{width}", space, strides=(1,))


class MemoryBytes(ABC):
    """Bytes of many objects, which are known by small numbers."""

    @abstractmethod
    def views(self, objects: Integers, begins: Integers, ends: Integers) -> list[memoryview | None] | None:
        """Bytes ``[begin, end)`` of each object; ``None`` where some are not here."""

    @abstractmethod
    def gather(self, objects: Integers, begins: Integers, width: int) -> NDArray[np.uint8] | None:
        """``width`` bytes from each offset, copied: a new array (n, width); ``None`` for the same reason."""

    def copy(
        self, objects: Integers, begins: Integers, ends: Integers, out: NDArray[np.uint8], starts: Integers
    ) -> Iterator[Sequence[int]]:
        """Copy bytes ``[begin, end)`` of each object to ``out``, from its ``start`` on; not all if some are not here.

        Yields:
            Which ones were just copied: few at a time, so that a processor's cache still holds them.
        """
        views = self.views(objects, begins, ends) or []
        whole = memoryview(out)  # type: ignore[arg-type]  # numpy arrays are buffers; the stubs of 3.11 cannot say so
        places = zip(starts.tolist(), (starts + (ends - begins)).tolist(), views, strict=False)
        together = max(1, len(views) * _HOT // max(len(out), 1))
        for first in range(0, len(views), together):
            for start, end, view in itertools.islice(places, together):
                whole[start:end] = view  # type: ignore[assignment]  # views of whole objects: none lacks
            yield range(first, min(first + together, len(views)))


class WholeObjects(MemoryBytes):
    """Objects of which all is here, such as mapped files. Nobody asks for what is not: that is not checked.

    Args:
        most: How many there are at most.
    """

    def __init__(self, most: int) -> None:
        self._addresses = np.zeros(most, np.int64)
        self._data: list[Any] = [None] * most  # keeps what is known by its address

    def put(self, number: int, data: memoryview | None) -> None:
        """All bytes of an object; ``None`` for one that is gone."""
        self._data[number] = data
        self._addresses[number] = address_of(data) if data else 0

    def whole(self, number: int) -> memoryview | None:
        """All bytes of an object."""
        data: memoryview | None = self._data[number]
        return data

    def views(self, objects: Integers, begins: Integers, ends: Integers) -> list[memoryview | None] | None:
        data, ranges = self._data, zip(objects.tolist(), begins.tolist(), ends.tolist(), strict=True)
        return [data[number][begin:end] for number, begin, end in ranges]

    def gather(self, objects: Integers, begins: Integers, width: int) -> NDArray[np.uint8] | None:
        return gather_at(self._addresses[objects] + begins, width)


class ObjectParts(MemoryBytes):
    """Parts of objects, as they were fetched; they may overlap. Ranges across parts that follow one another are copied.

    Args:
        objects: The number of each part's object.
        begins: Where it begins there.
        data: Its bytes.
    """

    def __init__(self, objects: Integers, begins: Sequence[int], data: Sequence[memoryview]) -> None:
        keys = objects << _LONGEST | np.array(begins, np.int64)
        ends = keys + np.array([len(one) for one in data], np.int64)
        order = np.argsort(keys, kind="stable")
        # Without those that lie in another: the last that begins before a byte then reaches furthest.
        order = order[np.diff(np.maximum.accumulate(ends[order]), prepend=-1) > 0]
        self._keys, self._ends = keys[order], ends[order]
        self._data: list[Any] = [data[number] for number in order.tolist()]

    def views(self, objects: Integers, begins: Integers, ends: Integers) -> list[memoryview | None] | None:
        if not len(self._keys):
            return None
        parts, starts, apart = self._find(objects, begins, ends - begins)
        ranges = zip(parts.tolist(), starts.tolist(), (starts + (ends - begins)).tolist(), strict=True)
        found: list[memoryview | None] = [self._data[part][start:end] for part, start, end in ranges]
        for row in apart.tolist():
            part, begin = int(parts[row]), int(self._keys[parts[row]] + starts[row])
            following = zip(self._keys[part:].tolist(), self._data[part:], strict=True)
            whole = across(following, begin, begin + int(ends[row] - begins[row]))
            if whole is None:
                return None
            found[row] = whole
        return found

    def gather(self, objects: Integers, begins: Integers, width: int) -> NDArray[np.uint8] | None:
        if not len(self._keys):
            return None
        parts, starts, apart = self._find(objects, begins, width)
        if len(apart):
            found = self.views(objects, begins, begins + width)
            return None if found is None else stacked([one for one in found if one is not None], width)
        addresses = np.array([address_of(one) for one in self._data], np.int64)
        return gather_at(addresses[parts] + starts, width)

    def _find(
        self, objects: Integers, begins: Integers, lengths: Integers | int
    ) -> tuple[Integers, Integers, Integers]:
        """In which part each range begins, at which byte of it, and which ranges are not all in that part."""
        wanted = objects << _LONGEST | begins
        parts = np.maximum(np.searchsorted(self._keys, wanted, side="right") - 1, 0)
        outside = (wanted < self._keys[parts]) | (wanted + lengths > self._ends[parts])
        apart = np.flatnonzero(outside & (np.asarray(lengths) > 0))  # empty values are everywhere
        return parts, wanted - self._keys[parts], apart


class HeldObjects(MemoryBytes):
    """Values of objects that are held, and of others.

    Args:
        addresses: Where each object begins: (objects,); 0 for the others.
        others: All that is not held.
    """

    def __init__(self, addresses: Integers, others: MemoryBytes) -> None:
        self._addresses = addresses
        self._others = others

    def views(self, objects: Integers, begins: Integers, ends: Integers) -> list[memoryview | None] | None:
        here = self._addresses[objects] > 0
        stops = np.cumsum(np.where(here, ends - begins, 0))
        memory = np.empty(int(stops[-1]) if len(stops) else 0, np.uint8)
        rest, starts = np.flatnonzero(~here), stops - np.where(here, ends - begins, 0)
        copied = sum(map(len, self._copy(np.flatnonzero(here), objects, begins, ends, memory, starts)))
        others = self._others.views(objects[rest], begins[rest], ends[rest]) if len(rest) else []
        if copied + len(rest) < len(objects) or others is None:
            return None
        whole = memoryview(memory).toreadonly()  # type: ignore[arg-type]  # arrays are buffers
        found: list[memoryview | None] = [
            whole[start:stop] for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)
        ]
        for row, view in zip(rest.tolist(), others, strict=True):
            found[row] = view
        return found

    def gather(self, objects: Integers, begins: Integers, width: int) -> NDArray[np.uint8] | None:
        out = np.empty((len(objects), width), np.uint8)
        starts = np.arange(len(objects)) * width
        copied = sum(map(len, self.copy(objects, begins, begins + width, out.reshape(-1), starts)))
        return out if copied == len(objects) else None

    def copy(
        self, objects: Integers, begins: Integers, ends: Integers, out: NDArray[np.uint8], starts: Integers
    ) -> Iterator[Sequence[int]]:
        here = self._addresses[objects] > 0
        rest = np.flatnonzero(~here)
        if len(rest):
            for some in self._others.copy(objects[rest], begins[rest], ends[rest], out, starts[rest]):
                yield rest[some].tolist()
        yield from self._copy(np.flatnonzero(here), objects, begins, ends, out, starts)

    def _copy(
        self,
        rows: Integers,
        objects: Integers,
        begins: Integers,
        ends: Integers,
        out: NDArray[np.uint8],
        starts: Integers,
    ) -> Iterator[list[int]]:
        """The same for these of the ranges, all of them of objects that are held; no further than one that has gone."""
        lengths = (ends - begins)[rows]
        target, source = np.empty((len(rows), 2), np.uint64), np.empty((len(rows), 2), np.uint64)
        target[:, 0], target[:, 1] = starts[rows] + address_of(out), lengths
        source[:, 0], source[:, 1] = self._addresses[objects[rows]] + begins[rows], lengths
        stops = np.cumsum(lengths)
        ends_call = (np.diff(stops // _HOT) > 0) | (np.diff(np.arange(len(rows)) // MOST) > 0)
        bounds = [0, *(np.flatnonzero(ends_call) + 1).tolist(), len(rows)]
        done = 0
        for first, last in itertools.pairwise(bounds):
            total = int(stops[last - 1]) - done if last else 0
            if not copy_ranges(target[first:last], source[first:last], total):
                return
            done += total
            yield rows[first:last].tolist()
        counters().add("cache_hit_bytes", done)
