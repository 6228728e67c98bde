"""What the figures of docs/shuffle.md rest on: the measures, the simulated cache, and who reads what in a cluster."""

from __future__ import annotations

import importlib
from itertools import combinations
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardstream.order import EpochOrder, step_count, step_positions

TOOLS = Path(__file__).resolve().parents[2] / "tools"


def bench(name: str) -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(TOOLS))
        return importlib.import_module(f"bench.{name}")


measures = bench("shuffle.measures")
reads = bench("cluster.reads")
cache = bench("cluster.cache")

permutations = st.integers(1, 60).flatmap(lambda n: st.permutations(range(n))).map(np.array)


@given(permutations)
def test_inversions_are_pairs_in_the_wrong_order(values):
    assert measures.inversions(values) == sum(a > b for a, b in combinations(values.tolist(), 2))


def test_kendall_tau_of_equal_reversed_and_unrelated_orders():
    order = np.random.default_rng(0).permutation(5000)
    assert measures.kendall_tau(order, order) == 1
    assert measures.kendall_tau(order, order[::-1]) == -1
    assert abs(measures.kendall_tau(order, np.random.default_rng(1).permutation(5000))) < 0.03


@given(st.data(), st.integers(2, 7))
def test_co_batch_ratio_counts_pairs(data, batch):
    n = data.draw(st.integers(2 * batch, 40))
    first, second = (np.array(data.draw(st.permutations(range(n)))) for _ in range(2))
    whole = n // batch * batch

    def groups(order):
        return {sample: i // batch for i, sample in enumerate(order[:whole].tolist())}

    before, after = groups(first), groups(second)
    known = sorted(before.keys() & after.keys())
    met = [(a, b) for a, b in combinations(known, 2) if before[a] == before[b]]
    if not met:
        return
    again = sum(after[a] == after[b] for a, b in met)
    expected = again / len(met) / ((batch - 1) / (whole - 1))
    assert measures.co_batch_ratio(first, second, batch) == pytest.approx(expected)


def test_co_batch_ratio_of_full_shuffles_is_one():
    rng = np.random.default_rng(0)
    ratios = [measures.co_batch_ratio(rng.permutation(4096), rng.permutation(4096), 64) for _ in range(20)]
    assert np.mean(ratios) == pytest.approx(1, abs=0.02)


def test_class_entropy_in_bits():
    labels = np.array([0, 0, 1, 1, 2, 2, 3, 3])
    assert measures.class_entropy(np.array([[0, 2, 4, 6]]), labels) == pytest.approx(2)
    assert measures.class_entropy(np.array([[0, 1, 2, 3], [0, 1, 2, 3]]), labels) == pytest.approx(1)
    assert measures.class_entropy(np.array([[0, 1]]), labels) == 0


def test_displacements_of_a_full_shuffle_and_of_none():
    none = measures.displacement(np.arange(1000))
    assert none.max() == 0
    assert measures.distance_from_full_shuffle(none) == pytest.approx(1)
    full = measures.displacement(np.random.default_rng(0).permutation(100_000))
    assert measures.distance_from_full_shuffle(full) < 0.01


stretch = st.tuples(st.integers(0, 60), st.integers(0, 15))


@given(st.lists(st.lists(stretch, min_size=1, max_size=4), max_size=6), stretch)
def test_intervals_are_a_set_of_integers(additions, asked):
    intervals, reference = cache.Intervals(), set()
    for addition in additions:
        begins, lengths = np.array(addition).T
        intervals.add(begins, begins + lengths)
        reference.update(i for begin, length in addition for i in range(begin, begin + length))
    begin, length = asked
    (common,) = intervals.common(np.array([begin]), np.array([begin + length]))
    assert common == len(reference & set(range(begin, begin + length)))


def test_a_cache_admits_whole_shards_until_full_and_keeps_them():
    sizes, starts = np.full(4, 10.0), np.arange(4) * 10
    node = cache.NodeCache(25.0, sizes, starts)
    shard, row, rows = np.array([2, 0, 1]), np.array([0, 3, 0]), np.array([10, 4, 10])
    assert node.read(shard, row, rows) == 24
    assert node.read(shard, row, rows) == 10  # shard 1 found no place
    assert node.read(np.array([0]), np.array([0]), np.array([10])) == 6  # of shard 0, four rows had been read
    assert node.read(np.array([0]), np.array([0]), np.array([10])) == 0
    assert node.read(np.array([3]), np.array([0]), np.array([10])) == 10


@pytest.mark.parametrize("groups", [1, 2])
def test_stretches_are_what_the_ranks_read(groups):
    cluster = reads.Cluster(nodes=2, ranks=2, workers=2, batch=8, shards=100, shard_bytes=5000, sample_bytes=100)
    parameters = cluster.parameters(groups)
    assert parameters.lanes == 4 * 8 * 8
    read = reads.stretches(cluster, epoch=3, groups=groups)
    reader = np.full(cluster.samples, -1)
    for rank, worker, shard, row, rows in zip(read.rank, read.worker, read.shard, read.row, read.rows, strict=True):
        begin = cluster.starts[shard] + row
        assert (reader[begin : begin + rows] == -1).all()
        reader[begin : begin + rows] = rank * cluster.workers + worker
    assert (reader >= 0).all()
    order = EpochOrder(cluster.counts, seed=reads.SEED, epoch=3, parameters=parameters)
    body = order.samples // parameters.lanes * parameters.lanes
    shape = {"samples": order.samples, "world_size": 4, "batch_size": 8, "tail": "drop"}
    for rank in range(4):
        for step in range(step_count(rank=rank, **shape)):
            positions, _ = step_positions(step, rank=rank, **shape)
            shard, row = order.locate(positions[positions < body])
            assert (reader[cluster.starts[shard] + row] == rank * cluster.workers + step % cluster.workers).all()
