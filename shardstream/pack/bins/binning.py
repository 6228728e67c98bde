"""What is asked for where documents are packed into bins, checked in one place."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from shardstream.errors import UsageError
from shardstream.shards.bins import Bins
from shardstream.shards.field_names import check_field_name
from shardstream.shards.fields import FieldType

Packing: TypeAlias = Literal["fit", "concat"]
Long: TypeAlias = Literal["split", "reject", "truncate"]
TokenDtype: TypeAlias = Literal["uint16", "uint32"]

_MOST = 1 << 24  # tokens of a bin: what is held grows with it
_BINS = 4096  # whose documents wait together
_FEWEST, _MOST_HELD = 32 << 20, 64 << 20  # of their tokens, however long bins are
_PARTS = 4  # into which bins can be cut by default


@dataclass(frozen=True, slots=True)
class Binning:
    """How documents become bins.

    Attributes:
        size: Tokens of a bin.
        field: The field that holds the tokens of a document.
        least: Length of the shortest rows that bins may be read as without cutting what fits into one; the size divided
            by a power of two.
        packing: ``"fit"``: no document that fits into a bin is cut. ``"concat"``: they are laid end to end, and cut.
        long: What becomes of documents that are longer than a bin, see `pack`.
        pad: The token that fills up what stays free.
        dtype: Of the tokens, as they are stored.
        bos: A token that is put before each document; ``None`` for none.
        eos: One that is put behind each.
        tokenizer: What tells the tokenizer from others, where it is known.

    Raises:
        UsageError: A value that is not allowed; says which are.
    """

    size: int
    field: str = "ids"
    least: int = 0
    packing: Packing = "fit"
    long: Long = "split"
    pad: int = 0
    dtype: TokenDtype = "uint32"
    bos: int | None = None
    eos: int | None = None
    tokenizer: str | None = None

    def __post_init__(self) -> None:
        if not _is_integer(self.size) or not 1 <= self.size <= _MOST:
            raise UsageError(
                f"bins must be a number of tokens from 1 to {_MOST:,}, got {self.size!r}",
                hint="write the context length of the model: bins=8192",
            )
        check_field_name(self.field)
        if not _is_integer(self.least):
            raise UsageError(
                f"bins=PackedSequences(min=...) (--bin-min) must be an integer, got {self.least!r}",
                hint="leave it out for a quarter of the length",
            )
        if not self.least:
            object.__setattr__(self, "least", self.size // _PARTS if self.size % _PARTS == 0 else self.size)
        parts, rest = divmod(self.size, self.least) if self.least > 0 else (0, 0)
        if rest or parts & (parts - 1) or not parts:
            raise UsageError(
                "bins=PackedSequences(min=...) (--bin-min) must be their length divided by a power of two, got "
                f"{self.least:,} for bins of {self.size:,}",
                hint=f"min={self.size} (--bin-min {self.size}) for bins that are never read as shorter rows",
            )
        for name in ("pad", "bos", "eos"):
            self._check_token(name, getattr(self, name))

    def _check_token(self, name: str, token: object) -> None:
        if token is None and name != "pad":
            return
        if not isinstance(token, int) or isinstance(token, bool) or not 0 <= token <= np.iinfo(self.dtype).max:
            raise UsageError(
                f"{name} must be a token in [0, {np.iinfo(self.dtype).max}], got {token!r}",
                hint="take the tokenizer's end-of-text token, by its number",
            )

    @property
    def type(self) -> FieldType:
        """The type of the tokens of a bin."""
        return FieldType.parse(f"array:{self.dtype}:{self.size}")

    @property
    def bins(self) -> Bins:
        """What a manifest says of them, before there are any."""
        return Bins(self.field, self.size, self.least, self.pad, self.packing, self.tokenizer)

    @property
    def window(self) -> int:
        """Tokens of documents that wait together, until they become bins."""
        return min(max(_BINS * self.size, _FEWEST), _MOST_HELD)

    @property
    def lengths(self) -> list[int]:
        """The lengths of rows that bins are made for, the longest first."""
        return [self.size >> halved for halved in range((self.size // self.least).bit_length())]

    @property
    def identity(self) -> dict[str, Any]:
        """JSON of everything here that changes a byte of the data set: all of it."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
