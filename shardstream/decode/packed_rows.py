"""Rows of tokens in which documents lie: where each begins, and what follows from that. Arithmetic on whole batches.

Bins are laid end to end, so that a piece of a document is a range of one long row, whatever the rows are that it is
delivered in.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shardstream.shards.bins import StoredBins, cut_where_rows_end

IGNORED = -100
"""The label of tokens that no loss is of: the default of ``torch.nn.functional.cross_entropy``."""
Empty: TypeAlias = "Callable[[tuple[int, ...], type[np.generic]], NDArray[Any]]"
"""Gives an array of a shape and dtype to write into."""


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
        most = max(len(out), int((self.positions + self.sizes).max(initial=0)))
        kind = np.int32 if most <= np.iinfo(np.int32).max else np.int64  # half the memory is half the time
        starts = np.repeat((self.begins - self.positions).astype(kind), self.sizes)
        out[:] = np.subtract(_counted(len(out), kind), starts, out=starts)

    def fill_segments(self, out: NDArray[np.int32], rows: NDArray[np.int64]) -> None:
        """Write numbers of documents, (tokens,), from 1 on in each row.

        Args:
            out: Where to.
            rows: In which row each piece lies, (pieces,).
        """
        counted = np.cumsum(self.documents)
        first = np.searchsorted(rows, rows)  # the first piece of each one's row
        before: NDArray[np.int64] = (counted - self.documents)[first]
        numbers: NDArray[np.int32] = np.where(self.documents, counted - before, 0).astype(np.int32)
        out[:] = np.repeat(numbers, self.sizes)

    def fill_labels(
        self, ids: NDArray[Any], learned: NDArray[np.bool_] | None, out: NDArray[np.int64], *, behind: bool
    ) -> None:
        """Write labels, (tokens,).

        Args:
            ids: The tokens, (tokens,).
            learned: Whether each is learned from, (tokens,); ``None``: all are.
            out: Where to.
            behind: Whether the label of a token is the one behind it.
        """
        labels = out[:-1] if behind else out
        labels[:] = ids[int(behind) :]
        if learned is not None:
            labels[~learned[int(behind) :]] = IGNORED
        out[self.begins + self.sizes - 1 if behind else self.begins] = IGNORED
        empty = ~self.documents
        for begin, count in zip(self.begins[empty].tolist(), self.sizes[empty].tolist(), strict=True):
            out[begin : begin + count] = IGNORED

    def closed_up(self, begins: NDArray[np.int64]) -> tuple[Pieces, NDArray[np.int64]]:
        """The pieces of documents alone, end to end, and where batches then begin, and the last one ends.

        Args:
            begins: The same where they lie now, (batches + 1,).
        """
        own = self.documents
        sizes = self.sizes[own]
        ends = np.cumsum(sizes)
        filled = np.concatenate(([0], np.cumsum(self.sizes * own)))  # before each piece, and the end
        closed = Pieces(ends - sizes, sizes, own[own], self.positions[own])
        return closed, filled[np.searchsorted(self.begins, begins)]

    def split(self, begins: NDArray[np.int64]) -> list[Pieces]:
        """The pieces of each batch, where these begin, and the last one ends: (batches + 1,)."""
        if len(begins) == 2:
            return [self]
        cuts = np.searchsorted(self.begins, begins).tolist()
        ranges = [slice(*bounds) for bounds in pairwise(cuts)]
        return [Pieces(self.begins[of], self.sizes[of], self.documents[of], self.positions[of]) for of in ranges]

    def bounds(self, empty: Empty) -> NDArray[np.int32]:
        """Where pieces begin, and the end of the last, (pieces + 1,)."""
        bounds = empty((len(self.sizes) + 1,), np.int32)
        bounds[0] = 0
        np.cumsum(self.sizes, out=bounds[1:])
        return bounds


@lru_cache(1)
def _counted(tokens: int, kind: type[np.signedinteger[Any]]) -> NDArray[np.signedinteger[Any]]:
    counted = np.arange(tokens, dtype=kind)
    counted.flags.writeable = False
    return counted
