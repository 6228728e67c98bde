"""A data set that grows while it is trained on: runs of the old version go on with exactly its samples."""

from __future__ import annotations

import json
import logging
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader

import shardstream as ss
from shardstream.diagnose import cache as caches
from shardstream.errors import UsageError
from shardstream.storage import counters

from ..storage.faults import FaultProxy
from ..storage.places import WebPlace
from .resuming import ids_of

FIRST, SECOND = 300, 130


def grow(folder: Path, *numbers: int) -> None:
    with ss.ShardWriter(folder, append=True, shard_size="5kB", format="record") as writer:
        for i in numbers:
            writer.write({"__key__": f"{i}", "id": i, "odd": i % 2, "bin": bytes(100)})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    grow(tmp_path / "ds", *range(FIRST))
    return tmp_path / "ds"


def newer(folder: Path) -> None:
    grow(folder, *range(FIRST, FIRST + SECOND))


def dataset(folder: Any, **options: Any) -> ss.ShardDataset:
    return ss.ShardDataset(folder, **{"batch_size": 16, "shuffle": True, "seed": 4, "fields": ["id", "bin"], **options})


def ids(item: Any) -> list[int]:
    return ids_of(item[0] if isinstance(item, tuple) else item)


def part(loader: Any, batches: int) -> list[list[int]]:
    """The first batches, and no more is handed out."""
    found = []
    for _, batch in zip(range(batches), loader, strict=False):
        found.append(ids(batch))
    return found


def all_of(loader: Any) -> list[list[int]]:
    return [ids(batch) for batch in loader]


VIEWS: dict[str, Callable[[Any], ss.ShardDataset]] = {
    "plain": dataset,
    "split": lambda url: dataset(url, split=("train", {"train": 0.7, "val": 0.3})),
    "where": lambda url: dataset(url, where={"odd": [1]}),
    "take": lambda url: dataset(url).take(200),
    "comparison": lambda url: dataset(url, where={"id": (">=", 40)}),
    "callable": lambda url: dataset(url, where={("id", "odd"): lambda id, odd: (id % 3 > 0) & (odd == 1)}),
    "keys": lambda url: dataset(url).filter({"__key__": [f"{i}" for i in range(0, 300, 2)]}).take(120),
    "exclude_keys": lambda url: dataset(url, exclude_keys=["3", "150"]),
    "two by a callable": lambda url: dataset([url, url], where={"id": lambda id: id % 4 == 1}, exclude_keys=["5"]),
    "epoch_size": lambda url: dataset(url, epoch_size=120),
    "tuple": lambda url: dataset(url).to_tuple("id"),
    "two": lambda url: dataset([url, url]),
}


@pytest.mark.one_in(5)
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.full)])
def test_a_run_of_the_old_version_goes_on(folder: Path, view: str, workers: int, caplog: Any) -> None:
    make = VIEWS[view]

    def loader() -> ss.Loader:
        return ss.Loader(make(folder), num_workers=workers, multiprocessing_context="fork" if workers else None)

    expected = loader()
    whole, following = all_of(expected), all_of(expected)
    stopped = loader()
    begun = part(stopped, 3)
    state = json.loads(json.dumps(stopped.state_dict()))
    newer(folder)
    assert loader().dataset.fingerprint != state["fingerprint"]

    caplog.set_level(logging.INFO, "shardstream.stream.iteration.versions")
    resumed = loader()
    resumed.load_state_dict(state)
    assert begun + all_of(resumed) == whole
    assert all_of(resumed) == following
    assert resumed.dataset.fingerprint == state["fingerprint"]
    assert resumed.state_dict()["versions"] == state["versions"]
    said = [one.getMessage() for one in caplog.records if one.name == "shardstream.stream.iteration.versions"]
    assert len(said) == 1
    assert "state is of version 1" in said[0]


@pytest.mark.parametrize("context", ["fork", pytest.param("spawn", marks=pytest.mark.full)])
def test_a_plain_loader_and_other_copies_follow(folder: Path, context: str) -> None:
    first = dataset(folder)
    whole, following = all_of(first), all_of(first)
    stopped = dataset(folder)
    begun = part(stopped, 5)
    state = stopped.state_dict()
    newer(folder)
    source = dataset(folder)
    loader = DataLoader(
        source.to_tuple("id"), batch_size=None, num_workers=2, multiprocessing_context=context, persistent_workers=True
    )
    assert len(all_of(loader)) == (FIRST + SECOND) // 16  # the workers have the newest open
    source.load_state_dict(state)
    assert all_of(loader) == whole[len(begun) :]
    assert all_of(loader) == following
    assert len(source) == FIRST // 16
    assert source.manifest.version == 1


@pytest.mark.full
def test_a_run_at_work_does_not_notice(folder: Path) -> None:
    expected = dataset(folder)
    epochs = [all_of(expected) for _ in range(3)]
    loader = ss.Loader(dataset(folder), num_workers=1, multiprocessing_context="spawn", persistent_workers=False)
    found = [all_of(loader)]
    newer(folder)
    found.append(all_of(loader))  # by a process that was started after the new version was published
    state = loader.state_dict()
    found.append(all_of(loader))
    assert found == epochs
    again = ss.Loader(dataset(folder), num_workers=0)
    again.load_state_dict(state)
    assert all_of(again) == epochs[2]


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")
def test_a_stateful_loader(folder: Path) -> None:
    stateful = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader

    def loader() -> Any:
        return stateful(dataset(folder), batch_size=None, num_workers=2, multiprocessing_context="fork")

    whole = all_of(loader())
    stopped = loader()
    begun = part(stopped, 5)
    state = stopped.state_dict()
    newer(folder)
    resumed = loader()
    resumed.load_state_dict(state)
    assert begun + all_of(resumed) == whole
    converted = ss.Loader(dataset(folder), num_workers=0)
    converted.load_state_dict(ss.convert_state(state))
    assert begun + all_of(converted) == whole


def test_forth_and_back(folder: Path) -> None:
    old, new = dataset(folder), None
    old_state = old.state_dict()
    newer(folder)
    new = dataset(folder)
    new_state = new.state_dict()
    expected = all_of(dataset(folder, version=1)), all_of(dataset(folder))
    for state, which in ((old_state, 0), (new_state, 1), (old_state, 0)):
        new.load_state_dict(state)
        assert all_of(new) == expected[which]
    old.load_state_dict(new_state)  # opened when there was no such version yet
    assert all_of(old) == expected[1]


def test_by_number(folder: Path) -> None:
    old = all_of(dataset(folder))
    newer(folder)
    assert all_of(dataset(folder, version=1)) == old
    assert ss.Reader(folder, version=1).manifest.samples == len(ss.Reader(folder, version=1)) == FIRST
    assert len(ss.Reader(folder)) == FIRST + SECOND
    both = dataset([folder, folder], version=[1, None])
    assert [one.version for one in both.manifests] == [1, 2]
    with pytest.raises(UsageError, match="2 data sets"):
        dataset([folder, folder], version=1)
    with pytest.raises(UsageError, match="no version 3"):
        dataset(folder, version=3)


def test_several_data_sets_each_at_its_own(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    grow(other, *range(1000, 1100))
    grow(other, *range(1100, 1120))
    stopped = dataset([folder, other])
    whole = all_of(dataset([folder, other]))
    begun = part(stopped, 2)
    state = stopped.state_dict()
    assert state["versions"] == [1, 2]
    newer(folder)
    grow(other, 2000)
    resumed = dataset([folder, other])
    resumed.load_state_dict(state)
    assert begun + all_of(resumed) == whole


def test_mixtures(folder: Path) -> None:
    def mixture(epoch: Any, **options: Any) -> ss.Mixture:
        sources = {"a": (dataset(folder, **options), 0.7), "b": (dataset(folder, where={"odd": [1]}), 0.3)}
        return ss.Mixture(sources, batch_size=10, epoch=epoch, seed=1)

    stopped, total = mixture(150), mixture("total")
    whole = all_of(mixture(150))
    begun = part(stopped, 4)
    state, total_state = stopped.state_dict(), total.state_dict()
    newer(folder)
    resumed = mixture(150)
    resumed.load_state_dict(state)
    assert begun + all_of(resumed) == whole
    # An epoch of as many samples as there are now: its length was computed from the newest version.
    with pytest.raises(UsageError, match=r"versions were \[1, 1\], here they are \[2, 2\]"):
        mixture("total").load_state_dict(total_state)


def test_states_that_fit_no_version(folder: Path) -> None:
    state = dataset(folder).state_dict()
    newer(folder)
    for change in ({"versions": [7]}, {"versions": [1, 1]}, {"versions": "x"}, {"fingerprint": "0" * 32}):
        source = dataset(folder)
        with pytest.raises(UsageError):
            source.load_state_dict(state | {"data": "0" * 32, "fingerprint": "0" * 32} | change)
        assert source.manifest.version == 2
    with pytest.raises(UsageError, match="seed=5"):
        dataset(folder).load_state_dict(state | {"seed": 5})


# ------------------------------------------------------------------------------------------------------------- remote


@pytest.fixture
def proxy(web: WebPlace) -> Iterator[FaultProxy]:
    with FaultProxy(web.endpoint.removeprefix("http://")) as found:
        yield found


def upload(folder: Path, web: WebPlace) -> None:
    for path in folder.iterdir():
        web.plant(path.name, path.read_bytes())


@pytest.mark.full
def test_over_a_network_with_a_cache_and_then_without_the_store(
    folder: Path, web: WebPlace, proxy: FaultProxy, tmp_path: Path
) -> None:
    upload(folder, web)
    url = web.url().replace(web.endpoint, proxy.url)

    def loader() -> ss.Loader:
        return ss.Loader(dataset(url, cache=tmp_path / "cache"), num_workers=0)

    whole = all_of(dataset(folder))
    stopped = loader()
    begun = part(stopped, 3)
    state = stopped.state_dict()
    all_of(stopped)
    newer(folder)
    upload(folder, web)
    resumed = loader()
    resumed.load_state_dict(state)
    assert begun + all_of(resumed) == whole
    proxy.down()  # both heads, and the shards of the old version, are in the cache
    offline = loader()
    assert offline.dataset.manifest.version == 2
    offline.load_state_dict(state)
    assert begun + all_of(offline) == whole
    travelled = pickle.loads(pickle.dumps(dataset(url, cache=tmp_path / "cache", version=1)))
    assert all_of(travelled) == whole


def test_what_a_cache_holds_of_an_old_version_serves_the_new_one(folder: Path, web: WebPlace, tmp_path: Path) -> None:
    upload(folder, web)
    cache = tmp_path / "cache"
    old = all_of(dataset(web.url(), cache=cache))
    assert [known.offline for known in caches.status(cache).known] == [True]
    newer(folder)
    upload(folder, web)
    manifest = ss.Manifest.load(folder)
    added = int(manifest.table.sizes[manifest.history[-1].shards :].sum())
    before = counters().snapshot()
    started = dataset(web.url(), cache=cache)
    assert started.manifest.version == 2
    assert [known.offline for known in caches.status(cache).known] == [False]
    assert len(all_of(started)) > len(old)
    assert counters().since(before)["cache_fetched_bytes"] == added
    status = caches.status(cache)
    assert [(known.shards, known.offline) for known in status.known] == [(manifest.shards, True)]
    assert [one.fingerprint for tier in status.tiers for one in tier.sets] == [manifest.lineage]
    assert all_of(dataset(web.url(), cache=cache, version=1)) == old
    assert counters().since(before)["cache_fetched_bytes"] == added
