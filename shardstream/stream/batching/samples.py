"""From stored rows to samples: read, decode, transform."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardstream.dataset.rows import RowBatch, RowReader
from shardstream.dataset.shared import WorkerStatus, shard_ids
from shardstream.dataset.step import Step
from shardstream.decode.context import SampleContext
from shardstream.decode.plan import DecodePlan, Output
from shardstream.decode.usercall import UserCall
from shardstream.errors import BatchError, DataError
from shardstream.shards.fields import FieldType
from shardstream.stream.batching.decode_pool import DecodePool
from shardstream.stream.batching.decoding import Decoding
from shardstream.stream.batching.stages import StageClock
from shardstream.stream.iteration.skips import SkipPolicy
from shardstream.stream.tensors.numbers import Numbers, Where, stored_dtypes


class SampleDecoder:
    """Makes samples of sources that are decoded alike.

    Args:
        reader: Where stored values come from.
        plan: How they become outputs.
        fields: Stored types by field.
        numbers: What decides the dtype of numbers in batches; stored ones are cast to it before anything sees them.
        clock: Is told where the time goes.
        seed: Of everything random.
        transform: A user's callable for each sample, or ``None``.
        policy: What is done about broken samples.
        desk: Where to say which sample is being made, or ``None``.
        crew: Threads that decode, or ``None``.
    """

    def __init__(
        self,
        reader: RowReader,
        plan: DecodePlan,
        fields: Mapping[str, FieldType],
        numbers: Numbers,
        clock: StageClock,
        *,
        seed: int,
        transform: Callable[..., Any] | None,
        policy: SkipPolicy,
        desk: WorkerStatus | None = None,
        crew: DecodePool | None = None,
    ) -> None:
        self.plan = plan
        self.fields = fields
        self.numbers = numbers
        self._stored = stored_dtypes(plan, fields)
        self.seed = seed
        self.policy = policy
        self._reader = reader
        self._clock = clock
        self._desk = desk
        self._crew = crew
        self.transform = None if transform is None else UserCall(transform, what="transform")

    def read(self, step: Step) -> tuple[RowBatch, dict[int, str]]:
        """The stored rows of a step, and the slots whose data is broken with the reason.

        A broken slot's row is that of the first good one.

        Raises:
            DataError: Data is broken, and the policy is to raise.
            BatchError: Nothing in the step is good.
        """
        try:
            return self._reader.read(step.sources, step.shards, step.rows), {}
        except DataError:
            if not self.policy.skips:
                raise
        finally:
            self._clock.lap("read")
        broken: dict[int, str] = {}
        for i in range(len(step.rows)):
            one = step.only(np.array([i]))
            try:
                self._reader.read(one.sources, one.shards, one.rows)
            except DataError as error:
                broken[i] = self.policy.admit(error)
        chosen = np.arange(len(step.rows))
        chosen[list(broken)] = first_good(broken, len(step.rows))
        good = step.only(chosen)
        rows = self._reader.read(good.sources, good.shards, good.rows)
        self._clock.lap("read")
        return rows, broken

    def decoding(
        self,
        rows: RowBatch,
        step: Step,
        broken: Container[int],
        outputs: Sequence[Output],
        slabs: Mapping[str, NDArray[Any]],
        memory: Mapping[str, Callable[[int, int], NDArray[np.uint8]]],
    ) -> Decoding:
        """The samples of a step, about to be decoded.

        Args:
            rows: Its rows.
            step: The step.
            broken: Slots whose samples are not wanted.
            outputs: What to decode.
            slabs: By output, where values are to be written: (n, ...).
            memory: By output, what gives crops their memory, see `SampleContext.memory`.
        """

        def value(output: Output, i: int, context: SampleContext) -> Any:
            slab = slabs.get(output.name)
            return self._value(output, rows, i, context, None if slab is None else slab[i])

        def context(i: int) -> SampleContext:
            return self._context(rows, i, step, memory)

        decoding = Decoding(outputs, context, value, self._crew)
        wanted = [i for i in range(len(step.rows)) if i not in broken]
        decoding.begin(wanted, skips=self.policy.skips)
        return decoding

    def _value(self, output: Output, rows: RowBatch, i: int, context: SampleContext, out: NDArray[Any] | None) -> Any:
        for source in output.sources:
            raw = rows.value(source, i)
            if raw is not None:
                value = output.value(self.fields[source], raw, context, out)
                return self._as_declared(output.name, value, lambda _: place_in(rows, i))
        return output.missing(context, out)

    def _as_declared(self, name: str, value: Any, where: Where) -> Any:
        """A value in the dtype that it has in batches, where it is a number or array of the dtype it is stored in.

        Such a number becomes one of Python. Any other dtype is one that a user's callable chose, and stays.
        """
        stored = self._stored.get(name)
        declared = self.numbers.declared.get(name, stored)
        if declared is None or not isinstance(value, np.generic | np.ndarray):
            return value
        if value.dtype != declared:
            if stored is None or value.dtype != stored:
                return value
            value = self.numbers.converted(name, np.asarray(value)[None], where)[0]
        return value.item() if isinstance(value, np.generic) else value

    def place(self, step: Step) -> dict[str, str | int]:
        """Where the first sample of a step lies, for an error."""
        rows = self._reader.read(step.sources, step.shards, step.rows)
        return place_in(rows, 0)

    def _context(
        self, rows: RowBatch, i: int, step: Step, memory: Mapping[str, Callable[[int, int], NDArray[np.uint8]]]
    ) -> SampleContext:
        """Which sample row i of a step is, about to be made."""
        if self._desk is not None:
            source = None if step.sources is None else int(step.sources[i])
            self._desk.report(shard_ids(source, int(step.shards[i])), rows.rows[i])
        position = int(step.positions[i])
        context = SampleContext(
            rows.keys[i], rows.shards[i], rows.rows[i], position, self.seed, step.epoch, memory=memory
        )
        for field in self.plan.beside:
            context.beside[field] = self.fields[field], rows.value(field, i)
        return context

    def samples(self, step: Step) -> tuple[list[Any], dict[int, str]]:
        """The step's samples, slot by slot, ``None`` where there is none: broken, or dropped by the transform.

        Returns:
            The samples, and the reasons of those that were broken.
        """
        rows, broken = self.read(step)
        decoding = self.decoding(rows, step, broken, self.plan.outputs, {}, {})
        out: list[Any] = []
        for i in range(len(step.rows)):
            sample: Any = None
            if i not in broken:
                try:
                    sample, context = decoding.sample(i)
                    if self.transform is not None:
                        self._clock.lap("decode")
                        sample = self.transform.on_sample(sample, context)
                        self._clock.lap("transform")
                except DataError as error:
                    broken[i] = self.policy.admit(error)
            out.append(sample)
        self._clock.lap("decode")
        return out, broken


def place_in(rows: RowBatch, i: int) -> dict[str, str | int]:
    """Where sample i of some rows lies, for an error."""
    return {"shard": rows.shards[i], "sample": rows.rows[i], "key": rows.keys[i]}


def first_good(broken: Mapping[int, object], count: int) -> int:
    """The first of ``count`` slots that is not broken.

    Raises:
        BatchError: There is none.
    """
    for i in range(count):
        if i not in broken:
            return i
    reasons = [str(reason) for reason in broken.values() if reason]
    raise BatchError(
        f"none of the {count} samples of a batch can be used" + (f"; the first: {reasons[0]}" if reasons else ""),
        hint="run `shardstream verify`, or use a larger batch_size if the transform drops many samples",
    )
