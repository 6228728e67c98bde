"""Samples drawn by weight, as users stream them: every draw once over ranks, workers, stops and views."""

from __future__ import annotations

import copy
import json
import pickle
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shardstream as ss
from shardstream.errors import FieldError, UsageError
from tests.grouped import grouped

from ..examples import at_most
from ..order.reference import Shape
from ..order.reference_weights import weighted_epoch
from .far import from_afar
from .making import numbered, write_dataset
from .resuming import flat, ids_of, in_turn, through_json
from .simulated import SimulatedDataLoader

SIZES = [70, 1, 0, 130, 40, 59]
N = sum(SIZES)
BALANCED = {"cls": "balanced"}
WEIGHTS: dict[str, tuple[Any, Callable[[int], Fraction]]] = {
    "field": ("weight", lambda i: Fraction(i % 5)),
    "float": ("heavy", lambda i: Fraction(1 + i % 3, 4)),
    "labels": (
        {"cls": {0: 1, 1: "1/3", 2: 0.5, 4: 0}},
        lambda i: (1, Fraction(1, 3), Fraction(1, 2), 0)[label(i) % 3 if label(i) < 4 else 3],
    ),
}


def label(i: int) -> int:
    return 4 if i % 7 == 0 else i % 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    columns = {"weight": lambda i: i % 5, "heavy": lambda i: (1 + i % 3) / 4, "cls": label, "odd": lambda i: i % 2}
    shards = numbered(SIZES, **columns, bin=lambda i: np.random.default_rng(i).bytes(100 + i * 37 % 200))
    return write_dataset(tmp_path_factory.mktemp("weights"), shards, format="record")


def drawn(dataset: Any) -> list[int]:
    return flat(map(ids_of, dataset))


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", WEIGHTS)
@pytest.mark.parametrize("epoch_size", [None, 7, 1000])
def test_every_sample_comes_as_often_as_its_weight_says(folder, name, epoch_size):
    weights, exact = WEIGHTS[name]
    total = sum(map(exact, range(N)))
    for shuffle in (True, False):
        dataset = ss.ShardDataset(
            folder, fields=["id"], batch_size=9, weights=weights, epoch_size=epoch_size, shuffle=shuffle, tail="exact"
        )
        assert dataset.samples == N
        epochs = []
        for _ in range(3):
            found = Counter(drawn(ss.Loader(dataset, num_workers=0)))
            assert sum(found.values()) == (epoch_size or N)
            for i in range(N):
                share = exact(i) * (epoch_size or N) / total
                assert abs(found[i] - share) < 1
            epochs.append(found)
        assert epochs[0] != epochs[1]
        assert len(dataset) == -(-(epoch_size or N) // 9)


@pytest.mark.parametrize("shuffle", [True, False])
def test_an_epoch_is_that_of_the_reference(folder, shuffle):
    dataset = ss.ShardDataset(
        folder, fields=["id"], batch_size=8, weights="weight", shuffle=shuffle, seed=5, tail="exact"
    )
    begins = np.cumsum([0, *SIZES])
    weights = [[i % 5 for i in range(low, high)] for low, high in pairwise(begins.tolist())]
    for epoch in range(2):
        state = dataset.state_dict(batches=0, num_workers=0)
        shape = Shape(
            **{name: state[name] for name in ("lanes", "chunk", "window", "virtual", "sublanes", "ranks", "groups")},
            version=2,
        )
        if shuffle:
            expected = weighted_epoch(weights, N, seed=5, epoch=epoch, shape=shape)
            assert drawn(dataset) == [int(begins[shard]) + row for shard, row in expected]
        else:
            found = drawn(dataset)
            assert found == sorted(found)


@pytest.mark.full
def test_labels_have_the_same_share_in_each_epoch(folder):
    dataset = ss.ShardDataset(
        folder, fields=["cls"], batch_size=100, weights=BALANCED, epoch_size=100_000, shuffle=True
    )
    for _ in range(2):
        found = np.bincount(np.concatenate([batch["cls"].numpy() for batch in dataset]), minlength=5)
        shares = found[[0, 1, 2, 4]] / 100_000
        assert np.abs(shares - 0.25).max() < 0.001


def test_views_are_weighted_by_themselves(folder):
    train = ss.ShardDataset(folder, fields=["id", "odd"], split=("a", {"a": 0.6, "b": 0.4}), where={"odd": [1]})
    inside = set(drawn(train.replace(batch_size=10)))
    dataset = ss.ShardDataset(
        folder, fields=["id"], batch_size=10, split=("a", {"a": 0.6, "b": 0.4}), where={"odd": [1]}, weights=BALANCED,
        shuffle=True, tail="exact",
    )  # fmt: skip
    assert dataset.samples == len(inside)
    found = drawn(dataset)
    assert len(found) == len(inside)
    assert set(found) <= inside
    shares = Counter(map(label, found))
    assert max(shares.values()) - min(shares.values()) <= 2 * len(SIZES)
    few = dataset.take(40)
    assert len(drawn(few)) == 40
    assert set(drawn(few)) <= set(sorted(inside)[:40])
    with pytest.raises(FieldError, match="no sample has the label 4"):
        ss.ShardDataset(folder, where={"cls": [0, 1]}, weights={"cls": {0: 1, 1: 1, 4: 1}})
    twice = ss.ShardDataset([folder, folder], fields=["id"], batch_size=10, weights="weight", tail="exact")
    assert len(drawn(twice)) == 2 * N


def test_epochs_of_other_sizes_are_draws(folder):
    dataset = ss.ShardDataset(folder, fields=["id"], batch_size=10, weights="weight", shuffle=True, tail="exact")
    asked = ss.ShardDataset(
        folder, fields=["id"], batch_size=10, weights="weight", shuffle=True, tail="exact", epoch_size=2 * N
    )
    again = dataset.repeat(2)
    assert (len(again), again.fingerprint) == (len(asked), asked.fingerprint)
    assert drawn(again) == drawn(asked)
    assert again.replace(epoch_size=None).fingerprint == dataset.fingerprint
    assert len(drawn(dataset.choose(5))) == 5


@pytest.mark.one_in(5)
@pytest.mark.parametrize("tail", ["exact", "pad", "drop"])
@pytest.mark.parametrize("size", [None, 11])
def test_each_draw_is_read_once_over_all_ranks_and_workers(folder, tail, size):
    shape = {"fields": ["id"], "weights": "weight", "shuffle": True, "tail": tail, "lanes": 6, "chunk": 2, "window": 20}
    whole = drawn(ss.ShardDataset(folder, **grouped(shape), batch_size=1))
    for ranks, workers in ((3, 2), (2, 0)):
        found, steps = [], []
        for rank in range(ranks):
            dataset = ss.ShardDataset(folder, **grouped(shape), batch_size=size, ranks=(rank, ranks))
            loader = ss.Loader(dataset, num_workers=workers, multiprocessing_context="fork" if workers else None)
            items = list(loader)
            assert len(items) == len(loader) == len(dataset)
            steps.append(len(items))
            for item in items:
                valid = np.atleast_1d(item.get("__valid__", True)).tolist() * (
                    1 if tail == "pad" else len(ids_of(item))
                )
                found += [one for one, counts in zip(ids_of(item), valid, strict=True) if counts]
        if tail == "drop":
            assert len(found) > N - ranks * (size or 1)
            assert not Counter(found) - Counter(whole)
        else:
            assert Counter(found) == Counter(whole)
        assert tail == "exact" or len(set(steps)) == 1


stages = st.lists(
    st.tuples(st.sampled_from(["loader", "plain"]), st.integers(1, 3), st.integers(1, 20), st.integers(0, 12)),
    min_size=1,
    max_size=3,
)


@at_most(20)
@given(
    st.sampled_from(["weight", BALANCED]), st.none() | st.integers(60, 500), st.booleans(), st.integers(0, 3), stages
)
def test_a_run_that_stops_anywhere_goes_on_in_any_shape(folder, weights, epoch_size, shuffle, epoch, stages):
    run = {"fields": ["id"], "weights": weights, "epoch_size": epoch_size, "shuffle": shuffle, "seed": 2}
    fixed = {"lanes": 5, "chunk": 2, "window": 20} if shuffle else {}
    plain = ss.ShardDataset(folder, **grouped(run), **grouped(fixed), batch_size=1, tail="exact")
    plain.set_epoch(epoch)
    line, following = drawn(plain), drawn(plain)
    seen, state = [], None
    for kind, ranks, size, steps in stages:
        steps = min(steps, (len(line) - len(seen)) // (ranks * size))
        by_rank = []
        for rank in range(ranks):
            dataset = ss.ShardDataset(
                folder, **grouped(run), **grouped(fixed), batch_size=size, tail="pad", ranks=(rank, ranks)
            )
            dataset.set_epoch(epoch)
            if kind == "loader":
                loader: Any = ss.Loader(dataset, num_workers=0)
                if state is not None:
                    loader.load_state_dict(state)
                items = iter(loader)
                by_rank.append([ids_of(next(items)) for _ in range(steps)])
                saved = loader.state_dict()
            else:
                if state is not None:
                    dataset.load_state_dict(state)
                loader = SimulatedDataLoader(dataset, num_workers=2, batch_size=None, ahead=1)
                loader.begin()
                by_rank.append([flat(map(ids_of, loader.step())) for _ in range(steps)])
                saved = dataset.state_dict(batches=steps, num_workers=2)
        seen += flat(in_turn(by_rank))
        state = through_json(saved)
        assert seen == line[: len(seen)]
    rest = ss.Loader(ss.ShardDataset(folder, **grouped(run), batch_size=7, tail="exact"), num_workers=0)
    rest.load_state_dict(state)
    if state["epoch"] == epoch:
        assert seen + drawn(rest) == line
    assert drawn(rest) == following


def test_a_state_of_other_weights_is_refused(folder):
    def dataset(**options: Any) -> ss.ShardDataset:
        return ss.ShardDataset(folder, batch_size=16, shuffle=True, **grouped(options))

    first = dataset(weights={"cls": {0: 1, 1: 2, 2: 2, 4: 3}})
    state = first.state_dict()
    assert set(state) == set(dataset().state_dict())
    assert len(json.dumps(state)) < 1024
    dataset(weights={"cls": {0: "1/2", 1: 1, 2: 1, 4: 1.5}}).load_state_dict(state)  # in the same ratio
    others = [{}, {"weights": BALANCED}, {"weights": {"cls": {0: 2, 1: 1, 2: 2, 4: 3}}}, {"weights": "weight"}]
    others.append({"weights": {"cls": {0: 1, 1: 2, 2: 2, 4: 3}}, "epoch_size": N - 1})
    for options in others:
        with pytest.raises(UsageError, match=r"another view of this data \(split, where, take, weights"):
            dataset(**options).load_state_dict(state)
    with pytest.raises(UsageError, match="another view of this data"):
        first.load_state_dict(dataset().state_dict())


@pytest.mark.full
@at_most(20)
@given(
    weights=st.sampled_from(["weight", BALANCED, {"cls": {0: 1, 1: 0, 2: 40, 4: 0}}]),
    batch_size=st.sampled_from([5, 32]),
    lanes=st.sampled_from([None, 1, 5]),
    window=st.sampled_from([None, 1, 50]),
    shuffle=st.booleans(),
    prefetch=st.sampled_from([1, 3000, 60_000, None]),
    epoch_size=st.sampled_from([None, 700]),
)
def test_batches_from_afar_are_those_from_a_disk(
    folder, weights, batch_size, lanes, window, shuffle, prefetch, epoch_size
):
    shape = {"batch_size": batch_size, "shuffle": shuffle, "tail": "exact", "lanes": lanes, "window": window}
    shape |= {"weights": weights, "epoch_size": epoch_size, "fields": ["id", "bin"]}
    near = ss.ShardDataset(folder, **grouped(shape))
    far, _ = from_afar(folder, **shape, prefetch=prefetch)
    for _ in range(2):
        for one, other in zip(near, far, strict=True):
            assert one["__key__"] == other["__key__"]
            assert [bytes(a.numpy()) for a in one["bin"]] == [bytes(a.numpy()) for a in other["bin"]]


def test_a_sample_that_comes_often_is_fetched_once_a_window(folder):
    options = {"batch_size": 8, "shuffle": True, "fields": ["bin"], "tail": "exact", "lanes": 2, "window": 64}
    dataset, store = from_afar(folder, **options, prefetch="10MB", weights=BALANCED, epoch_size=10 * N)
    assert sum(len(batch["bin"]) for batch in dataset) == 10 * N
    # One epoch, and what was read ahead of the next one; neighbouring windows share a sample.
    assert store.bytes < 4 * dataset.manifest.bytes


@pytest.mark.full
def test_a_mixture_draws_from_a_weighted_source(folder):
    weighted = ss.ShardDataset(folder, fields=["id", "cls"], weights={"cls": {0: 1, 1: 0, 2: 3, 4: 0}})
    plain = ss.ShardDataset(folder, fields=["id", "cls"])
    for by in ("samples", "batches"):
        mixture = ss.Mixture(
            {"weighted": (weighted, 0.5), "plain": (plain, 0.5)}, by=by, batch_size=10, seed=1, epoch=6000
        )
        found, both = Counter(), Counter()
        for batch in ss.Loader(mixture, num_workers=0):
            mine = batch["__source__"] == 0
            found.update(batch["cls"][mine].tolist())
            both.update(batch["__source__"].tolist())
        assert both[0] + both[1] == 6000
        assert abs(both[0] - 3000) < 30  # quotas hold along each lane, whose last blocks are cut
        having = Counter(map(label, range(N)))
        share = 3 * having[2] / (having[0] + 3 * having[2])
        assert set(found) == {0, 2}
        assert abs(found[2] / both[0] - share) < 0.01
    state = mixture.state_dict()
    other = ss.Mixture(
        {"weighted": (plain, 0.5), "plain": (plain, 0.5)}, by="batches", batch_size=10, seed=1, epoch=6000
    )
    with pytest.raises(UsageError, match="another view"):
        other.load_state_dict(state)
    assert ss.Mixture({"a": weighted.repeat(2), "b": plain}, batch_size=10).samples == 3 * N


@cache
def parts_of(folder: Path, kind: str, size: int | None) -> dict[str, tuple[ss.ShardDataset, float]]:
    """Sources of a mixture, a weighted one among them: a view of it, or longer or shorter than its data."""
    options: dict[str, Any] = {"fields": ["id"], "weights": BALANCED, "epoch_size": size}
    weighted = {
        "plain": lambda: ss.ShardDataset(folder, **grouped(options)),
        "take": lambda: ss.ShardDataset(folder, **grouped(options)).take(90),
        "split": lambda: ss.ShardDataset(folder, **grouped(options), split=("a", {"a": 0.5, "b": 0.5})),
        "where": lambda: ss.ShardDataset(folder, **grouped(options), where={"odd": lambda odd: odd == 1}),
        "repeat": lambda: ss.ShardDataset(folder, **grouped(options)).repeat(1.5),
        "choose": lambda: ss.ShardDataset(folder, **grouped(options)).choose(13),
    }[kind]()
    other = ss.ShardDataset(folder, fields=["id"], weights="weight")
    return {"weighted": (weighted, 0.6), "all": (ss.ShardDataset(folder, fields=["id"]), 0.25), "other": (other, 0.15)}


@pytest.mark.full
@at_most(20)
@given(
    st.sampled_from(["plain", "take", "split", "where", "repeat", "choose"]),
    st.sampled_from([None, 40, 500]),
    st.sampled_from(["samples", "batches"]),
    st.integers(0, 3),
    stages,
)
def test_a_mixture_of_weighted_sources_that_stops_anywhere_goes_on(folder, kind, size, by, epoch, stages):
    parts = parts_of(folder, kind, size)
    run = {"by": by, "epoch": 300, "seed": 4, "lanes": 6, "chunk": 2, "window": 20}

    def mixture(batch_size: int, **options: Any) -> ss.Mixture:
        made = ss.Mixture(parts, **grouped(run), batch_size=batch_size, **grouped(options))
        made.set_epoch(epoch)
        return made

    unit = 12  # batches of one source are of the size that the order was made for
    plain = mixture(unit, tail="exact")
    line, following = drawn(plain), drawn(plain)
    seen, state = [], None
    for _, ranks, batch, steps in stages:
        batch = batch if by == "samples" else unit
        steps = min(steps, (len(line) - len(seen)) // (ranks * batch))
        by_rank = []
        for rank in range(ranks):
            loader = ss.Loader(mixture(batch, tail="pad", rank=rank, world_size=ranks), num_workers=0)
            if state is not None:
                loader.load_state_dict(state)
            items = iter(loader)
            by_rank.append([ids_of(next(items)) for _ in range(steps)])
            saved = loader.state_dict()
        seen += flat(in_turn(by_rank))
        state = through_json(saved)
        assert seen == line[: len(seen)]
    rest = ss.Loader(mixture(unit, tail="exact"), num_workers=0)
    rest.load_state_dict(state)
    if state["epoch"] == epoch:
        assert seen + drawn(rest) == line
    assert drawn(rest) == following


@pytest.mark.one_in(3)
@pytest.mark.parametrize("how", [pickle.dumps, copy.copy, copy.deepcopy])
def test_copies_draw_the_same(folder, how):
    options = {"fields": ["id"], "batch_size": 10, "shuffle": True, "tail": "exact", "epoch_size": 500}
    for weights in ("heavy", BALANCED):
        dataset = ss.ShardDataset(folder, weights=weights, where={"odd": [0]}, **grouped(options))
        made = how(dataset)
        other = pickle.loads(made) if isinstance(made, bytes) else made
        assert other.fingerprint == dataset.fingerprint
        expected = drawn(ss.ShardDataset(folder, weights=weights, where={"odd": [0]}, **grouped(options)))
        assert drawn(other.replace(batch_size=10)) == expected
        assert repr(other) == repr(dataset)


@pytest.mark.full
def test_workers_that_are_spawned_draw_the_same(folder):
    options = {"fields": ["id"], "batch_size": 10, "shuffle": True, "tail": "exact"}
    dataset = ss.ShardDataset(folder, weights=BALANCED, **grouped(options))
    expected = drawn(ss.ShardDataset(folder, weights=BALANCED, **grouped(options)))
    assert drawn(ss.Loader(dataset, num_workers=1, multiprocessing_context="spawn")) == expected


def test_a_data_set_that_grew_goes_on_with_its_draws(tmp_path):
    def grow(*numbers: int) -> None:
        with ss.ShardWriter(tmp_path / "ds", append=True, shard_size="2kB", format="record") as writer:
            for i in numbers:
                writer.write({"__key__": f"{i}", "id": i, "weight": 1 + i % 4})

    def dataset() -> ss.ShardDataset:
        return ss.ShardDataset(
            tmp_path / "ds", fields=["id"], batch_size=16, shuffle=True, weights="weight", tail="exact"
        )

    grow(*range(200))
    old = dataset()
    items = iter(old)
    seen = [one for _ in range(4) for one in ids_of(next(items))]
    state = old.state_dict()
    rest = drawn(items)
    grow(*range(200, 350))
    new = dataset()
    assert len(drawn(new)) == 350
    new.load_state_dict(state)
    assert drawn(new) == rest
    assert len(seen + rest) == 200


def test_a_class_that_came_later_has_a_weight_and_earlier_runs_go_on(tmp_path):
    def grow(label: int, numbers: range) -> None:
        with ss.ShardWriter(tmp_path / "ds", append=True, shard_size="2kB", format="record") as writer:
            for i in numbers:
                writer.write({"__key__": f"{i}", "id": i, "cls": label if label else i % 2})

    def dataset(*weights: int) -> ss.ShardDataset:
        of_labels = {"cls": dict(enumerate(weights))}
        return ss.ShardDataset(
            tmp_path / "ds", fields=["id"], batch_size=16, shuffle=True, weights=of_labels, tail="exact"
        )

    grow(0, range(100))
    old = dataset(1, 3)
    items = iter(old)
    next(items)
    state, rest = old.state_dict(), drawn(items)
    grow(2, range(100, 150))
    new = dataset(1, 3, 9)
    new.load_state_dict(state)
    assert drawn(ss.Loader(new, num_workers=2)) == rest
    with pytest.raises(UsageError, match="the state is of other data"):
        dataset(1, 2, 9).load_state_dict(state)


def test_what_it_is_called(folder):
    for weights, words in (
        ("weight", "weighted by 'weight'"),
        (BALANCED, "'cls' balanced"),
        (WEIGHTS["labels"][0], "weighted by the label 'cls'"),
    ):
        assert words in repr(ss.ShardDataset(folder, weights=weights))


def test_weights_are_those_of_the_samples_that_conditions_left(folder):
    options = {"fields": ["id"], "batch_size": 8, "weights": "weight", "shuffle": True, "seed": 3, "tail": "exact"}
    expected = drawn(ss.ShardDataset(folder, where={"odd": 1}, **grouped(options)))
    for asked in (
        ss.ShardDataset(folder, where={"odd": lambda odd: odd == 1}, **grouped(options)),
        ss.ShardDataset(folder, **grouped(options)).filter({"odd": (">", 0)}),
    ):
        assert asked.samples == N // 2
        assert drawn(pickle.loads(pickle.dumps(asked))) == expected
        assert drawn(asked) == expected
        with pytest.raises(UsageError):
            ss.ShardDataset(folder, **grouped(options)).load_state_dict(asked.state_dict(batches=1, num_workers=0))


def test_excluded_samples_are_drawn_and_left_out(folder):
    options = {"fields": ["id"], "batch_size": 8, "weights": "weight", "shuffle": True, "tail": "exact"}
    keys = [sample["__key__"] for sample in ss.Reader(folder)[2:5]]
    bad = [int(sample["id"]) for sample in ss.Reader(folder)[2:5]]
    left = ss.ShardDataset(folder, exclude_keys=keys, **grouped(options))
    good = [int(one) for batch in left for one in batch["id"]]
    assert good == [one for one in drawn(ss.ShardDataset(folder, **grouped(options))) if one not in bad]
