"""``LostSlots``: how many samples of batches are dropped, and the warning if filters drop many."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from torch.utils.data import get_worker_info

logger = logging.getLogger(__name__)

_STEPS = 200  # of all workers together
_SHARE = 0.05  # of the slots


@dataclass(slots=True)
class LostSlots:
    """Counts the slots of batches that one process makes. Worker 0 warns once, for all of them.

    Attributes:
        steps: Batches so far.
        slots: Slots that these have.
    """

    steps: int = 0
    slots: int = 0
    _filtered: int = 0
    _skipped: int = 0
    _warned: bool = False

    def add(self, filtered: int, skipped: int) -> None:
        """Count slots whose samples a transform left out, and those that were skipped as damaged or excluded."""
        self._filtered += filtered
        self._skipped += skipped
        info = get_worker_info()
        workers, worker = (1, 0) if info is None else (info.num_workers, info.id)
        if self._warned or worker or self.steps * workers < _STEPS or self._filtered <= _SHARE * self.slots:
            return
        self._warned = True
        kept = 1 - (self._filtered + self._skipped) / self.slots
        size = round(self.slots / self.steps)
        logger.warning(
            "batches keep %.3g %% of their samples, transforms return None for %.3g %%; the chance that a batch of %d "
            "keeps none, which is an error, is %.2g; choose the samples before they are put into batches: "
            "rows = ss.find_rows(dataset, predicate), then where=rows",
            100 * kept,
            100 * self._filtered / self.slots,
            size,
            (1 - kept) ** size,
        )
