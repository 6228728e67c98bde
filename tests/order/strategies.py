"""Random data sets and parameters."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from shardstream.order import ORDER_VERSIONS, EpochOrder, OrderParameters

seeds = st.one_of(st.integers(0, 3), st.integers(0, 2**64 - 1))
epochs = st.one_of(st.integers(0, 3), st.integers(0, 2**32 - 1))
tails = st.sampled_from(["drop", "pad", "exact"])


def counts(most: int = 12, shards: int = 12) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, most), max_size=shards)


@st.composite
def parameters(draw: st.DrawFn, *, most_window: int = 20) -> OrderParameters:
    version = draw(st.sampled_from(ORDER_VERSIONS))
    chunk, window = draw(st.integers(1, 6)), draw(st.integers(1, most_window))
    if draw(st.booleans()):
        return OrderParameters(draw(st.integers(1, 40)), chunk, window, version=version)
    ranks, virtual, sublanes = (draw(st.integers(1, most)) for most in (6, 4, 4))
    groups = draw(st.sampled_from([g for g in range(1, ranks + 1) if ranks % g == 0]))
    return OrderParameters(ranks * virtual * sublanes, chunk, window, virtual, sublanes, ranks, groups, version)


def everything(order: EpochOrder) -> NDArray[np.int64]:
    """(shard, row) of every position, shape (N, 2)."""
    return np.stack(order.locate(np.arange(order.samples)), axis=1)
