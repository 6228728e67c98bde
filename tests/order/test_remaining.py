"""What is left after stops: chains of runs in any shapes against lists of what was handed out."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from shardstream.errors import UsageError
from shardstream.order import (
    BLOCK,
    Remaining,
    Stop,
    sample_count,
    step_count,
    step_positions,
    taken_by_batches,
    worker_samples,
)

from ..examples import at_most, thorough
from . import reference
from .strategies import tails

sizes = st.one_of(st.integers(0, 40), st.integers(0, 2500))
ranks = st.integers(1, 5)


def everything(rest: Remaining) -> list[int]:
    """The positions of the whole virtual line."""
    return rest.positions(np.arange(rest.samples)).tolist()


def left(rest: Remaining) -> list[int]:
    return everything(rest)[rest.start :]


@st.composite
def uneven(draw: st.DrawFn) -> list[int]:
    """What the workers of a loader have handed out: about the same each, as they take turns, or anything."""
    workers = draw(st.integers(1, 5))
    about = draw(st.integers(0, 700))
    if draw(st.booleans()):
        return [max(0, about + draw(st.integers(-70, 70))) for _ in range(workers)]
    return [draw(st.integers(0, 1000)) for _ in range(workers)]


@st.composite
def ranges_in(draw: st.DrawFn, begin: int, end: int) -> list[tuple[int, int]]:
    """Ranges of positions from ``begin`` on, half open, in order and apart; the last may end beyond ``end``."""
    cuts = sorted(draw(st.sets(st.integers(begin, end + 9), max_size=6)))
    return list(zip(cuts[::2], cuts[1::2], strict=False))


@at_most(300)
@given(sizes, st.data())
def test_chains_of_stops_leave_exactly_the_complement_in_order(samples, data):
    position = data.draw(st.one_of(st.just(0), st.integers(0, samples)), label="position")
    skips = data.draw(st.one_of(st.just([]), ranges_in(0, samples)), label="skips")
    skipped = {p for begin, end in skips for p in range(max(begin, position), min(end, samples))}
    expected, given_out = [p for p in range(position, samples) if p not in skipped], []
    rest = Remaining(samples, position=position, skips=skips)
    assert left(rest) == expected
    for _ in range(data.draw(st.integers(1, 5), label="runs")):
        line = list(range(rest.start)) + expected  # what the run sees
        world_size = data.draw(ranks, label="R")
        if data.draw(st.booleans(), label="in batches"):
            batch_size = data.draw(st.integers(1, 90), label="b")
            run = {"samples": rest.samples, "start": rest.start, "world_size": world_size, "batch_size": batch_size}
            steps = data.draw(st.integers(0, step_count(rank=0, **run, tail="drop")), label="steps")
            got = {
                p
                for rank in range(world_size)
                for step in range(steps)
                for p in rest.positions(step_positions(step, rank=rank, **run, tail="drop")[0]).tolist()
            }
            assert got == set(line[rest.start : rest.start + steps * world_size * batch_size])
            rest = rest.after_batches(steps, world_size=world_size, batch_size=batch_size)
        else:
            tail, taken = data.draw(tails, label="tail"), data.draw(uneven(), label="taken")
            shape = {"samples": len(line), "start": rest.start, "world_size": world_size, "tail": tail}
            got = {line[v] for v in reference.handed_out(**shape, taken=taken)}
            rest = rest.after(Stop(world_size, tail, tuple(taken)))
        given_out += sorted(got)
        expected = [p for p in expected if p not in got]
        assert left(rest) == expected
        assert everything(rest)[: rest.start] == list(range(rest.start))
        assert rest.samples == rest.start + len(expected)
        assert bool(expected) or (rest.start, rest.stops) == (samples, ())
    assert sorted([*range(position), *given_out, *left(rest), *skipped]) == list(range(samples))


@thorough
@given(sizes, st.lists(st.builds(Stop, ranks, tails, uneven().map(tuple)), max_size=3), st.data())
def test_what_lies_beyond_all_stops_may_be_skipped_later(samples, stops, data):
    rest = Remaining(samples, stops=stops)
    assert set(rest.handed_out().tolist()) <= set(range(rest.start, rest.reached))
    skips = data.draw(ranges_in(rest.reached, samples), label="skips")
    skipped = {p for begin, end in skips for p in range(begin, min(end, samples))}
    later = Remaining(samples, position=rest.start, stops=rest.stops, skips=skips)
    assert left(later) == [p for p in left(rest) if p not in skipped]
    assert later.handed_out().tolist() == rest.handed_out().tolist()


@thorough
@given(sizes, st.lists(st.builds(Stop, ranks, tails, uneven().map(tuple)), max_size=4))
@example(1000, [Stop(3, "drop", (10_000, 10_000))])  # all was handed out but what "drop" leaves out: it is still left
@example(1000, [Stop(1, "exact", (70, 60)), Stop(2, "pad", (3,)), Stop(4, "drop", (64, 1, 0))])
@example(897, [Stop(2, "drop", (205, 192)), Stop(5, "drop", (20,)), Stop(1, "drop", (2,))])  # one stretch, to the end
def test_the_normal_form(samples, stops):
    rest = Remaining(samples, stops=stops)
    again = Remaining(samples, position=rest.start, stops=rest.stops)
    assert (again.start, again.stops, again.samples) == (rest.start, rest.stops, rest.samples)
    assert len(rest.stops) <= len(stops)
    one_by_one = Remaining(samples)
    for stop in stops:
        one_by_one = one_by_one.after(stop)
    assert (one_by_one.start, one_by_one.stops) == (rest.start, rest.stops)
    stored = json.loads(json.dumps([asdict(stop) for stop in rest.stops]))
    loaded = tuple(Stop(entry["world_size"], entry["tail"], tuple(entry["taken"])) for entry in stored)
    assert loaded == rest.stops
    if not rest.stops:
        assert left(rest) == list(range(rest.start, samples))
    elif len(stops) == 1:  # something was handed out beyond what is left; holes of several stops may have closed
        assert left(rest)[0] < max(set(range(samples)) - set(left(rest)))


@thorough
@given(sizes, st.data())
def test_any_places_in_any_order(samples, data):
    stops = data.draw(st.lists(st.builds(Stop, ranks, tails, uneven().map(tuple)), max_size=3))
    rest = Remaining(samples, stops=stops)
    places = data.draw(st.lists(st.integers(0, rest.samples - 1), max_size=20) if rest.samples else st.just([]))
    line = everything(rest)
    assert rest.positions(np.array(places, np.int64)).tolist() == [line[place] for place in places]


def test_runs_that_stopped_between_rows_leave_no_stops():
    rows = 3 * 4 * BLOCK  # rows 0 to 3 of 3 ranks: two rows of each worker
    rest = Remaining(10_000, position=5).after(Stop(3, "drop", (2 * BLOCK, 2 * BLOCK)))
    assert (rest.start, rest.stops, rest.samples) == (5 + rows, (), 10_000)
    one_more = rest.after(Stop(3, "drop", (3 * BLOCK, 2 * BLOCK)))
    assert (one_more.start, one_more.stops) == (5 + 2 * rows + 3 * BLOCK, ())


def test_one_stretch_leaves_no_stops():
    assert Remaining(1000).after(Stop(1, "drop", (70,))).start == 70
    assert Remaining(1000).after(Stop(1, "drop", (70, 64))).start == 134
    assert Remaining(1000, position=970).after(Stop(4, "exact", (20,))).start == 990
    ragged = Remaining(1000).after(Stop(1, "drop", (70, 60)))
    assert (ragged.start, ragged.stops) == (64, (Stop(1, "drop", (60, 6)),))


def test_nothing_taken_changes_nothing():
    ragged = Remaining(1000).after(Stop(2, "drop", (10, 0)))
    for same in (ragged.after(Stop(7, "pad", (0, 0, 0))), ragged.after_batches(0, world_size=4, batch_size=9)):
        assert (same.start, same.stops, same.samples) == (ragged.start, ragged.stops, ragged.samples)


def test_batches_after_a_stop_use_up_what_is_ragged():
    ragged = Remaining(10_000).after(Stop(2, "drop", (10, 0)))
    assert left(ragged)[:118] == [*range(10, 64), *range(74, 138)]
    one = ragged.after_batches(1, world_size=1, batch_size=7)
    assert one.stops == (Stop(2, "drop", (10, 0)), Stop(1, "exact", (7,)))
    three = one.after_batches(1, world_size=2, batch_size=7)
    assert three.stops == (Stop(2, "drop", (10, 0)), Stop(1, "exact", (21,)))
    done = three.after_batches(3, world_size=1, batch_size=29)
    assert (done.start, done.stops, done.samples) == (128, (), 10_000)


def test_the_state_stays_small_whatever_the_length_of_the_run():
    samples = 10**15
    long = Remaining(samples, position=3).after(Stop(1024, "drop", tuple(10**10 + 100 * k for k in range(16))))
    (stop,) = long.stops
    assert max(stop.taken) < 1600 + 2 * BLOCK
    assert long.start + long.samples < 2 * samples
    # a second run that goes on for long swallows the first stop
    longer = long.after(Stop(512, "drop", (10**10, 10**10 + 1)))
    assert len(longer.stops) == 1
    handed_out = 3 + 1024 * sum(10**10 + 100 * k for k in range(16)) + 512 * (2 * 10**10 + 1)
    assert longer.samples - longer.start == samples - handed_out
    virtual = np.array([longer.start, longer.start + 100, longer.samples - 1])
    assert longer.positions(virtual)[-1] == samples - 1


@pytest.mark.parametrize("tail", ["drop", "pad", "exact"])
@pytest.mark.parametrize("samples", [0, 1, 63, 64, 65, 500])
def test_streams_that_were_handed_out_whole(samples, tail):
    workers, world_size = 3, 2
    rest = Remaining(samples).after(Stop(world_size, tail, (10**6,) * workers))
    left_out = samples - sum(
        sample_count(samples, rank=r, world_size=world_size, batch_size=None, tail="exact" if tail == "pad" else tail)
        for r in range(world_size)
    )
    assert left(rest) == list(range(samples - left_out, samples))
    assert rest.stops == ()


@thorough
@given(sizes, st.integers(0, 2600), ranks, st.integers(0, 5), tails)
def test_lengths_of_worker_streams(samples, start, world_size, num_workers, tail):
    workers = max(1, num_workers)
    run = {"samples": samples, "start": start, "world_size": world_size, "tail": tail}
    for rank in range(world_size):
        lengths = [worker_samples(**run, rank=rank, worker=k, num_workers=num_workers) for k in range(workers)]
        assert lengths == list(map(len, reference.worker_streams(**run, rank=rank, workers=workers)))


@thorough
@given(st.lists(st.integers(0, 300), min_size=1, max_size=6), st.integers(1, 50), st.data())
def test_batches_come_from_the_workers_in_turn(lengths, batch_size, data):
    turn = reference.batches_in_turn(lengths, batch_size)
    batches = data.draw(st.integers(0, len(turn)))
    expected = [min(n, batch_size * turn[:batches].count(worker)) for worker, n in enumerate(lengths)]
    shape = {"num_workers": len(lengths), "batch_size": batch_size, "samples_per_worker": lengths}
    assert taken_by_batches(batches, **shape) == tuple(expected)


class Streams(IterableDataset[tuple[int, int]]):
    """Worker k yields (k, 0), (k, 1), ..."""

    def __init__(self, lengths: list[int]) -> None:
        self.lengths = lengths

    def __iter__(self):
        info = get_worker_info()
        worker = 0 if info is None else info.id
        return ((worker, i) for i in range(self.lengths[worker]))


three_workers_on_two_cores = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")


@three_workers_on_two_cores
@settings(max_examples=6, deadline=None)
@given(
    st.integers(0, 3).flatmap(
        lambda workers: st.tuples(
            st.just(workers), st.lists(st.integers(0, 40), min_size=max(1, workers), max_size=max(1, workers))
        )
    ),
    st.integers(1, 12),
    st.integers(2, 4),
)
@example((3, [25, 3, 40]), 5, 2)
@example((3, [0, 0, 7]), 2, 2)
@example((2, [10, 31]), 10, 2)
@example((0, [11]), 4, 2)
def test_torchs_dataloader_hands_out_what_is_computed(shape, batch_size, prefetch):
    workers, lengths = shape
    loader = DataLoader(
        Streams(lengths),
        batch_size=batch_size,
        num_workers=workers,
        prefetch_factor=prefetch if workers else None,
        collate_fn=list,
    )
    run = {"num_workers": workers, "batch_size": batch_size, "samples_per_worker": lengths}
    taken, batches = [0] * len(lengths), 0
    assert taken_by_batches(0, **run) == tuple(taken)
    for batch in loader:
        for worker, number in batch:
            assert number == taken[worker]
            taken[worker] += 1
        batches += 1
        assert taken_by_batches(batches, **run) == tuple(taken)
    assert taken == lengths
    with pytest.raises(UsageError, match=f"{batches + 1} batches are more than the {batches}"):
        taken_by_batches(batches + 1, **run)


@three_workers_on_two_cores
def test_torchs_dataloader_that_drops_short_batches():
    lengths = [25, 3, 40]
    loader = DataLoader(Streams(lengths), batch_size=5, num_workers=3, collate_fn=torch.tensor, drop_last=True)
    run = {"num_workers": 3, "batch_size": 5, "samples_per_worker": [n // 5 * 5 for n in lengths]}
    taken = [0, 0, 0]
    for number, batch in enumerate(loader):
        taken[int(batch[0, 0])] += len(batch)
        assert taken_by_batches(number + 1, **run) == tuple(taken)
    assert taken == [25, 0, 40]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Stop(0, "drop", (1,)), "world_size"),
        (lambda: Stop(1, "keep", (1,)), "drop, pad, exact"),
        (lambda: Stop(1, "drop", ()), "taken"),
        (lambda: Stop(1, "drop", (1, -1)), r"\(1, -1\)"),
        (lambda: Remaining(-1), "got -1 and 0"),
        (lambda: Remaining(1, position=-1), "got 1 and -1"),
        (lambda: Remaining(9).after_batches(-1, world_size=1, batch_size=1), "count"),
        (lambda: Remaining(9).after_batches(1, world_size=0, batch_size=1), "got 1, 0 and 1"),
        (lambda: Remaining(9).after_batches(1, world_size=1, batch_size=0), "got 1, 1 and 0"),
        (lambda: worker_samples(9, rank=0, world_size=1, worker=2, num_workers=2, tail="drop"), "worker=2"),
        (lambda: worker_samples(9, rank=3, world_size=1, worker=0, num_workers=0, tail="drop"), "rank=3"),
        (lambda: taken_by_batches(-1, num_workers=0, batch_size=1, samples_per_worker=[3]), "batches"),
        (lambda: taken_by_batches(1, num_workers=0, batch_size=0, samples_per_worker=[3]), "batch_size"),
        (lambda: taken_by_batches(1, num_workers=2, batch_size=1, samples_per_worker=[3]), "2 lengths"),
        (lambda: taken_by_batches(1, num_workers=0, batch_size=1, samples_per_worker=[-3]), "1 lengths"),
    ],
)
def test_arguments_out_of_range(make, message):
    with pytest.raises(UsageError, match=message):
        make()
