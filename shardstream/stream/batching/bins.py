"""Bins of documents, a whole batch at a time: what `Packed` makes of stored columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import get_worker_info

from shardstream.dataset.rows import RowBatch, location_in
from shardstream.decode.packed import Packed
from shardstream.decode.plan import Output
from shardstream.errors import DecodeError
from shardstream.shards.bins import PerBin, StoredBins, damaged
from shardstream.shards.fields import FieldType, ValuesType
from shardstream.stream.tensors.slabs import Strip, empty_slab, torch_dtype

_TOKENS_TOGETHER = 1 << 17  # are made at once: what is made of more does not stay in a processor's cache


class BinOutputs:
    """The outputs of one `Packed`.

    Args:
        packed: It.
        outputs: Those that are delivered.
        fields: The stored types.

    Attributes:
        names: Theirs.
    """

    def __init__(self, packed: Packed, outputs: Sequence[Output], fields: Mapping[str, FieldType]) -> None:
        self.names = [output.name for output in outputs]
        self._packed = packed
        own = list(packed.named)
        self._delivered = [(output.name, own.index(output.origin or output.name)) for output in outputs]
        self._source = outputs[0].sources[0]
        shape = fields[self._source].shape
        assert shape is not None  # as `Packed` has checked
        self._size = shape[0]
        kinds = ((name, fields[name]) for name in outputs[0].beside)
        self._beside = {
            name: kind for name, kind in kinds if isinstance(kind, ValuesType)
        }  # which `Packed` has checked

    @classmethod
    def all_of(cls, outputs: Iterable[Output], fields: Mapping[str, FieldType]) -> list[BinOutputs]:
        """Those that a `Packed` makes, by it."""
        found: dict[tuple[Packed, tuple[str, ...]], list[Output]] = {}
        for output in outputs:
            if output.packed is not None:
                found.setdefault((output.packed, output.together), []).append(output)
        return [cls(packed, some, fields) for (packed, _), some in found.items()]

    def bins(self, rows: RowBatch) -> StoredBins:
        """What is stored of the bins; numbers of a column that are none count as missing, see `wrong`."""
        ids = rows.columns[self._source].data
        assert isinstance(ids, np.ndarray)
        stored = {name: PerBin.stored(rows.columns[name].data, kind.elements) for name, kind in self._beside.items()}
        return self._packed.bins(ids, stored)

    def wrong(self, rows: RowBatch, bins: StoredBins) -> dict[int, DecodeError]:
        """The bins that contradict themselves, or lack something, and how.

        Args:
            rows: The rows.
            bins: Made of them.
        """
        wrong = bins.wrong()
        valid = rows.columns[self._source].valid
        if valid is not None:
            wrong |= dict.fromkeys(np.flatnonzero(~valid).tolist(), f"the sample has no {self._source!r}")
        for name, kind in self._beside.items():
            for i, raw in enumerate(rows.columns[name].data):
                if raw is not None and len(raw) % kind.elements.itemsize:
                    wrong[i] = f"{name!r} of {len(raw)} bytes holds no {kind.elements.name}"
        return {i: damaged(what, **location_in(rows, i)) for i, what in wrong.items()}

    def together(self, batch: int) -> int:
        """How many batches of this many bins are best made at once: one where another process has to see them."""
        tokens = batch * self._size
        return 1 if get_worker_info() is not None else max(1, _TOKENS_TOGETHER // max(tokens, 1))

    def make(self, bins: StoredBins, batches: Sequence[int]) -> list[dict[str, Any]]:
        """The outputs of some batches: tensors, and numbers.

        Args:
            bins: The bins.
            batches: How many of them each batch has.
        """
        slabs: dict[int, torch.Tensor] = {}

        def empty(shape: tuple[int, ...], dtype: type[np.generic]) -> NDArray[Any]:
            slab = empty_slab(shape, torch_dtype(np.dtype(dtype)))
            array = slab.numpy()
            slabs[id(array)] = slab
            return array

        def delivered(value: Any) -> Any:
            if not isinstance(value, np.ndarray):
                return value
            slab = slabs.get(id(value))
            return torch.from_numpy(value) if slab is None else slab

        if get_worker_info() is None:
            empty = Strip(self._packed.width * bins.ids.size).empty
        made = self._packed.make(bins, batches, empty)
        return [{name: delivered(outputs[number]) for name, number in self._delivered} for outputs in made]
