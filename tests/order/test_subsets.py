"""Splits and takes: disjoint, complete, of the right size, and stable when shards are appended."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardstream.errors import UsageError
from shardstream.order import split_ranges, take_counts

from ..examples import thorough
from . import make_golden, reference
from .strategies import counts

NAMES = ["train", "val", "test", "rest"]


@st.composite
def shares(draw: st.DrawFn) -> dict[str, Fraction]:
    weights = draw(st.lists(st.one_of(st.integers(1, 9), st.integers(1, 10**18)), min_size=1, max_size=4))
    return {name: Fraction(weight, sum(weights)) for name, weight in zip(NAMES, weights, strict=False)}


def rows_of(counts: list[int], fractions: dict, part: str, by: str) -> list[tuple[int, int]]:
    first, held = split_ranges(np.array(counts, np.int64), fractions, part, by=by)
    assert first.dtype == held.dtype == np.int64
    begins, ends = first.tolist(), (first + held).tolist()
    return [(shard, row) for shard, (a, b) in enumerate(zip(begins, ends, strict=True)) for row in range(a, b)]


@thorough
@given(counts(most=60), shares())
def test_equals_the_reference(counts, fractions):
    expected = {"samples": reference.split(counts, fractions), "shards": reference.split_by_shards(counts, fractions)}
    for by, parts in expected.items():
        assert {name: rows_of(counts, fractions, name, by) for name in fractions} == parts


@pytest.mark.parametrize("by", ["samples", "shards"])
@thorough
@given(counts=counts(most=60), fractions=shares())
def test_disjoint_and_complete(counts, fractions, by):
    parts = [rows_of(counts, fractions, name, by) for name in fractions]
    everything = [(shard, row) for shard, n in enumerate(counts) for row in range(n)]
    assert sorted(sample for part in parts for sample in part) == everything


@thorough
@given(counts(most=200), shares())
def test_sizes_are_what_was_asked_for(counts, fractions):
    for name, share in fractions.items():
        held = len(rows_of(counts, fractions, name, "samples"))
        assert abs(held - share * sum(counts)) < len(fractions)
    if len(fractions) == 2:
        assert len(rows_of(counts, fractions, "val", "samples")) == sum(counts) * fractions["val"] // 1


@thorough
@given(counts(most=200), shares())
def test_every_prefix_of_the_shards_is_split_alike(counts, fractions):
    """No shard favours a part: the parts of the first shards, however many, have their sizes too."""
    for name, share in fractions.items():
        _, held = split_ranges(np.array(counts, np.int64), fractions, name)
        for shards in range(len(counts)):
            assert abs(int(held[:shards].sum()) - share * sum(counts[:shards])) < len(fractions)


@pytest.mark.parametrize("by", ["samples", "shards"])
@thorough
@given(before=counts(most=60), appended=counts(most=60), fractions=shares())
def test_appended_shards_change_nothing_for_those_that_are_there(before, appended, fractions, by):
    for name in fractions:
        old = split_ranges(np.array(before, np.int64), fractions, name, by=by)
        new = split_ranges(np.array(before + appended, np.int64), fractions, name, by=by)
        for was, now in zip(old, new, strict=True):
            assert now[: len(before)].tolist() == was.tolist()


@thorough
@given(counts(most=60), shares())
def test_a_shard_belongs_to_one_part_where_shards_are_split(counts, fractions):
    held = [split_ranges(np.array(counts, np.int64), fractions, name, by="shards") for name in fractions]
    assert all(not first.any() for first, _ in held)
    assert np.array_equal(sum(part for _, part in held), np.array(counts, np.int64))
    assert all(sum(int(part[shard] > 0) for _, part in held) == (n > 0) for shard, n in enumerate(counts))


def test_floats_are_the_decimals_that_they_are_written_as():
    ten_times = np.full(1000, 10)
    fractions = {"a": 0.1, "b": 0.2, "c": 0.7}
    sizes = [int(split_ranges(ten_times, fractions, name)[1].sum()) for name in fractions]
    assert sizes == [1000, 2000, 7000]
    same = {"a": "0.1", "b": "1/5", "c": Fraction(7, 10)}
    for name in fractions:
        assert np.array_equal(split_ranges(ten_times, fractions, name), split_ranges(ten_times, same, name))


@pytest.mark.parametrize(
    "val", [Fraction(1, 3), Fraction("0.02"), Fraction(3**18, 10**9), Fraction(10**12 + 1, 10**13), Fraction(1, 10**30)]
)
def test_exact_beyond_the_precision_of_floats(val):
    counts = np.array([2**60 - 1, 2**60, 0, 2**60 - 7, 5, 2**59 + 13])
    first, held = split_ranges(counts, {"train": 1 - val, "val": val}, "val")
    seen = 0
    for n, begin, size in zip(counts.tolist(), first.tolist(), held.tolist(), strict=True):
        assert size == val * (seen + n) // 1 - val * seen // 1
        assert begin == n - size
        seen += n


def test_the_first_named_part_keeps_the_beginning_of_each_shard():
    first, held = split_ranges(np.array([10, 10, 10]), {"train": 0.75, "val": 0.25}, "train")
    assert (first.tolist(), held.tolist()) == ([0, 0, 0], [8, 7, 8])


@thorough
@given(counts(most=30), st.integers(0, 400))
def test_take(counts, n):
    stored = [shard for shard, size in enumerate(counts) for _ in range(size)][:n]
    assert take_counts(np.array(counts, np.int64), n).tolist() == [stored.count(shard) for shard in range(len(counts))]


def test_take_everything_of_huge_data():
    counts = np.array([2**61, 0, 2**61])
    for n in (2**62, 2**63 - 1, 2**80):
        assert np.array_equal(take_counts(counts, n), counts)
    assert take_counts(counts, 2**61 + 1).tolist() == [2**61, 0, 1]


@pytest.mark.parametrize("name", make_golden.SPLITS)
def test_golden_splits(name):
    case = make_golden.load(make_golden.SPLITS_PATH)[name]
    for part, expected in case["parts"].items():
        first, held = split_ranges(np.array(case["counts"], np.int64), case["fractions"], part, by=case["by"])
        shards = np.flatnonzero(held)
        assert np.stack((shards, first[shards], held[shards]), axis=1).tolist() == expected


def test_golden_splits_are_those_of_the_reference():
    stored = make_golden.load(make_golden.SPLITS_PATH)
    assert make_golden.merged(stored, {name: make() for name, make in make_golden.SPLITS.items()}) == stored


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"part": "vall"}, "did you mean 'val'"),
        ({"part": "x"}, "parts are 'train', 'val'"),
        ({"by": "shard"}, "did you mean 'shards'"),
        ({"by": None}, "by=None"),
        ({"fractions": {"train": 0.9, "val": 0.2}}, r"0\.9 \+ 0\.2 is 1\.1"),
        ({"fractions": {"train": 1.0, "val": 0}}, "'val' must be in"),
        ({"fractions": {"train": 1.5, "val": -0.5}}, "'train' must be in"),
        ({"fractions": {"train": 1, "val": "1e999"}}, "1e999"),
        ({"fractions": {"train": 1, "val": float("nan")}}, "got nan"),
        ({"fractions": {"train": 1, "val": "1/0"}}, "1/0"),
        ({"fractions": {"train": "most", "val": 0.5}}, "'train' must be a finite number, got 'most'"),
        ({"fractions": {}}, "nothing"),
        ({"counts": np.array([1, -1])}, "negative"),
    ],
)
def test_arguments_that_cannot_work(arguments, message):
    good = {"counts": np.array([3]), "fractions": {"train": 0.8, "val": 0.2}, "part": "val"}
    with pytest.raises(UsageError, match=message):
        split_ranges(**{**good, **arguments})


def test_a_negative_take():
    with pytest.raises(UsageError, match="-1"):
        take_counts(np.array([3]), -1)
