"""How many documents, pieces and tokens are in the bins of a shard."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardstream.shards.bins import Bins
from shardstream.shards.writing import EncodedSample


class BinCounts(NamedTuple):
    """What became of documents.

    Attributes:
        bins: Bins that were written.
        documents: Documents that are in them.
        pieces: Their pieces.
        tokens: Their tokens.
        truncated: Of how many documents the end was left out.
        cut: By length of the rows that bins may be read as, how many documents lie in several rows.
    """

    bins: int
    documents: int
    pieces: int
    tokens: int
    truncated: int
    cut: dict[int, int]


class StoredBinCounter:
    """Counts what is in bins that are stored as they are.

    Args:
        bins: What their data set says of them.

    Attributes:
        counts: What was found.
    """

    def __init__(self, bins: Bins) -> None:
        self._lengths, self._offsets = bins.beside("lengths"), bins.beside("offsets")
        self.counts = BinCounts(0, 0, 0, 0, 0, {})

    def add(self, sample: EncodedSample) -> None:
        """Count those of a bin."""
        lengths, offsets = (_numbers(sample, name) for name in (self._lengths, self._offsets))
        pieces = lengths[lengths > 0]
        begun = len(pieces) if len(offsets) == 0 else int((offsets == 0).sum())
        counts = self.counts
        self.counts = counts._replace(
            bins=counts.bins + 1,
            documents=counts.documents + begun,
            pieces=counts.pieces + len(pieces),
            tokens=counts.tokens + int(pieces.sum(dtype=np.int64)),
        )


def _numbers(sample: EncodedSample, name: str) -> NDArray[Any]:
    kind, stored = sample.get(name, (None, b""))
    if kind is None or kind.elements is None or not isinstance(stored, bytes | memoryview):
        return np.empty(0, np.int64)
    return np.frombuffer(stored, kind.elements)
