"""``ProgressEvent``: what every verb tells its ``progress=`` function while it works."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias


class ProgressEvent(NamedTuple):
    """How far a verb has come.

    Numbers can be read by name, too: ``event.bytes`` and ``event.total_bytes`` are ``done`` and ``total`` where the
    unit is bytes, and whatever is in ``detail`` is an attribute.

    Attributes:
        phase: What is being done: ``"plan"``, ``"first pass"`` and ``"pack"`` of `pack`, for example.
        done: How much of this phase is done, what an earlier run had done included.
        total: Of how much; 0 while that is not known.
        unit: What is counted: ``"samples"``, ``"shards"``, ``"bytes"``, ``"batches"``, ``"seconds"``.
        detail: Other totals so far, by name. Of them, ``kept`` is how much of ``done`` an earlier run had done.

    Example:
        >>> event = ProgressEvent("verify", 5_000, 20_000, "bytes", {"problems": 1})
        >>> event.total_bytes, event.problems
        (20000, 1)
    """

    phase: str
    done: float = 0
    total: float = 0
    unit: str = "samples"
    detail: Mapping[str, Any] = MappingProxyType({})

    @property
    def stage(self) -> str:
        """The phase."""
        return self.phase

    def __getattr__(self, name: str) -> Any:
        numbers = {self.unit: self.done, f"total_{self.unit}": self.total, **self.detail}
        if name not in numbers:
            raise AttributeError(f"this event of {self.phase!r} has no {name!r}; it has {', '.join(numbers)}")
        return numbers[name]


OnProgress: TypeAlias = Callable[[ProgressEvent], None]


def ignore(event: ProgressEvent) -> None:
    """For who does not want to know."""
