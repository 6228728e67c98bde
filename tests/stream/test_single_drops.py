"""Single samples that are dropped: exact on one rank; on several, one warning and no state until the epoch ends."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from torch.utils.data import DataLoader

import shardstream as ss
from tests.grouped import grouped

from .making import numbered, write_dataset

COUNT = 200
DROPPED = frozenset(range(50, COUNT, 7))  # in stored order, the first 25 samples of each of two ranks are whole


def _keep(sample: dict[str, Any]) -> dict[str, Any] | None:
    return None if sample["id"] in DROPPED else sample


WAYS: dict[str, dict[str, Any]] = {
    "transform": {"transform": _keep},
    "exclude_keys": {"exclude_keys": [f"k{n:06d}" for n in sorted(DROPPED)]},
    "on_error": {"on_error": "skip", "max_skips": None, "fields": {"id": None, "bad": "bytes"}},
}
Open = Callable[..., ss.ShardDataset]


@pytest.fixture(scope="module", params=list(WAYS))
def opened(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Open:
    """Opens a data set of which samples are dropped in one of the ways; ``rank`` of ``ranks``."""
    folder = tmp_path_factory.mktemp("singles")
    write_dataset(folder, numbered([80, 120], bad=lambda n: b"payload %06d" % n))
    for shard in folder.glob("shard-*") if request.param == "on_error" else ():
        data = shard.read_bytes()
        for number in DROPPED:
            data = data.replace(b"payload %06d" % number, b"damaged %06d" % number)
        shard.write_bytes(data)

    def open_as(rank: int, ranks: int, **options: Any) -> ss.ShardDataset:
        return ss.ShardDataset(
            folder, **grouped({"fields": ["id"]} | WAYS[request.param] | {"rank": rank, "world_size": ranks} | options)
        )

    open_as.way = request.param  # type: ignore[attr-defined]
    return open_as


class Bare:
    """A data set that is iterated over by itself, as `ss.Loader` is."""

    def __init__(self, dataset: ss.ShardDataset) -> None:
        self.state_dict, self.load_state_dict = dataset.state_dict, dataset.load_state_dict
        self._dataset = dataset

    def __iter__(self) -> Iterator[Any]:
        return iter(self._dataset)


def _loaded(dataset: ss.ShardDataset) -> ss.Loader:
    return ss.Loader(dataset, num_workers=0)


def _stateful(dataset: ss.ShardDataset) -> Any:
    torchdata = pytest.importorskip("torchdata.stateful_dataloader")
    return torchdata.StatefulDataLoader(dataset, batch_size=None, num_workers=0)


loaders = pytest.mark.parametrize("loader", [Bare, _loaded, _stateful])
pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")


def _ids(items: Any) -> list[int]:
    return [int(item["id"]) for item in items]


def _warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if "unequally many" in one.getMessage()]


@loaders
def test_one_rank_is_exact_after_drops(opened: Open, loader: Any, caplog: pytest.LogCaptureFixture) -> None:
    good = [n for n in range(COUNT) if n not in DROPPED]
    first = loader(opened(0, 1))
    items = iter(first)
    got = _ids(next(items) for _ in range(100))
    state = first.state_dict()
    resumed = loader(opened(0, 1))
    resumed.load_state_dict(state)
    assert got + _ids(resumed) == good
    assert not _warnings(caplog)


@loaders
def test_of_several_ranks_a_dropped_sample_ends_states_until_the_epoch_ends(
    opened: Open, loader: Any, caplog: pytest.LogCaptureFixture
) -> None:
    early = opened.way == "exclude_keys"  # type: ignore[attr-defined]
    dataset = opened(0, 2)
    first = loader(dataset)
    for epoch in range(2):
        items = iter(first)
        got = _ids(next(items) for _ in range(20))
        assert bool(_warnings(caplog)) == (early or epoch > 0)
        state = first.state_dict()
        others = [loader(opened(rank, 2)) for rank in range(2)]
        for other in others:
            other.load_state_dict(state)
        rests = [_ids(other) for other in others]
        assert sorted(got + rests[0]) == [n for n in sorted(got + rests[0]) if n not in DROPPED]
        assert not set(got) & set(rests[0] + rests[1])
        caplog.set_level(logging.WARNING)
        got += _ids(next(items) for _ in range(50))
        with pytest.raises(ss.errors.UsageError, match=r"2 ranks.*\n?.*") as caught:
            first.state_dict()
        assert "batch_size=" in str(caught.value)
        assert "find_rows" in str(caught.value)
        rest = _ids(items)
        assert len(set(got + rest)) == len(got + rest)
        assert dataset.epoch == epoch + 1
        assert loader is _stateful or first.state_dict()["epoch"] == epoch + 1
    said = [text for text in _warnings(caplog) if "batch_size=" in text and "find_rows" in text]
    assert len(said) == len(_warnings(caplog)) >= 1


def test_it_is_warned_of_once(opened: Open, caplog: pytest.LogCaptureFixture) -> None:
    loader = ss.Loader(opened(1, 2), num_workers=0)
    for _ in range(3):
        assert len(list(loader)) < COUNT // 2
    assert len(_warnings(caplog)) == 1
    assert logging.getLevelName(caplog.records[-1].levelno) == "WARNING"


def test_batches_are_not_warned_of(opened: Open, caplog: pytest.LogCaptureFixture) -> None:
    loader = ss.Loader(opened(1, 2, batch_size=10), num_workers=0)
    next(iter(loader))
    assert loader.state_dict()["position"] == 20
    assert not _warnings(caplog)


def test_a_plain_data_loader_refuses_states_as_before(opened: Open) -> None:
    dataset = opened(0, 2)
    batches = iter(DataLoader(dataset, batch_size=10, num_workers=1, collate_fn=_ids))
    for _ in range(5):
        next(batches)
    with pytest.raises(ss.errors.UsageError, match="dropped") as caught:
        dataset.state_dict(batches=5, num_workers=1, batch_size=10)
    assert "find_rows" in str(caught.value)


@pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")
def test_a_state_of_workers_is_of_the_rank_that_dropped(opened: Open) -> None:
    torchdata = pytest.importorskip("torchdata.stateful_dataloader")

    def make(rank: int, state: Any = None) -> Any:
        made = torchdata.StatefulDataLoader(opened(rank, 2), batch_size=None, num_workers=1, collate_fn=_same)
        if state is not None:
            made.load_state_dict(state)
        return made

    whole = _ids(make(0))
    first = make(0)
    items = iter(first)
    got = _ids(next(items) for _ in range(60))
    state = first.state_dict()
    del items, first
    assert got + _ids(make(0, state)) == whole
    resumed = make(0, state)
    items = iter(resumed)
    again = _ids([next(items)])
    later = resumed.state_dict()  # nothing more need be dropped for it to be of this rank alone
    assert got + again + _ids(items) == whole
    for one in (state, later):
        with pytest.raises(ss.errors.UsageError, match="rank 0 saved this state"):
            _ids(make(1, one))
        with pytest.raises(ss.errors.UsageError, match="different places"):
            ss.convert_state(one)


def _same(sample: Any) -> Any:
    return sample
