"""Bins as samples: the tokens in one row, and what says of them where documents begin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import FieldError
from shardstream.pack.bins.binning import Binning
from shardstream.shards.fields import FieldType
from shardstream.shards.writing import EncodedSample, OneShard, encode_value

_LENGTHS, _NUMBERS = FieldType.parse("values:int32"), FieldType.parse("values:uint32")
_COUNT, _JSON = FieldType.parse("uint32"), FieldType.parse("json")


class DocumentPiece(NamedTuple):
    """A document, or a part of it.

    Attributes:
        key: Of the document.
        offset: Which of its tokens comes first.
        columns: What the document has besides: type and value by name.
        ids: The tokens.
        loss: Which of them are learned from; ``None`` for all.
    """

    key: str
    offset: int
    columns: Mapping[str, tuple[FieldType, Any]]
    ids: NDArray[Any]
    loss: NDArray[np.bool_] | None


class BinRows:
    """Writes bins into a shard.

    Args:
        shard: The shard.
        binning: The bins.
        name: What their keys begin with.

    Attributes:
        written: How many there are so far.
        pieces: How many pieces of documents lie in them.
    """

    def __init__(self, shard: OneShard, binning: Binning, name: str) -> None:
        self._shard, self._binning, self._name = shard, binning, name
        self._columns: dict[str, FieldType] = {}
        self._masked = False
        self.written = self.pieces = 0

    def admit(self, key: str, columns: Mapping[str, tuple[FieldType, Any]]) -> None:
        """Refuse columns that do not go with those of documents before; FieldError."""
        for name, (kind, _) in columns.items():
            known = self._columns.setdefault(name, kind)
            if known != kind:
                hint = "declare one type for all samples"
                raise FieldError(f"the field is {known}, not {kind}", key=key, field=name, hint=hint)

    def write(self, pieces: Sequence[tuple[int, DocumentPiece]]) -> None:
        """Write a bin.

        Args:
            pieces: What lies in it, each with the place where it begins, in order.
        """
        binning = self._binning
        row = np.full(binning.size, binning.pad, binning.dtype)
        loss = np.ones(binning.size, bool)
        lengths: list[int] = []
        filled = 0
        for begin, piece in pieces:
            if begin > filled:
                lengths.append(filled - begin)
            filled = begin + len(piece.ids)
            row[begin:filled] = piece.ids
            lengths.append(len(piece.ids))
            if piece.loss is not None:
                loss[begin:filled] = piece.loss
        if filled < binning.size:
            lengths.append(filled - binning.size)
        documents = [piece for _, piece in pieces]
        offsets = [piece.offset for piece in documents]
        beside = binning.bins.beside
        sample: dict[str, tuple[FieldType, Any]] = {
            binning.field: (binning.type, row),
            beside("lengths"): (_LENGTHS, np.array(lengths, np.int32)),
            beside("keys"): (_JSON, [piece.key for piece in documents]),
            beside("documents"): (_COUNT, offsets.count(0)),
        }
        for name in self._columns:
            if any(name in piece.columns for piece in documents):
                sample[name] = self._column(name, documents)
        # Rows that lack what others have are read one by one: what has nothing to say is empty.
        sample[beside("offsets")] = _NUMBERS, np.array(offsets if any(offsets) else [], np.uint32)
        self._masked |= not loss.all()
        if self._masked:
            sample[beside("loss")] = _NUMBERS, _runs(loss)
        self._shard.write(f"{self._name}/{self.written:06d}", _encoded(sample))
        self.written += 1
        self.pieces += len(pieces)

    def _column(self, name: str, documents: Sequence[DocumentPiece]) -> tuple[FieldType, Any]:
        kind = self._columns[name]
        values = [piece.columns[name][1] if name in piece.columns else None for piece in documents]
        if kind.kind != "scalar":
            return _JSON, values
        assert kind.dtype is not None
        if None in values and kind.dtype.kind != "f":
            raise missing_integer(name, documents[values.index(None)].key)
        numbers = [np.nan if one is None else one for one in values]
        return FieldType.parse(f"values:{kind.name}"), np.array(numbers, kind.dtype)


def missing_integer(name: str, key: str, *, text: str = "text") -> FieldError:
    """The error for a document without a value of an integer field that others have.

    Args:
        name: The field.
        key: Of the document.
        text: The field that holds the text, for the hint.
    """
    return FieldError(
        f"the document has no {name!r}, which others have: in bins, integers are of all documents or of none",
        key=key,
        field=name,
        hint=f"store it as float64, where a missing number is nan: --field {text}={text} --field {name}={name}:float64 "
        f"(fields={{{text!r}: {text!r}, {name!r}: '{name}:float64'}}); or fill it in with transform=",
    )


def _runs(mask: NDArray[np.bool_]) -> NDArray[np.uint32]:
    """Lengths of runs of True and False by turns, the first of True: of 0 where the mask begins with False.

    None where all is True.
    """
    if mask.all():
        return np.empty(0, np.uint32)
    turns = np.flatnonzero(mask[1:] != mask[:-1]) + 1
    bounds = np.concatenate(([0] if mask[0] else [0, 0], turns, [len(mask)]))
    return np.diff(bounds).astype(np.uint32)


def _encoded(sample: Mapping[str, tuple[FieldType, Any]]) -> EncodedSample:
    return {name: (kind, encode_value(name, kind, value)) for name, (kind, value) in sample.items()}
