"""A user's callable with what decoders have, a stored field to read; and several outputs of one call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any

from shardstream.decode.context import SampleContext
from shardstream.decode.specs import Decoder, Out
from shardstream.errors import UsageError


@dataclass(frozen=True)
class Call:
    """A callable on the value of a stored field, whatever the output is called. Immutable; pickles if that does.

    Where both have one name, ``fields={"wav": fn}`` is enough. The function gets what it gets there: the value by its
    type, such as an image's pixels, or bytes; after other specs in a list, what those made. By ``rng=`` or
    ``generator=`` it draws numbers of the sample's own.

    Under a tuple of names stand several outputs of one call: it is made once a sample, and returns a tuple of as many
    values.

    Args:
        function: Called with the value. Where workers are not forked: one of a module, no lambda.
        source: The stored field, or several in order of preference: ``"wav;flac"`` takes whichever a sample has.
            ``None``: the output's own name; a tuple of names needs a source.
        optional: Samples without the field are fine: each output is ``None``. Else they are an error.
        ragged: What it returns as arrays or tensors is `Ragged` in every batch. By default those of one shape are
            stacked, and only where they differ a batch of them is `Ragged`.

    Raises:
        UsageError: ``function`` is not callable.

        >>> fields = {"tokens": Call(tokenizer.encode, source="caption;txt")}
    """

    function: Callable[..., Any]
    _: KW_ONLY
    source: str | None = None
    optional: bool = False
    ragged: bool = False

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise UsageError(f"Call of {self.function!r}, which is not callable", hint="give a function of one value")


@dataclass(frozen=True)
class CallParts(Decoder):
    """The values that a call for several outputs returned, checked.

    Args:
        names: The outputs.
    """

    names: tuple[str, ...]

    def apply(self, value: Any, context: SampleContext, *, name: str, stream: int, out: Out = None) -> Any:
        """The same.

        Raises:
            UsageError: It is not a tuple or list of one value an output.
        """
        if isinstance(value, tuple | list) and len(value) == len(self.names):
            return value
        given = f"{len(value)} values" if isinstance(value, tuple | list) else f"{type(value).__name__}, not a tuple"
        raise UsageError(
            f"the call of fields[{self.names!r}] returned {given}",
            hint=f"return a tuple of {len(self.names)}: {', '.join(self.names)}",
        )
