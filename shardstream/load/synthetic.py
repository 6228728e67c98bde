"""``Synthetic``: batches that cost nothing, to learn whether a loader is what training waits for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from shardstream.errors import UsageError
from shardstream.load.loader import Loader
from shardstream.stream.base import Stream


class Synthetic:
    """The first batch of a loader, over and over: same shapes, dtypes and values, no work.

    A training step on it takes as long as the fastest loader there can be would let it. Give it to a
    `DevicePrefetcher` in the loader's place to leave copies and the transform in.

    Args:
        loader: A `Loader`, data set or mixture, whose epoch and position do not change; or another iterable, of which
            a new iteration is begun and left. The batch is made when it is first asked for.
        batches: Batches of an iteration. Default: as many as the loader says it has.

    Raises:
        UsageError: The loader has no batches, or no length where one is needed.

        >>> loader = ss.Loader(ds.to_tuple("jpg", "cls"), batch_size=64, num_workers=0)
        >>> {len(images) for images, labels in ss.Synthetic(loader)}
        {64}
    """

    def __init__(self, loader: Iterable[Any], batches: int | None = None) -> None:
        if batches is None and not hasattr(loader, "__len__"):
            raise UsageError(f"a {type(loader).__name__} has no length", hint="say batches=")
        self._loader = loader
        self._batches = batches
        self._batch: Any = None

    def __repr__(self) -> str:
        loader = repr(self._loader) if isinstance(self._loader, Loader | Stream) else type(self._loader).__name__
        return f"Synthetic({loader})"

    def __len__(self) -> int:
        """Batches of an iteration."""
        return len(self._loader) if self._batches is None else self._batches  # type: ignore[arg-type]  # checked

    def __iter__(self) -> Iterator[Any]:
        if self._batch is None:
            self._batch = self._first()
        for _ in range(len(self)):
            yield self._batch

    def _first(self) -> Any:
        if isinstance(self._loader, Loader | Stream):
            return self._loader.peek()
        for batch in self._loader:
            return batch
        hint = 'use a smaller batch_size, or tail="exact", in its data set'
        raise UsageError("the loader has no batches", hint=hint)
