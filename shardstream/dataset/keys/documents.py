"""Documents that lie in bins, whole again: their pieces are found by key, and put together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardstream.dataset.dataset_rows import DatasetRows
from shardstream.dataset.keys.finder import KeyFinder
from shardstream.dataset.keys.listings import DocumentKeys
from shardstream.dataset.opened import OpenedDataset
from shardstream.dataset.rows import RowBatch, location_in
from shardstream.errors import FormatError
from shardstream.shards.bins import LOSS, Beside, Bins, PerBin, StoredBins, damaged
from shardstream.shards.framing import MAX_VALUE

_TOGETHER = 256  # bins that are read at once


class StoredPiece(NamedTuple):
    """A piece of a document.

    Attributes:
        offset: Which token of the document it begins with.
        bin: The bin that it lies in.
        begin: Where it begins in the bin.
        ids: Its tokens, (tokens,).
        loss: Which of them are learned from, bool (tokens,); ``None`` for all.
        columns: What the document has besides.
    """

    offset: int
    bin: int
    begin: int
    ids: NDArray[Any]
    loss: NDArray[np.bool_] | None
    columns: dict[str, Any]


class BinPieces:
    """What lies in one bin.

    Args:
        rows: Of the data set.
        bins: Its bins.
        batch: Rows of it.
        i: Which row of them is the bin.
        number: Of the bin.

    Attributes:
        keys: Of the document of each piece.

    Raises:
        DecodeError, FormatError: The bin contradicts itself.
    """

    def __init__(self, rows: DatasetRows, bins: Bins, batch: RowBatch, i: int, number: int) -> None:
        self._types, self._bins, self._number = rows.dataset.manifest.fields, bins, number
        where = {"url": rows.dataset.url} | location_in(batch, i)
        self.keys = DocumentKeys(bins).keys(batch, i, rows.dataset.url)
        self._values = batch.values(i)
        ids = self._values.get(bins.field)
        if ids is None:
            raise damaged(f"the bin has no {bins.field!r}", **where)
        self._ids: NDArray[Any] = ids
        stored = StoredBins(ids[None], self._numbers("lengths"), self._numbers("offsets"), self._numbers("loss"))
        for what in stored.wrong().values():
            raise damaged(what, **where)
        signed = stored.lengths.values.astype(np.int64)
        sizes = np.abs(signed)
        self._begins, self._sizes = (np.cumsum(sizes) - sizes)[signed > 0].tolist(), sizes[signed > 0].tolist()
        self._offsets = stored.offsets.values.tolist() or [0] * len(self._begins)
        self._runs = stored.loss.values
        if len(self.keys) != len(self._begins):
            raise damaged(f"the bin has {len(self._begins)} documents and names {len(self.keys)}", **where)

    def piece(self, i: int) -> StoredPiece:
        """One of the pieces, in the order in which they lie; its tokens are a copy."""
        begin = self._begins[i]
        part = slice(begin, begin + self._sizes[i])
        loss = None if self._loss is None else self._loss[part]
        return StoredPiece(self._offsets[i], self._number, begin, self._ids[part].copy(), loss, self._columns_of(i))

    @cached_property
    def _loss(self) -> NDArray[np.bool_] | None:
        runs = self._runs
        return np.repeat(np.arange(len(runs)) % 2 == 0, runs) if len(runs) else None

    @cached_property
    def _columns(self) -> dict[str, Any]:
        """What has a value for each piece."""
        beside = f"{self._bins.field}."
        names = [name for name in self._values if name != self._bins.field and not name.startswith(beside)]
        rows = {name: self._types[name].decode(self._values[name]) for name in names}
        return {
            name: row for name, row in rows.items() if isinstance(row, list | np.ndarray) and len(row) == len(self.keys)
        }

    def _columns_of(self, i: int) -> dict[str, Any]:
        """Those of one piece: text and JSON that a document lacks is left out."""
        found = {name: row[i] for name, row in self._columns.items()}
        return {name: value for name, value in found.items() if value is not None}

    def _numbers(self, what: Beside) -> PerBin:
        name = self._bins.beside(what)
        raw = self._values.get(name)
        return PerBin.none(1) if raw is None else PerBin.of([self._types[name].decode(raw)])


def whole_document(pieces: Sequence[StoredPiece], field: str) -> dict[str, Any]:
    """A document of its pieces, in order: its tokens, its mask if they have one, its columns."""
    found = {field: np.concatenate([piece.ids for piece in pieces])} | pieces[0].columns
    if any(piece.loss is not None for piece in pieces):
        masks = (np.ones(len(one.ids), bool) if one.loss is None else one.loss for one in pieces)
        found[LOSS] = np.concatenate(list(masks))
    return found


class DocumentFinder:
    """Finds documents in a data set of bins. For one thread.

    Args:
        dataset: The data set.
        bins: Its bins.
        verify: Compare checksums.
        max_value: Bytes that one value may have.
    """

    def __init__(self, dataset: OpenedDataset, bins: Bins, *, verify: bool = True, max_value: int = MAX_VALUE) -> None:
        self._bins = bins
        self._rows = DatasetRows(dataset, verify=verify, max_value=max_value)
        self._finder = KeyFinder(self._rows, DocumentKeys(bins))

    def bin_of(self, key: str) -> int | None:
        """The first bin that has a piece of a document; ``None`` where none has.

        Raises:
            DataError: A shard is damaged.
            StorageError: The store cannot be read.
        """
        return self._finder.find(key)

    def get(self, key: str) -> dict[str, Any] | None:
        """A document, see `Reader.get`; ``None`` where there is none.

        Raises:
            FormatError: A piece of it is missing, or may be.
            DataError, StorageError: As `bin_of`.
        """
        found = sorted(self._pieces(key), key=lambda piece: piece[:2])
        if not found:
            return None
        if self._bins.partial:
            raise FormatError(
                "the document may go on in a bin that is not here: these are some of the bins of another data set",
                url=self._rows.dataset.url,
                key=key,
                hint="read it from the data set that they were taken of; the bins themselves are read as ever",
            )
        pieces: list[StoredPiece] = []
        end = 0
        for piece in found:  # of several documents of one key the first one's begins are met first
            if piece.offset == end:
                pieces.append(piece)
                end += len(piece.ids)
        if found[-1].offset > end or not pieces:
            raise FormatError(
                f"no bin has token {end:,} of the document, which goes on behind it",
                url=self._rows.dataset.url,
                key=key,
                hint="pack it again",
            )
        places = [(one.bin, one.begin, len(one.ids)) for one in pieces]
        named = {"__key__": key} | whole_document(pieces, self._bins.field)
        return named | {f"{self._bins.field}.places": np.array(places, np.int64)}

    def _pieces(self, key: str) -> Iterator[StoredPiece]:
        numbers = sorted(set(self._finder.candidates(key)))
        for start in range(0, len(numbers), _TOGETHER):
            some = numbers[start : start + _TOGETHER]
            batch = self._rows.read_ids(some, present=True)
            for i, number in enumerate(some):
                bin = BinPieces(self._rows, self._bins, batch, i, number)
                yield from (bin.piece(at) for at, one in enumerate(bin.keys) if one == key)
