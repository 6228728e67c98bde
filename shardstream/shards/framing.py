"""The framing contract.

A framing turns an object into samples in three steps, none of which does more input or output than it says::

    scan(store, path) -> ShardIndex                 reads the index, never a payload
    plan(index, rows, fields) -> [Request]          pure: which bytes these values need
    extract(index, buffers, rows, fields) -> values pure: values from bytes that are at hand

Who plans may fetch the ranges in any way and order, join or split them. They may be of any objects of the store, not
only of the shard's own: a list of files is a shard, too. Framings that cannot address a value plan a whole object or
group, and name its length ``None`` where it is not known.

A few stored bytes may stand for gigabytes, whoever wrote them: a compressed value says itself what it unpacks to, an
array of fixed size is made of zeros where a sample has none, and a decoded array is a copy. So sizes are compared with
``max_value`` first, see `too_large`. All else takes the room that it takes where it is stored: it is compared with a
limit that a user sets, and with the default if its object is compressed, see `OpenShard.refused`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import Place, ShardStreamError, UnsupportedError
from shardstream.shards.fields import ArrayType, FieldType, TensorType, ValuesType
from shardstream.shards.index import Column, ShardIndex
from shardstream.storage import Buffers, Request, Store

Tail: TypeAlias = tuple[memoryview, int]
"""The end of an object (all of it, where that is shorter), and the object's size."""
MAX_VALUE = 1 << 30
"""Bytes of the largest value that is delivered, unless told otherwise. Values that are stored as they are take no more
room than in their file, so that this default does not count for them."""


@dataclass(frozen=True, slots=True)
class FieldValues:
    """The values of one field for some rows.

    Attributes:
        type: The field's type.
        data: Payloads: a list of read-only buffers, ``None`` where there is no value; they keep alive what they are
            slices of. Scalars: an own array (n,), and fixed arrays: an own array (n, *shape), zeros where there is no
            value.
        valid: Whether each row has a value, bool (n,); ``None`` if every sample of the shard has.
        joined: Payloads that were copied to one memory, one behind the other, uint8 (bytes,); ``None`` where they were
            not.
    """

    type: FieldType
    data: list[memoryview | None] | NDArray[Any]
    valid: NDArray[np.bool_] | None
    joined: NDArray[np.uint8] | None = None

    def part(self, those: slice | Sequence[int]) -> FieldValues:
        """These of the rows; what was copied to one memory is not said of them."""
        valid = None if self.valid is None or self.valid[those].all() else self.valid[those]
        data: list[memoryview | None] | NDArray[Any]
        if isinstance(self.data, np.ndarray):
            data = self.data[those]
        else:
            data = self.data[those] if isinstance(those, slice) else [self.data[i] for i in those]
        return FieldValues(self.type, data, valid)


class Framing(ABC):
    """How samples lie in objects. `shardstream.testing.FramingConformance` holds every framing to this.

    Attributes:
        name: The name in ``dataset.json``.
        suffix: Of object names, with dot.
        addressed: Whether values lie in the object where the columns of its index say, so that whoever has the object
            mapped may take them from there without `extract`.
        whole_objects: Whether values are objects of their own, so that `plan` names nothing but whole ones.
    """

    name: str
    suffix: str
    addressed: bool = False
    whole_objects: bool = False

    def tail_bytes(self, index_bytes: int) -> int:
        """Bytes at the end of an object that `scan` begins with, so that they can be read ahead; 0: it does not.

        Args:
            index_bytes: As for `scan`.
        """
        return 0

    @abstractmethod
    def scan(
        self, store: Store, path: str, *, index_bytes: int | None = None, verify: bool = True, tail: Tail | None = None
    ) -> ShardIndex:
        """The index of a shard.

        Args:
            store: Where it lies.
            path: Its name there.
            index_bytes: Bytes at the end of the object that surely hold the index, so that one read is enough.
            verify: Check the index against its checksum.
            tail: So many bytes from the end of the object as `tail_bytes` says, with its size, where they are at hand.

        Raises:
            DataError: The object is damaged, foreign, or newer than this version.
            StorageError: It could not be read.
        """

    @abstractmethod
    def plan(self, index: ShardIndex, rows: NDArray[np.int64], fields: Sequence[str]) -> list[Request]:
        """The byte ranges that hold these fields of these rows, each once. Scalars need none, nor do empty values.

        Args:
            index: What `scan` returned.
            rows: Samples of the shard, int64 (n,), each in [0, samples); in any order, repeated or not.
            fields: Names of fields.

        Raises:
            FieldError: The shard has no such field.
        """

    @abstractmethod
    def extract(
        self,
        index: ShardIndex,
        buffers: Buffers,
        rows: NDArray[np.int64],
        fields: Sequence[str],
        *,
        verify: bool = True,
        max_value: int = MAX_VALUE,
    ) -> dict[str, FieldValues]:
        """These fields of these rows, out of buffers that hold what `plan` asked for, in the order of ``rows``.

        Args:
            index: What `scan` returned.
            buffers: The bytes.
            rows: As for `plan`.
            fields: As for `plan`.
            verify: Compare each value with its checksum, where the shard has them.
            max_value: Bytes that one value may have: decompressed, an array, or the zeros of an array that is missing.

        Raises:
            ChecksumError: A value differs from what was written; names shard, sample, key, field and offset.
            DecodeError: A value does not decompress, or is larger than ``max_value``; names the same.
            BatchError: There is no memory for so many values.
            FieldError: The shard has no such field.
            StorageError: The buffers lack a range.
        """


def requests_of(
    index: ShardIndex,
    rows: NDArray[np.int64],
    fields: Sequence[str],
    places: Callable[[Column, NDArray[np.int64]], Iterable[Request]],
) -> list[Request]:
    """What `Framing.plan` answers; ``places`` says where the values of a column lie, of rows that have one."""
    requests: dict[Request, None] = {}
    for name in fields:
        column = index.column(name)
        if column.type.kind != "scalar":
            valid = column.valid_rows(rows)
            found = places(column, rows if valid is None else rows[valid])
            requests |= dict.fromkeys(one for one in found if one.length != 0)
    return list(requests)


def with_gaps(values: Iterable[memoryview], valid: NDArray[np.bool_] | None) -> list[memoryview | None]:
    """Values of the rows that have one, and ``None`` for others."""
    if valid is None:
        return [*values]
    views = iter(values)
    return [next(views) if has else None for has in valid.tolist()]


def oversized(index: ShardIndex, field: str, row: int, size: int, max_value: int) -> UnsupportedError:
    """The error for a value of ``size`` bytes, which `too_large` found before anything of it was made."""
    return UnsupportedError(
        f"the value has {size} bytes, and max_value is {max_value}",
        hint=_raise_to(size),
        **place_of_value(index, field, row),
    )


def undivided(index: ShardIndex, field: str, row: int, size: int, max_value: int) -> UnsupportedError:
    """The error for a value in a part of ``size`` bytes of its object that can only be decompressed as a whole."""
    return UnsupportedError(
        f"{size} bytes have to be decompressed at once to read the value, and max_value is {max_value}",
        hint=_raise_to(size),
        **place_of_value(index, field, row),
    )


def _raise_to(size: int) -> str:
    return f"pass max_value={size} if you trust the data, or leave the field out"


def too_large(column: Column, rows: NDArray[np.int64], max_value: int, *, plain: bool = False) -> list[tuple[int, int]]:
    """Row and size of each of these values that has more bytes than that as it is delivered.

    Args:
        column: Their field.
        rows: Where they are.
        max_value: Bytes that a value may have.
        plain: Whether values count that are stored as they are. Of values that a form makes, nobody knows the size yet.
    """
    if column.type.kind == "fixed":
        width = column.type.width
        return [(row, width) for row in rows.tolist()] if width > max_value else []
    sizes = column.raw_lengths
    grows = isinstance(column.type, ArrayType | TensorType | ValuesType)
    if sizes is None and (grows or (plain and column.codec == "none")):
        sizes = column.sizes
    if sizes is None or not len(rows):
        return []
    chosen = sizes[rows]
    if int(chosen.max()) <= max_value:
        return []
    return [(int(rows[i]), int(chosen[i])) for i in np.flatnonzero(chosen > max_value)]


def place_of_value(index: ShardIndex, field: str, row: int) -> Place:
    """The place of a value, for errors."""
    place: Place = {"shard": index.path, "sample": row, "field": field}
    if index.url:
        place["url"] = index.url
    with suppress(ShardStreamError):  # the shard is damaged in more than one place; tell of the one that was asked for
        place["key"] = index.keys[row]
    return place
