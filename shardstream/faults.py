"""``FaultKind``: whether data is damaged, unsupported, or missing, as reports say of samples that cannot be read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias, get_args

from shardstream.errors import (
    DataError,
    FieldError,
    MissingExtraError,
    NotFoundError,
    PlaceholderError,
    ShardStreamError,
    StorageError,
    UnsupportedError,
    VersionError,
)

FaultKind: TypeAlias = Literal["damaged", "unsupported", "missing", "invalid"]
"""``"damaged"``: the bytes are not what was written, or end too early. ``"unsupported"``: they are valid, of a kind
that isn't read here. ``"missing"``: there are no such bytes, or a placeholder is in their place. ``"invalid"``: the
sample does not fit the call: its label, its types, its line in a list, your transform."""

REST_IS_LOST = "the rest of the file is lost, number of samples unknown"
"""What a message says after the fault from which on nothing of a file can be read."""

FAULT_KINDS: tuple[FaultKind, ...] = get_args(FaultKind)

# The first class that an error belongs to decides.
_KINDS: tuple[tuple[type[ShardStreamError], FaultKind], ...] = (
    (PlaceholderError, "missing"),
    (StorageError, "missing"),
    (UnsupportedError, "unsupported"),
    (VersionError, "unsupported"),
    (MissingExtraError, "unsupported"),
    (DataError, "damaged"),
)


def fault_kind(error: BaseException) -> FaultKind:
    """The kind of fault that an error is about, by its class; for a value that fits no field, by what it was read as.

    >>> fault_kind(UnsupportedError("float16 pixels"))
    'unsupported'
    """
    if isinstance(error, FieldError) and isinstance(error.__cause__, DataError):
        error = error.__cause__
    if isinstance(error, DataError) and isinstance(error.__cause__, NotFoundError):  # a file that a list names
        return "missing"
    return next((kind for cls, kind in _KINDS if isinstance(error, cls)), "invalid")


def told_kinds(counts: Mapping[FaultKind, int]) -> str:
    """How many there are of each kind, in words.

    >>> told_kinds({"damaged": 2, "missing": 1})
    '2 damaged, 1 missing'
    """
    return ", ".join(f"{count:,} {kind}" for kind, count in counts.items())
