"""From stored rows to batches: one slab an output, each sample decoded straight into its slot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from shardstream.decode.plan import Output
from shardstream.decode.usercall import UserCall
from shardstream.errors import BatchError, DataError
from shardstream.stream.collate import (
    channels_first,
    collate_rows,
    collate_samples,
    collate_values,
    refuse_devices,
)
from shardstream.stream.rows import Rows
from shardstream.stream.samples import SampleMaker, Step, first_good
from shardstream.stream.slabs import empty_slab, slab_of, torch_dtype


class BatchMaker:
    """Makes batches of a data set.

    Args:
        maker: Makes the samples.
        batch_transform: A user's callable for each batch, or ``None``.
        mark: Whether every batch has ``__valid__``, not only those with slots that were dropped.
    """

    def __init__(self, maker: SampleMaker, *, batch_transform: Callable[..., Any] | None, mark: bool) -> None:
        self._maker = maker
        self.transform = None if batch_transform is None else UserCall(batch_transform, what="batch_transform")
        self._mark = mark
        self._loose = [output for output in maker.plan.outputs if not (output.plain or output.as_bytes)]
        self._images = frozenset(output.name for output in maker.plan.outputs if output.is_image)
        self._dtypes = {
            output.name: dtype
            for output in maker.plan.outputs
            if output.plain and (dtype := maker.fields[output.sources[0]].dtype) is not None
        }

    def batch(self, step: Step) -> tuple[Any, NDArray[np.bool_], dict[int, str]]:
        """The step as one batch.

        Returns:
            The batch, which slots hold a sample of their own, and the reasons of those that were broken.

        Raises:
            BatchError: Values that cannot become one batch, or no good sample.
            DataError: Broken data, if the policy is to raise.
        """
        make = self._of_samples if self._maker.transform is not None else self._of_slabs
        batch, dropped, broken = make(step)
        valid = np.ones(len(step.rows), np.bool_) if step.valid is None else step.valid.copy()
        valid[dropped] = False
        if isinstance(batch, dict) and (self._mark or dropped):
            batch["__valid__"] = slab_of(valid)
        if self.transform is not None:
            position = int(step.positions[0])
            batch = self.transform(batch, seed=self._maker.seed, epoch=step.epoch, position=position)
        if torch.utils.data.get_worker_info() is not None:
            refuse_devices(batch)
        return batch, valid, broken

    def _of_samples(self, step: Step) -> tuple[Any, list[int], dict[int, str]]:
        samples, broken = self._maker.samples(step)
        dropped = [i for i, sample in enumerate(samples) if sample is None]
        good = first_good(dict.fromkeys(dropped) | broken, len(samples))
        filled = [samples[good] if sample is None else sample for sample in samples]
        return collate_samples(filled, images=self._images, dtypes=self._dtypes), dropped, broken

    def _of_slabs(self, step: Step) -> tuple[dict[str, Any], list[int], dict[int, str]]:
        rows, broken = self._maker.read(step)
        count = len(step.rows)
        slabs = {
            output.name: empty_slab((count, *output.slot.shape), torch_dtype(output.slot.dtype))
            for output in self._loose
            if output.slot is not None
        }
        views = {name: slab.numpy() for name, slab in slabs.items()}
        values: dict[str, list[Any]] = {output.name: [None] * count for output in self._loose}
        for i in range(count):
            if i in broken or not self._loose:
                continue
            try:
                slots = {name: view[i] for name, view in views.items()}
                sample = self._maker.decode(rows, i, self._maker.context(rows, i, step), self._loose, slots)
            except DataError as error:
                broken[i] = self._maker.policy.admit(error)
                continue
            for name, column in values.items():
                column[i] = sample[name]
        if broken:
            good = first_good(broken, count)
            self._repeat(good, broken, rows, [*views.values(), *values.values()])
        batch: dict[str, Any] = {"__key__": rows.keys}
        for output in self._maker.plan.outputs:
            column = values.get(output.name, [])
            batch[output.name] = self._column(output, rows, slabs.get(output.name), column)
            if output.name in slabs and output.optional:
                batch[f"{output.name}.__valid__"] = slab_of(self._present(output, rows))
        return batch, sorted(broken), broken

    def _repeat(self, good: int, broken: dict[int, str], rows: Rows, columns: list[Any]) -> None:
        stored = [rows.columns[source].data for source in self._maker.plan.sources]
        for column in [*columns, *stored, rows.keys]:
            for i in broken:
                column[i] = column[good]

    def _column(self, output: Output, rows: Rows, slab: torch.Tensor | None, values: list[Any]) -> Any:
        if output.plain:
            return self._plain(output, rows)
        if slab is not None:
            return channels_first(slab) if output.is_image and slab.ndim == 4 else slab
        if output.as_bytes:
            return collate_values(output.name, self._stored_bytes(output, rows))
        if output.stored and output.sources and self._maker.fields[output.sources[0]].name in ("array", "tensor"):
            return collate_rows(output.name, values)
        return collate_values(output.name, values, image=output.is_image)

    def _present(self, output: Output, rows: Rows) -> NDArray[np.bool_]:
        present = np.zeros(len(rows.keys), np.bool_)
        for source in output.sources:
            valid = rows.columns[source].valid
            present |= True if valid is None else valid
        return present

    def _stored_bytes(self, output: Output, rows: Rows) -> list[Any]:
        columns = [rows.columns[source].data for source in output.sources]
        return [next((value for value in values if value is not None), None) for values in zip(*columns, strict=True)]

    def _plain(self, output: Output, rows: Rows) -> torch.Tensor:
        column = rows.columns[output.sources[0]]
        if column.valid is not None:
            i = int(np.flatnonzero(~column.valid)[0])
            raise BatchError(
                f"{int((~column.valid).sum())} samples of a batch have no {output.name!r}",
                shard=rows.shards[i],
                sample=rows.rows[i],
                key=rows.keys[i],
                field=output.name,
                hint="leave the field out of `fields`, or fill it in a transform, where a missing value is None",
            )
        assert isinstance(column.data, np.ndarray)
        return slab_of(column.data)
