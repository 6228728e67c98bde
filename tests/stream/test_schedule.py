"""Mixtures by schedule as they are used: shares on the way, states, what may change and what is refused."""

from __future__ import annotations

import json
import pickle
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch.utils.data import DataLoader

import shardstream as ss
from shardstream.errors import UsageError
from tests.grouped import grouped

from .making import numbered, write_dataset
from .resuming import ORDER, ResumingContract, Run, sources_and_ids, through_json
from .simulated import SimulatedStatefulDataLoader

NAMES = ("web", "code", "math", "wiki")
SIZES = ([700, 300], [300], [50], [400, 100])


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("schedule")
    return {name: write_dataset(root / name, numbered(sizes)) for name, sizes in zip(NAMES, SIZES, strict=True)}


def weights(*given: float) -> dict[str, float]:
    return dict(zip(NAMES, given, strict=True))


KNOTS = [
    (0, weights(7, 1, 1, 1)),
    (4000, weights(4, 4, 1, 1)),
    (4000, weights(0, 2, 1, 1)),
    (8000, weights(1, 1, 1, 1)),
]


def mixture(folders: dict[str, Path], schedule: Any = KNOTS, **options: Any) -> ss.Mixture:
    sources = {name: ss.ShardDataset(folder) for name, folder in folders.items()}
    return ss.Mixture(sources, schedule=schedule, **grouped({"batch_size": 20, "seed": 5} | options))


def test_shares_change_on_the_way(folders: dict[str, Path]) -> None:
    made = mixture(folders, lanes=20)
    assert made.shares == weights(0.7, 0.1, 0.1, 0.1)
    assert made.schedule is not None
    assert made.schedule[2] == (4000, weights(0, 0.5, 0.25, 0.25))
    assert "4 knots: without end" in repr(made)
    sources = np.array([source for source, _ in sources_and_ids(islice(made, 600))])
    for begin, shares in ((0, (0.67, 0.13, 0.1, 0.1)), (3000, (0.45, 0.35, 0.1, 0.1)), (9000, (0.25,) * 4)):
        got = np.bincount(sources[begin : begin + 800], minlength=4) / 800
        assert np.abs(got - shares).max() < 0.03
    assert sources[4100:4300].tolist().count(0) < 20


ONLY = [weights(*(int(name == source) for name in NAMES)) for source in NAMES]
JUMP = [(0, ONLY[0]), (1001, ONLY[0]), (1001, ONLY[1])]


@pytest.mark.parametrize("by", ["samples", "batches"])
def test_knots_are_where_they_take_effect(by: Any, folders: dict[str, Path]) -> None:
    made = mixture(folders, JUMP, by=by, lanes=12, chunk=20)
    assert made.schedule is not None
    (first, last) = (knot for knot, _ in made.schedule if knot)
    assert first == last == (1001 if by == "samples" else 1200)
    pairs = sources_and_ids(islice(made, 100))
    assert [source for source, _ in pairs[:first]] == [0] * first
    assert {source for source, _ in pairs[first:]} == {1}
    state = through_json(made.state_dict())
    assert state["order_version"] == (3 if by == "samples" else 2)
    other = mixture(folders, JUMP, by=by, rank=0, world_size=2)
    assert (other.schedule == made.schedule) == (by == "samples")
    other.load_state_dict(state)
    assert other.schedule == made.schedule
    loader = DataLoader(made, batch_size=None, num_workers=1)
    next(iter(loader))
    assert made.schedule == other.schedule, "workers are at it, and it is known all the same"


@pytest.mark.parametrize("batch_size", [20, None])
def test_what_was_handed_out_is_past_and_no_more(batch_size: int | None, folders: dict[str, Path]) -> None:
    """To the position, and also if the order was made for another number of ranks."""

    def jump(at: int) -> ss.Mixture:
        knots = [(0, ONLY[0]), (at, ONLY[0]), (at, ONLY[1])]
        return mixture(folders, knots, batch_size=batch_size, rank=0, world_size=1, epoch=700)

    made = mixture(folders, [(0, ONLY[0])], batch_size=20, rank=0, world_size=2, epoch=700)
    made.set_epoch(1)
    steps = iter(made)
    for _ in range(9):
        next(steps)
    state = through_json(made.state_dict())
    assert (state["position"], state["ranks"]) == (360, 2)
    with pytest.raises(UsageError, match="1:0:0:0 at 1,059 here, and 1,060 positions have passed"):
        jump(1059).load_state_dict(state)
    for at in (1060, 1075):
        other = jump(at)
        other.load_state_dict(state)
        found = np.concatenate([np.atleast_1d(item["__source__"]) for item in islice(other, 40 if batch_size else 340)])
        assert np.flatnonzero(found)[0] == at - 1060
        assert found[at - 1060 :].all()


def test_states_of_earlier_orders_go_on_with_knots_at_rows(folders: dict[str, Path]) -> None:
    made = mixture(folders, JUMP, lanes=12, chunk=5)
    made.load_state_dict(made.state_dict() | {"order_version": 2})
    assert made.schedule is not None
    assert [knot for knot, _ in made.schedule] == [0, 1008, 1008]
    steps = iter(made)
    sources = [source for source, _ in sources_and_ids(islice(steps, 60))]
    assert sources.index(1) < 1001 < len(sources) - sources[::-1].index(0)
    state = made.state_dict()
    assert state["order_version"] == 2
    other = mixture(folders, JUMP)
    other.load_state_dict(state)
    assert sources_and_ids(islice(other, 20)) == sources_and_ids(islice(steps, 20))
    by_batches = mixture(folders, JUMP, by="batches")
    unknown = by_batches.state_dict() | {"order_version": 3}
    with pytest.raises(UsageError, match="order version 3, known here are versions 1 and 2"):
        by_batches.load_state_dict(unknown)


@pytest.mark.parametrize("by", ["samples", "batches"])
def test_states_of_a_stateful_data_loader_have_the_schedule(by: Any, folders: dict[str, Path]) -> None:
    later = [*JUMP, (9000, ONLY[1]), (9000, ONLY[2])]
    made = mixture(folders, JUMP, by=by)
    loader = SimulatedStatefulDataLoader(made, every=3, num_workers=2, batch_size=None, ahead=2)
    loader.begin()
    had = [item for _ in range(131) for item in loader.step()]
    state = through_json(loader.state_dict())
    plain = ss.convert_state(state)
    straight = sources_and_ids(islice(mixture(folders, later, by=by), 400))
    assert sources_and_ids(had) == straight[: 131 * 20]
    for schedule in (JUMP, later):
        other = mixture(folders, schedule, by=by)
        other.load_state_dict(plain)
        assert sources_and_ids(islice(other, 50)) == straight[131 * 20 : 181 * 20]
    moved = [(0, ONLY[0]), (1002, ONLY[0]), (1002, ONLY[1])]
    with pytest.raises(UsageError, match="another schedule: 1:0:0:0 at 1,001 there, 1:0:0:0 at 1,002 here"):
        mixture(folders, moved, by=by).load_state_dict(plain)
    worker = state["_snapshot"]["_worker_snapshots"]["worker_1"]["dataset_state"]
    if by == "samples":
        with pytest.raises(UsageError, match="at 1,002 here, and 2,560 positions have passed"):
            mixture(folders, moved, by=by).load_state_dict(worker)


def test_sources_are_used_evenly(folders: dict[str, Path]) -> None:
    pairs = sources_and_ids(islice(mixture(folders), 600))
    for number, sizes in enumerate(SIZES):
        uses = np.bincount([one for source, one in pairs if source == number], minlength=sum(sizes))
        assert uses.max() - uses.min() <= 2 + 0.1 * uses.max()


@pytest.mark.one_in(3)
@pytest.mark.parametrize("by", ["samples", "batches"])
@pytest.mark.parametrize("workers", [0, 2])
def test_other_ranks_go_on_in_mid_ramp(by: Any, workers: int, folders: dict[str, Path]) -> None:
    order = {"by": by, "lanes": 24, "chunk": 20 if by == "batches" else 2, "window": 16}

    def run(world: int, batches: int, state: Any = None) -> tuple[list[tuple[int, int]], Any]:
        """What all ranks have by so many steps each, in order, and the state of the first."""
        found, states = [], []
        for rank in range(world):
            made = mixture(folders, rank=rank, world_size=world, batch_size=20, **order)
            loader = ss.Loader(made, num_workers=workers)
            if state is not None:
                loader.load_state_dict(state)
            found.append([sources_and_ids([batch]) for batch in islice(loader, batches)])
            states.append(through_json(loader.state_dict()))
        return [pair for step in zip(*found, strict=True) for batch in step for pair in batch], states[0]

    straight, _ = run(1, 360)
    before, state = run(4, 30)
    after, _ = run(3, 80, state)
    assert before + after == straight


def test_a_state_is_small_and_goes_through_json(folders: dict[str, Path]) -> None:
    made = mixture(folders)
    for _ in islice(made, 450):
        pass
    state = made.state_dict()
    assert through_json(state) == state
    assert state["schedule"] == [[0, [7, 1, 1, 1]], [4000, [4, 4, 1, 1]], [4000, [0, 2, 1, 1]], [8000, [1, 1, 1, 1]]]
    assert len(json.dumps(state)) <= 500


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("schedule", "refused"),
    [
        (KNOTS, None),
        ([(at, {name: 3 * one for name, one in given.items()}) for at, given in KNOTS], None),
        ([*KNOTS, (9900, weights(1, 1, 1, 1)), (12000, weights(1, 0, 0, 0))], None),
        ([*KNOTS[:2], (4000, weights(0, 3, 1, 1)), KNOTS[3]], "0:2:1:1 at 4,000 there, 0:3:1:1 at 4,000 here"),
        (KNOTS[:3], "1:1:1:1 at 8,000 there, no knot here"),
        ([*KNOTS, (12000, weights(1, 0, 0, 0))], "no knot there, 1:0:0:0 at 12,000 here"),
    ],
)
def test_what_is_to_come_may_change_and_what_has_passed_may_not(
    schedule: Any, refused: str | None, folders: dict[str, Path]
) -> None:
    made = mixture(folders)
    steps = iter(made)
    for _ in islice(steps, 450):
        pass
    state = made.state_dict()
    other = mixture(folders, schedule)
    if refused is not None:
        with pytest.raises(UsageError, match=f"another schedule: {refused}"):
            other.load_state_dict(state)
        return
    other.load_state_dict(state)
    assert sources_and_ids(islice(other, 40)) == sources_and_ids(islice(steps, 40))


def test_sources_may_join_a_run_that_goes_on(folders: dict[str, Path]) -> None:
    def without(schedule: Any, *names: str) -> Any:
        return [(at, {name: one for name, one in shares.items() if name not in names}) for at, shares in schedule]

    few = [(0, weights(1, 1, 0, 0)), (3000, weights(1, 3, 0, 0))]
    later = [*few, (6000, weights(1, 3, 0, 0)), (6000, weights(1, 1, 1, 1))]
    straight = iter(mixture(folders, later))
    for _ in islice(straight, 200):
        pass
    begun = mixture({name: folders[name] for name in NAMES[:2]}, without(few, *NAMES[2:]))
    for _ in islice(begun, 200):
        pass
    state = begun.state_dict()
    for count in (2, 3, 4):
        names = NAMES[:count]
        joined = mixture({name: folders[name] for name in names}, without(later, *NAMES[count:]))
        joined.load_state_dict(state)
        found = sources_and_ids(islice(joined, 250))
        assert {source for source, _ in found[-400:]} == set(range(count))
    assert found == sources_and_ids(islice(straight, 250))
    with pytest.raises(UsageError, match=r"1:1:0:0 at 0 there, 1:1:0:1 at 0 here"):
        mixture(folders, [(0, weights(1, 1, 0, 1)), *later[1:]]).load_state_dict(state)
    moved = {name: folders[name] for name in ("web", "math", "code")}
    with pytest.raises(UsageError, match="the state is of other data"):
        mixture(moved, without(later, "wiki")).load_state_dict(state)


def test_a_ramp_that_is_under_way_stays(folders: dict[str, Path]) -> None:
    made = mixture(folders)
    for _ in islice(made, 250):
        pass
    state = made.state_dict()
    assert len(state["schedule"]) == 4
    with pytest.raises(UsageError, match=r"1:1:1:1 at 8,000 there, 1:1:1:1 at 7,000 here, and 5,000 positions"):
        mixture(folders, [*KNOTS[:3], (7000, weights(1, 1, 1, 1))]).load_state_dict(state)
    mixture(folders, [*KNOTS, (8000, weights(1, 0, 0, 0))]).load_state_dict(state)


def test_states_with_and_without_a_schedule_do_not_mix(folders: dict[str, Path]) -> None:
    sources = {name: (ss.ShardDataset(folder), 1) for name, folder in folders.items()}
    plain = ss.Mixture(sources, batch_size=20, seed=5, epoch="endless")
    made = mixture(folders)
    with pytest.raises(UsageError, match="another view of this data"):
        made.load_state_dict(plain.state_dict())
    with pytest.raises(UsageError, match="another view of this data"):
        plain.load_state_dict(made.state_dict())
    state = made.state_dict()
    for wrong in (None, 3, [[0]], [["0", [1, 1, 1, 1]]], [[0, [1.0, 1, 1, 1]]], [[0, 1]]):
        with pytest.raises(UsageError, match="malformed"):
            made.load_state_dict(state | {"schedule": wrong})
    del state["schedule"]
    with pytest.raises(UsageError, match="malformed: it has no 'schedule'"):
        made.load_state_dict(state)


def test_a_pickle_has_the_schedule(folders: dict[str, Path]) -> None:
    made = mixture(folders, epoch=400)
    other = pickle.loads(pickle.dumps(made))
    assert other.schedule == made.schedule
    assert len(other) == len(made) == 20
    epochs = [sources_and_ids(other), sources_and_ids(other)]
    assert epochs == [sources_and_ids(made), sources_and_ids(made)]
    assert epochs[0] != epochs[1]


def test_positions_may_count_tokens(tmp_path: Path) -> None:
    sources = {}
    for name in "ab":
        documents = [{"__key__": f"{name}{i}", "ids": [1] * 8} for i in range(40)]
        ss.pack(documents, tmp_path / name, bins=8, workers=0)
        sources[name] = ss.ShardDataset(tmp_path / name, fields=["ids.documents"])
    ss.pack(documents, tmp_path / "longer", bins=16, workers=0)
    schedule = [(0, {"a": 1, "b": 0}), (1e3, {"a": 0, "b": 1}), (1001, {"a": 1, "b": 1})]
    made = ss.Mixture(sources, schedule=schedule, unit="tokens", batch_size=5, order=ss.OrderOptions(lanes=1))
    assert made.schedule is not None
    assert [position for position, _ in made.schedule] == [0, 125, 126]
    for _ in islice(made, 10):
        pass
    seen = made.seen()["a"]
    assert 38 <= seen.samples <= 42  # of 50, while its share goes from 1 to 0 in 125
    assert (seen.epochs, seen.tokens, seen.of_documents) == (seen.samples / 40, seen.samples * 8, seen.samples * 8)
    sources["b"] = ss.ShardDataset(tmp_path / "longer", fields=["ids.documents"])
    with pytest.raises(UsageError, match="bins of one size, and they are of 8 in 'a', 16 in 'b'"):
        ss.Mixture(sources, schedule=schedule, unit="tokens", batch_size=5)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("by", ["samples", "batches"])
@pytest.mark.parametrize("scheduled", [True, False])
@pytest.mark.parametrize("batch_size", [20, None])
def test_what_was_seen_is_counted(scheduled: bool, by: Any, batch_size: int | None, folders: dict[str, Path]) -> None:
    given: dict[str, Any] = {"by": by, "batch_size": batch_size, "epoch": 2000, "tail": "exact"}
    if scheduled:
        made = mixture(folders, [(at // 4, shares) for at, shares in KNOTS], **given)
    else:
        sources = {name: ss.ShardDataset(folder) for name, folder in folders.items()}
        made = ss.Mixture(
            {name: (one, i + 0.5) for i, (name, one) in enumerate(sources.items())}, seed=5, **grouped(given)
        )
    counts = np.zeros(4, int)
    for stop in (None, None, 37 if batch_size else 703):
        for item in islice(made, stop):
            counts += np.bincount(np.atleast_1d(item["__source__"]), minlength=4)
        seen = made.seen()
        assert [one.samples for one in seen.values()] == counts.tolist()
        assert seen == made.seen(through_json(made.state_dict()))
    assert seen["code"].epochs == counts[1] / 300
    assert (seen["code"].tokens, seen["code"].of_documents) == (None, None)
    assert seen == made.seen(exact=True)


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents of up to eight tokens in bins of eight, in four data sets."""
    place = tmp_path_factory.mktemp("documents")
    for number, name in enumerate("abcd"):
        draws = np.random.default_rng(number)
        rows = [{"__key__": f"{name}{i}", "ids": [1] * size} for i, size in enumerate(draws.integers(1, 9, 150))]
        ss.pack(rows, place / name, bins=8, workers=0, shard_size="400B")
    return place


@pytest.mark.one_in(2)
@pytest.mark.parametrize("scheduled", [True, False])
def test_tokens_of_documents_are_counted_one_by_one_on_request(scheduled: bool, documents: Path) -> None:
    sources = {}
    for name in "abcd":
        kept = {"weights": "ids.documents"} if name == "c" else {}
        sources[name] = ss.ShardDataset(documents / name, fields={"x": ss.decode.Packed()}, **grouped(kept))
    sources["b"] = sources["b"].take(30)
    shares = {"a": 4, "b": 3, "c": 2, "d": 1}
    knots = [(0, shares), (300, shares), (500, {"a": 1, "b": 1, "c": 1, "d": 0})]
    how: Any = {"schedule": knots} if scheduled else {}
    mixed: Any = sources if scheduled else {name: (one, shares[name]) for name, one in sources.items()}
    made = ss.Mixture(mixed, batch_size=7, epoch=448, skip=[((0, 40), (0, 61)), ((1, 3), (1, 10))], **grouped(how))
    counts = np.zeros(4, np.int64)
    for _ in range(3):
        for batch in made:
            np.add.at(counts, batch["__source__"].numpy(), (batch["segment_ids"].numpy() > 0).sum(axis=1))
            if counts.sum() % 17 == 0:
                seen = made.seen(exact=True)
                assert [one.of_documents for one in seen.values()] == counts.tolist()
    near = made.seen()
    assert all(abs(one.of_documents / count - 1) < 0.1 for one, count in zip(near.values(), counts, strict=True))
    tokens = {name: (one.samples, one.tokens) for name, one in near.items()}
    assert tokens == {name: (one.samples, one.tokens) for name, one in made.seen(exact=True).items()}


@pytest.mark.full
def test_what_ranks_have_seen_counts_for_all(folders: dict[str, Path]) -> None:
    counts = np.zeros(4, int)
    state = None
    for world in (3, 2):
        states = []
        for rank in range(world):
            made = mixture(folders, rank=rank, world_size=world, batch_size=None, lanes=24, chunk=2)
            loader = ss.Loader(made, num_workers=2)
            if state is not None:
                loader.load_state_dict(state)
            for item in islice(loader, 333):
                counts += np.bincount(np.atleast_1d(item["__source__"]), minlength=4)
            states.append(loader.state_dict())
        state = states[0]
        assert [one.samples for one in made.seen(state).values()] == counts.tolist()


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"schedule": [(0, {"web": 1})]}, "no weight of 'code' at 0"),
        ({"schedule": [(0, weights(1, 1, 1, 1) | {"wab": 1})]}, "names 'wab' at 0, which is no source"),
        ({"schedule": weights(1, 1, 1, 1)}, "must be pairs of a position and weights"),
        ({"schedule": [5]}, "a knot of a schedule must be a position and weights by name, got 5"),
        ({"schedule": [("soon", weights(1, 1, 1, 1))]}, "the position of a knot must be a finite number, got 'soon'"),
        ({"schedule": [(7, weights(1, 1, 1, 1))]}, "the first knot is at position 7, not at 0"),
        ({"epoch": "web"}, "when 'web' was seen once is not known"),
        ({"unit": "tokens"}, "'web' has none"),
        ({"unit": "bytes"}, "unit must be 'samples' or 'tokens', got 'bytes'"),
    ],
)
def test_what_is_refused(options: dict[str, Any], what: str, folders: dict[str, Path]) -> None:
    with pytest.raises(UsageError, match=what):
        mixture(folders, **{"schedule": KNOTS} | options)


def test_a_schedule_is_in_place_of_weights(folders: dict[str, Path]) -> None:
    sources = {name: (ss.ShardDataset(folder), 1) for name, folder in folders.items()}
    with pytest.raises(UsageError, match="sources have weights, and there is a schedule"):
        ss.Mixture(sources, schedule=KNOTS, batch_size=5)
    with pytest.raises(UsageError, match="unit='tokens' is an option of a schedule"):
        ss.Mixture(sources, unit="tokens", batch_size=5)


class TestScheduled(ResumingContract):
    """The whole contract of resuming, with knots all over a short epoch."""

    def source(self, folder, **shape):
        parts = {"small": "0.3", "large": "0.7"}
        halves = {name: ss.ShardDataset(folder, fields=["id"], split=(name, parts)) for name in parts}
        order = {name: value for name, value in ORDER.items() if name != "shuffle"}
        shares = ((0, 3, 1), (60, 1, 3), (60, 1, 0), (200, 1, 1))
        knots = [(at, {"small": small, "large": large}) for at, small, large in shares]
        return ss.Mixture(halves, schedule=knots, epoch=270, **grouped(order | shape))

    def run(self, source):
        return Run(ss.Loader(source, num_workers=0))


class TestScheduledByBatches(TestScheduled):
    def source(self, folder, **shape):
        parts = {"small": "0.3", "large": "0.7"}
        halves = {name: ss.ShardDataset(folder, fields=["id"], split=(name, parts)) for name in parts}
        knots = [(0, {"small": 3, "large": 1}), (100, {"small": 1, "large": 3})]
        return ss.Mixture(halves, schedule=knots, by="batches", epoch=270, seed=3, **grouped(shape))

    def run(self, source):
        return Run(source)
