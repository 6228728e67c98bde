"""Samples that could not be packed, any number of them: they lie in receipts, and nobody holds all of them."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from shardstream.errors import NotFoundError, StorageError
from shardstream.faults import FAULT_KINDS, FaultKind
from shardstream.pack.sources import Reject
from shardstream.storage import Location, Store, open_store
from shardstream.storage.base.sorting import SortedNames
from shardstream.text import json_text, printable

CORRECT = "correct that sample, or the options that say how samples are read"
"""What to do if no sample can be packed, and the first one says why."""
REJECTS_NAME = "rejects.jsonl"

_PIECE = 1 << 20
_HELD = 100_000  # rejects that are sorted at once: some 20 MB
_REASONS = 50  # most frequent ones that are reported
_COUNTED = 10_000  # different ones that are counted at most; beyond, the rarest are forgotten now and then
# What is particular to a sample, in whole words that can be left out; types and "64-bit" are the same everywhere.
_PARTICULAR = re.compile(
    r"""'[^']*'|"[^"]*" | \b[0-9a-f]{2}(?:\ [0-9a-f]{2})+\b  # quotes; bytes in hexadecimal
    | \b\d\w*(?:(?<=e)[-+]\d\w*|[.,]\d\w*)*                 # numbers, and words that begin with one, whole:
      (?!\w|(?<=e)[-+]\d|[.,]\d|[ -]bits?\b)                # possessive quantifiers are broken in Python 3.11.2
    | (?<!\d)(?<!\bint)(?<!uint)(?<!float)(?<=\w)\d+         # within other words""",
    re.VERBOSE,
)
_MAX_EXAMPLE = 200
_SEPARATOR = b"\1"
_Name = TypeVar("_Name", bound=str)
# What a sorted name must not hold, or separates its parts, in bytes that leave the order as it is.
_ESCAPES = ((b"\2", b"\2\5"), (b"\1", b"\2\4"), (b"\0", b"\2\3"))


class SortedRejects:
    """Collects rejects and gives them back by line, path and reason, as often as asked; a context manager."""

    def __init__(self) -> None:
        self._names = SortedNames(_HELD)

    def __enter__(self) -> SortedRejects:
        return self

    def __exit__(self, *_: object) -> None:
        self._names.clear()

    def add(self, rejects: Iterable[Reject]) -> None:
        """Add some.

        Raises:
            StorageError: The disk for temporary files is full.
        """
        self._names.add((_packed(one), one.line) for one in rejects)

    def __iter__(self) -> Iterator[Reject]:
        for packed, line in self._names:
            path, reason, samples, kind = packed[20:].split(_SEPARATOR)
            lost = int(samples) if samples else None
            yield Reject(line, _unescaped(path), _unescaped(reason), lost, FAULT_KINDS[int(kind)])


def _packed(one: Reject) -> bytes:
    samples = "" if one.samples is None else str(one.samples)
    kind = str(FAULT_KINDS.index(one.kind))
    parts = (_escaped(one.path), _escaped(one.reason), samples.encode(), kind.encode())
    return b"%020d%s" % (one.line, _SEPARATOR.join(parts))


def _escaped(text: str) -> bytes:
    data = text.encode()
    for plain, escaped in _ESCAPES:
        data = data.replace(plain, escaped)
    return data


def _unescaped(data: bytes) -> str:
    for plain, escaped in reversed(_ESCAPES):
        data = data.replace(escaped, plain)
    return data.decode()


@dataclass(slots=True)
class RejectSummary:
    """What a report says of rejects.

    Attributes:
        count: Number of samples lost; the rest of a file counts as one if its number of samples is unknown.
        files: Files of which more than single samples are lost.
        uncounted: Those of which the number of samples lost is unknown.
        first: The first of them.
        reasons: How many by reason, with what is particular to a sample left out; most frequent first.
        kinds: How many by what is at fault; most frequent first.
    """

    count: int = 0
    files: int = 0
    uncounted: int = 0
    first: Reject | None = None
    reasons: Mapping[str, int] = field(default_factory=dict)
    kinds: Mapping[FaultKind, int] = field(default_factory=dict)


def summary_of(rejects: Iterable[Reject]) -> RejectSummary:
    """Count them; numbers and what stands in quotes are left out of reasons, so that equal faults count as one."""
    found, reasons, kinds = RejectSummary(), Counter[str](), Counter[FaultKind]()
    for one in rejects:
        samples = 1 if one.samples is None else one.samples
        found.count += samples
        found.files += one.is_rest
        found.uncounted += one.samples is None
        found.first = found.first or one
        kinds[one.kind] += samples
        reasons[printable(_PARTICULAR.sub("…", one.reason))[:_MAX_EXAMPLE]] += samples
        if len(reasons) > 2 * _COUNTED:
            reasons = Counter(most_frequent(reasons, _COUNTED))
    found.reasons, found.kinds = most_frequent(reasons, _REASONS), most_frequent(kinds)
    return found


def most_frequent(counts: Mapping[_Name, int], most: int | None = None) -> dict[_Name, int]:
    """So many of them, in order; equal ones by name."""
    return dict(sorted(counts.items(), key=lambda one: (-one[1], one[0]))[:most])


def lines_of(rejects: Iterable[Reject]) -> Iterator[bytes]:
    """The lines of ``rejects.jsonl``."""
    for one in rejects:
        entry = {"path": one.path, "line": one.line, "kind": one.kind, "reason": one.reason}
        if one.samples != 1:
            entry["samples"] = one.samples
        yield json_text(entry).encode() + b"\n"


def save_rejects(store: Store, rejects: Iterable[Reject]) -> None:
    """Write ``rejects.jsonl``, if there are any."""
    put_pieces(store, REJECTS_NAME, lines_of(rejects))


def put_pieces(store: Store, name: str, pieces: Iterable[bytes]) -> None:
    """Write an object piece by piece; none where there is no byte of it."""
    filled = filter(None, pieces)
    first = next(filled, None)
    if first is not None:
        with store.create(name) as out:
            out.write(first)
            for piece in filled:
                out.write(piece)


def pieces_of(store: Store, name: str) -> Iterator[bytes]:
    """The bytes of an object, some at a time; none where there is no such object."""
    try:
        yield from store.pieces(name, _PIECE)
    except NotFoundError:
        return


@dataclass(frozen=True, slots=True)
class StoredRejects:
    """The rejects in a ``rejects.jsonl``, read whenever they are asked for.

    Attributes:
        place: Where it lies; it need not exist.
    """

    place: Location

    def __iter__(self) -> Iterator[Reject]:
        """They, in their order.

        Raises:
            StorageError: The list is damaged.
        """
        store = open_store(self.place)
        rest = b""
        try:
            for piece in pieces_of(store, REJECTS_NAME):
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    entry = json.loads(line)
                    kind = entry.get("kind", "invalid")  # earlier versions wrote none
                    yield Reject(entry["line"], entry["path"], entry["reason"], entry.get("samples", 1), kind)
            if rest:
                raise ValueError("its last line has no end")
        except (ValueError, KeyError, TypeError) as error:
            raise StorageError(
                "the list of rejects is damaged", url=store.locate(REJECTS_NAME), hint="pack again with overwrite=True"
            ) from error
