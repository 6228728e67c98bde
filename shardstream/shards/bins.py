"""Bins: samples that are rows of tokens, of several documents each. ``docs/format.md`` specifies their fields."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import DecodeError, UsageError
from shardstream.shards.fields import FieldType
from shardstream.sizes import plural

Beside: TypeAlias = Literal["lengths", "keys", "offsets", "documents", "loss"]

LOSS = "loss_mask"
"""The field of a document that says which of its tokens are learned from."""


def beside(field: str, what: Beside) -> str:
    """The name of a field beside the tokens.

    Args:
        field: The field that holds them.
        what: What it says of a bin.

        >>> beside("ids", "lengths")
        'ids.lengths'
    """
    return f"{field}.{what}"


def cut_where_rows_end(
    begins: NDArray[np.int64], sizes: NDArray[np.int64], length: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Ranges of rows that are laid end to end, cut where rows end.

    Args:
        begins: Where each begins, (n,).
        sizes: How long each is, at least 1, (n,).
        length: Of a row.

    Returns:
        Which range each piece is of, where it begins, and how long it is: (pieces,).

        >>> [one.tolist() for one in cut_where_rows_end(np.array([2]), np.array([5]), 4)]
        [[0, 0], [2, 4], [2, 3]]
    """
    first, ends = begins // length, begins + sizes
    counts = (ends - 1) // length - first + 1
    of = np.repeat(np.arange(len(counts)), counts)
    rows = first[of] + inside(counts)
    starts = np.maximum(rows * length, begins[of])
    return of, starts, np.minimum((rows + 1) * length, ends[of]) - starts


def inside(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Of things that lie together, so many in each place, the number of each in its place: int64 (all of them,)."""
    numbers: NDArray[np.int64] = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    return numbers


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
    def stored(cls, rows: Sequence[memoryview | None] | NDArray[Any], kind: np.dtype[Any]) -> PerBin:
        """Of the stored bytes of each bin; such as hold no numbers of this kind count as missing."""
        width = kind.itemsize
        there = [b"" if raw is None or len(raw) % width else raw for raw in rows]
        counts = np.array([len(raw) // width for raw in there], np.int64)
        return cls(np.frombuffer(b"".join(there), kind), counts)

    @classmethod
    def none(cls, bins: int) -> PerBin:
        """Of bins that have none."""
        return cls(np.empty(0, np.int64), np.zeros(bins, np.int64))

    def part(self, those: slice) -> PerBin:
        """Those of these bins."""
        counts = self.counts[those]
        if not len(self.values):
            return PerBin(self.values, counts)
        first = int(self.counts[: those.start].sum())
        return PerBin(self.values[first : first + int(counts.sum())], counts)

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

    def part(self, those: slice) -> StoredBins:
        """These of the bins."""
        return StoredBins(self.ids[those], *(stored.part(those) for stored in self[1:]))

    def learned(self) -> NDArray[np.bool_] | None:
        """Whether each token is learned from, all bins end to end: (bins * size,); ``None``: all are."""
        if not len(self.loss.values):
            return None
        counts = np.maximum(self.loss.counts, 1)
        runs = np.full(int(counts.sum()), self.ids.shape[1])  # that of a bin without any
        runs[np.repeat(self.loss.counts > 0, counts)] = self.loss.values
        return np.repeat(inside(counts) % 2 == 0, runs)

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


@dataclass(frozen=True, slots=True)
class Bins:
    """What a manifest says of the bins of a data set.

    Attributes:
        field: The field that holds the tokens, ``array:DTYPE:SIZE``. Those beside it are named by `beside`.
        size: Tokens of a bin.
        least: Length of the shortest rows that bins can be read as without cutting what fits into one.
        pad: The token that fills up what is free.
        packing: ``"fit"``, where no document that fits into a bin was cut, or ``"concat"``.
        tokenizer: What tells the tokenizer that made them from others; ``None`` where that is not known.
        documents: How many begin in all bins.
        pieces: How many pieces of documents the bins have: more than documents, where some are longer than a bin.
        tokens: Tokens of all bins, what fills them up left out.
        partial: Whether documents may lack pieces, which lie in bins of another data set that these were taken of.
    """

    field: str
    size: int
    least: int
    pad: int
    packing: str
    tokenizer: str | None = None
    documents: int = 0
    pieces: int = 0
    tokens: int = 0
    partial: bool = False

    @classmethod
    def parse(cls, entry: object, fields: Mapping[str, FieldType]) -> Bins | None:
        """What stands in a manifest.

        Args:
            entry: Its entry ``bins``; ``None`` where there is none.
            fields: The fields of the data set.

        Raises:
            ValueError, TypeError, KeyError: It is damaged, or not about these fields.
        """
        if entry is None:
            return None
        if not isinstance(entry, dict):
            raise TypeError("bins must be an object")
        optional = {"tokenizer", "partial"} - entry.keys()
        found = cls(**{name: entry[name] for name in cls.__dataclass_fields__ if name not in optional})
        if type(entry.get("tokenizer", "")) is not str or type(entry.get("partial", False)) is not bool:
            raise TypeError("the tokenizer of bins must be a string, and whether they are partial a boolean")
        numbers = (found.size, found.least, found.pad, found.documents, found.pieces, found.tokens)
        if not all(type(one) is int and one >= 0 for one in numbers):
            raise TypeError("sizes and counts of bins must be integers of at least 0")
        kind = fields[found.field]
        if kind.shape != (found.size,) or found.least < 1 or found.size % found.least:
            raise ValueError(f"bins of {found.size} in parts of {found.least}, in a field of {kind}")
        if found.beside("lengths") not in fields:
            raise ValueError(f"{found.field!r} lacks the lengths of documents")
        return found

    @property
    def entry(self) -> dict[str, Any]:
        """The same, for a manifest."""
        return {name: value for name, value in asdict(self).items() if value is not None and value is not False}

    def beside(self, what: Beside) -> str:
        """The name of a field beside the tokens."""
        return beside(self.field, what)

    def needs(self, fields: Collection[str]) -> set[str]:
        """Of the fields of a data set, those that make its samples bins."""
        return {self.field, *map(self.beside, get_args(Beside))} & set(fields)

    def told(self, bins: int) -> str:
        """How many documents and tokens they hold, and how full they are.

        Args:
            bins: How many there are.
        """
        full = self.tokens / (bins * self.size) if bins else 0.0
        said = f"{plural(self.documents, 'document')}, {plural(self.tokens, 'token')}, {full:.2%} full"
        return f"{said}; some may lack pieces" if self.partial else said

    def plus(self, other: Bins, mine: str, theirs: str) -> Bins:
        """Those of both.

        Raises:
            UsageError: They are of different kinds; names both places.
        """
        if self.tokenizer != other.tokenizer:
            raise UsageError(
                f"{mine} was tokenized by {self.tokenizer or 'what is not known'}, "
                f"{theirs} by {other.tokenizer or 'what is not known'}",
                hint="the same number would mean two tokens: take one tokenizer for both; "
                "PackedSequences(tokenizer_id=...) names that of tokens that come ready",
            )
        counts = {name: getattr(self, name) + getattr(other, name) for name in ("documents", "pieces", "tokens")}
        if replace(self, partial=other.partial, **{name: getattr(other, name) for name in counts}) != other:
            raise UsageError(
                f"{mine} has bins of {self}, {theirs} of {other}", hint="pack both with the same bins and bin_field"
            )
        return replace(self, partial=self.partial or other.partial, **counts)

    def __str__(self) -> str:
        return (
            f"{self.size:,} tokens of {self.field!r} ({self.packing}, down to {self.least:,}, padded with {self.pad})"
        )
