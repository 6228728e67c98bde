"""From stored rows to batches: one slab an output, each sample decoded straight into its slot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from shardstream.dataset.rows import RowBatch
from shardstream.dataset.step import Step
from shardstream.decode.plan import Output
from shardstream.decode.usercall import UserCall
from shardstream.errors import DataError
from shardstream.stream.batching.collate import (
    channels_first,
    collate_rows,
    collate_samples,
    collate_values,
)
from shardstream.stream.batching.samples import SampleDecoder, first_good, place_in
from shardstream.stream.batching.stages import StageClock
from shardstream.stream.tensors.crops import CropSlabs
from shardstream.stream.tensors.nested import refuse_devices
from shardstream.stream.tensors.numbers import missing_number
from shardstream.stream.tensors.slabs import empty_slab, slab_of, slab_over, torch_dtype


class BatchBuilder:
    """Makes batches of sources.

    A step whose samples are all decoded alike, by one maker without a ``transform``, is decoded straight into slabs;
    any other is put together from samples.

    Args:
        makers: What makes the samples.
        maker_of: For each source the number of its maker.
        clock: Is told where the time goes.
        batch_transform: A user's callable for each batch, or ``None``.
        mark: Whether every batch has ``__valid__``, not only those with slots that were dropped.
        keys: Whether batches have ``__key__``.
    """

    def __init__(
        self,
        makers: Sequence[SampleDecoder],
        maker_of: NDArray[np.int64],
        clock: StageClock,
        *,
        batch_transform: Callable[..., Any] | None,
        mark: bool,
        keys: bool,
    ) -> None:
        self._makers = makers
        self._maker_of = maker_of
        self._clock = clock
        self._slabs = [SlabBuilder(maker, clock, keys=keys) for maker in makers]
        self.transform = None if batch_transform is None else UserCall(batch_transform, what="batch_transform")
        self._mark = mark
        outputs = [output for maker in makers for output in maker.plan.outputs]
        self._images = frozenset(output.name for output in outputs if output.is_image)
        stored = all(maker.transform is None for maker in makers)
        self._ragged = frozenset(
            output.name
            for maker in makers
            for output in maker.plan.outputs
            if output.is_ragged or (stored and _is_stored_array(output, maker))
        )

    def samples(self, step: Step) -> tuple[list[Any], dict[int, str]]:
        """The step's samples, slot by slot, as `SampleDecoder.samples`."""
        if step.sources is None:
            return self._makers[0].samples(step)
        samples: list[Any] = [None] * len(step.rows)
        broken: dict[int, str] = {}
        for number in np.unique(makers := self._maker_of[step.sources]).tolist():
            slots = np.flatnonzero(makers == number)
            made, failed = self._makers[number].samples(step.only(slots))
            for slot, sample in zip(slots.tolist(), made, strict=True):
                samples[slot] = sample
            broken.update({int(slots[i]): reason for i, reason in failed.items()})
        for sample, source in zip(samples, step.sources.tolist(), strict=True):
            if isinstance(sample, dict):
                sample["__source__"] = source
        return samples, broken

    def batch(self, step: Step) -> tuple[Any, NDArray[np.bool_], dict[int, str]]:
        """The step as one batch.

        Returns:
            The batch, which slots hold a sample of their own, and the reasons of those that were broken.

        Raises:
            BatchError: Values that cannot become one batch, or no good sample.
            DataError: Broken data, if the policy is to raise.
        """
        makers = np.zeros(1, np.int64) if step.sources is None else self._maker_of[step.sources]
        maker = int(makers[0])
        if (makers == maker).all() and self._makers[maker].transform is None:
            batch, dropped, broken = self._slabs[maker].batch(step)
        else:
            batch, dropped, broken = self._of_samples(step)
        valid = np.ones(len(step.rows), np.bool_) if step.valid is None else step.valid.copy()
        valid[dropped] = False
        if isinstance(batch, dict):
            if step.sources is not None:
                batch["__source__"] = slab_of(step.sources)
            if self._mark or dropped:
                batch["__valid__"] = slab_of(valid)
        if self.transform is not None:
            self._clock.lap("assemble")
            position = int(step.positions[0])
            batch = self.transform(batch, seed=self._makers[0].seed, epoch=step.epoch, position=position)
            self._clock.lap("transform")
        if torch.utils.data.get_worker_info() is not None:
            refuse_devices(batch)
        return batch, valid, broken

    def _of_samples(self, step: Step) -> tuple[Any, list[int], dict[int, str]]:
        samples, broken = self.samples(step)
        dropped = [i for i, sample in enumerate(samples) if sample is None]
        good = first_good(dict.fromkeys(dropped) | broken, len(samples))
        filled = [samples[good] if sample is None else sample for sample in samples]
        makers = [0] * len(samples) if step.sources is None else self._maker_of[step.sources].tolist()

        def where(slot: int) -> dict[str, str | int]:
            slot = good if samples[slot] is None else slot
            return self._makers[makers[slot]].place(step.only(np.array([slot])))

        numbers = self._makers[makers[0]].numbers
        return (
            collate_samples(filled, numbers=numbers, images=self._images, ragged=self._ragged, where=where),
            dropped,
            broken,
        )


def _is_stored_array(output: Output, maker: SampleDecoder) -> bool:
    """Whether its values are arrays or tensors as they are stored, each of its own shape."""
    return output.stored and bool(output.sources) and maker.fields[output.sources[0]].name in ("array", "tensor")


class SlabBuilder:
    """Decodes steps straight into slabs.

    Args:
        maker: What reads and decodes; its ``transform`` is not called.
        clock: Is told where the time goes.
        keys: Whether batches have ``__key__``.
    """

    def __init__(self, maker: SampleDecoder, clock: StageClock, *, keys: bool) -> None:
        self._maker = maker
        self._clock = clock
        self._keys = keys
        self._loose = [output for output in maker.plan.outputs if not (output.plain or output.as_bytes)]
        self._cut = {
            output.name: CropSlabs(output.slot.shape[:2])  # type: ignore[arg-type]  # a slot of images has three numbers
            for output in self._loose
            if output.is_cut and output.slot is not None
        }

    def batch(self, step: Step) -> tuple[dict[str, Any], list[int], dict[int, str]]:
        """The step's batch, the slots that have no sample of their own, and the reasons of those that were broken."""
        rows, broken = self._maker.read(step)
        count = len(step.rows)
        slabs = {
            output.name: empty_slab((count, *output.slot.shape), torch_dtype(output.slot.dtype))
            for output in self._loose
            if output.slot is not None and not output.is_cut
        }
        cut = {name: made.empty(count) for name, made in self._cut.items()}
        views = {name: slab.numpy() for name, slab in slabs.items()}
        values: dict[str, list[Any]] = {output.name: [None] * count for output in self._loose}
        memory = {name: slab.take for name, slab in cut.items()}
        decoding = self._maker.decoding(rows, step, broken, self._loose, views, memory)
        for i in range(count) if self._loose else ():
            if i in broken:
                continue
            try:
                sample, _ = decoding.sample(i)
            except DataError as error:
                broken[i] = self._maker.policy.admit(error)
                continue
            for name, column in values.items():
                column[i] = sample[name]
        self._clock.lap("decode")
        if broken:
            good = first_good(broken, count)
            self._repeat(good, broken, rows, [*views.values(), *values.values()])
        batch: dict[str, Any] = {"__key__": rows.keys} if self._keys else {}
        for output in self._maker.plan.outputs:
            column = values.get(output.name, [])
            if output.is_cut:
                batch[output.name] = self._cut[output.name].crops(cut[output.name], column)
            else:
                batch[output.name] = self._column(output, rows, slabs.get(output.name), column)
            if (output.name in slabs or output.is_cut) and output.optional:
                batch[f"{output.name}.__valid__"] = slab_of(self._present(output, rows))
        return batch, sorted(broken), broken

    def _repeat(self, good: int, broken: dict[int, str], rows: RowBatch, columns: list[Any]) -> None:
        stored = [rows.columns[source].data for source in self._maker.plan.sources]
        for column in [*columns, *stored, rows.keys]:
            for i in broken:
                column[i] = column[good]

    def _column(self, output: Output, rows: RowBatch, slab: torch.Tensor | None, values: list[Any]) -> Any:
        if output.plain:
            return self._plain(output, rows)
        if slab is not None:
            return channels_first(slab) if output.is_image and slab.ndim == 4 else slab
        numbers, where = self._maker.numbers, partial(place_in, rows)
        if output.as_bytes:
            return collate_values(output.name, self._stored_bytes(output, rows), numbers=numbers, where=where)
        if output.is_ragged or _is_stored_array(output, self._maker):
            return collate_rows(output.name, values, numbers=numbers, where=where)
        return collate_values(output.name, values, numbers=numbers, image=output.is_image, where=where)

    def _present(self, output: Output, rows: RowBatch) -> NDArray[np.bool_]:
        present = np.zeros(len(rows.rows), np.bool_)
        for source in output.sources:
            valid = rows.columns[source].valid
            present |= True if valid is None else valid
        return present

    def _stored_bytes(self, output: Output, rows: RowBatch) -> list[Any]:
        columns = [rows.columns[source].data for source in output.sources]
        if len(columns) == 1:
            return list(columns[0])
        return [next((value for value in values if value is not None), None) for values in zip(*columns, strict=True)]

    def _plain(self, output: Output, rows: RowBatch) -> torch.Tensor:
        column = rows.columns[output.sources[0]]
        if column.valid is not None:
            lacking = np.flatnonzero(~column.valid)
            raise missing_number(output.name, len(lacking), place_in(rows, int(lacking[0])))
        assert isinstance(column.data, np.ndarray)
        return slab_over(self._maker.numbers.converted(output.name, column.data, partial(place_in, rows)))
