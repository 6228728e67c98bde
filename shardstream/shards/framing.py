"""The framing contract.

A framing turns an object into samples in three steps, none of which does more input or output than it says::

    scan(store, path) -> ShardIndex                 reads the index, never a payload
    plan(index, rows, fields) -> [Request]          pure: which bytes these values need
    extract(index, buffers, rows, fields) -> values pure: values from bytes that are at hand

Who plans may fetch the ranges in any way and order, join or split them. Framings that cannot address a value plan a
whole object or group, and name its length ``None`` where it is not known.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shardstream.shards.fields import FieldType
from shardstream.shards.index import ShardIndex
from shardstream.shards.limits import MAX_VALUE
from shardstream.storage import Buffers, Request, Store

Tail: TypeAlias = tuple[memoryview, int]
"""The end of an object (all of it, where that is shorter), and the object's size."""


@dataclass(frozen=True, slots=True)
class FieldValues:
    """The values of one field for some rows.

    Attributes:
        type: The field's type.
        data: Payloads: a list of read-only buffers, ``None`` where there is no value; they keep alive what they are
            slices of. Scalars: an own array (n,), and fixed arrays: an own array (n, *shape), zeros where there is no
            value.
        valid: Whether each row has a value, bool (n,); ``None`` if every sample of the shard has.
    """

    type: FieldType
    data: list[memoryview | None] | NDArray[Any]
    valid: NDArray[np.bool_] | None


class Framing(ABC):
    """How samples lie in objects. `shardstream.testing.FramingConformance` holds every framing to this.

    Attributes:
        name: The name in ``dataset.json``.
        suffix: Of object names, with dot.
        addressed: Whether values lie in the object where the columns of its index say, so that whoever has the object
            mapped may take them from there without `extract`.
    """

    name: str
    suffix: str
    addressed: bool = False

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
