"""``RowGatherer``: stored values of many shards at once, where these lie in memory: mapped files, or parts read ahead.

A batch takes a few samples from each of some dozens of shards, so going from shard to shard costs more than small
values themselves. Here everything that is needed of an open shard is a number in a table: where its columns begin, in
the index and in the object; what was read ahead is a table of parts. The samples of a step are then a handful of numpy
operations over all shards, and with fixed-size fields nothing of Python runs for a sample but the call of its checksum.

What is out of the ordinary is left to `RowReader`, which goes shard by shard and explains what is wrong:
bytes that are not here, samples that lack a field, compressed values and those that are too large, damage.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shardstream.dataset.drawn_rows import DrawnRows
from shardstream.dataset.indexes import OPEN_INDEXES, OpenShards
from shardstream.dataset.read_ahead import Held, ReadAhead
from shardstream.dataset.shard import OpenShard
from shardstream.dataset.shared import shard_ids, source_and_shard
from shardstream.dataset.step import groups
from shardstream.errors import ShardStreamError
from shardstream.shards.fields import FieldKind, FieldType
from shardstream.shards.framing import FieldValues
from shardstream.shards.index import Column
from shardstream.shards.layout import checksums
from shardstream.storage.base.held import HeldObject, address_of
from shardstream.storage.base.memory import HeldObjects, MemoryBytes, ObjectParts, WholeObjects, gather_at

Integers = NDArray[np.int64]
Gathered: TypeAlias = "tuple[list[str] | Callable[[], list[str]], list[str], list[int], dict[str, FieldValues]]"
"""Keys, or what finds them, names of shards, rows in these, and values by field."""
Memory: TypeAlias = Callable[[int], NDArray[np.uint8]]
"""Gives so many bytes to copy values to: uint8 (n,)."""


class RowGatherer:
    """Reads fields of samples over all their shards at once.

    Args:
        shards: The open shards.
        types: The fields to read.
        verify: Compare checksums.
        ahead: What is read before it is asked for; ``None`` where shards are mapped.
    """

    def __init__(
        self,
        shards: OpenShards,
        types: dict[str, FieldType],
        *,
        verify: bool,
        ahead: ReadAhead | None = None,
    ) -> None:
        self._open = shards
        self._ahead = ahead
        # What keeps the memory of a shard, which all else here knows by its address only.
        self._shards: list[OpenShard | None] = [None] * OPEN_INDEXES
        self._wholes = WholeObjects(OPEN_INDEXES)
        self._held: list[HeldObject | None] = [None] * OPEN_INDEXES  # of shards that a cache has
        self._mapped = np.zeros(OPEN_INDEXES, np.bool_)
        self._columns = {name: _COLUMNS[kind.kind](kind, verify=verify) for name, kind in types.items()}
        self._needs_bytes = any(kind.kind != "scalar" for kind in types.values())
        self._keys = _Keys(self._shards)
        self._known = np.empty(0, np.int64)  # of the known shards, sorted
        self._slots = np.empty(0, np.int64)  # where each of these stands in what follows
        self._free = list(range(OPEN_INDEXES))
        self._names = np.empty(OPEN_INDEXES, object)
        self._fits = np.zeros(OPEN_INDEXES, np.bool_)
        self._samples = np.zeros(OPEN_INDEXES, np.int64)
        self._shift = np.zeros(OPEN_INDEXES, np.int64)
        self._chosen = _Numbers()  # rows of views that do not just begin later
        self._drawn = np.zeros(OPEN_INDEXES, np.bool_)
        self._any_drawn = False  # there ever was one
        self._used = np.zeros(OPEN_INDEXES, np.int64)
        self._reads = 0

    def read(
        self, shard_ids: Integers, rows: Integers, into: Mapping[str, Memory] = MappingProxyType({})
    ) -> Gathered | None:
        """What a `RowBatch` of rows of shards is made of, ``None`` where they have to be read shard by shard.

        Args:
            shard_ids: The shards, numbers that `shared.shard_ids` made: (n,).
            rows: Rows of the view in them: (n,).
            into: By field, of payloads that are to be copied to one memory, what gives it.
        """
        slots = self._find(shard_ids)
        if slots is None:
            return None
        stored = rows + self._shift[slots]
        if self._chosen.any:
            picked = np.flatnonzero(self._chosen.widths[slots])
            stored[picked] = self._chosen.take(slots[picked], rows[picked])
        if self._any_drawn:
            self._put_drawn(slots, rows, stored)
        if (stored.view(np.uint64) >= self._samples[slots].view(np.uint64)).any():  # negative ones are large then
            return None
        data = self._wholes if self._ahead is None else self._data(self._ahead, slots)
        if data is None:
            return None
        columns = {}
        for name, column in self._columns.items():
            values = column.read(slots, stored, data, into.get(name))
            if values is None:
                self._held = [None] * OPEN_INDEXES  # a file may have been cut
                return None
            columns[name] = values
        keys = self._keys.taken(slots, stored)
        return None if keys is None else (keys, self._names[slots].tolist(), stored.tolist(), columns)

    @property
    def opened(self) -> dict[tuple[int, int], OpenShard]:
        """The shards that are read from, by source and number."""
        known = zip(self._known.tolist(), self._slots.tolist(), strict=True)
        return {
            source_and_shard(shard_id): opened
            for shard_id, slot in known
            if self._fits[slot] and (opened := self._shards[slot]) is not None
        }

    def leave(self, source: int, shard: int) -> None:
        """Read a shard no more: it is read from another place."""
        self._fits[self._slots[self._known == shard_ids(np.array([source]), np.array([shard]))]] = False

    def _data(self, ahead: ReadAhead, slots: Integers) -> MemoryBytes | None:
        """Bytes of these shards; ``None`` where some were not read ahead."""
        mapped = self._mapped[slots]
        if not self._needs_bytes or mapped.all():
            return self._wholes
        held = ahead.held()
        if held is None:
            return None
        parts = self._parts(held, np.unique(slots[mapped]).tolist()) if held.data else None
        if not held.cached:
            return parts
        addresses = self._addresses(held.cached)
        if addresses is None or (parts is None and not (mapped | (addresses[slots] > 0)).all()):
            return None
        return HeldObjects(addresses, parts or self._wholes)

    def _parts(self, held: Held, mapped: Sequence[int]) -> ObjectParts:
        """What was read ahead, and all of the shards that are mapped."""
        known, found = self._among(held.shards)
        wholes = [one for one in map(self._wholes.whole, mapped) if one is not None]
        begins = [*itertools.compress(held.begins, known), *(0 for _ in wholes)]
        data = [*itertools.compress(held.data, known), *wholes]
        return ObjectParts(np.concatenate([found, np.array(mapped, np.int64)]), begins, data)

    def _addresses(self, shard_ids: Sequence[int]) -> Integers | None:
        """Where the objects of these shards begin, of which a cache has all; ``None`` where it does not any more."""
        addresses = np.zeros(OPEN_INDEXES, np.int64)
        for slot in self._among(shard_ids)[1].tolist():
            held, opened = self._held[slot], self._shards[slot]
            if (held is None or not held.sound()) and opened is not None:
                held = self._held[slot] = opened.shard.store.held(opened.shard.name)
            if held is None or opened is None or held.size < opened.index.end:
                return None
            addresses[slot] = held.address
        return addresses

    def _among(self, shard_ids: Sequence[int]) -> tuple[list[bool], Integers]:
        """Which of these shards are known, others being those that other readers read, and where these stand."""
        ids = np.array(shard_ids, np.int64)
        at = np.minimum(np.searchsorted(self._known, ids), len(self._known) - 1)
        known = self._known[at] == ids
        return known.tolist(), self._slots[at[known]]

    def _put_drawn(self, slots: Integers, rows: Integers, stored: Integers) -> None:
        """Find the rows of shards whose samples are drawn by weight."""
        picked = np.flatnonzero(self._drawn[slots])
        for slot, those in groups(slots[picked]):
            opened = self._shards[slot]
            assert opened is not None
            stored[picked[those]] = opened.stored_rows(rows[picked[those]])

    def _find(self, shard_ids: Integers) -> Integers | None:
        """Where each shard stands in the table."""
        self._reads += 1
        found = self._look_up(shard_ids)
        if found is None:
            new = np.setdiff1d(shard_ids, self._known).tolist()
            if len(new) > OPEN_INDEXES or not all(map(self._add, new)):
                return None
            found = self._look_up(shard_ids)
            if found is None:  # some made room for others
                return None
        self._used[found] = self._reads
        return found if self._fits[found].all() else None

    def _look_up(self, shard_ids: Integers) -> Integers | None:
        if not len(self._known):
            return None
        at = np.minimum(np.searchsorted(self._known, shard_ids), len(self._known) - 1)
        return self._slots[at] if (self._known[at] == shard_ids).all() else None

    def _add(self, shard_id: int) -> bool:
        try:
            opened = self._open.open(*source_and_shard(shard_id))
        except ShardStreamError:  # raised again where it is explained
            return False
        if not self._free:
            self._make_room()
        slot = self._free.pop()
        self._used[slot] = self._reads
        self._fits[slot] = self._enter(slot, opened)
        at = int(np.searchsorted(self._known, shard_id))
        self._known = np.insert(self._known, at, shard_id)
        self._slots = np.insert(self._slots, at, slot)
        return True

    def _make_room(self) -> None:
        """Forget the quarter of the shards that was used longest ago."""
        old = np.argsort(self._used[self._slots], kind="stable")[: OPEN_INDEXES // 4]
        for slot in self._slots[old].tolist():
            self._shards[slot] = self._held[slot] = None
            self._wholes.put(slot, None)
            self._free.append(slot)
        self._known, self._slots = np.delete(self._known, old), np.delete(self._slots, old)

    def _enter(self, slot: int, opened: OpenShard) -> bool:
        """Write down where everything lies; whether all of it lies as it has to."""
        index, where = opened.index, opened.shard
        self._mapped[slot] = mapped = where.store.mapped
        ahead = self._ahead is not None and not opened.at_hand
        if not (opened.framing.addressed and (mapped or ahead)) or not index.samples:
            return False
        if any(name not in index.columns for name in self._columns):
            return False
        if opened.refused(np.arange(index.samples), [*self._columns]) is not None:
            return False
        # Labels alone touch nothing but the index.
        whole = where.store.get(where.name) if mapped and self._needs_bytes else None
        if whole is not None and len(whole) < index.end:  # replaced since its index was read
            return False
        self._shards[slot] = opened
        self._wholes.put(slot, whole)
        self._names[slot] = index.path
        self._samples[slot] = index.samples
        self._shift[slot] = opened.rows if isinstance(opened.rows, int) else 0
        self._chosen.put(slot, opened.rows if isinstance(opened.rows, np.ndarray) else None)
        self._drawn[slot] = drawn = isinstance(opened.rows, DrawnRows)
        self._any_drawn |= drawn
        self._keys.put(slot, *index.keys.parts)
        return all(column.put(slot, index.columns[name]) for name, column in self._columns.items())


class _Numbers:
    """An array of each shard, looked up at one place of each of many.

    Attributes:
        widths: Bytes of a number of each; 0 where there is no array.
        width: The same of all shards that were ever entered; 0 where these differ, or none has an array.
        any: Whether there ever was an array.
    """

    def __init__(self) -> None:
        self._address = np.zeros(OPEN_INDEXES, np.int64)
        self.widths = np.zeros(OPEN_INDEXES, np.int64)
        self.width = 0
        self._entered: set[int] = set()  # widths
        self.any = False

    def put(self, slot: int, values: NDArray[Any] | None) -> None:
        """The array of a shard: unsigned, or int64 that are not negative; ``None`` where it has none."""
        width = 0 if values is None else values.itemsize
        self.widths[slot] = width
        self._entered.add(width)
        self.width = width if len(self._entered) == 1 else 0
        if values is not None:
            self._address[slot] = address_of(values)
            self.any = True

    def take(self, slots: Integers, at: Integers) -> Integers:
        """The numbers at these places, as int64: what is more is negative."""
        width = self.width or self._width_of(slots)
        if width:
            return gather_at(self._address[slots] + at * width, width).view(f"<u{width}").reshape(-1).astype(np.int64)
        widths = self.widths[slots]
        addresses = self._address[slots] + at * widths
        out = np.empty(len(slots), np.uint64)
        for width in np.unique(widths).tolist():
            those = widths == width
            out[those] = gather_at(addresses[those], width).view(f"<u{width}").reshape(-1)
        return out.view(np.int64)

    def _width_of(self, slots: Integers) -> int:
        """What all of these shards have, where not all others have it; 0 where they differ, too."""
        widths = self.widths[slots]
        return int(widths[0]) if len(widths) and (widths == widths[0]).all() else 0

    def take_ranges(self, slots: Integers, at: Integers) -> tuple[Integers, Integers]:
        """Where these begin and end, of things that lie end to end, each with where it ends."""
        width = self.width or self._width_of(slots)
        if width and int(at.min()):
            pairs = gather_at(self._address[slots] + (at - 1) * width, 2 * width).view(f"<u{width}").astype(np.int64)
            return pairs[:, 0], pairs[:, 1]
        return np.where(at > 0, self.take(slots, np.maximum(at - 1, 0)), 0), self.take(slots, at)


class _Keys:
    """The keys of each shard.

    Args:
        shards: What keeps the memory that they lie in, also for keys that are found after their reader is gone.
    """

    def __init__(self, shards: Sequence[OpenShard | None]) -> None:
        self._shards = shards
        self._ends = _Numbers()
        self._address = np.zeros(OPEN_INDEXES, np.int64)
        self._ascii = np.zeros(OPEN_INDEXES, np.bool_)

    def put(self, slot: int, ends: NDArray[Any], blob: memoryview) -> None:
        """The keys of a shard: where each ends, and all of them."""
        octets = np.frombuffer(blob, np.uint8)
        self._ends.put(slot, ends)
        self._address[slot] = address_of(octets)
        self._ascii[slot] = not len(octets) or int(octets.max()) < 128

    def taken(self, slots: Integers, rows: Integers) -> Callable[[], list[str]] | list[str] | None:
        """The keys of these rows, or what finds them before the next read; ``None`` where one is not UTF-8."""
        if self._ascii[slots].all():
            return partial(self._decoded, slots, rows)
        try:
            return self._decoded(slots, rows)
        except UnicodeDecodeError:
            return None

    def _decoded(self, slots: Integers, rows: Integers) -> list[str]:
        begins, ends = self._ends.take_ranges(slots, rows)
        lengths = ends - begins
        addresses, longest = self._address[slots] + begins, int(lengths.max())
        if longest == int(lengths.min()):
            stops = np.arange(1, len(rows) + 1) * longest
            octets = gather_at(addresses, longest).tobytes()
        else:  # every byte by its own address: they are few
            stops = np.cumsum(lengths)
            shifts = addresses - (stops - lengths)
            octets = gather_at(np.repeat(shifts, lengths) + np.arange(int(stops[-1])), 1).tobytes()
        bounds = itertools.pairwise([0, *stops.tolist()])
        if octets.isascii():
            text = octets.decode("ascii")
            return [text[start:stop] for start, stop in bounds]
        return [octets[start:stop].decode() for start, stop in bounds]


class _Column(ABC):
    """One field in each shard."""

    def __init__(self, kind: FieldType, *, verify: bool) -> None:
        self._type = kind
        self._verify = verify
        self._sums = _Numbers()
        self._offsets = _Numbers()
        self._lengths = _Numbers()
        self._base = np.zeros(OPEN_INDEXES, np.int64)  # of the first value: its address, or where it lies in the object

    def put(self, slot: int, column: Column) -> bool:
        """Write down where its values lie; whether they can be gathered."""
        if column.valid is not None or column.codec != "none" or column.type != self._type:
            return False
        self._sums.put(slot, column.checksums)
        return self._put(slot, column)

    @abstractmethod
    def _put(self, slot: int, column: Column) -> bool: ...

    @abstractmethod
    def read(self, slots: Integers, rows: Integers, data: MemoryBytes, memory: Memory | None) -> FieldValues | None:
        """Their values; ``None`` where one is damaged, not like the others, or not here."""

    def _sound(self, slots: Integers, rows: Integers, values: Sequence[Any] | NDArray[Any]) -> bool:
        expected = self._expected(slots, rows)
        return expected is not None and (not expected or checksums(values) == expected)

    def _expected(self, slots: Integers, rows: Integers) -> list[int] | None:
        """The checksums that values have to have: none where nobody asks; ``None`` where some were written without."""
        if not self._verify or not self._sums.any:
            return []
        known = np.count_nonzero(self._sums.widths[slots])
        if known < len(slots):
            return None if known else []
        expected: list[int] = self._sums.take(slots, rows).view(np.uint64).tolist()
        return expected


class _Scalars(_Column):
    def _put(self, slot: int, column: Column) -> bool:
        assert column.values is not None
        self._base[slot] = address_of(column.values)
        return True

    def read(self, slots: Integers, rows: Integers, data: MemoryBytes, memory: Memory | None) -> FieldValues | None:
        width = self._type.width
        raw = gather_at(self._base[slots] + rows * width, width)
        return FieldValues(self._type, np.ndarray(len(slots), self._type.dtype, raw), None)


class _Fixed(_Column):
    def _put(self, slot: int, column: Column) -> bool:
        self._base[slot] = column.base or 0
        self._offsets.put(slot, column.offsets if column.base is None else None)
        return self._type.width > 0

    def read(self, slots: Integers, rows: Integers, data: MemoryBytes, memory: Memory | None) -> FieldValues | None:
        scattered = np.count_nonzero(self._offsets.widths[slots]) if self._offsets.any else 0
        if 0 < scattered < len(slots):  # tar and record shards side by side
            return None
        offsets = self._offsets.take(slots, rows) if scattered else rows * self._type.width
        raw = data.gather(slots, self._base[slots] + offsets, self._type.width)
        if raw is None or not self._sound(slots, rows, raw):
            return None
        assert self._type.shape is not None
        return FieldValues(self._type, np.ndarray((len(slots), *self._type.shape), self._type.dtype, raw), None)


class _Payloads(_Column):
    def _put(self, slot: int, column: Column) -> bool:
        self._offsets.put(slot, column.offsets)
        self._lengths.put(slot, column.lengths)
        return True

    def read(self, slots: Integers, rows: Integers, data: MemoryBytes, memory: Memory | None) -> FieldValues | None:
        begins, lengths = self._offsets.take(slots, rows), self._lengths.take(slots, rows)
        if memory is None:
            views = data.views(slots, begins, begins + lengths)
            sound = views is not None and self._sound(slots, rows, views)
            return FieldValues(self._type, views, None) if views is not None and sound else None
        expected = self._expected(slots, rows)
        if expected is None:
            return None
        # In one memory, each value verified once it is there, while a processor's cache holds it.
        ends = np.cumsum(lengths)
        joined = memory(int(ends[-1]))
        whole = memoryview(joined).toreadonly()  # type: ignore[arg-type]  # numpy arrays are buffers; stubs of 3.11 cannot say so
        values: list[memoryview | None] = [whole[start:end] for start, end in itertools.pairwise([0, *ends.tolist()])]
        copied = 0
        for those in data.copy(slots, begins, begins + lengths, joined, ends - lengths):
            found = checksums(list(map(values.__getitem__, those))) if expected else []
            if found != list(map(expected.__getitem__, those if expected else ())):
                return None
            copied += len(those)
        return FieldValues(self._type, values, None, joined) if copied == len(values) else None


_COLUMNS: dict[FieldKind, type[_Column]] = {"scalar": _Scalars, "fixed": _Fixed, "payload": _Payloads}
