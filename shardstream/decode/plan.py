"""What is made of a sample: its outputs, in order, and the stored fields that they are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardstream.decode.context import SampleContext
from shardstream.decode.packed import Packed
from shardstream.decode.pictures import Layout
from shardstream.decode.specs import Decoder, Slot
from shardstream.decode.usercall import UserCall
from shardstream.errors import DecodeError, FieldError, ShardStreamError, did_you_mean
from shardstream.shards.fields import FieldType


@dataclass(frozen=True, slots=True)
class Output:
    """One output of a sample: where it comes from and how its values are made.

    Attributes:
        name: The output's name.
        sources: Stored fields that may hold it, in order of preference. Empty for an optional one that is not stored.
            Those of the image where all is known from that (`Decoder.is_derived`).
        optional: Whether samples may lack it in silence. Those without a decoder may too, and are then ``None``.
        slot: Shape and dtype where all values have the same: `value` then writes into ``out``. Else ``None``.
        is_cut: Values are `Cut` in place of that: images of that shape once the device has resized them.
        is_ragged: Values are arrays whose lengths vary: a batch of them is a `Ragged`, whatever they are.
        is_image: Values are uint8 (H, W, 3), unless a user's callable at the end made something else of them.
        layout: The axes of its images in samples and batches; ``None``: those of a batch are moved to (B, 3, H, W).
        plain: A stored scalar or fixed column, passed on as it is: no call of `value` is needed.
        dtype: Of its numbers, where the spec ends with a numpy type or `Array`. What is `plain` has yet to be converted
            to it.
        as_bytes: The stored payload bytes as they are: no call of `value` is needed either.
        required: A sample that lacks it is broken: there is a decoder, and it is not optional.
        steps: What is applied in turn.
        stream: The random stream of its draws, from its name in ``fields``.
        origin: That name, by which decoders know it, where it is delivered under another.
        beside: Stored fields that decoders read beside those (`SampleContext.beside`).
        if_missing: What to do about samples without an image, as a hint, if other stored fields hold images.
        together: The names of all outputs of the one call that makes it, in the order in which the call returns their
            values; empty where it makes this one alone. The first of them that is asked for calls it, once a sample.

    Example:
        >>> from shardstream.decode import compile_fields
        >>> crop, label = compile_fields({"jpg": CenterCrop(32), "cls": None}, manifest_fields).outputs
        >>> crop.slot.shape, label.plain
        ((32, 32, 3), True)
    """

    name: str
    sources: tuple[str, ...]
    optional: bool
    slot: Slot | None
    is_cut: bool
    is_ragged: bool
    is_image: bool
    plain: bool
    as_bytes: bool
    required: bool
    steps: tuple[Decoder | UserCall, ...]
    stream: int
    layout: Layout | None = None
    dtype: np.dtype[Any] | None = None
    origin: str = ""
    beside: tuple[str, ...] = ()
    if_missing: str = ""
    together: tuple[str, ...] = ()

    def value(
        self,
        source_type: FieldType,
        raw: memoryview | np.generic | NDArray[Any],
        context: SampleContext,
        out: NDArray[Any] | None = None,
    ) -> Any:
        """The value of one sample.

        Args:
            source_type: The type of the stored field that ``raw`` is from.
            raw: As stored: a payload's bytes, or an element of a scalar or fixed column.
            context: The sample. Outputs that others are ``like`` come first, with the same context.
            out: With a `slot`: an array of its shape and dtype, C-contiguous, which is written and returned.

        Raises:
            DecodeError: The stored bytes do not decode; the place names key, shard and sample.
            TransformError: A user's callable raised.
        """
        if self.together and self.together in context.parts:
            return context.parts[self.together][self.together.index(self.origin or self.name)]
        last = len(self.steps) - 1
        try:
            value = self._start(source_type, raw)
            for number, step in enumerate(self.steps):
                if isinstance(step, UserCall):
                    value = step.on_sample(value, context)
                else:
                    slot = out if number == last else None
                    value = step.apply(value, context, name=self.origin or self.name, stream=self.stream, out=slot)
        except ShardStreamError as error:
            field = self.sources[0] if len(self.sources) == 1 else self.name
            # The error with its place in the stead of the one without: what caused it stays its cause.
            raise error.at(**context.place, field=field) from error.__cause__
        if self.together:
            context.parts[self.together] = value
            return value[self.together.index(self.origin or self.name)]
        return value

    def _start(self, kind: FieldType, raw: Any) -> Any:
        """What the first step gets: encoded bytes where it decodes them itself, else the value of the field's type."""
        if self.as_bytes:
            return bytes(raw)
        return raw if kind.is_encoded and self.steps and isinstance(self.steps[0], Decoder) else kind.decode(raw)

    def missing(self, context: SampleContext, out: NDArray[Any] | None = None) -> Any:
        """The value of a sample that lacks the field.

        Returns:
            A row of padding for ``Text(pad_to=)``; else ``None``, and with ``out`` zeros, or a mask's ``fill``.

        Raises:
            DecodeError: It is `required`.
        """
        if self.required:
            raise DecodeError(
                "the sample has no " + " or ".join(map(repr, self.sources)),
                hint=f"{self.if_missing and f'{self.if_missing}; or '}give the decoder optional=True if that is fine",
                **context.place,
                field=self.name,
            )
        last = self.steps[-1] if self.steps else None
        return last.missing(out) if isinstance(last, Decoder) else None

    @property
    def packed(self) -> Packed | None:
        """What makes it of bins; ``None``: nothing does."""
        return self.steps[0] if self.steps and isinstance(self.steps[0], Packed) else None

    @property
    def calls(self) -> tuple[UserCall, ...]:
        """The user's callables that making a value calls."""
        calls: list[UserCall] = []
        for step in self.steps:
            calls += (step,) if isinstance(step, UserCall) else step.calls
        return tuple(calls)

    @property
    def stored(self) -> bool:
        """Whether values are as stored, by the field's type or (`as_bytes`) as bytes: nothing is decoded or called."""
        return not self.steps


@dataclass(frozen=True, slots=True)
class DecodePlan:
    """All outputs of a sample.

    Attributes:
        outputs: In the order in which they must be made: whatever is ``like`` another comes after it.
        names: Their names in the order the user gave.
        sources: The stored fields that must be read, each once.
        beside: Those of them that decoders read beside their own (`SampleContext.beside`).

    Example:
        >>> from shardstream.decode import compile_fields
        >>> made = compile_fields({"jpg": CenterCrop(32), "cls": None}, manifest_fields)
        >>> made.names, made.sources
        (('jpg', 'cls'), ('jpg', 'cls'))
    """

    outputs: tuple[Output, ...]
    names: tuple[str, ...]
    sources: tuple[str, ...]
    beside: tuple[str, ...] = ()

    @property
    def of_columns(self) -> bool:
        """Whether nothing is made of a sample by itself: all outputs are numbers as they are stored, or of bins."""
        return all(output.plain or output.packed is not None for output in self.outputs)

    @property
    def cut(self) -> tuple[str, ...]:
        """The outputs that the device resizes."""
        return tuple(output.name for output in self.outputs if output.is_cut)

    def delivering(self, names: Sequence[tuple[str, str]]) -> DecodePlan:
        """The same with only some of the outputs, under other names; they are made, and draw, as before.

        Args:
            names: Names of outputs, each with the one to deliver it under.

        Raises:
            FieldError: There is no such output, two get one name, or one is ``like`` another that is left out.
        """
        new = dict(names)
        for name in new:
            if name not in self.names:
                raise unknown_output(name, self.names)
        if len(set(new.values())) < len(new):
            twice = next(name for name in new.values() if list(new.values()).count(name) > 1)
            raise FieldError(f"two outputs would have the name {twice!r}", field=twice, hint="give each its own")
        kept = [output for output in self.outputs if output.name in new]
        decoders = [(output, step) for output in kept for step in output.steps if isinstance(step, Decoder)]
        for output, step in decoders:
            if step.base is not None and step.base not in new:
                what = f"{output.name!r} is like {step.base!r}, so it needs that, too"
                raise FieldError(what, field=output.name, hint="select both, and leave the other out in a map")
        outputs = tuple(replace(output, name=new[output.name], origin=output.name) for output in kept)
        return DecodePlan(outputs, tuple(new.values()), *fields_of(kept))


def unknown_output(name: str, outputs: Sequence[str]) -> FieldError:
    """The error for an output that there is not; proposes the nearest."""
    hint = did_you_mean(name, outputs) + "outputs: " + ", ".join(map(repr, outputs))
    return FieldError(f"there is no output {name!r}", field=name, hint=hint)


def fields_of(outputs: Sequence[Output]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The stored fields that these outputs are made of, and those of them that are read beside others."""
    beside = dict.fromkeys(name for output in outputs for name in output.beside)
    read = dict.fromkeys([*(source for output in outputs for source in output.sources), *beside])
    return tuple(read), tuple(beside)
