"""Every way from a data set to the training loop, saved and resumed."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from torch.utils.data import DataLoader

import shardstream as ss

from ..stream.resuming import CountingRun, ResumingContract, Run

StatefulDataLoader = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader

pytestmark = [
    # torchdata 0.11 calls it when a loader is made
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
]


def numbers(samples: list[dict[str, Any]]) -> list[int]:
    return [sample["id"] for sample in samples]


def number(sample: dict[str, Any]) -> int:
    return sample["id"]


class TestLoader(ResumingContract):
    def run(self, source):
        return Run(ss.Loader(source, num_workers=0))


class TestLoaderOfSamples(TestLoader):
    batch_size = None


class TestLoaderWithWorkers(ResumingContract):
    def run(self, source):
        return Run(ss.Loader(source, num_workers=2))


@pytest.mark.full
class TestLoaderOfSamplesWithWorkers(TestLoaderWithWorkers):
    batch_size = None


@pytest.mark.full
class TestLoaderWithNewWorkersEachEpoch(ResumingContract):
    def run(self, source):
        return Run(ss.Loader(source, num_workers=3, persistent_workers=False))


@pytest.mark.full
class TestLoaderOfLists(ResumingContract):
    def run(self, source):
        return Run(ss.Loader(source, num_workers=2, collate_fn=numbers))


@pytest.mark.full
class TestLoaderOfCollatedSamples(ResumingContract):
    batch_size = None

    def run(self, source):
        return Run(ss.Loader(source, num_workers=0, collate_fn=number))


@pytest.mark.full
class TestDataLoader(ResumingContract):
    def run(self, source):
        return CountingRun(DataLoader(source, batch_size=None, num_workers=2))


@pytest.mark.full
class TestDataLoaderThatBatches(ResumingContract):
    batch_size = None
    alternates = True

    def run(self, source):
        return CountingRun(DataLoader(source, batch_size=7, num_workers=2, persistent_workers=True))


class TestDataLoaderThatBatchesHere(ResumingContract):
    batch_size = None

    def run(self, source):
        return CountingRun(DataLoader(source, batch_size=7, num_workers=0))


class StatefulRun(Run):
    def load_state_dict(self, state):
        self.loader.load_state_dict(copy.deepcopy(state))  # it keeps what it is given until it iterates


class StatefulContract(ResumingContract):
    sets_epoch = False

    def portable(self, state):
        return ss.convert_state(state)


class TestStatefulDataLoader(StatefulContract):
    def run(self, source):
        return StatefulRun(StatefulDataLoader(source, batch_size=None, num_workers=0))


@pytest.mark.full
class TestStatefulDataLoaderOfSamples(StatefulContract):
    batch_size = None
    ends_late = True

    def run(self, source):
        return StatefulRun(StatefulDataLoader(source, batch_size=None, num_workers=2, persistent_workers=True))


@pytest.mark.full
class TestStatefulDataLoaderThatBatches(StatefulContract):
    batch_size = None
    ends_late = True

    def run(self, source):
        return StatefulRun(StatefulDataLoader(source, batch_size=7, num_workers=3, snapshot_every_n_steps=4))
