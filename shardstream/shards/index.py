"""``ShardIndex``: where every value of one shard lies, as columns of numpy arrays over the bytes of the index itself.

Nothing is copied on opening: over a memory-mapped shard an index costs a worker no private memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import FieldError, FormatError, UsageError
from shardstream.shards.fields import FieldType

Codec: TypeAlias = Literal["none", "zstd"]

# WebDataset splits a member's name at the first dot of its last component, Hugging Face's builder at the first dot of
# all, and WebDataset skips names that begin with `__NAME__`. So in names of members dots, leading underscores, control
# characters and `%` itself stand as `%XX`; the index holds keys as they are.
_ESCAPED = re.compile(r"[%.\x00-\x1f\x7f]|^_")


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """One field of one shard. Arrays are of length n = samples, read-only, or ``None`` where the kind has none.

    Attributes:
        name: Field name.
        type: Field type.
        codec: How payload bytes are encoded one by one: ``"none"``, ``"zstd"``, or in a catalogue a form of `foreign`.
        valid: Bitmap, uint8 of length ceil(n / 8), least significant bit first; ``None`` if every sample has a value.
        values: Scalars: the values themselves, in the type's dtype.
        offsets: Payloads, and fixed arrays that do not lie densely: byte offset in the object.
        lengths: Payloads: stored bytes.
        raw_lengths: Compressed payloads: bytes after decompression.
        checksums: XXH3-64 of each value's stored bytes; ``None`` if written without.
        base: Dense fixed arrays: byte offset of sample 0; sample i lies at ``base + i * type.width``.
        names: Payloads that are objects of their own, in catalogues only: the names of these below the root, one after
            another, uint8 in UTF-8. ``lengths`` are their sizes then, or ``None`` where nobody knows them.
        name_ends: Where each name ends in ``names``.
        held: Payloads that lie in the index itself, beside such objects, in catalogues only: one after another, uint8.
        held_ends: Where each of these ends in ``held``.
    """

    name: str
    type: FieldType
    codec: str = "none"
    valid: NDArray[np.uint8] | None = None
    values: NDArray[Any] | None = None
    offsets: NDArray[np.unsignedinteger[Any]] | None = None
    lengths: NDArray[np.unsignedinteger[Any]] | None = None
    raw_lengths: NDArray[np.unsignedinteger[Any]] | None = None
    checksums: NDArray[np.uint64] | None = None
    base: int | None = None
    names: NDArray[np.uint8] | None = None
    name_ends: NDArray[np.unsignedinteger[Any]] | None = None
    held: NDArray[np.uint8] | None = None
    held_ends: NDArray[np.unsignedinteger[Any]] | None = None

    def valid_rows(self, rows: NDArray[np.int64]) -> NDArray[np.bool_] | None:
        """Whether each row has a value: bool (len(rows),), or ``None`` if every sample of the shard has."""
        if self.valid is None:
            return None
        bits: NDArray[np.uint8] = self.valid[rows >> 3] >> (rows & 7).astype(np.uint8) & 1
        return bits.astype(np.bool_)

    def has(self, row: int) -> bool:
        """Whether a row has a value."""
        return self.valid is None or bool(self.valid[row >> 3] >> (row & 7) & 1)

    def fixed_offsets(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Byte offsets of fixed arrays: int64 (len(rows),)."""
        if self.base is not None:
            return self.base + rows * self.type.width
        assert self.offsets is not None
        return self.offsets[rows].astype(np.int64)

    def extents(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Byte offset and length of the stored bytes of payloads or fixed arrays: int64 (len(rows),) each."""
        if self.type.kind == "fixed":
            return self.fixed_offsets(rows), np.full(len(rows), self.type.width, np.int64)
        assert self.offsets is not None
        assert self.lengths is not None
        return self.offsets[rows].astype(np.int64), self.lengths[rows].astype(np.int64)

    @property
    def sizes(self) -> NDArray[np.unsignedinteger[Any]] | None:
        """Payloads: stored bytes of each; ``None`` where nobody knows them."""
        ends = self.held_ends
        return self.lengths if ends is None else np.diff(ends, prepend=ends.dtype.type(0))

    def object_names(self, rows: NDArray[np.int64]) -> list[str]:
        """The objects that the values of these rows are; names that are not UTF-8 as files have them here."""
        found = _parts(self.names, self.name_ends, rows)
        return [str(one, "utf-8", "surrogateescape") for one in found]

    def held_values(self, rows: NDArray[np.int64]) -> list[memoryview]:
        """The values of these rows, where the index itself holds them."""
        return _parts(self.held, self.held_ends, rows)


def _parts(
    blob: NDArray[np.uint8] | None, ends: NDArray[np.unsignedinteger[Any]] | None, rows: NDArray[np.int64]
) -> list[memoryview]:
    """The parts of a blob that belong to these rows."""
    assert blob is not None
    assert ends is not None
    starts = np.where(rows > 0, ends[rows - 1], 0).tolist()
    return [blob.data[start:end] for start, end in zip(starts, ends[rows].tolist(), strict=True)]


class Keys(Sequence[str]):
    """The keys of a shard, decoded one at a time from a blob of UTF-8.

    Args:
        ends: End of each key in the blob, unsigned (n,).
        blob: The keys one after another.
        shard: The shard, for messages.

    Raises:
        FormatError: On access to a key that is not UTF-8.
    """

    def __init__(self, ends: NDArray[np.unsignedinteger[Any]], blob: memoryview, *, shard: str | None = None) -> None:
        self._ends = ends
        self._blob = blob
        self._shard = shard

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        row = range(len(self))[index]
        return self._decode(row, int(self._ends[row - 1]) if row else 0, int(self._ends[row]))

    @property
    def parts(self) -> tuple[NDArray[np.unsignedinteger[Any]], memoryview]:
        """Where each key ends, and all of them one after another in UTF-8."""
        return self._ends, self._blob

    def take(self, rows: NDArray[np.int64]) -> list[str]:
        """The keys of these rows."""
        ends = self._ends[rows].tolist()
        starts = np.where(rows > 0, self._ends[rows - 1], 0).tolist()
        return list(map(self._decode, rows.tolist(), starts, ends))

    def __iter__(self) -> Iterator[str]:
        start = 0
        for row, end in enumerate(self._ends.tolist()):
            yield self._decode(row, start, end)
            start = end

    def _decode(self, row: int, start: int, end: int) -> str:
        try:
            return str(self._blob[start:end], "utf-8")
        except UnicodeDecodeError as error:
            raise FormatError(
                f"a key is not UTF-8: {error}", shard=self._shard, sample=row, hint="write the shard again"
            ) from error


@dataclass(frozen=True, slots=True, eq=False)
class ShardIndex:
    """Where every value of one shard lies.

    Attributes:
        path: The object, relative to its store.
        framing: Name of the framing that reads it.
        samples: n, the number of samples.
        keys: The samples' keys, in stored order.
        columns: Fields by name. A field of the data set may be missing: then no sample of this shard has it.
        end: Bytes of the object before its index; no payload reaches beyond.
        meta: What else the framing has to remember.
        url: The store's root, for messages; empty if not known.
        checksum: XXH3-64 of the index as it is stored: equal ones are of one shard. 0 where the framing has none.
    """

    path: str
    framing: str
    samples: int
    keys: Keys
    columns: Mapping[str, Column]
    end: int
    meta: Mapping[str, Any] = field(default_factory=dict)
    url: str = ""
    checksum: int = 0

    def column(self, name: str) -> Column:
        """The column of a field.

        Raises:
            FieldError: This shard has no such field.
        """
        try:
            return self.columns[name]
        except KeyError:
            raise FieldError(
                f"the shard has no field {name!r}",
                url=self.url or None,
                shard=self.path,
                field=name,
                hint=f"it has {', '.join(self.columns)}",
            ) from None


def bitmap_of(has: NDArray[np.bool_] | NDArray[np.uint8]) -> NDArray[np.uint8] | None:
    """`Column.valid` of samples that have a value or not, bool (n,); ``None`` where all have one."""
    return None if has.all() else np.packbits(has, bitorder="little")


def check_key(key: object) -> str:
    """The key, if it can be one.

    Raises:
        UsageError: Not a str, empty, not encodable as UTF-8, or with a leading, trailing or double ``/``.
    """
    if not isinstance(key, str) or not key:
        raise UsageError(f"a sample's key must be a non-empty str, not {key!r}", hint='give each sample a "__key__"')
    if key.startswith("/") or key.endswith("/") or "//" in key:
        raise UsageError("a key cannot begin or end with '/', nor hold '//'", key=key)
    try:
        key.encode()
    except UnicodeEncodeError:
        raise UsageError(f"a key must be encodable as UTF-8, not {key!r}") from None
    return key


def escape_key(key: str) -> str:
    """The key as the part of a member's name before its extension; `urllib.parse.unquote` undoes it.

    >>> escape_key("n01/ILSVRC.0001")
    'n01/ILSVRC%2E0001'
    """
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", key)
