from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shardstream.pack.sources.duplicates import SeenHashes, repeated

hashes = st.integers(0, 50) | st.integers(0, 2**64 - 1)


@given(st.lists(hashes))
def test_repeated_is_what_counting_finds(values: list[int]) -> None:
    expected = sorted({value for value in values if values.count(value) > 1})
    assert repeated(np.array(values, np.uint64)).tolist() == expected


@given(st.lists(st.lists(hashes, max_size=20), max_size=20))
def test_batches_are_compared_with_all_before(batches: list[list[int]]) -> None:
    seen, before = SeenHashes(), []
    for batch in batches:
        expected = {value for value in batch if value in before or batch.count(value) > 1}
        assert seen.add(batch) == expected
        before += batch


def test_memory_is_eight_bytes_a_key() -> None:
    seen = SeenHashes()
    for i in range(100):
        assert not seen.add(range(i * 1000, (i + 1) * 1000))
    assert sum(run.nbytes for run in seen._runs) == 8 * 100_000
    assert len(seen._runs) < 18
