"""Weights of samples as integers, and the rows that draws find: against the reference, and in bounded memory."""

from __future__ import annotations

import math
import tracemalloc
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardstream.dataset.drawn_rows import DrawnRows
from shardstream.dataset.weights import ViewedShard, WeightSpec, weigh, whole_weights
from shardstream.errors import FieldError, FormatError, UsageError
from shardstream.order import EpochOrder, OrderParameters, WeightedDraws
from shardstream.shards.fields import FieldType
from shardstream.shards.index import Column, Keys, ShardIndex

from ..examples import thorough
from ..order import make_golden
from ..order.reference_weights import drawn_rows


def shard_of(*, valid: list[bool] | None = None, number: int = 0, **columns: Any) -> ShardIndex:
    """The index of a shard with these columns of numbers."""
    arrays = {name: np.asarray(values) for name, values in columns.items()}
    count = len(next(iter(arrays.values())))
    bits = None if valid is None else np.packbits(np.array(valid), bitorder="little")
    made = {
        name: Column(name, FieldType.parse(values.dtype.name), valid=bits, values=values)
        for name, values in arrays.items()
    }
    keys = Keys(np.arange(1, count + 1), memoryview(b"k" * count))
    return ShardIndex(f"shard-{number}", "record", count, keys, made, 0)


def weighed(spec: Any, shards: list[ShardIndex], rows: list[np.ndarray | int] | None = None) -> Any:
    """The weighing of these shards, and what views each of them."""
    rows = rows or [0] * len(shards)
    counts = np.array(
        [index.samples if isinstance(one, int) else len(one) for index, one in zip(shards, rows, strict=True)]
    )

    def view(shard: int) -> ViewedShard:
        return ViewedShard(shards[shard], int(counts[shard]), rows[shard])

    kinds = {name: column.type for index in shards for name, column in index.columns.items()}
    manifest: Any = SimpleNamespace(fields=kinds, url="here", classes=("cat", "dog", "emu"))
    return weigh(WeightSpec.of(spec), [manifest], counts, view), view


def drawn_of(weighing: Any, view: Callable[[int], ViewedShard], shard: int, draws: WeightedDraws) -> DrawnRows:
    return DrawnRows(view(shard), weighing.whole, draws, shard, *weighing.begins[shard : shard + 2].tolist())


def sequence(weighing: Any, view: Callable[[int], ViewedShard], samples: int, **run: Any) -> list[tuple[int, int]]:
    """(shard, row) of each position of an epoch."""
    draws = WeightedDraws(weighing.begins, samples)
    shards, places = EpochOrder(draws, **run).locate(np.arange(samples))
    rows = np.empty_like(shards)
    for shard in np.unique(shards).tolist():
        those = shards == shard
        rows[those] = drawn_of(weighing, view, shard, draws).find(places[those])
    return list(zip(shards.tolist(), rows.tolist(), strict=True))


@pytest.mark.parametrize("name", make_golden.WEIGHTS)
def test_golden_weights(name):
    case = make_golden.load(make_golden.WEIGHTS_PATH)[name]
    run = {"seed": case["seed"], "epoch": case["epoch"], "parameters": OrderParameters(**case["shape"])}
    shards, spec = [shard_of(w=np.array(one, np.int64)) for one in case["weights"]], "w"
    if case["alike"] is not None:
        shards = [shard_of(cls=np.array(one, np.uint8)) for one in case["alike"]]
        pairs = {
            label: weight
            for labels, weights in zip(case["alike"], case["weights"], strict=True)
            for label, weight in zip(labels, weights, strict=True)
        }
        spec = {"cls": pairs}
    found = sequence(*weighed(spec, shards), case["samples"], **run)
    assert found == list(zip(case["shards"], case["rows"], strict=True))


_SIZES = st.lists(st.integers(0, 200), min_size=1, max_size=4)
_MANY = OrderParameters(3, 2, 16)


@thorough
@given(_SIZES.filter(any), st.integers(1, 900), st.integers(0, 3), st.integers(0, 3), st.data())
def test_any_weights_by_the_reference(sizes, samples, seed, epoch, data):
    """Of several blocks of rows, of views that begin later or are filtered, by weight and by label."""
    shards, rows, keys = [], [], []
    for number, size in enumerate(sizes):
        labels = np.array(data.draw(st.lists(st.integers(0, 3), min_size=size, max_size=size)), np.uint8)
        shards.append(shard_of(cls=labels, number=number))
        kept = np.flatnonzero(np.arange(size) % 3 != seed)
        rows.append(kept if data.draw(st.booleans()) else 0)
        keys.append(labels if isinstance(rows[-1], int) else labels[kept])
    occurring = sorted({int(label) for labels in keys for label in labels})
    if not occurring:
        return
    of_label = {label: (5, 0, 2, 7)[label] for label in occurring}
    if not any(of_label.values()):
        of_label[occurring[0]] = 3
    weights = [[of_label[label] for label in labels.tolist()] for labels in keys]
    found = sequence(
        *weighed({"cls": of_label}, shards, rows), samples, seed=seed, epoch=epoch, parameters=_MANY, shuffle=False
    )
    drawn = drawn_rows(weights, samples, seed=seed, epoch=epoch, alike=[one.tolist() for one in keys])
    stored = [one if isinstance(one, np.ndarray) else np.arange(200) for one in rows]
    assert found == [(shard, int(stored[shard][row])) for shard, one in enumerate(drawn) for row in one]


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        ("float32", [0.0, 1e-30, 0.1, 0.25, 3.0]),
        ("float64", [5e-324, 1e-310, 2e-310]),
        ("float16", [0.5, 1.5, 6e4]),
        ("uint64", [0, 1, 2**64 - 1, 2**63]),
        ("int64", [2**62, 2**62 - 1, 5]),
        ("uint8", [255, 0, 3]),
        ("int8", [127, 1]),
        ("bool", [True, False, True]),
        (">f4", [0.5, 2.0]),
    ],
)
def test_stored_weights_keep_their_ratios(dtype, values):
    column = np.array(values, dtype)
    index = ShardIndex("s", "record", len(values), Keys(np.arange(len(values)), memoryview(b"")), {}, 0)
    shard = shard_of(w=column.astype(column.dtype.newbyteorder("=")))
    columns = {"w": Column("w", shard.columns["w"].type, values=column)}
    shard = ShardIndex(index.path, "record", len(values), shard.keys, columns, 0)
    weighing, _ = weighed("w", [shard])
    whole = weighing.whole.of(shard, np.arange(len(values)))
    exact = [Fraction(value.item()) for value in column]
    for one, found in zip(exact, whole.tolist(), strict=True):
        assert (found > 0) == (one > 0)
        if one > sum(exact) / 2**20:  # lighter ones are rounded, but never to nothing
            assert abs(Fraction(found, int(whole.sum())) / (one / sum(exact)) - 1) < 2**-30
    if max(map(int, exact)) < 2**20 and dtype[0] != ">" and "float" not in dtype:
        assert whole.tolist() == exact
    assert 0 < whole.sum() < 1 << 60


@pytest.mark.full
@thorough
@given(st.sampled_from(["float16", "float32", "float64", "uint64", "int64", "uint8"]), st.data())
def test_stored_weights_are_scaled_as_the_documents_say(dtype, data):
    """Extreme ratios, subnormal numbers, and thousands of light ones beside a heavy one, in several shards."""
    kind = np.dtype(dtype)
    if kind.kind == "f":
        limits: Any = np.finfo(kind)
        extreme = [limits.max, limits.tiny, limits.smallest_subnormal]
        number: Any = st.floats(0, float(limits.max), width=kind.itemsize * 8)
    else:
        limits = np.iinfo(kind)
        extreme = [limits.max, limits.max // 2]
        number = st.integers(0, limits.max)
    number |= st.sampled_from([0, 1, *(one.item() if hasattr(one, "item") else one for one in extreme)])
    runs = st.lists(st.tuples(number, st.sampled_from([1, 3, 70_000])), max_size=3)
    parts = data.draw(st.lists(runs, min_size=1, max_size=3))
    columns = [np.concatenate([np.full(n, one, kind) for one, n in runs] + [np.empty(0, kind)]) for runs in parts]
    having = Counter(one for column in columns for one in column.tolist())
    if not any(having):
        return
    floats = kind.kind == "f"
    up = {one: Fraction(2) ** math.frexp(one)[1] if floats and one else Fraction(one) for one in having}
    total = sum(up[one] * times for one, times in having.items())
    scales = floats or total >= 1 << 60
    power = 1200 if scales else 0
    while scales and Fraction(2) ** power * total + having.total() >= 1 << 60:
        power -= 1
    if floats:
        power = min(power, 53 - math.frexp(max(having))[1])
    scaled = {one: Fraction(one) * Fraction(2) ** power for one in having}
    expected = {one: max(round(x) if floats else math.floor(x), 1) if one else 0 for one, x in scaled.items()}
    shards = [shard_of(w=one, number=number) for number, one in enumerate(columns)]
    weighing, _ = weighed("w", shards)
    for shard, column in zip(shards, columns, strict=True):
        found = weighing.whole.of(shard, np.arange(shard.samples))
        assert found.tolist() == [expected[one] for one in column.tolist()]
    assert weighing.begins[-1] == sum(expected[one] * times for one, times in having.items())


def test_many_light_samples_beside_a_heavy_one_keep_their_share():
    column = np.ones(1 << 21, np.float32)
    column[7] = 1e12
    for dtype in ("float32", "int64"):
        weighing, _ = weighed("w", [shard_of(w=column.astype(dtype))])
        heavy, light = weighing.whole.of(shard_of(w=column.astype(dtype)), np.array([7, 8])).tolist()
        assert abs(heavy / light / float(column[7]) - 1) < 1e-3


@thorough
@given(
    st.lists(
        st.tuples(st.fractions(0, 1000) | st.fractions(0, 1, max_denominator=7), st.integers(1, 1 << 40)),
        min_size=1,
        max_size=30,
    )
)
def test_weights_of_labels_keep_their_ratios(labels):
    weights, counts = [weight for weight, _ in labels], [count for _, count in labels]
    whole = whole_weights(weights, counts).tolist()
    assert sum(one * count for one, count in zip(whole, counts, strict=True)) < 1 << 60
    total = sum(weight * count for weight, count in labels)
    for weight, found in zip(weights, whole, strict=True):
        assert (found > 0) == (weight > 0)
        if weight > total / 2**58:
            exact, all_found = weight / total, sum(one * count for one, count in zip(whole, counts, strict=True))
            assert abs(Fraction(found, all_found) - exact) < Fraction(
                len(labels) * max(counts), 2**57
            ) * exact + Fraction(1, 2**58)


def test_balanced_labels_have_equal_shares_exactly():
    shards = [shard_of(cls=np.repeat([0, 1, 7], sizes)) for sizes in ([500, 20, 3], [9, 480, 1], [1, 0, 0])]
    weighing, _ = weighed({"cls": "balanced"}, shards)
    whole = weighing.whole
    assert whole.labels.tolist() == [0, 1, 7]
    assert (whole.weights * [510, 500, 4]).tolist() == [weighing.begins[-1] // 3] * 3


def test_labels_whose_numbers_have_no_common_multiple_are_balanced_without_huge_integers():
    having = np.arange(5_000) % 97 + 1
    weighing, _ = weighed({"cls": "balanced"}, [shard_of(cls=np.repeat(np.arange(5_000), having))])
    shares = weighing.whole.weights * having
    assert shares.max() / shares.min() < 1 + 1e-9


@pytest.mark.parametrize(
    ("column", "spec", "error", "what"),
    [
        ([1.0, -2.0], "w", FieldError, r"the sample has the weight -2.0 \[shard shard-0, sample 1, key k, field w\]"),
        ([np.nan, 1.0], "w", FieldError, "has the weight nan.*sample 0"),
        ([1.0, np.inf], "w", FieldError, "has the weight inf.*sample 1"),
        ([0, -1], "w", FieldError, "has the weight -1"),
        ([0, 0], "w", UsageError, "all weights are 0"),
        ([], "w", UsageError, "there are no samples"),
        ([1, 2], {"w": {1: 1}}, FieldError, "no weight for the label 2"),
        ([1, 2, 4, 5], {"w": {1: 1, 4: 1}}, FieldError, "no weight for the label 2, nor for 1 other"),
        ([0, 1, 2], {"w": {"cat": 1, "dog": 1}}, FieldError, r"no weight for the label 2 \('emu'\)"),
        ([0, 1], {"w": {"cat": 1, "dog": 1, "emu": 2}}, FieldError, "no sample has the label 'emu'"),
        ([0, 1], {"w": {"cat": 1, 0: 1, 1: 1}}, FieldError, "names the label 0 twice"),
        ([0, 1], {"w": {"cat": 1, "cow": 1}}, FieldError, "no class is called 'cow'"),
        ([0, 1], {"w": {0: 0, 1: 0}}, UsageError, "all weights are 0"),
        ([0, 1], {"w": {0: 1, 300.5: 1}}, FieldError, "weights asks for what the column cannot hold"),
        ([0.5, np.nan], {"w": "balanced"}, FieldError, "has the label nan"),
        ([0, 1], "v", FieldError, "no field 'v'"),
        ([0, 1], {"w": {0: -1, 1: 1}}, UsageError, "must not be negative, got -1 for 0"),
        ([0, 1], {"w": {0: float("inf"), 1: 1}}, UsageError, "weight of 0 must be a finite number"),
        ([0, 1], {"w": {None: 1}}, UsageError, "weights can compare 'w' with numbers and class names"),
        ([0, 1], {"w": {}}, UsageError, "a weight for each label, or 'balanced'"),
        ([0, 1], {"w": "balance"}, UsageError, "got 'balance'"),
        ([0, 1], {"w": [1, 2]}, UsageError, "a weight for each label"),
        ([0, 1], {}, UsageError, "must name one field"),
        ([0, 1], "", UsageError, "must name one field"),
        ([0, 1], 3, UsageError, "must name one field"),
    ],
    ids=str,
)
def test_what_is_wrong_is_said_where_it_is_read(column, spec, error, what):
    with pytest.raises(error, match=what) as caught:
        weighed(spec, [shard_of(w=np.array(column))])
    assert "hint: " in str(caught.value)


def test_a_sample_without_a_value_is_an_error():
    whole = shard_of(w=[1, 2])
    for other in (shard_of(w=[1, 2, 3], valid=[True, True, False], number=1), shard_of(v=[1, 2], number=1)):
        with pytest.raises(FieldError, match=r"has no value to be weighted by.*shard shard-1"):
            weighed("w", [whole, other])
        with pytest.raises(FieldError, match="has no value to be weighted by"):
            weighed({"w": "balanced"}, [whole, other])
    weighing, _ = weighed("w", [whole, shard_of(w=[1, 2, 3], valid=[True, True, False])], [0, np.array([1])])
    assert weighing.begins.tolist() == [0, 3, 5]


def test_an_index_with_other_weights_is_an_error():
    weighing, _ = weighed("w", [shard_of(w=[1, 2])])
    draws = WeightedDraws(weighing.begins, 5)
    other = ViewedShard(shard_of(w=[1, 3]), 2, 0)
    with pytest.raises(FormatError, match=r"others than when the data set was opened \[shard shard-0, field w\]"):
        drawn_of(weighing, lambda _: other, 0, draws).find(np.array([0]))


def test_the_digest_is_of_the_result():
    shards = [shard_of(cls=[0, 1, 1, 0], w=[1.0, 2.0, 2.0, 1.0], x=[2, 4, 4, 2])]
    digests = {
        str(spec): weighed(spec, shards)[0].digest
        for spec in ({"cls": {0: 1, 1: 2}}, {"cls": {"cat": "0.5", "dog": 1}}, {"cls": {0: 2, 1: 1}}, "w", "x")
    }
    same, *others = list(digests.values())[1:]
    assert same == next(iter(digests.values()))
    assert len({same, *others}) == 4
    by_label = weighed({"cls": {0: 1, 1: 1}}, shards)[0]
    assert by_label.digest != weighed({"x": {2: 1, 4: 1}}, [shard_of(x=[2, 2, 4, 4])])[0].digest


def test_shares_of_an_epoch_hold_within_a_tenth_of_a_percent():
    """Labels in every order that data come in: mixed, sorted, and in turn, which draws at one distance could follow."""
    rng = np.random.default_rng(0)
    mixed = rng.choice(4, 100_000, p=[0.61, 0.3, 0.08, 0.01]).astype(np.uint8)
    in_turn = (np.arange(100_000) % 21 % 4).astype(np.uint8)
    for labels in (mixed, np.sort(mixed), in_turn):
        for spec, shares in (({"cls": "balanced"}, [0.25] * 4), ({"cls": {0: 1, 1: 2, 2: 7, 3: 30}}, None)):
            shards = [shard_of(cls=one) for one in np.split(labels, 20)]
            weighing, view = weighed(spec, shards)
            if shares is None:
                having = np.bincount(labels, minlength=4) * [1, 2, 7, 30]
                shares = having / having.sum()
            for epoch in range(2):
                drawn = sequence(weighing, view, 100_000, seed=1, epoch=epoch, parameters=_MANY, shuffle=False)
                of_draws = np.array([labels[shard * 5000 + row] for shard, row in drawn])
                found = np.bincount(of_draws, minlength=4) / 100_000
                assert np.abs(found - shares).max() < 0.001


@pytest.mark.one_in(4)
@pytest.mark.parametrize("samples", [100, 150, 200, 1000])
def test_shares_hold_where_shards_are_equal_and_draws_few(samples):
    """Draws at one distance meet equal shards at the same place each time, where not always the same label may lie."""
    rng = np.random.default_rng(0)
    in_turn, mixed = np.arange(10_000) % 10, rng.permutation(np.repeat(np.arange(10), 1000))
    for labels, most in ((in_turn.astype(np.uint8), 5), (mixed.astype(np.uint8), 12)):
        weighing, view = weighed({"cls": "balanced"}, [shard_of(cls=one) for one in np.split(labels, 100)])
        for epoch in range(5):
            drawn = sequence(weighing, view, samples, seed=1, epoch=epoch, parameters=_MANY, shuffle=False)
            found = np.bincount([labels[shard * 100 + row] for shard, row in drawn], minlength=10)
            assert np.abs(found - samples / 10).max() <= most


@pytest.mark.full
@pytest.mark.parametrize("rows", [1_000_000, 10_000_000])
def test_no_list_of_samples_is_held(rows, tmp_path: Path):
    """The weights lie in mapped files; of 10,000,000 samples, a list of numbers would take 80 MB."""
    shards = rows // 10_000
    file = np.memmap(tmp_path / "weights", np.float32, "w+", shape=(shards, 10_000))
    file[:] = np.arange(10_000) % 251 + 1
    indexes = [shard_of(w=one, number=number) for number, one in enumerate(file)]
    tracemalloc.start()
    try:
        weighing, view = weighed("w", indexes)
        draws = WeightedDraws(weighing.begins, rows)
        order = EpochOrder(draws, seed=0, epoch=3, parameters=OrderParameters(256, 4, 128, 8, 32))
        held: dict[int, DrawnRows] = {}
        seen = 0
        for start in range(0, rows, rows // 20):
            found, places = order.locate(np.arange(start, start + 256))
            for shard in np.unique(found).tolist():
                held[shard] = held.get(shard) or drawn_of(weighing, view, shard, draws)
                seen += len(held[shard].find(places[found == shard]))
        now, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert seen == 20 * 256
    assert now < 2_500_000 + 1.2 * rows, "about a byte a row of open shards"
    assert most < 16_000_000 + 1.2 * rows, "and what a few threads need to look at a shard each"
