"""Rows of tokens in which documents lie: where each begins, and what follows from that. Arithmetic on whole batches.

Bins are laid end to end, so that a piece of a document is a range of one long row, whatever the rows are that it is
delivered in.
"""

from __future__ import annotations

from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardstream.shards.bins import PerBin, StoredBins, cut_where_rows_end

IGNORED = -100
"""The label of tokens that no loss is of: the default of ``torch.nn.functional.cross_entropy``."""
_LONG = 256  # tokens of a piece, on average


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
