"""The epoch number, shared between a data set's copies in the parent and in its workers.

A `DataLoader` tells its workers nothing, and without ``persistent_workers`` makes new copies for each iteration. So
the number lives in a few words of anonymous shared memory that every copy maps: the parent's ``set_epoch`` reaches
persistent workers, and an epoch that all workers have finished is counted for copies that do not exist yet.
"""

from __future__ import annotations

from typing import Any

import torch

from shardstream.errors import UsageError

_MOST_WORKERS = 1024


class EpochClock:
    """Epoch number with a mark for each worker that has finished it."""

    def __init__(self) -> None:
        self._words = torch.zeros(1 + _MOST_WORKERS, dtype=torch.int64)
        self._share()

    @property
    def epoch(self) -> int:
        """The epoch that the next iteration reads."""
        return int(self._words[0])

    def set(self, epoch: int) -> None:
        """Choose the next iteration's epoch.

        Raises:
            UsageError: Not an integer in [0, 2**32).
        """
        if type(epoch) is not int or not 0 <= epoch < 1 << 32:
            raise UsageError(f"epoch must be an integer in [0, 2**32), got {epoch!r}", hint="count epochs from 0")
        self._words[0] = epoch

    def finish(self, epoch: int) -> None:
        """The whole of ``epoch`` was consumed: the next one follows. Harmless when said twice."""
        if self.epoch == epoch:
            self._words[0] = epoch + 1

    def finish_worker(self, epoch: int, worker: int, workers: int) -> None:
        """Worker ``worker`` of ``workers`` has delivered all of its part; the last one to say so ends the epoch."""
        self._words[1 + worker] = epoch + 1
        if bool((self._words[1 : 1 + workers] == epoch + 1).all()):
            self.finish(epoch)

    def begin_worker(self, worker: int, workers: int) -> None:
        """Forget that worker ``worker`` of ``workers`` finished an epoch that is being read again."""
        if workers > _MOST_WORKERS:
            raise UsageError(f"{workers} workers are more than {_MOST_WORKERS}", hint="use fewer")
        self._words[1 + worker] = 0

    def __getstate__(self) -> dict[str, Any]:
        return {"words": self._words}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._words = state["words"]
        if not self._words.is_shared():
            self._share()

    def _share(self) -> None:
        self._words.share_memory_()
