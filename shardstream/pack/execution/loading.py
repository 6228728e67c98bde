"""Samples and documents on their way to what is stored, several at once where another process does a part of that."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from typing import Any, TypeVar

from shardstream.pack.bins.documents import DocumentEncoder
from shardstream.pack.encode.files import Unreadable
from shardstream.pack.encode.reading import Read
from shardstream.pack.encode.sample import SampleEncoder
from shardstream.pack.execution.isolated import together

T = TypeVar("T")


def batches(read: Iterable[Read], recipe: SampleEncoder | DocumentEncoder) -> Iterator[list[Read]]:
    """Samples as they are read, as many at once as are best loaded together: one where all is done in this process."""
    if recipe.work is None:
        return ([one] for one in read)
    return together(read, lambda one: sum(map(len, one[1].values())) if isinstance(one[1], dict) else 0)


def rejecting(load: Generator[Any, Any, T]) -> Generator[Any, Any, T | Unreadable]:
    """The same generator, which returns `Unreadable` instead of raising it."""
    try:
        return (yield from load)
    except Unreadable as error:
        return error
