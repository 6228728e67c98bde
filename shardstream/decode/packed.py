"""Bins of documents as what language models are trained on: tokens, labels, and where documents begin and end."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shardstream.decode.context import SampleContext
from shardstream.decode.packed_rows import Empty, Pieces
from shardstream.decode.specs import Decoder, Out
from shardstream.errors import FieldError, UsageError, did_you_mean
from shardstream.shards.bins import Beside, PerBin, StoredBins, beside, damaged
from shardstream.shards.fields import FieldType, ValuesType

Labels: TypeAlias = Literal["same", "next"]
Positions: TypeAlias = Literal["restart", "continue"]

_OF_TOKENS: dict[str, type[np.generic]] = {
    "ids": np.int64,
    "labels": np.int64,
    "position_ids": np.int64,
    "segment_ids": np.int32,
}
OUTPUTS = (*_OF_TOKENS, "cu_seqlens", "max_seqlen")
_BESIDE: tuple[Beside, ...] = ("lengths", "offsets", "loss")
_HF = {
    "ids": ("input_ids",),
    "cu_seqlens": ("cu_seq_lens_q", "cu_seq_lens_k"),
    "max_seqlen": ("max_length_q", "max_length_k"),
}


@dataclass(frozen=True)
class Packed(Decoder):
    """Bins of documents (``bins=`` of `pack`) as tokens, labels, and what keeps documents apart.

    It makes several outputs, whatever it is called in ``fields``; a second one gives its own a ``prefix``. B bins are
    T/``length`` · B rows, those of one bin together. In the shapes below, L is ``length``:

    ==================  ==================  ==============================================================
    ``ids``             int64 (rows, L)     tokens; what stays free holds the padding token of the bins
    ``labels``          int64 (rows, L)     the tokens to predict, -100 where no loss is of them
    ``position_ids``    int64 (rows, L)     from 0 on in each document
    ``segment_ids``     int32 (rows, L)     documents numbered from 1 on in each row; 0 is padding
    ``cu_seqlens``      int32 (n + 1,)      where documents begin in all rows laid end to end, and their end; what
                                            stays free counts as a document
    ``max_seqlen``      int                 tokens of the longest of these
    ==================  ==================  ==============================================================

    Args:
        length: Tokens of a row: the size of the bins divided by a power of two. Documents that fit into a row are whole
            down to ``bin_min`` of `pack`; longer ones are cut. It is no part of what a state is about: it may change
            when a run is resumed. ``None``: the size of the bins.
        outputs: Those that are wanted, by the names above. Fewer take less time.
        labels: ``"same"``: the label of a token is itself, for models that shift labels, as those of Hugging Face do;
            the first one of a document has none. ``"next"``: it is the token behind; the last one has none. Where
            documents were packed with a ``loss_mask``, only tokens that it names are labels.
        pieces: Position ids of a piece of a document that was cut: ``"restart"`` from 0, as all that it sees is
            the piece, or ``"continue"`` where the piece before ends.
        flat: All rows as a single one without padding, as kernels for sequences of various lengths take them: shapes
            (1, n), and ``segment_ids`` go on through all of them.
        names: ``"own"`` as above, or ``"hf"`` as `transformers.DataCollatorWithFlattening` calls them, and ``flat``:
            ``input_ids``, ``labels``, ``position_ids``, ``segment_ids``, ``cu_seq_lens_q``, ``cu_seq_lens_k``,
            ``max_length_q``, ``max_length_k``.
        prefix: What the names of the outputs begin with.
        source: The field that holds the tokens, ``bin_field`` of `pack`.

    Returns:
        A sample by itself has arrays without the first dimension, where that is 1.

    Raises:
        UsageError: An argument that is not allowed.

        >>> fields = {"text": Packed(outputs=("ids", "labels"))}
    """

    length: int | None = None
    outputs: Sequence[str] = OUTPUTS
    labels: Labels = "same"
    pieces: Positions = "restart"
    flat: bool = False
    names: Literal["own", "hf"] = "own"
    prefix: str = ""
    source: str | None = field(default="ids", kw_only=True)

    accepts: ClassVar[frozenset[str]] = frozenset({"fixed"})

    def __post_init__(self) -> None:
        object.__setattr__(self, "outputs", tuple(self.outputs))
        for name in self.outputs:
            if name not in OUTPUTS:
                hint = f"{did_you_mean(name, OUTPUTS)}outputs are {', '.join(OUTPUTS)}"
                raise UsageError(f"Packed has no output {name!r}", hint=hint)
        if not self.outputs or len(set(self.outputs)) < len(self.outputs):
            raise UsageError(f"outputs must name each output once, got {self.outputs!r}", hint="outputs=('ids',)")
        for name, value, known in (
            ("labels", self.labels, ("same", "next")),
            ("pieces", self.pieces, ("restart", "continue")),
            ("names", self.names, ("own", "hf")),
        ):
            if value not in known:
                raise UsageError(f"{name} must be {known[0]!r} or {known[1]!r}, got {value!r}", hint="see Packed")
        if self.optional:
            raise UsageError("Packed cannot be optional", hint="every bin has tokens")
        length = self.length
        if length is not None and (type(length) is not int or length < 1):
            raise UsageError(f"length must be a number of tokens, got {length!r}", hint="length=2048")

    @cached_property
    def named(self) -> dict[str, str]:
        """The outputs as users find them, each with the one of `OUTPUTS` that it is."""
        hf = _HF if self.names == "hf" else {}
        return {self.prefix + own: name for name in self.outputs for own in hf.get(name, (name,))}

    @property
    def width(self) -> int:
        """Bytes of the outputs for a token."""
        return sum(np.dtype(dtype).itemsize for name, dtype in _OF_TOKENS.items() if name in self.outputs)

    def beside(self, stored: Container[str]) -> tuple[str, ...]:
        assert self.source is not None
        wanted = {"lengths": True, "offsets": self.pieces == "continue", "loss": "labels" in self.outputs}
        names = {beside(self.source, what): what for what in _BESIDE if wanted[what]}
        return tuple(name for name, what in names.items() if what == "lengths" or name in stored)

    def check_stored(self, field: str, stored: Mapping[str, FieldType]) -> None:
        """Refuse also a field that holds no bins, or bins that do not make rows of this length."""
        super().check_stored(field, stored)
        kind = stored[field]
        for other in self.beside(stored):
            numbers = stored.get(other)
            if numbers is not None and not (isinstance(numbers, ValuesType) and numbers.elements.kind in "iu"):
                what = f"field {other!r} of type {numbers} says nothing of bins"
                raise FieldError(what, field=other, hint="pack with bins=")
        if kind.shape is None or len(kind.shape) != 1 or kind.dtype is None or kind.dtype.kind != "u":
            what = f"Packed cannot decode field {field!r} of type {kind}"
            raise FieldError(what, field=field, hint="pack with bins=")
        parts, rest = divmod(kind.shape[0], self.length or kind.shape[0])
        if rest or parts & (parts - 1) or not parts:
            raise FieldError(
                f"bins of {kind.shape[0]:,} tokens make no rows of {self.length:,}",
                field=field,
                hint="length is that of the bins, or a half, a quarter, ... of it",
            )

    def apply(self, value: Any, context: SampleContext, *, name: str, stream: int, out: Out = None) -> Any:
        stored = {field: context.beside[field] for field in self.beside(context.beside)}
        there = {
            field: PerBin.none(1) if raw is None else PerBin.of([kind.decode(raw)])
            for field, (kind, raw) in stored.items()
        }
        bins = self.bins(value[None], there)
        for what in bins.wrong().values():
            raise damaged(what)
        (found,) = self.make(bins, (1,), np.empty)
        return tuple(
            one[0] if isinstance(one, np.ndarray) and one.ndim == 2 and len(one) == 1 else one for one in found
        )

    def bins(self, ids: NDArray[Any], stored: Mapping[str, PerBin]) -> StoredBins:
        """Bins of what is stored of them.

        Args:
            ids: Tokens, (bins, size).
            stored: By field, of those `beside`, what the bins have.
        """
        assert self.source is not None
        none = PerBin.none(len(ids))
        return StoredBins(ids, *(stored.get(beside(self.source, what), none) for what in _BESIDE))

    def make(self, bins: StoredBins, batches: Sequence[int], empty: Empty) -> list[list[Any]]:
        """The outputs of some batches: of each in the order of `named`, arrays, and numbers.

        Args:
            bins: Bins that do not contradict themselves.
            batches: How many of them each batch has.
            empty: Gives arrays to write into. Those of one batch are delivered as they are given, those of several are
                parts of them.
        """
        length = self.length or bins.ids.shape[1]
        flat = self.flat or self.names == "hf"
        pieces = Pieces.of(bins, length, go_on=self.pieces == "continue")
        ids, learned = bins.ids.reshape(-1), bins.learned() if "labels" in self.outputs else None
        begins = bins.ids.shape[1] * np.cumsum([0, *batches])
        if flat and not pieces.documents.all():
            kept = np.repeat(pieces.documents, pieces.sizes)
            ids, learned = ids[kept], None if learned is None else learned[kept]
            pieces, begins = pieces.closed_up(begins)
        shape = (1, len(ids)) if flat else (len(ids) // length, length)
        made: dict[str, NDArray[Any]] = {}

        def row(output: str) -> NDArray[Any] | None:
            """An array for an output of all tokens, as one long row; ``None``: it is not wanted."""
            if output not in self.outputs:
                return None
            made[output] = empty(shape, _OF_TOKENS[output])
            return made[output].reshape(-1)

        if (out := row("ids")) is not None:
            out[:] = ids
        if (out := row("labels")) is not None:
            pieces.fill_labels(ids, learned, out, behind=self.labels == "next")
        if (out := row("position_ids")) is not None:
            pieces.fill_positions(out)
        if (out := row("segment_ids")) is not None:
            rows = np.searchsorted(begins, pieces.begins, "right") if flat else pieces.begins // length
            pieces.fill_segments(out, rows)
        found = []
        for these, tokens in zip(pieces.split(begins), map(slice, begins[:-1], begins[1:]), strict=True):
            batch: dict[str, Any] = {
                name: every if len(batches) == 1 else _part(every, tokens, flat=flat) for name, every in made.items()
            }
            if "cu_seqlens" in self.outputs:
                batch["cu_seqlens"] = these.bounds(empty)
            if "max_seqlen" in self.outputs:
                batch["max_seqlen"] = int(these.sizes.max(initial=0))
            found.append([batch[name] for name in self.named.values()])
        return found


def _part(every: NDArray[Any], tokens: slice, *, flat: bool) -> NDArray[Any]:
    """Some tokens of rows, as rows."""
    if flat:
        return every[:, tokens]
    length = every.shape[1]
    return every[tokens.start // length : tokens.stop // length]
