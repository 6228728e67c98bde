"""The documents of a data set of bins, to be packed into bins anew: nothing is tokenized.

Where the pieces of each document lie is found out first: the keys and offsets in all bins are read. A part then names
the places of its documents' pieces, and reads the bins that these lie in.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardstream.dataset.dataset_rows import DatasetRows
from shardstream.dataset.keys.documents import BinPieces, whole_document
from shardstream.dataset.keys.listings import DocumentKeys
from shardstream.dataset.opened import OpenedDataset
from shardstream.dataset.rows import location_in
from shardstream.errors import FormatError, SourceError, UsageError
from shardstream.pack.sources.base import Item, Source, SourcePart
from shardstream.pack.sources.duplicates import check_unique
from shardstream.pack.sources.keys import check_mode, key_of_name
from shardstream.pack.sources.stored import Opener, chosen, opened_as, taken
from shardstream.shards.bins import Bins, damaged
from shardstream.shards.fields import FieldType, ValuesType
from shardstream.shards.key_table import hash_of

_AT_ONCE = 256  # pieces that are read together, but for those of one document
_AGAIN = "pack it again from its source"


class _Places(NamedTuple):
    """Where pieces lie, each (pieces,).

    Attributes:
        hashes: Of the key of the document, uint64.
        offsets: Which token of the document the piece begins with, uint32.
        bins: In which bin it lies, uint32.
        slots: Which piece of the bin it is, uint32.
    """

    hashes: NDArray[np.uint64]
    offsets: NDArray[np.uint32]
    bins: NDArray[np.uint32]
    slots: NDArray[np.uint32]

    @classmethod
    def joined(cls, parts: list[_Places]) -> _Places:
        """Those of all parts."""
        none = cls(np.empty(0, np.uint64), *(np.empty(0, np.uint32) for _ in range(3)))
        return cls(*map(np.concatenate, zip(none, *parts, strict=True)))

    def taken(self, which: NDArray[Any]) -> _Places:
        """Some of them."""
        return _Places(*(one[which] for one in self))


@dataclass(frozen=True, slots=True)
class DocumentsPart(SourcePart):
    """Some documents, by the places of their pieces."""

    address: Opener
    fingerprint: str
    fields: tuple[str, ...]
    key: str
    numbers: NDArray[np.int64]
    counts: NDArray[np.int64]  # of the pieces of each document
    places: _Places

    def __iter__(self) -> Iterator[Item]:
        dataset = opened_as(self.address, self.fingerprint)
        rows = DatasetRows(dataset, self.fields)
        ends = np.cumsum(self.counts)
        first = 0
        while first < len(ends):
            begin = int(ends[first] - self.counts[first])
            stop = max(first + 1, int(np.searchsorted(ends, begin + _AT_ONCE, side="right")))
            yield from self._documents(rows, first, stop, begin)
            first = stop

    def _documents(self, rows: DatasetRows, first: int, stop: int, begin: int) -> Iterator[Item]:
        bins = rows.dataset.manifest.bins
        assert bins is not None
        counts = self.counts[first:stop].tolist()
        part = slice(begin, begin + sum(counts))
        wanted, of = np.unique(self.places.bins[part], return_inverse=True)
        batch = rows.read_ids(wanted.astype(np.int64))
        stored = [BinPieces(rows, bins, batch, i, number) for i, number in enumerate(wanted.tolist())]
        places = iter(zip(of.tolist(), self.places.slots[part].tolist(), strict=True))
        for number, count in zip(self.numbers[first:stop].tolist(), counts, strict=True):
            found = [(stored[row], slot) for row, slot in islice(places, count)]
            key = found[0][0].keys[found[0][1]]
            pieces = [bin.piece(slot) for bin, slot in found if bin.keys[slot] == key]  # another one may have its hash
            ends = np.cumsum([len(piece.ids) for piece in pieces]).tolist()
            if [piece.offset for piece in pieces] != [0, *ends[:-1]]:
                raise FormatError("a piece of the document is missing", url=rows.dataset.url, key=key, hint=_AGAIN)
            values = {name: _plain(value) for name, value in whole_document(pieces, bins.field).items()}
            yield Item(number + 1, key, key_of_name(self.key, key, number + 1), values)


class StoredDocuments(Source):
    """The documents of a data set of bins, in the order in which they begin there.

    Args:
        dataset: The data set.
        key: ``"path"`` or ``"auto"`` for the keys they have, ``"stem"`` for their last parts, ``"line"`` for their
            numbers.
        fields: Columns to keep beside tokens. Default: all.
        take: How many of them, from the first on. Default: all.

    Raises:
        UsageError: The data set has no bins; another ``key``, or ``take`` is not such a number.
        FieldError: There is no such column.
        DuplicateKeyError: Two documents with one key, as merged data sets may have.
        FormatError: A piece of a document is missing.
        DataError, StorageError: A bin cannot be read.

    Attributes:
        manifest: Of the data set.
        columns: Names of the fields that are read.
    """

    def __init__(
        self,
        dataset: OpenedDataset,
        *,
        key: str = "path",
        fields: Collection[str] | None = None,
        take: int | None = None,
    ) -> None:
        check_mode(key, "documents have no columns here")
        self.manifest = manifest = dataset.manifest
        self.url = dataset.location.url
        if manifest.bins is None:
            raise UsageError(
                "bins= packs the documents of a data set of bins anew, and this one has none",
                url=self.url,
                hint="pack documents with bins= first, or leave it out",
            )
        if manifest.bins.partial:
            raise UsageError(
                "these are some of the bins of another data set, where documents may lack what lies in its other bins",
                url=self.url,
                hint="pack the documents of that data set anew, with take= as many of them as you want",
            )
        self._bins = bins = manifest.bins
        own = [name for name in manifest.fields if name == bins.field or name.startswith(f"{bins.field}.")]
        columns = chosen(fields, manifest)
        self.columns = tuple(dict.fromkeys([*own, *columns]))
        kinds = {name: kind for name, kind in columns.items() if name not in own}
        self.types = {name: _of_one(kind) for name, kind in kinds.items() if isinstance(kind, ValuesType)}
        self.classes = manifest.classes
        self._dataset, self._key = dataset, key
        self._begins, self._rests = _look_through(dataset, bins)
        count = len(self._begins.bins)
        self._count = taken(take, count)
        if not np.isin(self._rests.hashes, self._begins.hashes).all():
            raise FormatError("no bin has the beginning of a document", url=self.url, hint=_AGAIN)
        if not count:
            raise SourceError("the data set holds no documents", url=self.url, hint="name one that holds some")
        self.mean_bytes = manifest.bytes / count
        check_unique(
            lambda: (key_of_name("stem" if key == "stem" else "path", one, 0) for one in self._keys()),
            count,
            named=lambda number: f"document {number}",
            url=self.url,
            hint="pieces of documents are told apart by their keys: pack one of the two with another key",
        )

    @property
    def inherited(self) -> dict[str, Any]:
        """What new bins have of the old ones, as fields of `PackedSequences`."""
        bins = self._bins
        dtype = self.manifest.fields[bins.field].dtype
        assert dtype is not None
        return {
            "field": bins.field,
            "pad": bins.pad,
            "token_dtype": dtype.name,
            "tokenizer_id": bins.tokenizer,
        }

    def __len__(self) -> int:
        return self._count

    @property
    def fingerprint(self) -> str:
        return f"documents {self.manifest.fingerprint} {self._count} {sorted(self.columns)}"

    def part(self, numbers: NDArray[np.int64]) -> SourcePart:
        begins = self._begins.taken(numbers)
        first = np.searchsorted(self._rests.hashes, begins.hashes)
        counts = np.searchsorted(self._rests.hashes, begins.hashes, side="right") - first
        # of each document its beginning, then what goes on, which lies in order
        of = np.repeat(np.arange(len(numbers)), counts)
        rests = self._rests.taken(np.arange(len(of)) + (first + counts - np.cumsum(counts))[of])
        order = np.argsort(np.concatenate((np.arange(len(numbers)), of)), kind="stable")
        places = _Places.joined([begins, rests]).taken(order)
        address, fingerprint = self._dataset.address, self.manifest.fingerprint
        return DocumentsPart(address, fingerprint, self.columns, self._key, numbers, counts + 1, places)

    def _keys(self) -> Iterator[str]:
        """Of all documents, in order."""
        for _, keys, offsets in _in_bins(self._dataset, self._bins):
            yield from (key for key, offset in zip(keys, offsets.tolist(), strict=True) if not offset)


def _look_through(dataset: OpenedDataset, bins: Bins) -> tuple[_Places, _Places]:
    """Where all documents begin, in order; and where those go on that have several pieces, by hash and token."""
    begins, rests = list[_Places](), list[_Places]()
    for number, keys, offsets in _in_bins(dataset, bins):
        hashes = np.array([hash_of(key) for key in keys], np.uint64)
        places = _Places(hashes, offsets, np.full(len(keys), number, np.uint32), np.arange(len(keys), dtype=np.uint32))
        goes_on = offsets > 0
        begins.append(places.taken(~goes_on))
        if goes_on.any():
            rests.append(places.taken(goes_on))
    further = _Places.joined(rests)
    return _Places.joined(begins), further.taken(np.lexsort((further.offsets, further.hashes)))


def _in_bins(dataset: OpenedDataset, bins: Bins) -> Iterator[tuple[int, list[str], NDArray[np.uint32]]]:
    """The keys and offsets of the pieces in each bin, with its number.

    Raises:
        DataError: A bin says other things of itself than it holds.
    """
    listing, name = DocumentKeys(bins), bins.beside("offsets")
    fields = [one for one in (listing.field, name) if one in dataset.manifest.fields]
    number = 0
    for batch in DatasetRows(dataset, fields).read_shards(range(dataset.manifest.shards)):
        for i in range(len(batch.rows)):
            keys = listing.keys(batch, i, dataset.url)
            stored = batch.value(name, i) if name in fields else None
            offsets = np.zeros(0, np.uint32) if stored is None else dataset.manifest.fields[name].decode(stored)
            if not len(offsets):
                offsets = np.zeros(len(keys), np.uint32)
            if len(offsets) != len(keys):
                what = f"the bin names {len(keys)} documents and has {len(offsets)} offsets"
                raise damaged(what, **{"url": dataset.url} | location_in(batch, i))
            yield number, keys, offsets
            number += 1


def _of_one(kind: ValuesType) -> FieldType:
    """The type of a column that has a value for each document of a bin."""
    return FieldType.parse(kind.elements.name)


def _plain(value: Any) -> Any:
    """A value of a document as sources give values."""
    return value.item() if isinstance(value, np.generic) else value
