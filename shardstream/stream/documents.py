"""Documents that lie in bins, whole again: their pieces are found by key, and put together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardstream.dataset.dataset_rows import DatasetRows
from shardstream.dataset.keys.finder import KeyFinder
from shardstream.dataset.keys.listings import DocumentKeys
from shardstream.dataset.opened import OpenedDataset
from shardstream.dataset.rows import RowBatch
from shardstream.decode.packed_rows import PerBin, Pieces, StoredBins, damaged
from shardstream.errors import FormatError
from shardstream.shards.bins import LOSS, Beside, Bins
from shardstream.shards.framing import MAX_VALUE
from shardstream.stream.batching.samples import location_in

_TOGETHER = 256  # bins that are read at once


class _Piece(NamedTuple):
    """A piece of a document.

    Attributes:
        offset: Which token of the document it begins with.
        bin: The bin that it lies in.
        begin: Where it begins in the bin.
        ids: Its tokens.
        loss: Which of them are learned from, bool; ``None`` for all.
        columns: What the document has besides.
    """

    offset: int
    bin: int
    begin: int
    ids: NDArray[Any]
    loss: NDArray[np.bool_] | None
    columns: dict[str, Any]


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
        self._keys = DocumentKeys(bins)
        self._types = dataset.manifest.fields
        self._rows = DatasetRows(dataset, verify=verify, max_value=max_value)
        self._finder = KeyFinder(self._rows, self._keys)

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
            FormatError: A piece of it is missing.
            DataError, StorageError: As `bin_of`.
        """
        pieces = sorted(self._pieces(key), key=lambda piece: piece[:2])
        if not pieces:
            return None
        whole: list[_Piece] = []
        end = 0
        for piece in pieces:  # of several documents of one key the first one's begins are met first
            if piece.offset == end:
                whole.append(piece)
                end += len(piece.ids)
        if not whole or pieces[-1].offset > end:
            raise FormatError(
                f"no bin has token {end:,} of the document, which goes on behind it",
                url=self._rows.dataset.url,
                key=key,
                hint="pack it again",
            )
        return self._joined(key, whole)

    def _joined(self, key: str, pieces: Sequence[_Piece]) -> dict[str, Any]:
        field = self._bins.field
        found = {"__key__": key, field: np.concatenate([piece.ids for piece in pieces])} | pieces[0].columns
        if any(piece.loss is not None for piece in pieces):
            masks = (np.ones(len(one.ids), bool) if one.loss is None else one.loss for one in pieces)
            found[LOSS] = np.concatenate(list(masks))
        found[f"{field}.places"] = np.array([(one.bin, one.begin, len(one.ids)) for one in pieces], np.int64)
        return found

    def _pieces(self, key: str) -> Iterator[_Piece]:
        numbers = sorted(set(self._finder.candidates(key)))
        for start in range(0, len(numbers), _TOGETHER):
            some = numbers[start : start + _TOGETHER]
            batch = self._rows.read_ids(some, present=True)
            for i, number in enumerate(some):
                keys = self._keys.keys(batch, i, self._rows.dataset.url)
                if key in keys:
                    yield from self._in_bin(batch, i, number, keys, key)

    def _in_bin(self, batch: RowBatch, i: int, number: int, keys: list[str], key: str) -> Iterator[_Piece]:
        """The pieces of a document in a bin, of which there is one unless several documents have this key."""
        where = location_in(batch, i) | {"url": self._rows.dataset.url}
        ids = batch.value(self._bins.field, i)
        if ids is None:
            raise damaged(f"the bin has no {self._bins.field!r}", **where)
        bins = StoredBins(ids[None], *(self._numbers(batch, i, what) for what in ("lengths", "offsets", "loss")))
        for what in bins.wrong().values():
            raise damaged(what, **where)
        pieces = Pieces.of(bins, self._bins.size, go_on=True)
        begins, sizes, offsets = (
            of[pieces.documents].tolist() for of in (pieces.begins, pieces.sizes, pieces.positions)
        )
        if len(keys) != len(begins):
            raise damaged(f"the bin has {len(begins)} documents and names {len(keys)}", **where)
        runs = bins.loss.values
        loss = np.repeat(np.arange(len(runs)) % 2 == 0, runs) if len(runs) else None
        for at, (begin, size, offset) in enumerate(zip(begins, sizes, offsets, strict=True)):
            if keys[at] == key:
                part = slice(begin, begin + size)
                mask = None if loss is None else loss[part]
                yield _Piece(offset, number, begin, ids[part].copy(), mask, self._columns(batch, i, at, len(keys)))

    def _numbers(self, batch: RowBatch, i: int, what: Beside) -> PerBin:
        name = self._bins.beside(what)
        raw = batch.value(name, i) if name in batch.columns else None
        return PerBin.none(1) if raw is None else PerBin.of([self._types[name].decode(raw)])

    def _columns(self, batch: RowBatch, i: int, at: int, documents: int) -> dict[str, Any]:
        """What one of the documents of a bin has besides; missing text and JSON, and no number, is left out."""
        beside = f"{self._bins.field}."
        names = [name for name in batch.columns if name != self._bins.field and not name.startswith(beside)]
        values = {name: batch.value(name, i) for name in names}
        rows = {name: self._types[name].decode(raw) for name, raw in values.items() if raw is not None}
        found = {name: row[at] for name, row in rows.items() if _of_each(row, documents)}
        return {name: value for name, value in found.items() if value is not None}


def _of_each(row: Any, documents: int) -> bool:
    """Whether this has a value for each document of its bin."""
    return isinstance(row, list | np.ndarray) and len(row) == documents
