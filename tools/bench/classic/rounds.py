"""Photographs in memory, and the processor time that works on them take: chunk by chunk in turns, in one thread."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from bench.data import read_list

IMAGES, CHUNK = 256, 64

Work = Callable[[int], object]
"""Does the photograph of a number."""


def files(folder: str) -> list[bytes]:
    """The same random photographs for everybody."""
    entries = [path for path, _ in read_list(Path(folder))]
    return [path.read_bytes() for path in random.Random(0).sample(entries, min(IMAGES, len(entries)))]


def rates(works: Mapping[str, Work]) -> dict[str, float]:
    """Images a second of processor time of each work; a first chunk of each is not counted."""
    taken = dict.fromkeys(works, 0.0)
    for begin in range(-CHUNK, IMAGES, CHUNK):
        for name, work in works.items():
            start = time.process_time()
            for number in range(begin, begin + CHUNK):
                work(number)  # those of the first chunk count from the end of the list
            if begin >= 0:
                taken[name] += time.process_time() - start
    return {name: IMAGES / seconds for name, seconds in taken.items()}
