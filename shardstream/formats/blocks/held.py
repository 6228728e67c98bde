"""The inflated blocks that a process keeps: what was used last, so many bytes of it."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict, deque

HELD = 256 << 20
"""Bytes of inflated blocks that a process keeps at most, unless it has few others beside it; one it always does."""
HELD_A_RANK = 1 << 30
"""The same of all workers of a rank: as default orders have blocks open."""


class HeldBlocks:
    """Inflated blocks by the store that made them, object and number. Threads share it.

    Args:
        most: Bytes that it keeps.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.clear()

    def clear(self) -> None:
        """Forget all of them: in a forked child, whatever thread was in here."""
        self._lock = threading.Lock()
        self._blocks: OrderedDict[tuple[int, str, int], memoryview] = OrderedDict()
        self._bytes = 0
        self._gone: deque[int] = deque()  # stores whose blocks nobody asks for any more

    def make_room(self, bytes: int) -> None:
        """Keep so many bytes from now on, if that is more."""
        self._most = max(self._most, bytes)

    def get(self, owner: int, path: str, block: int) -> memoryview | None:
        """A block, if it is kept."""
        with self._lock:
            found = self._blocks.get((owner, path, block))
            if found is not None:
                self._blocks.move_to_end((owner, path, block))
            return found

    def put(self, owner: int, path: str, block: int, data: memoryview) -> None:
        """Keep a block, and drop what was not used for longest."""
        with self._lock:
            self._sweep()
            self._drop((owner, path, block))
            self._blocks[owner, path, block] = data
            self._bytes += len(data)
            while self._bytes > self._most and len(self._blocks) > 1:
                self._drop(next(iter(self._blocks)))

    def drop(self, owner: int, path: str, block: int) -> bool:
        """Forget a block; whether it was kept."""
        with self._lock:
            return self._drop((owner, path, block))

    def forget(self, owner: int) -> None:
        """Forget all blocks of a store that is gone; at once, or with the next that is put.

        Waits for nobody: garbage is collected in the midst of anything, also of what holds the lock in this thread.
        """
        self._gone.append(owner)
        if self._lock.acquire(blocking=False):
            try:
                self._sweep()
            finally:
                self._lock.release()

    def _sweep(self) -> None:
        while self._gone:
            owner = self._gone.popleft()
            for key in [key for key in self._blocks if key[0] == owner]:
                self._drop(key)

    def _drop(self, key: tuple[int, str, int]) -> bool:
        found = self._blocks.pop(key, None)
        self._bytes -= 0 if found is None else len(found)
        return found is not None


def keep_blocks(workers: int) -> None:
    """Keep as much as a process has to that is one of so many workers."""
    held.make_room(HELD_A_RANK // max(workers, 1))


held = HeldBlocks(HELD)
os.register_at_fork(after_in_child=held.clear)
