"""What a decoder is, and the ones that make no pictures."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shardstream.decode.context import SampleContext
from shardstream.decode.usercall import UserCall
from shardstream.encodings import read_text
from shardstream.errors import DecodeError, FieldError, UsageError
from shardstream.images.backends import Backend, BackendName
from shardstream.shards.fields import VALUES, FieldType, ValuesType

Out: TypeAlias = NDArray[Any] | None
"""Where a value is to be written, if that is known."""


class Slot(NamedTuple):
    """The shape and dtype that every value of an output has: a batch of it is one slab, written in place.

    Attributes:
        shape: Of one value; images are (H, W, 3).
        dtype: Native byte order.

    Example:
        >>> CenterCrop(224).slot(None)
        Slot(shape=(224, 224, 3), dtype=dtype('uint8'))
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


@dataclass(frozen=True, kw_only=True)
class Decoder(ABC):
    """Turns the stored value of a field into an output. Immutable; pickles.

    Args:
        source: The stored field, or several in order of preference: ``"txt;caption"`` takes whichever a sample has.
            ``"image"`` stands for all image fields. ``None``: the output's own name.
        optional: Samples without the field are fine: the output is ``None``, and zeros in a batch of slots.

    Example:
        >>> isinstance(CenterCrop(224), Decoder), CenterCrop(224, source="jpg;png").source
        (True, 'jpg;png')
    """

    source: str | None = None
    optional: bool = False

    accepts: ClassVar[frozenset[str]] = frozenset()
    is_image: ClassVar[bool] = False
    is_derived: ClassVar[bool] = False
    """There is no stored field of its own: all is known from the output that it is like."""
    replays: ClassVar[str] = "an image output"
    """What ``like=`` may name, for messages."""
    threaded: ClassVar[bool] = False
    """Whether `apply` may run in several threads at once, on different samples, and gains from it."""

    @cached_property  # asked for every sample
    def base(self) -> str | None:
        """The output whose geometry is replayed, or ``None``: ``like`` of the decoders that have it."""
        like: str | None = getattr(self, "like", None)
        return like

    @property
    def is_ragged(self) -> bool:
        """Whether values are arrays whose lengths vary: a batch of them is `Ragged`, also where all are equal."""
        return False

    @property
    def is_cut(self) -> bool:
        """Whether values are `Cut`, which somebody else resizes; `slot` is then that of the resized image."""
        return False

    def beside(self, stored: Container[str]) -> tuple[str, ...]:
        """The stored fields that are read beside the source (`SampleContext.value_beside`).

        Args:
            stored: What there is; what is named without being there is an error.
        """
        return ()

    def check_stored(self, field: str, stored: Mapping[str, FieldType]) -> None:
        """Refuse a stored field that this decoder cannot decode, when a data set is opened.

        Args:
            field: The field.
            stored: The types of all fields.

        Raises:
            FieldError: It is so.
        """
        kind = stored[field]
        rows = isinstance(kind, ValuesType)
        if not self.accepts & {kind.name, kind.kind, *([VALUES] if rows else [])}:
            raise FieldError(
                f"{type(self).__name__} cannot decode field {field!r} of type {kind}",
                field=field,
                hint="it decodes " + ", ".join(sorted(self.accepts)),
            )

    @property
    def calls(self) -> tuple[UserCall, ...]:
        """Callables of the user that `apply` calls."""
        return ()

    def can_replay(self, base: Decoder) -> bool:
        """Whether the geometry of ``base`` fits this decoder: that of any image does, unless it says otherwise."""
        return base.is_image

    def slot(self, base: Slot | None) -> Slot | None:
        """The common shape of all values, given that of the base output; ``None`` where they vary."""
        return None

    def steps(self, name: str) -> tuple[Decoder | UserCall, ...]:
        """The steps this decoder consists of, for the output ``name``."""
        return (self,)

    def with_backend(self, backend: Backend | BackendName) -> Decoder:
        """The decoder with the data set's image backend, where it needs one and names none itself.

        Raises:
            MissingExtraError: The library of the backend that it then has is not installed.
        """
        return self

    @abstractmethod
    def apply(self, value: Any, context: SampleContext, *, name: str, stream: int, out: Out = None) -> Any:
        """Decode one value.

        Args:
            value: Encoded bytes, or the value a step before this one made.
            context: The sample.
            name: The output's name, under which geometries are kept.
            stream: The output's random stream.
            out: Where `slot` is not ``None``: an array of that shape and dtype, written and returned.
        """

    def missing(self, out: Out = None) -> Any:
        """The value of a sample that lacks the field: ``None``, or ``out`` filled with zeros."""
        if out is not None:
            out.fill(0)
        return out


@dataclass(frozen=True)
class Text(Decoder):
    """Text, as a string or as token ids.

    Args:
        tokenize: Called with the string; returns token ids as a sequence, array or tensor of one dimension (or
            1 × n), or a mapping with ``"input_ids"``. ``None``: the output is the string itself.
        pad_to: Length of every output: shorter ones are filled up at the end, **longer ones are cut at the end** (let
            the tokenizer truncate if its end marker must survive). ``None``: as long as they are, `Ragged` in a batch.
        pad_value: What fills up.
        source: The stored field; default the output's own name.
        optional: A sample without text becomes a row of padding with ``pad_to``, else it is missing.

    Returns:
        ``str``, or int64 (n,) or (pad_to,).

        >>> fields = {"txt": Text(tokenizer.encode, pad_to=77, optional=True)}
    """

    tokenize: Callable[[str], Any] | None = None
    pad_to: int | None = None
    pad_value: int = 0

    accepts: ClassVar[frozenset[str]] = frozenset({"str", "bytes"})

    def __post_init__(self) -> None:
        if self.tokenize is not None and not callable(self.tokenize):
            raise UsageError(f"tokenize={self.tokenize!r} is not callable", hint="give a function of a string")
        if self.pad_to is not None and (self.tokenize is None or self.pad_to < 1):
            raise UsageError(f"pad_to={self.pad_to!r} without tokens to pad", hint="give tokenize= and pad_to >= 1")

    @property
    def is_ragged(self) -> bool:
        return self.tokenize is not None and self.pad_to is None

    def slot(self, base: Slot | None) -> Slot | None:
        return None if self.pad_to is None else Slot((self.pad_to,), np.dtype(np.int64))

    def steps(self, name: str) -> tuple[Decoder | UserCall, ...]:
        if self.tokenize is None:
            return (self,)
        return Text(), UserCall(self.tokenize, what=f"tokenize of fields[{name!r}]"), self

    def apply(self, value: Any, context: SampleContext, *, name: str, stream: int, out: Out = None) -> Any:
        if self.tokenize is None:
            return _text(value)
        ids = _token_ids(value, name)
        if self.pad_to is None:
            return ids
        if out is None:
            out = np.empty(self.pad_to, np.int64)
        kept = min(len(ids), self.pad_to)
        out[:kept] = ids[:kept]
        out[kept:] = self.pad_value
        return out

    def missing(self, out: Out = None) -> Any:
        if self.pad_to is None:
            return None
        if out is None:
            out = np.empty(self.pad_to, np.int64)
        out.fill(self.pad_value)
        return out


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    try:
        return read_text(value)
    except TypeError as error:
        raise DecodeError(f"no text: {error}", hint="store text as UTF-8") from error


def _token_ids(value: Any, name: str) -> NDArray[np.int64]:
    if isinstance(value, Mapping) or hasattr(value, "input_ids"):
        value = value["input_ids"]
    ids = np.asarray(value)
    if ids.ndim == 2 and len(ids) == 1:
        ids = ids[0]
    if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
        given = f"{type(value).__name__} of shape {list(ids.shape)}, dtype {ids.dtype}"
        raise UsageError(
            f"tokenize of fields[{name!r}] returned a {given}",
            hint="return one row of integer token ids",
        )
    return ids.astype(np.int64)
