"""Memory that is used again, and only once nobody refers to it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shardstream.storage.slabs import Slabs

KIB = 1 << 10


@given(st.lists(st.tuples(st.integers(1, 3000 * KIB), st.integers(0, 4)), max_size=30))
def test_what_is_held_is_never_written_by_others(steps) -> None:
    slabs, held = Slabs(8000 * KIB), {}
    for number, (size, slot) in enumerate(steps):
        view = slabs.take(size)
        assert len(view) == size
        view[0] = view[-1] = number
        held[slot] = view[size // 2 :], number  # a slice keeps it as well, and the one before is let go
        for kept, expected in held.values():
            assert kept[-1] == expected
    in_use = sum(len(view.obj) for view, _ in held.values())
    assert slabs.bytes <= max(8000 * KIB, in_use)


def test_memory_that_was_let_go_is_used_again() -> None:
    slabs = Slabs(4000 * KIB)
    first = slabs.take(1000 * KIB)
    taken = id(first.obj)
    second = slabs.take(1000 * KIB)
    assert id(second.obj) != taken
    del first
    assert id(slabs.take(900 * KIB).obj) == taken
    assert id(slabs.take(500 * KIB).obj) != taken  # it would be half empty


def test_slabs_that_do_not_fit_any_more_are_given_up() -> None:
    slabs = Slabs(2048 * KIB)
    for size in (256, 512, 1024, 1536, 2048):
        slabs.take(size * KIB)
    assert slabs.bytes <= 2048 * KIB
    larger = slabs.take(4096 * KIB)
    assert len(larger) == 4096 * KIB
    assert slabs.bytes == 0
