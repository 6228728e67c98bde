"""Which reads serve which ranges."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from shardstream.storage import Request
from shardstream.storage.base.ranges import plan_reads

SIZE = 400_000
REQUESTS = st.builds(
    Request, st.sampled_from("ab"), st.integers(0, SIZE), st.none() | st.integers(0, 200_000) | st.integers(0, 9)
)


def bytes_of(path: str, offset: int, length: int | None) -> tuple[str, int, int]:
    return path, offset, SIZE * 2 if length is None else offset + length


@given(st.lists(REQUESTS, max_size=9), st.sampled_from([7_000, 8 << 20]))
def test_all_ranges_are_read_each_byte_once_in_order(requests, most) -> None:
    reads = plan_reads(requests, most=most)
    spans = [bytes_of(*one) for one in reads]
    assert spans == sorted(spans)
    for (path, _, end), (other, start, _) in pairwise(spans):
        assert path != other or end <= start
    for path, offset, end in (bytes_of(*one) for one in requests):
        at = offset
        for other, start, stop in spans:
            if other == path and start <= at < stop:
                at = stop
        assert at >= end
    assert all(one.length is None or 0 < one.length <= most for one in reads)
    assert {one.path for one in reads if one.length is None} == {one.path for one in requests if one.length is None}
