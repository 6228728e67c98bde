from __future__ import annotations

import numpy as np

from shardstream.storage.cache import slabs

MIB = 1 << 20


def where(view: memoryview) -> int:
    return np.frombuffer(view, np.uint8).ctypes.data


def test_a_slab_is_used_again_only_when_nothing_refers_to_it() -> None:
    taking = slabs._Slabs()
    first = taking.take(100)
    assert len(first) == 100
    place = where(first)
    part = np.frombuffer(first[10:20].toreadonly(), np.uint8)[2:]
    del first
    second = taking.take(100)
    assert where(second) != place
    del part
    third = taking.take(MIB)
    assert where(third) == place
    fourth = taking.take(MIB + 1)
    assert where(fourth) not in (place, where(second))


def test_what_is_kept_is_bounded(monkeypatch) -> None:
    monkeypatch.setattr(slabs, "_MOST", 3 * MIB)
    taking = slabs._Slabs()
    held = [taking.take(MIB) for _ in range(5)]
    assert len(taking._slabs) == 3
    del held
    assert len(taking.take(3 * MIB)) == 3 * MIB
    assert [len(slab) for slab in taking._slabs] == [3 * MIB]
    assert len(taking.take(4 * MIB)) == 4 * MIB
    assert sum(map(len, taking._slabs)) <= 3 * MIB
