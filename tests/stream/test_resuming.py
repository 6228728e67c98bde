"""Iterating a data set in this process, saved and resumed; and what workers of torch's loaders tell each other."""

from __future__ import annotations

import copy

import pytest

import shardstream as ss
from tests.grouped import grouped

from .making import numbered, write_dataset
from .resuming import ORDER, ResumingContract, Run, ids_of
from .simulated import SimulatedDataLoader, SimulatedStatefulDataLoader, as_worker


class TestBatches(ResumingContract):
    def run(self, source):
        return Run(source)


class TestSamples(TestBatches):
    batch_size = None


class TestRepeated(TestBatches):
    """Epochs of a size of their own, as pieces of an endless walk; over a view."""

    def source(self, folder, **shape):
        dataset = ss.ShardDataset(
            folder, fields=["id"], split=("most", {"most": "0.7", "rest": "0.3"}), **grouped(ORDER | shape)
        )
        return dataset.repeat(1.5)


class TestMixture(ResumingContract):
    def source(self, folder, **shape):
        """Two halves of the data; the small one comes round again within an epoch."""
        parts = {"small": "0.3", "large": "0.7"}
        halves = {name: ss.ShardDataset(folder, fields=["id"], split=(name, parts)) for name in parts}
        order = {name: value for name, value in ORDER.items() if name != "shuffle"}
        return ss.Mixture({name: (half, 1) for name, half in halves.items()}, epoch=270, **grouped(order | shape))

    def run(self, source):
        return Run(ss.Loader(source, num_workers=0))


class TestMixtureOfSamples(TestMixture):
    batch_size = None


class TestMixtureByBatches(TestMixture):
    def source(self, folder, **shape):
        parts = {"small": "0.3", "large": "0.7"}
        halves = {name: ss.ShardDataset(folder, fields=["id"], split=(name, parts)) for name in parts}
        return ss.Mixture(
            {"small": (halves["small"], 1), "large": (halves["large"], 3)},
            by="batches",
            epoch=270,
            seed=3,
            **grouped(shape),
        )

    def run(self, source):
        return Run(source)


@pytest.mark.full
class TestMixtureWithWorkers(TestMixture):
    def run(self, source):
        return Run(ss.Loader(source, num_workers=2))


def rest(loader):
    seen = []
    while (items := loader.step()) is not None:
        seen += [number for item in items for number in ids_of(item)]
    return seen


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_dataset(tmp_path_factory.mktemp("late"), numbered([20]))


def test_workers_that_begin_late_read_the_same_epoch(folder) -> None:
    """The first worker has come to its end before the second one begins, and the epoch was read before."""
    dataset = ss.ShardDataset(folder, fields=["id"], batch_size=4, **ORDER)
    loader = SimulatedDataLoader(dataset, num_workers=2, batch_size=None, ahead=9, late=True)
    for _ in range(3):
        dataset.set_epoch(0)
        loader.begin()
        assert sorted(rest(loader)) == list(range(20))
        assert dataset.epoch == 1
    loader.begin()
    assert sorted(rest(loader)) == list(range(20))
    assert dataset.epoch == 2


def test_workers_that_begin_late_read_the_rest_of_the_same_epoch(folder) -> None:
    dataset = ss.ShardDataset(folder, fields=["id"], batch_size=4, **ORDER)
    state = dataset.state_dict(batches=2, num_workers=2)
    expected = [number for batch in list(dataset)[2:] for number in ids_of(batch)]
    loader = SimulatedDataLoader(dataset, num_workers=2, batch_size=None, ahead=9, late=True)
    for _ in range(3):
        dataset.load_state_dict(state)
        loader.begin()
        assert rest(loader) == expected
        assert dataset.epoch == 1


def test_a_worker_at_its_end_ends_nobody_elses_epoch(folder) -> None:
    """The workers of a ``StatefulDataLoader`` load their states and make their iterators in any order."""
    dataset = ss.ShardDataset(folder, fields=["id"], batch_size=4, **ORDER)
    loader = SimulatedStatefulDataLoader(dataset, every=1, num_workers=2, batch_size=None)
    loader.begin()
    for _ in range(4):
        loader.step()
    states = [one["dataset_state"] for one in loader.state_dict()["_snapshot"]["_worker_snapshots"].values()]
    last = rest(loader)  # step 4 of 5, of worker 0; epoch 0 was finished in this process
    workers = [copy.copy(dataset), copy.copy(dataset)]
    with as_worker(0, 2, loader.seed, workers[0]):
        workers[0].load_state_dict(states[0])
    with as_worker(1, 2, loader.seed, workers[1]):
        workers[1].load_state_dict(states[1])
        assert list(workers[1]) == []
    with as_worker(0, 2, loader.seed, workers[0]):
        assert [number for batch in workers[0] for number in ids_of(batch)] == last
    assert dataset.epoch == 1
