"""``ReadAhead``: bytes of coming samples, fetched before anybody waits for them.

The order is arithmetic, so a worker knows its coming steps, across the ends of windows and epochs. It plans them in
order, and has as many bytes on their way or at hand as its budget allows; the step that is needed next is never held
back by it. While all its open windows fit half of the budget, a window is read whole, in few large reads, when its
first sample comes near; otherwise, and in the first step after a start, samples are read one by one, so that a first
batch is there after a few round trips.
"""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardstream.dataset.indexes import OpenShards
from shardstream.dataset.shard import OpenShard
from shardstream.dataset.shared import WorkerStatus, shard_ids, source_and_shard
from shardstream.dataset.step import ComingSteps, Located, Step, groups
from shardstream.errors import NotFoundError, ShardStreamError, StorageError
from shardstream.storage import Buffers, FetchedBuffers, Read, ReadQueue, Request, Store
from shardstream.storage.base.held import can_copy
from shardstream.storage.cache import CachedBuffers
from shardstream.storage.transfer.readahead import parts_of

_MOST_STEPS = 1024  # planned ahead: samples of a few bytes would fill no budget
_MOST_LOCATED = 128  # steps whose shards are known
_MOST_WAITING = 16  # of them steps whose indexes are still on their way
_MOST_KEPT = 4096  # shards that are known to be in the cache
_OPEN_SHARE = 0.6  # of the budget for open windows: half, and a little for those who write 1GB for 1GiB
_FILLED = 0.85  # of the budget with what is held: the heap has holes between it
_AT_ONCE = 8  # steps that are planned while a batch waits
_SMALL = 16 << 10  # mean bytes of a sample up to which a window is copied out of a cache at once, not value by value

Integers = NDArray[np.int64]


@dataclass(slots=True, eq=False)
class _Unit:
    """Bytes that are fetched and given up together: a part of a window, or the samples of a step in one shard."""

    key: tuple[int, ...]  # begins with the shard's id
    reads: list[Read]
    parts: list[tuple[Request, memoryview]]  # what was read
    bytes: int
    left: int  # rows that were not used yet
    uses: int = 0  # planned steps that need it
    asked: bool = False
    closed: bool = False  # no step beyond the planned ones needs it
    cached: Store | None = None  # where it lies in a cache: it is copied from there when it is used first
    in_place: bool = False  # or value by value, whenever one is used
    missing: dict[str, NotFoundError] = field(default_factory=dict)  # objects that are not there


@dataclass(slots=True, eq=False)
class _Planned:
    """A step with what it needs."""

    number: int
    located: Located
    coming: ComingSteps
    begins: bool  # whether it is the first of its epoch
    shards: list[int]
    waits_for: list[int]  # those whose index is not known to be at hand
    units: dict[int, list[_Unit]] = field(default_factory=dict)  # by shard
    rows: list[tuple[_Unit, int]] = field(default_factory=list)
    prepared: bool = False

    @property
    def new(self) -> list[_Unit]:
        """What nobody asked for yet."""
        return [unit for units in self.units.values() for unit in units if not unit.asked]


class Held(NamedTuple):
    """Parts at hand, each by the id of its shard and where it begins there, and shards all of which a cache has."""

    shards: list[int]
    begins: list[int]
    data: list[memoryview]
    cached: list[int]


class ReadAhead:
    """Plans and holds what the coming steps of a process read.

    Args:
        shards: The open shards.
        fields: For each source the fields that are read.
        queue: Where reads go.
        budget: Bytes on their way or at hand.
        status: Where to say whose bytes are waited for, or ``None``.
    """

    def __init__(
        self,
        shards: OpenShards,
        fields: Sequence[Sequence[str]],
        queue: ReadQueue,
        *,
        budget: int,
        status: WorkerStatus | None = None,
    ) -> None:
        self._shards = shards
        self._status = status
        self._fields = fields
        self._queue = queue
        self._budget = budget
        self._units: dict[tuple[int, ...], _Unit] = {}
        self._begin(None)

    def _begin(self, coming: ComingSteps | None) -> None:
        self._queue.cancel(read for unit in self._units.values() for read in unit.reads)
        self._shards.forget()
        self._coming = coming
        self._steps: Iterator[Located] = iter(()) if coming is None else coming.located(lambda: self._windowed)
        self._at_beginning = True
        self._running: Hashable = None
        self._come: Hashable = None  # the epoch of which nothing is on its way any more
        self._located: deque[_Planned] = deque()
        self._planned: deque[_Planned] = deque()
        self._waiting: list[_Planned] = []
        self._current: _Planned | None = None
        self._units = {}
        self._guessed: list[_Unit] = []
        self._lanes: dict[tuple[int, int], tuple[tuple[int, int], list[_Unit]]] = {}
        self._kept: dict[int, Buffers] = {}
        self._small: dict[int, bool] = {}
        self._fetched: dict[int, tuple[list[_Unit], FetchedBuffers]] = {}
        self._held = 0
        self._number = 0
        self._whole: bool | None = None  # whether windows are read whole; not known before a shard was seen
        self._windowed = True  # whether the step planned last was read by windows

    # ------------------------------------------------------------------------------------------------------ its use

    def steps(self, coming: ComingSteps) -> Iterator[Step]:
        """The coming steps; the bytes of each are at hand, or on their way, until the next one is asked for.

        What was planned for an epoch that was foreseen is kept, if it is the one that comes.
        """
        self._give_up()
        following = self._next()
        if following is None or not following.begins or following.coming.key != coming.key:
            self._begin(coming)
        self._running = coming.key
        while (planned := self._next()) is not None and planned.coming.key == coming.key:
            if not self._planned:
                self._prepare(planned)
                self._admit(planned)
            self._current = self._planned.popleft()
            if self._current.number:  # what is asked for later must not delay a first batch
                self._fill()
            yield self._current.located.step
            self._give_up()
        if planned is not None:
            self._fill()

    def buffers(self, shard_id: int) -> Buffers | None:
        """The bytes that the present step needs of a shard; ``None`` where nothing of it was read ahead.

        Raises:
            StorageError: They could not be read.
        """
        kept = self._kept.get(shard_id)
        if kept is not None:
            return kept
        units = None if self._current is None else self._current.units.get(shard_id)
        if not units or any(unit.in_place and unit.cached is None for unit in units):
            return None
        for unit in units:
            self._take(unit)
        # What was read for the other units is in the cache, too.
        cached = next((unit.cached for unit in units if unit.cached is not None), None)
        if cached is not None:
            return CachedBuffers(cached)
        known = self._fetched.get(shard_id)
        if known is None or known[0] != units:
            parts = (part for unit in units for part in unit.parts)
            missing = dict(one for unit in units for one in unit.missing.items())
            known = self._fetched[shard_id] = units, FetchedBuffers(parts, missing)
        return known[1]

    def held(self) -> Held | None:
        """All bytes that the present step needs, of shards whose bytes are read ahead; ``None`` where some are missing.

        Why they are, and which, is what `buffers` says.
        """
        if self._current is None:
            return None
        held = Held([], [], [], [here for here in self._current.shards if here in self._kept])
        for here, units in self._current.units.items():
            for unit in units:
                if unit.in_place:
                    return None
                if unit.reads:
                    try:
                        self._take(unit)
                    except StorageError:
                        return None
                if unit.missing:
                    return None
                for request, data in unit.parts:
                    held.shards.append(here)
                    held.begins.append(request.offset)
                    held.data.append(data)
        return held

    def _take(self, unit: _Unit) -> None:
        """Have what was read for a unit at hand.

        Raises:
            StorageError: It could not be read.
        """
        if not unit.reads:
            return
        if unit.cached is not None:
            unit.parts = _copied(unit.cached, unit.reads)
            unit.cached = None
            if unit.parts:
                unit.reads = []
                return
            self._queue.submit(unit.reads)  # it is not there any more
        if not all(read.done for read in unit.reads):
            if self._status is not None:
                self._status.waits(unit.key[0])
            self._queue.wait(unit.reads)
        come, missing = parts_of(unit.reads)
        unit.parts += come
        unit.missing |= missing
        unit.reads = []

    # ----------------------------------------------------------------------------------------------------- planning

    def _next(self) -> _Planned | None:
        """The step that comes next, planned or not."""
        if self._planned:
            return self._planned[0]
        self._look_ahead()
        return self._located[0] if self._located else None

    def _fill(self) -> None:
        """Plan further steps while there is room; few at a time, for a batch waits for this."""
        self._learn()
        for _ in range(min(_AT_ONCE, _MOST_STEPS - len(self._planned))):
            self._look_ahead()
            if not self._located or self._located[0].waits_for:
                return
            planned = self._located[0]
            if planned.coming.key != self._running and not self._all_come():
                return
            self._prepare(planned)
            if self._held + sum(unit.bytes for unit in planned.new) > _FILLED * self._budget:
                return
            self._admit(planned)

    def _all_come(self) -> bool:
        """Whether nothing of the running epoch, whose steps are all planned, is on its way any more.

        Bytes of the next one would only delay it before that.
        """
        if self._queue.idle:
            self._come = self._running
        return self._come == self._running

    def _look_ahead(self) -> None:
        """Have the shards of coming steps known, and their indexes on their way."""
        # One that was prepared has had its indexes, whether or not they are still open.
        self._waiting = [planned for planned in self._waiting if not planned.prepared and self._waits(planned)]
        for _ in range(_AT_ONCE if self._number else 1):
            if len(self._located) >= _MOST_LOCATED or len(self._waiting) >= _MOST_WAITING:
                return
            found = next(self._steps, None)
            if found is None:
                # No further than into the next epoch: a small data set would be fetched over and over.
                if self._coming is None or self._coming.key != self._running:
                    return
                following = self._coming.following()
                if following is None:
                    return
                self._coming, self._at_beginning = following, True
                self._steps = following.located(lambda: self._windowed)
                continue
            assert self._coming is not None
            shards = np.unique(shard_ids(found.step.sources, found.step.shards)).tolist()
            planned = _Planned(self._number, found, self._coming, self._at_beginning, shards, shards)
            self._at_beginning = False
            self._number += 1
            self._located.append(planned)
            if self._waits(planned):
                self._waiting.append(planned)

    def _waits(self, planned: _Planned) -> bool:
        """Whether indexes of a step's shards are on their way; they are from now on."""
        planned.waits_for = [here for here in planned.waits_for if not self._expect(here, planned.number)]
        return bool(planned.waits_for)

    def _expect(self, here: int, number: int) -> bool:
        try:
            return self._shards.expect(*source_and_shard(here), order=number)
        except ShardStreamError:  # it is raised when the step comes
            return True

    def _prepare(self, planned: _Planned) -> None:
        """Find what a step needs; nothing is asked for yet."""
        if planned.prepared:
            return
        one_by_one = not self._whole  # so is the step with which this is found out
        found = {here: self._readable(here) for here in planned.shards}
        opened = {here: one for here, one in found.items() if one is not None}
        self._windowed = not one_by_one and bool(opened)
        if one_by_one:
            self._need_samples(planned, opened)
        elif opened:
            self._need_windows(planned, opened)
        planned.prepared = True

    def _readable(self, here: int) -> OpenShard | None:
        """A shard, where reading its bytes ahead helps."""
        if here in self._kept:
            return None
        source, shard = source_and_shard(here)
        try:
            opened = self._shards.open(source, shard)
        except ShardStreamError:  # it is raised when the step comes
            return None
        fields = self._fields[source]
        if opened.at_hand or not opened.has_bytes(fields):
            return None
        if self._whole is None:
            self._decide(opened, fields)
        store, name = opened.shard.store, opened.shard.name
        in_windows = not can_copy() and self._in_windows(here, opened)
        if opened.framing.addressed and not in_windows and store.holds(name):
            self._keep(here, store)
            return None
        return opened

    def _in_windows(self, here: int, opened: OpenShard) -> bool:
        """Whether bytes of a shard are copied out of a cache window by window: its values are small."""
        if not self._whole:
            return False
        known = self._small.get(here)
        if known is None:
            if len(self._small) >= _MOST_KEPT:
                self._small.clear()
            mean = opened.mean_bytes(self._fields[source_and_shard(here)[0]])
            known = self._small[here] = mean is not None and mean <= _SMALL
        return known

    def _need_samples(self, planned: _Planned, opened: Mapping[int, OpenShard]) -> None:
        step = planned.located.step
        for here, slots in groups(shard_ids(step.sources, step.shards)):
            if here in opened:
                rows = np.unique(step.rows[slots])
                fields = self._fields[source_and_shard(here)[0]]
                unit = self._unit((here, -1, planned.number), planned, opened[here], rows, fields)
                self._need(planned, here, unit, len(rows))

    def _keep(self, here: int, cached: Store) -> None:
        """From now on a shard is read from the cache, which holds all of it; should that end, it reads again."""
        if len(self._kept) >= _MOST_KEPT:
            self._kept.clear()
        self._kept[here] = CachedBuffers(cached)

    def _decide(self, opened: OpenShard, fields: Sequence[str]) -> None:
        samples = None if self._coming is None else self._coming.open_samples
        # Where values lie in objects of their own, reads are never joined, so that windows are no better.
        mean = opened.mean_bytes(fields) if opened.framing.addressed else None
        self._whole = samples is not None and mean is not None and samples * mean <= _OPEN_SHARE * self._budget

    def _need_windows(self, planned: _Planned, opened: Mapping[int, OpenShard]) -> None:
        step, windows = planned.located.step, planned.located.windows()
        ids, epoch = shard_ids(step.sources, step.shards), step.epoch
        columns = (ids, windows.lane, windows.window, windows.first, windows.last)
        parts = Counter(zip(*(one.tolist() for one in columns), strict=True))
        for (here, lane, window, first, last), rows in parts.items():
            if here not in opened:
                continue
            key = (here, epoch, lane, first, last)
            unit = self._units.get(key)
            if unit is not None:
                self._need(planned, here, unit, rows)
                continue
            source, _ = source_and_shard(here)
            unit = self._unit(key, planned, opened[here], opened[here].between(first, last), self._fields[source])
            self._need(planned, here, unit, rows)  # before the window that ends with it, which this step may need, too
            self._open_window((source, lane), (epoch, window), unit)

    def _open_window(self, lane: tuple[int, int], window: tuple[int, int], unit: _Unit) -> None:
        """A lane reads one window after another: those before this one end with what is planned already."""
        now, units = self._lanes.get(lane, (window, []))
        if now != window:
            for old in units:
                old.closed = True
                self._drop_if_done(old)
            units = []
        self._lanes[lane] = window, [*units, unit]

    def _unit(
        self, key: tuple[int, ...], planned: _Planned, opened: OpenShard, rows: Integers, fields: Sequence[str]
    ) -> _Unit:
        reads = opened.reads_ahead(opened.counted_rows(rows), fields, order=planned.number)
        cached = None if reads is None else _in_cache(opened.shard.store, reads)
        in_place = reads is None or (cached is not None and self._bytes_of(reads) > _SMALL * len(rows))
        if reads is None or in_place:
            reads = []
        unit = _Unit(key, reads, [], self._bytes_of(reads), len(rows), cached=cached, in_place=in_place)
        self._units[key] = unit
        if any(read.bytes is None for read in reads):
            self._guessed.append(unit)
        return unit

    def _bytes_of(self, reads: Sequence[Read]) -> int:
        return sum(self._queue.guess if read.bytes is None else read.bytes for read in reads)

    def _learn(self) -> None:
        """Count units of unknown length as what they are, as far as that is known by now."""
        left = []
        for unit in self._guessed:
            if not unit.reads or self._units.get(unit.key) is not unit:  # in use, or gone
                continue
            counted = self._bytes_of(unit.reads)
            if unit.asked:
                self._held += counted - unit.bytes
            unit.bytes = counted
            if any(read.bytes is None for read in unit.reads):
                left.append(unit)
        self._guessed = left

    def _need(self, planned: _Planned, here: int, unit: _Unit, rows: int) -> None:
        """A step needs so many rows of a unit of a shard."""
        units = planned.units.setdefault(here, [])
        if unit not in units:  # an epoch of another size may meet the same rows again, in a window of its next turn
            units.append(unit)
            unit.uses += 1
        planned.rows.append((unit, rows))

    def _admit(self, planned: _Planned) -> None:
        new = planned.new
        for unit in new:
            unit.asked = True
            self._held += unit.bytes
        self._queue.submit([read for unit in new if unit.cached is None for read in unit.reads])
        self._located.popleft()
        self._planned.append(planned)

    # -------------------------------------------------------------------------------------------------- giving up

    def _give_up(self) -> None:
        """The present step is done with."""
        done, self._current = self._current, None
        if done is None:
            return
        for unit, rows in done.rows:
            unit.left -= rows
        for units in done.units.values():
            for unit in units:
                unit.uses -= 1
                self._drop_if_done(unit)

    def _drop_if_done(self, unit: _Unit) -> None:
        if unit.uses <= 0 and (unit.closed or unit.left <= 0) and self._units.get(unit.key) is unit:
            del self._units[unit.key]
            self._fetched.pop(unit.key[0], None)
            if unit.asked:
                self._held -= unit.bytes


def _in_cache(store: Store, reads: Sequence[Read]) -> Store | None:
    """The store, where a cache has all that these reads would bring."""
    ranges: dict[str, list[tuple[int, int]]] = {}
    for read in reads:
        if read.bytes is None:
            return None
        ranges.setdefault(read.request.path, []).append((read.request.offset, read.bytes))
    for path, parts in ranges.items():
        offsets, lengths = np.array(parts, np.int64).T
        if not store.holds_ranges(path, offsets, lengths):
            return None
    return store if reads else None


def _copied(cached: Store, reads: Sequence[Read]) -> list[tuple[Request, memoryview]]:
    """What these reads would bring, copied out of a cache; nothing where it is not all there any more."""
    parts: list[tuple[Request, memoryview]] = []
    for path, some in itertools.groupby((read.request for read in reads), attrgetter("path")):
        requests = [*some]
        offsets, lengths = (np.array(one, np.int64) for one in zip(*(one[1:] for one in requests), strict=True))
        found = cached.copies(path, offsets, lengths)
        if found is None:
            return []
        parts += zip(requests, found, strict=True)
    return parts
