"""Readers and a vandal on one cache."""

from __future__ import annotations

import multiprocessing
import os
import random
import time
from contextlib import suppress

import numpy as np
import pytest

from shardstream.storage.cache import Cache

from .making import MIB, flip, noise

fork = multiprocessing.get_context("fork")


@pytest.mark.full
def test_what_readers_get_is_right_whatever_a_vandal_does(world) -> None:
    """Bits flip, files are cut and vanish; a reader that finds a wrong checksum says so, as ours do."""
    objects = {f"object-{i}": world.put(f"object-{i}", noise(3 * MIB + 77 * i, seed=i)) for i in range(4)}
    end = time.monotonic() + 8

    def read(worker: int) -> None:
        draw = random.Random(worker)
        cache = Cache(world.cache, size="20MB")
        store, doubts, reads = world.store(cache), 0, 0
        while time.monotonic() < end:
            if draw.random() < 0.02:
                store = world.store(cache)
            name = draw.choice(sorted(objects))
            length = draw.randrange(1, MIB)
            start = draw.randrange(len(objects[name]) - length)
            expected = objects[name][start : start + length]
            for _ in range(20):
                copies = store.copies(name, np.array([start]), np.array([length]))
                found = store.get(name, start, length) if copies is None else copies[0]
                if found == expected:
                    break
                store.repair(name, start, length)
                doubts += 1
            else:
                raise AssertionError(f"{name} at {start} stays wrong")
            reads += 1
        assert reads > 50

    def destroy() -> None:
        draw = random.Random(0)
        while time.monotonic() < end:
            time.sleep(0.02)
            files = world.files()
            if files:
                file = draw.choice(files)
                with suppress(FileNotFoundError, IndexError):
                    what, where = draw.random(), draw.randrange(file.stat().st_size)
                    if what < 0.6:
                        flip(file, where)
                    elif what < 0.8:
                        os.truncate(file, where)
                    else:
                        file.unlink()

    readers = [fork.Process(target=read, args=(worker,)) for worker in range(3)]
    vandal = fork.Process(target=destroy)
    for child in (*readers, vandal):
        child.start()
    for child in (*readers, vandal):
        child.join(60)
    assert [child.exitcode for child in (*readers, vandal)] == [0] * 4
    assert os.path.isdir(world.cache)
