"""Training over a cache that is damaged meanwhile: every epoch has all samples, once each, as they were written."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import numpy as np
import pytest

import shardstream as ss
from shardstream.storage.cache import Cache

from .making import flip

SAMPLES = 96


def content(number: int) -> bytes:
    return np.random.default_rng(number).bytes(30_000 + number)


@pytest.fixture
def url(web, tmp_path) -> str:
    with ss.ShardWriter(tmp_path / "set", shard_size="1.2MB") as writer:
        for number in range(SAMPLES):
            writer.write({"__key__": f"{number}", "raw": content(number)})
    for path in (tmp_path / "set").iterdir():
        web.plant(path.name, path.read_bytes())
    return web.url()


def flipped(cache) -> None:
    for file in cache.rglob("*.blocks"):
        for where in range(100_000, file.stat().st_size, 1 << 20):
            flip(file, where)


def map_flipped(cache) -> None:
    for file in cache.rglob("*.blocks"):
        flip(file, 4096)


def cut(cache) -> None:
    for file in cache.rglob("*.blocks"):
        os.truncate(file, file.stat().st_size // 2)


def emptied(cache) -> None:
    for file in cache.rglob("*.blocks"):
        os.truncate(file, 0)


def removed(cache) -> None:
    gone = cache.with_name("gone")
    cache.rename(gone)  # at once: workers make files again in what has the name
    shutil.rmtree(gone)


def epoch(loader, between=lambda: None) -> Iterator[str]:
    for number, batch in enumerate(loader):
        if number == 2:
            between()
        for key, raw in zip(batch["__key__"], batch["raw"], strict=True):
            assert np.asarray(raw).tobytes() == content(int(key))
            yield key


@pytest.mark.one_in(3)
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("damage", [flipped, map_flipped, cut, emptied, removed])
def test_damage_between_epochs_and_in_the_middle_of_one(url, tmp_path, damage, workers) -> None:
    cache = tmp_path / "cache"
    dataset = ss.ShardDataset(url, cache=Cache(cache), shuffle=True, tail="exact", batch_size=8)
    loader = ss.Loader(dataset, num_workers=workers, persistent_workers=workers > 0)
    every = sorted(map(str, range(SAMPLES)))
    assert sorted(epoch(loader)) == every
    damage(cache)
    assert sorted(epoch(loader)) == every
    assert sorted(epoch(loader, lambda: cache.exists() and damage(cache))) == every
    assert sorted(epoch(loader)) == every
