"""The samples of a data set of ours: to be packed again, in another order, format or size of shards.

A part reads its samples some hundred at a time, in the order of the part: where each lies is known from the index of
its shard, and what lies behind a network is fetched side by side.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import DuplicateKeyError, SourceError, UsageError
from shardstream.pack.sources.base import Item, Reject, Source, SourcePart
from shardstream.pack.sources.duplicates import first_repeat
from shardstream.pack.sources.keys import MODES
from shardstream.shards.fields import FieldType
from shardstream.shards.framing import FieldValues
from shardstream.shards.index import ShardIndex
from shardstream.shards.manifest import Manifest, unknown_field
from shardstream.storage import Location, Store, fetch, open_store

_AT_ONCE = 256  # samples read together
_OPEN_INDEXES = 256


@dataclass(frozen=True, slots=True)
class StoredPart(SourcePart):
    """Samples of a data set by their numbers in stored order."""

    place: Location
    fingerprint: str
    key: str
    fields: tuple[str, ...]
    numbers: NDArray[np.int64]

    def __iter__(self) -> Iterator[Item | Reject]:
        data = _opened(self.place)
        if data.manifest.fingerprint != self.fingerprint:
            raise SourceError(
                "the data set changed while it was being packed", url=self.place.url, hint="pack it again"
            )
        for start in range(0, len(self.numbers), _AT_ONCE):
            for item in data.items(self.numbers[start : start + _AT_ONCE], self.fields):
                yield item if self.key == "path" else item._replace(key=_key(self.key, item))


class StoredSource(Source):
    """The samples of a data set.

    Args:
        place: Where it lies.
        key: ``"path"`` for the keys it has, ``"stem"`` for their last parts, ``"line"`` for the number of the sample.
        fingerprint: What stands for its contents; ``None``: its own fingerprint.
        unique: Whether its keys are known to be unique; else they are compared.
        fields: Fields to read. Default: all.
        take: How many of its samples, from the first in stored order on. Default: all.

    Raises:
        UsageError: Another ``key``, or ``take`` is no such number.
        FieldError: There is no such field.
        NotFoundError: There is no data set.
        DuplicateKeyError: Two samples with one key.
    """

    lendable = True

    def __init__(
        self,
        place: Location,
        *,
        key: str = "path",
        fingerprint: str | None = None,
        unique: bool = True,
        fields: Collection[str] | None = None,
        take: int | None = None,
    ) -> None:
        if key not in MODES:
            raise UsageError(f"key={key!r}: samples have no columns here", hint="use 'path', 'stem' or 'line'")
        self._place = place
        self._key = key
        self.url = place.url
        data = _Opened(place)
        self._manifest = data.manifest
        self.classes = data.manifest.classes
        self.mean_bytes = data.manifest.bytes / max(data.manifest.samples, 1)
        self.types = _chosen(fields, data.manifest)
        self._count = _taken(take, data.manifest.samples)
        self._fingerprint = fingerprint
        if not self._count:
            raise SourceError("the data set holds no samples", url=place.url, hint="there is nothing to pack")
        if key == "stem" or (key == "path" and not unique):
            data.compare_keys(key)

    @property
    def manifest(self) -> Manifest:
        """Of the data set."""
        return self._manifest

    def __len__(self) -> int:
        return self._count

    def part(self, numbers: NDArray[np.int64]) -> StoredPart:
        return StoredPart(self._place, self._manifest.fingerprint, self._key, tuple(self.types), numbers)

    @property
    def fingerprint(self) -> str:
        return self._fingerprint or f"data set {self._manifest.fingerprint} {self._count} {sorted(self.types)}"


class _Opened:
    """A data set in the process that reads it."""

    def __init__(self, place: Location) -> None:
        self.store: Store = open_store(place)
        self.manifest = Manifest.read(self.store)
        self._ends = np.cumsum(self.manifest.table.samples, dtype=np.int64)
        self._indexes: OrderedDict[int, ShardIndex] = OrderedDict()

    def _index(self, shard: int) -> ShardIndex:
        index = self._indexes.pop(shard, None)
        if index is None:
            manifest = self.manifest
            index = manifest.reader.scan(self.store, manifest.shard_name(shard), index_bytes=manifest.index_bytes)
            if len(self._indexes) >= _OPEN_INDEXES:
                self._indexes.popitem(last=False)
        self._indexes[shard] = index
        return index

    def items(self, numbers: NDArray[np.int64], fields: Sequence[str]) -> list[Item]:
        """Samples, in the order of their numbers."""
        shards = np.searchsorted(self._ends, numbers, side="right")
        starts = self._ends - self.manifest.table.samples
        found: list[Item | None] = [None] * len(numbers)
        order = np.argsort(shards, kind="stable")
        for group in np.split(order, np.flatnonzero(np.diff(shards[order])) + 1):
            shard = int(shards[group[0]])
            rows = numbers[group] - starts[shard]
            for at, item in zip(group.tolist(), self._rows(shard, rows, numbers[group], fields), strict=True):
                found[at] = item
        return [item for item in found if item is not None]

    def _rows(
        self, shard: int, rows: NDArray[np.int64], numbers: NDArray[np.int64], fields: Sequence[str]
    ) -> Iterator[Item]:
        index, reader = self._index(shard), self.manifest.reader
        names = [name for name in fields if name in index.columns]
        buffers = fetch(self.store, lambda: reader.plan(index, rows, names))
        values = reader.extract(index, buffers, rows, names, verify=True)
        for i, (row, number) in enumerate(zip(rows.tolist(), numbers.tolist(), strict=True)):
            yield Item(number + 1, f"{index.path}#{row}", index.keys[row], _sample(values, i))

    def compare_keys(self, mode: str) -> None:
        """Raise the error for the first key that two samples have."""
        found = first_repeat(lambda: (_keyed(mode, key) for key in self._keys()), self.manifest.samples)
        if found is not None:
            first, second, key = found
            raise DuplicateKeyError(
                f"two samples have the same key: {self._named(first)} and {self._named(second)}",
                url=self.store.url,
                key=key,
                hint="make keys unique, or number the samples: key='line' (--key line)",
            )

    def _keys(self) -> Iterator[str]:
        for shard in range(self.manifest.shards):
            yield from self._index(shard).keys

    def _named(self, number: int) -> str:
        shard = int(np.searchsorted(self._ends, number, side="right"))
        return f"{self.manifest.shard_name(shard)}#{number - int(self._ends[shard - 1]) if shard else number}"


def _chosen(fields: Collection[str] | None, manifest: Manifest) -> dict[str, FieldType]:
    for name in fields or ():
        if name not in manifest.fields:
            raise unknown_field(name, manifest.fields, url=manifest.url)
    return {name: kind for name, kind in manifest.fields.items() if fields is None or name in fields}


def _taken(take: object, samples: int) -> int:
    if take is None:
        return samples
    if isinstance(take, bool) or not isinstance(take, int) or take < 1:
        raise UsageError(f"take={take!r} is not allowed", hint="a number of samples, from 1 on")
    return min(take, samples)


def _keyed(mode: str, key: str) -> str:
    return key.rpartition("/")[2] if mode == "stem" else key


def _key(mode: str, item: Item) -> str:
    return f"{item.line:010d}" if mode == "line" else _keyed(mode, item.key)


def _sample(values: dict[str, FieldValues], i: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, column in values.items():
        if column.valid is None or column.valid[i]:
            value = column.data[i]
            if column.type.kind == "scalar":
                assert isinstance(value, np.generic)
                value = value.item()
            found[name] = bytes(value) if isinstance(value, memoryview) else value
    return found


@lru_cache(maxsize=2)
def _opened(place: Location) -> _Opened:
    return _Opened(place)
