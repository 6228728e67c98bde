"""``RowBatch``: stored values of some samples."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

from shardstream.shards.framing import FieldValues


class RowBatch:
    """Some samples' stored values. All sequences are of length n and in the order asked for.

    Args:
        keys: Their keys, or what finds them: batches of tuples have none.
        shards: Object names of their shards.
        rows: Their numbers in these shards.
        columns: Values by field.
    """

    def __init__(
        self,
        keys: list[str] | Callable[[], list[str]],
        shards: list[str],
        rows: list[int],
        columns: dict[str, FieldValues],
    ) -> None:
        self._keys = keys
        self.shards = shards
        self.rows = rows
        self.columns = columns

    @cached_property
    def keys(self) -> list[str]:
        """Their keys."""
        return self._keys if isinstance(self._keys, list) else self._keys()

    def value(self, name: str, i: int) -> Any:  # a stored value as its framing gives it
        """The stored value of a field of sample i; ``None`` if it has none."""
        values = self.columns[name]
        if values.valid is not None and not values.valid[i]:
            return None
        return values.data[i]
