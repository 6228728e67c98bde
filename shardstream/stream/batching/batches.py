"""From stored rows to batches: one slab an output, each sample decoded straight into its slot.

Slots whose sample is dropped are cut away, or filled with the first sample that is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import filterfalse
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from shardstream.dataset.rows import RowBatch, location_in
from shardstream.dataset.step import Step
from shardstream.decode.masks import Mask
from shardstream.decode.plan import Output
from shardstream.decode.usercall import UserCall
from shardstream.errors import BatchError, DataError, UsageError
from shardstream.shards.fields import ValuesType
from shardstream.stream.batching.collate import Form, collate_samples, collate_values
from shardstream.stream.batching.columns import ColumnBuilder
from shardstream.stream.batching.samples import SampleDecoder, StageClock, StepDecoding
from shardstream.stream.tensors.crops import CropSlab, CropSlabs
from shardstream.stream.tensors.joined import JoinedBytes, JoinedRows
from shardstream.stream.tensors.nested import refuse_devices
from shardstream.stream.tensors.slabs import channels_first, empty_slab, slab_of, torch_dtype


class BatchBuilder:
    """Makes batches of sources.

    A step whose samples are all decoded alike, by one decoder without a ``transform``, is decoded straight into slabs;
    any other is put together from samples.

    Args:
        decoders: What makes the samples.
        decoder_of: For each source the number of its decoder.
        clock: Counts where the time goes.
        batch_transform: A user's callable for each batch, or ``None``.
        mark: Whether batches have ``__valid__``.
        keys: Whether batches have ``__key__``.
        short: Whether slots whose sample is dropped are cut away; else they repeat the first sample that is kept.
    """

    def __init__(
        self,
        decoders: Sequence[SampleDecoder],
        decoder_of: NDArray[np.int64],
        clock: StageClock,
        *,
        batch_transform: Callable[..., Any] | None,
        mark: bool,
        keys: bool,
        short: bool,
    ) -> None:
        self._decoders = decoders
        self._decoder_of = decoder_of
        self._clock = clock
        self._slabs = [SlabBuilder(decoder, clock, keys=keys, short=short) for decoder in decoders]
        self.transform = None if batch_transform is None else UserCall(batch_transform, what="batch_transform")
        self._mark = mark
        self._short = short
        outputs = [(output, decoder) for decoder in decoders for output in decoder.plan.outputs]
        forms = [(decoder.names.get(output.name), _form(output, decoder)) for output, decoder in outputs]
        # A transform may have made stored arrays equal; those that it left as they are are rows by their looks.
        stored = all(decoder.transform is None for decoder in decoders)
        self._forms = {name: form for name, form in forms if name and form and (stored or form != "arrays")}

    def samples(self, step: Step) -> tuple[list[Any], dict[int, str]]:
        """The step's samples, slot by slot, as `SampleDecoder.samples`."""
        if step.sources is None:
            return self._decoders[0].samples(step)
        samples: list[Any] = [None] * len(step.rows)
        broken: dict[int, str] = {}
        for number in np.unique(decoder_of := self._decoder_of[step.sources]).tolist():
            slots = np.flatnonzero(decoder_of == number)
            made, failed = self._decoders[number].samples(step.only(slots))
            for slot, sample in zip(slots.tolist(), made, strict=True):
                samples[slot] = sample
            broken.update({int(slots[i]): reason for i, reason in failed.items()})
        for sample, source in zip(samples, step.sources.tolist(), strict=True):
            if isinstance(sample, dict):
                sample["__source__"] = source
        return samples, broken

    def expect(self, whole: Step | None, steps: Sequence[Step] = ()) -> None:
        """Have these steps read at once when the first of them comes, see `ColumnBuilder.expect`."""
        self._slabs[0].columns.expect(whole, steps)

    def batch(self, step: Step) -> tuple[Any, NDArray[np.bool_], list[int] | None, dict[int, str]]:
        """The step as one batch.

        Returns:
            The batch, which slots hold a sample of their own, the slots whose samples are kept (``None`` for all), and
            the reasons of those that were broken.

        Raises:
            BatchError: Values that cannot become one batch, or no sample is kept.
            DataError: Broken data, if the policy is to raise.
            UsageError: Batches are to have ``__valid__``, and the transform returns no dicts.
        """
        decoder_of = np.zeros(1, np.int64) if step.sources is None else self._decoder_of[step.sources]
        decoder = int(decoder_of[0])
        straight = (decoder_of == decoder).all() and self._decoders[decoder].transform is None
        batch: Any
        batch, kept, broken = self._slabs[decoder].batch(step) if straight else self._of_samples(step)
        own = np.ones(len(step.rows), np.bool_) if step.valid is None else step.valid
        own = own if kept is None else own_slots(own, kept)
        slots = kept if self._short else None
        if isinstance(batch, dict):
            if step.sources is not None:
                batch["__source__"] = slab_of(step.sources if slots is None else step.sources[slots])
            if self._mark:
                batch["__valid__"] = slab_of(own if slots is None else own[slots])
        elif self._mark:
            raise no_mask(batch)
        if self.transform is not None:
            self._clock.lap("assemble")
            if self._decoders[0].status is not None:
                self._decoders[0].status.at("transform")
            position = int(step.positions[0])
            batch = self.transform(batch, seed=self._decoders[0].seed, epoch=step.epoch, position=position)
            self._clock.lap("transform")
        if torch.utils.data.get_worker_info() is not None:
            refuse_devices(batch)
        return batch, own, kept, broken

    def _of_samples(self, step: Step) -> tuple[Any, list[int] | None, dict[int, str]]:
        samples, broken = self.samples(step)
        dropped = {slot: broken.get(slot, "") for slot, sample in enumerate(samples) if sample is None}
        kept = kept_slots(dropped, len(samples)) if dropped else None
        chosen = chosen_slots(kept, len(samples), short=self._short)
        decoder_of = [0] * len(samples) if step.sources is None else self._decoder_of[step.sources].tolist()

        def where(i: int) -> dict[str, str | int]:
            return self._decoders[decoder_of[chosen[i]]].location(step.only(np.array([chosen[i]])))

        numbers, values = self._decoders[decoder_of[0]].numbers, [samples[slot] for slot in chosen]
        batch = collate_samples(values, numbers=numbers, forms=self._forms, where=where, slots=len(samples))
        return batch, kept, broken


def kept_slots(dropped: Mapping[int, str], count: int) -> list[int]:
    """The slots of a step whose samples are kept, in order.

    Args:
        dropped: The other slots, with the reason where it is known.
        count: Slots of the step.

    Raises:
        BatchError: There is none.
    """
    kept = [slot for slot in range(count) if slot not in dropped]
    if kept:
        return kept
    raise none_kept(dropped, count)


def none_kept(dropped: Mapping[int, str], count: int) -> BatchError:
    """The error for a batch of so many slots that keeps no sample."""
    reasons = [reason for reason in dropped.values() if reason]
    return BatchError(
        f"none of the {count} samples of a batch can be used" + (f"; the first: {reasons[0]}" if reasons else ""),
        hint="return the sample from the transform (None drops it); to filter, choose the samples before they are put "
        "into batches, which are then full: rows = ss.find_rows(dataset, predicate), then "
        "ShardDataset(..., where=rows); `shardstream verify URL` lists damaged samples",
    )


def chosen_slots(kept: list[int] | None, count: int, *, short: bool) -> Sequence[int]:
    """The slots of a step whose samples a batch has, in order.

    Args:
        kept: The slots whose samples are kept; ``None`` for all.
        count: Slots of the step.
        short: Whether the others are cut away; else each is the first one that is kept.
    """
    if kept is None:
        return range(count)
    if short:
        return kept
    chosen = [kept[0]] * count
    for slot in kept:
        chosen[slot] = slot
    return chosen


def own_slots(valid: NDArray[np.bool_], kept: list[int]) -> NDArray[np.bool_]:
    """Those of the ``valid`` slots, bool (b,), that are kept."""
    own = np.zeros(len(valid), np.bool_)
    own[kept] = valid[kept]
    return own


def no_mask(value: Any) -> UsageError:
    """The error if there is no dict to put ``__valid__`` into."""
    return UsageError(
        f'"__valid__" says which slots of a batch repeat a sample, and the transform returned {type(value).__name__}, '
        "which has no place for it",
        hint='return a dict of named values; or use neither tail="pad" nor dropped="repeat", which repeat samples',
    )


def _form(output: Output, decoder: SampleDecoder) -> Form:
    if output.is_ragged:
        return "rows"
    if output.stored and output.sources:
        kind = decoder.fields[output.sources[0]]
        if kind.name in ("array", "tensor") or isinstance(kind, ValuesType):
            return "arrays"
    if output.is_image:
        return output.layout or "image"
    return "mask" if any(isinstance(step, Mask) for step in output.steps) else None


class SlabBuilder:
    """Decodes steps straight into slabs.

    Args:
        decoder: What reads and decodes; its ``transform`` is not called.
        clock: Counts where the time goes.
        keys: Whether batches have ``__key__``.
        short: As of `BatchBuilder`.
    """

    def __init__(self, decoder: SampleDecoder, clock: StageClock, *, keys: bool, short: bool) -> None:
        self._decoder = decoder
        self._clock = clock
        self._keys = keys
        self._short = short
        self.columns = ColumnBuilder(decoder)
        self._loose = [
            output
            for output in decoder.plan.outputs
            if not (output.name in self.columns.names or (output.as_bytes and output.stored))
        ]
        joined = ((output, JoinedRows.of(output, decoder.fields)) for output in self._loose)
        self._joined = [(output, rows) for output, rows in joined if rows is not None]
        self._forms = {output.name: _form(output, decoder) for output in decoder.plan.outputs}
        alone = [output for output in decoder.plan.outputs if output.as_bytes and len(output.sources) == 1]
        self._bytes = {output.name: output.sources[0] for output in alone if output.stored}
        self._origins = {output.name: output.origin or output.name for output in self._loose}
        self._cut = {
            output.name: CropSlabs(output.slot.shape[:2])  # type: ignore[arg-type]  # a slot of images has three numbers
            for output in self._loose
            if output.is_cut and output.slot is not None
        }

    def batch(self, step: Step) -> tuple[dict[str, Any], list[int] | None, dict[int, str]]:
        """The step's batch, the slots whose samples are kept (``None`` for all), and why the others are broken."""
        columns = self.columns
        expected = columns.expected(step) if columns.steps else None
        if expected is not None:
            return self._of_columns(*expected), None, {}
        into = {source: JoinedBytes() for source in self._bytes.values()} if self._bytes else {}
        rows, broken = self._decoder.read(step, into)
        if rows is None:
            raise none_kept(broken, len(step.rows))
        count = len(step.rows)
        slabs: dict[str, torch.Tensor] = {}
        cut: dict[str, CropSlab] = {}
        values: dict[str, list[Any]] = {}
        joined = self._fitting(rows) if self._joined else {}
        loose = [output for output in self._loose if output.name not in joined] if joined else self._loose
        for output in loose:
            values[output.name] = [None] * count
            if output.is_cut:
                cut[output.name] = self._cut[output.name].empty(count)
            elif output.slot is not None:
                slabs[output.name] = empty_slab((count, *output.slot.shape), torch_dtype(output.slot.dtype))
        views = {name: slab.numpy() for name, slab in slabs.items()} if slabs else {}
        if loose:
            memory = {self._origins[name]: slab.take for name, slab in cut.items()} if cut else {}
            decoding = StepDecoding(self._decoder, rows, step, loose, views, memory)
            self._decoder.begin(decoding, broken)
            for i in filterfalse(broken.__contains__, range(count)):
                try:
                    sample, _ = decoding.sample(i)
                except DataError as error:
                    broken[i] = self._decoder.policy.admit(error)
                    continue
                for name, column in values.items():
                    column[i] = sample[name]
            self._clock.lap("decode")
        bins = columns.bins(rows) if columns.has_bins else []
        for i, wrong in columns.wrong(rows, bins).items() if columns.has_bins else ():
            if i not in broken:
                broken[i] = self._decoder.policy.admit(wrong)
        kept = kept_slots(broken, count) if broken else None
        if kept is not None:
            chosen = chosen_slots(kept, count, short=self._short)
            rows, slabs = rows.part(chosen), {name: _moved(slab, chosen) for name, slab in slabs.items()}
            values = {name: [column[slot] for slot in chosen] for name, column in values.items()}
            bins = columns.bins(rows) if columns.has_bins else []
        (made,) = columns.of_bins(bins, (len(rows.rows),)) if columns.has_bins else ({},)
        batch: dict[str, Any] = {"__key__": rows.keys} if self._keys else {}
        for output in self._decoder.plan.outputs:
            if output.name in made:
                batch[output.name] = made[output.name]
            elif output.is_cut:
                batch[output.name] = self._cut[output.name].crops(cut[output.name], values[output.name])
            elif output.name in joined:
                batch[output.name] = joined[output.name].join(self._stored_bytes(output, rows))
            elif self._is_joined(output, rows):
                batch[output.name] = into[output.sources[0]].rows(self._stored_bytes(output, rows))
            else:
                batch[output.name] = self._column(output, rows, slabs, values, count)
            if (output.name in slabs or output.is_cut) and output.optional:
                batch[f"{output.name}.__valid__"] = slab_of(self._present(output, rows))
        return batch, kept, broken

    def _of_columns(self, rows: RowBatch, of_bins: Mapping[str, Any]) -> dict[str, Any]:
        """The batch of rows of which all outputs are columns."""
        batch: dict[str, Any] = {"__key__": rows.keys} if self._keys else {}
        for output in self._decoder.plan.outputs:
            batch[output.name] = self.columns.numbers(output, rows) if output.plain else of_bins[output.name]
        return batch

    def _is_joined(self, output: Output, rows: RowBatch) -> bool:
        """Whether its values were copied to one memory when they were read."""
        return output.name in self._bytes and rows.columns[self._bytes[output.name]].joined is not None

    def _fitting(self, rows: RowBatch) -> dict[str, JoinedRows]:
        """The outputs whose rows become a batch as one."""
        return {output.name: how for output, how in self._joined if how.fit(self._stored_bytes(output, rows))}

    def _column(
        self,
        output: Output,
        rows: RowBatch,
        slabs: Mapping[str, torch.Tensor],
        values: Mapping[str, list[Any]],
        slots: int,
    ) -> Any:
        name, slab = output.name, slabs.get(output.name)
        if slab is not None:
            return channels_first(slab) if output.is_image and slab.ndim == 4 and output.layout != "HWC" else slab
        if output.plain:
            return self.columns.numbers(output, rows, slots)
        numbers, where, form = self._decoder.numbers, partial(location_in, rows), self._forms[name]
        made = values[name] if name in values else self._stored_bytes(output, rows)
        return collate_values(name, made, numbers=numbers, form=form, where=where, slots=slots)

    def _present(self, output: Output, rows: RowBatch) -> NDArray[np.bool_]:
        present = np.zeros(len(rows.rows), np.bool_)
        for source in output.sources:
            valid = rows.columns[source].valid
            present |= True if valid is None else valid
        return present

    def _stored_bytes(self, output: Output, rows: RowBatch) -> list[Any]:
        if len(output.sources) == 1:
            return list(rows.columns[output.sources[0]].data)
        columns = [rows.columns[source].data for source in output.sources]
        return [next((value for value in values if value is not None), None) for values in zip(*columns, strict=True)]


def _moved(slab: torch.Tensor, chosen: Sequence[int]) -> torch.Tensor:
    """The rows of a slab that `chosen_slots` names, in their order, at its front: a view of the same memory."""
    rows = slab.numpy()
    for place, slot in enumerate(chosen):  # no slot is written to before its last use
        if place != slot:
            rows[place] = rows[slot]
    return slab[: len(chosen)]
