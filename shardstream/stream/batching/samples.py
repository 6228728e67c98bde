"""From stored rows to samples: read, decode, transform; some of it in threads.

A `DecodePool` decodes those outputs that are made by decoders alone which allow it (``Decoder.threaded``). What is
left, users' callables above all, is made when a sample is asked for, in the calling thread. Samples and their errors
come out as if one thread had made them in turn.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from shardstream.dataset.gathered_rows import Memory
from shardstream.dataset.rows import RowBatch, RowReader, location_in
from shardstream.dataset.shared import DECODING, SLOT, STAGE, WorkerStatus, shard_ids
from shardstream.dataset.step import Step
from shardstream.decode.context import SampleContext
from shardstream.decode.pictures import Picture
from shardstream.decode.plan import Output
from shardstream.decode.specs import Decoder
from shardstream.decode.usercall import names_behind, sample_call
from shardstream.errors import DataError
from shardstream.shards.fields import FieldType
from shardstream.stream.iteration.content import ContentPart
from shardstream.stream.iteration.settings import SkipPolicy
from shardstream.stream.tensors.numbers import Numbers, Where, converted, declared_dtypes, stored_dtypes

_TOGETHER = 16
"""Samples of which all that comes before pixels is done in turn. More gain little, and hold more copies of files."""
_MOST_THREADS = 8
"""Threads by default: where one process decodes for a machine with more cores, workers gain more."""

Stage: TypeAlias = Literal["read", "decode", "transform", "assemble"]
CropMemory: TypeAlias = Mapping[str, Callable[[int, int], NDArray[np.uint8]]]
"""By output, what gives crops their memory, see `SampleContext.memory`."""


class StageClock:
    """Laps of one thread's work: the time since the last one goes to a stage.

    ``read`` is waiting for storage, with checksums and decompression; ``decode`` the decoders and callables of
    ``fields``; ``transform`` the callables for samples and batches; ``assemble`` all else that makes a batch.

    Attributes:
        seconds: By stage, since `begin`.
        lap: To be called where a stage ends.

        >>> clock = StageClock()
        >>> clock.lap("read")
        >>> list(clock.seconds)
        ['read']
    """

    def __init__(self) -> None:
        self.lap: Callable[[Stage], None] = self._lap
        self.begin()

    def record(self, span: Callable[[str, float, float], None] | None) -> None:
        """Have a function called with each lap, and when it began and ended, by ``time.perf_counter``."""
        self.lap = self._lap if span is None else partial(self._recorded, span)

    def begin(self) -> None:
        """Begin anew: what was since the last lap goes nowhere."""
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def _recorded(self, span: Callable[[str, float, float], None], stage: Stage) -> None:
        begun = self._last
        self._lap(stage)
        span(stage, begun, self._last)

    def _lap(self, stage: Stage) -> None:
        now, seconds = time.perf_counter(), self.seconds
        seconds[stage] = now - self._last + seconds[stage] if stage in seconds else now - self._last
        self._last = now


def decode_pool_of(threads: int | None) -> DecodePool | None:
    """The threads of this process.

    Args:
        threads: How many; ``None`` for as many as torch takes for itself, at most 8: the cores of a process that
            trains alone, one in a DataLoader worker and where ``OMP_NUM_THREADS`` says so, as under torchrun.

    Returns:
        ``None`` where one thread does everything, and torch's operators have one.
    """
    own = torch.get_num_threads()
    number = threads or min(own, _MOST_THREADS)
    return DecodePool(number) if max(number, own) > 1 else None


class DecodePool:
    """The calling thread and some more, which come when they are needed first and go with `close`.

    Args:
        threads: How many there are, with the calling one.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._others: ThreadPoolExecutor | None = None

    def run(self, work: Callable[[int], bool], numbers: Iterable[int]) -> None:
        """Call ``work`` for each number, from several threads at once; return when all calls have.

        After a call that returns False none is begun for a larger number, but all are for smaller ones.

        Args:
            work: Must not raise.
            numbers: What it is called with, in the order in which calls are begun.
        """
        if self._others is None and self.threads > 1:
            self._others = ThreadPoolExecutor(self.threads - 1, thread_name_prefix="shardstream-decode")
        left = iter(tuple(numbers))  # a step of this iterator is atomic
        end = math.inf

        def take_turns() -> None:
            nonlocal end
            for number in left:
                if number < end and not work(number):
                    end = min(end, number)

        with _operators_in_one_thread():
            others = [] if self._others is None else [self._others.submit(take_turns) for _ in range(self.threads - 1)]
            try:
                take_turns()
            except BaseException:  # an interruption of this thread
                end = -1
                raise
            finally:  # the others write to the same batch
                wait(others)

    def close(self) -> None:
        """End the other threads; `run` brings new ones."""
        others, self._others = self._others, None
        if others is not None:
            others.shutdown()


@contextmanager
def _operators_in_one_thread() -> Iterator[None]:
    """Have torch's operators use the thread that calls them, here and in threads that call their first one now.

    A single picture is too small to be shared out among torch's threads: on a busy machine, decoding with two of them
    took six times the processor time of one (`docs/decisions/009-gathering-and-threads.md`).
    """
    before = torch.get_num_threads()
    if before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class SampleDecoder:
    """Makes samples of sources that are decoded alike.

    Args:
        reader: Where stored values come from.
        part: The source, or the first of those that are decoded alike, with how its samples are made.
        numbers: What decides the dtype of numbers in batches; stored ones are cast to it before anything sees them.
        clock: Counts where the time goes.
        seed: Of everything random.
        status: Where to report which sample is being made, or ``None``.
        pool: Threads that decode, or ``None``.

    Attributes:
        plan: How stored values become outputs.
        fields: Stored types by field.
        numbers: As given.
        seed: As given.
        policy: What is done about broken samples.
        transform: A user's callable for each sample, or ``None``.
        names: Those of outputs behind it, where they were renamed or selected after a map.
        status: As given.
        words: Its words, or ``None``.
        early: Outputs that begin with a picture, and it.
    """

    def __init__(
        self,
        reader: RowReader,
        part: ContentPart,
        numbers: Numbers,
        clock: StageClock,
        *,
        seed: int,
        status: WorkerStatus | None = None,
        pool: DecodePool | None = None,
    ) -> None:
        options = part.options
        self.plan = part.plan
        self.fields = part.source.fields
        self.numbers = numbers
        self.seed = seed
        self.policy = SkipPolicy(options.on_error, options.max_skips)
        self.transform = sample_call(options.transforms)
        self.names = names_behind(options.transforms, self.plan.names)
        self.status = status
        self.words = None if status is None else status.words
        self._stored = stored_dtypes(self.plan, self.fields)
        own = declared_dtypes(self.plan, self.fields)
        self._declared = {name: numbers.declared.get(self.names.get(name, ""), dtype) for name, dtype in own.items()}
        self.early = begun_early(self.plan.outputs)
        self._threaded = threaded(self.plan.outputs)
        self._reader = reader
        self._excludes = reader.excludes
        self._clock = clock
        self._pool = pool

    def read(
        self, step: Step, into: Mapping[str, Memory] = MappingProxyType({})
    ) -> tuple[RowBatch | None, dict[int, str]]:
        """The stored rows of a step, and the slots whose data is broken, or to be taken for it, with the reason.

        A broken slot's row is that of the first good one; without a good one there are no rows. What ``exclude_keys``
        names is not read at all.

        Raises:
            DataError: Data is broken, and the policy is to raise.
        """
        broken: dict[int, str] = {}
        if self._excludes:
            broken = self._reader.excluded(step.sources, step.shards, step.rows)
        good = _without(step, broken) if broken else step
        if good is None:
            return None, broken
        try:
            return self._reader.read(good.sources, good.shards, good.rows, into), broken
        except DataError:
            if not self.policy.skips:
                raise
        finally:
            self._clock.lap("read")
        for i in range(len(step.rows)):
            if i in broken:
                continue
            one = step.only(np.array([i]))
            try:
                self._reader.read(one.sources, one.shards, one.rows)
            except DataError as error:
                broken[i] = self.policy.admit(error)
        good = _without(step, broken)
        rows = None if good is None else self._reader.read(good.sources, good.shards, good.rows)
        self._clock.lap("read")
        return rows, broken

    def read_sound(self, step: Step) -> RowBatch | None:
        """The stored rows of a step; ``None`` where one cannot see at once that all are in memory and sound."""
        broken = self._excludes and self._reader.excluded(step.sources, step.shards, step.rows)
        rows = None if broken else self._reader.gather(step.sources, step.shards, step.rows)
        self._clock.lap("read")
        return rows

    def begin(self, decoding: StepDecoding, broken: Container[int]) -> None:
        """Have threads make what they can of a step's samples, but for those in broken slots."""
        if self.status is not None:
            ids = shard_ids(decoding.step.sources, decoding.step.shards)
            self.status.lists(ids, decoding.rows.rows, decoding.rows.keys)
        if self._pool is not None and self._threaded:
            wanted = [i for i in range(len(decoding.step.rows)) if i not in broken]
            if self._pool.threads > 1:  # one of many bytes that was begun last would be waited for alone
                sizes = decoding.sizes(self._threaded)
                wanted.sort(key=sizes.__getitem__, reverse=True)
            self._pool.run(partial(decoding.begin, self._threaded, skips=self.policy.skips), wanted)

    def as_declared(self, name: str, value: Any, where: Where) -> Any:
        """A value in the dtype that it has in batches, where it is a number or array of the dtype it is stored in.

        Such a number becomes one of Python. Any other dtype is one that a user's callable chose, and stays.
        """
        stored = self._stored.get(name)
        declared = self._declared.get(name)
        if declared is None or not isinstance(value, np.generic | np.ndarray):
            return value
        if value.dtype != declared:
            if stored is None or value.dtype != stored:
                return value
            numbers = np.asarray(value)[None]
            value = converted(name, numbers, where, np.empty(numbers.shape, declared))[0]
        return value.item() if isinstance(value, np.generic) else value

    def location(self, step: Step) -> dict[str, str | int]:
        """Where the first sample of a step lies, for an error."""
        rows = self._reader.read(step.sources, step.shards, step.rows)
        return location_in(rows, 0)

    def samples(self, step: Step) -> tuple[list[Any], dict[int, str]]:
        """The step's samples, slot by slot, ``None`` where there is none: broken, or dropped by the transform.

        Returns:
            The samples, and the reasons of those that were broken.
        """
        rows, broken = self.read(step)
        if rows is None:
            return [None] * len(step.rows), broken
        decoding = StepDecoding(self, rows, step, self.plan.outputs)
        self.begin(decoding, broken)
        out: list[Any] = []
        words = None if self.transform is None else self.words
        for i in range(len(step.rows)):
            sample: Any = None
            if words is not None:  # the one before was transformed
                words[STAGE] = DECODING
            if i not in broken:
                try:
                    sample, context = decoding.sample(i)
                    if self.transform is not None:
                        self._clock.lap("decode")
                        if self.status is not None:
                            self.status.transforms()
                        sample = self.transform.on_sample(sample, context)
                        self._clock.lap("transform")
                except DataError as error:
                    broken[i] = self.policy.admit(error)
            out.append(sample)
        self._clock.lap("decode")
        return out, broken


@dataclass(slots=True)
class _Begun:
    """What threads made of a sample, up to the output where an error ended it."""

    context: SampleContext
    values: dict[str, Any] = field(default_factory=dict)
    failed: str = ""
    error: Exception | None = None


@dataclass(slots=True)
class StepDecoding:
    """The samples of one step, on their way from stored rows to outputs.

    Attributes:
        decoder: What decodes them.
        rows: Their rows.
        step: The step.
        outputs: What to decode, in the order in which it is made: all that threads may make, at least.
        slabs: By output, where values are to be written: (n, ...).
        memory: By output, what gives crops their memory.
    """

    decoder: SampleDecoder
    rows: RowBatch
    step: Step
    outputs: Sequence[Output]
    slabs: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    memory: CropMemory = field(default_factory=dict)
    _begun: dict[int, _Begun] = field(default_factory=dict)

    def sizes(self, outputs: Sequence[Output]) -> list[int]:
        """Bytes that these outputs are made of, by slot: about as long as they take."""
        sizes = [0] * len(self.step.rows)
        for output in outputs:
            for source in output.sources:
                data = self.rows.columns[source].data
                for i, value in enumerate(data if isinstance(data, list) else ()):
                    sizes[i] += 0 if value is None else len(value)
        return sizes

    def begin(self, outputs: Sequence[Output], slot: int, *, skips: bool) -> bool:
        """Make these outputs of a sample, from any thread; an error is raised where the sample is asked for.

        Returns:
            Whether samples after it are wanted.
        """
        if self.decoder.words is not None:
            self.decoder.words[SLOT] = slot
        begun = self._begun[slot] = _Begun(self._context(slot))
        for output in outputs:
            try:
                begun.values[output.name] = self._value(output, slot, begun.context)
            except Exception as error:  # raised in its turn
                begun.failed, begun.error = output.name, error
                return skips and isinstance(error, DataError)
        return True

    def sample(self, slot: int) -> tuple[dict[str, Any], SampleContext]:
        """The sample in a slot.

        Raises:
            DataError: It is damaged.
            TransformError: A user's callable raised.
        """
        words = self.decoder.words
        if words is not None:
            words[SLOT] = slot
        begun = self._begun.pop(slot, None) or self._together(slot)
        sample: dict[str, Any] = {"__key__": begun.context.key}
        for output in self.outputs:
            name = output.name
            if begun.error is not None and name == begun.failed:
                raise begun.error
            sample[name] = begun.values[name] if name in begun.values else self._value(output, slot, begun.context)
        return sample, begun.context

    def _together(self, slot: int) -> _Begun:
        """The sample in a slot with what comes before its pixels, which is done for those after it as well."""
        for i in range(slot, min(slot + _TOGETHER, len(self.step.rows)) if self.decoder.early else slot + 1):
            begun = self._begun[i] = _Begun(self._context(i))
            with suppress(Exception):  # raised again when the sample is asked for
                for output, step in self.decoder.early:
                    kind, raw = self._stored(output, i) or (None, None)
                    if kind is not None and kind.is_encoded:
                        step.begin(raw, begun.context, name=output.origin or output.name, stream=output.stream)
        return self._begun.pop(slot)

    def _context(self, i: int) -> SampleContext:
        """Which sample row i of the step is, about to be made."""
        decoder, rows, step = self.decoder, self.rows, self.step
        position = int(step.positions[i])
        context = SampleContext(
            rows.keys[i], rows.shards[i], rows.rows[i], position, decoder.seed, step.epoch, memory=self.memory
        )
        for name in decoder.plan.beside:
            context.beside[name] = decoder.fields[name], rows.value(name, i)
        return context

    def _value(self, output: Output, i: int, context: SampleContext) -> Any:
        decoder, rows, slab = self.decoder, self.rows, self.slabs.get(output.name)
        out = None if slab is None else slab[i, ...]  # a view, also of a number
        stored = self._stored(output, i)
        if stored is None:
            return output.missing(context, out)
        value = output.value(*stored, context, out)
        return decoder.as_declared(output.name, value, lambda _: location_in(rows, i))

    def _stored(self, output: Output, i: int) -> tuple[FieldType, Any] | None:
        """The type and the stored value of an output; ``None`` where row i has none."""
        for source in output.sources:
            raw = self.rows.value(source, i)
            if raw is not None:
                return self.decoder.fields[source], raw
        return None


def begun_early(outputs: Sequence[Output]) -> list[tuple[Output, Picture]]:
    """Those of the outputs that begin with a picture, and it: no user's callable has a part in where it is cut out."""
    firsts = [(output, output.steps[0]) for output in outputs if output.steps]
    return [(output, step) for output, step in firsts if isinstance(step, Picture) and not step.calls]


def threaded(outputs: Sequence[Output]) -> list[Output]:
    """Those of the outputs that threads may make: decoders alone make them, and allow it, as do those they are like."""
    found: dict[str, Output] = {}
    for output in outputs:
        bases = [step.base for step in output.steps if isinstance(step, Decoder) and step.base is not None]
        ours = all(isinstance(step, Decoder) and step.threaded and not step.calls for step in output.steps)
        if output.steps and ours and all(base in found for base in bases):
            found[output.origin or output.name] = output  # as others name it by like=
    return list(found.values())


def _without(step: Step, broken: Mapping[int, str]) -> Step | None:
    """The step with its first good sample in broken slots; ``None`` if there is none."""
    chosen = np.arange(len(step.rows))
    first = next((slot for slot in chosen.tolist() if slot not in broken), None)
    if first is None:
        return None
    chosen[list(broken)] = first
    return step.only(chosen)
