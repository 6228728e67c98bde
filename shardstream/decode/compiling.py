"""What a user asks for in ``fields=``, checked against what is stored, as a `DecodePlan`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from shardstream.dataset.image_field import image_advice, matching_fields
from shardstream.decode.calls import Call, CallParts
from shardstream.decode.dtypes import Array, AsType, dtype_named
from shardstream.decode.packed import Packed
from shardstream.decode.pictures import AsPil, Image, Layout, Picture
from shardstream.decode.plan import DecodePlan, Output, fields_of
from shardstream.decode.specs import Decoder, Slot
from shardstream.decode.usercall import UserCall, stream_of
from shardstream.errors import FieldError, did_you_mean
from shardstream.images.backends import Backend, BackendName
from shardstream.shards.fields import FieldType, ValuesType

Part: TypeAlias = "Decoder | Call | Callable[..., Any] | str | None"
Spec: TypeAlias = "Part | Sequence[Part]"
Fields: TypeAlias = "Mapping[Any, Spec] | Sequence[str] | None"  # by name, or by a tuple of names

_IMAGE, _PIL = Image(), AsPil()
_HINT = "a field is None (as stored), 'bytes', 'pil', a decoder, a callable, a numpy type, or a list of these"


def compile_fields(
    fields: Fields, stored: Mapping[str, FieldType], *, backend: Backend | BackendName = "auto"
) -> DecodePlan:
    """Check what a user asks for against what is stored, and lay it out.

    Args:
        fields: A mapping of output names to specs (of tuples of names, where one call makes several), a list of names,
            or ``None`` for every stored field by its type.
        stored: The data set's fields.
        backend: Of image decoders that name none.

    Raises:
        MissingExtraError: The library of a backend is not installed.
        FieldError: A field that is not stored (the nearest name is proposed), a spec that is none, a decoder on a
            field it cannot decode, or ``like=`` an output that is missing, no image, or depends on this one.

        >>> plan = compile_fields({"jpg": RandomResizedCrop(224), "cls": None}, manifest_fields)
        >>> plan.outputs[0].slot.shape
        (224, 224, 3)
    """
    if fields is None:
        fields = list(stored)
    if isinstance(fields, str):
        raise FieldError(f"fields={fields!r} is a string", hint=f"did you mean fields=[{fields!r}]?")
    specs: Mapping[Any, Spec] = fields if isinstance(fields, Mapping) else dict.fromkeys(fields)
    drafts: dict[str, _Draft] = {}
    for key, spec in specs.items():
        draft = _Draft(key, spec)
        for name in draft.names:
            if name in drafts:
                raise FieldError(f"two outputs have the name {name!r}", field=name, hint="name each once in `fields`")
            drafts[name] = draft
    made: dict[str, Output] = {}
    for draft in _bases_first(drafts):
        made.update((output.name, output) for output in draft.outputs(made, stored, backend))
    return DecodePlan(tuple(made.values()), tuple(drafts), *fields_of([made[name] for name in drafts]))


class _Draft:
    """One entry of ``fields`` on its way to an `Output`, or several."""

    def __init__(self, key: object, spec: Spec) -> None:
        if isinstance(spec, Packed):
            key = tuple(spec.named)
        self.several = isinstance(key, tuple) and bool(key)
        self.names: tuple[Any, ...] = key if isinstance(key, tuple) and key else (key,)
        for name in self.names:
            if not isinstance(name, str) or not name or name.startswith("__"):
                hint = "it takes a string that does not begin with '__', or a tuple of such for one call"
                raise FieldError(f"{name!r} cannot name an output", hint=hint)
        self.name: str = self.names[0]
        many = isinstance(spec, Sequence) and not isinstance(spec, str)
        self.parts: tuple[Part, ...] = tuple(spec) if many else (spec,)  # type: ignore[arg-type, assignment]
        if self.parts[:1] == ("pil",):
            self.parts = (_IMAGE, *self.parts)
        self.decoders = [part for part in self.parts if isinstance(part, Decoder)]
        self.sourced = [part for part in self.parts if isinstance(part, Decoder | Call)]
        self.optional = any(part.optional for part in self.sourced)
        self._check_parts()
        self.asked_bytes = self.parts[0] == "bytes"
        self.base = self.decoders[0].base if self.decoders else None

    def _check_parts(self) -> None:
        if not self.parts:
            raise FieldError("a field spec must not be an empty list", field=self.name, hint=_HINT)
        for number, part in enumerate(self.parts):
            if part is None or isinstance(part, Decoder | Call) or part == "pil" or (part == "bytes" and number == 0):
                continue
            if isinstance(part, type) and issubclass(part, Decoder | Call):
                kind = part.__name__
                raise FieldError(f"{kind} without arguments", field=self.name, hint=f"write {kind}(...)")
            if isinstance(part, str) or not callable(part):
                raise FieldError(f"{part!r} is not a field spec", field=self.name, hint=_HINT)
        kinds = [part if isinstance(part, str) else None for part in self.parts]
        if "pil" in kinds and any(isinstance(part, Decoder) for part in self.parts[kinds.index("pil") :]):
            hint = 'write the decoder before it: [ss.decode.RandomResizedCrop(224), "pil", function]'
            raise FieldError('no decoder can follow "pil" in a list', field=self.name, hint=hint)
        converting = [part for part in self.parts if isinstance(part, Decoder) or part == "pil"]
        if any(isinstance(part, Picture) and part.layout is not None for part in converting[:-1]):
            hint = 'give it to the last decoder; Pillow images have no layout, so leave it out in front of "pil"'
            raise FieldError("layout= works in the last decoder of a list only", field=self.name, hint=hint)
        if any(isinstance(part, Decoder) and part.is_cut for part in self.parts[:-1]):
            raise FieldError(
                'nothing can follow a decoder with resize="device" in a list',
                field=self.name,
                hint="resize in the worker, or do the rest on the device too, as transform= of ss.DevicePrefetcher",
            )
        if any(decoder.base is not None for decoder in self.decoders[1:]):
            raise FieldError("like= works in the first decoder of a list only", field=self.name, hint=_HINT)
        if self.several:
            self._check_several()

    def _check_several(self) -> None:
        last = self.parts[-1]
        write = f'fields={{{self.names!r}: ss.decode.Call(function, source="...")}}'
        if last is None or (isinstance(last, Decoder | str) and not isinstance(last, Packed)):
            raise FieldError(f"only a callable makes the outputs {self.names!r} at once", hint=f"write {write}")
        if all(part.source is None for part in self.sourced):
            raise FieldError(f"no source for the outputs {self.names!r}", hint=f"name the stored field: {write}")

    @property
    def _layout(self) -> Layout | None:
        return next((part.layout for part in reversed(self.decoders) if isinstance(part, Picture)), None)

    def _find_beside(self, stored: Mapping[str, FieldType]) -> tuple[str, ...]:
        found = tuple(field for decoder in self.decoders for field in decoder.beside(stored))
        for field in found:
            if field not in stored:
                raise _not_stored([field], f" (read beside output {self.name!r})", stored)
        return found

    def _find_sources(self, stored: Mapping[str, FieldType], base: Output | None) -> dict[str, FieldType]:
        """The stored fields that may hold it, in order of preference, with their types."""
        if base is not None and self.decoders[0].is_derived:
            return {name: stored[name] for name in base.sources}
        asked = next((part.source for part in self.sourced if part.source is not None), self.name)
        candidates = [part.strip() for part in asked.split(";")]
        sources: dict[str, FieldType] = {}
        for candidate in candidates:
            for name, kind in matching_fields(candidate, stored).items():
                sources.setdefault(name, kind)
        if sources or self.optional:
            return sources
        by = f" (asked for by output {self.name!r})" if asked != self.name else ""
        advice = image_advice(candidates, stored)
        raise _not_stored(candidates, by, stored, f"; {advice or 'source= names another one'}")

    def _check_types(self, types: Mapping[str, FieldType], stored: Mapping[str, FieldType]) -> None:
        first = self.parts[0]
        for source, kind in types.items():
            if self.asked_bytes and kind.kind != "payload":
                raise FieldError(
                    f"field {source!r} of type {kind} has no bytes of its own", field=source, hint="use None"
                )
            if isinstance(first, Decoder) and not first.is_derived:
                first.check_stored(source, stored)

    def _compile(self, types: Sequence[FieldType], backend: Backend | BackendName) -> tuple[Decoder | UserCall, ...]:
        steps: list[Decoder | UserCall] = []
        # Where the value is asked for, and not the bytes, an image is its pixels.
        images = bool(types) and all(kind.is_image for kind in types)
        if images and not isinstance(self.parts[0], Decoder) and not self.asked_bytes:
            steps.append(_IMAGE.with_backend(backend))
        for number, part in enumerate(self.parts):
            if part == "pil":
                steps.append(_PIL)
            elif isinstance(part, Decoder):
                steps += part.with_backend(backend).steps(self.name)
            elif part is not None and not isinstance(part, str):
                place = f"[{number}]" if len(self.parts) > 1 else ""
                call = _function(part)
                call = call if dtype_named(call) is None else AsType(call)
                steps.append(UserCall(call, what=f"fields[{self.names if self.several else self.name!r}]{place}"))
        return (*steps, CallParts(self.names)) if self.several else tuple(steps)

    def outputs(
        self, made: Mapping[str, Output], stored: Mapping[str, FieldType], backend: Backend | BackendName
    ) -> list[Output]:
        """The output, or all that a call makes; what it is like is made already."""
        first = self._first(made, stored, backend)
        return [replace(first, name=name) for name in self.names]

    def _first(
        self, made: Mapping[str, Output], stored: Mapping[str, FieldType], backend: Backend | BackendName
    ) -> Output:
        base = None if self.base is None else self._checked_base(made[self.base])
        sources = self._find_sources(stored, base)
        types = list(sources.values())
        self._check_types(sources, stored)
        beside = self._find_beside(stored)
        steps = self._compile(types, backend)
        dtype = dtype_named(_function(self.parts[-1]))
        column = bool(types) and all(kind.kind != "payload" for kind in types)
        whole = len(types) == 1 and not self.optional
        if column and whole and dtype is not None and len(steps) == 1:  # a column is converted as a whole
            steps = ()
        plain = column and not steps
        last = steps[-1] if steps and isinstance(steps[-1], Decoder) else None
        slot = None if last is None else last.slot(None if base is None else base.slot)
        rows = False
        if isinstance(last, Array) and len(steps) == 1:
            rows = any(kind.name == "array" or isinstance(kind, ValuesType) for kind in types)
            slot = None if rows else _common_slot(types, dtype)
        return Output(
            name=self.name,
            sources=tuple(sources),
            optional=self.optional,
            slot=_stored_slot(types[0]) if plain else slot,
            is_cut=last is not None and last.is_cut,
            is_ragged=rows
            or (last is not None and last.is_ragged)
            or any(part.ragged for part in self.parts if isinstance(part, Call)),
            is_image=any(isinstance(step, Decoder) and step.is_image for step in steps),
            layout=self._layout,
            plain=plain,
            as_bytes=self.asked_bytes or (not steps and all(kind.name == "bytes" for kind in types)),
            required=bool(self.sourced) and not self.optional,
            steps=steps,
            stream=stream_of(self.name),
            dtype=dtype,
            beside=beside,
            if_missing=image_advice(tuple(sources), stored),
            together=self.names if self.several else (),
        )

    def _checked_base(self, base: Output) -> Output:
        own = self.decoders[0]
        if base.together:
            raise FieldError(
                f"output {self.name!r} cannot be like {base.name!r}, one of several that a call makes",
                field=self.name,
                hint="give the image an output of its own, and let both be like it",
            )
        # A whole image in front, for a callable to change its colours, leaves the geometry to the decoder behind it.
        theirs = [step for step in base.steps if isinstance(step, Decoder) and not isinstance(step, AsPil)]
        theirs = [step for step in theirs if not _is_whole(step)] or theirs
        if not theirs or not own.can_replay(theirs[0]):
            raise FieldError(
                f"output {self.name!r} cannot be like {base.name!r}",
                field=self.name,
                hint=f"like= names {own.replays}",
            )
        if len(theirs) > 1:
            raise FieldError(
                f"output {self.name!r} cannot be like {base.name!r}, which is cropped or resized {len(theirs)} times",
                field=self.name,
                hint="like= follows a single decoder: CenterCrop(224, resize=256) resizes and crops in one",
            )
        return base


def _not_stored(names: Sequence[str], by: str, stored: Mapping[str, FieldType], advice: str = "") -> FieldError:
    there = ", ".join(map(repr, stored)) or "none"
    hint = f"{did_you_mean(names[0], stored)}stored fields: {there}{advice}"
    return FieldError(f"no field {' or '.join(map(repr, names))} is stored{by}", hint=hint)


def _function(part: Part) -> Any:
    """What a part of a spec calls, where it is a callable."""
    return part.function if isinstance(part, Call) else part


def _is_whole(step: Decoder) -> bool:
    """Whether a decoder gives an image as it is stored."""
    return isinstance(step, Image) and not (step.like or step.flip or step.upright)


def _stored_slot(kind: FieldType) -> Slot:
    assert kind.shape is not None
    assert kind.dtype is not None
    return Slot(kind.shape, kind.dtype.newbyteorder("="))


def _common_slot(types: Sequence[FieldType], dtype: np.dtype[Any] | None) -> Slot | None:
    """The slot of columns of these types in another dtype; ``None`` where their shapes differ, or there is none."""
    shapes = {kind.shape for kind in types}
    shape = shapes.pop() if len(shapes) == 1 else None
    return None if shape is None or dtype is None else Slot(shape, dtype)


def _bases_first(drafts: Mapping[str, _Draft]) -> list[_Draft]:
    """Drafts in an order in which every base comes before what is like it, else in the user's order."""
    ordered: dict[str, _Draft] = {}
    for name in drafts:
        chain: list[str] = []
        current: str | None = name
        while current is not None and current not in ordered:
            if current in chain:
                circle = " -> ".join([*chain, current])
                raise FieldError(
                    f"like= goes in a circle: {circle}", field=name, hint="one of them must draw for itself"
                )
            chain.append(current)
            current = _base_of(drafts[current], drafts)
        ordered.update((link, drafts[link]) for link in reversed(chain))
    return list(dict.fromkeys(ordered.values()))


def _base_of(draft: _Draft, drafts: Mapping[str, _Draft]) -> str | None:
    if draft.base is None:
        return None
    if draft.base not in drafts:
        raise FieldError(
            f"like={draft.base!r}, but there is no such output",
            field=draft.name,
            hint=did_you_mean(draft.base, drafts) + "outputs: " + ", ".join(map(repr, drafts)),
        )
    return draft.base
