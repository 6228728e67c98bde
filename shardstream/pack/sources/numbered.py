"""A source whose equal keys are told apart by numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shardstream.pack.sources.base import DerivedSource, Item, Reject, Source, SourcePart
from shardstream.pack.sources.duplicates import KeyNumbers
from shardstream.text import in_one_line


def numbered(source: Source) -> Source:
    """The source with keys that are unique: itself, or with numbers behind equal ones."""
    return source if source.numbering is None else Numbered(source, source.numbering)


@dataclass(frozen=True, slots=True)
class NumberedPart(SourcePart):
    """Some samples, and how they are numbered among all."""

    part: SourcePart
    numbering: KeyNumbers

    def __iter__(self) -> Iterator[Item | Reject]:
        for number, item in enumerate(self.part):
            suffix = self.numbering.suffix(number)
            yield item._replace(key=item.key + suffix) if suffix and isinstance(item, Item) else item


class Numbered(DerivedSource):
    """A source of which some samples have equal keys.

    Args:
        source: All of them.
        numbering: How equal keys are told apart.
    """

    def __init__(self, source: Source, numbering: KeyNumbers) -> None:
        super().__init__(source)
        self._numbering = numbering
        repeats = np.flatnonzero(numbering.ordinals > 1)
        like = next((f", as {item.key}" for item in self.part(repeats[:1]) if isinstance(item, Item)), "")
        many = f"{len(repeats):,} samples have the key of an earlier one and are" if len(repeats) > 1 else ""
        self.notes = (
            *source.notes,
            f"{many or 'One sample has the key of an earlier one and is'} numbered{in_one_line(like)}.",
        )

    def part(self, numbers: NDArray[np.int64]) -> NumberedPart:
        chosen = KeyNumbers(self._numbering.ordinals[numbers], self._numbering.separator)
        return NumberedPart(self._source.part(numbers), chosen)
