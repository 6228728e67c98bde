"""Rows of tokens in which documents lie: where each begins, and what follows from that. Arithmetic on whole batches.

Bins are laid end to end, so that a piece of a document is a range of one long row, whatever the rows are that it is
delivered in.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import DecodeError
from shardstream.shards.bins import cut_where_rows_end

IGNORED = -100
"""The label of tokens that no loss is of: the default of ``torch.nn.functional.cross_entropy``."""
_LONG = 256  # tokens of a piece, on average


class PerBin(NamedTuple):
    """Numbers that are stored of some bins, those of each behind those of the one before.

    Attributes:
        values: All of them, (n,).
        counts: How many each bin has, int64 (bins,).
    """

    values: NDArray[Any]
    counts: NDArray[np.int64]

    @classmethod
    def of(cls, rows: Sequence[NDArray[Any]]) -> PerBin:
        """Of an array for each bin."""
        return cls(np.concatenate(rows), np.array([len(row) for row in rows], np.int64))

    @classmethod
    def none(cls, bins: int) -> PerBin:
        """Of bins that have none."""
        return cls(np.empty(0, np.int64), np.zeros(bins, np.int64))

    def sums(self, of: NDArray[Any]) -> NDArray[np.int64]:
        """The sum of what ``of`` has for each number, (n,), by bin: int64 (bins,)."""
        ends = np.cumsum(self.counts)
        summed = np.concatenate(([0], np.cumsum(of, dtype=np.int64)))
        sums: NDArray[np.int64] = summed[ends] - summed[ends - self.counts]
        return sums


class StoredBins(NamedTuple):
    """Bins as they are stored.

    Attributes:
        ids: Tokens, unsigned (bins, size).
        lengths: Of the pieces in each bin, negative where nothing lies.
        offsets: Which token of its document each piece in a bin begins with; of a bin without any: the first.
        loss: Runs of tokens that are learned from and not, by turns; of a bin without any: all are.
    """

    ids: NDArray[Any]
    lengths: PerBin
    offsets: PerBin
    loss: PerBin

    def wrong(self) -> dict[int, str]:
        """The bins that contradict themselves, and how."""
        size = self.ids.shape[1]
        values = self.lengths.values.astype(np.int64)
        filled = self.lengths.sums(np.abs(values))
        found = {i: f"lengths of {filled[i]:,} tokens in a bin of {size:,}" for i in _where(filled != size)}
        if not values.all():
            found |= dict.fromkeys(_where(self.lengths.sums(values == 0)), "a piece without tokens")
        if len(self.offsets.values):
            documents, given = self.lengths.sums(values > 0), self.offsets.counts
            found |= dict.fromkeys(_where(given * (given != documents)), "other numbers of offsets and of documents")
        if len(self.loss.values):
            runs = self.loss.sums(self.loss.values)
            what = "runs of the loss mask that are not of all tokens"
            found |= dict.fromkeys(_where((runs != size) & (self.loss.counts > 0)), what)
        return found


def _where(mask: NDArray[Any]) -> list[int]:
    places: list[int] = np.flatnonzero(mask).tolist()
    return places


def damaged(what: str, **place: str | int) -> DecodeError:
    """The error of a bin that contradicts itself."""
    return DecodeError(what, hint="the bin contradicts itself: pack it again", **place)


class Pieces(NamedTuple):
    """Where documents lie in rows that are laid end to end, and where nothing does. All arrays are (pieces,).

    Attributes:
        begins: Where each begins, int64.
        sizes: Its tokens, at least 1, int64.
        documents: Whether it is of a document, bool.
        positions: The position id of its first token, int64.
    """

    begins: NDArray[np.int64]
    sizes: NDArray[np.int64]
    documents: NDArray[np.bool_]
    positions: NDArray[np.int64]

    @classmethod
    def of(cls, bins: StoredBins, length: int, *, go_on: bool) -> Pieces:
        """The pieces of all bins.

        Args:
            bins: Bins that do not contradict themselves.
            length: Of the rows that they are cut into.
            go_on: Whether the positions of a piece go on from the one before.
        """
        signed = bins.lengths.values.astype(np.int64)
        sizes, documents = np.abs(signed), signed > 0
        begins = np.cumsum(sizes) - sizes
        positions = np.zeros(len(sizes), np.int64)
        if go_on and len(bins.offsets.values):
            there = np.repeat(bins.offsets.counts > 0, bins.lengths.counts)
            positions[documents & there] = bins.offsets.values
        if length == bins.ids.shape[1]:
            return cls(begins, sizes, documents, positions)
        of, starts, cut = cut_where_rows_end(begins, sizes, length)
        moved = starts - begins[of] if go_on else 0
        return cls(starts, cut, documents[of], positions[of] + moved)

    def fill_positions(self, out: NDArray[np.int64]) -> None:
        """Write position ids, (tokens,)."""
        if not self._few(len(out)):
            np.subtract(np.arange(len(out)), np.repeat(self.begins - self.positions, self.sizes), out=out)
            return
        counted = np.arange(int((self.positions + self.sizes).max()))
        for begin, size, first in zip(self.begins.tolist(), self.sizes.tolist(), self.positions.tolist(), strict=True):
            out[begin : begin + size] = counted[first : first + size]

    def fill_segments(self, out: NDArray[np.int32], length: int) -> None:
        """Write numbers of documents, from 1 on in each row of this length, (tokens,)."""
        counted = np.cumsum(self.documents)
        rows = self.begins // length
        first = np.searchsorted(rows, rows)  # the first piece of each one's row
        before: NDArray[np.int64] = (counted - self.documents)[first]
        numbers: NDArray[np.int32] = np.where(self.documents, counted - before, 0).astype(np.int32)
        if not self._few(len(out)):
            out[:] = np.repeat(numbers, self.sizes)
            return
        for begin, size, number in zip(self.begins.tolist(), self.sizes.tolist(), numbers.tolist(), strict=True):
            out[begin : begin + size] = number

    def _few(self, tokens: int) -> bool:
        """Whether pieces are so long that to go from one to the next costs less than arrays of all tokens."""
        return len(self.sizes) * _LONG <= tokens

    def fill_labels(self, ids: NDArray[np.int64], loss: PerBin, out: NDArray[np.int64], *, behind: bool) -> None:
        """Write labels, (tokens,).

        Args:
            ids: The tokens, (tokens,).
            loss: As of `StoredBins`.
            out: Where to.
            behind: Whether the label of a token is the one behind it.
        """
        if behind:
            out[:-1] = ids[1:]
        else:
            out[:] = ids
        if len(loss.values):
            self._mask(loss, out, int(behind))
        out[self.begins + self.sizes - 1 if behind else self.begins] = IGNORED
        empty = ~self.documents
        for begin, count in zip(self.begins[empty].tolist(), self.sizes[empty].tolist(), strict=True):
            out[begin : begin + count] = IGNORED

    def _mask(self, loss: PerBin, out: NDArray[np.int64], shift: int) -> None:
        size, at = len(out) // len(loss.counts), 0
        for number, count in enumerate(loss.counts.tolist()):
            ends = number * size + np.cumsum(loss.values[at : at + count], dtype=np.int64)
            at += count
            for begin, end in zip(ends[:-1:2].tolist(), ends[1::2].tolist(), strict=False):
                out[max(begin - shift, 0) : max(end - shift, 0)] = IGNORED

    def kept(self) -> NDArray[np.bool_] | None:
        """Which tokens are of documents, (tokens,); ``None`` where all are."""
        return None if self.documents.all() else np.repeat(self.documents, self.sizes)

    def bounds(self, *, flat: bool) -> NDArray[np.int32]:
        """Where pieces begin, and the end of the last; ``flat``: of documents alone, what is empty being left out."""
        sizes = self.sizes[self.documents] if flat else self.sizes
        return np.fromiter(chain((0,), np.cumsum(sizes).tolist()), np.int32)
