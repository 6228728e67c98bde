"""Bytes that were compared with a checksum and stay what they were: copied, or watched.

A mapped file shows what is in the file now. If somebody writes to the file in place after its index was verified, or a
page is read again from a failing disk, the mapping shows other bytes, and no checksum is compared again. Small pieces
(indexes, blocks of key tables) are therefore copied before they are verified: `settled`. Larger ones stay mapped, so
that all processes share their pages, and readers look at their files again at `next_look`.
"""

from __future__ import annotations

import itertools
import os
import time
import weakref

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import ChangedError
from shardstream.storage.base.held import address_of, can_copy, copy_ranges

LARGEST_COPY = 256 << 10
"""Bytes of the largest piece that is copied: the index of 256 MB of images takes about 100 KiB, a block of a key table
48 KiB. The copy takes about as long as the checksum."""
COPIED_BYTES = 16 << 20
"""Bytes of all copies of a process. Every worker has copies of its own, so this is what a worker pays."""
LOOK_S = 1.0
"""Seconds between two looks at the files in use. A look takes about 3 µs a file on a local disk."""
_PATIENCE = 50
"""A look may take one fiftieth of the time: on network file systems it asks a server for each file."""
_ALIGNMENT = 64  # of arrays in an index

_copies: dict[int, int] = {}  # bytes of each copy that is alive; single steps that are atomic, so threads need no lock
_numbers = itertools.count()
os.register_at_fork(after_in_child=_copies.clear)  # a child shares the pages of its parent's copies


def copied_bytes() -> int:
    """Bytes of the copies that this process has made and still uses."""
    return sum(list(_copies.values()))


def settled(data: memoryview, *, mapped: bool) -> tuple[memoryview, bool]:
    """Bytes to verify, and whether they stay as they are from now on.

    The room of a copy is free again when the last view of it is gone, whatever became of its shard.

    Args:
        data: The bytes.
        mapped: Whether they are in a mapped file. Otherwise they are this process's own already.

    Returns:
        A copy, or ``data`` if there is no room for one.

    Raises:
        ChangedError: The file was cut; its mapping cannot be read any more.
    """
    size = len(data)
    if not mapped or not size:
        return data, True
    if size > LARGEST_COPY or copied_bytes() + size > COPIED_BYTES:
        return data, False
    room = np.empty(size + _ALIGNMENT, np.uint8)
    begin = -address_of(room) % _ALIGNMENT
    copy = room[begin : begin + size]
    # The kernel says so if a page is gone; to touch it would end the process.
    if not can_copy():
        copy[:] = np.frombuffer(data, np.uint8)
    elif not copy_ranges(_range(copy), _range(np.frombuffer(data, np.uint8)), size):
        raise ChangedError(
            "the file was cut while it was in use",
            hint="restore it from its source; replace files by renaming, never in place",
        )
    number = next(_numbers)
    _copies[number] = size
    weakref.finalize(room, _copies.pop, number, None).atexit = False
    return memoryview(copy).toreadonly(), True  # type: ignore[arg-type]  # arrays are buffers; stubs of 3.11 cannot say so


def _range(data: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Address and length, as `copy_ranges` takes them."""
    return np.array([[address_of(data), len(data)]], np.uint64)


def next_look(begun: float) -> float:
    """When to look at files again, by the monotonic clock, after a look that began at ``begun`` and is over."""
    now = time.monotonic()
    return now + max(LOOK_S, _PATIENCE * (now - begun))
