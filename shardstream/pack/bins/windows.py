"""Documents wait until there are enough of them to fill bins well, and become bins.

A window is closed when what does not fill bins by itself, documents and the rests of long ones, would fill 4,096 bins,
or so many that some 32 million tokens are held. The documents of the bin that is filled least go on into the next
window. So of all bins of a shard only the last window's may have one that is filled badly, and which documents meet
depends on nothing but their order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardstream.pack.bins.binning import Binning
from shardstream.pack.bins.counts import BinCounts
from shardstream.pack.bins.documents import Document
from shardstream.pack.bins.fitting import best_fit
from shardstream.pack.bins.rows import BinRows, DocumentPiece
from shardstream.rng import Domain, words
from shardstream.shards.bins import cut_where_rows_end
from shardstream.shards.fields import FieldType
from shardstream.shards.index import check_key
from shardstream.shards.writing import OneShard

_HELD = 1.5  # times as many are held at most, where long documents fill bins by themselves


class _Segments(NamedTuple):
    """Where what waits is put, in bins that are laid end to end.

    Attributes:
        entries: Which of the documents that wait, int64 (n,).
        offsets: From which of its tokens on, int64 (n,).
        lengths: How many tokens, int64 (n,).
        places: Where the first of them goes, int64 (n,).
        kept: What goes on to the next window: documents, and from which token on.
    """

    entries: NDArray[np.int64]
    offsets: NDArray[np.int64]
    lengths: NDArray[np.int64]
    places: NDArray[np.int64]
    kept: Sequence[tuple[int, int]]

    def cut(self, size: int) -> _Segments:
        """The same, cut where bins end."""
        of, begins, lengths = cut_where_rows_end(self.places, self.lengths, size)
        return _Segments(self.entries[of], self.offsets[of] + begins - self.places[of], lengths, begins, ())


class _Waiting:
    """Documents, or what is left of them, in the order in which they came.

    Args:
        dtype: Of the tokens.
    """

    def __init__(self, dtype: str) -> None:
        self._ids = np.empty(1 << 16, dtype)
        self._loss: NDArray[np.bool_] | None = None
        self._starts = [0]
        self._keys: list[str] = []
        self._offsets: list[int] = []
        self._columns: list[Mapping[str, tuple[FieldType, Any]]] = []

    @property
    def tokens(self) -> int:
        """How many tokens they have."""
        return self._starts[-1]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each, int64 (n,)."""
        starts = np.array(self._starts, np.int64)
        return starts[1:] - starts[:-1]

    @property
    def offsets(self) -> NDArray[np.int64]:
        """Which token of its document each begins with, int64 (n,)."""
        return np.array(self._offsets, np.int64)

    def add(self, piece: DocumentPiece) -> None:
        """Add one."""
        begin = self.tokens
        stop = begin + len(piece.ids)
        if stop > len(self._ids):
            self._ids = _grown(self._ids, begin, stop)
        self._ids[begin:stop] = piece.ids
        if piece.loss is not None and self._loss is None:
            self._loss = np.ones(len(self._ids), bool)
        if self._loss is not None:
            if stop > len(self._loss):
                self._loss = _grown(self._loss, begin, stop)
            self._loss[begin:stop] = True if piece.loss is None else piece.loss
        self._starts.append(stop)
        self._keys.append(piece.key)
        self._offsets.append(piece.offset)
        self._columns.append(piece.columns)

    def piece(self, entry: int, offset: int, length: int | None = None) -> DocumentPiece:
        """So many tokens of one, from one of them on; ``None`` for all that follow."""
        begin = self._starts[entry] + offset
        stop = self._starts[entry + 1] if length is None else begin + length
        loss = None if self._loss is None else self._loss[begin:stop]
        of = self._keys[entry], self._offsets[entry] + offset, self._columns[entry]
        return DocumentPiece(*of, self._ids[begin:stop], loss)


def _grown(array: NDArray[Any], filled: int, least: int) -> NDArray[Any]:
    found = np.empty(max(least, 2 * len(array)), array.dtype)
    found[:filled] = array[:filled]
    return found


@dataclass(frozen=True, slots=True)
class ShardBins:
    """How the documents of a shard become bins.

    Attributes:
        binning: The bins.
        name: What their keys begin with.
        seed: Of the order of the bins of a window; ``None`` for that of their first documents.
        number: Of the shard, by which windows of one seed differ.
        window: Tokens that wait together.
    """

    binning: Binning
    name: str
    seed: int | None
    number: int
    window: int


class BinWriter:
    """Writes documents into a shard, as bins.

    Args:
        shard: The shard.
        how: How its documents become bins.
    """

    def __init__(self, shard: OneShard, how: ShardBins) -> None:
        self._how = how
        self._binning = binning = how.binning
        self._rows = BinRows(shard, binning, how.name)
        self._windows = 0
        self._waiting = _Waiting(binning.dtype)
        self._loose = 0  # tokens that wait, but for those that fill bins by themselves
        self._documents = self._tokens = self._truncated = 0
        self._cut = dict.fromkeys(binning.lengths, 0)

    def add(self, key: str, document: Document) -> None:
        """Add a document.

        Raises:
            UsageError: A key that cannot be one. Nothing was added.
            FieldError: A column of it has another type than that of other documents.
        """
        self._rows.admit(check_key(key), document.columns)
        self._waiting.add(DocumentPiece(key, 0, document.columns, document.ids, document.loss))
        count, size = len(document.ids), self._binning.size
        self._documents += 1
        self._tokens += count
        self._truncated += count < document.whole
        self._loose += count % size if self._binning.packing == "fit" else count
        if self._loose >= self._how.window or self._waiting.tokens >= _HELD * self._how.window:
            self._close(last=False)

    def finish(self) -> BinCounts:
        """Write what waits; the caller finishes the shard."""
        if self._waiting.tokens:
            self._close(last=True)
        return BinCounts(
            self._rows.written, self._documents, self._rows.pieces, self._tokens, self._truncated, self._cut
        )

    def _close(self, *, last: bool) -> None:
        place = self._fit if self._binning.packing == "fit" else self._laid
        segments = place(self._waiting.lengths, last=last)
        pieces = segments.cut(self._binning.size)
        bins = pieces.places // self._binning.size
        ranks = self._ranks(bins, pieces.entries)
        order = np.argsort(ranks[bins] * self._binning.size + pieces.places % self._binning.size, kind="stable")
        columns = (pieces.entries, pieces.offsets, pieces.lengths, pieces.places % self._binning.size, bins)
        row: list[tuple[int, DocumentPiece]] = []
        now = -1
        for entry, offset, length, place_in_bin, number in zip(*(one[order].tolist() for one in columns), strict=True):
            if number != now and row:
                self._rows.write(row)
                row = []
            now = number
            row.append((place_in_bin, self._waiting.piece(entry, offset, length)))
        if row:
            self._rows.write(row)
        waiting, self._waiting = self._waiting, _Waiting(self._binning.dtype)
        for entry, offset in segments.kept:
            self._waiting.add(waiting.piece(entry, offset))
        self._loose = self._waiting.tokens
        self._windows += 1

    def _fit(self, lengths: NDArray[np.int64], *, last: bool) -> _Segments:
        """Each where it fits best; what is longer than a bin fills some, and its rest goes where it fits."""
        size = self._binning.size
        self._count_cut(lengths, np.zeros(len(lengths), np.int64))
        whole = lengths // size * size
        loose, full = np.flatnonzero(lengths > whole), np.flatnonzero(whole)
        rests = (lengths - whole)[loose]
        places = best_fit(rests, size, self._binning.least)
        bins = places // size
        count = int(bins.max(initial=-1)) + 1
        kept: Sequence[tuple[int, int]] = ()
        if not last and count:
            worst = count - 1 - int(np.argmin(np.bincount(bins, rests, count)[::-1]))
            goes = bins == worst
            kept = [(entry, int(whole[entry])) for entry in loose[goes].tolist()]
            places -= size * (bins > worst)
            loose, rests, places, count = loose[~goes], rests[~goes], places[~goes], count - 1
        own = count * size + np.cumsum(whole[full]) - whole[full]
        return _Segments(
            np.concatenate((loose, full)),
            np.concatenate((whole[loose], np.zeros(len(full), np.int64))),
            np.concatenate((rests, whole[full])),
            np.concatenate((places, own)),
            kept,
        )

    def _laid(self, lengths: NDArray[np.int64], *, last: bool) -> _Segments:
        """End to end; the bin that is not filled goes on into the next window."""
        ends = np.cumsum(lengths)
        places = ends - lengths
        self._count_cut(lengths, places)
        stop = int(ends[-1]) if last else int(ends[-1]) // self._binning.size * self._binning.size
        entries = np.flatnonzero(places < stop)
        begins = np.maximum(stop - places, 0)
        kept = [(entry, int(begins[entry])) for entry in np.flatnonzero(ends > stop).tolist()]
        of = (entries, np.zeros(len(entries), np.int64), np.minimum(lengths, stop - places)[entries], places[entries])
        return _Segments(*of, kept)

    def _count_cut(self, lengths: NDArray[np.int64], places: NDArray[np.int64]) -> None:
        """Count the documents that lie in several rows, when they come first: what goes on keeps its place in a bin."""
        new = self._waiting.offsets == 0
        for size in self._cut:
            self._cut[size] += int((new & ((places + lengths - 1) // size > places // size)).sum())

    def _ranks(self, bins: NDArray[np.int64], entries: NDArray[np.int64]) -> NDArray[np.int64]:
        """In which order the bins of this window are written: ``ranks[bin]``."""
        count = int(bins.max(initial=-1)) + 1
        if self._how.seed is None:
            by = np.full(count, np.iinfo(np.int64).max)
            np.minimum.at(by, bins, entries)
        else:
            by = words(count, seed=self._how.seed, domain=Domain.BINS, a=self._how.number, b=self._windows)
        ranks = np.empty(count, np.int64)
        ranks[np.argsort(by, kind="stable")] = np.arange(count)
        return ranks
