"""Folders of pictures, lists, COCO's and YOLO's data sets in a bucket of a real server."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import shardstream as ss
from shardstream.cli.app import app
from shardstream.diagnose.cache import warm
from shardstream.errors import UsageError
from tests.grouped import grouped

from ...storage.faults import FaultProxy
from ...storage.places import S3Place
from .bucket_sets import COUNT, KINDS, make
from .making import webdataset

full = pytest.mark.full


@dataclass(frozen=True)
class InBucket:
    """A data set on this machine and in a bucket.

    Attributes:
        near: The one.
        far: The other.
        fields: What reads its values as they are stored.
        listed: Whether opening it lists its pictures, so that their sizes and versions are known.
    """

    near: Path
    far: str
    fields: Mapping[str, Any]
    listed: bool

    def dataset(self, place: Path | str, **options: Any) -> ss.ShardDataset:
        return ss.ShardDataset(place, **grouped({"fields": self.fields, "batch_size": 4, "tail": "exact"} | options))


@pytest.fixture(params=[pytest.param(kind, marks=() if kind in ("csv", "coco") else full) for kind in KINDS])
def made(request: pytest.FixtureRequest, s3: S3Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InBucket:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    return planted(request.param, s3, tmp_path / "data")


def planted(which: str, place: S3Place, root: Path) -> InBucket:
    opened = make(which, root)
    for path in root.rglob("*"):
        if path.is_file():
            place.plant(path.relative_to(root).as_posix(), path.read_bytes())
    near = root / opened
    fields = {name: "bytes" if kind.is_image else None for name, kind in ss.ShardDataset(near).manifest.fields.items()}
    return InBucket(near, place.url(opened), fields, listed=which in ("folder", "yolo"))


def samples(batches: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The samples of batches, their values as they can be compared."""
    return [
        {name: comparable(values[row]) for name, values in batch.items()}
        for batch in batches
        for row in range(len(batch["__key__"]))
    ]


def comparable(value: Any) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        value = np.frombuffer(value, np.uint8)
    value = np.asarray(value) if hasattr(value, "numpy") else value
    return (str(value.dtype), value.tolist()) if isinstance(value, np.ndarray | np.generic) else value


def epoch(dataset: ss.ShardDataset, workers: int = 0) -> list[dict[str, Any]]:
    return samples(ss.Loader(dataset, num_workers=workers))


@pytest.mark.one_in(5)
def test_as_from_this_machine_with_and_without_a_cache(made: InBucket, tmp_path: Path) -> None:
    stored = epoch(made.dataset(made.near))
    assert len(stored) == COUNT
    assert epoch(made.dataset(made.far)) == stored
    shuffled = epoch(made.dataset(made.near, shuffle=True))
    assert shuffled != stored
    assert epoch(made.dataset(made.far, shuffle=True)) == shuffled
    for _ in range(2):
        assert epoch(made.dataset(made.far, shuffle=True, cache=tmp_path / "cache")) == shuffled
    reader = ss.Reader(made.far, fields=made.fields)
    one = {name: comparable(value) for name, value in reader[COUNT - 1].items()}
    assert one["__key__"] == stored[-1]["__key__"]
    assert one["jpg"] == stored[-1]["jpg"]
    assert reader.get(one["__key__"])["__key__"] == one["__key__"]


@full
@pytest.mark.parametrize(("first", "then"), [(2, 1), (0, 2)])
@pytest.mark.parametrize("cached", [False, True])
def test_an_epoch_goes_on_with_another_number_of_workers(
    made: InBucket, tmp_path: Path, first: int, then: int, cached: bool
) -> None:
    options = {"shuffle": True, "seed": 3} | ({"cache": tmp_path / "cache"} if cached else {})
    loader = ss.Loader(made.dataset(made.far, **options), num_workers=first)
    iterator = iter(loader)
    begun = samples(islice(iterator, 4))
    state = json.loads(json.dumps(loader.state_dict()))
    del iterator
    elsewhere = ss.Loader(made.dataset(made.far, **options), num_workers=then)
    elsewhere.load_state_dict(state)
    assert begun + samples(elsewhere) == epoch(made.dataset(made.near, shuffle=True, seed=3))


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.output


@full
def test_every_verb(made: InBucket, s3: S3Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    stored = epoch(made.dataset(made.near))
    assert json.loads(run("index", made.far, "--json"))["samples"] == COUNT
    assert json.loads(run("info", made.far, "--json"))["samples"] == COUNT
    assert stored[3]["__key__"] in run("view", made.far, 3, "--save", tmp_path / "seen")
    assert len(list((tmp_path / "seen").rglob("*.jpg"))) == 1
    told = json.loads(run("verify", made.far, "--json"))
    assert (told["ok"], told["samples"]) == (True, COUNT)
    timed = json.loads(run("bench", made.far, "--workers", 0, "--batches", 3, "--batch-size", 4, "--json"))
    assert timed["samples"] == 12
    assert "s3://" in run("migrate", made.far)
    run("export", made.far, tmp_path / "mds", "--to", "mds")
    run("repack", made.far, s3.url("packed"), "--workers", 0)
    run("pack", made.far, tmp_path / "packed", "--workers", 0, "--labels", "name")
    for place in (tmp_path / "mds", s3.url("packed"), tmp_path / "packed"):
        found = samples(ss.ShardDataset(place, fields={"jpg": "bytes"}, batch_size=4, tail="exact"))
        assert sorted(one["jpg"][1] for one in found) == sorted(one["jpg"][1] for one in stored)


@pytest.fixture
def proxy(made: InBucket, s3: S3Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    """Before the server, for whoever reads the bucket; it counts requests."""
    with FaultProxy(s3.endpoint.removeprefix("http://")) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        yield proxy


def asked(proxy: FaultProxy) -> Counter[str]:
    """Requests for pictures since this was called last, by their method."""
    found = Counter(one.method for one in proxy.log() if ".jpg" in one.target and one.status < 300)
    proxy.reset_counts()
    return found


@pytest.mark.one_in(5)
def test_a_cache_asks_for_nothing_twice(made: InBucket, proxy: FaultProxy, tmp_path: Path) -> None:
    loader = ss.Loader(made.dataset(made.far, shuffle=True, cache=tmp_path / "cache"), num_workers=0)
    asked(proxy)
    first = samples(loader)
    assert asked(proxy) == Counter(GET=COUNT)
    assert sorted(map(repr, samples(loader))) == sorted(map(repr, first))
    assert not asked(proxy)
    assert loader.stats.transfers["cache_hit_bytes"] > 0
    again = made.dataset(made.far, shuffle=True, cache=tmp_path / "cache")
    asked(proxy)
    assert epoch(again) == first
    assert asked(proxy) == (Counter() if made.listed else Counter(HEAD=COUNT))
    assert len(epoch(again)) == COUNT
    assert not asked(proxy)


def test_single_files_are_not_brought_ahead(made: InBucket, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a file of its own"):
        warm(made.far, tmp_path / "cache")


def test_a_tar_in_a_bucket_is_brought_ahead(s3: S3Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    webdataset(tmp_path / "tars", tars=1)
    s3.plant("a.tar", (tmp_path / "tars/part-0.tar").read_bytes())
    report = warm(s3.url("a.tar"), tmp_path / "cache", storage_options=s3.options)
    assert (report.shards, report.total_shards, report.full) == (1, 1, False)
    assert report.bytes == report.fetched == (tmp_path / "tars/part-0.tar").stat().st_size
