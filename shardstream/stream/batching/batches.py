"""From stored rows to batches: one slab an output, each sample decoded straight into its slot.

``collate_*`` put together what is not decoded into slabs: values of many samples as one value of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType, NoneType
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from shardstream.dataset.rows import RowBatch, location_in
from shardstream.dataset.step import Step
from shardstream.decode.crops import Cut
from shardstream.decode.masks import Mask
from shardstream.decode.plan import Output
from shardstream.decode.usercall import UserCall
from shardstream.errors import BatchError, DataError
from shardstream.shards.fields import ValuesType
from shardstream.stream.batching.columns import ColumnBuilder
from shardstream.stream.batching.samples import SampleDecoder, StageClock, StepDecoding, first_good
from shardstream.stream.tensors.crops import CropSlab, CropSlabs, collate_cuts
from shardstream.stream.tensors.joined import JoinedBytes, JoinedRows, bytes_rows
from shardstream.stream.tensors.nested import refuse_devices
from shardstream.stream.tensors.numbers import Numbers, Where, is_number
from shardstream.stream.tensors.ragged import Ragged, type_name
from shardstream.stream.tensors.slabs import empty_slab, slab_of, torch_dtype

_CONVERT = "convert them by a callable in `fields`"

Form: TypeAlias = Literal["image", "mask", "rows", "arrays"] | None
"""What the arrays of an output are in a batch, where more is known than what they look like: pictures, which are never
`Ragged`; rows, which always are; arrays as they are stored, which are too unless they are tensors of one shape."""


class BatchBuilder:
    """Makes batches of sources.

    A step whose samples are all decoded alike, by one decoder without a ``transform``, is decoded straight into slabs;
    any other is put together from samples.

    Args:
        decoders: What makes the samples.
        decoder_of: For each source the number of its decoder.
        clock: Counts where the time goes.
        batch_transform: A user's callable for each batch, or ``None``.
        mark: Whether every batch has ``__valid__``, not only those with slots that were dropped.
        keys: Whether batches have ``__key__``.
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
    ) -> None:
        self._decoders = decoders
        self._decoder_of = decoder_of
        self._clock = clock
        self._slabs = [SlabBuilder(decoder, clock, keys=keys) for decoder in decoders]
        self.transform = None if batch_transform is None else UserCall(batch_transform, what="batch_transform")
        self._mark = mark
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

    def batch(self, step: Step) -> tuple[Any, NDArray[np.bool_], dict[int, str]]:
        """The step as one batch.

        Returns:
            The batch, which slots hold a sample of their own, and the reasons of those that were broken.

        Raises:
            BatchError: Values that cannot become one batch, or no good sample.
            DataError: Broken data, if the policy is to raise.
        """
        decoder_of = np.zeros(1, np.int64) if step.sources is None else self._decoder_of[step.sources]
        decoder = int(decoder_of[0])
        if (decoder_of == decoder).all() and self._decoders[decoder].transform is None:
            batch, dropped, broken = self._slabs[decoder].batch(step)
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
            if self._decoders[0].status is not None:
                self._decoders[0].status.at("transform")
            position = int(step.positions[0])
            batch = self.transform(batch, seed=self._decoders[0].seed, epoch=step.epoch, position=position)
            self._clock.lap("transform")
        if torch.utils.data.get_worker_info() is not None:
            refuse_devices(batch)
        return batch, valid, broken

    def _of_samples(self, step: Step) -> tuple[Any, list[int], dict[int, str]]:
        samples, broken = self.samples(step)
        dropped = [i for i, sample in enumerate(samples) if sample is None]
        good = first_good(dict.fromkeys(dropped) | broken, len(samples))
        filled = [samples[good] if sample is None else sample for sample in samples]
        decoder_of = [0] * len(samples) if step.sources is None else self._decoder_of[step.sources].tolist()

        def where(slot: int) -> dict[str, str | int]:
            slot = good if samples[slot] is None else slot
            return self._decoders[decoder_of[slot]].location(step.only(np.array([slot])))

        numbers = self._decoders[decoder_of[0]].numbers
        return (
            collate_samples(filled, numbers=numbers, forms=self._forms, where=where),
            dropped,
            broken,
        )


def _form(output: Output, decoder: SampleDecoder) -> Form:
    if output.is_ragged:
        return "rows"
    if output.stored and output.sources:
        kind = decoder.fields[output.sources[0]]
        if kind.name in ("array", "tensor") or isinstance(kind, ValuesType):
            return "arrays"
    if output.is_image:
        return "image"
    return "mask" if any(isinstance(step, Mask) for step in output.steps) else None


class SlabBuilder:
    """Decodes steps straight into slabs.

    Args:
        decoder: What reads and decodes; its ``transform`` is not called.
        clock: Counts where the time goes.
        keys: Whether batches have ``__key__``.
    """

    def __init__(self, decoder: SampleDecoder, clock: StageClock, *, keys: bool) -> None:
        self._decoder = decoder
        self._clock = clock
        self._keys = keys
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

    def batch(self, step: Step) -> tuple[dict[str, Any], list[int], dict[int, str]]:
        """The step's batch, the slots that have no sample of their own, and the reasons of those that were broken."""
        columns = self.columns
        expected = columns.expected(step) if columns.steps else None
        if expected is not None:
            return self._of_columns(*expected), [], {}
        into = {source: JoinedBytes() for source in self._bytes.values()} if self._bytes else {}
        rows, broken = self._decoder.read(step, into)
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
            for i in range(count):
                if i in broken:
                    continue
                try:
                    sample, _ = decoding.sample(i)
                except DataError as error:
                    broken[i] = self._decoder.policy.admit(error)
                    continue
                for name, column in values.items():
                    column[i] = sample[name]
        if loose:
            self._clock.lap("decode")
        bins = columns.bins(rows) if columns.has_bins else []
        for i, wrong in columns.wrong(rows, bins).items() if columns.has_bins else ():
            if i not in broken:
                broken[i] = self._decoder.policy.admit(wrong)
        if broken:
            good = first_good(broken, count)
            self._repeat(good, broken, rows, [*views.values(), *values.values()])
            bins = columns.bins(rows) if columns.has_bins else []
        (made,) = columns.of_bins(bins, (count,)) if columns.has_bins else ({},)
        batch: dict[str, Any] = {"__key__": rows.keys} if self._keys else {}
        for output in self._decoder.plan.outputs:
            if output.name in made:
                batch[output.name] = made[output.name]
            elif output.is_cut:
                batch[output.name] = self._cut[output.name].crops(cut[output.name], values[output.name])
            elif output.name in joined:
                batch[output.name] = joined[output.name].join(self._stored_bytes(output, rows))
            elif not broken and self._is_joined(output, rows):
                batch[output.name] = into[output.sources[0]].rows(self._stored_bytes(output, rows))
            else:
                batch[output.name] = self._column(output, rows, slabs.get(output.name), values.get(output.name))
            if (output.name in slabs or output.is_cut) and output.optional:
                batch[f"{output.name}.__valid__"] = slab_of(self._present(output, rows))
        return batch, sorted(broken), broken

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

    def _repeat(self, good: int, broken: dict[int, str], rows: RowBatch, columns: list[Any]) -> None:
        stored = [rows.columns[source].data for source in self._decoder.plan.sources]
        for column in [*columns, *stored, rows.keys]:
            for i in broken:
                column[i] = column[good]

    def _column(self, output: Output, rows: RowBatch, slab: torch.Tensor | None, values: list[Any] | None) -> Any:
        if slab is not None:
            return channels_first(slab) if output.is_image and slab.ndim == 4 else slab
        if output.plain:
            return self.columns.numbers(output, rows)
        numbers, where = self._decoder.numbers, partial(location_in, rows)
        if values is None:
            values = self._stored_bytes(output, rows)
        return collate_values(output.name, values, numbers=numbers, form=self._forms[output.name], where=where)

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


def channels_first(slab: torch.Tensor) -> torch.Tensor:
    """Images (B, H, W, 3) as (B, 3, H, W) with channels-last strides: the same memory."""
    return slab.permute(0, 3, 1, 2)


def collate_values(
    name: str, values: Sequence[Any], *, numbers: Numbers, form: Form = None, where: Where | None = None
) -> Any:
    """One output's values as they stand in a batch.

    Arrays and tensors of one shape become one slab, those of several a `Ragged`; numbers a tensor, bytes a `Ragged`,
    crops for the device `Crops`; all else stays a list, and so does an output that some sample has no value of, unless
    it is stored numbers.

    Args:
        name: The output.
        values: One a sample.
        numbers: What decides the dtype of numbers.
        form: What is known of arrays. Those (H, W, 3) of an ``"image"`` become (B, 3, H, W), channels last.
        where: Where a sample lies, for errors.

    Raises:
        BatchError: Arrays whose dtypes or numbers of dimensions differ, pictures of several sizes, or numbers, see
            `Numbers.slab`.
    """
    if form == "rows" or form == "arrays":
        return collate_rows(name, values, numbers=numbers, where=where, always=form == "rows")
    first = values[0]
    kinds = set(map(type, values))
    if Cut in kinds:
        return collate_cuts(name, values)
    if NoneType in kinds:
        numbers.lacking(name, values, where)
        # Views of buffers neither travel from a worker nor outlive them.
        return [bytes(value) if isinstance(value, memoryview) else value for value in values]
    if len(kinds) > 1 and any(issubclass(kind, torch.Tensor | np.ndarray) for kind in kinds):
        _check_types(name, values, where)
    if isinstance(first, torch.Tensor | np.ndarray):
        equal = _of_one_shape(name, values, form, where)
        numbers.settle(name, first.dtype if isinstance(first, torch.Tensor) else torch_dtype(first.dtype), where)
        if not equal:
            return Ragged.of(values)
        image = form == "image"
        return _stacked_tensors(values) if isinstance(first, torch.Tensor) else _stacked(values, image=image)
    if isinstance(first, bytes | bytearray | memoryview):
        return bytes_rows(values)
    if all(map(is_number, kinds)):
        return numbers.slab(name, values, where)
    return list(values)


def _stacked_tensors(values: Sequence[torch.Tensor]) -> torch.Tensor:
    first = values[0]
    slab = empty_slab((len(values), *first.shape), first.dtype) if first.device.type == "cpu" else None
    return torch.stack(list(values), out=slab)


def _stacked(values: Sequence[np.ndarray[Any, Any]], *, image: bool) -> torch.Tensor:
    first = values[0]
    slab = empty_slab((len(values), *first.shape), torch_dtype(first.dtype))
    np.stack(values, out=slab.numpy())
    # One channel is that of a picture with 16 bits; what a callable makes of an image may have one as well.
    channels = (1, 3) if first.dtype == np.uint16 else (3,)
    return channels_first(slab) if image and first.ndim == 3 and first.shape[2] in channels else slab


def _check_types(name: str, values: Sequence[Any], where: Where | None) -> None:
    """Refuse arrays or tensors beside anything else."""
    kinds = [next((kind for kind in (torch.Tensor, np.ndarray) if isinstance(value, kind)), None) for value in values]
    if len(set(kinds)) > 1:
        few = ", ".join(sorted({type(value).__name__ for value in values}))
        what = f"values of different types cannot become one batch ({few})"
        raise BatchError(what, field=name, hint=_CONVERT, **_first_other(kinds, where))


def _first_other(values: Sequence[Any], where: Where | None) -> dict[str, Any]:
    """Where the first lies that is not like the one before all."""
    return {} if where is None else dict(where(next(i for i, value in enumerate(values) if value != values[0])))


def _of_one_shape(name: str, values: Sequence[Any], form: Form, where: Where | None) -> bool:
    """Whether arrays or tensors are one slab; else they are rows.

    Raises:
        BatchError: They are neither: they differ in dtype or number of dimensions, or are pictures.
    """
    kinds = [(tuple(value.shape), type_name(value)) for value in values]
    if len(set(kinds)) == 1:
        return True
    hint = _why_no_rows(name, values, form)
    if not hint:
        return False
    shapes = sorted(set(kinds))
    few = ", ".join(f"{list(shape)} {dtype}" for shape, dtype in shapes[:3]) + ", ..." * (len(shapes) > 3)
    what = f"values of {len(shapes)} different shapes or dtypes cannot become one batch ({few})"
    raise BatchError(what, field=name, hint=hint, **_first_other(kinds, where))


def _why_no_rows(name: str, values: Sequence[Any], form: Form) -> str:
    """What to do about arrays or tensors that differ in shape or dtype; ``""`` where they are rows as they are."""
    first = values[0]
    if len({value.ndim for value in values}) > 1:
        return (
            "give them as many dimensions each: a picture with grey ones, [..., None]; rows of four without any,"
            " np.zeros((0, 4), np.float32)"
        )
    if len({type_name(value) for value in values}) > 1:
        return "make them one dtype where they are made: value.astype(np.float32), or value.to(torch.float32)"
    if form == "mask" and first.ndim == 2:
        return f'masks follow the crop of their image: fields={{"{name}": ss.decode.Mask(like=...)}}'
    if _is_picture(first, form):
        return (
            f'images: fields={{"{name}": ss.decode.RandomResizedCrop(224)}}, or CenterCrop(224, resize=256), makes'
            " them equal, and so can a transform; to keep their sizes, pass collate_fn to ss.Loader"
        )
    return ""


def _is_picture(value: Any, form: Form) -> bool:
    """Whether an array or tensor is a picture, and no row of numbers: also one that a callable made of an image."""
    return bool(value.ndim == 3 and (form == "image" or (value.shape[2] == 3 and type_name(value) == "uint8")))


def collate_rows(
    name: str, values: Sequence[Any], *, numbers: Numbers, where: Where | None = None, always: bool = False
) -> Any:
    """Arrays or tensors as `Ragged` rows, whatever their shapes; tensors that happen to be equal are stacked.

    What a transform made of something else is collated as that.

    Args:
        name: The output.
        values: One a sample.
        numbers: As of `collate_values`.
        where: As of `collate_values`.
        always: Tensors are rows also where they are equal. What has no dimension never is.

    Raises:
        BatchError: They differ in dtype or number of dimensions.
    """
    arrays = all(isinstance(value, np.ndarray) for value in values)
    if not arrays and not all(isinstance(value, torch.Tensor) for value in values):
        return collate_values(name, values, numbers=numbers, where=where)
    if always and values[0].ndim == 0:
        return collate_values(name, values, numbers=numbers, where=where)
    kinds = [(type_name(value), value.ndim) for value in values]
    if len(set(kinds)) > 1:
        few = ", ".join(f"{dtype} with {ndim} dimensions" for dtype, ndim in sorted(set(kinds))[:3])
        what = f"arrays of different kinds in one batch: {few}"
        raise BatchError(what, field=name, hint=_why_no_rows(name, values, None), **_first_other(kinds, where))
    if not arrays and not always and len({value.shape for value in values}) == 1:
        return _stacked_tensors(values)
    return Ragged.of(values)


def collate_samples(
    samples: Sequence[Any],
    *,
    numbers: Numbers,
    forms: Mapping[str, Form] = MappingProxyType({}),
    where: Where | None = None,
) -> Any:
    """Samples as one batch: dicts by name, tuples by place, anything else by itself.

    Args:
        samples: The samples.
        numbers: As of `collate_values`. What stands in tuples, or by itself, has no declared dtype.
        forms: By name, as of `collate_values`.
        where: As of `collate_values`.

    Raises:
        BatchError: Samples of different keys or shapes.
    """
    first = samples[0]
    if isinstance(first, dict):
        if any(sample.keys() != first.keys() for sample in samples):
            differ = sorted({str(name) for sample in samples for name in sample.keys() ^ first.keys()})
            raise BatchError(f"some samples of a batch have {', '.join(differ)} and some not", hint="return equal keys")
        batch: dict[str, Any] = {}
        for name in first:
            values = [sample[name] for sample in samples]
            batch[name] = collate_values(name, values, numbers=numbers, form=forms.get(name), where=where)
        return batch
    if isinstance(first, tuple):
        if any(len(sample) != len(first) for sample in samples):
            raise BatchError("samples of a batch are tuples of different lengths", hint="return equally long ones")
        columns = enumerate(zip(*samples, strict=True))
        return tuple(collate_values(f"[{i}]", column, numbers=numbers, where=where) for i, column in columns)
    return collate_values("the sample", samples, numbers=numbers, where=where)
