"""``Shard``: where the bytes of a shard are read; ``Replica``: another place; ``OpenShard``: with its index at hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from shardstream.dataset.costs import ShardBatches
from shardstream.dataset.drawn_rows import DrawnRows
from shardstream.errors import ChangedError, DataError, DecodeError, FormatError, NotFoundError, StorageError
from shardstream.shards.fields import agree
from shardstream.shards.framing import MAX_VALUE, FieldValues, Framing, oversized, too_large, undivided
from shardstream.shards.index import ShardIndex
from shardstream.shards.manifest import Manifest
from shardstream.storage import Buffers, Location, MappedBuffers, Read, Request, Store, open_store
from shardstream.storage.base.ranges import plan_reads
from shardstream.storage.local.whole_files import read_files
from shardstream.storage.transfer.readahead import fetched

LEAST_AT_ONCE = 16 << 20
"""Bytes that may be decompressed at once whatever the limit is. Parts of gzip files, which we cut ourselves, have 4 to
8 MiB, and to read a value of a few KB a user need not know of them."""


class Shard(NamedTuple):
    """Where the bytes of a shard are read: a store, and the object's name and size there."""

    store: Store
    name: str
    size: int

    def repair(self, requests: Sequence[Request]) -> None:
        """Have what a cache holds of these ranges looked at, and dropped where it is damaged."""
        for path, offset, length in requests:
            with suppress(StorageError):  # nobody can say how long it is; no cache holds it then
                self.store.repair(path, offset, self.store.size(path) - offset if length is None else length)

    def rewritten(self) -> ChangedError:
        """The error for a file that is not what was verified, because somebody wrote to it in place."""
        return ChangedError(
            "the file was written to in place while it was in use",
            url=self.store.locate(self.name),
            hint="replace files by renaming, never in place; then open the dataset again",
        )

    def replaced(self) -> ChangedError:
        """The error for an object that is not what it was."""
        return ChangedError(
            "the object was replaced by another one while it was being read",
            url=self.store.locate(self.name),
            hint="open the data set anew",
        )


class IndexBytes(NamedTuple):
    """Where the bytes of an index lie: a store, the range there, and the size of the object that it is a range of."""

    store: Store
    request: Request
    size: int

    def get(self) -> memoryview:
        """Read them now."""
        return self.store.get(*self.request)

    def repair(self) -> None:
        """Have what a cache holds of them looked at, and dropped where it is damaged."""
        path, offset, length = self.request
        self.store.repair(path, offset, length or 0)


class Replica(Protocol):
    """Another place that has shards of a dataset.

    Attributes:
        store: What its shards are read through.
    """

    store: Store

    def find(self, name: str, size: int, checksum: int) -> str | None:
        """The name here of the shard that is called ``name`` there; ``None`` if it is not here."""


class DatasetReplica(Replica):
    """Another place that has shards of a dataset, known by what is in them.

    Args:
        location: Where it is.
        manifest: Of the dataset.

    Raises:
        ShardStreamError: There is no dataset.
    """

    def __init__(self, location: Location, manifest: Manifest) -> None:
        self.store = open_store(location)
        self._own = Manifest.read(self.store)
        self._same = self._own.fingerprint == manifest.fingerprint
        self._order = None if self._same else np.argsort(self._own.table.checksums, kind="stable")

    def find(self, name: str, size: int, checksum: int) -> str | None:
        if self._order is not None:
            checksums = self._own.table.checksums
            at = int(np.searchsorted(checksums, np.uint64(checksum), sorter=self._order))
            if at == len(checksums) or int(checksums[self._order[at]]) != checksum:
                return None
            name = self._own.shard_name(int(self._order[at]))
        try:
            return name if self.store.size(name) == size else None
        except NotFoundError:
            return None


@dataclass(frozen=True, slots=True)
class OpenShard:
    """A shard whose index is at hand.

    Attributes:
        index: The index.
        framing: What reads it.
        shard: Where its bytes are.
        rows: The rows that the view's rows are; a number where they just begin later. Or the rows that draws find:
            what is said of rows of the view then speaks of places of draws.
        batches: Batches by cost, where an order counts these; ``rows`` are theirs then, one batch after another.
        max_value: Bytes that one value may have.
    """

    index: ShardIndex
    framing: Framing
    shard: Shard
    rows: NDArray[Any] | int | DrawnRows = 0
    batches: ShardBatches | None = None
    max_value: int = MAX_VALUE

    @property
    def at_hand(self) -> bool:
        """Whether nothing is won by reading bytes before they are used."""
        return self.shard.store.at_hand(self.shard.name)

    def stored_rows(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows of the shard that these rows of the view are."""
        if isinstance(self.rows, DrawnRows):
            return self.rows.find(rows)
        return rows + self.rows if isinstance(self.rows, int) else self.rows[rows].astype(np.int64, copy=False)

    def counted_rows(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows of the shard that belong to what an order counts: rows of the view, or batches by cost."""
        return self.stored_rows(numbers if self.batches is None else self.batches.members(numbers)[0])

    def between(self, first: int, last: int) -> NDArray[np.int64]:
        """Of what an order counts, from one on, before another."""
        return np.arange(first, last, self.rows.spacing if isinstance(self.rows, DrawnRows) else 1)

    def present(self, fields: Sequence[str]) -> list[str]:
        """Those of the fields that this shard has."""
        return [name for name in fields if name in self.index.columns]

    def has_bytes(self, fields: Sequence[str]) -> bool:
        """Whether reading any of these fields takes bytes besides the index."""
        columns = self.index.columns
        return any(name in columns and columns[name].type.kind != "scalar" for name in fields)

    def mean_bytes(self, fields: Sequence[str]) -> float | None:
        """Mean stored bytes of these fields of what an order counts, besides the index; ``None``: it does not say."""
        total = 0
        for column in (self.index.columns[name] for name in self.present(fields)):
            if (sizes := column.sizes) is not None:
                total += int(sizes.sum(dtype=np.int64))
            elif column.type.kind == "fixed":
                total += column.type.width * self.index.samples
            elif column.type.kind == "payload":
                return None
        return total / max(self.index.samples if self.batches is None else len(self.batches.ends), 1)

    def plan(self, rows: NDArray[np.int64], fields: Sequence[str]) -> list[Request]:
        """The byte ranges of these fields of these stored rows."""
        return self.framing.plan(self.index, rows, self.present(fields))

    def reads(self, rows: NDArray[np.int64], fields: Sequence[str], *, order: int) -> list[Read]:
        """What brings these fields of these stored rows; smaller numbers of ``order`` are read first.

        Raises:
            DecodeError: As `refused`: nothing is read of them.
        """
        if (error := self.refused(rows, fields)) is not None:
            raise error
        return self._reads(rows, fields, order)

    def reads_ahead(self, rows: NDArray[np.int64], fields: Sequence[str], *, order: int) -> list[Read] | None:
        """The same; ``None`` if a value is `refused`, which is an error of whoever uses it."""
        return self._reads(rows, fields, order) if self.refused(rows, fields) is None else None

    def _reads(self, rows: NDArray[np.int64], fields: Sequence[str], order: int) -> list[Read]:
        requests = self.plan(rows, fields)
        sizes: dict[str, int | None] = {self.shard.name: self.shard.size}
        if self.framing.whole_objects:
            sizes = {path: length for path, _, length in requests}
        return [Read(self.shard.store, one, order=order, size=sizes.get(one.path)) for one in plan_reads(requests)]

    def extract(
        self,
        ahead: Callable[[], Buffers | None],
        rows: NDArray[np.int64],
        fields: Sequence[str],
        *,
        verify: bool,
    ) -> dict[str, FieldValues]:
        """These fields of these stored rows, none of which are `refused`.

        Bytes that came over a network, or out of a cache, and are not what was written, are read once more. So is an
        object that was replaced meanwhile, where its values have checksums: it may hold the same bytes again.

        Args:
            ahead: Gives what was read ahead; ``None`` to read now.
            rows: Stored rows.
            fields: Names of fields.
            verify: Compare checksums.

        Raises:
            DataError: They are damaged where they come from.
            StorageError: They cannot be read. ChangedError: The object was replaced, and holds other bytes, or no
                checksum tells.
        """
        present = self.present(fields)
        options: dict[str, Any] = {"verify": verify, "max_value": self.max_value}
        try:
            buffers = ahead()
            if buffers is None:
                buffers = self._read(rows, present)
            return self.framing.extract(self.index, buffers, rows, present, **options)
        except DataError:
            if self.shard.store.mapped:
                raise
            self.shard.repair(self.framing.plan(self.index, rows, present))
        except ChangedError:
            if not (verify and self.has_checksums(present)):
                raise
            self.shard.store.renew(self.shard.name)  # whoever reads it compares it with what it was
        try:
            return self.framing.extract(self.index, self._read(rows, present), rows, present, **options)
        except DataError as error:
            if self.shard.store.renewed(self.shard.name):
                raise self.shard.replaced() from error
            raise

    def refused(self, rows: NDArray[np.int64], fields: Sequence[str]) -> DecodeError | None:
        """The error for the first of these values that has more bytes than it may, or takes decompressing more.

        Args:
            rows: Stored rows.
            fields: Names of fields.
        """
        index, name, limit = self.index, self.shard.name, self.max_value
        for field in self.present(fields):
            column = index.columns[field]
            if column.type.kind == "scalar":
                continue
            at_once = None
            if self.framing.addressed:
                valid = column.valid_rows(rows)
                chosen = rows if valid is None else rows[valid]
                at_once = self.shard.store.decompressed_at_once(name, *column.extents(chosen))
            plain = limit != MAX_VALUE or at_once is not None or self.framing.whole_objects
            for row, size in too_large(column, rows, limit, plain=plain):
                return oversized(index, field, row, size, limit)
            if at_once is not None and len(at_once) and int(at_once.max()) > max(limit, LEAST_AT_ONCE):
                worst = int(at_once.argmax())
                return undivided(index, field, int(chosen[worst]), int(at_once[worst]), limit)
        return None

    def has_checksums(self, present: Sequence[str]) -> bool:
        """Whether all values of these fields that are not in the index have checksums."""
        columns = [self.index.columns[name] for name in present]
        return all(column.checksums is not None for column in columns if column.type.kind != "scalar")

    def fetched(self, rows: NDArray[np.int64], fields: Sequence[str]) -> Buffers:
        """The bytes of these fields of these stored rows, read now; StorageError."""
        return self._read(rows, self.present(fields))

    def _read(self, rows: NDArray[np.int64], present: Sequence[str]) -> Buffers:
        if not self.at_hand:
            return fetched(self.reads(rows, present, order=0))
        if self.framing.whole_objects:  # a mapping costs more than the bytes of a small file
            return read_files(self.shard.store, self.framing.plan(self.index, rows, present))
        return MappedBuffers(self.shard.store)


def check_index(index: ShardIndex, manifest: Manifest, shard: int) -> None:
    """Refuse a shard that is not the one of this number; FormatError."""
    expected = int(manifest.table.samples[shard])
    hint = "`shardstream verify` lists every shard that does not belong"
    if index.samples != expected:
        what = f"the shard holds {index.samples} samples, the manifest says {expected}"
        raise FormatError(what, url=index.url, shard=index.path, hint=hint)
    for name, column in index.columns.items():
        kind = manifest.fields.get(name)
        if kind is not None and not agree(column.type, kind):
            what = f"the shard holds {column.type}, the manifest says {kind}"
            raise FormatError(what, url=index.url, shard=index.path, field=name, hint=hint)
