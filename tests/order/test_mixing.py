"""Mixtures against the reference, the golden vectors, and what they promise about quotas and even use."""

from __future__ import annotations

import pickle
from collections import Counter
from dataclasses import asdict
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from shardstream.errors import UsageError
from shardstream.order import (
    ORDER_VERSIONS,
    EpochOrder,
    MixedOrder,
    OrderParameters,
    Remaining,
    Stop,
    default_parameters,
    mixing,
    mixing_parameters,
    quotas_of,
    step_positions,
)
from tests.grouped import grouped

from ..examples import at_most, thorough
from . import make_golden, reference
from .reference import Mixture, MixturePosition, Shape
from .strategies import epochs, parameters, seeds

SHAPE = {"world_size": 1, "num_workers": 0, "mean_bytes": 1e4}


def everything(order: MixedOrder) -> NDArray[np.int64]:
    """(source, shard, row) of every position, shape (E, 3)."""
    return np.stack(order.locate(np.arange(order.samples)), axis=1)


def arrays(counts: list[list[int]]) -> list[NDArray[np.int64]]:
    return [np.array(one, np.int64) for one in counts]


sources = st.lists(st.integers(0, 12), min_size=1, max_size=8).filter(any)


@st.composite
def mixtures(draw: st.DrawFn, *, by: tuple[str, ...] = ("samples", "batches"), most: int = 3) -> dict:
    """Arguments of the reference and, with arrays for counts, of ``MixedOrder``."""
    counts = draw(st.lists(sources, min_size=1, max_size=most))
    quotas = [draw(st.integers(1, 5)) for _ in counts]
    smallest = min(map(sum, counts))
    samples = draw(st.one_of(st.integers(0, 150), st.integers(0, smallest)))
    return {
        "counts": counts,
        "quotas": quotas,
        "samples": samples,
        "seed": draw(seeds),
        "by": draw(st.sampled_from(by)),
        "parameters": draw(parameters().filter(lambda p: p.lanes % p.sublanes == 0)),
    }


def make(mixture: dict, epoch: int, **changed) -> MixedOrder:
    return MixedOrder(**{**mixture, "counts": arrays(mixture["counts"]), "epoch": epoch, **changed})


def listed(mixture: dict, epochs: int) -> Mixture:
    rest = {name: value for name, value in mixture.items() if name != "parameters"}
    return Mixture(**grouped(rest), shape=Shape(**asdict(mixture["parameters"])), epochs=epochs)


@at_most(150)
@given(mixtures(), st.integers(1, 4))
def test_equals_the_reference(mixture, epochs):
    expected = listed(mixture, epochs)
    for epoch, samples in enumerate(expected.epochs):
        order = make(mixture, epoch)
        assert order.samples == len(samples)
        assert everything(order).tolist() == list(map(list, samples))


@thorough
@given(mixtures(), epochs, st.data())
def test_any_positions_in_any_order_give_the_same(mixture, epoch, data):
    order = make(mixture, epoch)
    whole = everything(order)
    asked = data.draw(st.lists(st.integers(0, order.samples - 1), max_size=30) if order.samples else st.just([]))
    for one_order in (order, make(mixture, epoch), pickle.loads(pickle.dumps(order))):
        assert np.array_equal(np.stack(one_order.locate(np.array(asked, np.int64)), axis=1), whole[asked])


@thorough
@given(mixtures(by=("samples",)), st.integers(1, 4))
def test_quotas_are_exact_in_every_block_of_a_walk(mixture, epochs):
    """Blocks go on from epoch to epoch, along the walk that a lane belongs to in each of them."""
    shape, quotas = Shape(**asdict(mixture["parameters"])), mixture["quotas"]
    by_span: dict[tuple[int, int], list[int]] = {}
    for epoch in range(epochs):
        order = make(mixture, epoch)
        labels = order.locate(np.arange(order.samples))[0].tolist()
        deal = reference.Epoch([mixture["samples"]], seed=mixture["seed"], epoch=epoch, shape=shape)
        for (lane, _), label in zip(deal.dealt, labels, strict=True):
            by_span.setdefault((epoch, deal.spans[lane]), []).append(label)
    for walk in range(shape.lanes):
        spans = zip(range(epochs), reference.spans_walked(walk, shape, shape.groups), strict=False)
        row = [label for epoch, span in spans for label in by_span.get((epoch, span), [])]
        for begin in range(0, len(row) - sum(quotas) + 1, sum(quotas)):
            block = Counter(row[begin : begin + sum(quotas)])
            assert [block[source] for source in range(len(quotas))] == quotas


@thorough
@given(mixtures(by=("batches",)), st.integers(1, 4))
def test_by_batches_every_batch_has_one_source(mixture, epochs):
    parameters, quotas = mixture["parameters"], mixture["quotas"]
    batch = parameters.chunk * parameters.sublanes
    workers = parameters.lanes // parameters.sublanes
    shape, rows = Shape(**asdict(parameters)), []
    spans = shape.spans_of_lanes(seed=mixture["seed"], epoch=0)
    for epoch in range(epochs):
        order = make(mixture, epoch)
        assert mixture["samples"] - parameters.lanes * parameters.chunk < order.samples <= mixture["samples"]
        assert order.samples % (parameters.lanes * parameters.chunk) == 0
        labels = order.locate(np.arange(order.samples))[0].reshape(-1, batch)
        assert np.all(labels == labels[:, :1])
        # the lanes that epoch 0 deals to a virtual worker share a row of labels, whoever reads them in this epoch
        dealt = shape.spans_of_lanes(seed=mixture["seed"], epoch=epoch, together=True)
        readers = [dealt.index(spans[row * shape.sublanes]) // shape.sublanes for row in range(workers)]
        rows.append(labels[:, 0].reshape(-1, workers)[:, readers])
    for row in np.concatenate(rows).T.tolist():
        for begin in range(0, len(row) - sum(quotas) + 1, sum(quotas)):
            block = Counter(row[begin : begin + sum(quotas)])
            assert [block[source] for source in range(len(quotas))] == quotas


@thorough
@given(mixtures(), st.sampled_from([1, 3, 20]))
def test_samples_of_a_source_are_used_evenly(mixture, epochs):
    """By however many epochs, no two samples of a source differ by more than the epochs of it that are under way."""
    orders = [make(mixture, epoch) for epoch in range(epochs)]
    used = Counter(tuple(sample) for order in orders for sample in everything(order).tolist())
    lanes, chunk, groups = (getattr(mixture["parameters"], name) for name in ("lanes", "chunk", "groups"))
    for source, counts in enumerate(mixture["counts"]):
        assume(groups == 1 or sum(counts) >= lanes)
        uses = [used[source, shard, row] for shard, count in enumerate(counts) for row in range(count)]
        # walks have drawn the same number from the source, but for the block they are in
        spread = (mixture["quotas"][source] + 2) * (chunk if mixture["by"] == "batches" else 1)
        assert max(uses) - min(uses) <= 4 + spread * lanes * groups / sum(counts)
    assert sum(used.values()) == sum(order.samples for order in orders)
    assert set(used) <= {
        (source, shard, row)
        for source, counts in enumerate(mixture["counts"])
        for shard, count in enumerate(counts)
        for row in range(count)
    }


@pytest.mark.parametrize("samples", [100, 130, 700])
def test_lanes_of_one_and_of_two_samples_use_them_alike(samples):
    """Were each lane to stay with its own samples, those of a lane of one would come twice as often."""
    run = {"quotas": (1,), "samples": samples, "seed": 0, "parameters": OrderParameters(64, 1, 4)}
    used = Counter()
    for epoch in range(60):
        used.update(map(tuple, everything(MixedOrder(arrays([[60, 40]]), epoch=epoch, **run)).tolist()))
    assert len(used) == 100
    assert max(used.values()) - min(used.values()) <= (0 if samples == 100 else 3)


@thorough
@given(mixtures(most=1), st.integers(1, 5))
def test_whole_epochs_of_a_source_follow_one_another(mixture, epochs):
    """One lane: each stretch of as many samples as there are is each sample once, whatever the epoch's size."""
    mixture = {**mixture, "parameters": OrderParameters(1, 1, mixture["parameters"].window)}
    stream = np.concatenate([everything(make(mixture, epoch)) for epoch in range(epochs)])
    stored = [[0, shard, row] for shard, count in enumerate(mixture["counts"][0]) for row in range(count)]
    for begin in range(0, len(stream) - len(stored) + 1, len(stored)):
        assert sorted(stream[begin : begin + len(stored)].tolist()) == stored


@thorough
@given(mixtures(by=("samples",)), st.integers(1, 5), st.integers(1, 60))
def test_with_one_lane_the_size_of_epochs_only_cuts_the_stream(mixture, epochs, other_size):
    def stream(samples: int, epochs: int) -> list[list[int]]:
        changed = {"samples": samples, "parameters": OrderParameters(1, 1, 7)}
        return [sample for epoch in range(epochs) for sample in everything(make(mixture, epoch, **changed)).tolist()]

    assume(min(map(sum, mixture["counts"])) >= 8)  # what is small is so for epochs of any size
    total = epochs * other_size
    assert stream(total, 1) == stream(other_size, epochs)


@thorough
@given(sources, seeds, epochs, parameters())
def test_one_source_with_as_many_positions_as_samples_is_the_epoch_order(counts, seed, epoch, parameters):
    assume(sum(counts) >= parameters.groups)
    for number in {epoch, 0, 1, 2, 3, 10**6}:
        run = {"seed": seed, "epoch": number, "parameters": parameters}
        mixed = MixedOrder(arrays([counts]), quotas=(3,), samples=sum(counts), **run)
        expected = EpochOrder(np.array(counts, np.int64), **run).locate(np.arange(sum(counts)))
        source, *found = mixed.locate(np.arange(sum(counts)))
        assert not source.any()
        assert np.array_equal(found, expected)


@thorough
@given(sources, st.integers(0, 100), st.integers(0, 6), parameters())
def test_the_stored_order_without_end(counts, samples, epoch, parameters):
    stored = [[0, shard, row] for shard, count in enumerate(counts) for row in range(count)]
    order = MixedOrder(
        arrays([counts]), quotas=(1,), samples=samples, seed=3, epoch=epoch, parameters=parameters, shuffle=False
    )
    begin = epoch * samples
    assert everything(order).tolist() == [stored[(begin + i) % len(stored)] for i in range(samples)]


def test_sources_have_orders_of_their_own():
    counts = arrays([[50, 50], [50, 50], [50, 50]])
    run = {"quotas": (1, 1, 1), "samples": 300, "epoch": 0, "parameters": OrderParameters(1, 1, 100)}
    samples = [everything(MixedOrder(counts, seed=seed, **run)) for seed in (0, 1)]
    rows = [order[order[:, 0] == source, 1:] for order in samples for source in range(3)]
    assert len({str(one.tolist()) for one in rows}) == 6


def test_the_next_epoch_goes_on_where_this_one_stops():
    """An epoch of half the samples, then the other half: not the same half again."""
    counts = np.full(40, 100)
    parameters = default_parameters(2000, batch_size=8, shuffle=True, **SHAPE)
    assert parameters.lanes > 1
    run = {"quotas": (1,), "samples": 2000, "seed": 0, "parameters": parameters}
    halves = [everything(MixedOrder([counts], epoch=epoch, **run)) for epoch in (0, 1)]
    distinct = {tuple(sample) for half in halves for sample in half.tolist()}
    assert len(distinct) >= 4000 - parameters.lanes  # one at the seam between a walk and the next


def test_small_sources_beside_large_ones_are_shuffled_as_a_whole():
    """Samples that share a batch share one again no more often than under a full shuffle."""
    counts = arrays([[500], [16_000]])
    parameters = mixing_parameters([500, 16_000], (1, 3), samples=16_000, batch_size=128, **SHAPE)
    assert parameters.lanes == 256
    order = MixedOrder(counts, quotas=(1, 3), samples=16_000, seed=0, epoch=0, parameters=parameters)
    source, _, row = order.locate(np.arange(16_000))
    batch = np.flatnonzero(source == 0) // 128
    uses = [np.sort(batch[row[source == 0] == sample])[:6] for sample in range(500)]
    batch_of = np.stack(uses, axis=1)  # by use and sample
    alike = np.triu(batch_of[:, :, None] == batch_of[:, None, :], 1)
    together = sum(np.count_nonzero(now & later) for now, later in pairwise(alike))
    expected = sum(now.sum() * later.sum() / (500 * 499 / 2) for now, later in pairwise(alike))
    assert 0.5 < together / expected < 1.5


@pytest.mark.parametrize("version", ORDER_VERSIONS)
@pytest.mark.parametrize("groups", [2, 4])
def test_a_group_reads_the_same_samples_of_a_source_in_every_epoch(groups, version):
    counts = arrays([[300, 500, 45, 155, 24], [700, 100, 100, 700]])
    parameters = OrderParameters(4 * 2 * 2, 2, 8, virtual=2, sublanes=2, ranks=4, groups=groups, version=version)
    run = {"quotas": (2, 1), "samples": 1600, "seed": 8, "parameters": parameters}
    lane, _ = EpochOrder(np.array([1600]), seed=0, epoch=0, parameters=parameters).lanes_of(np.arange(1600))
    group = lane // 2 % 4 * groups // 4
    read: list[set] = [set() for _ in range(groups)]
    for epoch in range(8):
        samples = everything(MixedOrder(counts, epoch=epoch, **run))
        for number in range(groups):
            read[number] |= set(map(tuple, samples[group == number].tolist()))
    assert sum(map(len, read)) == len(set().union(*read)) == 1024 + 1600


def test_stops_and_other_shapes_leave_the_order_as_it_is():
    mixture = {
        "counts": [[400, 300], [77]], "quotas": [4, 1], "samples": 2500, "seed": 5, "by": "samples",
        "parameters": mixing_parameters([700, 77], (4, 1), samples=2500, batch_size=16, **SHAPE),
    }  # fmt: skip
    whole = everything(make(mixture, 3))
    rest = Remaining(2500).after_batches(11, world_size=3, batch_size=16)
    stop = Stop(2, "drop", (130, 101))
    given_out = [range(rest.start)]
    given_out.append(reference.handed_out(samples=2500, start=rest.start, world_size=2, tail="drop", taken=[130, 101]))
    rest = rest.after(stop)
    run = {"samples": rest.samples, "start": rest.start, "rank": 0, "world_size": 1, "batch_size": 50, "tail": "exact"}
    positions = [
        rest.positions(step_positions(step, **run)[0]) for step in range(-(-(rest.samples - rest.start) // 50))
    ]
    seen = np.concatenate([*(np.array(sorted(part)) for part in given_out), *positions])
    order = make(mixture, 3)
    samples = [np.stack(order.locate(part), axis=1) for part in np.array_split(seen, 40)]
    assert sorted(np.concatenate(samples).tolist()) == sorted(whole.tolist())
    assert np.array_equal(np.sort(seen), np.arange(2500))


@pytest.mark.parametrize("epoch", [0, 1, 10**6])
def test_huge_sources_by_the_formulas(epoch):
    counts = [[10**6 + i * 7919 % 1000 for i in range(900)], [10**5 + i % 77 for i in range(200)]]
    totals = list(map(sum, counts))
    parameters = mixing_parameters(totals, (9, 1), samples=10**8, batch_size=128, **SHAPE)
    assert parameters.lanes == 256
    run = {"quotas": (9, 1), "samples": 10**8, "seed": 2, "epoch": epoch}
    order = MixedOrder(arrays(counts), parameters=parameters, **run)
    slow = MixturePosition(counts, shape=Shape(**asdict(parameters)), **run)
    positions = [0, 5, 1000, 12_345_678, 99_999_990, 10**8 - 1]
    assert [tuple(map(int, one)) for one in zip(*order.locate(np.array(positions)), strict=True)] == [
        slow.locate(p) for p in positions
    ]


@pytest.mark.full
def test_few_epochs_of_a_source_are_held():
    counts = arrays([[3000], [64] * 4])
    parameters = mixing_parameters([3000, 256], (1, 1), samples=40_000, batch_size=32, **SHAPE)
    order = MixedOrder(counts, quotas=(1, 1), samples=40_000, seed=0, epoch=0, parameters=parameters)
    for begin in range(0, 40_000, 32):
        order.locate(np.arange(begin, begin + 32))
        assert all(len(source._epochs._held) <= 6 for source in order._sources)


def test_epochs_of_a_source_that_are_in_use_are_made_once(monkeypatch):
    made: list[int] = []

    class Counted(EpochOrder):
        def __init__(self, *arguments, epoch, **options):
            made.append(epoch)
            super().__init__(*arguments, epoch=epoch, **options)

    monkeypatch.setattr(mixing, "EpochOrder", Counted)
    counts = arrays([[3000], [64] * 4])
    parameters = mixing_parameters([3000, 256], (1, 1), samples=20_000, batch_size=32, **SHAPE)
    order = MixedOrder(counts, quotas=(1, 1), samples=20_000, seed=0, epoch=0, parameters=parameters)
    for begin in range(0, 20_000, 32):
        order.locate(np.arange(begin, begin + 32))
    whole = 10_000 / 3000 + 10_000 / 256
    assert len(made) <= whole + 2 * 4  # lanes need not keep step, so some may be made again


@pytest.mark.parametrize("version", make_golden.VERSIONS)
@pytest.mark.parametrize("name", make_golden.MIXTURES)
def test_golden_mixtures(name, version):
    case = make_golden.load(make_golden.MIXTURES_PATHS[version])[name]
    order = MixedOrder(
        [np.array(make_golden.counts_of({"counts": one}), np.int64) for one in case["counts"]],
        quotas=case["quotas"],
        samples=case["samples"],
        seed=case["seed"],
        epoch=case["epoch"],
        parameters=OrderParameters(**{"version": 1, **case["shape"]}),
        by=case["by"],
    )
    found = order.locate(np.array(case["positions"], np.int64))
    assert [part.tolist() for part in found] == [case["sources"], case["shards"], case["rows"]]


@pytest.mark.parametrize("version", make_golden.VERSIONS)
def test_golden_mixtures_are_those_of_the_reference(version):
    stored = make_golden.load(make_golden.MIXTURES_PATHS[version])
    assert make_golden.merged(stored, {name: make(version) for name, make in make_golden.MIXTURES.items()}) == stored


@pytest.mark.parametrize("by", ["samples", "batches"])
def test_an_empty_epoch(by):
    parameters = OrderParameters(8, 2, 4, virtual=2, sublanes=2, ranks=2)
    order = MixedOrder(arrays([[3], [4]]), quotas=(1, 1), samples=0, seed=0, epoch=7, parameters=parameters, by=by)
    assert order.samples == 0
    assert [part.shape for part in order.locate(np.empty(0, np.int64))] == [(0,)] * 3
    with pytest.raises(UsageError, match="positions"):
        order.locate(np.array([0]))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("epoch", [0, 10**9])
def test_one_sample_over_and_over(epoch):
    parameters = mixing_parameters([1, 1], (2, 1), samples=3000, batch_size=32, **SHAPE)
    order = MixedOrder(arrays([[0, 1], [1]]), quotas=(2, 1), samples=3000, seed=0, epoch=epoch, parameters=parameters)
    samples = everything(order)
    assert {tuple(sample) for sample in samples.tolist()} == {(0, 1, 0), (1, 0, 0)}
    assert abs(np.count_nonzero(samples[:, 0] == 0) - 2000) <= parameters.lanes


def test_parameters_are_those_of_a_data_set_of_the_mixtures_size():
    shape = {**SHAPE, "num_workers": 8, "world_size": 4, "batch_size": 64}
    quotas = quotas_of([0.999, 0.001])
    expected = default_parameters(10**6, shuffle=True, **shape)
    assert mixing_parameters([10**9, 3], quotas, samples=10**6, **shape) == expected
    explicit = mixing_parameters([10**9, 3], quotas, samples=10**6, lanes=12, chunk=5, window=7, groups=2, **shape)
    assert (explicit.lanes, explicit.chunk, explicit.window, explicit.groups) == (12, 5, 7, 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"by": "batch"}, "did you mean 'batches'"),
        ({"samples": -1}, "got -1"),
        ({"epoch": -1}, "epoch"),
        ({"epoch": 2**32}, "4294967296"),
        ({"shuffle": False}, "only one source"),
        ({"quotas": (1,)}, "2 positive integers"),
        ({"quotas": (1, 0)}, r"\(1, 0\)"),
        ({"quotas": (1, 65536)}, "at most 65536"),
        ({"counts": [np.array([3]), np.array([0, 0])]}, "source 1 has no samples"),
        ({"counts": [np.array([3]), np.array([-1])]}, "negative"),
        ({"by": "batches", "parameters": OrderParameters(3, 1, 1, sublanes=2)}, "multiple of sublanes"),
        ({"samples": 2**61, "epoch": 1}, "beyond"),
        ({"samples": 2**60, "parameters": OrderParameters(64, 1, 1)}, "lanes are too many"),
    ],
)
def test_arguments_out_of_range(arguments, message):
    good = {
        "counts": [np.array([3]), np.array([5])], "quotas": (1, 1), "samples": 8, "seed": 0, "epoch": 0,
        "parameters": OrderParameters(1, 1, 1),
    }  # fmt: skip
    with pytest.raises(UsageError, match=message):
        MixedOrder(**{**good, **arguments})


@pytest.mark.parametrize("position", [-1, 8, 2**40])
def test_positions_out_of_range(position):
    order = MixedOrder(arrays([[3]]), quotas=(1,), samples=8, seed=0, epoch=0, parameters=OrderParameters(1, 1, 1))
    with pytest.raises(UsageError, match=str(position)):
        order.locate(np.array([0, position]))


@pytest.mark.parametrize(
    ("totals", "quotas", "message"), [([5, 0], (1, 1), "source 1 has no samples"), ([5], (1, 1), "1 positive")]
)
def test_parameters_of_mixtures_that_cannot_be(totals, quotas, message):
    with pytest.raises(UsageError, match=message):
        mixing_parameters(totals, quotas, samples=100, batch_size=4, **SHAPE)
