"""Bytes of samples as one slab of a batch: as they are, or as rows of the elements that they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from shardstream.decode.dtypes import Array
from shardstream.decode.plan import Output
from shardstream.shards.fields import FieldType, ValuesType
from shardstream.stream.tensors.ragged import Ragged
from shardstream.stream.tensors.slabs import empty_slab, torch_dtype

Stored: TypeAlias = "Sequence[bytes | memoryview | None]"


@dataclass(frozen=True, slots=True)
class JoinedRows:
    """How the rows of an output become a `Ragged`.

    Attributes:
        stored: The dtype of stored elements.
        dtype: That of the output, which holds all of their values.
    """

    stored: np.dtype[Any]
    dtype: np.dtype[Any]

    @classmethod
    def of(cls, output: Output, fields: Mapping[str, FieldType]) -> JoinedRows | None:
        """``None`` where rows have to be made one by one."""
        stored = set()
        for source in output.sources:
            kind = fields[source]
            if not isinstance(kind, ValuesType):
                return None
            stored.add(kind.elements)
        cast = len(output.steps) == 1 and isinstance(output.steps[0], Array)
        if len(stored) != 1 or output.as_bytes or not (output.stored or cast):
            return None
        elements = stored.pop()
        native = elements.newbyteorder("=")
        if native != elements or native.kind == "b":  # of which not every byte is one
            return None
        return cls(native, output.dtype if cast and output.dtype is not None else native)

    def fit(self, values: Stored) -> bool:
        """Whether all samples have a row, and none ends in the middle of an element."""
        size = self.stored.itemsize
        return all(value is not None and len(value) % size == 0 for value in values)

    def join(self, values: Stored) -> Ragged:
        """The rows, which `fit`."""
        rows = [value for value in values if value is not None]
        ends = np.cumsum([0, *map(len, rows)], dtype=np.int64)
        offsets = ends // self.stored.itemsize
        slab = empty_slab((int(offsets[-1]),), torch_dtype(self.dtype))
        out = slab.numpy()
        elements = out if self.dtype == self.stored else np.empty(len(out), self.stored)
        whole = memoryview(elements.view(np.uint8))  # type: ignore[arg-type]  # numpy arrays are buffers; the stubs of 3.11 cannot say so
        for row, start, end in zip(rows, ends[:-1].tolist(), ends[1:].tolist(), strict=True):
            whole[start:end] = row
        if elements is not out:
            out[...] = elements
        return Ragged(slab, torch.from_numpy(offsets))


def _ends(values: Sequence[bytes | bytearray | memoryview]) -> NDArray[np.int64]:
    """Where each begins and ends when they lie behind each other: (n + 1,)."""
    return np.cumsum([0, *map(len, values)], dtype=np.int64)


class JoinedBytes:
    """Memory of a batch that byte strings are copied to where they are read."""

    def __call__(self, size: int) -> NDArray[np.uint8]:
        self._slab = empty_slab((size,), torch.uint8)
        return self._slab.numpy()

    def rows(self, values: Sequence[Any]) -> Ragged:
        """These, which lie there."""
        return Ragged(self._slab, torch.from_numpy(_ends(values)))


def bytes_rows(values: Sequence[bytes | bytearray | memoryview]) -> Ragged:
    """Byte strings as rows of uint8."""
    ends = _ends(values)
    slab = empty_slab((int(ends[-1]),), torch.uint8)
    whole = memoryview(slab.numpy())  # type: ignore[arg-type]  # numpy arrays are buffers; the stubs of 3.11 cannot say so
    for value, start, end in zip(values, ends[:-1].tolist(), ends[1:].tolist(), strict=True):
        whole[start:end] = value
    return Ragged(slab, torch.from_numpy(ends))
