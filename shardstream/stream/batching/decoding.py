"""``Decoding``: the samples of a step on their way from stored rows to outputs, some of it in threads.

A `DecodePool` decodes those outputs that are made by decoders alone which allow it (``Decoder.threaded``).
What is left, users' callables above all, is made when a sample is asked for, in the calling thread. Samples and their
errors come out as if one thread had made them in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from shardstream.decode.context import SampleContext
from shardstream.decode.plan import Output
from shardstream.decode.specs import Decoder
from shardstream.errors import DataError
from shardstream.stream.batching.decode_pool import DecodePool

Value: TypeAlias = Callable[[Output, int, SampleContext], Any]


@dataclass(slots=True)
class _Begun:
    """What threads made of a sample, up to the output where an error ended it."""

    context: SampleContext
    values: dict[str, Any] = field(default_factory=dict)
    failed: str = ""
    error: Exception | None = None


class Decoding:
    """The samples of one step.

    Args:
        outputs: What they have, in the order in which it is made.
        context: Which sample a slot holds, about to be made.
        value: The value of an output of the sample in a slot.
        crew: Threads, or ``None``.
    """

    def __init__(
        self, outputs: Sequence[Output], context: Callable[[int], SampleContext], value: Value, crew: DecodePool | None
    ) -> None:
        self._outputs = outputs
        self._context = context
        self._value = value
        self._crew = crew
        self._threaded = [] if crew is None else threaded(outputs)
        self._begun: dict[int, _Begun] = {}

    def begin(self, slots: Sequence[int], *, skips: bool) -> None:
        """Have threads make what they can of the samples in these slots.

        Args:
            slots: In ascending order.
            skips: Whether samples after a damaged one are wanted.
        """
        if self._crew is None or not self._threaded:
            return

        def work(slot: int) -> bool:
            begun = self._begun[slot] = _Begun(self._context(slot))
            for output in self._threaded:
                try:
                    begun.values[output.name] = self._value(output, slot, begun.context)
                except Exception as error:  # raised in its turn
                    begun.failed, begun.error = output.name, error
                    return skips and isinstance(error, DataError)
            return True

        self._crew.run(work, slots)

    def sample(self, slot: int) -> tuple[dict[str, Any], SampleContext]:
        """The sample in a slot.

        Raises:
            DataError: It is damaged.
            TransformError: A user's callable raised.
        """
        begun = self._begun.pop(slot, None) or _Begun(self._context(slot))
        sample: dict[str, Any] = {"__key__": begun.context.key}
        for output in self._outputs:
            name = output.name
            if begun.error is not None and name == begun.failed:
                raise begun.error
            sample[name] = begun.values[name] if name in begun.values else self._value(output, slot, begun.context)
        return sample, begun.context


def threaded(outputs: Sequence[Output]) -> list[Output]:
    """Those of the outputs that threads may make: decoders alone make them, and allow it, as do those they are like."""
    found: dict[str, Output] = {}
    for output in outputs:
        bases = [step.base for step in output.steps if isinstance(step, Decoder) and step.base is not None]
        ours = all(isinstance(step, Decoder) and step.threaded and not step.calls for step in output.steps)
        if output.steps and ours and all(base in found for base in bases):
            found[output.name] = output
    return list(found.values())
