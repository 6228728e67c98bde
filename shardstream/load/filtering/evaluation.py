"""``Evaluation``: calls a predicate for samples of a source, piece by piece, in any process."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Dataset, get_worker_info

from shardstream.dataset.indexes import OpenShards
from shardstream.dataset.joined import samples_of
from shardstream.dataset.rows import RowReader
from shardstream.dataset.source import DatasetSource
from shardstream.dataset.step import Step
from shardstream.decode.usercall import SampleCalls, UserCall, global_states_kept
from shardstream.errors import BatchError, DataError, FieldError, ShardStreamError
from shardstream.sizes import parse_size
from shardstream.storage import ReadQueue
from shardstream.stream.batching.samples import SampleDecoder, StageClock, decode_pool_of
from shardstream.stream.ipc.orphans import end_with_parent
from shardstream.stream.ipc.worker_batch import BatchFailure
from shardstream.stream.iteration.content import ContentPart
from shardstream.stream.iteration.settings import SkipPolicy
from shardstream.stream.tensors.numbers import Numbers, declared_dtypes

_TOGETHER = 4096  # samples that are read at once, at most
_BYTES = 16 << 20  # of them

YES, NO, UNKNOWN = 1, 0, -1


class ShardPiece(NamedTuple):
    """Samples of one shard.

    Attributes:
        shard: Number of the shard.
        first: The first row of the view in it.
        last: The row after the last one.
    """

    shard: int
    first: int
    last: int


class Answers(NamedTuple):
    """What a predicate says of the samples of a piece.

    Attributes:
        rows: Their rows as they are stored: int64 (n,).
        answers: `YES`, `NO`, or `UNKNOWN` where there is no sample to ask of: int8 (n,).
        skipped: How many were damaged.
        reason: Of the first of these.
    """

    rows: NDArray[np.int64]
    answers: NDArray[np.int8]
    skipped: int
    reason: str


class Predicate:
    """A user's predicate as a function to bool, with the parameters that it has.

    Args:
        function: The predicate.
        stored: Names of the stored fields.
    """

    def __init__(self, function: Callable[..., Any], stored: tuple[str, ...]) -> None:
        self._function = function
        self._stored = stored
        self.__qualname__ = getattr(function, "__qualname__", type(function).__qualname__)
        try:
            self.__signature__ = inspect.signature(function)
        except (ValueError, TypeError):  # builtins without a signature
            self.__signature__ = inspect.signature(lambda sample: None)

    def __call__(self, sample: Any, **drawn: Any) -> bool:
        """Whether it is true of a sample; FieldError where it asks for a stored field that it does not get."""
        try:
            return bool(self._function(sample, **drawn))
        except KeyError as error:
            name = error.args[0] if error.args else None
            if name not in self._stored or not isinstance(sample, dict) or name in sample:
                raise
            names = [one for one in sample if one != "__key__"]
            raise FieldError(
                f"the predicate asks for {name!r}, and gets {', '.join(sample)}",
                field=name,
                hint=f"pass fields={[*names, name]}: by default it gets the fields of the dataset without images",
            ) from error


class _Skipping(SkipPolicy):
    """Counts damaged samples, and leaves it to `find_rows` to say so.

    Attributes:
        reasons: What is wrong with those since it was emptied.
    """

    def __init__(self, *, skips: bool) -> None:
        super().__init__("skip" if skips else "raise", None)
        self.reasons: dict[str, None] = {}

    def admit(self, error: DataError) -> str:
        if not self.skips:
            raise error
        self.reasons[str(error)] = None
        return str(error)


class Evaluation(Dataset[Any]):
    """Gives the `Answers` of a `ShardPiece`; in a worker, errors of ours as a `BatchFailure`.

    Args:
        part: The source, with how its samples are made.
        predicate: The predicate.
        seed: Of everything random.
    """

    def __init__(self, part: ContentPart, predicate: Predicate, seed: int) -> None:
        self._part = part
        self._predicate = predicate
        self._seed = seed
        self._begins = np.cumsum(samples_of(part.source.manifests), dtype=np.int64)
        self._tools: tuple[int, OpenShards, SampleDecoder, _Skipping] | None = None  # of the process of this number

    @property
    def source(self) -> DatasetSource:
        """The source."""
        return self._part.source

    def __getitem__(self, piece: ShardPiece) -> Answers | BatchFailure:
        worker = get_worker_info()
        try:
            return self._answers(piece)
        except ShardStreamError as error:
            if worker is None:
                raise
            return BatchFailure.of(error, worker.id)

    def pieces(self, shard: int, most: int) -> Iterator[ShardPiece]:
        """The samples of a shard, so many at a time at most."""
        count = int(self.source.counts[shard])
        return (ShardPiece(shard, first, min(first + most, count)) for first in range(0, count, most))

    def _answers(self, piece: ShardPiece) -> Answers:
        shards, decoder, policy = self._own_tools()
        policy.reasons.clear()
        rows = np.arange(piece.first, piece.last)
        stored = shards.open(0, piece.shard).stored_rows(rows)
        begin = int(self._begins[piece.shard - 1]) if piece.shard else 0
        together = max(1, min(_TOGETHER, int(_BYTES / max(self.source.mean_bytes, 1))))
        answers = np.full(len(rows), UNKNOWN, np.int8)
        for start in range(0, len(rows), together):
            some = slice(start, start + together)
            step = Step(0, begin + stored[some], np.full(len(rows[some]), piece.shard), rows[some], None)
            with global_states_kept():
                found = self._asked(decoder, step)
            answers[some] = [UNKNOWN if one is None else one for one in found]
        return Answers(stored, answers, len(policy.reasons), next(iter(policy.reasons), ""))

    def _asked(self, decoder: SampleDecoder, step: Step) -> list[bool | None]:
        """What the predicate says of each sample of a step; ``None`` where there is none."""
        try:
            return decoder.samples(step)[0]
        except BatchError:  # they do not fit into memory together
            if len(step.rows) > 1:
                return [self._asked(decoder, step.only(np.array([i])))[0] for i in range(len(step.rows))]
            if not decoder.policy.skips:
                raise
            return [None]

    def _own_tools(self) -> tuple[OpenShards, SampleDecoder, _Skipping]:
        """What this process reads and decodes with."""
        if self._tools is None or self._tools[0] != os.getpid():
            if get_worker_info() is not None:
                end_with_parent()
            part, source = self._part, self._part.source
            largest = parse_size(part.options.reads.max_value, name="max_value")
            shards = OpenShards([source], ReadQueue(), max_values=[largest])
            fields = {name: source.fields[name] for name in part.plan.sources}
            reader = RowReader(shards, fields, verify=part.options.reads.verify)
            numbers = Numbers(declared_dtypes(part.plan, source.fields))
            decoder = SampleDecoder(reader, part, numbers, StageClock(), seed=self._seed, pool=decode_pool_of(None))
            calls = [] if decoder.transform is None else [decoder.transform]
            decoder.transform = SampleCalls([*calls, UserCall(self._predicate, "predicate")])
            decoder.policy = policy = _Skipping(skips=part.options.on_error == "skip")
            self._tools = os.getpid(), shards, decoder, policy
        return self._tools[1:]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_tools": None}
