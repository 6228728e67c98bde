"""``ColumnBuilder``: outputs that whole columns make: numbers as they are stored, and bins."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from shardstream.dataset.rows import RowBatch, location_in
from shardstream.dataset.step import Step
from shardstream.decode.plan import Output
from shardstream.errors import DecodeError
from shardstream.shards.bins import StoredBins
from shardstream.stream.batching.bins import BinOutputs
from shardstream.stream.batching.samples import SampleDecoder
from shardstream.stream.tensors.numbers import converted, missing_number, stored_dtypes
from shardstream.stream.tensors.slabs import empty_slab, slab_over, torch_dtype

if TYPE_CHECKING:
    import torch

Bins: TypeAlias = list[StoredBins]
"""What is stored of bins, for each `Packed`."""


class ColumnBuilder:
    """Makes what whole columns are in batches.

    Args:
        decoder: What reads, and what its outputs are.

    Attributes:
        names: The outputs.
        has_bins: Whether some of them are made of bins.
        steps: Those that are expected.
    """

    def __init__(self, decoder: SampleDecoder) -> None:
        self._decoder = decoder
        self._bins = BinOutputs.all_of(decoder.plan.outputs, decoder.fields)
        self.has_bins = bool(self._bins)
        self.names = {output.name for output in decoder.plan.outputs if output.plain or output.packed is not None}
        stored, declared = stored_dtypes(decoder.plan, decoder.fields), decoder.numbers.declared
        self._converted = {name for name, dtype in stored.items() if declared.get(name, dtype) != dtype}
        self._read: tuple[RowBatch, Bins] | None = None
        self.expect(None)

    def bins(self, rows: RowBatch) -> Bins:
        """What is stored of bins in these rows."""
        return [outputs.bins(rows) for outputs in self._bins]

    def wrong(self, rows: RowBatch, bins: Bins) -> dict[int, DecodeError]:
        """The rows whose bins contradict themselves, and how."""
        found: dict[int, DecodeError] = {}
        for outputs, stored in zip(self._bins, bins, strict=True):
            found = outputs.wrong(rows, stored) | found
        return found

    def of_bins(self, bins: Bins, batches: Sequence[int]) -> list[dict[str, Any]]:
        """The outputs that are made of bins, of batches of so many.

        Args:
            bins: What is stored of bins, none of which is wrong.
            batches: How many each batch has.
        """
        made: list[dict[str, Any]] = [{} for _ in batches]
        for outputs, stored in zip(self._bins, bins, strict=True):
            for batch, others in zip(made, outputs.make(stored, batches), strict=True):
                batch |= others
        return made

    def numbers(self, output: Output, rows: RowBatch, slots: int = 0) -> torch.Tensor:
        """A column of numbers as it is stored, in the dtype that it has in batches.

        Args:
            output: The output.
            rows: The rows.
            slots: Of the step, as of `empty_slab`.

        Raises:
            BatchError: Some are missing, or their dtype has no room for them.
        """
        column = rows.columns[output.sources[0]]
        if column.valid is not None:
            lacking = np.flatnonzero(~column.valid)
            raise missing_number(output.name, len(lacking), location_in(rows, int(lacking[0])))
        assert isinstance(column.data, np.ndarray)
        data = column.data
        if output.name not in self._converted:
            return slab_over(data, slots)
        slab = empty_slab(data.shape, torch_dtype(self._decoder.numbers.declared[output.name]), slots)
        converted(output.name, data, partial(location_in, rows), slab.numpy())
        return slab

    # ------------------------------------------------------------------------------------------------ several steps

    def expect(self, whole: Step | None, steps: Sequence[Step] = ()) -> None:
        """Have these steps read as one when the first of them is asked for.

        Args:
            whole: All of them; ``None``: those that were expected before come not.
            steps: Each of them, in this order.
        """
        self._whole, self.steps, self._read = whole, steps, None
        self._made: dict[int, dict[str, Any]] = {}

    def expected(self, step: Step) -> tuple[RowBatch, dict[str, Any]] | None:
        """The rows of a step that was expected, and what is made of bins; ``None`` where it is to be made by itself.

        That is where anything is wrong with what was read together: it then comes to light in its step.
        """
        number = next((number for number, one in enumerate(self.steps) if one is step), None)
        if number is None:
            return None
        if self._whole is not None:
            whole, self._whole = self._whole, None
            self._read = self._sound(whole)
        if self._read is None:
            return None
        rows, bins = self._read
        sizes = [len(one.rows) for one in self.steps]
        first = sum(sizes[:number])
        if number not in self._made:
            some = sizes[number : number + min((one.together(sizes[0]) for one in self._bins), default=1)]
            those = slice(first, first + sum(some))
            self._made = dict(enumerate(self.of_bins([one.part(those) for one in bins], some), number))
        part, made = rows.part(slice(first, first + sizes[number])), self._made.pop(number)
        if number == len(sizes) - 1:
            self.expect(None)
        return part, made

    def _sound(self, step: Step) -> tuple[RowBatch, Bins] | None:
        rows = self._decoder.read_sound(step)
        if rows is None:
            return None
        bins = self.bins(rows)
        return None if self.wrong(rows, bins) else (rows, bins)
