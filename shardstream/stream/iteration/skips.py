"""What is done about samples whose stored data is broken."""

from __future__ import annotations

import logging
from typing import Literal, TypeAlias, get_args

from shardstream.errors import DataError, TooManySkipsError, UsageError

logger = logging.getLogger(__name__)

OnError: TypeAlias = Literal["raise", "skip"]


class SkipPolicy:
    """Raises or counts. Only permanent faults of data are skipped; a store that fails raises in any case.

    Args:
        on_error: ``"raise"`` or ``"skip"``.
        max_skips: Samples that one iteration of one worker may skip; ``None`` for any number.

    Raises:
        UsageError: Other values.
    """

    def __init__(self, on_error: OnError, max_skips: int | None) -> None:
        if on_error not in get_args(OnError):
            raise UsageError(f"on_error must be 'raise' or 'skip', not {on_error!r}", hint="correct it")
        if max_skips is not None and max_skips < 0:
            raise UsageError(f"max_skips must not be negative, got {max_skips}", hint="None allows any number")
        self.skips = on_error == "skip"
        self._limit = max_skips
        self._count = 0

    def begin(self) -> None:
        """Begin an iteration: count anew."""
        self._count = 0

    def admit(self, error: DataError) -> str:
        """Say how this error is recorded, if it may be skipped; raise it if not.

        Raises:
            DataError: The error itself, under ``on_error="raise"``.
            TooManySkipsError: This one passes ``max_skips``.
        """
        if not self.skips:
            raise error
        self._count += 1
        if self._limit is not None and self._count > self._limit:
            raise TooManySkipsError(
                f"{self._count} samples had to be skipped, max_skips is {self._limit}; the last: {error}",
                hint="run `shardstream verify`; raise max_skips to go on without them",
            ) from error
        text = str(error).replace("\n", " ")
        logger.warning("skipped: %s", text)
        return text
